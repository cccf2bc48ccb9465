"""Statistics of the study: rank correlations within cells, and intervals of their medians."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import false_discovery_control, rankdata

__all__ = [
    "DRAWS",
    "FEWEST",
    "CellTable",
    "Interval",
    "Statistic",
    "adjusted",
    "kendall",
    "median",
    "median_over_cells",
    "partial_spearman",
    "spearman",
]

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
    nodes
        Number of nodes.
    graphs, families
        Names of its graphs, without those that do not exist here, and their families.
    predictors, outcomes
        Name -> (graphs,) values; NaN where a predictor is not defined. Outcomes of runs that
        diverged are worse than all others.
    lr
        Learning rate of all runs.
    """

    scenario: str
    partition: str
    method: str
    seed: int
    nodes: int
    graphs: Sequence[str]
    families: Sequence[str]
    predictors: Mapping[str, np.ndarray]
    outcomes: Mapping[str, np.ndarray]
    lr: float


@dataclass(frozen=True)
class Interval:
    """An estimate with a 95 % interval.

    Parameters
    ----------
    estimate, low, high
        Median over cells and its interval.
    p_value
        Two-sided, of a median of 0, from the same bootstrap.
    cells, graphs
        Cells in which the statistic is defined, and the median number of graphs in them.
    worst
        Largest value in any cell.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    cells: int
    graphs: int
    worst: float

    def __str__(self) -> str:
        if not np.isfinite(self.estimate):
            return "-"
        return f"{self.estimate:+.3f} ({self.low:+.3f} to {self.high:+.3f}; {self.graphs})"


def _graphs(table: CellTable) -> Sequence[str]:
    return table.graphs


@dataclass(frozen=True)
class Statistic:
    """A statistic of the graphs of a cell.

    Parameters
    ----------
    columns
        ``columns(table)`` returns what it is computed from: (columns, graphs). Graphs for which not
        all columns are finite are left out.
    value
        ``value(columns)`` of (columns, ..., graphs) returns (...) values, and ignores graphs whose
        columns are NaN.
    fewest
        Fewest graphs of a cell.
    names
        ``names(table)`` returns the names of the graphs, or of other units that are drawn.
    """

    columns: Callable[[CellTable], np.ndarray]
    value: Callable[[np.ndarray], np.ndarray]
    fewest: int = FEWEST
    names: Callable[[CellTable], Sequence[str]] = _graphs

    def known(self, table: CellTable) -> tuple[np.ndarray, list[str]]:
        """Return the columns of the graphs that have all of them, and their names."""
        columns = np.atleast_2d(self.columns(table))
        finite = np.flatnonzero(np.isfinite(columns).all(axis=0))
        names = self.names(table)
        return columns[:, finite], [names[int(k)] for k in finite]


def spearman(columns: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation of two columns (2, ..., graphs); NaN if one is constant."""
    return _pearson(*_ranks(columns))


def kendall(columns: np.ndarray) -> np.ndarray:
    """Return Kendall's tau-b of two columns (2, ..., graphs); NaN if one is constant."""
    i, j = np.triu_indices(columns.shape[-1], 1)
    x, y = np.nan_to_num(np.sign(columns[..., i] - columns[..., j])).astype(np.float32)
    pairs = np.sqrt((x != 0).sum(axis=-1) * (y != 0).sum(axis=-1).astype(float))
    return _divided((x * y).sum(axis=-1), pairs)


def partial_spearman(columns: np.ndarray) -> np.ndarray:
    """Return the rank correlation of the first two columns, given the third (linear in ranks)."""
    x, y, given = _ranks(columns)
    xy, xz, yz = _pearson(x, y), _pearson(x, given), _pearson(y, given)
    return _divided(xy - xz * yz, np.sqrt((1 - xz**2) * (1 - yz**2)))


def _ranks(columns: np.ndarray) -> np.ndarray:
    """Return ranks along the last axis; those of NaN are NaN."""
    missing = np.isnan(columns)
    ranks = rankdata(np.where(missing, np.inf, columns), axis=-1)
    return np.where(missing, np.nan, ranks)


def _pearson(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    count = np.maximum(np.isfinite(x).sum(axis=-1, keepdims=True), 1)
    x, y = (np.nan_to_num(v - np.nansum(v, axis=-1, keepdims=True) / count) for v in (x, y))
    return _divided((x * y).sum(axis=-1), np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1)))


