"""Final score against cost, with the groups that no other one dominates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing.charts.fronts import (
    Front,
    draw_front,
    front_of,
    labels_of,
    note_on_labels,
)
from topofl._drawing.charts.style import wrapped
from topofl.summary.collected import collect
from topofl.summary.plots.band import AXES, check_cost
from topofl.summary.plots.lines import (
    band_of,
    check_band,
    limits_of,
    line_of,
    note_on_missing,
    note_on_runs,
)
from topofl.summary.statistics import statistic_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_pareto"]


def plot_pareto(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    over: str | Sequence[str] = (),
    x: str = "megabytes",
    band: str | None = None,
    ax: Any = None,
) -> "Figure":
    """Draw the final score of each group against its cost, and the Pareto front.

    Points are means over the runs with a finite final score, with a bar for the score. On the front
    are the groups for which no other one is at least as good in score and cost, and better in one
    of them, by these means; they are filled, and joined by a step line. Of more than 16 groups,
    only those on the front are labeled; the label of the horizontal axis says how many are not, and
    which runs have no finite final score.

    Parameters
    ----------
    runs, by, column, over
        As in :func:`topofl.summarize`.
    x
        The cost of the whole run: ``"megabytes"`` (10^6 bytes sent by all nodes), simulated
        ``"seconds"`` or ``"rounds"``.
    band
        What bars show: as in :func:`topofl.summary.plot_band`.
    ax
        The axes to draw on; None: a new figure, as large as its labels need.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.summary.plot_band`.

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
    check_band(band)
    collected = collect(runs, by, column=column, over=over)
    recorded, unit, xlabel = AXES[check_cost(collected, x)]
    groups = range(len(collected.groups))
    final = collected.statistic("mean").last()
    cost = np.where(np.isfinite(final), collected.cost(recorded).last() / unit, np.nan)
    costs = statistic_of(cost, collected.group_of, len(groups)).mean
    rows = [final[collected.group_of == k] for k in groups]
    numbers = [int(np.isfinite(row).sum()) for row in rows]
    band = band_of(band, numbers)
    limits = limits_of(collected.column)
    lines = [
        line_of(costs[[k]], row[np.isfinite(row), None], band, limits) for k, row in enumerate(rows)
    ]
    means, low, high = (
        np.concatenate(ends) for ends in zip(*((p.mean, p.low, p.high) for p in lines), strict=True)
    )
    members = front_of(costs, means, collected.low_is_good)
    known = np.isfinite(means) & np.isfinite(costs)
    names = [wrapped(collected.name_of(k), 22) for k in groups]
    names = labels_of(names, members, known)
    note = f"\n({note_on_runs(numbers, band, 'bar: ')}; filled: Pareto front)"
    note += note_on_labels(names, known) + note_on_missing(collected, numbers)
    labels = f"{xlabel}{note}", collected.column.replace("_", " ")
    return draw_front(Front(costs, means, names, members, np.stack([low, high])), ax, labels)
