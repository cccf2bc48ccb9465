"""Verdicts of the hypotheses that ``HYPOTHESES.md`` states."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

from topofl import Table

from .predictors import PREDICTORS
from .statistics import CellTable, Statistic, median_over_cells, partial_spearman, spearman
from .tables import OUTCOMES, SKEWED, correlation

__all__ = ["hypotheses"]


def hypotheses(tables: Sequence[CellTable]) -> Table:
    """Return the verdict of each hypothesis that the recorded cells allow."""
    rows = [row for row in _judged(tables) if row is not None]
    return Table(("hypothesis", "statistic", "cells", "claim", "verdict"), tuple(rows))


def _judged(tables: Sequence[CellTable]) -> Iterable[tuple[Any, ...] | None]:
    dsgd = [table for table in tables if table.method == "D-SGD"]
    skewed = [table for table in dsgd if table.partition in SKEWED]
    learning = correlation("H_10", "learning phase")
    yield _verdict("1: H_10, learning phase", skewed, learning, -0.95)
    final = correlation("predicted deviation (20)", "final")
    yield _verdict("2: predicted deviation (20), final", skewed, final, -0.95)
    yield _verdict("3a: H_10 minus gap, learning phase", skewed, _minus("spectral gap"), 0.0)
    thousand = [table for table in skewed if table.scenario == "MNIST 1000"]
    yield _verdict("3b: H_10 minus H_1, 1,000 nodes", thousand, _minus("H_1"), 0.0)
    iid = [table for table in dsgd if table.partition == "iid"]
    noise = _minus("n_W(0.9)", "N_10", "final")
    yield _verdict("4: N_10 minus n_W(0.9), iid, final", iid, noise, 0.0)
    corrected = [table for table in tables if table.method in ("gradient tracking", "D2")]
    rest = Statistic(_shared_with_noise, lambda columns: np.abs(partial_spearman(columns)))
    yield _verdict("5: |partial correlation of H_10 given N_10|, final", corrected, rest, 0.3)
    methods = ("momentum", "local steps")
    others = [t for t in tables if t.method in methods and t.partition in SKEWED]
    yield _verdict("6: momentum and local steps, H_10", others, learning, -0.9)
    families = Statistic(_by_family, lambda columns: np.median(columns[0], axis=-1), fewest=1)
    yield _verdict("7: held-out families, H_10", skewed, families, -0.9)
    yield _held_out_data(dsgd)


def _verdict(
    name: str, tables: Sequence[CellTable], statistic: Statistic, threshold: float
) -> tuple[Any, ...] | None:
    if not tables:
        return None
    found = median_over_cells(tables, statistic)
    verdict = "HOLDS" if found.high <= threshold else "UNDECIDED"
    verdict = "FAILS" if found.low > threshold else verdict
    return name, str(found), found.cells, f"at most {threshold:g}", verdict


def _minus(rival: str, own: str = "H_10", outcome: str = "learning phase") -> Statistic:
    """Return the difference of two rank correlations over the graphs that have both predictors."""
    signs = [-PREDICTORS[name][1] * OUTCOMES[outcome] for name in (own, rival)]

    def columns(table: CellTable) -> np.ndarray:
        x, z = (
            sign * table.predictors[name] for sign, name in zip(signs, (own, rival), strict=True)
        )
        return np.stack([x, z, table.outcomes[outcome]])

    return Statistic(columns, lambda found: spearman(found[[0, 2]]) - spearman(found[[1, 2]]))


def _shared_with_noise(table: CellTable) -> np.ndarray:
    predictors = table.predictors
    return np.stack([predictors["H_10"], table.outcomes["final"], predictors["N_10"]])


def _by_family(table: CellTable) -> np.ndarray:
    """Return the rank correlation of H_10 in each family that has four graphs or more."""
    statistic, families = correlation("H_10", "learning phase"), np.array(table.families)
    columns = statistic.columns(table)
    own = [columns[:, families == family] for family in dict.fromkeys(table.families)]
    return np.array([[float(spearman(part)) for part in own if part.shape[1] >= 4]])


def _held_out_data(tables: Sequence[CellTable]) -> tuple[Any, ...] | None:
    """Return how well rounds to target on MNIST follow from a monotone fit on digits."""
    known = [table for table in tables if table.scenario == "digits 60"]
    held_out = [table for table in tables if table.scenario.startswith("MNIST")]
    if not known or not held_out:
        return None
    x = np.concatenate([table.predictors["H_10"] for table in known])
    y = np.concatenate([table.outcomes["rounds to target"] for table in known])
    fitted = IsotonicRegression(out_of_bounds="clip").fit(x, y)

    def columns(table: CellTable) -> np.ndarray:
        predicted = fitted.predict(table.predictors["H_10"])
        return np.stack([-predicted, table.outcomes["rounds to target"]])

    name = "8: held-out data, order of rounds to target"
    return _verdict(name, held_out, Statistic(columns, spearman), -0.9)
