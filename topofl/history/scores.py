"""Scores of nodes at the last evaluation, at the best one, and at each node's own best one."""

from typing import TYPE_CHECKING

import numpy as np

from topofl._columns import ScoreColumn
from topofl._support.check import shown
from topofl.history.columns import lookup
from topofl.history.statistics import goodness, over_nodes

if TYPE_CHECKING:
    from topofl.history.history import History

__all__ = ["best", "best_on_validation", "node_scores"]


def best(history: "History", column: str | None) -> np.ndarray:
    """See :meth:`topofl.History.best`."""
    column = history.primary if column is None else column
    values = node_scores(history, "column", column)
    means = goodness(over_nodes(values)["mean"], history.low_is_good(column))
    return values[len(means) - 1 - means[::-1].argmax()]


def best_on_validation(
    history: "History", column: str | None, validation: str | None
) -> np.ndarray:
    """See :meth:`topofl.History.best_on_validation`."""
    if validation is None:
        default = ScoreColumn(history.primary, "", "own_val")
        names = (name for name, known in history.score_columns.items() if known == default)
        validation = next(names, f"{history.primary}_own_val")
    column = history.primary if column is None else column
    values = node_scores(history, "column", column)
    judged = node_scores(history, "validation", validation)
    usable = ~(np.isnan(values) | np.isnan(judged))
    judgment = np.where(usable, goodness(judged, history.low_is_good(validation)), -np.inf)
    latest_best = len(judgment) - 1 - judgment[::-1].argmax(0)
    chosen = np.take_along_axis(values, latest_best[None], axis=0)[0]
    return np.where(usable.any(0), chosen, np.nan)


def node_scores(history: "History", argument: str, name: str) -> np.ndarray:
    """Return a column of shape (E, n), or raise an error that names the argument."""
    try:
        values = lookup(history, name)
    except TypeError as error:
        raise TypeError(str(error).replace("`column`", f"`{argument}`")) from None
    except KeyError as error:
        remedy = ""
        if argument == "validation":
            remedy = "; run with evaluation=('own_test', 'own_val')"
        raise KeyError(f"`{argument}`: {error.args[0]}{remedy}") from None
    if values.ndim != 2:
        known = ", ".join(key for key, column in history.evaluations.items() if column.ndim == 2)
        raise ValueError(
            f"`{argument}` must have one score per node, as {known} do, got {shown(name)}, which "
            "has one number for all nodes"
        )
    return values
