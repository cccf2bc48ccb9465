"""Checks that the graphs and the clients of a run meet the needs of its algorithm."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import scipy.sparse as sparse

from topofl._support.callers import warn_caller
from topofl._support.text import node_name
from topofl.algorithms.contract.needs import check_weights, equal_shares, strongly_connected
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import Rule
from topofl.data import Partition
from topofl.engine.dry_run import complete_graph
from topofl.engine.requests import Trace
from topofl.metrics.averaging.perron import largest_share, share_in_words
from topofl.mixing import warn_of_unused_weights
from topofl.topology import Topology, TopologyError, TopologySequence, graph_of

__all__ = [
    "check_graphs",
    "check_topology",
    "check_trial_examples",
    "unequal_share",
]


def check_topology(
    algorithm: Algorithm, topology: Any, n: int
) -> Topology | TopologySequence | None:
    """Return the graphs of a run (None: no topology), or raise unless they have n nodes."""
    if algorithm.pooled or topology is None:
        return None
    graphs = _with_cached_graphs(graph_of("topology", topology))
    if graphs.n != n:
        sizes = f"{graphs.name} has n={graphs.n}, `clients` has n={n}"
        raise ValueError(f"`topology` must have one node per client: {sizes}")
    return graphs


def check_graphs(
    trace: Trace,
    graphs: Topology | TopologySequence | None,
    clients: Partition,
    mixing: Any,
    on_disconnected: str,
    rule: Rule,
) -> Topology | TopologySequence:
    """Return the graphs that a run uses; raise unless they fit its algorithm and its clients.

    For sequences without a period, only the weights of the rounds in the dry run are checked.
    """
    check_trial_examples(trace, clients, () if graphs is None else graphs.nodes)
    if trace.algorithm.needs and graphs is not None and not trace.is_served:
        period = graphs.period
        rounds = trace.graphs if period is None else [graphs.at(t) for t in range(period)]
        check_weights(trace.algorithm.name, trace.algorithm.needs, graphs, rounds, rule)
    if trace.needs_topology and graphs is not None and graphs.period is not None:
        if on_disconnected == "raise":
            _check_connected(graphs)
        if mixing is None:
            warn_of_unused_weights(
                map(graphs.at, range(graphs.period)), "mixing", pushes=trace.pushes
            )
    if trace.chooses and graphs is None:
        return complete_graph(clients.n)
    if graphs is None or trace.is_served:
        return Topology(
            sparse.csr_array((clients.n, clients.n)),
            name="a server" if trace.is_served else "no edges",
        )
    return graphs


def unequal_share(
    trace: Trace, graphs: Topology | TopologySequence, rule: Rule, *, warn: bool
) -> tuple[int, float] | None:
    """Return the node with the largest share in the average on which models agree, and the share.

    If `warn`, unequal shares are warned of, also if they cannot be computed. None if all shares are
    1/n or cannot be computed; if graphs change without a period; if nodes push, which corrects for
    the shares; if models are not multiplied by the weights, nor aggregated by a method that
    declares :data:`equal_shares`; and if nodes that are not connected do not agree.
    """
    if graphs.period is None or trace.pushes or trace.chooses or not trace.needs_topology:
        return None
    weights = [rule(graphs.at(t)) for t in range(graphs.period)]
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
        _warn_of_unequal_shares(trace.algorithm.name, graphs, shares)
    return found


def _warn_of_unequal_shares(method: str, graphs: Topology | TopologySequence, shares: str) -> None:
    """Warn that the default weights of directed graphs give their nodes unequal shares."""
    if isinstance(graphs, Topology):
        which, rule = "which is directed", "own_weights" if graphs.own_weights else "uniform"
    else:
        which = f"which has directed graphs and repeats after {graphs.period} rounds"
        rule = "metropolis_or_uniform"
    warn_caller(
        f"the weights of {graphs.name}, {which}, give {shares} in the average on which "
        f"models agree, so that {method} minimizes the mean of the nodes' losses, weighted by "
        f"these shares: to weight all nodes equally, {equal_shares.remedy}; to keep the shares, "
        f"pass mixing=mixing.{rule}"
    )


def check_trial_examples(trace: Trace, clients: Partition, labels: Sequence[object]) -> None:
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


def _with_cached_graphs(graphs: Topology | TopologySequence) -> Topology | TopologySequence:
    """Cache the graphs of periodic sequences, so that weights are computed once per graph."""
    if isinstance(graphs, Topology) or graphs.period is None:
        return graphs
    members = [graphs.at(t) for t in range(graphs.period)]
    return replace(graphs, generate=members.__getitem__)


def _check_connected(graphs: Topology | TopologySequence) -> None:
    """Raise ``TopologyError`` unless the union over a period is strongly connected."""
    if found := strongly_connected.graphs(graphs):
        raise TopologyError(
            f"`topology` must be connected for nodes to agree, got {graphs.name}: {found}; connect "
            "it, or train its components separately with compute=Compute(on_disconnected='allow')"
        )
