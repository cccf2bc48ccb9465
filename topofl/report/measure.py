"""Measurements of each graph of a report: contraction, consensus distances, eigenvalues."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl import metrics
from topofl._linalg import spectral
from topofl._support.seeding import stream
from topofl._support.table import NotApplicable
from topofl.metrics._rounds import WeightRule, as_rounds
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.report.figures import NOTHING_LEFT
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology

__all__ = ["Measured", "measure"]


@dataclass(frozen=True, eq=False)
class Measured:
    """A graph with its measurements.

    Parameters
    ----------
    name, n, period
        Name, size and period of the graph; period None if it does not repeat.
    graph
        Graph to be drawn.
    contraction
        Geometric mean factor per round by which consensus distance shrinks in the long run.
    distances
        Consensus distance after 0, 1, ... rounds, relative to the start.
    eigenvalues
        Of the mixing matrix, or of the product over a period.
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
) -> Measured:
    """Return the measurements of one graph from a random start.

    Parameters
    ----------
    graph
        Anything that :func:`topofl.metrics.compare` takes.
    name
        Name of its row.
    rounds
        Number of rounds that are simulated and measured, rounded up to whole periods for a periodic
        sequence.
    seed
        Seed of the random starts.
    weights
        Rule for graphs without weights.
    """
    if isinstance(graph, MixingMatrix) or _is_period(graph):
        used, source, rule = as_rounds(graph), graph, None
        drawn = _support(used)
    else:
        drawn = source = as_topology(graph)
        used, rule = as_rounds(source, weights), weights
    whole = rounds if used.period is None else -(-rounds // used.period) * used.period
    eigenvalues = _eigenvalues(used)
    try:
        contraction = metrics.measured_contraction(source, rounds=whole, seed=seed, weights=rule)
    except TopologyError as error:
        reason = NotApplicable(str(error))
        return Measured(name, used.n, used.period, drawn, reason, reason, eigenvalues)
    return Measured(
        name, used.n, used.period, drawn, contraction, _distances(used, rounds, seed), eigenvalues
    )


def _is_period(graph: Any) -> bool:
    return (
        isinstance(graph, list | tuple)
        and bool(graph)
        and all(isinstance(item, MixingMatrix) for item in graph)
    )


def _support(used: MixingSequence) -> Topology | TopologySequence:
    """Return the graph of given weights."""
    if used.period == 1:
        return used.at(0).support()
    return TopologySequence(
        used.n, lambda t: used.at(t).support(), name=used.name, period=used.period
    )


def _distances(used: MixingSequence, rounds: int, seed: int) -> np.ndarray | NotApplicable:
    """Return consensus distances under push-sum, which is plain averaging if rows sum to 1."""
    if used.n == 1:
        return NotApplicable("one node agrees with itself")
    values = stream(seed, "spectral_report").standard_normal(used.n)
    values -= values.mean()  # keeps distances, and the digits of small ones
    push_weights = np.ones(used.n)
    start = metrics.consensus_distance(values[:, None])
    distances = [1.0]
    for t in range(rounds):
        matrix = used.at(t)
        values = matrix @ values
        if not (matrix.is_row_stochastic and (push_weights == 1).all()):
            push_weights = matrix @ push_weights
        distances.append(metrics.consensus_distance((values / push_weights)[:, None]) / start)
        if distances[-1] < NOTHING_LEFT:
            break
    return np.array(distances)


def _eigenvalues(used: MixingSequence) -> np.ndarray | NotApplicable:
    if used.period is None:
        return NotApplicable(
            "the sequence has no period, so there is no product to take the spectrum of"
        )
    if used.n > spectral.limits.DENSE_LIMIT:
        return NotApplicable(
            f"n={used.n:,} is above {spectral.limits.DENSE_LIMIT:,}, up to which all eigenvalues "
            "are computed"
        )
    if used.period == 1:
        return used.at(0).eigenvalues
    product = used.at(0).weights
    for t in range(1, used.period):
        product = sparse.csr_array(used.at(t).weights @ product)
    return spectral.eigenvalues(product)
