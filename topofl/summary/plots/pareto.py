"""Final score against cost, with the groups that no other one dominates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl.summary.collected import collect
from topofl.summary.plots.bands import AXES, check_cost
from topofl.summary.plots.labels import label_points
from topofl.summary.plots.style import COLORS, FONT, MUTED, checked_axes, new_figure, wrapped
from topofl.summary.statistics import Statistic, statistic_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["front_of", "plot_pareto"]

LOG_FROM = 30
"""Ratio of the highest to the lowest cost from which the axis of costs is logarithmic."""


def plot_pareto(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    score: str | None = None,
    over: str | Sequence[str] = (),
    x: str = "megabytes",
    ax: Any = None,
) -> "Figure":
    """Draw the final score of each group against its cost, and the Pareto front.

    Points are means over runs, with 95 % intervals of the score. On the front are the groups for
    which no other one is at least as good in score and cost, and better in one of them, by these
    means; they are filled, and joined by a step line.

    Parameters
    ----------
    runs, by, score, over
        As in :func:`topofl.summarize`.
    x
        The cost of the whole run: ``"megabytes"`` (10^6 bytes sent by all nodes), simulated
        ``"seconds"`` or ``"rounds"``.
    ax
        The axes to draw on; None: a new figure, as large as its labels need.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.summary.plot_bands`.

    Examples
    --------
    >>> import numpy as np, topofl
    >>> def run(accuracy, sent):
    ...     scores = {"round": np.array([1]), "accuracy": np.array([[accuracy] * 2])}
    ...     sent = {"messages": np.array([2]), "bytes": np.array([sent])}
    ...     return topofl.History({}, sent, scores, np.zeros((1, 2)))
    >>> runs = {"ring": run(0.6, 1e6), "star": run(0.5, 2e6), "complete": run(0.8, 9e6)}
    >>> figure = plot_pareto(runs)
    >>> sorted(text.get_text() for text in figure.axes[0].texts)
    ['complete', 'ring', 'star']
    """
    collected = collect(runs, by, score=score, over=over)
    column, unit, xlabel = AXES[check_cost(collected, x)]
    count = len(collected.groups)
    costs = statistic_of(collected.cost(column).last() / unit, collected.group_of, count).mean
    scores = statistic_of(collected.statistic("mean").last(), collected.group_of, count)
    names = [wrapped(collected.name_of(k), 22) for k in range(count)]
    front = front_of(costs, scores.mean, collected.low_is_good)
    heading = collected.score.replace("_", " ")
    for scale in (1.0,) if ax is not None else (1.0, 1.25, 1.6, 2.0, 2.5, 3.2):
        if ax is None:
            own = new_figure(6.4 * scale, max(4.2, 0.13 * count + 1) * scale)[0]
            figure = own.figure
        else:
            own, figure = checked_axes(ax)
        if _draw(own, costs, scores, names, front, (xlabel, heading)):
            return figure  # pyright: ignore[reportReturnType]
    raise ValueError(
        f"`ax` must have room for {count} labels, got Axes that are too small; leave it out, or "
        "take fewer groups"
    )


def front_of(costs: np.ndarray, scores: np.ndarray, low_is_good: bool) -> np.ndarray:
    """Return the numbers of the groups on the Pareto front, by ascending cost.

    Examples
    --------
    >>> front_of(np.array([1.0, 2.0, 3.0, 3.0]), np.array([0.6, 0.5, 0.8, 0.8]), False).tolist()
    [0, 2, 3]
    """
    good = np.where(np.isnan(scores), np.inf, scores if low_is_good else -scores)
    found: list[int] = []
    last = (np.inf, np.inf)
    for k in np.lexsort((good, costs)).tolist():
        if good[k] < last[1] or (costs[k], good[k]) == last:  # of equal groups, none is dominated
            found.append(k)
            last = (costs[k], good[k])
    return np.array(found, dtype=np.int64)


def _draw(
    ax: "Axes",
    costs: np.ndarray,
    scores: Statistic,
    names: Sequence[str],
    front: np.ndarray,
    labels: tuple[str, str],
) -> bool:
    """Draw points, front and labels; return whether all labels had room."""
    known = np.flatnonzero(np.isfinite(costs) & np.isfinite(scores.mean))
    half = np.nan_to_num(scores.half)
    if len(front):
        ax.step(costs[front], scores.mean[front], where="post", color=MUTED, linewidth=1, zorder=1)
    ax.errorbar(
        costs[known],
        scores.mean[known],
        half[known],
        fmt="none",
        ecolor=MUTED,
        elinewidth=0.8,
        zorder=1,
    )
    for k in known.tolist():
        fill = COLORS[0] if k in front else "white"
        ax.plot(costs[k], scores.mean[k], "o", mfc=fill, mec=COLORS[0], markersize=5)
    positive = costs[known][costs[known] > 0]
    if len(positive) == len(known) and len(known) and positive.max() > LOG_FROM * positive.min():
        ax.set_xscale("log")
    ax.margins(0.12, 0.08)
    ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())  # lines to labels must not change them
    note = "(means over runs, 95 % interval; filled: Pareto front)"
    ax.set_xlabel(f"{labels[0]}\n{note}", fontsize=FONT + 1)
    ax.set_ylabel(labels[1], fontsize=FONT + 1, parse_math=False)
    order: list[int] = [*front.tolist(), *(k for k in known.tolist() if k not in front)]
    order = [int(k) for k in order if k in known]
    points = [(float(costs[k]), float(scores.mean[k])) for k in order]
    return not points or label_points(ax, points, [names[k] for k in order]) is not None
