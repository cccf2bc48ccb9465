"""Statistics of the study: rank correlations within cells, intervals by bootstrap, and verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import kendalltau, rankdata, spearmanr

from .predictors import PREDICTORS

__all__ = ["CellTable", "Interval", "correlation", "median_over_cells", "partial_correlation"]

DRAWS = 2000
"""Bootstrap draws."""

FEWEST = 8
"""Fewest graphs for which a cell has a correlation."""


@dataclass(frozen=True, eq=False)
class CellTable:
    """Predictors and outcomes of all graphs of a cell.

    Parameters
    ----------
    scenario, partition, method, seed
        The cell.
    graphs
        Names of its graphs, without those that do not exist here.
    predictors, outcomes
        Name -> (graphs,) values; NaN where a predictor is not defined. Outcomes of runs that
        diverged are worse than all others.
    """

    scenario: str
    partition: str
    method: str
    seed: int
    graphs: Sequence[str]
    predictors: Mapping[str, np.ndarray]
    outcomes: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Interval:
    """An estimate with a 95 % interval, and the median number of graphs behind it."""

    estimate: float
    low: float
    high: float
    graphs: int

    def __str__(self) -> str:
        return f"{self.estimate:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def correlation(
    x: np.ndarray,
    y: np.ndarray,
    statistic: Callable[..., Any] = spearmanr,
    fewest: int = FEWEST,
) -> float:
    """Return a rank correlation of two columns over the graphs that have both; NaN if too few."""
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < fewest or np.ptp(x[both]) == 0 or np.ptp(y[both]) == 0:
        return float("nan")
    return float(statistic(x[both], y[both]).statistic)


def kendall(x: np.ndarray, y: np.ndarray) -> float:
    """Return Kendall's rank correlation."""
    return correlation(x, y, kendalltau)


def partial_correlation(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> float:
    """Return the rank correlation of x and y given a third column (linear in ranks)."""
    known = np.isfinite(x) & np.isfinite(y) & np.isfinite(given)
    if known.sum() < FEWEST:
        return float("nan")
    x, y, given = (rankdata(values[known]) for values in (x, y, given))
    xy, xz, yz = (np.corrcoef(a, b)[0, 1] for a, b in ((x, y), (x, given), (y, given)))
    rest = (1 - xz**2) * (1 - yz**2)
    return float((xy - xz * yz) / np.sqrt(rest)) if rest > 1e-12 else float("nan")


def median_over_cells(
    tables: Sequence[CellTable],
    statistic: Callable[[CellTable, np.ndarray], float],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Return the median over cells of a statistic, with a cluster bootstrap interval.

    Parameters
    ----------
    tables
        Cells. Those of one scenario and partition are a cluster.
    statistic
        ``statistic(table, rows)`` of the graphs of some rows.
    draws, seed
        Bootstrap draws: of clusters with replacement, and, in each cell, of graphs with
        replacement.
    """
    rng = np.random.default_rng(seed)
    everything = [np.arange(len(table.graphs)) for table in tables]
    estimates = [statistic(table, rows) for table, rows in zip(tables, everything, strict=True)]
    names = [(table.scenario, table.partition) for table in tables]
    clusters = [[k for k, own in enumerate(names) if own == name] for name in dict.fromkeys(names)]
    medians = []
    for _ in range(draws):
        drawn = [clusters[c] for c in rng.integers(len(clusters), size=len(clusters))]
        values = [
            statistic(tables[k], rng.integers(len(everything[k]), size=len(everything[k])))
            for members in drawn
            for k in members
        ]
        medians.append(_median(values))
    low, high = np.nanpercentile(medians, [2.5, 97.5])
    graphs = int(np.median([len(rows) for rows in everything]))
    return Interval(_median(estimates), float(low), float(high), graphs)


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.median(known)) if known else float("nan")


def rank_correlation(predictor: str, outcome: str) -> Callable[[CellTable, np.ndarray], float]:
    """Return the statistic of a predictor and an outcome, signed so that -1 is perfect."""
    sign = -PREDICTORS[predictor][1]

    def statistic(table: CellTable, rows: np.ndarray) -> float:
        x, y = table.predictors[predictor][rows], table.outcomes[outcome][rows]
        return sign * correlation(x, y)

    return statistic
