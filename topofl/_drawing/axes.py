"""Drawing of graphs, matrices and spectra on matplotlib Axes, and of matrices as small images."""

import io
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing import figures
from topofl._drawing.layout import Graph
from topofl._drawing.picture import (
    ARROWS_LIMIT,
    Picture,
    checked_table,
    compose,
    first_rounds,
    group_fills,
)
from topofl._support.notebook import png_as_html
from topofl._support.text import node_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SMALL_CELLS = 128
"""Most cells per side of the small picture of a matrix; a cell of a larger one is a maximum."""

SIDE = 180
"""Width or height of the small picture of a matrix in pixels, whichever is larger."""


def block_maxima(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int], cells: int
) -> np.ndarray:
    """Return a matrix of non-negative entries; above `cells` per side, the maxima of blocks.

    Examples
    --------
    >>> ones = np.ones(2)
    >>> block_maxima(np.array([0, 3]), np.array([0, 1]), ones, (4, 2), cells=2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    height, width = (min(size, cells) for size in shape)
    image = np.zeros((height, width))
    np.maximum.at(image, (rows * height // shape[0], columns * width // shape[1]), values)
    return image


def matrix_as_html(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int], about: str
) -> str:
    """Return a small picture of a matrix, white at 0 and dark at its largest entry.

    Parameters
    ----------
    rows, columns, values
        The entries that are not 0; `values` are positive.
    shape
        Numbers of rows and columns.
    about
        What it shows.
    """
    from PIL import Image, ImageColor

    image = block_maxima(rows, columns, values, shape, SMALL_CELLS)
    shares = image / (image.max() or 1.0)
    pixels = 255 - shares[:, :, None] * (255 - np.array(ImageColor.getrgb(figures.PLAIN)))
    stream = io.BytesIO()
    Image.fromarray(pixels.round().astype(np.uint8)).save(stream, "PNG", optimize=True)
    per_cell = max(1, SIDE // max(image.shape))
    return png_as_html(stream.getvalue(), about, width=per_cell * image.shape[1])


NODES_LIMIT = 2_000
EDGES_LIMIT = 20_000
"""Larger graphs are drawn as adjacency matrices; if positions are given, only edges are limited."""

THIN_LIMIT = 2_000
"""Graphs with more edges are drawn with thin lines."""

PIES_LIMIT = 200
"""Larger graphs show the most frequent label of each node instead of a pie chart of its labels."""

CELLS = 512
"""Largest image of a matrix, in cells per side; a cell of a larger matrix is a block's maximum."""

NAMED_CELLS = 30
"""Most rows and columns of a matrix that are named by the labels of their nodes."""


def draw_graph(
    topology: Graph,
    ax: "Axes | None" = None,
    *,
    label_counts: Any = None,
    labels: Any = None,
    positions: Any = None,
) -> "Figure":
    """Draw a graph; see :meth:`topofl.Topology.plot`."""
    counts = _checked_counts(label_counts, topology.n)
    names = getattr(label_counts, "class_names", None)
    texts = _checked_labels(labels, topology)
    if topology.n_edges > EDGES_LIMIT or (positions is None and topology.n > NODES_LIMIT):
        return draw_adjacency(topology, ax)
    picture = compose(topology, positions)
    ax = figures.new_axes(ax)
    _draw_edges(picture, ax)
    if counts is None:
        _draw_discs(picture, group_fills(topology), ax)
    else:
        _draw_label_nodes(picture, counts, names or range(counts.shape[1]), ax)
    _draw_texts(picture, texts, ax)
    points = np.concatenate([picture.positions, picture.curves.reshape(-1, 2)])
    low, high = points.min(axis=0) - 3 * picture.radius, points.max(axis=0) + 3 * picture.radius
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.set_axis_off()
    drawn = len(picture.edges)
    remarks = [f"{drawn:,} edges, drawn thin"] * (drawn > THIN_LIMIT)
    remarks += ["arrowheads left out"] * (topology.is_directed and drawn > ARROWS_LIMIT)
    set_title(ax, topology.name, "; ".join(remarks))
    return figures.figure_of(ax)


def set_title(ax: "Axes", name: str, remark: str = "") -> None:
    """Set the title to a name and a remark, wrapped at 48 characters."""
    lines = textwrap.wrap(name, 48) + textwrap.wrap(remark, 48)
    ax.set_title("\n".join(lines), fontsize=9)


def _draw_edges(picture: Picture, ax: "Axes") -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    n_edges = len(picture.edges)
    width = 0.25 if n_edges > THIN_LIMIT else float(np.clip(12 / np.sqrt(n_edges + 1), 0.4, 1.2))
    order = np.argsort(picture.between, kind="stable")  # edges between groups on top
    strong = picture.between[order]
    colors = np.where(strong, "#222222", "#B8B8B8" if strong.any() else "#8C8C8C").tolist()
    widths = np.where(strong, float(np.clip(10 / np.sqrt(strong.sum() + 1), width, 1.4)), width)
    curves = list(picture.curves[order])
    lines = LineCollection(curves, colors=colors, linewidths=widths, zorder=1)
    ax.add_collection(lines, autolim=False)
    if len(picture.heads):
        heads = PolyCollection(list(picture.heads), facecolors="#555555", zorder=2)
        ax.add_collection(heads, autolim=False)


