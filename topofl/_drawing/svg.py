"""Drawings of graphs as small, self-contained SVG, for notebooks."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np

from topofl._drawing.graphs import Graph, GraphSequence
from topofl._drawing.picture import Picture, compose, first_rounds, group_fills

__all__ = ["rounds_svg", "topology_svg"]

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


def rounds_svg(sequence: GraphSequence) -> str | None:
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
    straight = (
        np.abs(lines[:, lines.shape[1] // 2] - (lines[:, 0] + lines[:, -1]) / 2).max(axis=1) < 0.05
    )
    kept = [
        line[:: len(line) - 1] if flat else line for line, flat in zip(lines, straight, strict=True)
    ]
    return "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in line.tolist()) for line in kept)
