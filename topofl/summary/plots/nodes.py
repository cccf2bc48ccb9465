"""Final scores of single nodes: violins, and curves sorted from the worst to the best node."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing.charts.ranks import ranked_curves
from topofl._drawing.charts.style import COLORS
from topofl._drawing.charts.violins import draw_violins
from topofl.history.plots.notes import note_on
from topofl.summary.collected import Collected, collect
from topofl.summary.plots.lines import (
    band_of,
    check_band,
    draw_lines,
    limits_of,
    line_of,
    note_on_runs,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_nodes", "plot_violin"]


def plot_nodes(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    over: str | Sequence[str] = (),
    band: str | None = None,
    ax: Any = None,
) -> "Figure":
    """Draw the final scores of nodes from the worst to the best, averaged over runs by rank.

    Panels and labels are as in :func:`topofl.summary.plot_band`. The histories of all runs are
    read. Nodes whose score is NaN or infinite are left out and counted in the label of the
    horizontal axis.

    Parameters
    ----------
    runs, by, column, over
        As in :func:`topofl.summarize`.
    band, ax
        As in :func:`topofl.summary.plot_band`.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.summary.plot_band`; if a run has no node with a score.
    OSError
        If a history cannot be read.

    Examples
    --------
    >>> import numpy as np, topofl
    >>> def run(accuracies, seed):
    ...     scores = {"round": np.array([0]), "accuracy": np.array([accuracies])}
    ...     sent = {"messages": np.zeros(0), "bytes": np.zeros(0)}
    ...     return topofl.History({"seed": seed}, sent, scores, np.zeros((0, 3)))
    >>> figure = plot_nodes({"ring": [run([0.9, 0.5, 0.7], 0), run([0.6, 0.8, 0.9], 1)]})
    >>> figure.axes[0].lines[0].get_ydata().round(2).tolist()
    [0.55, 0.75, 0.9]
    """
    check_band(band)
    collected = collect(runs, by, column=column, over=over)
    scores, missing = _final_scores(collected)
    numbers = [len(rows) for rows in scores]
    band = band_of(band, numbers)
    limits, low_is_good = limits_of(collected.column), collected.low_is_good
    lines = [line_of(*ranked_curves(r, low_is_good=low_is_good), band, limits) for r in scores]
    note = f"nodes from the worst to the best, %\n({note_on_runs(numbers, band)}){missing}"
    return draw_lines(collected, lines, ax, note, collected.column.replace("_", " "))


def _final_scores(collected: Collected) -> tuple[list[list[np.ndarray]], str]:
    """Return per group and run the finite final scores of nodes, and a note on the others."""
    found: list[list[np.ndarray]] = [[] for _ in collected.groups]
    totals = [0] * len(found)
    for entry, group in zip(collected.entries, collected.group_of.tolist(), strict=True):
        values = entry.load().last(collected.column)
        totals[group] += len(values)
        values = values[np.isfinite(values)]
        if not len(values):
            raise ValueError(
                f"`runs` must have nodes with a final {collected.column}, {entry.name} has none; "
                "leave it out"
            )
        found[group].append(values)
    missing = [total - sum(map(len, rows)) for total, rows in zip(totals, found, strict=True)]
    items = [
        f"{count} of {totals[k]} nodes of {collected.name_of(k)}"
        for k, count in enumerate(missing)
        if count
    ]
    return found, note_on(items)


def plot_violin(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    over: str | Sequence[str] = (),
    ax: Any = None,
) -> "Figure":
    """Draw the distribution of final scores over all nodes and runs of each group.

    Each violin is a Gaussian kernel density estimate (bandwidth by Scott's rule) between the lowest
    and the highest score, with the median and the mean of the worst tenth of all nodes. The
    histories of all runs are read. Nodes whose score is NaN or infinite are left out and counted
    in the label of the horizontal axis.

    Parameters
    ----------
    runs, by, column, over
        As in :func:`topofl.summarize`.
    ax
        The axes to draw on, for up to 24 groups; None: a new figure.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.summarize`; if a run has no node with a score, or `ax` is not an Axes or
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
    >>> figure = plot_violin({"ring": run([0.9, 0.5, 0.7], 0), "star": run([0.6, 0.8, 0.9], 1)})
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['ring', 'star']
    """
    collected = collect(runs, by, column=column, over=over)
    found, missing = _final_scores(collected)
    scores = [np.concatenate(rows) for rows in found]
    return draw_violins(
        [collected.name_of(k) for k in range(len(scores))],
        scores,
        _colors(collected),
        ax,
        f"{collected.column.replace('_', ' ')} of nodes{missing}",
        low_is_good=collected.low_is_good,
    )


def _colors(collected: Collected) -> list[str]:
    """Return a color per group: that of its value of the first setting, if these are few."""
    firsts = list(dict.fromkeys(group[:1] for group in collected.groups))
    if len(firsts) > len(COLORS):
        return [COLORS[0]] * len(collected.groups)
    return [COLORS[firsts.index(group[:1])] for group in collected.groups]
