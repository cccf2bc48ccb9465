"""Geometry of the picture of a graph, and small drawings of it as SVG, for notebooks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import scipy.sparse as sparse

from topofl._drawing.figures import PALETTE, PLAIN
from topofl._drawing.layout import Graph, layout
from topofl._support.check import check_finite, check_int, check_unmasked

ARROWS_LIMIT = 400
"""Directed graphs with more edges are drawn without arrowheads."""

BENDING_LIMIT = 100_000
"""Graphs with more pairs of an edge and a node are drawn without bending edges around nodes."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Coordinates of the drawing of a graph.

    Parameters
    ----------
    positions
        (n, 2) centers of the nodes.
    radius
        Radius of the nodes, small enough that they do not overlap.
    edges
        (E, 2) end nodes of the lines: u < v if undirected, else source and target.
    curves
        (E, P, 2) points along the lines.
    between
        (E,) whether an edge connects different groups; all False if no edge is inside a group.
    heads
        (E, 3, 2) arrowheads at the targets; (0, 3, 2) for undirected and for large graphs.
    """

    positions: np.ndarray
    radius: float
    edges: np.ndarray
    curves: np.ndarray
    between: np.ndarray
    heads: np.ndarray


def compose(topology: Graph, positions: Any = None) -> Picture:
    """Return the picture of a graph with nodes at `positions` (n, 2), by default its layout.

    Raises
    ------
    ValueError
        If `positions` have another shape or are not finite.
    """
    if positions is None:
        places = layout(topology)
    else:
        places = checked_table("positions", positions, topology.n, 2)
    edges = np.stack(topology.edge_index, axis=1)
    if not topology.is_directed:
        edges = edges[edges[:, 0] < edges[:, 1]]
    radius = _node_radius(places)
    curves = _edge_curves(topology, places, edges, radius)
    label = topology.group_of
    between = label[edges[:, 0]] != label[edges[:, 1]]
    between = np.zeros_like(between) if between.all() else between  # nothing to distinguish
    heads = np.zeros((0, 3, 2))
    if topology.is_directed and len(edges) <= ARROWS_LIMIT:
        heads = _arrowheads(curves, radius)
    return Picture(places, radius, edges, curves, between, heads)


def first_rounds(
    sequence: Any, rounds: int | None, positions: Any = None
) -> tuple[list[Graph], np.ndarray]:
    """Return the graphs of the first rounds (default: one period, at most 6) and node positions.

    Positions show the structure of the union of one period, or of 16 rounds, if it is known; else
    they are on a circle.

    Examples
    --------
    >>> from topofl import topologies
    >>> graphs, positions = first_rounds(topologies.one_peer_exponential(8), None)
    >>> len(graphs), positions.shape  # one period of 3 rounds
    (3, (8, 2))
    """
    usual = int(min(sequence.period or 6, 6))
    count = usual if rounds is None else check_int("rounds", rounds, minimum=1)
    graphs = [sequence.at(t) for t in range(count)]
    if positions is not None:
        return graphs, checked_table("positions", positions, sequence.n, 2)
    more = [sequence.at(t) for t in range(count, min(sequence.period or 16, 16))]
    first, *others = (graph.adjacency for graph in graphs + more)
    return graphs, layout(graphs[0], sparse.csr_array(sum(others, start=first)))


def group_fills(topology: Graph) -> list[str]:
    """Return one color per node: that of its group, else gray; blue if there are no groups."""
    if not topology.groups:
        return [PLAIN] * topology.n
    most = len(PALETTE) - 1
    colors = PALETTE[: most - (len(topology.groups) % most == 1)]  # the last is next to the first
    return ["#7F7F7F" if k < 0 else colors[k % len(colors)] for k in topology.group_of.tolist()]


def checked_table(name: str, values: Any, n: int, width: int | str) -> np.ndarray:
    """Return finite numbers with a row per node, or raise; a `width` in words may be any."""
    check_unmasked(name, values)
    try:
        table = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`{name}` must be an (n, {width}) array of numbers: {error}") from error
    columns = table.shape[1] if table.ndim == 2 else 0
    if columns == 0 or len(table) != n or (isinstance(width, int) and columns != width):
        raise ValueError(f"`{name}` must have shape (n, {width}) with n={n}, got {table.shape}")
    return check_finite(name, table)


def _node_radius(positions: np.ndarray) -> float:
    """Return the node radius: a third of the smallest distance, at most 1/26 of the width."""
    from scipy.spatial import cKDTree

    widest = float(np.ptp(positions, axis=0).max()) / 26 or 0.1
    if len(positions) == 1:
        return widest
    nearest = float(cKDTree(positions).query(positions, k=2)[0][:, 1].min())
    return min(widest, 0.33 * nearest) or widest / 10  # if two given positions are equal


def _edge_curves(
    topology: Graph, positions: np.ndarray, edges: np.ndarray, radius: float
) -> np.ndarray:
    """Return the lines of edges, curved if there is a reverse edge or a node in the way."""
    start = positions[edges[:, 0]]
    along = positions[edges[:, 1]] - positions[edges[:, 0]]
    length = np.linalg.norm(along, axis=1)
    bow = np.zeros(len(edges))
    power = np.full(len(edges), 2.0)
    if topology.is_directed:
        twin = np.asarray(topology.adjacency.T[edges[:, 0], edges[:, 1]]).ravel() != 0
        bow[twin] = 0.09 * length[twin]
    if len(edges) and len(edges) * topology.n <= BENDING_LIMIT:
        around, flat = _detours(positions, edges, radius)
        bow = np.where(around != 0, around, bow)
        power = np.where(flat, 4.0, 2.0)
    if not bow.any():
        return np.stack([start, start + along], axis=1)
    t = np.linspace(0, 1, 17)
    left = np.stack([-along[:, 1], along[:, 0]], axis=1)
    sideways = left * (bow / np.where(length > 0, length, 1.0))[:, None]
    profile = (1 - np.abs(2 * t - 1) ** power[:, None])[:, :, None]
    return start[:, None] + along[:, None] * t[:, None] + sideways[:, None] * profile


def _detours(
    positions: np.ndarray, edges: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far to bend each edge to its left to avoid the node that obstructs it most.

    The distance is 0 if no node does, and negative to the right. The second array marks the bent
    edges, whose curves are flatter. Edges bend away from the obstructing node; if it is exactly on
    the line, away from the center of the picture.
    """
    start = positions[edges[:, 0]]
    along = positions[edges[:, 1]] - positions[edges[:, 0]]
    length = np.maximum(np.linalg.norm(along, axis=1), 1e-300)[:, None]
    offset = positions[None, :, :] - start[:, None, :]  # (E, n, 2)
    t = (offset * along[:, None, :]).sum(axis=2) / length**2
    left = (offset[:, :, 1] * along[:, None, 0] - offset[:, :, 0] * along[:, None, 1]) / length
    rows = np.arange(len(edges))
    inside = (t > 0) & (t < 1)
    inside[rows, edges[:, 0]] = inside[rows, edges[:, 1]] = False
    off = np.abs(left)
    detour = (1.8 * radius - off) / (1 - np.abs(2 * t - 1) ** 4 + 1e-9)
    need = np.where(inside & (off < 1.05 * radius), detour, 0)
    worst = need.argmax(axis=1)
    side = -np.sign(np.round(left[rows, worst], 9))
    middle = start + along / 2 - (positions.min(axis=0) + positions.max(axis=0)) / 2
    outward = np.where(middle[:, 1] * along[:, 0] - middle[:, 0] * along[:, 1] < -1e-9, -1.0, 1.0)
    need = need[rows, worst]
    return np.where(side == 0, outward, side) * np.minimum(need, 0.3 * length[:, 0]), need > 0


