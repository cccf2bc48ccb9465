"""Lines and sorted scores of single nodes, with the worst ones highlighted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing.charts.labels import label_points
from topofl._drawing.charts.lines import Line, draw_panels
from topofl._drawing.charts.panels import Panel, panels_of_names
from topofl._drawing.charts.ranks import ranked_curves
from topofl._drawing.charts.style import COLORS
from topofl._support.text import node_name
from topofl.history.plots.notes import note_on_lines, note_on_nodes
from topofl.history.plots.options import AXIS_LABELS, Options
from topofl.history.plots.series import Series
from topofl.history.statistics import over_nodes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_nodes", "draw_ranks"]


def draw_nodes(series: Sequence[Series], options: Options, ax: Any) -> "Figure":
    """Draw one panel per history: the mean, each node in gray, and the worst nodes in color."""
    panels, lines = [], []
    for one in series:
        worst = one.worst(options.worst)
        curves = [over_nodes(one.per_node)["mean"], *one.per_node[:, worst].T]
        first = len(lines)
        lines += [_without_band(one.x, y) for y in curves]
        groups = tuple(range(first, len(lines)))
        labels = ("mean", *(f"node {node_name(one.labels, node)}" for node in worst))
        context = [np.column_stack([one.x, y]) for y in one.per_node.T]
        title = one.name if len(series) > 1 else ""
        panels.append(Panel(title, groups, labels, context, tuple(range(len(groups)))))
    more = f" and {options.worst} worst" if options.worst else ""
    labels = (
        f"{AXIS_LABELS[options.x]}\n(gray: all nodes; color: mean{more}){note_on_lines(series)}",
        series[0].column.replace("_", " "),
    )
    is_accuracy = series[0].column.startswith("accuracy")
    return draw_panels(panels, lines, ax, labels, is_accuracy=is_accuracy)


def draw_ranks(series: Sequence[Series], options: Options, ax: Any) -> "Figure":
    """Draw the last scores of nodes from the worst to the best, with the worst nodes as points."""
    lines = []
    for one in series:
        x, table = ranked_curves([one.at(None)], low_is_good=one.low_is_good)
        lines.append(_without_band(x, table[0]))
    points = min(options.worst, len(lines[0].x))
    note = "\n(last evaluation)"
    if len(series) == 1:
        note = f"\n(points: {points} worst)" if points else ""
    xlabel = f"nodes from the worst to the best, %{note}{note_on_nodes(series)}"
    labels = xlabel, series[0].column.replace("_", " ")
    is_accuracy = series[0].column.startswith("accuracy")
    names = [one.name for one in series] if len(series) > 1 else [""]
    figure = draw_panels(panels_of_names(names), lines, ax, labels, is_accuracy=is_accuracy)
    if len(series) == 1:
        _name_worst(figure.axes[0] if ax is None else ax, series[0], lines[0], options.worst)
    return figure


def _name_worst(ax: Any, series: Series, line: Line, count: int) -> None:
    """Mark the worst nodes on their sorted curve, with their labels, or numbers without any."""
    last = series.per_node[-1]
    nodes = [node for node in series.worst(len(last)) if np.isfinite(last[node])][:count]
    points = [(float(line.x[k]), float(last[node])) for k, node in enumerate(nodes)]
    for x, y in points:  # the worst node is at the left end, and its point half beyond it
        ax.plot(x, y, "o", color=COLORS[1], markersize=4, clip_on=False, zorder=3)
    texts = [f"node {node_name(series.labels, node)}" for node in nodes]
    if points and label_points(ax, points, texts) is None:
        raise ValueError(
            f"`ax` must have room for the labels of {len(points)} nodes, got Axes that are too "
            "small; leave it out, or take a smaller `worst`"
        )


def _without_band(x: np.ndarray, y: np.ndarray) -> Line:
    none = np.full(len(x), np.nan)
    return Line(x, y, none, none)
