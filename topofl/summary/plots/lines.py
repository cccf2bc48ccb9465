"""Lines with bands over the runs of groups, and what is said of them below a plot."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing.charts.lines import Line, draw_panels
from topofl._support.check import check_choice
from topofl.history.plots.notes import note_on
from topofl.summary.collected import Collected
from topofl.summary.plots.panels import panels_of
from topofl.summary.verdicts import CONFIDENCE, t_quantile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "BANDS",
    "band_of",
    "check_band",
    "draw_lines",
    "limits_of",
    "line_of",
    "note_on_missing",
    "note_on_runs",
]

BANDS = {
    "interval": f"{100 * CONFIDENCE:g} % interval of the mean",
    "range": "lowest to highest run",
}
"""Kinds of bands over runs, and what is said of them."""

FEWEST = 3
"""Fewest values for an interval where other runs have none; for 2, it is 12.7 standard errors."""

FEW_RUNS = 5
"""Means over fewer runs than this have bands from the lowest to the highest run, unless asked."""


def check_band(band: Any) -> None:
    """Raise ``ValueError`` for an unknown kind of bands; None is decided by :func:`band_of`."""
    if band is not None:
        check_choice("band", band, BANDS)


def band_of(band: str | None, numbers: Sequence[int]) -> str:
    """Return a kind of bands: the given one, or what suits the numbers of runs.

    Intervals for 2, 3 and 4 runs are 12.7, 4.3 and 3.2 standard errors wide on either side: they
    fill plots of several groups, and say little. With such a mean, all bands are ranges, since two
    kinds in one plot could not be compared.

    Examples
    --------
    >>> band_of(None, [1, 5, 8]), band_of(None, [3, 8]), band_of("interval", [2])
    ('interval', 'range', 'interval')
    """
    return band or ("range" if any(1 < n < FEW_RUNS for n in numbers) else "interval")


def note_on_runs(numbers: Sequence[int], band: str, mark: str = "band: ", until: str = "") -> str:
    """Return what lines or points are, and their bands, for the label of an axis.

    Parameters
    ----------
    numbers
        Number of runs of each group; those without any do not count.
    band
        A key of `BANDS`.
    mark
        What shows the band.
    until
        Where the mean ends.

    Examples
    --------
    >>> note_on_runs([3, 3], "interval")
    'mean over 3 runs; band: 95 % interval of the mean'
    >>> note_on_runs([2, 5], "range", "bar: "), note_on_runs([1, 1], "interval")
    ('mean over 2 to 5 runs; bar: lowest to highest run', 'single runs')
    """
    known = [n for n in numbers if n]
    low, high = min(known, default=1), max(known, default=1)
    if high == 1:
        return "single runs"
    runs = f"{high} runs" if low == high else f"{low} to {high} runs"
    return f"mean over {runs}{until}; {mark}{BANDS[band]}"


def note_on_missing(collected: Collected, numbers: Sequence[int]) -> str:
    """Return a note on groups with runs that have no finite score."""
    totals = np.bincount(collected.group_of, minlength=len(numbers)).tolist()
    return note_on(
        [
            f"{total - n} of {total} runs of {collected.name_of(k)}"
            for k, (n, total) in enumerate(zip(numbers, totals, strict=True))
            if n < total
        ]
    )


def limits_of(score: str) -> tuple[float, float]:
    """Return the ends that a score cannot leave.

    Examples
    --------
    >>> limits_of("accuracy_fine_tuned"), limits_of("loss")
    ((0.0, 1.0), (-inf, inf))
    """
    return (0.0, 1.0) if score.startswith("accuracy") else (-np.inf, np.inf)


def line_of(
    x: np.ndarray, table: np.ndarray, band: str, limits: tuple[float, float] = (-np.inf, np.inf)
) -> Line:
    """Return the mean of curves (runs, k), NaN where a run has none, and its band.

    Parameters
    ----------
    x
        (k,) positions.
    table
        (runs, k) curves.
    band
        ``"interval"`` or ``"range"``, from the lowest to the highest run. An interval is left out
        where some runs have no value and fewer than `FEWEST` have one.
    limits
        Ends of the score, at which intervals end, too.
    """
    known = ~np.isnan(table)
    n = known.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, table, 0).sum(0) / n
        if band == "range":
            low = np.where(known, table, np.inf).min(0, initial=np.inf)
            high = np.where(known, table, -np.inf).max(0, initial=-np.inf)
        else:
            squares = np.where(known, (table - mean) ** 2, 0).sum(0)
            half = np.array([t_quantile(CONFIDENCE, k) if k > 1 else np.nan for k in n.tolist()])
            half = half * np.sqrt(squares / (n - 1) / n)
            half[n < min(FEWEST, len(table))] = np.nan
            low, high = np.clip([mean - half, mean + half], *limits)
    return Line(x, mean, np.where(n > 1, low, np.nan), np.where(n > 1, high, np.nan))


def draw_lines(
    collected: Collected, lines: Sequence[Line], ax: Any, xlabel: str, ylabel: str
) -> "Figure":
    """Draw the line of each group, and return the figure; errors as :func:`draw_panels`."""
    is_accuracy = collected.column.startswith("accuracy")
    return draw_panels(panels_of(collected), lines, ax, (xlabel, ylabel), is_accuracy=is_accuracy)
