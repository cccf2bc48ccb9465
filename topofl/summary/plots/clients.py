"""Final scores of single clients: violins, and curves sorted from the worst to the best client."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._support.check import check_choice
from topofl.summary.collected import Collected, collect
from topofl.summary.plots.bands import BANDS
from topofl.summary.plots.lines import draw_lines, line_of
from topofl.summary.plots.style import (
    COLORS,
    FONT,
    checked_axes,
    new_figure,
    wrapped,
)
from topofl.summary.verdicts import CONFIDENCE, t_quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_clients", "plot_violins"]

ROWS_LIMIT = 24
"""Most violins below each other."""

GRID = 101
"""Positions of a sorted curve if runs have different numbers of clients."""


def plot_clients(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    score: str | None = None,
    over: str | Sequence[str] = (),
    band: str = "interval",
    ax: Any = None,
) -> "Figure":
    """Draw the final scores of clients from the worst to the best, averaged over runs by rank.

    Panels and labels are as in :func:`topofl.summary.plot_bands`. The histories of all runs are
    read.

    Parameters
    ----------
    runs, by, score, over
        As in :func:`topofl.summarize`.
    band, ax
        As in :func:`topofl.summary.plot_bands`.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.summary.plot_bands`; if a run has no client with a score.
    OSError
        If a history cannot be read.

    Examples
    --------
    >>> import numpy as np, topofl
    >>> def run(accuracies, seed):
    ...     scores = {"round": np.array([0]), "accuracy": np.array([accuracies])}
    ...     sent = {"messages": np.zeros(0), "bytes": np.zeros(0)}
    ...     return topofl.History({"seed": seed}, sent, scores, np.zeros((0, 3)))
    >>> figure = plot_clients({"ring": [run([0.9, 0.5, 0.7], 0), run([0.6, 0.8, 0.9], 1)]})
    >>> figure.axes[0].lines[0].get_ydata().round(2).tolist()
    [0.55, 0.75, 0.9]
    """
    check_choice("band", band, BANDS)
    collected = collect(runs, by, score=score, over=over)
    lines = []
    for scores in _final_scores(collected):
        ranked = [np.sort(row)[:: -1 if collected.low_is_good else 1] for row in scores]
        if len({len(row) for row in ranked}) == 1:
            x, table = _middles(len(ranked[0])), np.stack(ranked)
        else:
            x = np.linspace(0, 1, GRID)
            table = np.stack([np.interp(x, _middles(len(row)), row) for row in ranked])
        lines.append(line_of(100 * x, table, partial(t_quantile, CONFIDENCE), band))
    note = f"clients from the worst to the best, %\n(mean over runs; {BANDS[band]})"
    return draw_lines(collected, lines, ax, note, collected.score.replace("_", " "))


def _middles(n: int) -> np.ndarray:
    return (np.arange(n) + 0.5) / n


def _final_scores(collected: Collected) -> list[list[np.ndarray]]:
    """Return per group and run the final scores of the clients that have one."""
    found: list[list[np.ndarray]] = [[] for _ in collected.groups]
    for entry, group in zip(collected.entries, collected.group_of.tolist(), strict=True):
        values = entry.load().last(collected.score)
        values = values[np.isfinite(values)]
        if not len(values):
            raise ValueError(
                f"`runs` must have clients with a final {collected.score}, {entry.name} has none; "
                "leave it out"
            )
        found[group].append(values)
    return found


def plot_violins(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    score: str | None = None,
    over: str | Sequence[str] = (),
    ax: Any = None,
) -> "Figure":
    """Draw the distribution of final scores over all clients and runs of each group.

    Each violin is a Gaussian kernel density estimate (bandwidth by Scott's rule) between the lowest
    and the highest score, with the median and the mean of the worst tenth of all clients. The
    histories of all runs are read.

    Parameters
    ----------
    runs, by, score, over
        As in :func:`topofl.summarize`.
    ax
        The axes to draw on, for up to 24 groups; None: a new figure.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.summarize`; if a run has no client with a score, or `ax` is not an Axes or
        given for more than 24 groups.
    OSError
        If a history cannot be read.

    References
    ----------
    Scott, "Multivariate Density Estimation" (Wiley, 1992), section 6.

    Examples
    --------
    >>> import numpy as np, topofl
    >>> def run(accuracies, seed):
    ...     scores = {"round": np.array([0]), "accuracy": np.array([accuracies])}
    ...     sent = {"messages": np.zeros(0), "bytes": np.zeros(0)}
    ...     return topofl.History({"seed": seed}, sent, scores, np.zeros((0, 3)))
    >>> figure = plot_violins({"ring": run([0.9, 0.5, 0.7], 0), "star": run([0.6, 0.8, 0.9], 1)})
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['ring', 'star']
    """
    collected = collect(runs, by, score=score, over=over)
    scores = [np.concatenate(rows) for rows in _final_scores(collected)]
    names = [wrapped(collected.name_of(k), 30, 2) for k in range(len(scores))]
    columns = -(-len(scores) // ROWS_LIMIT)
    rows = -(-len(scores) // columns)
    if ax is None:
        axes = [new_figure(5.6, 0.36 * rows + 1.0)[0]] if columns == 1 else _columns(columns, rows)
        figure = axes[0].figure
    else:
        ax, figure = checked_axes(ax)
        axes = [ax]
        if columns > 1:
            raise ValueError(
                f"`ax` must be None for more than {ROWS_LIMIT} groups, which are drawn in columns, "
                f"got Axes for {len(scores)} groups"
            )
    colors = _colors(collected)
    for column, own in enumerate(axes):
        part = range(column * rows, min(len(scores), (column + 1) * rows))
        for y, k in enumerate(part):
            _draw_violin(own, scores[k], y, colors[k], collected.low_is_good)
        own.set_yticks(range(len(part)), [names[k] for k in part], parse_math=False)
        own.set_ylim(rows - 0.5, -0.5)
    axes[-1].set_xlabel(
        f"{collected.score.replace('_', ' ')} of clients\n(line: median; point: worst tenth)",
        fontsize=FONT + 1,
        parse_math=False,
    )
    return figure  # pyright: ignore[reportReturnType]


def _columns(columns: int, rows: int) -> "list[Axes]":
    """Return axes next to each other, each with labels of its own."""
    from matplotlib.figure import Figure

    from topofl.summary.plots.style import set_font

    figure = Figure(figsize=(4.6 * columns, 0.36 * rows + 1.0), layout="constrained")
    axes = list(figure.subplots(1, columns, sharex=True))
    for ax in axes:
        set_font(ax)
    return axes


def _colors(collected: Collected) -> list[str]:
    """Return a color per group: that of its value of the first setting, if these are few."""
    firsts = list(dict.fromkeys(group[:1] for group in collected.groups))
    if len(firsts) > len(COLORS):
        return [COLORS[0]] * len(collected.groups)
    return [COLORS[firsts.index(group[:1])] for group in collected.groups]


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