def _arrowheads(curves: np.ndarray, radius: float) -> np.ndarray:
    """Return the triangles of arrowheads, whose tips touch the discs of the targets."""
    back = curves[:, -2] - curves[:, -1]
    back = back / np.maximum(np.linalg.norm(back, axis=1, keepdims=True), 1e-300)
    side = np.stack([-back[:, 1], back[:, 0]], axis=1)
    tip = curves[:, -1] + radius * back
    base = tip + 1.2 * radius * back
    return np.stack([tip, base + 0.5 * radius * side, base - 0.5 * radius * side], axis=1)


NODES_LIMIT = 300
EDGES_LIMIT = 3_000
"""Larger graphs are not drawn."""

SIDE = 260
"""Width and height of the drawing of one graph, in pixels."""


def topology_svg(topology: Graph) -> str | None:
    """Return an SVG drawing of a graph with its name as caption, or None if it is too large."""
    if topology.n > NODES_LIMIT or topology.n_edges > EDGES_LIMIT:
        return None
    kind = "directed" if topology.is_directed else "undirected"
    caption = f"{topology.n} nodes, {topology.n_edges} edges, {kind}"
    return _document(
        topology.name, caption, [_graph_panel(compose(topology), group_fills(topology))]
    )


def rounds_svg(sequence: Any) -> str | None:
    """Return an SVG drawing of the first rounds side by side, or None if one is too large."""
    if sequence.n > NODES_LIMIT:
        return None
    graphs, positions = first_rounds(sequence, None)
    if max(graph.n_edges for graph in graphs) > EDGES_LIMIT:
        return None
    panels = [_graph_panel(compose(graph, positions), group_fills(graph)) for graph in graphs]
    period = "no period" if sequence.period is None else f"period {sequence.period}"
    return _document(
        sequence.name, f"{sequence.n} nodes, rounds 0 to {len(graphs) - 1}, {period}", panels
    )


