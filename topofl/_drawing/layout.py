"""Node layouts that show the structure of a graph, which is recognized from its edges."""

from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import (
    breadth_first_order,
    connected_components,
    depth_first_order,
    dijkstra,
    shortest_path,
)

Graph: TypeAlias = Any
"""A Topology, whose module imports this package to draw itself."""


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
    steps = support.indices - np.repeat(np.arange(n), degrees)
    offsets = np.sort(steps.reshape(n, -1) % n, axis=1)
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
    end = int(degrees.argmin())
    order = breadth_first_order(support, end, directed=False, return_predecessors=False)
    columns = n if n <= 8 else int(np.ceil(np.sqrt(n)))
    row, place = np.divmod(np.arange(n), columns)
    across = np.where(row % 2, columns - 1 - place, place)
    return arranged_by(order, np.stack([across, -row], axis=1).astype(float))


def _lattice(support: sparse.csr_array) -> np.ndarray | None:
    """Return positions of a lattice, periodic or not, whose nodes are numbered row by row."""
    n = support.shape[0]
    edges = edges_of(support)
    for columns in support.indices[: support.indptr[1]].tolist():
        if n % columns == 0 and any(
            np.array_equal(edges, _lattice_edges(n, columns, wrap)) for wrap in (False, True)
        ):
            row, column = np.divmod(np.arange(n), columns)
            return np.stack([column, -row], axis=1).astype(float)
    return None


def _lattice_edges(n: int, columns: int, wrap: bool) -> np.ndarray:
    places = np.arange(n).reshape(-1, columns)
    places = np.pad(places, (0, 1), mode="wrap") if wrap else places
    across, down = (places[:, :-1], places[:, 1:]), (places[:-1], places[1:])
    pairs = [np.stack([one.ravel(), other.ravel()], axis=1) for one, other in (across, down)]
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
    hops = dijkstra(support, directed=False, unweighted=True, indices=root)
    return np.asarray(hops).astype(np.int64)


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


def _two_columns(support: sparse.csr_array, density: float) -> np.ndarray | None:
    """Return two columns if the graph is bipartite with at least this share of possible edges."""
    n = support.shape[0]
    edges = edges_of(support)
    right = _hops_from(support, 0) % 2 == 1
    most = right.sum() * (~right).sum()
    if (right[edges[:, 0]] == right[edges[:, 1]]).any() or len(edges) < density * most:
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
    partial(_two_columns, density=1.0),
    _tree_layout,
    _hypercube,
    partial(_two_columns, density=0.2),
)
"""Layouts to try for a connected graph, simplest structure first."""


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
    centers, radii = centers.copy(), radii.copy()
    ends = np.cumsum(np.bincount(whole))[:-1]
    for members in np.split(np.argsort(whole, kind="stable"), ends):
        names, child = np.unique(part[members], return_inverse=True)
        if len(names) == 1:
            continue
        pull = [np.bincount(child, weights=pulls[members, axis]) for axis in (0, 1)]
        wishes, slots = np.stack(pull, axis=1), _flat_topped_circle(len(names))
        chosen = np.arange(len(names))
        if wishes.any():
            chosen = linear_sum_assignment(-wishes @ slots.T)[1]
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


def _flat_topped_circle(n: int) -> np.ndarray:
    """Return :func:`circle`, rotated for even n so that the top is a side, not a corner."""
    c, s = np.cos(np.pi / n), np.sin(np.pi / n)
    return circle(n) @ np.array([[c, -s], [s, c]]) if n % 2 == 0 else circle(n)


ITERATIONS = 100


def spring_layout(support: sparse.csr_array) -> np.ndarray:
    """Return the spring layout of a connected graph, with springs as long as distances in hops.

    It minimizes ``sum (|x_i - x_j| / d_ij - 1)^2`` by stress majorization, starting at
    :func:`spectral_layout`.

    References
    ----------
    Kamada and Kawai, "An algorithm for drawing general undirected graphs" (1989), for the springs;
    Gansner, Koren and North, "Graph drawing by stress majorization" (2004).
    """
    from scipy.spatial.distance import cdist

    hops = np.asarray(shortest_path(support, directed=False, unweighted=True))
    np.fill_diagonal(hops, np.inf)
    stiffness = hops**-2
    laplacian = np.diag(stiffness.sum(axis=1)) - stiffness
    inverse = np.linalg.pinv(laplacian, hermitian=True)
    positions = spectral_layout(support) * hops[np.isfinite(hops)].max() / 2
    for _ in range(ITERATIONS):
        distances = np.maximum(cdist(positions, positions), 1e-9)
        pulls = 1 / (hops * distances)
        positions = inverse @ (pulls.sum(axis=1)[:, None] * positions - pulls @ positions)
    return _push_apart(normalized(positions))


