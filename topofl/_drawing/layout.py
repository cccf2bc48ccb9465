"""Node layouts that show the structure of a graph, which is recognized from its edges."""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from topofl._drawing.graphs import Graph
from topofl._drawing.nested import grouped_layout
from topofl._drawing.shapes import (
    LAYOUTS_OF_CONNECTED,
    arranged_by,
    circle,
    is_circulant,
    normalized,
)
from topofl._drawing.unstructured import spectral_layout, spring_layout

__all__ = ["layout", "structured_layout"]

SPRING_LIMIT = 500
"""Largest graph without known structure that has a spring layout; larger ones are spectral."""

COMPONENTS_LIMIT = 100
"""Graphs with more components than this are laid out on one circle."""


def layout(topology: Graph) -> np.ndarray:
    """Return (n, 2) positions in [-1, 1]^2 that show the structure of a graph.

    Each group is a small circle on a large one, nested if groups are connected in levels
    (D-Cliques). Circulant graphs and cycles are drawn on a circle; paths, trees, lattices,
    hypercubes and dense bipartite graphs in their usual forms; components side by side. Other
    graphs have a spring layout, or above 500 nodes a spectral layout. The result depends on edges
    and groups only, not on directions or weights.
    """
    support = _undirected_support(topology.adjacency)
    if _has_cliques(support, topology.groups):
        return normalized(grouped_layout(support, topology.groups))
    return normalized(_layout_without_groups(support))


def structured_layout(
    adjacency: sparse.csr_array, groups: tuple[tuple[int, ...], ...]
) -> np.ndarray:
    """Return positions that show the groups or the known structure of a graph, else a circle.

    This layout is for graphs that change over rounds, whose spring layouts would differ.
    """
    support = _undirected_support(adjacency)
    if _has_cliques(support, groups):
        return normalized(grouped_layout(support, groups))
    return normalized(next(_structured_layouts(support), circle(support.shape[0])))


def _has_cliques(support: sparse.csr_array, groups: tuple[tuple[int, ...], ...]) -> bool:
    """Return whether any edge is inside a group; the parts of a bipartite graph have none."""
    label = -np.ones(support.shape[0], dtype=np.int64)
    for k, group in enumerate(groups):
        label[list(group)] = k
    sources, targets = support.nonzero()
    return bool(((label[sources] == label[targets]) & (label[sources] >= 0)).any())


def _undirected_support(adjacency: sparse.csr_array) -> sparse.csr_array:
    """Return the symmetric 0/1 adjacency matrix of a graph."""
    support = sparse.csr_array(((adjacency + adjacency.T) != 0).astype(float))
    support.sort_indices()
    return support


def _layout_without_groups(support: sparse.csr_array) -> np.ndarray:
    """Return positions of a graph without groups."""
    for positions in _structured_layouts(support):
        return positions
    n_components, component = connected_components(support, directed=False)
    if n_components > 1:
        return _side_by_side(support, n_components, component)
    return spring_layout(support) if support.shape[0] <= SPRING_LIMIT else spectral_layout(support)


def _structured_layouts(support: sparse.csr_array) -> Iterator[np.ndarray]:
    """Yield the layout of each known structure that the graph has, simplest first."""
    if is_circulant(support):
        yield circle(support.shape[0])
    if connected_components(support, directed=False)[0] > 1:
        return
    for arrange in LAYOUTS_OF_CONNECTED:
        positions = arrange(support)
        if positions is not None:
            yield positions


def _side_by_side(
    support: sparse.csr_array, n_components: int, component: np.ndarray
) -> np.ndarray:
    """Return the layouts of the components arranged in rows, largest first."""
    if n_components > COMPONENTS_LIMIT:
        return arranged_by(np.argsort(component, kind="stable"), circle(len(component)))
    sizes = np.bincount(component)
    widths = 2 * np.sqrt(sizes) + 1.0
    row_width = np.sqrt((widths**2).sum())
    positions = np.zeros((len(component), 2))
    x = 0.0
    y = 0.0
    row_height = widths.max()
    for k in np.argsort(-sizes, kind="stable"):
        if x > 0 and x + widths[k] > 1.1 * row_width:
            x = 0.0
            y -= row_height
            row_height = widths[k]
        members = np.flatnonzero(component == k)
        own = normalized(_layout_without_groups(support[members][:, members]))
        positions[members] = (
            np.array([x + widths[k] / 2, y - widths[k] / 2]) + np.sqrt(sizes[k]) * own
        )
        x += widths[k]
    return positions