def _document(name: str, caption: str, panels: Sequence[str]) -> str:
    width, height = SIDE * len(panels), SIDE + 34
    longest = width // 6
    shown = name if len(name) <= longest else name[: longest - 3] + "..."
    moved = "".join(
        f'<g transform="translate({SIDE * k} 0)">{panel}</g>' for k, panel in enumerate(panels)
    )
    text = f'<text x="{width / 2:g}" font-family="sans-serif" font-size="10" text-anchor="middle"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">'
        f'<title>{escape(name)}</title><rect width="100%" height="100%" fill="white"/>{moved}'
        f'{text} y="{SIDE + 12}">{escape(shown)}</text>'
        f'{text} y="{SIDE + 26}" fill="#555555">{escape(caption)}</text></svg>'
    )


def _graph_panel(picture: Picture, fills: Sequence[str]) -> str:
    """Return the drawing of one graph within SIDE x SIDE pixels."""
    points = np.concatenate([picture.positions, picture.curves.reshape(-1, 2)])
    low, high = points.min(axis=0), points.max(axis=0)
    extent = float((high - low).max()) + 4 * picture.radius
    scale = SIDE / extent
    corner = (low + high) / 2 + np.array([-extent / 2, extent / 2])

    def pixels(values: np.ndarray) -> np.ndarray:
        return (values - corner) * np.array([scale, -scale])

    radius = picture.radius * scale
    width = np.clip(9 / np.sqrt(len(picture.edges) + 1), 0.3, 1.2)
    light = "#B8B8B8" if picture.between.any() else "#8C8C8C"
    parts = []
    for chosen, color in ((~picture.between, light), (picture.between, "#222222")):
        if chosen.any():
            lines = _path_data(pixels(picture.curves[chosen]))
            parts.append(
                f'<path d="{lines}" fill="none" stroke="{color}" stroke-width="{width:.2g}"/>'
            )
    if len(picture.heads):
        parts.append(f'<path d="{_path_data(pixels(picture.heads))}" fill="#555555"/>')
    circles = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}"/>'
        for (x, y), fill in zip(pixels(picture.positions).tolist(), fills, strict=True)
    ]
    return "".join(parts + circles)


def _path_data(lines: np.ndarray) -> str:
    """Return the ``d`` attribute of an SVG path through (E, P, 2) points.

    Straight lines are reduced to their end points.
    """
    middles = (lines[:, 0] + lines[:, -1]) / 2
    straight = np.abs(lines[:, lines.shape[1] // 2] - middles).max(axis=1) < 0.05
    kept = [line[[0, -1]] if flat else line for line, flat in zip(lines, straight, strict=True)]
    return "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in line.tolist()) for line in kept)
