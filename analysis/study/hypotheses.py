"""Verdicts of the hypotheses that ``HYPOTHESES.md`` states."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

from topofl import Table

from .predictors import PREDICTORS
from .statistics import (
    CellTable,
    Interval,
    Statistic,
    median,
    median_over_cells,
    partial_spearman,
    spearman,
)
from .tables import OUTCOMES, SKEWED, correlation

__all__ = ["hypotheses"]

Row = tuple[Any, ...]
HOLDS, FAILS, UNDECIDED = "HOLDS", "FAILS", "UNDECIDED"

FEWEST_OF_FAMILY = 4
"""Fewest graphs of a family that has a correlation of its own."""


def hypotheses(tables: Sequence[CellTable]) -> Table:
    """Return the verdict of each hypothesis that the recorded cells allow."""
    columns = ("hypothesis", "statistic", "cells", "claim", "verdict")
    return Table(columns, (*_of_dsgd(tables), *_of_other_methods(tables), *_of_order(tables)))


def _of_dsgd(tables: Sequence[CellTable]) -> Iterator[Row]:
    plain = [table for table in tables if table.method == "D-SGD"]
    skewed = [table for table in plain if table.partition in SKEWED]
    learning = correlation("H_10", "learning phase")
    yield from _at_most("1: H_10, learning phase", skewed, learning, -0.95)
    final = correlation("predicted deviation (20)", "final")
    yield from _at_most("2: predicted deviation (20), final", skewed, final, -0.95)
    yield from _better("3: H_10 minus gap, learning phase", skewed, _minus("spectral gap"))
    thousand = [table for table in skewed if table.nodes == 1000]
    yield from _better("3: H_10 minus H_1, 1,000 nodes", thousand, _minus("H_1"))
    iid = [table for table in plain if table.partition == "iid"]
    yield from _at_most("4: |n_W(0.9)| minus |N_10|, iid, final", iid, _less_than_noise(), 0.0)


def _of_other_methods(tables: Sequence[CellTable]) -> Iterator[Row]:
    corrected = [table for table in tables if table.method in ("gradient tracking", "D2")]
    if corrected:
        rest = median_over_cells(corrected, Statistic(_shared_with_noise, partial_spearman))
        inside = rest.low >= -0.3 and rest.high <= 0.3
        outside = rest.high < -0.3 or rest.low > 0.3
        verdict = HOLDS if inside else FAILS if outside else UNDECIDED
        name = "5: H_10 given N_10, gradient tracking and D², final"
        yield name, str(rest), rest.cells, "within 0.3 of 0", verdict
    for method in ("momentum", "local steps"):
        own = [table for table in tables if table.method == method and table.partition in SKEWED]
        learning = correlation("H_10", "learning phase")
        yield from _at_most(f"6: H_10, learning phase, {method}", own, learning, -0.9)


def _of_order(tables: Sequence[CellTable]) -> Iterator[Row]:
    plain = [table for table in tables if table.method == "D-SGD"]
    skewed = [table for table in plain if table.partition in SKEWED]
    families = Statistic(_by_family, lambda columns: median(columns[0]), fewest=1, names=_families)
    yield from _at_most("7: within families, H_10", skewed, families, -0.9)
    known = [table for table in plain if table.scenario == "digits 60"]
    asked = [table for table in plain if table.scenario.startswith("MNIST")]
    if known and asked:
        plain = correlation("H_10", "rounds to target")
        yield from _at_most("8: H_10, MNIST, rounds to target", asked, plain, -0.9)
        fitted = _Fitted(known)
        name = "8: the same by the fit to digits, which ties graphs"
        yield from _at_most(name, asked, Statistic(fitted.order, spearman), -0.9)
        error = median_over_cells(asked, Statistic(fitted.error, _median_size))
        yield "8: relative error of the fit", str(error), error.cells, "none", "-"


def _at_most(
    name: str, tables: Sequence[CellTable], statistic: Statistic, threshold: float
) -> Iterator[Row]:
    """Yield the verdict on a claim that a median is at most a threshold."""
    if tables:
        found = median_over_cells(tables, statistic)
        yield name, str(found), found.cells, f"at most {threshold:g}", _judged(found, threshold)


def _judged(found: Interval, threshold: float) -> str:
    return HOLDS if found.high <= threshold else FAILS if found.low > threshold else UNDECIDED


def _better(name: str, tables: Sequence[CellTable], statistic: Statistic) -> Iterator[Row]:
    """Yield the verdicts on a claim that a difference is below 0, by its median and everywhere."""
    if tables:
        found = median_over_cells(tables, statistic)
        verdict = HOLDS if found.high < 0 else FAILS if found.low >= 0 else UNDECIDED
        yield name, str(found), found.cells, "below 0", verdict
        everywhere = HOLDS if found.worst < 0 else FAILS
        yield f"{name}, worst cell", f"{found.worst:+.3f}", found.cells, "below 0", everywhere


def _minus(rival: str) -> Statistic:
    """Return H_10's correlation minus a rival's, over the graphs that have both."""
    outcome = "learning phase"
    signs = [-PREDICTORS[name][1] * OUTCOMES[outcome] for name in ("H_10", rival)]

    def columns(table: CellTable) -> np.ndarray:
        x, z = (table.predictors[name] for name in ("H_10", rival))
        return np.stack([signs[0] * x, signs[1] * z, table.outcomes[outcome]])

    return Statistic(columns, lambda found: spearman(found[[0, 2]]) - spearman(found[[1, 2]]))


def _less_than_noise() -> Statistic:
    """Return the absolute correlation of n_W(0.9) minus that of N_10."""

    def columns(table: CellTable) -> np.ndarray:
        rival, own = (table.predictors[name] for name in ("n_W(0.9)", "N_10"))
        return np.stack([rival, own, table.outcomes["final"]])

    def value(found: np.ndarray) -> np.ndarray:
        return np.abs(spearman(found[[0, 2]])) - np.abs(spearman(found[[1, 2]]))

    return Statistic(columns, value)


def _shared_with_noise(table: CellTable) -> np.ndarray:
    predictors = table.predictors
    return np.stack([predictors["H_10"], table.outcomes["final"], predictors["N_10"]])


def _families(table: CellTable) -> list[str]:
    return list(dict.fromkeys(table.families))


def _by_family(table: CellTable) -> np.ndarray:
    """Return the rank correlation (1, families) of H_10; NaN in families of few graphs."""
    columns = correlation("H_10", "learning phase").columns(table)
    families = np.array(table.families)
    own = [columns[:, families == family] for family in _families(table)]
    enough = [part.shape[1] >= FEWEST_OF_FAMILY for part in own]
    return np.array(
        [[float(spearman(p)) if e else np.nan for p, e in zip(own, enough, strict=True)]]
    )


class _Fitted:
    """A monotone fit of rounds to target on H_10."""

    def __init__(self, tables: Sequence[CellTable]) -> None:
        x, y = (np.concatenate(parts) for parts in zip(*map(_rounds, tables), strict=True))
        known = np.isfinite(x) & np.isfinite(y)
        self.fit = IsotonicRegression(out_of_bounds="clip").fit(x[known], y[known])

    def _predicted(self, table: CellTable) -> tuple[np.ndarray, np.ndarray]:
        x, y = _rounds(table)
        known = np.isfinite(x)
        predicted = np.full(len(x), np.nan)
        predicted[known] = self.fit.predict(x[known])
        return predicted, y

    def order(self, table: CellTable) -> np.ndarray:
        """Return what has a rank correlation of -1 if the order is right."""
        predicted, y = self._predicted(table)
        return np.stack([-predicted, y])

    def error(self, table: CellTable) -> np.ndarray:
        """Return relative errors (1, graphs)."""
        predicted, y = self._predicted(table)
        return np.abs(predicted / np.maximum(y, 1.0) - 1)[None]


def _rounds(table: CellTable) -> tuple[np.ndarray, np.ndarray]:
    return table.predictors["H_10"], table.outcomes["rounds to target"]


def _median_size(columns: np.ndarray) -> np.ndarray:
    return median(columns[0])
