"""Columns of a history: lookup by name, and by score, stage and set of examples."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._columns import SECONDS, ScoreColumn, columns_named
from topofl._support.check import did_you_mean, shown
from topofl.history.summary import run_name

if TYPE_CHECKING:
    from topofl.history.history import History

__all__ = [
    "COSTS",
    "SECONDS",
    "column_name",
    "column_names",
    "columns_by_name",
    "lookup",
    "scores_in",
    "why_not_scored",
    "why_unrecorded",
]

COSTS = {"seconds": SECONDS, "megabytes": "bytes", "steps": "steps"}
"""Columns with the cost of rounds, by axis of plots."""


def scores_in(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the scores of a task, each with ``"high"`` or ``"low"``, whichever is better.

    Examples
    --------
    >>> scores_in({"task": {"scores": {"mse": "low", "loss": "low"}}})
    {'mse': 'low', 'loss': 'low'}
    """
    task = meta.get("task")
    return dict(task["scores"]) if task else {"accuracy": "high", "loss": "low"}


def columns_by_name(meta: Mapping[str, Any], evaluations: Iterable[str]) -> dict[str, ScoreColumn]:
    """Return the columns of a history that an older version wrote, inferred from their names."""
    sets = meta.get("evaluation", {}).get("on") or ["test"]
    first = sets if isinstance(sets, str) else str(sets[0])
    return columns_named(evaluations, scores_in(meta), first)


def column_name(history: "History", score: str | None, stage: str, on: str | None) -> str:
    """See :meth:`topofl.History.column`."""
    columns = history.score_columns
    if why := why_not_scored(history):
        raise ValueError(why)
    first = next((column.set for column in columns.values()), "test")
    wanted = ScoreColumn(
        history.primary if score is None else score, stage, first if on is None else on
    )
    for name, column in columns.items():
        if column == wanted:
            return name
    for argument, value, field in (
        ("score", score, "score"),
        ("stage", stage, "stage"),
        ("on", on, "set"),
    ):
        known = dict.fromkeys(getattr(column, field) for column in columns.values())
        if value is not None and value not in known:
            raise ValueError(
                f"`{argument}` must be one that was evaluated, {', '.join(map(repr, known))}, got "
                f"{shown(value)}"
            )
    raise ValueError(
        f"`score`, `stage` and `on` must name one of {', '.join(columns)}, got {tuple(wanted)}"
    )


def column_names(history: "History") -> tuple[str, ...]:
    """See :attr:`topofl.History.columns`."""
    return tuple(dict.fromkeys([*history.evaluations, *history.rounds]))


def lookup(history: "History", name: str) -> np.ndarray:
    """Return a column of `rounds` or `evaluations`; errors are those of ``history[name]``."""
    if not isinstance(name, str):
        raise TypeError(
            f"`column` must be the name of a column, such as 'accuracy', got {shown(name)}"
        )
    for table in (history.evaluations, history.rounds):
        if name in table:
            return table[name]
    for cost, column in COSTS.items():
        if name == column:
            raise KeyError(f"no column {name!r}: {why_unrecorded(history, cost)}")
    known = column_names(history)
    if (why := why_not_scored(history)) and columns_named([name], history.scores, ""):
        raise KeyError(f"no column {name!r}: {why}")
    raise KeyError(f"no column {name!r}; known are {', '.join(known)}{did_you_mean(name, known)}")


def why_not_scored(history: "History") -> str:
    """Return why a run has no scores, and the remedy; empty if it evaluated models.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models
    >>> clients = data.iid(data.digits(), 2, seed=0)
    >>> history = topofl.run(algorithms.local_only(lr=0.1), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=1, seed=0, evaluation=())
    >>> why_not_scored(history).partition(", since")[0]
    'local_only on no edges evaluated nothing'
    """
    if history.meta.get("evaluation", {}).get("on") != []:
        return ""
    return (
        f"{run_name(history)} evaluated nothing, since it ran with Evaluation(on=()): run it again "
        "with a set of examples, as in Evaluation(on='test')"
    )


def why_unrecorded(history: "History", cost: str) -> str:
    """Return why a cost of rounds (a key of :data:`COSTS`) is missing, and the remedy."""
    if cost == "seconds":
        return (
            f"{run_name(history)} has no simulated seconds: run algorithms.timed(algorithm, "
            "clock), ad_psgd or random_walks, or take history.with_seconds(hardware)"
        )
    return (
        f"{run_name(history)} has no {COSTS[cost]} in its rounds, since an older version wrote "
        "it: run it again"
    )
