"""Tables of the study: cells of recorded results, correlations, and verdicts of hypotheses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

from topofl import Table

from .graphs import GRAPHS
from .predictors import PREDICTORS
from .run import Job, Records, rate_of
from .scenarios import SCENARIOS, Cell
from .statistics import (
    CellTable,
    Interval,
    correlation,
    median_over_cells,
    partial_correlation,
    rank_correlation,
)

__all__ = ["OUTCOMES", "cell_tables", "correlations", "hypotheses"]

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


def cell_tables(records: Records, scenarios: Iterable[str]) -> list[CellTable]:
    """Return one table per scenario, partition, method and seed whose runs are all recorded."""
    found = []
    for name in scenarios:
        scenario = SCENARIOS[name]
        for partition in scenario.partitions:
            for method in scenario.methods:
                for seed in scenario.seeds:
                    cell = Cell(name, partition, method, seed, "")
                    table = _cell_table(records, cell)
                    found += [] if table is None else [table]
    return found


def _cell_table(records: Records, cell: Cell) -> CellTable | None:
    lr = rate_of(cell, records)
    predicted, ran = {}, {}
    for graph in GRAPHS:
        own = replace(cell, graph=graph)
        before, after = Job("predict", replace(own, method="")), Job("run", own, lr)
        if before not in records or after not in records:
            return None
        if "missing" not in records[before] and "missing" not in records[after]:
            predicted[graph], ran[graph] = records[before], records[after]
    outcomes = _outcomes(ran)
    predictors = {
        name: np.array([_number(predicted[graph].get(name)) for graph in predicted])
        for name in PREDICTORS
    }
    return CellTable(
        cell.scenario, cell.partition, cell.method, cell.seed, list(ran), predictors, outcomes
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _outcomes(ran: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the outcomes of all graphs of a cell; runs that diverged get the worst value."""
    complete = ran.get("complete", {})
    target = TARGET * complete.get("final", float("nan"))
    rows = [{**run, **_to_target(run, target)} for run in ran.values()]
    columns = {}
    for name, sign in OUTCOMES.items():
        values = np.array([_number(row.get(name)) for row in rows])
        diverged = np.array(["diverged" in row for row in rows])
        known = sign * values[np.isfinite(values)]
        worst = known.min() - 1.0 if len(known) else -1.0
        columns[name] = np.where(diverged, sign * worst, values)
    return columns


def _to_target(run: Mapping[str, Any], target: float) -> dict[str, float]:
    """Return rounds and bytes to the target; twice the last ones if it was not reached."""
    if "curve" not in run:
        return {}
    reached = [k for k, accuracy in enumerate(run["curve"]) if accuracy >= target]
    if not reached:
        return {
            "rounds to target": 2.0 * run["rounds"][-1],
            "bytes to target": 2.0 * run["bytes"][-1],
        }
    first = reached[0]
    return {
        "rounds to target": float(run["rounds"][first]),
        "bytes to target": float(run["bytes"][first]),
    }


def correlations(
    tables: Sequence[CellTable], outcome: str, *, draws: int = 400
) -> list[tuple[str, Interval]]:
    """Return the median rank correlation of each predictor with an outcome, best first."""
    found = [
        (name, median_over_cells(tables, signed(name, outcome), draws=draws)) for name in PREDICTORS
    ]
    return sorted(found, key=lambda row: (np.isnan(row[1].estimate), row[1].estimate))


def signed(predictor: str, outcome: str) -> Callable[[CellTable, np.ndarray], float]:
    """Return the rank correlation that is -1 for a perfect predictor of an outcome."""
    inner, sign = rank_correlation(predictor, outcome), OUTCOMES[outcome]
    return lambda table, rows: sign * inner(table, rows)


def correlation_table(tables: Sequence[CellTable], title: str) -> Table:
    """Return the table of all predictors against all outcomes."""
    every = {outcome: dict(correlations(tables, outcome)) for outcome in OUTCOMES}
    order = list(every["learning phase"])
    rows = tuple((name, *(str(every[outcome][name]) for outcome in OUTCOMES)) for name in order)
    return Table(("predictor", *OUTCOMES), rows, title=title)


def hypotheses(tables: Sequence[CellTable]) -> Table:
    """Return the verdict of each hypothesis that the recorded cells allow."""
    rows = [row for row in _judged(tables) if row is not None]
    return Table(("hypothesis", "statistic", "threshold", "verdict"), tuple(rows))


