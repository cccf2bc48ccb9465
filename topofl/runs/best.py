"""The best point of a sweep."""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topofl._support.check import did_you_mean, plain_text, shown
from topofl._support.notebook import as_html
from topofl.runs.plan import Point
from topofl.runs.stored import StoredRun

__all__ = ["Best", "best_of", "check_scored", "final_of", "is_low_good"]


@dataclass(frozen=True)
class Best:
    """The best point of a sweep.

    Parameters
    ----------
    values
        Its settings by key.
    column
        The score by which points are compared.
    value
        The mean over seeds of the final mean score over nodes.
    seeds
        Number of seeds.

    Examples
    --------
    >>> print(Best({"algorithm.lr": 0.136812, "topology": "ring"}, "accuracy", 0.3834, 2))
    algorithm.lr=0.1368, topology=ring, accuracy 0.383 (mean of 2 seeds)
    """

    values: Mapping[str, Any]
    column: str
    value: float
    seeds: int

    def __str__(self) -> str:
        parts = [f"{key}={_text(value)}" for key, value in self.values.items()]
        seeds = "1 seed" if self.seeds == 1 else f"mean of {self.seeds} seeds"
        return ", ".join([*parts, f"{self.column} {self.value:.3g} ({seeds})"])

    def _repr_html_(self) -> str:
        return as_html(f"Best: {self}")


def best_of(
    points: Sequence[Point], runs: Iterable[StoredRun], column: str, low_is_good: bool | None
) -> Best:
    """Return the best point among those whose runs of all seeds are finished.

    Raises
    ------
    ValueError
        If no point is finished with finite scores, or the runs have no such score.
    """
    by_key = {run.key: run for run in runs}
    groups: dict[str, dict[str, Point]] = {}
    for point in points:
        group = groups.setdefault(json.dumps(point.values, sort_keys=True), {})
        group[point.key] = point
    found: list[Best] = []
    for group in groups.values():
        value = final_of(group, by_key, column)
        if not math.isnan(value):
            found.append(Best(next(iter(group.values())).values, column, value, len(group)))
    if not found:
        raise ValueError(
            "`best` needs a point whose runs are all finished with finite scores, got none; see "
            "`failures`"
        )
    if low_is_good is None:
        low_is_good = is_low_good(by_key.values(), column)
    return (min if low_is_good else max)(found, key=lambda one: one.value)


def final_of(keys: Collection[str], runs: Mapping[str, StoredRun], column: str) -> float:
    """Return the mean over runs of the final mean score; NaN unless all are finished and finite."""
    finals = [_final(runs[key], column) for key in keys if key in runs]
    if len(finals) < len(keys) or not all(map(math.isfinite, finals)):
        return math.nan
    return sum(finals) / len(finals)


def is_low_good(runs: Iterable[StoredRun], column: str) -> bool:
    """Return whether runs say that low values of a score are good."""
    return any(run.curves.get("low_is_good", {}).get(column, False) for run in runs)


def _final(run: StoredRun, column: str) -> float:
    """Return the final mean of a score over nodes, NaN if it is not finite."""
    scores = run.curves["scores"]
    check_scored(column, scores, f"run {run.key}")
    if column not in scores:
        raise _unknown(column, scores)
    last = scores[column]["mean"][-1]
    return math.nan if last is None else last


def check_scored(column: str, scores: Collection[str], run: str) -> None:
    """Raise ``ValueError`` if a run has no scores, or none of which `column` is one.

    `scores` may lack columns of other stages and sets, such as ``"accuracy_own_val"``.
    """
    if not scores:
        raise ValueError(
            f"`column` must be a score of the runs, got {shown(column)}, but {run} evaluates "
            "nothing; run it with a set, as in evaluation.on=test"
        )
    if not any(column == score or str(column).startswith(f"{score}_") for score in scores):
        raise _unknown(column, scores)


def _unknown(column: str, scores: Collection[str]) -> ValueError:
    return ValueError(
        f"`column` must be one of {', '.join(scores)}, got {shown(column)}"
        f"{did_you_mean(column, scores)}"
    )


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return plain_text(value)
