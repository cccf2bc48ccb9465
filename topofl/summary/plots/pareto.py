"""Final score against cost, with the groups that no other one dominates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from topofl._drawing.charts.fronts import Front, draw_front, front_of
from topofl._drawing.charts.style import wrapped
from topofl.summary.collected import collect
from topofl.summary.plots.bands import AXES, check_cost
from topofl.summary.statistics import statistic_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_pareto"]


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
    note = "(means over runs, 95 % interval; filled: Pareto front)"
    return draw_front(
        Front(costs, scores.mean, names, front, scores.half), ax, (f"{xlabel}\n{note}", heading)
    )
