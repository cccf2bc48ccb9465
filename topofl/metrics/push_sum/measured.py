"""Convergence rate of push-sum, measured on products of rounds."""

import math

import numpy as np

from topofl.metrics.averaging.dobrushin import ergodicity_coefficient
from topofl.mixing import MixingSequence

__all__ = ["measured_rate", "smallest_push_weight"]

STARTS = 5
"""Number of evenly spaced windows over which contraction is measured."""

FLOOR = 1e-12
"""Ergodicity coefficients below this are rounding errors."""


def measured_rate(source: MixingSequence, rounds: int, by_rows: bool) -> tuple[float, float]:
    """Return q_hat and c_hat of the largest ergodicity coefficient over all windows."""
    coefficients = np.array(_ergodicity_coefficients(source, rounds, by_rows))
    q = _slope(coefficients, source.period or 1)
    times = np.arange(len(coefficients))
    if q == 0:
        return 0.0, math.inf
    with np.errstate(divide="ignore"):
        return q, float(np.exp(np.max(np.log(coefficients) - times * math.log(q))))


def _ergodicity_coefficients(source: MixingSequence, rounds: int, by_rows: bool) -> list[float]:
    """Return the largest coefficient of any window of 0, 1, 2, ... rounds."""
    starts = _window_starts(source, rounds)
    products = [np.eye(source.n) for _ in starts]
    largest = [1.0 if source.n > 1 else 0.0]
    length = rounds if source.period else rounds - max(starts)
    for t in range(length):
        products = [
            source.at(s + t).weights @ product for s, product in zip(starts, products, strict=True)
        ]
        largest.append(
            max(ergodicity_coefficient(product if by_rows else product.T) for product in products)
        )
        if largest[-1] < FLOOR:
            largest[-1] = 0.0
            break
    return largest


def _window_starts(source: MixingSequence, rounds: int) -> list[int]:
    if source.period:
        return sorted(
            {round(s) for s in np.linspace(0, source.period - 1, min(STARTS, source.period))}
        )
    return sorted(
        {int(s) for s in np.linspace(0, rounds / 2, STARTS)} if rounds >= 2 * STARTS else {0}
    )


def _slope(coefficients: np.ndarray, period: int) -> float:
    """Return the factor per round, exp of the slope of log tau(t); 0 if averaging becomes exact."""
    times = np.flatnonzero((coefficients > FLOOR) & (coefficients <= 0.5))
    if len(times) < 2:
        if coefficients[-1] <= FLOOR:
            return 0.0
        times = np.arange(len(coefficients) // 2, len(coefficients))
    if len(times) < 2:
        return float(coefficients[-1])
    q = float(min(1.0, np.exp(np.polyfit(times, np.log(coefficients[times]), 1)[0])))
    # A geometric sequence approaches the floor before it drops below it, up to variation within a
    # period. A sequence that drops from far above it has become exact.
    return 0.0 if coefficients[-1] <= FLOOR < coefficients[-2] * q ** (2 * max(period, 2)) else q


def smallest_push_weight(source: MixingSequence, rounds: int) -> float:
    """Return the smallest push-sum weight in any round; 1 if rows always sum to 1."""
    weights = np.ones(source.n)
    smallest = 1.0
    for t in range(rounds):
        matrix = source.at(t)
        if matrix.is_row_stochastic:
            if (weights == 1).all():
                continue
            if not matrix.is_column_stochastic:
                break
        weights = matrix @ weights
        smallest = min(smallest, float(weights.min()))
    return smallest
