"""Lines with bands over the runs of groups."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing.charts.lines import Line, draw_panels
from topofl.summary.collected import Collected
from topofl.summary.plots.panels import panels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_lines", "line_of"]


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
    """Draw the line of each group, and return the figure; errors as :func:`draw_panels`."""
    is_accuracy = collected.score.startswith("accuracy")
    return draw_panels(panels_of(collected), lines, ax, (xlabel, ylabel), is_accuracy=is_accuracy)
