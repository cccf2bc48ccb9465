"""Statistics of the study: rank correlations within cells, and intervals of their medians."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.stats import false_discovery_control, rankdata

from topofl import Table

from .runs import PREDICTORS, Records, predicted_cell, rate_of
from .scenarios import Cell, Scenario, Source

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
    names: Callable[[CellTable], Sequence[str]] = attrgetter("graphs")

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
    tables: Sequence[CellTable], statistic: Statistic, *, draws: int = DRAWS
) -> Interval:
    """Return the median over cells of a statistic, with a cluster bootstrap interval.

    Parameters
    ----------
    tables
        Cells. Those of one scenario and partition are a cluster.
    statistic
        What is computed in each cell.
    draws
        Bootstrap draws: of clusters with replacement, and of graphs with replacement. All cells of
        a draw have the same graphs, as those of the study have.
    """
    rng = np.random.default_rng(0)
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


OUTCOMES = {
    "learning phase": +1,
    "final": +1,
    "worst node": +1,
    "spread": -1,
    "consensus": -1,
    "rounds to target": -1,
    "bytes to target": -1,
}
"""Outcomes, with +1 where more is better."""

TARGET = 0.9
"""Target accuracy, as a share of the final accuracy of the complete graph in the cell."""

SKEWED = ("1 class", "2 shards", "Dirichlet 0.1")
"""Partitions with skewed labels."""


def cell_tables(
    records: Records,
    scenarios: Iterable[str],
    source: Source = Source(),  # noqa: B008 - it is frozen
) -> list[CellTable]:
    """Return one table per scenario, partition, method and seed whose runs are all recorded."""
    found = []
    for name in scenarios:
        scenario = source.scenario(name)
        for partition in scenario.partitions:
            for method in scenario.methods:
                for seed in scenario.seeds:
                    cell = Cell(name, partition, method, seed, "")
                    table = _cell_table(records, scenario, cell)
                    found += [] if table is None else [table]
    return found


def _cell_table(records: Records, scenario: Scenario, cell: Cell) -> CellTable | None:
    lr = rate_of(scenario, cell, records)
    if lr is None:
        return None
    predicted, ran = {}, {}
    for graph in scenario.graphs:
        own = replace(cell, graph=graph)
        before, after = records.prediction(predicted_cell(own)), records.outcomes(own, lr)
        if before is None or after is None:
            return None
        if "missing" not in before and "missing" not in after:
            predicted[graph], ran[graph] = before, after
    predictors = {
        name: np.array([_number(predicted[graph].get(name)) for graph in predicted])
        for name in PREDICTORS
    }
    return CellTable(
        *(cell.scenario, cell.partition, cell.method, cell.seed),
        nodes=scenario.n,
        graphs=list(ran),
        families=[scenario.graphs[graph].family for graph in ran],
        predictors=predictors,
        outcomes=_outcomes(ran),
        lr=lr,
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _outcomes(ran: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the outcomes of all graphs of a cell; runs that diverged get the worst value."""
    target = TARGET * _highest(ran)
    rows = [{**run, **_to_target(run, target)} for run in ran.values()]
    columns = {}
    for name, sign in OUTCOMES.items():
        values = np.array([_number(row.get(name)) for row in rows])
        diverged = np.array(["diverged" in row for row in rows])
        known = sign * values[np.isfinite(values)]
        worst = known.min() - 1.0 if len(known) else -1.0
        columns[name] = np.where(diverged, sign * worst, values)
    return columns


