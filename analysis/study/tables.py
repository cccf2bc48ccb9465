"""Tables of the study: the cells of recorded results, and correlations in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from topofl import Table

from .cells import Cell, Source
from .predictors import PREDICTORS
from .records import Records
from .run import predicted_cell, rate_of
from .scenarios import Scenario
from .statistics import (
    CellTable,
    Interval,
    Statistic,
    adjusted,
    kendall,
    median_over_cells,
    partial_spearman,
    spearman,
)

__all__ = [
    "OUTCOMES",
    "SKEWED",
    "TARGET",
    "cell_tables",
    "correlation",
    "correlation_table",
    "correlations",
    "first_cells",
    "groups",
    "reached_at",
]

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