def _draw_discs(picture: Picture, fills: list[str], ax: "Axes") -> None:
    from matplotlib.collections import EllipseCollection

    size = np.full(len(fills), 2 * picture.radius)
    places = {"offsets": picture.positions, "offset_transform": ax.transData, "units": "xy"}
    look = {"facecolors": fills, "edgecolors": "white", "linewidths": 0.5, "zorder": 3}
    discs = EllipseCollection(size, size, np.zeros_like(size), **places, **look)
    ax.add_collection(discs, autolim=False)


def _draw_texts(picture: Picture, texts: list[str], ax: "Axes") -> None:
    from matplotlib.patheffects import withStroke

    rim = [withStroke(linewidth=1.5, foreground="black")]
    how = {"color": "white", "fontsize": 7, "ha": "center", "va": "center", "zorder": 4}
    for (x, y), text in zip(picture.positions.tolist(), texts, strict=False):
        ax.text(x, y, text, path_effects=rim, **how)


def _draw_label_nodes(
    picture: Picture, counts: np.ndarray, names: Sequence[Any], ax: "Axes"
) -> None:
    """Draw nodes as pie charts of their labels, or discs of the most frequent, with a legend."""
    from matplotlib.lines import Line2D

    colors = class_colors(counts.shape[1])
    if len(counts) <= PIES_LIMIT:
        _draw_pies(picture, counts, colors, ax)
    else:
        majority = ["#FFFFFF" if row.sum() == 0 else colors[row.argmax()] for row in counts]
        _draw_discs(picture, majority, ax)
    if len(colors) <= len(figures.PALETTE):
        handles = [
            Line2D([], [], linestyle="", marker="o", color=color, label=str(k))
            for k, color in enumerate(colors)
        ]
        place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
        legend = ax.legend(handles=handles, title="label", fontsize=7, frameon=False, **place)
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_parse_math(False)
            text.set_text(str(name))  # as a label, a name that begins with _ would be left out


def _draw_pies(picture: Picture, counts: np.ndarray, colors: list[str], ax: "Axes") -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Wedge

    totals = counts.sum(axis=1, keepdims=True)
    ends = 90 - 360 * np.cumsum(counts, axis=1) / np.where(totals > 0, totals, 1)
    starts = np.insert(ends[:, :-1], 0, 90.0, axis=1)
    pairs = np.argwhere(counts).tolist()
    wedges = [
        Wedge(tuple(picture.positions[i]), picture.radius, ends[i, k], starts[i, k])
        for i, k in pairs
    ]
    _draw_discs(picture, ["#FFFFFF"] * len(counts), ax)
    pies = PatchCollection(
        wedges, facecolors=[colors[k] for _, k in pairs], linewidths=0, zorder=3.5
    )
    ax.add_collection(pies, autolim=False)


def class_colors(classes: int) -> list[str]:
    """Return the colors of the classes in pictures."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    if classes <= len(figures.PALETTE):
        return list(figures.PALETTE[:classes])
    return [to_hex(color) for color in colormaps["viridis"](np.linspace(0, 1, classes))]


def _checked_counts(label_counts: Any, n: int) -> np.ndarray | None:
    if label_counts is None:
        return None
    given = getattr(label_counts, "label_counts", label_counts)
    counts = checked_table("label_counts", given, n, "classes")
    if counts.min() < 0:
        node, label = np.unravel_index(counts.argmin(), counts.shape)
        raise ValueError(
            f"`label_counts` must be non-negative, got {counts.min():g} for node {node}, class "
            f"{label}"
        )
    return counts


def _checked_labels(labels: Any, topology: Graph) -> list[str]:
    if labels is None or labels is False:
        return []
    names = list(topology.nodes or range(topology.n)) if labels is True else list(labels)
    if len(names) != topology.n:
        raise ValueError(
            f"`labels` must be True or one label for each of the n={topology.n} nodes, got "
            f"{len(names)}"
        )
    return [str(name) for name in names]


def draw_adjacency(topology: Graph, ax: "Axes | None" = None) -> "Figure":
    """Draw the adjacency matrix; see :meth:`topofl.Topology.plot_adjacency`."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    inside = np.array([i for group in topology.groups for i in group], np.int64)
    order = np.concatenate([inside, np.setdiff1d(np.arange(topology.n), inside)])
    rank = np.argsort(order)
    sources, targets = topology.edge_index
    ax = figures.new_axes(ax)
    remark = _draw_cells(
        rank[sources], rank[targets], np.ones(len(sources)), topology.n, ax, "Greys", top=1.0
    )
    _name_cells(ax, topology.nodes, order)
    sizes = np.array([len(group) for group in topology.groups])
    corners = np.cumsum(sizes) - sizes - 0.5
    squares = [Rectangle((x, x), k, k) for x, k in zip(corners, sizes, strict=True)]
    if squares:
        look = {"facecolors": "none", "edgecolors": "#D55E00", "linewidths": 1.0}
        ax.add_collection(PatchCollection(squares, **look))
    by_group = " (group by group)" if topology.groups else ""
    ax.set(xlabel=f"receiver{by_group}", ylabel=f"sender{by_group}")
    edges = f"{topology.n:,} nodes, {topology.n_edges:,} edges"
    set_title(ax, topology.name, f"adjacency: {edges}{remark}")
    return figures.figure_of(ax)


