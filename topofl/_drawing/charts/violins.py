"""Violins: the distribution of scores over nodes, one row per group."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing.charts.style import FONT, WIDE, checked_axes, set_font, wrapped
from topofl._drawing.figures import empty_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["ROWS_LIMIT", "draw_violins", "height_of"]

ROWS_LIMIT = 24
"""Largest number of violins in a column."""

LINE = 0.16
"""Height of a line of the label of an axis in inches."""


def draw_violins(
    names: Sequence[str],
    scores: Sequence[np.ndarray],
    colors: Sequence[str],
    ax: Any,
    xlabel: str,
    *,
    low_is_good: bool,
) -> "Figure":
    """Draw a violin per group, from the first one at the top, and return the figure.

    Each is a Gaussian kernel density estimate (bandwidth by Scott's rule) between the lowest and
    the highest score, with a line at the median and a point at the mean of the worst tenth.

    Parameters
    ----------
    names
        Name of each group.
    scores
        Finite scores of each group, at least one.
    colors
        Color of each group.
    ax
        The axes to draw on; None: a new figure, in columns for more than 24 groups.
    xlabel
        What the scores are.
    low_is_good
        Whether the worst scores are the largest.

    Raises
    ------
    TypeError
        If `ax` is not an Axes.
    ValueError
        If `ax` is given for more than 24 groups.
    """
    names = [wrapped(name, 30, 2) for name in names]
    columns = -(-len(scores) // ROWS_LIMIT)
    rows = -(-len(scores) // columns)
    if ax is None:
        axes = _columns(columns, height_of(rows, xlabel))
        figure = axes[0].figure
    else:
        ax, figure = checked_axes(ax)
        set_font(ax)
        axes = [ax]
        if columns > 1:
            raise ValueError(
                f"`ax` must be None for more than {ROWS_LIMIT} groups, which are drawn in columns, "
                f"got Axes for {len(scores)} groups"
            )
    for column, own in enumerate(axes):
        part = range(column * rows, min(len(scores), (column + 1) * rows))
        for y, k in enumerate(part):
            _draw_violin(own, scores[k], y, colors[k], low_is_good)
        own.set_yticks(range(len(part)), [names[k] for k in part], parse_math=False)
        own.set_ylim(rows - 0.5, -0.5)
    note = "(line: median; point: worst tenth)"
    axes[-1].set_xlabel(f"{xlabel}\n{note}", fontsize=FONT + 1, parse_math=False)
    return figure  # pyright: ignore[reportReturnType]


def height_of(rows: int, xlabel: str) -> float:
    """Return the height of a figure in inches with some violins in a column."""
    return 0.36 * rows + 1.0 + LINE * xlabel.count("\n")


def _columns(columns: int, height: float) -> "list[Axes]":
    """Return axes next to each other, each with labels of its own."""
    width = WIDE if columns == 1 else 4.6 * columns
    figure = empty_figure(width, height)
    axes = list(figure.subplots(1, columns, sharex=True, squeeze=False)[0])
    for ax in axes:
        set_font(ax)
    return axes


def _draw_violin(ax: "Axes", values: np.ndarray, y: int, color: str, low_is_good: bool) -> None:
    """Draw a density around a height, with median and worst tenth."""
    x, density = _density(values)
    ax.fill_between(x, y - 0.42 * density, y + 0.42 * density, color=color, alpha=0.35, lw=0)
    ranked = np.sort(values)[:: -1 if low_is_good else 1]
    ax.plot([np.median(values)] * 2, [y - 0.3, y + 0.3], color=color, linewidth=1.6)
    worst = float(ranked[: max(1, len(ranked) // 10)].mean())
    ax.plot([values.min(), values.max()], [y, y], color=color, linewidth=0.6)
    ax.plot([worst], [y], "o", color=color, markersize=3.5)


def _density(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions, and the kernel density there with a maximum of 1."""
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    if std <= 1e-12 * max(1.0, float(np.abs(values).max())):
        return np.full(2, values.mean()), np.ones(2)
    width = std * len(values) ** -0.2
    x = np.linspace(values.min(), values.max(), 128)
    bins = np.linspace(values.min(), values.max(), 513)
    counts = np.histogram(values, bins)[0]
    middles = (bins[1:] + bins[:-1]) / 2
    density = np.exp(-0.5 * ((x[:, None] - middles) / width) ** 2) @ counts
    return x, density / density.max()
