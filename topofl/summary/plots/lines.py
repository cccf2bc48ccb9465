"""Lines with bands, of up to 8 groups per panel with labels at their ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl.summary.collected import Collected
from topofl.summary.plots.labels import label_lines, line_height
from topofl.summary.plots.panels import LINES_LIMIT, Panel, grid_of, panels_of
from topofl.summary.plots.style import (
    FONT,
    MUTED,
    checked_axes,
    new_figure,
    style,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Line", "draw_lines", "line_of"]

WRAP = 18
"""Characters in a line of a label."""


@dataclass(frozen=True, eq=False)
class Line:
    """A mean and a band around it, NaN where there is none, at positions x, (k,) each."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def line_of(x: np.ndarray, table: np.ndarray, quantiles: Any, band: str) -> Line:
    """Return the mean of curves (runs, k), NaN where a run has none, and its band.

    Parameters
    ----------
    x
        (k,) positions.
    table
        (runs, k) curves.
    quantiles
        n -> half-width of the interval for n runs in standard errors.
    band
        ``"interval"`` or ``"range"``, from the lowest to the highest run.
    """
    known = ~np.isnan(table)
    n = known.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, table, 0).sum(0) / n
        if band == "range":
            low = np.where(known, table, np.inf).min(0)
            high = np.where(known, table, -np.inf).max(0)
        else:
            squares = np.where(known, (table - mean) ** 2, 0).sum(0)
            half = np.array([quantiles(k) if k > 1 else np.nan for k in n.tolist()])
            half = half * np.sqrt(squares / (n - 1) / n)
            low, high = mean - half, mean + half
    return Line(x, mean, np.where(n > 1, low, np.nan), np.where(n > 1, high, np.nan))


def draw_lines(
    collected: Collected, lines: Sequence[Line], ax: Any, xlabel: str, ylabel: str
) -> "Figure":
    """Draw the line of each group, and return the figure.

    Raises
    ------
    ValueError
        If `ax` is given and there are more than 8 groups, or it is too small.
    """
    panels = panels_of(collected)
    if ax is None:
        axes = _axes_for(panels)
        figure = axes[0].figure
    else:
        ax, figure = checked_axes(ax)
        axes = [ax]
        if len(panels) > 1:
            raise ValueError(
                f"`ax` must be None for more than {LINES_LIMIT} groups, which are drawn in panels, "
                f"got Axes for {len(lines)} groups"
            )
    named = len(panels[0].labels) > 1 or len(panels[0].groups) > 1
    order = {name: k for k, name in enumerate(dict.fromkeys(n for p in panels for n in p.labels))}
    ends = [_draw_panel(a, p, lines, order) for a, p in zip(axes, panels, strict=False)]
    for unused in axes[len(panels) :]:
        unused.set_visible(False)
    ends_of_score = (0.0, 1.0) if collected.score.startswith("accuracy") else (-np.inf, np.inf)
    _set_axes(axes[: len(panels)], lines, (xlabel, ylabel), ends_of_score, alone=ax is not None)
    if named:
        label_lines(axes[: len(panels)], ends)
    return figure  # pyright: ignore[reportReturnType]


def _axes_for(panels: Sequence[Panel]) -> "Sequence[Axes]":
    """Return axes that are large enough for the titles and labels of panels."""
    one_each = not panels[0].labels
    rows, columns = grid_of(len(panels), 6 if one_each else 3)
    if one_each:
        return new_figure(1.9 * columns + 0.6, 1.75 * rows + 0.6, rows, columns)
    highest = max(line_height([wrapped(text, WRAP) for text in panel.labels]) for panel in panels)
    height = max(2.6 if len(panels) > 1 else 3.4, highest + 0.2)
    width = 4.0 if len(panels) > 1 else 5.2
    return new_figure(width * columns + 0.6, (height + 0.35) * rows + 0.6, rows, columns)


def _draw_panel(
    ax: "Axes", panel: Panel, lines: Sequence[Line], order: dict[str, int]
) -> list[tuple[str, float, float, str]]:
    """Draw the lines of a panel; return label, x, y and color of their ends."""
    from matplotlib.collections import LineCollection

    if panel.title:
        width = 24 if not panel.labels else 40
        ax.set_title(wrapped(panel.title, width, 2), fontsize=FONT, parse_math=False)
    if not panel.labels:  # the other groups as context
        others = [np.column_stack([line.x, line.mean]) for line in lines]
        ax.add_collection(LineCollection(others, colors=MUTED, linewidths=0.5))
    ends = []
    for k, label in zip(panel.groups, panel.labels or ("",), strict=True):
        line, how = lines[k], style(order.get(label, 0))
        ax.fill_between(line.x, line.low, line.high, color=how["color"], alpha=0.18, linewidth=0)
        ax.plot(line.x, line.mean, linewidth=1.5, **how)
        known = np.flatnonzero(~np.isnan(line.mean))
        last = known[-1] if len(known) else 0
        ends.append((wrapped(label, WRAP), line.x[last], line.mean[last], how["color"]))
    return ends


def _set_axes(
    axes: "Sequence[Axes]",
    lines: Sequence[Line],
    names: tuple[str, str],
    ends_of_score: tuple[float, float],
    *,
    alone: bool,
) -> None:
    """Set limits, not far beyond the ends of a score, and labels, those of panels once for all."""
    xlabel, ylabel = names
    stacked = np.concatenate([np.concatenate([a.mean, a.low, a.high]) for a in lines])
    finite = stacked[np.isfinite(stacked)]
    x = np.concatenate([line.x for line in lines])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    low, high = np.clip([low, high], *ends_of_score)  # bands of few runs go far beyond
    margin = 0.04 * (high - low) or 0.05 * abs(high) or 0.05
    left, right = float(x.min()), float(x.max())
    for ax in axes:
        ax.set_ylim(low - margin, high + margin)
        ax.set_xlim(left, right if right > left else left + 1)
        ax.locator_params(axis="x", nbins=5)
    if alone or len(axes) == 1:
        axes[0].set_xlabel(xlabel, fontsize=FONT + 1)
        axes[0].set_ylabel(ylabel, fontsize=FONT + 1, parse_math=False)
    else:
        axes[0].figure.supxlabel(xlabel, fontsize=FONT + 1)  # pyright: ignore[reportAttributeAccessIssue]
        axes[0].figure.supylabel(ylabel, fontsize=FONT + 1, parse_math=False)  # pyright: ignore[reportAttributeAccessIssue]
