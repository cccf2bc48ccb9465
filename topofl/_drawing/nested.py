"""Layouts of graphs with groups as circles on a circle, nested for hierarchical groups."""

from itertools import pairwise

import numpy as np
import scipy.sparse as sparse

from topofl._drawing.shapes import circle, edges_of

__all__ = ["grouped_layout"]


def grouped_layout(support: sparse.csr_array, groups: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Return the layout of a graph with groups as small circles on a large one.

    Nodes and groups are ordered on their circles to face the ends of their outgoing edges.
    """
    n = support.shape[0]
    edges = edges_of(support)
    alone = np.setdiff1d(np.arange(n), [i for group in groups for i in group])
    members = [np.array(group) for group in groups if group] + [np.array([i]) for i in alone]
    group_of = np.empty(n, np.int64)
    for k, group in enumerate(members):
        group_of[group] = k
    centers = np.zeros((n, 2))
    radii = np.ones(n)
    levels = [np.zeros(n, np.int64), *_batches(edges, group_of, len(members)), group_of]
    for whole, part in pairwise(levels):
        centers, radii = _place_parts(centers, radii, whole, part, edges)
    return _place_parts(centers, 0.95 * radii, group_of, np.arange(n), edges)[0]


def _batches(edges: np.ndarray, group_of: np.ndarray, q: int) -> list[np.ndarray]:
    """Return each node's batch at every level, widest first, of D-Cliques with fractal edges.

    In that scheme, every two groups of a batch of consecutive groups are connected by one edge, and
    so are the batches at the next level. For other graphs the list is empty.
    """
    for size in range(2, q):
        batches = []
        owner = group_of
        left = q
        while left > 1 and _joined_in_batches(owner[edges], left, size):
            owner = owner // size
            left = -(-left // size)
            batches.append(owner)
        if left == 1:
            return batches[-2::-1]
    return []


def _joined_in_batches(pairs: np.ndarray, q: int, size: int) -> bool:
    """Return whether any two parts have at most one edge, and exactly one within a batch."""
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    if len(np.unique(pairs[:, 0] * q + pairs[:, 1])) != len(pairs):
        return False
    inside = int((pairs[:, 0] // size == pairs[:, 1] // size).sum())
    full, rest = divmod(q, size)
    return inside == full * (size * (size - 1) // 2) + rest * (rest - 1) // 2


def _place_parts(
    centers: np.ndarray, radii: np.ndarray, whole: np.ndarray, part: np.ndarray, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return centers and radii, per node, of discs of parts placed within the disc of their whole.

    Parts are assigned to places on a circle such that they face the ends of their edges to other
    wholes; without such edges, they are in order.
    """
    from scipy.optimize import linear_sum_assignment

    pulls = _pulls(centers, whole, edges)
    centers = centers.copy()
    radii = radii.copy()
    for members in _nodes_by_label(whole):
        names, child = np.unique(part[members], return_inverse=True)
        if len(names) == 1:
            continue
        wishes = np.stack(
            [np.bincount(child, weights=pulls[members, axis]) for axis in (0, 1)], axis=1
        )
        slots = _flat_topped_circle(len(names))
        chosen = (
            linear_sum_assignment(-wishes @ slots.T)[1] if wishes.any() else np.arange(len(names))
        )
        share = np.sin(np.pi / len(names))
        inner = radii[members[0]] * share / (1 + share)
        centers[members] += (radii[members[0]] - inner) * slots[chosen][child]
        radii[members] = 0.92 * inner
    return centers, radii


def _pulls(centers: np.ndarray, whole: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return (n, 2) sums of unit vectors along each node's edges to other wholes."""
    leaving = edges[whole[edges[:, 0]] != whole[edges[:, 1]]]
    pulls = np.zeros_like(centers)
    for here, there in (leaving.T, leaving.T[::-1]):
        away = centers[there] - centers[here]
        np.add.at(pulls, here, away / np.linalg.norm(away, axis=1, keepdims=True))
    return pulls


def _nodes_by_label(label: np.ndarray) -> list[np.ndarray]:
    """Return the indices of the nodes with each label."""
    return np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1])


def _flat_topped_circle(n: int) -> np.ndarray:
    """Return :func:`circle`, rotated for even n so that the top is a side, not a corner."""
    c, s = np.cos(np.pi / n), np.sin(np.pi / n)
    return circle(n) @ np.array([[c, -s], [s, c]]) if n % 2 == 0 else circle(n)
