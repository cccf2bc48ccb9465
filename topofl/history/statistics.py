"""Statistics over nodes: mean, extremes, variance and worst tenth of their scores."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from topofl._support.check import as_array

__all__ = ["Personal", "evaluation_record", "goodness", "over_nodes"]


@dataclass(frozen=True)
class Personal:
    """Summary of the nodes' own scores: mean, variance, and mean of the worst tenth.

    Parameters
    ----------
    mean
        Mean over nodes with a score, all weighted equally whatever their numbers of examples.
    variance
        Mean squared deviation from `mean`, over the same nodes.
    worst_tenth
        Mean over the worst tenth of these nodes, rounded down, but at least one node.
    n
        Number of nodes with a score.
    without
        Number of nodes without a score: they have no examples in the set, or were not evaluated.

    Examples
    --------
    >>> accuracies = np.array([0.5, 0.75, 1.0])
    >>> summary = Personal.of(accuracies)
    >>> summary.mean, summary.worst_tenth, summary.n
    (0.75, 0.5, 3)
    """

    mean: float
    variance: float
    worst_tenth: float
    n: int
    without: int

    @classmethod
    def of(cls, values: Any, *, low_is_good: bool = False) -> "Personal":
        """Return the summary of scores (n,); NaN stands for nodes without a score.

        If no node has a score, the statistics are NaN.

        Parameters
        ----------
        values
            For example ``history.best_on_validation()``.
        low_is_good
            Whether the worst scores are the largest, as for losses.

        Raises
        ------
        ValueError
            If the shape of `values` is not (n,).

        Examples
        --------
        >>> Personal.of([0.5, 1.0, float("nan")])
        Personal(mean=0.75, variance=0.0625, worst_tenth=0.5, n=2, without=1)
        """
        values = as_array("values", values, np.float64)
        if values.ndim != 1:
            raise ValueError(
                f"`values` must be one number per node, (n,), got shape {values.shape}; take "
                "history.last()"
            )
        known = np.sort(values[~np.isnan(values)])
        without = len(values) - len(known)
        if len(known) == 0:
            return cls(math.nan, math.nan, math.nan, 0, without)
        worst_first = known[::-1] if low_is_good else known
        worst = worst_first[: max(1, len(known) // 10)]
        with np.errstate(invalid="ignore"):  # infinite losses have no variance
            mean, variance = float(known.mean()), float(known.var())
            return cls(mean, variance, float(worst.mean()), len(known), without)


def over_nodes(values: np.ndarray) -> dict[str, np.ndarray]:
    """Return mean, min and max over the last axis, ignoring NaN; NaN if all entries are NaN.

    Examples
    --------
    >>> {name: value.tolist() for name, value in over_nodes(np.array([[1, 3, np.nan]])).items()}
    {'mean': [2.0], 'min': [1.0], 'max': [3.0]}
    """
    known = ~np.isnan(values)
    count = known.sum(-1)
    with np.errstate(invalid="ignore"):  # 0 / 0, and the sum of infinities of both signs
        mean = np.where(known, values, 0.0).sum(-1) / count
    lowest = np.where(known, values, np.inf).min(-1)
    highest = np.where(known, values, -np.inf).max(-1)
    return {
        "mean": mean,
        "min": np.where(count > 0, lowest, np.nan),
        "max": np.where(count > 0, highest, np.nan),
    }


def goodness(values: np.ndarray, low_is_good: bool) -> np.ndarray:
    """Return finite numbers that are larger for better scores, and -inf for NaN."""
    signed = -values if low_is_good else values
    largest = np.finfo(np.float64).max
    return np.where(np.isnan(values), -np.inf, np.clip(signed, -largest, largest))


def evaluation_record(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Return one evaluation as in ``rounds.jsonl``, with statistics such as ``accuracy_mean``.

    Examples
    --------
    >>> evaluation_record({"round": 10, "accuracy": np.array([0.5, 1.0])})
    {'round': 10, 'accuracy_mean': 0.75, 'accuracy_min': 0.5, 'accuracy_max': 1.0}
    """
    record = {}
    for name, value in evaluation.items():
        if np.ndim(value) == 1:
            record |= {f"{name}_{key}": float(number) for key, number in over_nodes(value).items()}
        else:
            record[name] = int(value) if name == "round" else float(value)
    return record