def _name_cells(ax: "Axes", labels: Sequence[Any], order: np.ndarray) -> None:
    """Name rows and columns of a matrix by the labels of nodes, evenly spaced ones of many."""
    if not labels:
        return
    n = len(order)
    places = np.unique(np.linspace(0, n - 1, min(n, NAMED_CELLS)).round().astype(int))
    names = [node_name(labels, int(node)) for node in order[places]]
    how = {"fontsize": 7, "parse_math": False}
    ax.set_xticks(places, names, rotation=90, **how)
    ax.set_yticks(places, names, **how)


def draw_matrix(
    weights: Any, name: str, ax: "Axes | None" = None, *, labels: Sequence[Any] = ()
) -> "Figure":
    """Draw the weights of a mixing matrix; see :meth:`topofl.MixingMatrix.plot`."""
    ax = figures.new_axes(ax)
    entries = weights.tocoo()
    rows, columns = entries.coords
    remark = _draw_cells(rows, columns, entries.data, weights.shape[0], ax, "viridis", top=None)
    ax.figure.colorbar(ax.images[-1], ax=ax, label="weight", shrink=0.8)
    _name_cells(ax, labels, np.arange(weights.shape[0]))
    ax.set(xlabel="sender", ylabel="receiver")
    set_title(ax, name, remark.lstrip("; "))
    return figures.figure_of(ax)


def _draw_cells(
    rows: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    n: int,
    ax: "Axes",
    colors: str,
    *,
    top: float | None,
) -> str:
    """Draw an n x n matrix as an image, in blocks if n is large; return a remark on the blocks."""
    image = block_maxima(rows, columns, values, (n, n), CELLS)
    corners = (-0.5, n - 0.5, n - 0.5, -0.5)
    how: dict[str, Any] = {"interpolation": "nearest", "origin": "upper"}
    ax.imshow(image, cmap=colors, vmin=0, vmax=top, extent=corners, **how)
    side = -(-n // CELLS)
    return "" if side == 1 else f"; each cell is the largest of {side} x {side} entries"


def draw_rounds(
    sequence: Any,
    rounds: int | None = None,
    *,
    label_counts: Any = None,
    positions: Any = None,
) -> "Figure":
    """Draw the first rounds side by side; see :meth:`topofl.TopologySequence.plot`."""
    graphs, places = first_rounds(sequence, rounds, positions)
    figure = figures.empty_figure(2.6 * len(graphs), 3)
    axes = figure.subplots(1, len(graphs), squeeze=False)[0]
    for t, (graph, ax) in enumerate(zip(graphs, axes, strict=True)):
        draw_graph(graph, ax, label_counts=label_counts, positions=places)
        ax.set_title(f"round {t}", fontsize=9)
    figure.suptitle("\n".join(textwrap.wrap(sequence.name, 40 * len(graphs))), fontsize=10)
    return figure


def draw_spectrum(
    eigenvalues: np.ndarray, slem: float, name: str, ax: "Axes | None" = None
) -> "Figure":
    """Plot eigenvalues, as a histogram if real; see :meth:`topofl.MixingMatrix.plot_spectrum`."""
    ax = figures.own_axes(ax, figures.WIDE, 3.8)
    dashed: dict[str, Any] = {"color": figures.THEORY, "linestyle": "--", "linewidth": 1.2}
    if np.isrealobj(eigenvalues):
        ax.hist(np.clip(eigenvalues, -1.0, 1.0), bins=40, range=(-1.0, 1.0), color=figures.MEASURED)
        ax.axvline(slem, **dashed)
        ax.axvline(-slem, **dashed)
        ax.set(xlabel="eigenvalue", ylabel="count", xlim=(-1.05, 1.05))
    else:
        angles, ends = np.linspace(0, 2 * np.pi, 200), (-1.08, 1.08)
        ax.plot(np.cos(angles), np.sin(angles), color=figures.INK, linewidth=1.0)
        ax.plot(slem * np.cos(angles), slem * np.sin(angles), **dashed)
        points = np.real(eigenvalues), np.imag(eigenvalues)
        ax.scatter(*points, s=14, color=figures.MEASURED, zorder=3)
        ax.set(xlabel="real part", ylabel="imaginary part", xlim=ends, ylim=ends, aspect="equal")
    set_title(ax, name, f"dashed: SLEM {slem:.4g}")  # a legend would cover the bars
    return figures.figure_of(ax)
