"""Checks that an attack is possible in an algorithm."""

import warnings
from typing import Any

import numpy as np

from topofl._support.check import shown
from topofl.algorithms.contract.needs import exceeded_bound
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import Rule
from topofl.attacks import Attack
from topofl.engine.requests import Trace
from topofl.topology import Topology, TopologySequence

__all__ = ["check_attack", "check_attackers"]


def check_attackers(attackers: Any, algorithm: Algorithm, n: int) -> Attack | None:
    """Return the attack of a run, or raise unless some but not all of n nodes are attackers."""
    if attackers is None:
        return None
    if not isinstance(attackers, Attack):
        raise TypeError(
            "`attackers` must be an Attack such as attacks.sign_flip(nodes=[0]), got "
            f"{shown(attackers)}"
        )
    if algorithm.pooled:
        raise ValueError(
            f"`attackers` must be None for {algorithm.name}, in which nodes exchange nothing"
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
    """Raise ``ValueError`` if an algorithm cannot be attacked; warn of more than it tolerates."""
    if attack is None:
        return
    name = trace.algorithm.name
    calls = set().union(*trace.calls.values())
    if "mixed gradients" in calls:
        raise ValueError(
            f"`attackers` must be None for {name}: gradients within local steps cannot be forged"
        )
    if attack.to_each and "published" in calls and not calls & {"mix", "server"}:
        raise ValueError(
            f"`attackers` must send the same to all neighbors for {name}, in which a node "
            f"publishes its model before its receiver is drawn; {attack.name!r} sends each "
            "neighbor a different one; use sign_flip, noise or alie"
        )
    if not calls & ({"mix", "server"} if attack.to_each else {"mix", "server", "published"}):
        raise ValueError(
            f"`attackers` must be None for {name}: no attack can forge what its nodes send; use "
            "dsgd"
        )
    if attack.to_each and "server" in calls:
        raise ValueError(
            f"`attackers` must send one model to all for {name}, which has a server; use "
            "attacks.sign_flip"
        )
    if not trace.needs_topology:
        return
    is_attacker = np.zeros(graphs.n, dtype=bool)
    is_attacker[list(attack.nodes)] = True
    for need in trace.algorithm.needs:
        texts = (exceeded_bound(need, rule(graph), is_attacker) for graph in trace.graphs)
        if text := next(filter(None, texts), ""):
            warnings.warn(
                f"`attackers` are more than {name} tolerates: {text}", UserWarning, stacklevel=6
            )
