"""Means over runs with their confidence intervals, verdicts on them, and numbers as text."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

from topofl._support.check import check_number, shown
from topofl._support.table import as_text

HOLDS, FAILS, UNDECIDED = "HOLDS", "FAILS", "UNDECIDED"


CONFIDENCE = 0.95
"""Level of the confidence interval that must lie on one side of a threshold."""


ROUNDING = 1e-12
"""Relative tolerance within which an end of an interval touches the threshold."""


@cache
def t_quantile(level: float, k: int) -> float:
    """Return the half-width of the interval for k seeds in standard errors.

    Examples
    --------
    >>> round(t_quantile(0.95, 5), 3)
    2.776
    """
    return float(special.stdtrit(k - 1, (1 + level) / 2))


Quantile = Callable[[float, int], float]
"""``quantile(level, k)``: half-width of the interval for k seeds in standard errors."""


def mean_interval(
    values: Sequence[float] | np.ndarray,
    level: float = CONFIDENCE,
    quantile: Quantile = t_quantile,
) -> tuple[float, float] | None:
    """Return the confidence interval of a mean by Student's t; None for a single value.

    Parameters
    ----------
    values
        (k,) finite numbers, one per seed.
    level
        Probability, between 0 and 1, that the interval contains the mean.
    quantile
        Half-width of the interval in standard errors; by default that of Student's t.

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
    half = float(quantile(level, k) * numbers.std(ddof=1) / np.sqrt(k))
    return mean - half, mean + half


def verdict(
    values: Sequence[float] | np.ndarray,
    bound: float = 0.0,
    sign: int = 1,
    *,
    to_hold: float = CONFIDENCE,
    to_fail: float = CONFIDENCE,
    quantile: Quantile = t_quantile,
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
    quantile
        As for :func:`mean_interval`.

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
        interval = mean_interval(numbers, level, quantile)
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


@dataclass(frozen=True, eq=False)
class Statistic:
    """A number per run, summarized over the runs of each of G groups.

    Parameters
    ----------
    n
        (G,) number of runs that have the number.
    mean
        (G,) mean over these runs; NaN for none.
    std
        (G,) standard deviation with n - 1 degrees of freedom; NaN for less than two runs.
    half
        (G,) half-width of the confidence interval of the mean by Student's t; NaN as `std`.
    """

    n: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    half: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """(G,) standard error of the mean."""
        return self.std / np.sqrt(np.maximum(self.n, 1))


def statistic_of(values: np.ndarray, group_of: np.ndarray, n_groups: int) -> Statistic:
    """Return the statistic of values (R,) in groups; runs whose value is NaN are left out.

    Examples
    --------
    >>> found = statistic_of(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]), 2)
    >>> found.n.tolist(), found.mean.tolist(), found.std.round(3).tolist()
    ([2, 1], [2.0, 5.0], [1.414, nan])
    """
    known = ~np.isnan(values)
    x, g = values[known], group_of[known]
    n = np.bincount(g, minlength=n_groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(g, x, n_groups) / n
        squares = np.bincount(g, (x - mean[g]) ** 2, n_groups)
        std = np.sqrt(np.where(n > 1, squares, np.nan) / (n - 1))
    quantile = np.array([t_quantile(CONFIDENCE, k) if k > 1 else np.nan for k in n.tolist()])
    return Statistic(n, mean, std, quantile * std / np.sqrt(np.maximum(n, 1)))


@dataclass(frozen=True)
class Cell:
    """Text of a number in a table, aligned to the right as numbers are.

    Examples
    --------
    >>> print(Cell("0.81 ± 0.02"))
    0.81 ± 0.02
    """

    text: str

    def __str__(self) -> str:
        return self.text


def decimals_of(error: float) -> int | None:
    """Return the decimals that a standard error leaves meaningful; None if it is 0 or not finite.

    These end at the error's first significant digit or, if that is a 1, at its second, because
    rounding 0.014 to 0.01 would change it by a third. They are negative for errors above 10.

    Examples
    --------
    >>> decimals_of(0.0034), decimals_of(0.0134), decimals_of(0.096), decimals_of(250.0)
    (3, 3, 2, -2)
    """
    if not math.isfinite(error) or error <= 0:
        return None
    digit, exponent = f"{error:.0e}".split("e")  # 0.096 is 0.1 with one digit, and 0.10 with two
    return (digit == "1") - int(exponent)


def with_interval(
    mean: float, interval: tuple[float, float] | None, form: str, *, ends: bool = False
) -> str:
    """Return a mean and its interval with fixed decimals; only the mean without an interval.

    Parameters
    ----------
    mean, interval
        The mean, and what :func:`mean_interval` returns.
    form
        Format of the numbers, such as ``".1f"``, or ``"+.2f"`` with a sign for differences.
    ends
        Whether the ends of the interval are shown in place of its half-width.

    Examples
    --------
    >>> interval = (0.5, 1.5)
    >>> with_interval(1.0, interval, "+.1f"), with_interval(1.0, interval, ".1f", ends=True)
    ('+1.0 ± 0.5', '1.0 (0.5 to 1.5)')
    >>> with_interval(1.0, None, ".2f")
    '1.00'
    """
    if interval is None:
        return f"{mean:{form}}"
    low, high = interval
    if ends:
        return f"{mean:{form}} ({low:{form}} to {high:{form}})"
    return f"{mean:{form}} ± {(high - low) / 2:{form.removeprefix('+')}}"


def rounded(value: float, error: float, half: float | None = None) -> str:
    """Return a mean, and the half-width of its interval, rounded to the digit of its error.

    Parameters
    ----------
    value
        The mean.
    error
        Its standard error; if that is 0 or unknown (NaN), the mean has four digits.
    half
        Half-width of the confidence interval; None or NaN: only the mean.

    Examples
    --------
    >>> rounded(0.812345, 0.0034, 0.0094), rounded(0.812345, math.nan)
    ('0.812 ± 0.009', '0.8123')
    """
    if error <= ROUNDING * max(1.0, abs(value)):  # equal numbers whose mean was rounded
        error, half = 0.0, 0.0 if half is not None and math.isfinite(half) else None
    if not math.isfinite(value):
        return "n/a" if math.isnan(value) else as_text(value)
    decimals = decimals_of(error)
    texts = [
        as_text(number) if decimals is None else _fixed(number, decimals)
        for number in ((value,) if half is None or not math.isfinite(half) else (value, half))
    ]
    return " ± ".join(texts)


def _fixed(number: float, decimals: int) -> str:
    """Return a number with this many decimals, never as minus zero."""
    text = f"{round(float(number), decimals):,.{max(0, decimals)}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text
