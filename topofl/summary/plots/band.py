"""Learning curves: the mean over the runs of each group, and a band."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._support.check import check_choice
from topofl.history.plots import AXIS_LABELS
from topofl.summary.collected import Collected, collect
from topofl.summary.plots.lines import (
    band_of,
    check_band,
    draw_lines,
    limits_of,
    line_of,
    note_on_missing,
    note_on_runs,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AXES", "check_cost", "plot_band"]

AXES = {
    "rounds": ("round", 1.0, AXIS_LABELS["rounds"]),
    "megabytes": ("bytes", 1e6, AXIS_LABELS["megabytes"]),
    "seconds": ("seconds", 1.0, AXIS_LABELS["seconds"]),
}
"""Column of the curves, its unit, and the label of the axis."""

GRID_LIMIT = 400
"""Most positions of a curve that runs were evaluated at; more are replaced by a grid."""


def plot_band(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    over: str | Sequence[str] = (),
    x: str = "rounds",
    band: str | None = None,
    ax: Any = None,
) -> "Figure":
    """Draw the learning curve of each group of runs: mean over runs, and a band.

    Up to 8 groups share one axes, with labels at the ends of lines. More are drawn in panels, one
    per value of a setting or, if that leaves more than 8 groups in one, one panel per group with
    the others in gray. The label of the horizontal axis says what bands are, and which runs are
    left out since they end without a finite score. An interval is left out where some runs of a
    group have no value and fewer than 3 have one.

    Parameters
    ----------
    runs, by, column, over
        As in :func:`topofl.summarize`.
    x
        ``"rounds"``, ``"megabytes"`` (10^6 bytes sent by all nodes) or simulated ``"seconds"``.
        Between evaluations, curves are interpolated linearly.
    band
        ``"interval"``: the 95 % interval of the mean by Student's t, for accuracies not beyond 0
        and 1; ``"range"``: from the lowest to the highest run; None: the interval or, if a mean is
        over less than five runs, the range, since intervals for so few are wide. Those for two
        runs are 12.7 standard errors wide on either side.
    ax
        The axes to draw on, for up to 8 groups; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, to show or to save.

    Raises
    ------
    ValueError
        As :func:`topofl.summarize`; if `x` or `band` is none of these, runs did not record `x`, or
        `ax` is given for more than 8 groups or too small for their labels.
    TypeError
        If `ax` is not an Axes.

    Examples
    --------
    >>> import numpy as np, topofl
    >>> def run(final, seed):
    ...     scores = {"round": np.array([0, 1]), "accuracy": np.array([[0.1] * 4, [final] * 4])}
    ...     sent = {"messages": np.array([8]), "bytes": np.array([800])}
    ...     return topofl.History({"seed": seed}, sent, scores, np.zeros((1, 4)))
    >>> runs = {"ring": [run(0.6, 0), run(0.62, 1)], "torus": [run(0.7, 0), run(0.69, 1)]}
    >>> figure = plot_band(runs)
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['ring', 'torus']
    """
    check_band(band)
    collected = collect(runs, by, column=column, over=over)
    recorded, unit, xlabel = AXES[check_cost(collected, x)]
    curves, places = collected.statistic("mean"), collected.cost(recorded)
    finite = np.isfinite(curves.last())  # a diverged run would cut the means of the others
    groups = range(len(collected.groups))
    members = [np.flatnonzero((collected.group_of == k) & finite) for k in groups]
    tables = [_table([(places[r] / unit, curves[r]) for r in own.tolist()]) for own in members]
    ends = [{float(places[r][-1]) for r in own.tolist()} for own in members]
    until = " until the first one ends" if any(len(own) > 1 for own in ends) else ""
    numbers = [len(table) for _, table in tables]
    band = band_of(band, numbers)
    note = f"\n({note_on_runs(numbers, band, until=until)})"
    note += note_on_missing(collected, numbers)
    lines = [line_of(x, table, band, limits_of(collected.column)) for x, table in tables]
    return draw_lines(collected, lines, ax, f"{xlabel}{note}", _name(collected.column))


def check_cost(collected: Collected, x: str) -> str:
    """Return the name of a cost, or raise ``ValueError`` if it is unknown or was not recorded."""
    check_choice("x", x, AXES)
    without = [entry.name for entry in collected.entries if not entry.curves.get(AXES[x][0])]
    if without:
        raise ValueError(
            f"`x` must be recorded by all runs, {len(without)} of {len(collected.entries)} have no "
            f"{x} ({', '.join(without[:3])}{', ...' if len(without) > 3 else ''}); take 'rounds'"
        )
    return x


def _name(score: str) -> str:
    return score.replace("_", " ")


def _table(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (k,) and curves (runs, k) from x and y of each, up to where the first ends.

    Beyond that, a mean would be over those runs only that take longer or send more. Curves end with
    finite numbers; others within them are left out.
    """
    if not curves:
        return np.full(1, np.nan), np.full((0, 1), np.nan)
    known = [(x[np.isfinite(y)], y[np.isfinite(y)]) for x, y in curves]
    x = np.unique(np.concatenate([x for x, _ in known]))
    x = x[x <= min(own[-1] for own, _ in known)]
    if len(x) > GRID_LIMIT:
        x = np.linspace(x[0], x[-1], GRID_LIMIT)
    rows = [np.interp(x, at, y, left=np.nan, right=np.nan) for at, y in known]
    return x, np.stack(rows)
