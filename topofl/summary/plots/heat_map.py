"""Heat map of the final score over two settings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing.charts.style import FONT, checked_axes, luminance, wrapped
from topofl._drawing.figures import empty_figure
from topofl._support.check import shown
from topofl.summary.cells import rounded
from topofl.summary.collected import Collected, collect, sort_key
from topofl.summary.statistics import statistic_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_heat_map"]

CHARACTER = 0.075
"""Width of a character of a label in inches."""


def plot_heat_map(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    over: str | Sequence[str] = (),
    ax: Any = None,
) -> "Figure":
    """Draw the mean final score over two settings: rows and columns of cells with their numbers.

    Numbers are rounded to the digit of their standard error, and cells without runs are empty.

    Parameters
    ----------
    runs, column, over
        As in :func:`topofl.summarize`.
    by
        Two settings: that of the rows and that of the columns.
    ax
        The axes to draw on; None: a new figure, as large as its cells need.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.summarize`; if `by` has not two settings, or `ax` is not an Axes.

    Examples
    --------
    >>> import numpy as np
    >>> from topofl.runs import StoredRun
    >>> def run(alpha, lr, accuracy):
    ...     numbers = {"mean": [accuracy], "worst": [0.1], "worst_tenth": [0.1], "best": [0.9]}
    ...     tables = {"data": {"alpha": alpha}, "algorithm": {"lr": lr}}
    ...     curves = {"round": [9], "bytes": [8], "scores": {"accuracy": numbers}}
    ...     return StoredRun("nowhere", "0", tables, {"curves": curves})
    >>> runs = [run(0.1, 0.5, 0.625), run(1.0, 0.5, 0.75), run(1.0, 0.1, 0.25)]
    >>> figure = plot_heat_map(runs, by=["alpha", "lr"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['0.625', '0.25', '0.75']
    """
    collected = collect(runs, by, column=column, over=over)
    if len(collected.by) != 2:
        raise ValueError(
            "`by` must have two settings, those of the rows and of the columns, got "
            f"{shown(list(collected.by))}"
        )
    final = collected.statistic("mean").last()
    found = statistic_of(final, collected.group_of, len(collected.groups))
    rows, columns = (_levels(collected, place) for place in (0, 1))
    values = np.full((len(rows), len(columns)), np.nan)
    spreads = found.error[found.error > 0]
    error = float(np.median(spreads)) if len(spreads) else np.nan  # one number of digits for all
    texts: dict[tuple[int, int], str] = {}
    for k, (row, column) in enumerate(collected.groups):
        place = rows.index(row), columns.index(column)
        values[place] = found.mean[k]
        texts[place] = rounded(float(found.mean[k]), error)
    names = [wrapped(str(row), 28, 2) for row in rows], [wrapped(str(one), 16) for one in columns]
    ax, figure = _new_axes(texts, *names) if ax is None else checked_axes(ax)
    _draw(ax, values, texts)
    for axis, labels in ((ax.yaxis, names[0]), (ax.xaxis, names[1])):
        axis.set_ticks(range(len(labels)), labels, fontsize=FONT, parse_math=False)
    ax.set_xlabel(collected.labels[1], fontsize=FONT + 1, parse_math=False)
    ax.set_ylabel(collected.labels[0], fontsize=FONT + 1, parse_math=False)
    title = f"{collected.column.replace('_', ' ')}, mean over runs"
    ax.set_title(title, fontsize=FONT + 1, parse_math=False)
    return figure


def _levels(collected: Collected, place: int) -> list[Any]:
    """Return the values of a setting in the order of the groups."""
    found = dict.fromkeys(group[place] for group in collected.groups)
    return list(found) if place == 0 else sorted(found, key=sort_key)


def _new_axes(
    texts: Mapping[tuple[int, int], str], rows: list[str], columns: list[str]
) -> "tuple[Axes, Figure]":
    """Return axes in which no number and no label meets its neighbor."""
    lines = [line for name in columns for line in name.split("\n")]
    widest = max(map(len, [*lines, *texts.values()]))
    labels = max(len(line) for name in rows for line in name.split("\n"))
    width = max(0.55, CHARACTER * widest + 0.12)
    size = (width * len(columns) + CHARACTER * labels + 1.0, 0.34 * len(rows) + 1.5)
    figure = empty_figure(max(3.2, size[0]), size[1])
    return figure.subplots(), figure


def _draw(ax: "Axes", values: np.ndarray, texts: Mapping[tuple[int, int], str]) -> None:
    """Draw cells with their numbers, dark on light and light on dark."""
    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    image = ax.imshow(values, cmap="cividis", aspect="auto", vmin=low, vmax=high)
    for (row, column), text in texts.items():
        color = _readable_on(image.to_rgba(values[row, column]))
        ax.text(column, row, text, color=color, fontsize=FONT, ha="center", va="center")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _readable_on(color: Any) -> str:
    """Return black or white, whichever has the higher contrast to a color by the rule of WCAG."""
    brightness = luminance(np.asarray(color[:3], dtype=float))
    return "black" if (brightness + 0.05) ** 2 > 1.05 * 0.05 else "white"
