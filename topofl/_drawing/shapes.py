"""Layouts of known structures, such as paths, trees and lattices.

Each function takes a `support`, the symmetric 0/1 adjacency matrix of a graph, and returns
positions if the graph has its structure, else None.
"""

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import breadth_first_order, depth_first_order, dijkstra

__all__ = [
    "LAYOUTS_OF_CONNECTED",
    "arranged_by",
    "circle",
    "degrees_of",
    "edges_of",
    "is_circulant",
    "normalized",
]


def circle(n: int) -> np.ndarray:
    """Return n points on the unit circle, clockwise from the top."""
    angles = np.pi / 2 - 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def normalized(positions: np.ndarray) -> np.ndarray:
    """Return the positions centered and scaled such that the longer dimension is [-1, 1]."""
    low, high = positions.min(axis=0), positions.max(axis=0)
    return (positions - (low + high) / 2) * (2 / ((high - low).max() or 1.0))


def degrees_of(support: sparse.csr_array) -> np.ndarray:
    """Return the (n,) degrees of the nodes."""
    return np.diff(support.indptr)


def edges_of(support: sparse.csr_array) -> np.ndarray:
    """Return the (E, 2) edges u < v, sorted."""
    u = np.repeat(np.arange(support.shape[0]), degrees_of(support))
    v = support.indices
    return np.stack([u[u < v], v[u < v]], axis=1)


