"""Confidence intervals of means over seeds, and verdicts on whether a mean is beyond a bound."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy import special

from topofl._support.check import check_number, shown

__all__ = [
    "CONFIDENCE",
    "FAILS",
    "HOLDS",
    "ROUNDING",
    "UNDECIDED",
    "as_numbers",
    "mean_interval",
    "t_quantile",
    "verdict",
]

HOLDS, FAILS, UNDECIDED = "HOLDS", "FAILS", "UNDECIDED"


CONFIDENCE = 0.95
"""Level of the confidence interval that must lie on one side of a threshold."""


ROUNDING = 1e-12
"""Relative tolerance within which an end of an interval touches the threshold."""


def mean_interval(
    values: Sequence[float] | np.ndarray, level: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return the confidence interval of a mean by Student's t; None for a single value.

    Parameters
    ----------
    values
        (k,) finite numbers, one per seed.
    level
        Probability, between 0 and 1, that the interval contains the mean.

    Raises
    ------
    ValueError
        If there is no value, or one is not finite.

    Examples
    --------
    >>> low, high = mean_interval([1.0, 1.2, 0.9])
    >>> round(low, 3), round(high, 3)
    (0.654, 1.413)
    """
    numbers = as_numbers(values)
    k, mean = len(numbers), float(numbers.mean())
    if k == 1:
        return None
    half = float(t_quantile(level, k) * numbers.std(ddof=1) / np.sqrt(k))
    return mean - half, mean + half


def verdict(
    values: Sequence[float] | np.ndarray,
    bound: float = 0.0,
    sign: int = 1,
    *,
    to_hold: float = CONFIDENCE,
    to_fail: float = CONFIDENCE,
) -> str:
    """Return the verdict on whether a mean over seeds is beyond a bound.

    Parameters
    ----------
    values
        (k,) finite numbers, one per seed.
    bound
        The threshold.
    sign
        The claimed side: 1 above the bound, -1 below it.
    to_hold, to_fail
        Levels of the interval that must lie on the claimed side to hold, or on the other to fail.

    Returns
    -------
    str
        :data:`HOLDS`, :data:`FAILS` or :data:`UNDECIDED`, which is also the verdict on a single
        value and on intervals that touch the bound up to rounding.

    Raises
    ------
    ValueError
        As :func:`mean_interval`.

    Examples
    --------
    >>> verdict([1.0, 1.2, 0.9]), verdict([1.0, 1.2, 0.9], 1.0), verdict([1.0])
    ('HOLDS', 'UNDECIDED', 'UNDECIDED')
    """
    numbers = as_numbers(values)
    bound = check_number("bound", bound)
    slack = ROUNDING * (1 + max(abs(bound), float(np.abs(numbers).max())))
    for found, side, level in ((HOLDS, sign, to_hold), (FAILS, -sign, to_fail)):
        interval = mean_interval(numbers, level)
        if interval is not None and min(side * (end - bound) for end in interval) > slack:
            return found
    return UNDECIDED


def as_numbers(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return values as a float64 vector, or raise ``ValueError`` if they are not finite numbers.

    Examples
    --------
    >>> as_numbers([1, 2])
    array([1., 2.])
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise ValueError(
            "`values` must be finite numbers, one per seed for at least one seed, got "
            f"{shown(values)}"
        )
    return numbers


@cache
def t_quantile(level: float, k: int) -> float:
    """Return the half-width of the interval for k seeds in standard errors.

    Examples
    --------
    >>> round(t_quantile(0.95, 5), 3)
    2.776
    """
    return float(special.stdtrit(k - 1, (1 + level) / 2))
