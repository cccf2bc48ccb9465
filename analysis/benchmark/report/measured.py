"""The measurements of a case: step times, ratios to the floor, and reasons for missing values."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from topofl import NotApplicable

from ..cases import Case

NOT_REQUESTED = NotApplicable("not requested")


@dataclass(frozen=True)
class Measured:
    """Measurements of a case.

    Parameters
    ----------
    case
        The timed case, with the simulator's step time if it was measured in the same run.
    seconds
        Seconds of every step by method: an executor's name, ``"floor batched"``, ``"floor looped"``
        or ``"simulator"``.
    skipped
        Method -> reason why it is not in `seconds`.
    naive
        Seconds per step of the naive loop, or the reason why there are none.
    naive_nodes
        Number of nodes with which the naive loop ran.
    chosen
        What ran: name and chunk of each executor, all of them if they differed between turns; the
        fastest variant of each floor.
    memory
        Executor -> peak and lower bound in bytes, or the reason why there are none.
    """

    case: Case
    seconds: Mapping[str, Sequence[float]]
    skipped: Mapping[str, str] = field(default_factory=dict)
    naive: float | NotApplicable = NOT_REQUESTED
    naive_nodes: int = 0
    chosen: Mapping[str, str] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)

    def step(self, way: str) -> float | NotApplicable:
        """Return the median step time of a method, or the reason why there is none."""
        if way in self.seconds:
            return statistics.median(self.seconds[way])
        return NotApplicable(self.skipped.get(way, "not requested"))

    def floor(self, executor: str) -> float | NotApplicable:
        """Return the median step time of an executor's floor; of the lower floor for ``"auto"``."""
        if executor != "auto":
            return self.step(f"floor {executor}")
        both = [self.step("floor batched"), self.step("floor looped")]
        return min((step for step in both if isinstance(step, float)), default=both[0])

    def ratio(self, executor: str) -> float | NotApplicable:
        """Return the ratio of an executor's step time to its floor's."""
        return quotient(self.step(executor), self.floor(executor))

    def auto_over_better(self) -> float | NotApplicable:
        """Return the ratio of the step time of ``"auto"`` to that of the faster executor.

        If ``"auto"`` ran the same plan as an executor in every turn, their steps are pooled.
        """
        executors, ran = ("batched", "looped"), self.chosen.get("auto", " or ")
        same = [one for one in executors if " or " not in ran and self.chosen.get(one) == ran]
        pooled = [seconds for way in ("auto", *same) for seconds in self.seconds.get(way, [])]
        auto = statistics.median(pooled) if pooled else self.step("auto")
        better = [quotient(auto, auto if one in same else self.step(one)) for one in executors]
        reason = first_reason(*better)
        return max(r for r in better if isinstance(r, float)) if reason is None else reason


def quotient(above: Any, below: Any) -> float | NotApplicable:
    """Return the ratio of two numbers, or the reason of the first that is missing."""
    missing = first_reason(above, below)
    return above / below if missing is None else missing


def first_reason(*cells: Any) -> NotApplicable | None:
    """Return the first missing value, or None."""
    return next((cell for cell in cells if isinstance(cell, NotApplicable)), None)