def arranged_by(order: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return positions such that node ``order[k]`` is at ``places[k]``."""
    positions = np.empty_like(places)
    positions[order] = places
    return positions


def is_circulant(support: sparse.csr_array) -> bool:
    """Return whether a graph is circulant: all nodes have the same neighbor offsets modulo n."""
    n = support.shape[0]
    degrees = degrees_of(support)
    if (degrees != degrees[0]).any():
        return False
    offsets = np.sort(
        (support.indices - np.repeat(np.arange(n), degrees)).reshape(n, -1) % n, axis=1
    )
    return bool((offsets == offsets[0]).all())


def _cycle(support: sparse.csr_array) -> np.ndarray | None:
    if (degrees_of(support) != 2).any():
        return None
    order = depth_first_order(support, 0, directed=False, return_predecessors=False)
    return arranged_by(order, circle(len(order)))


def _path_graph(support: sparse.csr_array) -> np.ndarray | None:
    """Return positions of a path: one row up to 8 nodes, else rows in alternating directions."""
    n = support.shape[0]
    degrees = degrees_of(support)
    if support.nnz != 2 * (n - 1) or degrees.max() > 2:
        return None
    order = breadth_first_order(
        support, int(degrees.argmin()), directed=False, return_predecessors=False
    )
    columns = n if n <= 8 else int(np.ceil(np.sqrt(n)))
    row, place = np.divmod(np.arange(n), columns)
    return arranged_by(
        order, np.stack([np.where(row % 2, columns - 1 - place, place), -row], axis=1).astype(float)
    )


def _lattice(support: sparse.csr_array) -> np.ndarray | None:
    """Return positions of a lattice, periodic or not, whose nodes are numbered row by row."""
    n = support.shape[0]
    edges = edges_of(support)
    for columns in support.indices[: support.indptr[1]].tolist():
        shapes = (
            [_lattice_edges(n, columns, wrap) for wrap in (False, True)] if n % columns == 0 else []
        )
        if any(np.array_equal(edges, shape) for shape in shapes):
            row, column = np.divmod(np.arange(n), columns)
            return np.stack([column, -row], axis=1).astype(float)
    return None


def _lattice_edges(n: int, columns: int, wrap: bool) -> np.ndarray:
    places = np.arange(n).reshape(-1, columns)
    pairs = []
    for axis in (0, 1):
        ahead = np.roll(places, -1, axis=axis)
        keep = slice(None) if wrap else slice(-1)
        cut = (keep, slice(None)) if axis == 0 else (slice(None), keep)
        pairs.append(np.stack([places[cut].ravel(), ahead[cut].ravel()], axis=1))
    both = np.sort(np.concatenate(pairs), axis=1)
    return np.unique(both[both[:, 0] != both[:, 1]], axis=0)


def _hypercube(support: sparse.csr_array) -> np.ndarray | None:
    """Return positions of a hypercube; each bit of a node's number is a direction."""
    n = support.shape[0]
    edges = edges_of(support)
    bits = n.bit_length() - 1
    flips = edges[:, 0] ^ edges[:, 1]
    if n != 1 << bits or 2 * len(edges) != n * bits or (flips & (flips - 1)).any():
        return None
    k = np.arange(bits)
    angles = np.pi * (k % 4) / 4 - np.pi / 8
    lengths = 3.2 ** (k // 4)
    directions = lengths[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if bits <= 3:
        directions = np.array([[1.0, 0.0], [0.0, 1.0], [0.45, 0.35]])[:bits]
    return ((np.arange(n)[:, None] >> k) & 1) @ directions


def _hops_from(support: sparse.csr_array, root: int) -> np.ndarray:
    return np.asarray(dijkstra(support, directed=False, unweighted=True, indices=root)).astype(
        np.int64
    )


def _tree_layout(support: sparse.csr_array) -> np.ndarray | None:
    """Return positions of a tree: levels below its center, or rings around it if it is wide."""
    n = support.shape[0]
    if support.nnz != 2 * (n - 1):
        return None
    root = _center(support)
    level = _hops_from(support, root)
    order, parent = depth_first_order(support, root, directed=False)
    leaves = order[(degrees_of(support)[order] == 1) & (order != root)]
    across = np.zeros(n)
    across[leaves] = np.arange(len(leaves))
    for depth in range(level.max() - 1, -1, -1):  # parents are centered over their children
        below = np.flatnonzero(level == depth + 1)
        across_sum = np.bincount(parent[below], weights=across[below], minlength=n)
        children = np.bincount(parent[below], minlength=n)
        across[children > 0] = across_sum[children > 0] / children[children > 0]
    if len(leaves) <= 24:
        return np.stack([across, -0.25 * len(leaves) * level], axis=1)
    angles = 2 * np.pi * across / len(leaves)
    return level[:, None] * np.stack([np.sin(angles), np.cos(angles)], axis=1)


def _center(tree: sparse.csr_array) -> int:
    """Return the center of a tree: the first node in the middle of a longest path."""
    one_end = int(_hops_from(tree, 0).argmax())
    from_one = _hops_from(tree, one_end)
    from_other = _hops_from(tree, int(from_one.argmax()))
    return int(np.maximum(from_one, from_other).argmin())


def _complete_bipartite(support: sparse.csr_array) -> np.ndarray | None:
    return _two_columns(support, density=1.0)


def _dense_bipartite(support: sparse.csr_array) -> np.ndarray | None:
    return _two_columns(support, density=0.2)


def _two_columns(support: sparse.csr_array, density: float) -> np.ndarray | None:
    """Return two columns if the graph is bipartite with at least this share of possible edges."""
    n = support.shape[0]
    edges = edges_of(support)
    right = _hops_from(support, 0) % 2 == 1
    if (right[edges[:, 0]] == right[edges[:, 1]]).any() or len(edges) < density * right.sum() * (
        ~right
    ).sum():
        return None
    height = np.zeros(n)
    # Placing each node near the mean of its neighbors reduces crossings.
    for side in (~right, right, ~right, right):
        members = np.flatnonzero(side)
        wished = (support @ height)[members] / degrees_of(support)[members]
        places = np.linspace(1, -1, len(members)) if len(members) > 1 else np.zeros(1)
        height[members[np.argsort(-np.round(wished, 9), kind="stable")]] = places
    return np.stack([np.where(right, 0.7, -0.7), height], axis=1)


LAYOUTS_OF_CONNECTED = (
    _path_graph,
    _cycle,
    _lattice,
    _complete_bipartite,
    _tree_layout,
    _hypercube,
    _dense_bipartite,
)
"""Layouts to try for a connected graph, simplest structure first."""