def spectral_layout(support: sparse.csr_array) -> np.ndarray:
    """Return the spectral layout: the two slowest modes of a lazy random walk on the graph.

    They are computed by subspace iteration.
    """
    n = support.shape[0]
    degrees = np.maximum(degrees_of(support), 1.0)
    root = np.sqrt(degrees)
    basis = np.stack([root, *np.random.default_rng(0).standard_normal((2, n))], axis=1)
    for _ in range(200):
        basis, _ = np.linalg.qr(basis)
        basis = (basis + (support @ (basis / root[:, None])) / root[:, None]) / 2
    basis, _ = np.linalg.qr(basis)
    positions = basis[:, 1:] / root[:, None]
    return _push_apart(normalized(positions / (np.abs(positions).max(axis=0) + 1e-12)))


def _push_apart(positions: np.ndarray) -> np.ndarray:
    """Return the positions after pushing nodes that are too close apart, in small steps."""
    from scipy.spatial import cKDTree

    n = len(positions)
    wanted = 0.9 / np.sqrt(n)
    k = np.arange(n)
    # Shifted slightly, so that no two are equal.
    positions = positions + 1e-3 * wanted * np.stack([np.cos(2.4 * k), np.sin(2.4 * k)], axis=1)
    for _ in range(100):
        pairs = cKDTree(positions).query_pairs(wanted, output_type="ndarray")
        if len(pairs) == 0:
            break
        gap = positions[pairs[:, 0]] - positions[pairs[:, 1]]
        distance = np.linalg.norm(gap, axis=1, keepdims=True)
        push = 0.3 * (1.02 * wanted - distance) * gap / distance
        np.add.at(positions, pairs[:, 0], push)
        np.add.at(positions, pairs[:, 1], -push)
    return positions


SPRING_LIMIT = 500
"""Largest graph without known structure that has a spring layout; larger ones are spectral."""

COMPONENTS_LIMIT = 100
"""Graphs with more components than this are laid out on one circle."""


def layout(topology: Graph, union: sparse.csr_array | None = None) -> np.ndarray:
    """Return (n, 2) positions in [-1, 1]^2 that show the structure of a graph.

    Each group is a small circle on a large one, nested if groups are connected in levels
    (D-Cliques). Circulant graphs and cycles are drawn on a circle; paths, trees, lattices,
    hypercubes and dense bipartite graphs in their usual forms; components side by side. Other
    graphs have a spring layout, or above 500 nodes a spectral layout. The result depends on edges
    and groups only, not on directions or weights.

    For a graph that changes over rounds, `topology` is that of the first one and `union` the
    adjacency matrix of all; without a known structure, nodes are on a circle, since spring layouts
    would differ from round to round.
    """
    adjacency = topology.adjacency if union is None else union
    support = sparse.csr_array(((adjacency + adjacency.T) != 0).astype(float))
    support.sort_indices()
    sources, targets = topology.group_of[np.stack(support.nonzero())]
    if ((sources == targets) & (sources >= 0)).any():  # the parts of a bipartite graph have none
        return normalized(grouped_layout(support, topology.groups))
    if union is None:
        return normalized(_layout_without_groups(support))
    structured = _structured_layout(support)
    return normalized(circle(support.shape[0]) if structured is None else structured)


def _layout_without_groups(support: sparse.csr_array) -> np.ndarray:
    """Return positions of a graph without groups."""
    if (structured := _structured_layout(support)) is not None:
        return structured
    n_components, component = connected_components(support, directed=False)
    if n_components > 1:
        return _side_by_side(support, n_components, component)
    return spring_layout(support) if support.shape[0] <= SPRING_LIMIT else spectral_layout(support)


def _structured_layout(support: sparse.csr_array) -> np.ndarray | None:
    """Return the layout of the simplest known structure that the graph has; None if it has none."""
    if is_circulant(support):
        return circle(support.shape[0])
    if connected_components(support, directed=False)[0] > 1:
        return None
    found = (arrange(support) for arrange in LAYOUTS_OF_CONNECTED)
    return next((positions for positions in found if positions is not None), None)


def _side_by_side(
    support: sparse.csr_array, n_components: int, component: np.ndarray
) -> np.ndarray:
    """Return the layouts of the components arranged in rows, largest first."""
    if n_components > COMPONENTS_LIMIT:
        return arranged_by(np.argsort(component, kind="stable"), circle(len(component)))
    sizes = np.bincount(component)
    widths = 2 * np.sqrt(sizes) + 1.0
    row_width, row_height = np.sqrt((widths**2).sum()), widths.max()
    positions = np.zeros((len(component), 2))
    x = y = 0.0
    for k in np.argsort(-sizes, kind="stable"):
        if x > 0 and x + widths[k] > 1.1 * row_width:
            x, y, row_height = 0.0, y - row_height, widths[k]
        members = np.flatnonzero(component == k)
        own = normalized(_layout_without_groups(support[members][:, members]))
        center = np.array([x + widths[k] / 2, y - widths[k] / 2])
        positions[members] = center + np.sqrt(sizes[k]) * own
        x += widths[k]
    return positions
