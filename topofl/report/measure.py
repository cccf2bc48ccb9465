"""Measurements of the graphs of a report: contraction, consensus distances, eigenvalues."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl import metrics
from topofl._linalg import spectral
from topofl._support.seeding import stream
from topofl._support.table import NotApplicable
from topofl.metrics._rounds import WeightRule, as_rounds, is_list_of_matrices
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.report.figures import ROUNDING_FLOOR
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology

__all__ = ["Measurements", "measure"]


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measurements of one graph.

    Parameters
    ----------
    name, n, period
        Name, size and period of the graph; the period is None if it does not repeat.
    graph
        Graph to be drawn.
    contraction
        Geometric mean factor on consensus distance per round, in the long run.
    distances
        Consensus distance after 0, 1, ... rounds, relative to the start.
    eigenvalues
        Eigenvalues of the mixing matrix, or of the product of one period.
    """

    name: str
    n: int
    period: int | None
    graph: Topology | TopologySequence
    contraction: float | NotApplicable
    distances: np.ndarray | NotApplicable
    eigenvalues: np.ndarray | NotApplicable


def measure(
    graph: Any, name: str, *, rounds: int, seed: int, weights: WeightRule | None = None
) -> Measurements:
    """Return the measurements of one graph, from random starts.

    Parameters
    ----------
    graph
        A graph as in :func:`topofl.metrics.compare`.
    name
        Name of its row.
    rounds
        Number of simulated rounds; for the contraction of a periodic sequence, rounded up to whole
        periods.
    seed
        Seed of the random starts.
    weights
        Rule from Topology to MixingMatrix for graphs.
    """
    if isinstance(graph, MixingMatrix) or is_list_of_matrices(graph):
        used = as_rounds(graph)
        source = graph
        rule = None
        drawn = _support_of(used)
    else:
        drawn = source = as_topology(graph)
        used = as_rounds(source, weights)
        rule = weights
    whole = rounds if used.period is None else -(-rounds // used.period) * used.period
    eigenvalues = _eigenvalues(used)
    try:
        contraction = metrics.measured_contraction(source, rounds=whole, seed=seed, weights=rule)
    except TopologyError as error:
        reason = NotApplicable(str(error))
        return Measurements(name, used.n, used.period, drawn, reason, reason, eigenvalues)
    return Measurements(
        name, used.n, used.period, drawn, contraction, _distances(used, rounds, seed), eigenvalues
    )


def _support_of(used: MixingSequence) -> Topology | TopologySequence:
    """Return the graph of the off-diagonal weights."""
    if used.period == 1:
        return used.at(0).support()
    return TopologySequence(
        used.n, lambda t: used.at(t).support(), name=used.name, period=used.period
    )


def _distances(used: MixingSequence, rounds: int, seed: int) -> np.ndarray | NotApplicable:
    """Return consensus distances over rounds of push-sum, or plain averaging if rows sum to 1."""
    if used.n == 1:
        return NotApplicable("a single node always agrees with itself")
    values = stream(seed, "spectral_report").standard_normal(used.n)
    values -= values.mean()  # distances are unchanged, but small ones more accurate
    push_weights = np.ones(used.n)
    start = metrics.consensus_distance(values[:, None])
    distances = [1.0]
    for t in range(rounds):
        matrix = used.at(t)
        values = matrix @ values
        if not (matrix.is_row_stochastic and (push_weights == 1).all()):
            push_weights = matrix @ push_weights
        distances.append(metrics.consensus_distance((values / push_weights)[:, None]) / start)
        if distances[-1] < ROUNDING_FLOOR:
            break
    return np.array(distances)


def _eigenvalues(used: MixingSequence) -> np.ndarray | NotApplicable:
    if used.period is None:
        return NotApplicable("the sequence has no period, so there is no product of one period")
    if used.n > spectral.DENSE_LIMIT:
        limit = spectral.DENSE_LIMIT
        return NotApplicable(
            f"all eigenvalues are computed up to n={limit:,} only, and this graph has n={used.n:,}"
        )
    if used.period == 1:
        return used.at(0).eigenvalues
    product = used.at(0).weights
    for t in range(1, used.period):
        product = sparse.csr_array(used.at(t).weights @ product)
    return spectral.eigenvalues(product)
