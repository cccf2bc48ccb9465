"""Rounds, bytes and simulated seconds until a target score is reached."""

from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._support.check import check_number, check_probability, shown
from topofl._support.table import NotApplicable
from topofl.history.columns import COSTS, SECONDS, why_unrecorded
from topofl.history.scores import node_scores
from topofl.history.statistics import over_nodes

if TYPE_CHECKING:
    from topofl.history.history import History

__all__ = ["bytes_to", "elapsed", "rounds_to", "seconds_to"]


def rounds_to(history: "History", value: float, column: str | None) -> int | NotApplicable:
    """See :meth:`topofl.History.rounds_to`."""
    column = history.primary if column is None else column
    values = node_scores(history, "column", column)
    score = history.score_of(column)
    if score is None:
        raise ValueError(
            "`column` must be a score, which can reach a target, such as "
            f"{', '.join(history.scores)}, got {shown(column)}"
        )
    (check_probability if score == "accuracy" else check_number)("value", value)
    means = over_nodes(values)["mean"]
    reached = means <= value if history.low_is_good(column) else means >= value
    if not reached.any():
        return NotApplicable(_why_never_reached(history, value, column, means))
    return int(history.evaluations["round"][reached.argmax()])


def bytes_to(history: "History", value: float, column: str | None) -> int | NotApplicable:
    """See :meth:`topofl.History.bytes_to`."""
    column = history.primary if column is None else column
    done = rounds_to(history, value, column)
    if isinstance(done, NotApplicable):
        return done
    return int(elapsed(history, "megabytes", [done], column)[0])


def seconds_to(history: "History", value: float, column: str | None) -> float | NotApplicable:
    """See :meth:`topofl.History.seconds_to`."""
    column = history.primary if column is None else column
    done = rounds_to(history, value, column)
    if SECONDS not in history.rounds:
        return NotApplicable(why_unrecorded(history, "seconds"))
    if isinstance(done, NotApplicable):
        return done
    return float(elapsed(history, "seconds", [done], column)[0])


def _why_never_reached(history: "History", value: float, column: str, means: np.ndarray) -> str:
    """Return the reason that no evaluation reaches a target, with the best mean score."""
    low_is_good = history.low_is_good(column)
    if np.isnan(means).all():
        best = "it has no value"
    elif low_is_good:
        best = f"the lowest is {np.nanmin(means):.4g}"
    else:
        best = f"the highest is {np.nanmax(means):.4g}"
    side = "less" if low_is_good else "more"
    return (
        f"no mean {column} of {len(means)} evaluations in {history.n_rounds} rounds is {value:g} "
        f"or {side}: {best}"
    )


def elapsed(history: "History", cost: str, rounds: Any, column: str) -> np.ndarray:
    """Return the seconds, bytes or steps from the start of the run until a column was scored.

    Parameters
    ----------
    cost
        A key of :data:`COSTS`.
    rounds
        Numbers of completed rounds.
    column
        The scored column. For scores before an exchange, the bytes of that exchange do not count.
    """
    stage = history.score_columns[column].stage if column in history.score_columns else ""
    counted = np.asarray(rounds)
    if cost == "megabytes" and stage == "before_exchange":
        counted = np.maximum(0, counted - 1)
    values = history.rounds[COSTS[cost]]
    totals = values if cost == "seconds" else np.cumsum(values)
    return np.concatenate([[0], totals])[counted]