def _judged(tables: Sequence[CellTable]) -> Iterable[tuple[Any, ...] | None]:
    dsgd = [table for table in tables if table.method == "D-SGD"]
    skewed = [table for table in dsgd if table.partition in SKEWED]
    yield _verdict("1: H_10, learning phase", skewed, signed("H_10", "learning phase"), -0.95)
    late = "predicted deviation (20)"
    yield _verdict("2: predicted deviation, final", skewed, signed(late, "final"), -0.95)
    yield _verdict("3a: H_10 minus gap, learning phase", skewed, _minus("spectral gap"), 0.0)
    thousand = [table for table in skewed if table.scenario == "MNIST 1000"]
    yield _verdict("3b: H_10 minus H_1, 1,000 nodes", thousand, _minus("H_1"), 0.0)
    iid = [table for table in dsgd if table.partition == "iid"]
    yield _verdict(
        "4: N_10 minus n_W(0.9), iid, final", iid, _minus("n_W(0.9)", "N_10", "final"), 0
    )
    corrected = [t for t in tables if t.method in ("gradient tracking", "D2")]
    yield _verdict("5: |partial correlation of H_10 given N_10|", corrected, _partial, 0.3)
    others = [
        table
        for table in tables
        if table.method in ("momentum", "local steps") and table.partition in SKEWED
    ]
    yield _verdict("6: momentum and local steps", others, signed("H_10", "learning phase"), -0.9)
    yield _verdict("7: held-out families", skewed, _held_out_families, -0.9)
    yield _held_out_data(dsgd)


def _verdict(
    name: str,
    tables: Sequence[CellTable],
    statistic: Callable[[CellTable, np.ndarray], float],
    threshold: float,
) -> tuple[Any, ...] | None:
    if not tables:
        return None
    found = median_over_cells(tables, statistic)
    verdict = "HOLDS" if found.high <= threshold else "UNDECIDED"
    verdict = "FAILS" if found.low > threshold else verdict
    return name, f"{found}, {len(tables)} cells", f"at most {threshold:g}", verdict


def _minus(
    rival: str, own: str = "H_10", outcome: str = "learning phase"
) -> Callable[[CellTable, np.ndarray], float]:
    """Return the difference of two rank correlations over the graphs that have both predictors."""

    def statistic(table: CellTable, rows: np.ndarray) -> float:
        both = np.isfinite(table.predictors[own]) & np.isfinite(table.predictors[rival])
        rows = rows[both[rows]]
        first, second = (signed(name, outcome)(table, rows) for name in (own, rival))
        return first - second

    return statistic


def _partial(table: CellTable, rows: np.ndarray) -> float:
    x, given = (table.predictors[name][rows] for name in ("H_10", "N_10"))
    return abs(partial_correlation(x, table.outcomes["final"][rows], given))


def _held_out_families(table: CellTable, rows: np.ndarray) -> float:
    """Return the median over families of the correlation of ranks among all graphs."""
    families = np.array([GRAPHS[graph].family for graph in table.graphs])[rows]
    x, y = table.predictors["H_10"][rows], table.outcomes["learning phase"][rows]
    ranks_x, ranks_y = (np.argsort(np.argsort(values)).astype(float) for values in (x, y))
    found = []
    for family in dict.fromkeys(families.tolist()):
        own = families == family
        found.append(correlation(ranks_x[own], ranks_y[own], fewest=4))
    known = [value for value in found if np.isfinite(value)]
    return float(np.median(known)) if known else float("nan")


def _held_out_data(tables: Sequence[CellTable]) -> tuple[Any, ...] | None:
    """Return how well rounds to target on MNIST follow from a monotone fit on digits."""
    known = [table for table in tables if table.scenario == "digits 60"]
    held_out = [table for table in tables if table.scenario.startswith("MNIST")]
    if not known or not held_out:
        return None
    x = np.concatenate([table.predictors["H_10"] for table in known])
    y = np.concatenate([table.outcomes["rounds to target"] for table in known])
    fitted = IsotonicRegression(out_of_bounds="clip").fit(x, y)

    def statistic(table: CellTable, rows: np.ndarray) -> float:
        predicted = fitted.predict(table.predictors["H_10"][rows])
        return -correlation(predicted, table.outcomes["rounds to target"][rows])

    return _verdict("8: held-out data, rounds to target", held_out, statistic, -0.9)
