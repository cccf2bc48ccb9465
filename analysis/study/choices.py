"""How well predictors choose between graphs: pairs of equal degree, and the best third."""

from collections.abc import Sequence

import numpy as np

from topofl import Table

from .predictors import PREDICTORS
from .statistics import CellTable, Statistic, median_over_cells, spearman
from .tables import correlation, first_cells

__all__ = ["LEAD", "NEAR", "best_third", "choice_table", "ordered_pairs", "pairs_said"]

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
