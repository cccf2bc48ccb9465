"""Rounds, megabytes and simulated seconds until a target, with runs that never reach it."""

from dataclasses import dataclass

import numpy as np

from topofl._support.check import check_number, check_probability
from topofl.summary.collected import Collected

__all__ = ["COSTS", "Quantiles", "Target", "target_of"]

COSTS = {"rounds": ("round", 1.0), "MB": ("bytes", 1e6), "seconds": ("seconds", 1.0)}
"""Column of the curves, and its unit, by the name of a cost."""


@dataclass(frozen=True, eq=False)
class Quantiles:
    """Median, lowest and highest cost over all runs of each group, (G,) each.

    Runs that never reach the target cost infinity. So the median is infinite if half of the runs
    or more do not reach it, and is not biased toward runs that do, as a mean over those would be.
    """

    median: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, eq=False)
class Target:
    """What it took to reach a score.

    Parameters
    ----------
    value
        The score.
    reached
        (G,) number of runs in which the mean score over nodes reached it.
    n
        (G,) number of runs.
    costs
        By name, ``"rounds"``, ``"MB"`` and, if all runs recorded them, simulated ``"seconds"``.
    """

    value: float
    reached: np.ndarray
    n: np.ndarray
    costs: dict[str, Quantiles]


def target_of(collected: Collected, value: float) -> Target:
    """Return rounds, megabytes and seconds of each group until the mean score reaches a value.

    Raises
    ------
    TypeError, ValueError
        If `value` is not a finite number; for accuracies, one between 0 and 1.
    """
    is_share = collected.column.startswith("accuracy")
    value = (check_probability if is_share else check_number)("target", value)
    means = collected.statistic("mean")
    with np.errstate(invalid="ignore"):
        hits = means.values <= value if collected.low_is_good else means.values >= value
    position = means.first(hits)
    never = position < 0
    groups, g = len(collected.groups), collected.group_of
    costs = {}
    for name, (column, unit) in COSTS.items():
        curve = collected.cost(column)
        if curve.lengths.all():
            costs[name] = _quantiles(np.where(never, np.inf, curve.at(position) / unit), g, groups)
    return Target(
        value, np.bincount(g[~never], minlength=groups), np.bincount(g, minlength=groups), costs
    )


def _quantiles(values: np.ndarray, g: np.ndarray, groups: int) -> Quantiles:
    """Return the quantiles of values (R,), which may be infinite, in groups."""
    order = np.lexsort((values, g))
    ranked, n = values[order], np.bincount(g, minlength=groups)
    start = np.cumsum(n) - n
    low, high = ranked[start + (n - 1) // 2], ranked[start + n // 2]
    with np.errstate(invalid="ignore"):
        median = np.where(np.isinf(high), high, (low + high) / 2)
    return Quantiles(median, ranked[start], ranked[start + n - 1])
