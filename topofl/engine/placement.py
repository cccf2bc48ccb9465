"""Placement of nodes on ranks, such that few edges are between different ranks."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh

from topofl._support.vectors import laplacian, start_vector
from topofl.metrics._rounds import node_groups
from topofl.topology import Topology, TopologySequence

__all__ = ["cut_edges", "place"]

ROUNDS = 16
"""Rounds of changing graphs whose edges are counted."""

DENSE = 64
"""Number of nodes up to which all eigenvectors are computed."""


def place(
    graphs: Topology | TopologySequence, size: int, given: Sequence[int] | None = None
) -> tuple[np.ndarray, str]:
    """Return the rank of each node, (n,), and the name of the method.

    Without a given placement, ranks hold equal numbers of nodes up to one, or whole groups of the
    topology, such as cliques. Of consecutive nodes, spectral bisection and groups, the placement
    with the fewest edges between ranks is chosen.

    Parameters
    ----------
    graphs
        The graphs of the run.
    size
        Number of ranks, at most n.
    given
        The rank of each node; None: chosen.

    Raises
    ------
    ValueError
        If a given placement has another length, names other ranks, or leaves a rank without nodes.

    Examples
    --------
    >>> from topofl import topologies
    >>> place(topologies.ring(6), 2)
    (array([0, 0, 0, 1, 1, 1]), 'consecutive nodes')
    """
    n = graphs.n
    if given is not None:
        return _check_given(np.asarray(given), n, size), "given"
    if size == 1:
        return np.zeros(n, dtype=np.int64), "one rank"
    edges = _symmetric_edges(graphs)
    candidates = {"consecutive nodes": _cut_in_order(np.arange(n), np.ones(n), size)}
    candidates["spectral bisection"] = _bisected(edges, np.ones(n), size)
    groups = node_groups(graphs)
    if len(groups) >= size and sum(map(len, groups)) == n:
        candidates["groups"] = _by_groups(edges, groups, size)
    cuts = {name: cut_edges(edges, owner) for name, owner in candidates.items()}
    best = min(cuts, key=lambda name: cuts[name])
    return _in_order_of_first_nodes(candidates[best], size), best


def cut_edges(matrix: sparse.csr_array, owner: np.ndarray) -> int:
    """Return the number of non-zero entries off the diagonal between nodes of different ranks.

    Examples
    --------
    >>> from topofl import topologies
    >>> cut_edges(topologies.ring(6).adjacency, np.array([0, 0, 0, 1, 1, 1]))
    4
    """
    entries = matrix.tocoo()
    return int(((owner[entries.row] != owner[entries.col]) & (entries.data != 0)).sum())


def _check_given(owner: np.ndarray, n: int, size: int) -> np.ndarray:
    if owner.shape != (n,) or owner.dtype.kind not in "iu":
        raise ValueError(
            f"`placement` must have the rank of each of the n={n} nodes, got shape {owner.shape} "
            f"of {owner.dtype}; leave it out to have it chosen"
        )
    if sorted(set(owner.tolist())) != list(range(size)):
        raise ValueError(
            f"`placement` must give nodes to all ranks 0 to {size - 1} and to no others, got ranks "
            f"{sorted(set(owner.tolist()))}; start as many processes as it names"
        )
    return owner.astype(np.int64)


def _symmetric_edges(graphs: Topology | TopologySequence) -> sparse.csr_array:
    """Return how often each pair of nodes is connected in a period, or in the first rounds."""
    rounds = range(min(graphs.period or ROUNDS, ROUNDS))
    total = sparse.csr_array((graphs.n, graphs.n))
    for t in rounds:
        ones = sparse.csr_array((graphs.at(t).adjacency != 0).astype(float))
        total = total + ones + ones.T
    return sparse.csr_array(total)


def _cut_in_order(order: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Return the ranks of nodes that are dealt in an order, in parts of equal total weight."""
    before = np.cumsum(weights[order]) - weights[order]
    ranks = np.floor((before + weights[order] / 2) * size / weights.sum()).astype(np.int64)
    owner = np.empty(len(order), dtype=np.int64)
    owner[order] = _without_gaps(np.minimum(ranks, size - 1), size)
    return owner


def _without_gaps(ranks: np.ndarray, size: int) -> np.ndarray:
    """Return ascending ranks in which each of `size` ranks occurs, changed as little as needed."""
    ranks = ranks.copy()
    for k in range(len(ranks)):  # no later than needed, and no earlier than possible
        least = size - (len(ranks) - k)
        most = ranks[k - 1] + 1 if k else 0
        ranks[k] = max(min(ranks[k], most), least)
    return ranks


def _bisected(edges: sparse.csr_array, weights: np.ndarray, size: int) -> np.ndarray:
    """Return ranks by recursive spectral bisection."""
    owner = np.zeros(len(weights), dtype=np.int64)

    def split(nodes: np.ndarray, first: int, parts: int) -> None:
        if parts == 1:
            owner[nodes] = first
            return
        inside = edges[nodes][:, nodes]
        order = nodes[_spectral_order(inside)]
        left = parts // 2
        shares = np.cumsum(weights[order]) - weights[order] / 2
        count = int((shares < weights[order].sum() * left / parts).sum())
        count = min(max(count, left), len(order) - (parts - left))
        split(np.sort(order[:count]), first, left)
        split(np.sort(order[count:]), first + left, parts - left)

    split(np.arange(len(weights)), 0, size)
    return owner


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


def _by_groups(edges: sparse.csr_array, groups: Sequence[Sequence[int]], size: int) -> np.ndarray:
    """Return ranks by recursive spectral bisection of whole groups."""
    label = np.empty(edges.shape[0], dtype=np.int64)
    for k, group in enumerate(groups):
        label[list(group)] = k
    ones = np.ones(len(label))
    members = sparse.csr_array((ones, (label, np.arange(len(label)))))
    between = sparse.csr_array(members @ edges @ members.T)
    between.setdiag(0)
    between.eliminate_zeros()
    sizes = np.array([float(len(group)) for group in groups])
    return _bisected(between, sizes, size)[label]


def _in_order_of_first_nodes(owner: np.ndarray, size: int) -> np.ndarray:
    """Return the same parts with ranks numbered by their first nodes; node 0 is on rank 0."""
    firsts = [int(np.flatnonzero(owner == rank)[0]) for rank in range(size)]
    number = np.empty(size, dtype=np.int64)
    number[np.argsort(firsts)] = np.arange(size)
    return number[owner]
