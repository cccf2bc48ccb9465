"""Plots of one history."""

from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing import figure_of, new_axes
from topofl._drawing.charts.fronts import Front, draw_front, front_of, labels_of
from topofl._drawing.charts.lines import draw_line
from topofl._drawing.charts.style import COLORS, FONT, WIDE, own_axes, set_font
from topofl._drawing.charts.violins import ROWS_LIMIT, draw_violins, height_of
from topofl.history.plots.nodes import draw_nodes, draw_ranks
from topofl.history.plots.notes import note_on, note_on_nodes
from topofl.history.plots.options import AXIS_LABELS, RANK, Options, check_options
from topofl.history.plots.series import Series, series_of
from topofl.history.statistics import over_nodes
from topofl.history.summary import with_attack

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from topofl.history.history import History

__all__ = ["plot"]

LABELED = 8
"""Most points of a Pareto front that are labeled with their rounds."""


def plot(
    history: "History",
    column: str | None,
    kind: str,
    ax: "Axes | None",
    label: str | None,
    **given: Any,
) -> "Figure":
    """See :meth:`topofl.History.plot`."""
    options = check_options(kind, **given)
    column = history.primary if column is None else column
    run = f"{history.meta.get('algorithm')}, {history.meta.get('topology')}"
    series = series_of(history, column, options.x, label or with_attack(history, run))
    if ax is not None:
        ax = new_axes(ax)
    draw = {"band": _band, "violin": _violin, "nodes": _nodes, "pareto": _pareto}[kind]
    return figure_of(draw(series, options, ax))


def _band(series: Series, options: Options, ax: "Axes | None") -> "Axes":
    """Draw the mean and a band over nodes, in a style that no line of the axes has yet."""
    line = series.line(options.quantiles)
    from matplotlib.ticker import MaxNLocator

    ax = own_axes(WIDE, 3.4) if ax is None else ax
    set_font(ax)
    draw_line(ax, line, len(ax.lines), series.name)
    if options.x == "rounds":
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    note = f"\n{options.band_note}" if series.values.ndim > 1 else ""
    ax.set_xlabel(f"{AXIS_LABELS[options.x]}{note}", fontsize=FONT + 1)
    ax.set_ylabel(series.column.replace("_", " "), fontsize=FONT + 1, parse_math=False)
    return ax


def _violin(series: Series, options: Options, ax: "Axes | None") -> "Axes":
    """Draw a violin over nodes for each round."""
    rounds = options.at or (None,)
    if len(rounds) > ROWS_LIMIT:
        raise ValueError(f"`at` must have at most {ROWS_LIMIT} rounds, got {len(rounds)}")
    scores = [series.at(one) for one in rounds]
    names = [series.name] if options.at is None else [f"round {one}" for one in rounds]
    xlabel = f"{series.column.replace('_', ' ')} of nodes{note_on_nodes([series], rounds)}"
    ax = own_axes(WIDE, height_of(len(scores), xlabel)) if ax is None else ax
    colors = [COLORS[0]] * len(scores)
    draw_violins(names, scores, colors, ax, xlabel, low_is_good=series.low_is_good)
    return ax


def _nodes(series: Series, options: Options, ax: "Axes | None") -> "Axes":
    """Draw a line per node over rounds or costs, or a point per node in the order of scores."""
    series.per_node  # noqa: B018 - before a figure is made
    if options.x == RANK:
        series.at(None)
    ax = own_axes(WIDE, 3.4) if ax is None else ax
    (draw_ranks if options.x == RANK else draw_nodes)([series], options, ax)
    return ax


def _pareto(series: Series, options: Options, ax: "Axes | None") -> "Axes":
    """Draw the mean score of each evaluation against its cost, and the Pareto front."""
    means = over_nodes(series.per_node)["mean"]
    members = front_of(series.x.astype(float), means, series.low_is_good)
    rounds = [f"round {t}" for t in series.rounds.tolist()]
    few = np.zeros(len(rounds), dtype=bool)
    few[members] = True  # the others are dominated by earlier evaluations
    names = labels_of(rounds, members, few, most=LABELED)
    ax = own_axes(WIDE, 3.8) if ax is None else ax
    note = "(evaluations; filled: Pareto front)"
    if missing := int((~np.isfinite(means)).sum()):
        note += note_on([f"{missing} of {len(means)} evaluations"])
    labels = f"{AXIS_LABELS[options.x]}\n{note}", series.column.replace("_", " ")
    draw_front(Front(series.x.astype(float), means, names, members), ax, labels)
    return ax
