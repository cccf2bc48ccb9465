"""Checks that nodes can attack in a method."""

import warnings
from typing import Any

import numpy as np

from topofl._support.check import shown
from topofl.algorithms.contract.needs import exceeded_bound
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import Rule
from topofl.attacks import Attack
from topofl.engine.dry_run.trace import Trace
from topofl.topology import Topology, TopologySequence

__all__ = ["check_attack", "check_attackers"]


def check_attackers(attackers: Any, algorithm: Algorithm, n: int) -> Attack | None:
    """Return the attack of a run, or raise unless it is by some of n nodes that exchange models."""
    if attackers is None:
        return None
    if not isinstance(attackers, Attack):
        raise TypeError(
            "`attackers` must be an Attack such as attacks.sign_flip(nodes=[0]), got "
            f"{shown(attackers)}"
        )
    if algorithm.pooled:
        raise ValueError(
            f"`attackers` must be None for {algorithm.name}, in which nodes send each other nothing"
        )
    if max(attackers.nodes) >= n or len(attackers.nodes) >= n:
        raise ValueError(
            f"`attackers` must be some of the nodes 0 to {n - 1}, and leave at least one honest "
            f"node, got {shown(list(attackers.nodes))}"
        )
    return attackers


def check_attack(
    trace: Trace, attack: Attack | None, graphs: Topology | TopologySequence, rule: Rule
) -> None:
    """Raise ``ValueError`` if a method cannot be attacked; warn if it tolerates fewer attackers."""
    if attack is None:
        return
    name, doors = trace.algorithm.name, set().union(*trace.requests.doors.values())
    if "mixed gradients" in doors:
        raise ValueError(
            f"`attackers` must be None for {name}: gradients within local steps cannot be forged"
        )
    if attack.to_each and "shown" in doors and not doors & {"mix", "server"}:
        raise ValueError(
            f"`attackers` must send the same to all neighbors for {name}, in which a node "
            f"publishes its model before its receiver is drawn; {attack.name!r} sends each "
            "neighbor a different one; take sign_flip, noise or alie"
        )
    if not doors & ({"mix", "server"} if attack.to_each else {"mix", "server", "shown"}):
        raise ValueError(
            f"`attackers` must be None for {name}: no attack can forge what its nodes send; take "
            "dsgd"
        )
    if attack.to_each and "server" in doors:
        raise ValueError(
            f"`attackers` must send all the same for {name}, which has a server; use "
            "attacks.sign_flip"
        )
    if not trace.needs_topology:
        return
    bad = np.zeros(graphs.n, dtype=bool)
    bad[list(attack.nodes)] = True
    for need in trace.algorithm.needs:
        if text := next(
            filter(None, (exceeded_bound(need, rule(one.graph), bad) for one in trace.rounds)), ""
        ):
            warnings.warn(
                f"`attackers` are more than {name} tolerates: {text}", UserWarning, stacklevel=6
            )
