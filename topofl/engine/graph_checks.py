"""Graphs and mixing matrices of a run, checked against its algorithm, clients and attackers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import shown
from topofl._support.public import warn_caller
from topofl._support.text import node_name
from topofl.algorithms.contract.needs import (
    check_weights,
    equal_shares,
    exceeded_bound,
    strongly_connected,
)
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import Rule
from topofl.attacks import Attack
from topofl.data import Partition
from topofl.engine.requests import Setup, Trace, complete_graph
from topofl.metrics.spectral import largest_share, share_in_words
from topofl.mixing import (
    MixingMatrix,
    metropolis_or_uniform,
    own_weights,
    uniform,
    warn_of_unused_weights,
    warning_once,
)
from topofl.topology import Topology, TopologyError, TopologySequence, graph_of


def check_topology(
    algorithm: Algorithm, topology: Any, n: int
) -> Topology | TopologySequence | None:
    """Return the graphs of a run (None: no topology), or raise unless they have n nodes."""
    if algorithm.pooled or topology is None:
        return None
    graphs = graph_of("topology", topology)
    if graphs.n != n:
        sizes = f"{graphs.name} has n={graphs.n}, `clients` has n={n}"
        raise ValueError(
            f"`topology` must have one node per client: {sizes}; build it with n={n}, or leave it "
            f"out if {algorithm.name} ignores it, as methods with a server do"
        )
    if isinstance(graphs, Topology) or graphs.period is None:
        return graphs
    members = [graphs.at(t) for t in range(graphs.period)]  # so that each has its weights once
    return replace(graphs, generate=members.__getitem__)


def why_ignored(trace: Trace) -> str:
    """Return why a run does not use the topology that it is given; empty if it does."""
    if trace.needs_topology or trace.chooses:
        return ""
    if trace.uses_server:
        return "its nodes communicate through a server only"
    if trace.algorithm.pooled:
        return "it trains one model on all data"
    return "it exchanges nothing, or along edges of its own"


def with_graphs(setup: Setup, *, warn: bool) -> Setup:
    """Return a setup with the graphs that its run uses, and the largest share in the average.

    Raises unless graphs fit the algorithm, the clients and the attackers, as a dry run shows them.
    For sequences without a period, only the weights of the rounds in the dry run are checked. If
    `warn`, the default weights are warned of where they ignore weights of edges, or where nodes
    have unequal shares.
    """
    trace, clients, given = setup.trace, setup.clients, setup.topology
    rule = partial(setup.weights_of, setup.push if trace.pushes else setup.pull)
    _check_trial_examples(trace, clients, () if given is None else given.nodes)
    if given is not None and trace.algorithm.needs and not trace.is_served:
        rounds = _of_one_period(given) or trace.graphs
        check_weights(trace.algorithm.name, trace.algorithm.needs, given, rounds, rule)
    if given is not None and trace.needs_topology and (period := _of_one_period(given)):
        disconnected = setup.compute.on_disconnected == "raise" and strongly_connected.graphs(given)
        if disconnected:
            raise TopologyError(
                f"`topology` must be connected for nodes to agree, got {given.name}: "
                f"{disconnected}; connect it, or train its components separately with "
                "compute=Compute(on_disconnected='allow')"
            )
        if warn:
            warn_of_unused_weights(period, "mixing", pushes=trace.pushes)
    graphs = complete_graph(clients.n) if given is None and trace.chooses else given
    if graphs is None or trace.is_served:
        no_edges = sparse.csr_array((clients.n, clients.n))
        graphs = Topology(no_edges, name="a server" if trace.is_served else "no edges")
    if setup.attack is not None:
        _check_attack(trace, setup.attack, graphs.n, rule)
    return replace(setup, topology=graphs, share=_unequal_share(trace, graphs, rule, warn))


def _of_one_period(graphs: Topology | TopologySequence) -> list[Topology]:
    """Return the graphs of a period; none of a sequence without one."""
    return [graphs.at(t) for t in range(graphs.period or 0)]


def _unequal_share(
    trace: Trace, graphs: Topology | TopologySequence, rule: Rule, warn: bool
) -> tuple[int, float] | None:
    """Return the node with the largest share in the average on which models agree, and the share.

    If `warn`, unequal shares are warned of, also if they cannot be computed. None if all shares are
    1/n or cannot be computed; if graphs change without a period; if nodes push, which corrects for
    the shares; if models are not multiplied by the weights, nor aggregated by a method that
    declares :data:`equal_shares`; and if nodes that are not connected do not agree.
    """
    if trace.pushes or trace.chooses or not trace.needs_topology:
        return None
    weights = [rule(graph) for graph in _of_one_period(graphs)]
    declared = any(need.name == equal_shares.name for need in trace.algorithm.needs)
    mixed = any(one in mixed for mixed in trace.mixed for one in weights)
    if all(one.is_doubly_stochastic for one in weights) or not (mixed or declared):
        return None
    try:
        found = largest_share(weights)
        shares = "" if found is None else share_in_words(found, graphs.n, graphs.at(0).nodes)
    except TopologyError:
        found, shares = None, "its nodes unequal shares, which could not be computed,"
    if warn and shares:
        if isinstance(graphs, Topology):
            which, kept = "which is directed", "own_weights" if graphs.own_weights else "uniform"
        else:
            which = f"which has directed graphs and repeats after {graphs.period} rounds"
            kept = "metropolis_or_uniform"
        warn_caller(
            f"the weights of {graphs.name}, {which}, give {shares} in the average on which models "
            f"agree, so that {trace.algorithm.name} minimizes the mean of the nodes' losses, "
            f"weighted by these shares: to weight all nodes equally, {equal_shares.remedy}; to "
            f"keep the shares, pass mixing=mixing.{kept}"
        )
    return found


def _check_trial_examples(trace: Trace, clients: Partition, labels: Sequence[object]) -> None:
    """Raise ``ValueError`` if nodes without examples of a set must cross-evaluate models on it."""
    for where in sorted(trace.trial_sets):
        empty = [i for i, examples in enumerate(getattr(clients, where)) if not len(examples)]
        if empty:
            remedy = "partition with val_fraction" if where == "val" else "leave such clients out"
            raise ValueError(
                f"`clients` must give every node {where} examples, on which {trace.algorithm.name} "
                f"evaluates models, node {node_name(labels, empty[0])} has none ({len(empty)} of "
                f"{clients.n}); {remedy}"
            )


def weight_rules(
    mixing: Rule | MixingMatrix | None, graphs: Topology | TopologySequence | None
) -> tuple[Rule, Rule, Callable[[Rule, Topology], MixingMatrix]]:
    """Return the rules of a run for pulls and for pushes, from its argument `mixing`.

    The third result returns the checked matrix of a rule and a graph.

    A fixed matrix is checked on each graph. A default rule warns of the first graph whose own
    weights it ignores.
    """
    pull: Rule = metropolis_or_uniform
    push: Rule = _default_push_weights
    if isinstance(mixing, MixingMatrix):
        pull = push = mixing.check_on
    elif callable(mixing):
        pull = push = mixing
    elif mixing is not None:
        must = "`mixing` must be a weight rule such as mixing.metropolis_hastings or a MixingMatrix"
        raise TypeError(f"{must}, got {shown(mixing)}")
    elif graphs is not None and graphs.period is None:  # periodic ones are checked before the run
        pull = warning_once(pull, "mixing")
        push = warning_once(push, "mixing", pushes=True)
    known = 64 if graphs is None else max(64, graphs.period or 0)
    return pull, push, lru_cache(maxsize=known)(_weights_on)


def _weights_on(rule: Rule, graph: Topology) -> MixingMatrix:
    """Return the checked mixing matrix of a graph by a weight rule."""
    weights = rule(graph)
    if not isinstance(weights, MixingMatrix):
        must = "`mixing` must return a MixingMatrix"
        raise TypeError(f"{must}, got {type(weights).__name__}; use from_weights(weights, graph)")
    return weights.check_on(graph)


def _default_push_weights(graph: Topology) -> MixingMatrix:
    """Return the default weights of an algorithm that pushes.

    Raises ``ValueError`` if the graph's own weights cannot be pushed.
    """
    if not graph.own_weights:
        return uniform(graph, direction="push")
    weights = own_weights(graph)
    if not weights.is_column_stochastic:
        sums = weights.weights.sum(axis=0)
        node = int(np.abs(sums - 1).argmax())
        raise ValueError(
            "`topology` must, with `own_weights`, have columns that sum to 1 to push models, but "
            f"column {node_name(graph.nodes, node)} of {graph.name} sums to {sums[node]:.6g}; push "
            "in equal shares by mixing=functools.partial(mixing.uniform, direction='push'), or "
            "average by an algorithm such as dsgd"
        )
    return weights


def check_attackers(attackers: Any, algorithm: Algorithm, n: int) -> Attack | None:
    """Return the attack of a run, or raise unless some but not all of n nodes are attackers."""
    if attackers is None:
        return None
    if not isinstance(attackers, Attack):
        must = "`attackers` must be an Attack such as attacks.sign_flip(nodes=[0])"
        raise TypeError(f"{must}, got {shown(attackers)}")
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


def _check_attack(trace: Trace, attack: Attack, n: int, rule: Rule) -> None:
    """Raise ``ValueError`` if an algorithm cannot be attacked; warn of more than it tolerates."""
    name, must = trace.algorithm.name, ""
    calls = set().union(*trace.calls.values())
    mixes = calls & {"mix", "server"}
    if "mixed gradients" in calls:
        must = f"be None for {name}: gradients within local steps cannot be forged"
    elif attack.to_each and "published" in calls and not mixes:
        must = (
            f"send the same to all neighbors for {name}, in which a node publishes its model "
            f"before its receiver is drawn; {attack.name!r} sends each neighbor a different one; "
            "use sign_flip, noise or alie"
        )
    elif not mixes and "published" not in calls:
        must = f"be None for {name}: no attack can forge what its nodes send; use dsgd"
    elif attack.to_each and "server" in calls:
        must = f"send one model to all for {name}, which has a server; use attacks.sign_flip"
    if must:
        raise ValueError(f"`attackers` must {must}")
    if not trace.needs_topology:
        return
    is_attacker = np.isin(np.arange(n), attack.nodes)
    for need in trace.algorithm.needs:
        texts = (exceeded_bound(need, rule(graph), is_attacker) for graph in trace.graphs)
        if text := next(filter(None, texts), ""):
            warn_caller(f"`attackers` are more than {name} tolerates: {text}")