def _divided(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x / y, NaN where y is 0 up to rounding."""
    small = ~(np.abs(y) >= 1e-9)
    return np.where(small, np.nan, x / np.where(small, 1.0, y))


def median_over_cells(
    tables: Sequence[CellTable], statistic: Statistic, *, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """Return the median over cells of a statistic, with a cluster bootstrap interval.

    Parameters
    ----------
    tables
        Cells. Those of one scenario and partition are a cluster.
    statistic
        What is computed in each cell.
    draws, seed
        Bootstrap draws: of clusters with replacement, and of graphs with replacement. All cells of
        a draw have the same graphs, as those of the study have.
    """
    rng = np.random.default_rng(seed)
    known = [statistic.known(table) for table in tables]
    estimates = [
        float(statistic.value(columns)) if len(names) >= statistic.fewest else float("nan")
        for columns, names in known
    ]
    kept = [k for k, estimate in enumerate(estimates) if np.isfinite(estimate)]
    if not kept:
        return Interval(*[float("nan")] * 4, cells=0, graphs=0, worst=float("nan"))
    drawn = _drawn([known[k] for k in kept], statistic.value, draws, rng)
    clusters = _clusters([(tables[k].scenario, tables[k].partition) for k in kept])
    medians = _medians(drawn, clusters, rng)
    low, high = np.nanpercentile(medians, [2.5, 97.5])
    values = [estimates[k] for k in kept]
    return Interval(
        *(float(np.median(values)), float(low), float(high), _p_value(medians)),
        cells=len(kept),
        graphs=int(np.median([len(known[k][1]) for k in kept])),
        worst=max(values),
    )


def _drawn(
    known: Sequence[tuple[np.ndarray, list[str]]],
    value: Callable[[np.ndarray], np.ndarray],
    draws: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the statistic (cells, draws) of drawn graphs, which are the same in all cells."""
    union = list(dict.fromkeys(name for _, names in known for name in names))
    chosen = rng.integers(len(union), size=(draws, len(union)))
    found = []
    for columns, names in known:
        place = {name: k for k, name in enumerate(names)}
        rows = np.array([place.get(name, len(names)) for name in union])  # the last one is NaN
        padded = np.concatenate([columns, np.full((len(columns), 1), np.nan)], axis=1)
        found.append(value(padded[:, rows[chosen]]))
    return np.stack(found)


def _clusters(names: Sequence[tuple[str, str]]) -> np.ndarray:
    """Return the cells of each cluster (clusters, largest); missing ones are -1."""
    members = [[k for k, own in enumerate(names) if own == name] for name in dict.fromkeys(names)]
    largest = max(map(len, members))
    return np.array([own + [-1] * (largest - len(own)) for own in members])


def _medians(drawn: np.ndarray, clusters: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the median (draws,) over the cells of clusters drawn with replacement."""
    draws = drawn.shape[1]
    chosen = rng.integers(len(clusters), size=(draws, len(clusters)))
    padded = np.concatenate([drawn, np.full((1, draws), np.nan)])
    values = padded[clusters[chosen], np.arange(draws)[:, None, None]].reshape(draws, -1)
    return median(values)


def median(values: np.ndarray) -> np.ndarray:
    """Return the median over the last axis without NaN; NaN if there is nothing else."""
    defined = np.asarray(np.isfinite(values).any(axis=-1))
    return np.where(
        defined, np.nanmedian(np.where(defined[..., None], values, 0.0), axis=-1), np.nan
    )


def _p_value(medians: np.ndarray) -> float:
    """Return the two-sided p-value of a median of 0, at least 2 over the number of draws."""
    known = medians[np.isfinite(medians)]
    tail = min((known <= 0).sum(), (known >= 0).sum())
    return float(min(1.0, 2 * (tail + 1) / (len(known) + 1)))


def adjusted(p_values: Sequence[float]) -> np.ndarray:
    """Return p-values adjusted by Benjamini and Hochberg; NaN stay NaN."""
    values = np.asarray(p_values, dtype=float)
    known = np.isfinite(values)
    values[known] = false_discovery_control(values[known]) if known.any() else values[known]
    return values
