"""How fast information spreads over changing graphs: B-connectivity, Delta, D_max and reach."""

import math
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components, shortest_path

from topofl._support.check import check_choice
from topofl._support.public import public
from topofl.metrics._columns import MetricColumn
from topofl.metrics._rounds import n_rounds, recorded_matrices
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import Topology, TopologySequence, graph_of

__all__ = ["b_connectivity"]


@public
def b_connectivity(
    graphs: Any, *, rounds: int | None = None, windows: str = "sliding"
) -> int | float:
    """Return the smallest B for which every B consecutive graphs are jointly strongly connected.

    Parameters
    ----------
    graphs
        Anything :func:`topofl.as_topology` takes, or a MixingMatrix, MixingSequence or History,
        whose supports are used.
    rounds
        Number of rounds to examine. Required (except for recorded rounds, of which the default is
        all), and only allowed, for sequences without a period; the result then holds for rounds
        0..rounds - 1 only. For static and periodic graphs, it holds for all rounds.
    windows
        ``"sliding"``: windows start at every round (DFedPGP's Assumption 1). ``"block"``: windows
        start at multiples of B only (as in the theory of stochastic gradient push). The block B is
        at most the sliding B, which is at most twice the block B, minus 1.

    Returns
    -------
    int or float
        B, or infinity if there is none; 1 for a static strongly connected graph.

    Raises
    ------
    TopologyError
        If `rounds` is missing for a sequence without a period.
    ValueError
        If `rounds` is given for a sequence with a period or is below 1, or `windows` is unknown.

    Notes
    -----
    The cost is linear in the number of rounds for any B: each round's graph is computed once (for a
    period, twice), since both ends of the window only move forward. 10,000 rounds of 1,000 nodes
    took 9 s on two cores (``python -m analysis.benchmark graphs``).

    References
    ----------
    Liu et al., "DFedPGP" (2024), Assumption 1; Nedic and Olshevsky, "Distributed optimization over
    time-varying directed graphs" (2015), Assumption 1.

    Examples
    --------
    >>> from topofl import topologies
    >>> b_connectivity(topologies.ring(5))
    1
    >>> graph = topologies.one_peer_exponential(8)
    >>> b_connectivity(graph)  # rounds of even offsets never leave the even nodes
    3
    """
    graphs = recorded_matrices(graphs)
    sequence = graph_of(
        "graphs", graphs.support() if isinstance(graphs, MixingMatrix | MixingSequence) else graphs
    )
    kind = check_choice("windows", windows, ["sliding", "block"])
    looked_at = n_rounds(graphs if isinstance(graphs, MixingSequence) else sequence, rounds)
    horizon = looked_at if sequence.period is None else None
    period = sequence.period or 0
    lengths = _shortest_windows(sequence, starts=horizon or period, end=horizon or 2 * period)
    return (
        _smallest_block(lengths, horizon)
        if kind == "block"
        else longest_window(lengths, periodic=horizon is None)
    )


def rounds_until_strong(source: MixingSequence, rounds: int) -> np.ndarray:
    """Return, for each of the first rounds, the length of the connected window that starts there.

    It is the number of rounds that are jointly strongly connected: infinite if there are too few
    rounds before `rounds` or, for a periodic sequence, if no number suffices.
    """
    return _shortest_windows(source.support(), starts=rounds, end=rounds + (source.period or 0))


def longest_window(lengths: np.ndarray, *, periodic: bool) -> int | float:
    """Return the smallest B such that any B consecutive rounds suffice, infinite if there is none.

    `lengths` are the numbers of rounds needed from each start, infinite if there are too few.
    Windows that extend beyond the last round are ignored unless `periodic`.
    """
    if periodic:
        return _int_or_inf(lengths.max())
    longest = np.maximum.accumulate(lengths)  # over starts 0..l
    # Windows of length 1 can start at every round, of length 2 at all but one, ...
    fits = np.flatnonzero(longest[::-1] <= np.arange(1, len(lengths) + 1))
    return int(fits[0]) + 1 if len(fits) else math.inf


def _smallest_block(lengths: np.ndarray, horizon: int | None) -> int | float:
    """Return the smallest B for windows that start at multiples of B, infinite if there is none.

    With a period p, blocks of B start at multiples of gcd(B, p), and B <= p suffices.
    """
    for b in range(1, len(lengths) + 1):
        starts = (
            lengths[: horizon - b + 1 : b] if horizon else lengths[:: math.gcd(b, len(lengths))]
        )
        if starts.max() <= b:
            return b
    return math.inf


