"""The predictors of the study: numbers of a graph and the nodes' data, computed before training."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from topofl import Topology, TopologyError, TopologySequence, metrics, mixing
from topofl.data import Partition

ROUNDS = 60
"""Rounds examined of sequences that do not repeat."""

Graph = Topology | TopologySequence


def _rounds(graph: Graph) -> int | None:
    """Return the rounds to examine of a sequence without period, None for other graphs."""
    return ROUNDS if isinstance(graph, TopologySequence) and graph.period is None else None


def _heterogeneity(hops: int) -> Callable[..., float]:
    def compute(graph: Graph, clients: Partition, statistics: Any) -> float:
        return metrics.neighborhood_heterogeneity(graph, clients, hops=hops, rounds=_rounds(graph))

    return compute


def _gradient_mixing(graph: Graph, clients: Partition, statistics: Any) -> float:
    return metrics.neighborhood_heterogeneity(
        graph, gradients=statistics.means, rounds=_rounds(graph)
    )


def _unweighted(graph: Graph, clients: Partition, statistics: Any) -> float:
    """Return the label skew of neighborhoods: H_1 by equal weights of a node and its neighbors."""
    return metrics.neighborhood_heterogeneity(
        graph, clients, weights=mixing.uniform, rounds=_rounds(graph), around="mean"
    )


def _noise(hops: int | str) -> Callable[..., float]:
    def compute(graph: Graph, clients: Partition, statistics: Any) -> float:
        return metrics.accumulated_noise(graph, hops, rounds=_rounds(graph))

    return compute


def _neighbors(gamma: float) -> Callable[..., float]:
    def compute(graph: Graph, clients: Partition, statistics: Any) -> float:
        return metrics.effective_neighbors(graph, gamma)

    return compute


def _predicted(hops: int) -> Callable[..., float]:
    def compute(graph: Graph, clients: Partition, statistics: Any) -> float:
        rounds = _rounds(graph)
        return metrics.predicted_deviation(
            graph, clients, statistics=statistics, hops=hops, rounds=rounds
        ).value

    return compute


def _degree(graph: Graph, clients: Partition, statistics: Any) -> float:
    if isinstance(graph, Topology):
        return float(graph.in_degrees.mean())
    rounds = range(graph.period or ROUNDS)
    return float(np.mean([graph.at(t).in_degrees.mean() for t in rounds]))


def _resistance(graph: Graph, clients: Partition, statistics: Any) -> float:
    if not isinstance(graph, Topology) or graph.is_directed:
        raise TopologyError("resistance is defined for undirected graphs")
    return 2 * metrics.kirchhoff_index(graph) / (graph.n * (graph.n - 1))


def _gap(graph: Graph, clients: Partition, statistics: Any) -> float:
    return metrics.spectral_gap(graph)


PREDICTORS: Mapping[str, tuple[Callable[..., float], int]] = {
    "spectral gap": (_gap, +1),
    "mean degree": (_degree, +1),
    "mean effective resistance": (_resistance, -1),
    "n_W(0.5)": (_neighbors(0.5), +1),
    "n_W(0.9)": (_neighbors(0.9), +1),
    "n_W(0.99)": (_neighbors(0.99), +1),
    "N_inf": (_noise("inf"), -1),
    "N_10": (_noise(10), -1),
    "gradient mixing error": (_gradient_mixing, -1),
    "H_1, unweighted": (_unweighted, -1),
    **{f"H_{hops}": (_heterogeneity(hops), -1) for hops in (1, 5, 10, 20)},
    "predicted deviation (10)": (_predicted(10), -1),
    "predicted deviation (20)": (_predicted(20), -1),
}
"""Function of a graph, clients and gradient statistics, and the sign of its correlation with
accuracy if it predicts well."""


def predictors_of(graph: Graph, clients: Partition, statistics: Any) -> dict[str, float | None]:
    """Return all predictors of a graph; None where one is not defined or not finite."""
    found: dict[str, float | None] = {}
    for name, (compute, _) in PREDICTORS.items():
        try:
            value: Any = compute(graph, clients, statistics)
        except (TopologyError, ValueError):
            value = math.nan
        is_number = isinstance(value, int | float) and math.isfinite(value)
        found[name] = float(value) if is_number else None
    return found
