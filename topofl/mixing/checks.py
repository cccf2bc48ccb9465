"""Checks of the graphs that weight rules accept and of the weights that exchanges accept."""

from collections.abc import Iterable
from typing import Any

from topofl._support.callers import warn_caller
from topofl._support.check import TOLERANCE
from topofl.mixing.matrix import MixingMatrix, WeightRule
from topofl.topology import Topology, TopologyError, unused_weights

__all__ = [
    "check_pulls",
    "check_pushes",
    "need_topology",
    "need_undirected",
    "warn_of_unused_weights",
    "warning_once",
]


def need_topology(topology: Any) -> None:
    """Raise ``TypeError`` unless `topology` is a single Topology."""
    if not isinstance(topology, Topology):
        raise TypeError(
            f"`topology` must be a Topology, got {type(topology).__name__}; use "
            "as_topology(graph), or .at(t) of a sequence"
        )


def need_undirected(topology: Topology, rule: str) -> None:
    """Raise ``TopologyError`` unless `topology` is undirected, as the rule requires."""
    need_topology(topology)
    if topology.is_directed:
        raise TopologyError(
            f"`topology` must be undirected: {rule} needs an undirected graph, {topology.name} is "
            "directed; use uniform(topology, direction='pull' or 'push')"
        )


def check_pulls(weights: MixingMatrix) -> MixingMatrix:
    """Return the weights if they average (rows sum to 1), else raise ``ValueError``."""
    if not weights.is_row_stochastic:
        raise ValueError(
            f"`mixing` must have rows that sum to 1 to average models, {weights.name} is only "
            "column stochastic; use uniform(topology, direction='pull'), or the transpose, "
            "from_weights(weights, edges='u->v')"
        )
    return weights


def check_pushes(weights: MixingMatrix) -> MixingMatrix:
    """Return the weights if they push (columns sum to 1), else raise ``ValueError``."""
    if not weights.is_column_stochastic:
        raise ValueError(
            f"`mixing` must have columns that sum to 1 to push models, {weights.name} is only row "
            "stochastic; use uniform(topology, direction='push'), or leave it out"
        )
    return weights


def warn_of_unused_weights(
    graphs: Iterable[Topology], argument: str, *, pushes: bool = False
) -> None:
    """Warn once if edges of a graph carry unequal weights, which the default rule ignores.

    `argument` is the caller's argument for a weight rule, "weights" of metrics or "mixing" of runs;
    the default rule pushes if `pushes`, else it averages.
    """
    graph = next((graph for graph in graphs if graph.has_unused_weights), None)
    if graph is None:
        return
    rule = "mixing.metropolis_hastings"
    if graph.is_directed:
        push = "functools.partial(mixing.uniform, direction='push')"
        rule = push if pushes else "mixing.uniform"
    ways = [_way_of_own_weights(graph)]
    if not graph.is_directed:
        ways.append(f"to scale them first, {_CALLS[argument]}")
    ways.append(f"to ignore them, pass a rule: {argument}={rule}")
    warn_caller(f"{unused_weights(graph)}: {'; '.join(ways)}")


_CALLS = {
    "weights": (
        "metrics.spectral_gap(graph, weights=mixing.weighted_metropolis), the same for "
        "metrics.compare, or --weights weighted_metropolis of topofl spectral"
    ),
    "mixing": (
        "topofl.run(..., mixing=mixing.weighted_metropolis), or mixing = 'weighted_metropolis' in "
        "a TOML file"
    ),
}
"""Calls that scale the weights of edges, by the argument for a weight rule."""


def _way_of_own_weights(graph: Topology) -> str:
    """Return how to mix with the weights of edges, which must sum to at most 1 into each node."""
    largest = graph.adjacency.sum(axis=0).max()
    if largest > 1 + TOLERANCE:
        return (
            f"they are no mixing weights, since those into a node sum to up to {largest:.4g}, "
            "above 1"
        )
    return (
        "to mix with them, pass own_weights=True, as in topofl.as_topology(graph, "
        "own_weights=True), or own_weights=true in the spec of a file"
    )


def warning_once(rule: WeightRule, argument: str, *, pushes: bool = False) -> WeightRule:
    """Return the default rule, with a warning for the first graph whose weights it ignores."""
    warned = False

    def warning(graph: Topology) -> MixingMatrix:
        nonlocal warned
        if not warned and graph.has_unused_weights:
            warned = True
            warn_of_unused_weights([graph], argument, pushes=pushes)
        return rule(graph)

    return warning
