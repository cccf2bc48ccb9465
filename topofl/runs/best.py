"""The best point of a sweep."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topofl._support.check import check_choice, shown
from topofl.runs.plan import Point
from topofl.runs.stored import StoredRun

__all__ = ["Best", "best_of"]


@dataclass(frozen=True)
class Best:
    """The best point of a sweep.

    Parameters
    ----------
    values
        Its settings by key.
    score
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
    score: str
    value: float
    seeds: int

    def __str__(self) -> str:
        parts = [f"{key}={_text(value)}" for key, value in self.values.items()]
        seeds = "1 seed" if self.seeds == 1 else f"mean of {self.seeds} seeds"
        return ", ".join([*parts, f"{self.score} {self.value:.3g} ({seeds})"])


def best_of(
    points: Sequence[Point], runs: Iterable[StoredRun], score: str, low_is_good: bool | None
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
        finals = [_final(by_key[key], score) if key in by_key else math.nan for key in group]
        if all(map(math.isfinite, finals)):
            values = next(iter(group.values())).values
            found.append(Best(values, score, sum(finals) / len(finals), len(finals)))
    if not found:
        raise ValueError(
            "`best` needs a point whose runs are all finished with finite scores, got none; see "
            "`failures`"
        )
    if low_is_good is None:
        low_is_good = any(
            run.curves.get("low_is_good", {}).get(score, False) for run in by_key.values()
        )
    return (min if low_is_good else max)(found, key=lambda one: one.value)


def _final(run: StoredRun, score: str) -> float:
    """Return the final mean of a score over nodes, NaN if it is not finite."""
    scores = run.curves["scores"]
    last = scores[check_choice("score", score, list(scores))]["mean"][-1]
    return math.nan if last is None else last


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else shown(value)
