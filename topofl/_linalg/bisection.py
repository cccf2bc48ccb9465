"""Parts of a graph of equal size, with few edges between them, by recursive spectral bisection."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh

from topofl._linalg.sparse import laplacian, start_vector

DENSE = 64
"""Number of nodes up to which all eigenvectors are computed."""


def cut_edges(matrix: sparse.csr_array, part_of: np.ndarray) -> int:
    """Return the number of entries between nodes of different parts.

    Examples
    --------
    >>> from topofl import topologies
    >>> cut_edges(topologies.ring(6).adjacency, np.array([0, 0, 0, 1, 1, 1]))
    4
    """
    entries = matrix.tocoo()
    return int((part_of[entries.row] != part_of[entries.col]).sum())


def bisected(edges: sparse.csr_array, weights: np.ndarray, size: int) -> np.ndarray:
    """Return the part of each node, of `size` parts of about equal weight, (n,).

    Parameters
    ----------
    edges
        (n, n) symmetric weights of the edges.
    weights
        (n,) weights of the nodes.
    size
        Number of parts, at most n.

    Examples
    --------
    >>> from topofl import topologies
    >>> bisected(topologies.ring(6).adjacency, np.ones(6), 2)
    array([0, 0, 0, 1, 1, 1])
    """
    part_of = np.zeros(len(weights), dtype=np.int64)

    def split(nodes: np.ndarray, first: int, parts: int) -> None:
        if parts == 1:
            part_of[nodes] = first
            return
        order = nodes[_spectral_order(edges[nodes][:, nodes])]
        left = parts // 2
        shares = np.cumsum(weights[order]) - weights[order] / 2
        count = int((shares < weights[order].sum() * left / parts).sum())
        count = min(max(count, left), len(order) - (parts - left))
        split(np.sort(order[:count]), first, left)
        split(np.sort(order[count:]), first + left, parts - left)

    split(np.arange(len(weights)), 0, size)
    return part_of


def bisected_groups(
    edges: sparse.csr_array, groups: Sequence[Sequence[int]], size: int
) -> np.ndarray:
    """Return the part of each node, such that all nodes of a group are in one part."""
    group_of = np.empty(edges.shape[0], dtype=np.int64)
    for k, group in enumerate(groups):
        group_of[list(group)] = k
    members = sparse.csr_array((np.ones(len(group_of)), (group_of, np.arange(len(group_of)))))
    between = sparse.csr_array(members @ edges @ members.T)
    between.setdiag(0)
    between.eliminate_zeros()
    return bisected(between, np.bincount(group_of).astype(float), size)[group_of]


def _spectral_order(edges: sparse.csr_array) -> np.ndarray:
    """Return nodes by component, and inside of components by the Fiedler vector."""
    count, labels = connected_components(edges, directed=False)
    if count > 1:
        parts = [np.flatnonzero(labels == k) for k in range(count)]
        return np.concatenate([part[_spectral_order(edges[part][:, part])] for part in parts])
    n = edges.shape[0]
    if n < 3:
        return np.arange(n)
    matrix = laplacian(edges.astype(float))
    if n <= DENSE:
        fiedler = np.linalg.eigh(matrix.toarray())[1][:, 1]
    else:
        try:
            fiedler = eigsh(matrix.tocsc(), k=2, sigma=-1e-6, v0=start_vector(n))[1][:, 1]
        except RuntimeError:  # the iteration did not converge
            return np.arange(n)
    return np.lexsort((np.arange(n), np.round(fiedler, 9)))
