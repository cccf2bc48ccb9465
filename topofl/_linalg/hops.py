"""Number of node pairs at each distance in hops, without storing all n^2 distances."""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import shortest_path

__all__ = ["MATRIX_BYTES", "hop_counts"]

MATRIX_BYTES = 4 * 2**30
"""Largest matrix of distances in bytes, that of 23,170 nodes."""

BLOCK_BYTES = 64 * 2**20
"""Memory in bytes of the searches that run at the same time."""

SHALLOW = 64
"""Eccentricity of node 0 up to which 64 searches run at once, one per bit of a word."""


def hop_counts(adjacency: sparse.csr_array) -> np.ndarray:
    """Return the number of ordered node pairs at each distance of 0, 1, ..., diameter hops.

    The graph must be strongly connected. Takes O(n) memory in addition to the graph and the time of
    n breadth-first searches, 64 of which run at once where distances are short.
    """
    first = shortest_path(adjacency, directed=True, unweighted=True, indices=0)
    search = _counts_by_bits if first.max() <= SHALLOW else _counts_by_rows
    counts = np.zeros(1, dtype=np.int64)
    for found in search(adjacency):
        longer, shorter = (found, counts) if len(found) > len(counts) else (counts, found)
        counts = longer + np.pad(shorter, (0, len(longer) - len(shorter)))
    return counts


def _counts_by_rows(adjacency: sparse.csr_array) -> Iterator[np.ndarray]:
    """Yield the counts of some sources at a time, from rows of the distance matrix."""
    n = adjacency.shape[0]
    size = max(1, BLOCK_BYTES // (8 * n))
    for start in range(0, n, size):
        sources = np.arange(start, min(start + size, n))
        distances = shortest_path(adjacency, directed=True, unweighted=True, indices=sources)
        yield np.bincount(distances.astype(np.int64).reshape(-1))


def _counts_by_bits(adjacency: sparse.csr_array) -> Iterator[np.ndarray]:
    """Yield the counts of some sources at a time.

    Each source has one bit at every node, which is set once the search from it reaches the node.
    """
    n = adjacency.shape[0]
    receivers = sparse.csr_array(adjacency.T)
    if n == 1:
        yield np.ones(1, dtype=np.int64)
        return
    words = max(1, BLOCK_BYTES // (8 * adjacency.nnz))
    for start in range(0, n, 64 * words):
        sources = np.arange(start, min(start + 64 * words, n))
        reached = np.zeros((n, -(-len(sources) // 64)), dtype=np.uint64)
        bits = np.left_shift(np.uint64(1), ((sources - start) % 64).astype(np.uint64))
        reached[sources, (sources - start) // 64] = bits
        totals = [0, len(sources)]
        while totals[-1] < n * len(sources):
            reached |= np.bitwise_or.reduceat(
                reached[receivers.indices], receivers.indptr[:-1], axis=0
            )
            totals.append(int(np.bitwise_count(reached).sum(dtype=np.int64)))
        yield np.diff(totals)