def _shortest_windows(
    sequence: Topology | TopologySequence, *, starts: int, end: int
) -> np.ndarray:
    """Return, for each start, the length of the shortest strongly connected window before `end`.

    The length is infinite if there is none. Every round is computed once: an edge is in the window
    of rounds start..stop - 1 if the last round before `stop` with that edge is not before `start`.
    """
    lengths = np.full(starts, math.inf)
    # For each edge, the last round that had it, plus 1.
    last = sparse.csr_array((sequence.n, sequence.n))
    stop = 0
    for start in range(starts):
        last.data[last.data <= start] = 0
        last.eliminate_zeros()
        while not (connected := stop > start and _is_strong(last)) and stop < end:
            edges = sequence.at(stop).to_scipy()
            stop += 1
            edges.data[:] = stop
            last = last.maximum(edges)
        if not connected:
            break
        lengths[start] = stop - start
    return lengths


def _int_or_inf(length: float) -> int | float:
    return int(length) if math.isfinite(length) else math.inf


def _is_strong(union: sparse.csr_array) -> bool:
    return connected_components(union, directed=True, connection="strong")[0] == 1


def structure_constants(
    source: MixingSequence, rounds: int
) -> tuple[int | float, int | float, float, int | float]:
    """Return B, Delta, D_max and reach; see :class:`PushSumConstants`."""
    b = b_connectivity(source, rounds=None if source.period else rounds)
    smallest = min(float(source.at(t).weights.data.min()) for t in range(source.period or rounds))
    # Patterns include the diagonal, which is zero for a node that keeps no share of its own value.
    patterns = [
        sparse.csr_array(source.at(t).weights != 0, dtype=np.float32)
        for t in range(source.period or rounds)
    ]
    diameter = (
        math.inf
        if b == math.inf
        else max(_diameter(union) for union in _unions(patterns, int(b), source.period))
    )
    return b, diameter, 1 / smallest, _reach(patterns, source.period)


def _unions(
    patterns: list[sparse.csr_array], b: int, period: int | None
) -> Iterator[sparse.csr_array]:
    starts = len(patterns) if period else len(patterns) - b + 1
    for start in range(starts):
        window = [patterns[(start + s) % len(patterns)] for s in range(b)]
        yield sparse.csr_array(sum(window[1:], start=window[0]))


def _diameter(pattern: sparse.csr_array) -> int:
    """Return the diameter of a strongly connected graph, whose rows are receivers."""
    n = pattern.shape[0]
    step = sparse.csr_array(pattern + sparse.eye_array(n, dtype=np.float32))
    reached = np.eye(n, dtype=np.float32)
    hops = 0
    while not reached.all():
        reached = (step @ reached > 0).astype(np.float32)
        hops += 1
    return hops


def _reach(patterns: list[sparse.csr_array], period: int | None) -> int | float:
    """Return the smallest T for which no product of T consecutive patterns has a zero."""
    for pattern in patterns:
        # A zero row or column, of a node that receives or sends nothing, remains in some product.
        if min(pattern.count_nonzero(axis=0).min(), pattern.count_nonzero(axis=1).min()) == 0:
            return math.inf
    if period and not _becomes_full(patterns):
        return math.inf
    lengths = [_rounds_until_full(patterns, start, period) for start in range(len(patterns))]
    return longest_window(np.array(lengths, dtype=float), periodic=period is not None)


def _rounds_until_full(
    patterns: list[sparse.csr_array], start: int, period: int | None
) -> int | float:
    """Return the number of rounds from `start` until no entry is 0; infinite if there is none."""
    reached = np.eye(patterns[0].shape[0], dtype=np.float32)
    for t in count(1) if period else range(1, len(patterns) - start + 1):
        reached = (patterns[(start + t - 1) % len(patterns)] @ reached > 0).astype(np.float32)
        if reached.all():
            return t
    return math.inf


def _becomes_full(patterns: list[sparse.csr_array]) -> bool:
    """Return whether the product over a period is primitive, so that some power is positive.

    (Then the products that start at other rounds are primitive too, since no pattern has an empty
    row or column.) A matrix is primitive if its graph is strongly connected and the greatest common
    divisor of its cycle lengths is 1, which is that of ``distance(u) + 1 - distance(v)`` over all
    edges u -> v.
    """
    product = patterns[0].toarray()
    for pattern in patterns[1:]:
        product = (pattern @ product > 0).astype(np.float32)
    edges = sparse.csr_array(product)
    if connected_components(edges, directed=True, connection="strong")[0] > 1:
        return False
    distance = shortest_path(edges, unweighted=True, indices=0).astype(np.int64)
    i, j = edges.nonzero()
    return int(np.gcd.reduce(np.abs(distance[i] + 1 - distance[j]))) == 1


COLUMNS = (
    MetricColumn(
        "B",
        "rounds",
        "smallest B such that any B consecutive rounds are jointly strongly connected",
        lambda entry: b_connectivity(entry.rounds, rounds=entry.limit),
    ),
)