def _highest(ran: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the final accuracy of the complete graph, or, without it, the highest one."""
    if "complete" in ran:
        return ran["complete"].get("final", float("nan"))
    return max((run["final"] for run in ran.values() if "final" in run), default=float("nan"))


def _to_target(run: Mapping[str, Any], target: float) -> dict[str, float]:
    """Return rounds and bytes to the target; twice the last ones if it was not reached."""
    if "curve" not in run:
        return {}
    found = {}
    for name in ("rounds", "bytes"):
        reached = reached_at(target, run["curve"], run[name])
        found[f"{name} to target"] = 2.0 * run[name][-1] if reached is None else reached
    return found


def reached_at(target: float, accuracy: Sequence[float], cost: Sequence[float]) -> float | None:
    """Return the cost at which accuracy first reaches a target, interpolated linearly; or None."""
    reached = [k for k, value in enumerate(accuracy) if value >= target]
    if not reached:
        return None
    k = reached[0]
    if k == 0:
        return float(cost[0])
    share = (target - accuracy[k - 1]) / (accuracy[k] - accuracy[k - 1])
    return float(cost[k - 1] + share * (cost[k] - cost[k - 1]))


def first_cells(tables: Sequence[CellTable]) -> list[CellTable]:
    """Return the cells of the first table of the report: D-SGD on skewed labels, or else all."""
    skewed = [t for t in tables if t.method == "D-SGD" and t.partition in SKEWED]
    return skewed or list(tables)


def groups(tables: Sequence[CellTable]) -> dict[str, list[CellTable]]:
    """Return the cells by scenario, method and kind of partition."""
    found: dict[str, list[CellTable]] = {}
    for table in tables:
        kind = "skewed labels" if table.partition in SKEWED else table.partition
        found.setdefault(f"{table.scenario}, {table.method}, {kind}", []).append(table)
    return found


def correlation(
    predictor: str, outcome: str, *, given: str | None = None, tau: bool = False
) -> Statistic:
    """Return the rank correlation that is -1 for a perfect predictor of an outcome.

    Parameters
    ----------
    predictor, outcome
        Names.
    given
        Predictor given which it is partial.
    tau
        Kendall's instead of Spearman's.
    """
    sign = -PREDICTORS[predictor][1] * OUTCOMES[outcome]
    names = [predictor] if given is None else [predictor, given]

    def columns(table: CellTable) -> np.ndarray:
        x, *rest = (table.predictors[name] for name in names)
        return np.stack([sign * x, table.outcomes[outcome], *rest])

    value = kendall if tau else spearman
    return Statistic(columns, value if given is None else partial_spearman)


def given_noise(outcome: str) -> Statistic:
    """Return the rank correlation of H_10 with an outcome, given N_10."""

    def columns(table: CellTable) -> np.ndarray:
        h, n = (table.predictors[name] for name in ("H_10", "N_10"))
        return np.stack([h, table.outcomes[outcome], n])

    return Statistic(columns, partial_spearman)


def correlations(
    tables: Sequence[CellTable], outcomes: Sequence[str] = tuple(OUTCOMES), **options: Any
) -> dict[tuple[str, str], Interval]:
    """Return the median correlation of each predictor with each outcome."""
    return {
        (predictor, outcome): median_over_cells(tables, correlation(predictor, outcome, **options))
        for predictor in PREDICTORS
        for outcome in outcomes
    }


def correlation_table(
    found: Mapping[tuple[str, str], Interval], first: str = "learning phase"
) -> Table:
    """Return the table of predictors against columns, best predictor of the first one on top.

    Correlations that do not differ significantly from 0, at a false discovery rate of 5 % over the
    table, are in brackets.
    """
    chances = dict(zip(found, adjusted([one.p_value for one in found.values()]), strict=True))
    columns = list(dict.fromkeys(column for _, column in found))
    shown = {key: f"[{one}]" if chances[key] > 0.05 else str(one) for key, one in found.items()}

    def quality(predictor: str) -> tuple[bool, float]:
        estimate = found[predictor, first].estimate
        return bool(np.isnan(estimate)), estimate

    names = sorted(dict.fromkeys(predictor for predictor, _ in found), key=quality)
    rows = tuple((name, *(shown[name, column] for column in columns)) for name in names)
    return Table(("predictor", *columns), rows)


OUTCOME = "learning phase"

NEAR = 0.12
"""Largest difference of the logarithms of two mean degrees that count as equal."""

LEAD = 0.01
"""Difference of accuracies that two graphs of a pair must exceed."""

SAID = ("H_10", "H_1", "n_W(0.5)", "spectral gap")
"""Predictors that :func:`pairs_said` names."""


def ordered_pairs(tables: Sequence[CellTable], predictor: str) -> tuple[int, int, int]:
    """Return how many pairs of graphs of equal degree a predictor orders as accuracy does.

    The pairs are those of two graphs of a cell whose mean degrees differ by at most a factor of
    exp(:data:`NEAR`) and whose accuracies in the learning phase differ by more than :data:`LEAD`.

    Parameters
    ----------
    tables
        Cells.
    predictor
        Name of a predictor.

    Returns
    -------
    tuple
        Pairs that are ordered rightly, pairs that are ordered, and all pairs. A pair is not ordered
        if the predictor is not defined for one of its graphs, or equal for both.
    """
    counts = np.zeros(3, dtype=int)
    for table in tables:
        i, j = np.triu_indices(len(table.graphs), 1)
        degree, accuracy = np.log(table.predictors["mean degree"]), table.outcomes[OUTCOME]
        lead = accuracy[i] - accuracy[j]
        chosen = (np.abs(degree[i] - degree[j]) < NEAR) & (np.abs(lead) > LEAD)
        values = PREDICTORS[predictor][1] * table.predictors[predictor]
        sign = np.nan_to_num(np.sign(values[i] - values[j]))[chosen]
        counts += [(sign == np.sign(lead[chosen])).sum(), (sign != 0).sum(), chosen.sum()]
    right, ordered, pairs = counts.tolist()
    return right, ordered, pairs


def best_third(predictor: str, by: str = "H_10") -> Statistic:
    """Return the rank correlation among the third of the graphs that is best by `by`.

    It is -1 for a perfect predictor of accuracy in the learning phase.
    """
    whole = correlation(predictor, OUTCOME)

    def columns(table: CellTable) -> np.ndarray:
        rank = np.argsort(-PREDICTORS[by][1] * table.predictors[by], kind="stable")
        found = whole.columns(table).astype(float)
        found[:, rank[len(rank) // 3 :]] = np.nan
        return found

    return Statistic(columns, spearman)


def choice_table(tables: Sequence[CellTable]) -> Table:
    """Return how well each predictor chooses, in order of the shares of pairs that are right."""
    rows = []
    for name in PREDICTORS:
        right, ordered, pairs = ordered_pairs(tables, name)
        share = right / ordered if ordered else float("nan")
        third = median_over_cells(tables, best_third(name), draws=1).estimate
        rows.append((share, (name, _percent(share), ordered, pairs, _signed(third))))
    columns = ("predictor", "ordered rightly", "pairs it orders", "pairs", "best third")
    ranked = sorted(rows, key=lambda row: (np.isnan(row[0]), -row[0]))
    return Table(columns, tuple(row for _, row in ranked))


def pairs_said(tables: Sequence[CellTable]) -> str | None:
    """Return the sentence on pairs of graphs of equal degree; None if there are none.

    The cells are those of the first table of the report.
    """
    counts = {name: ordered_pairs(first_cells(tables), name) for name in SAID}
    pairs = max(pairs for *_, pairs in counts.values())
    shares = [
        f"{name} orders {_percent(right / ordered)} rightly"
        for name, (right, ordered, _) in counts.items()
        if ordered
    ]
    if not shares:
        return None
    return (
        f"of {pairs:,} pairs of graphs of equal degree whose accuracies in the learning phase "
        f"differ by more than {100 * LEAD:g} point, {', '.join(shares)}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if np.isfinite(share) else "-"


def _signed(value: float) -> str:
    return f"{value:+.3f}" if np.isfinite(value) else "-"
