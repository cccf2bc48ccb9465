"""Lines with bands, of up to 8 groups per panel with labels at their ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing.charts.labels import End, label_lines, line_height
from topofl._drawing.charts.panels import LINES_LIMIT, Panel, grid_of
from topofl._drawing.charts.style import (
    FONT,
    MUTED,
    WIDE,
    checked_axes,
    new_figure,
    set_font,
    style,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Line", "draw_line", "draw_panels"]

WRAP = 18
"""Characters in a line of a label."""

CHARACTER = 0.08
"""Width of a character of a label in inches."""

LINE = 0.16
"""Height of a line of the label of an axis in inches."""

MANY = 5
"""Number of lines in a panel from which bands are lighter, as most of them overlap."""


@dataclass(frozen=True, eq=False)
class Line:
    """A mean and a band around it, NaN where there is none, at positions x, (k,) each."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def draw_line(
    ax: "Axes", line: Line, position: int, label: str = "", *, is_one_of_many: bool = False
) -> None:
    """Draw a line and its band, in the style of a position of the panel; a single point as dot."""
    how = style(position)
    alpha = 0.08 if is_one_of_many else 0.18
    if not (np.isnan(line.low).all() and np.isnan(line.high).all()):
        ax.fill_between(line.x, line.low, line.high, color=how["color"], alpha=alpha, linewidth=0)
    marker = "o" if np.isfinite(line.mean).sum() == 1 else ""
    ax.plot(line.x, line.mean, linewidth=1.5, marker=marker, markersize=4, label=label, **how)


def draw_panels(
    panels: Sequence[Panel],
    lines: Sequence[Line],
    ax: Any,
    names: tuple[str, str],
    *,
    is_accuracy: bool,
) -> "Figure":
    """Draw the line of each group, and return the figure.

    Parameters
    ----------
    panels
        The groups of each panel.
    lines
        The line of each group.
    ax
        The axes to draw on, for a single panel; None: a new figure.
    names
        Labels of the horizontal and of the vertical axis.
    is_accuracy
        Whether the vertical axis ends at 0 and 1.

    Raises
    ------
    TypeError
        If `ax` is not an Axes.
    ValueError
        If `ax` is given and there are several panels, or it is too small.
    """
    if ax is None:
        axes = _axes_for(panels, names[0].count("\n"))
        figure = axes[0].figure
    else:
        ax, figure = checked_axes(ax)
        set_font(ax)
        axes = [ax]
        if len(panels) > 1:
            several = "several groups" if panels[0].context else f"more than {LINES_LIMIT} groups"
            raise ValueError(
                f"`ax` must be None for {several}, which are drawn in panels, got Axes for "
                f"{len(panels)} panels"
            )
    named = any(len(panel.labels) > 1 or len(panel.groups) > 1 for panel in panels)
    order = {name: k for k, name in enumerate(dict.fromkeys(n for p in panels for n in p.labels))}
    ends = [_draw_panel(a, p, lines, order) for a, p in zip(axes, panels, strict=False)]
    for unused in axes[len(panels) :]:
        unused.set_visible(False)
    curves = [np.stack([line.x, y], 1) for line in lines for y in (line.mean, line.low, line.high)]
    curves += [curve for panel in panels for curve in panel.context]
    limits = (0.0, 1.0) if is_accuracy else (-np.inf, np.inf)
    _set_axes(axes[: len(panels)], np.concatenate(curves), names, limits, alone=ax is not None)
    if named:
        label_lines(axes[: len(panels)], ends)
    return figure  # pyright: ignore[reportReturnType]


def _axes_for(panels: Sequence[Panel], notes: int) -> "Sequence[Axes]":
    """Return axes that are large enough for titles and labels, and for notes below them."""
    below = LINE * max(0, notes - 1)
    one_each = not panels[0].labels
    texts = [wrapped(text, WRAP) for panel in panels for text in panel.labels]
    longest = max((len(row) for text in texts for row in text.split("\n")), default=0)
    rows, columns = grid_of(len(panels), 6 if one_each else 3 if longest > 8 else 4)
    if one_each:
        return new_figure(1.9 * columns + 0.6, 1.75 * rows + 0.6 + below, rows, columns)
    highest = max(line_height([wrapped(text, WRAP) for text in panel.labels]) for panel in panels)
    if len(panels) == 1:
        return new_figure(WIDE, max(3.4, highest + 0.2) + 0.95 + below)
    height, width = max(1.9 if longest <= 8 else 2.6, highest + 0.2), 2.56 + CHARACTER * longest
    size = width * columns + 0.6, (height + 0.35) * rows + 0.6 + below
    return new_figure(*size, rows, columns)


def _draw_panel(
    ax: "Axes", panel: Panel, lines: Sequence[Line], order: dict[str, int]
) -> list[End]:
    """Draw the lines of a panel; return their ends."""
    from matplotlib.collections import LineCollection

    if panel.title:
        width = 24 if not panel.labels else 40
        ax.set_title(wrapped(panel.title, width, 2), fontsize=FONT, parse_math=False)
    gray = panel.context
    if not panel.labels and not len(gray):  # the other groups as context
        gray = [np.column_stack([line.x, line.mean]) for line in lines]
    if len(gray):
        ax.add_collection(LineCollection(list(gray), colors=MUTED, linewidths=0.5), autolim=False)
    ends = []
    for place, (k, label) in enumerate(zip(panel.groups, panel.labels or ("",), strict=True)):
        line, position = lines[k], panel.styles[place] if panel.styles else order.get(label, 0)
        draw_line(ax, line, position, label, is_one_of_many=len(panel.groups) >= MANY)
        known = np.flatnonzero(np.isfinite(line.mean))
        last = known[-1] if len(known) else 0
        ends.append(
            End(wrapped(label, WRAP), float(line.x[last]), float(line.mean[last]), position)
        )
    return ends


def _set_axes(
    axes: "Sequence[Axes]",
    points: np.ndarray,
    names: tuple[str, str],
    ends_of_score: tuple[float, float],
    *,
    alone: bool,
) -> None:
    """Set limits, not far beyond the ends of a score, and labels, those of panels once for all."""
    xlabel, ylabel = names
    x, y = (column[np.isfinite(column)] for column in points.T)
    low, high = (float(y.min()), float(y.max())) if len(y) else (0.0, 1.0)
    low, high = np.clip([low, high], *ends_of_score)  # bands of few runs go far beyond
    margin = 0.04 * (high - low) or 0.05 * abs(high) or 0.05
    left, right = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)
    for ax in axes:
        ax.set_ylim(low - margin, high + margin)
        ax.set_xlim(left, right if right > left else left + 1)
        ax.locator_params(axis="x", nbins=5)
    if alone or len(axes) == 1:
        axes[0].set_xlabel(xlabel, fontsize=FONT + 1, parse_math=False)
        axes[0].set_ylabel(ylabel, fontsize=FONT + 1, parse_math=False)
    else:
        axes[0].figure.supxlabel(xlabel, fontsize=FONT + 1, parse_math=False)  # pyright: ignore[reportAttributeAccessIssue]
        axes[0].figure.supylabel(ylabel, fontsize=FONT + 1, parse_math=False)  # pyright: ignore[reportAttributeAccessIssue]
