"""Structural constants of push-sum, B, Delta, D_max and reach: how fast information spreads."""

import math
from collections.abc import Iterator
from itertools import count

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components, shortest_path

from topofl.metrics.changing.connectivity import b_connectivity, longest_window
from topofl.mixing import MixingSequence

__all__ = ["structure_constants"]


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
