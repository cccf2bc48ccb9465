"""Statistics over nodes: mean, extremes, variance and worst tenth of their scores."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from topofl._support.check import as_array


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
        with np.errstate(invalid="ignore"):  # infinite losses have no variance
            mean, variance = float(known.mean()), float(known.var())
            return cls(mean, variance, _worst_tenth(known, low_is_good), len(known), without)


def _worst_tenth(known: np.ndarray, low_is_good: bool) -> float:
    """Return the mean of the worst tenth of sorted numbers, rounded down, but at least one."""
    worst_first = known[::-1] if low_is_good else known
    return float(worst_first[: max(1, len(known) // 10)].mean())


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


def spread_over_nodes(values: np.ndarray, low_is_good: bool) -> dict[str, np.ndarray]:
    """Return mean, worst, worst tenth, best and standard deviation over the last axis of (E, n).

    Examples
    --------
    >>> found = spread_over_nodes(np.array([[0.5, 1.0, np.nan]]), low_is_good=False)
    >>> {name: value.tolist() for name, value in found.items()}
    {'mean': [0.75], 'worst': [0.5], 'worst_tenth': [0.5], 'best': [1.0], 'std': [0.25]}
    """
    values = values.astype(np.float64)
    known = ~np.isnan(values)
    count = known.sum(-1)
    found = over_nodes(values)
    lowest, highest = found["min"], found["max"]
    with np.errstate(invalid="ignore"):  # infinite losses have no deviation
        squares = np.where(known, values - found["mean"][:, None], 0.0) ** 2
        tenths = [
            _worst_tenth(np.sort(row[own]), low_is_good) if own.any() else math.nan
            for row, own in zip(values, known, strict=True)
        ]
        return {
            "mean": found["mean"],
            "worst": highest if low_is_good else lowest,
            "worst_tenth": np.array(tenths),
            "best": lowest if low_is_good else highest,
            "std": np.sqrt(squares.sum(-1) / count),
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


def records_of(
    rounds: Mapping[str, np.ndarray], evaluations: Mapping[str, np.ndarray], n_rounds: int
) -> list[dict[str, Any]]:
    """Return one dict of numbers per round, round 0 first; they may be NaN or infinite."""
    found: list[dict[str, Any]] = [{"round": t} for t in range(n_rounds + 1)]
    for name, column in rounds.items():
        for t, value in enumerate(column.tolist(), start=1):
            found[t][name] = value
    for k, t in enumerate(evaluations["round"].tolist()):
        found[t] |= evaluation_record({name: column[k] for name, column in evaluations.items()})
    return found
