"""Claims of a paper, judged by numbers with their spread over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from topofl import Spread, Table
from topofl._table import as_text

__all__ = ["FAILS", "HOLDS", "UNDECIDED", "Claim", "claims_table", "judge_number", "judge_seeds", "ours_of", "points",
           "rank_correlation", "said_by"]  # fmt: skip

HOLDS, FAILS, UNDECIDED = "HOLDS", "FAILS", "UNDECIDED"

CONFIDENCE = 0.95
"""Of the interval for the mean over seeds that a claim needs on one side of its threshold."""

ROUNDING = 1e-12
"""Numbers that differ from a threshold by no more than this, or this share of their size, meet it up to rounding."""


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper and what our numbers say of it.

    Parameters
    ----------
    statement
        What the paper says, in our words.
    statistic
        The number that decides it, with its unit.
    threshold
        What the number must be for the claim to hold and why that value: chosen from the paper's words before this
        figure's runs were looked at, unless the reason says otherwise.
    ours
        The number: its mean over seeds with the lowest and the highest, or one that does not depend on seeds.
    paper
        The paper's own number, if it gives one.
    verdict
        :data:`HOLDS`, :data:`FAILS` or :data:`UNDECIDED`.
    check
        Whether the paper does not say it, but we compare ourselves with somebody else's numbers.
    interval
        The 95 % confidence interval that was compared with the threshold; None if there was none.
    """

    statement: str
    statistic: str
    threshold: str
    ours: Spread | float
    paper: str
    verdict: str
    check: bool = False
    interval: tuple[float, float] | None = None


def judge_seeds(
    statement: str,
    statistic: str,
    values: Sequence[float] | np.ndarray,
    *,
    why: str,
    at_least: float | None = None,
    at_most: float | None = None,
    paper: str = "",
) -> Claim:
    """Return the claim that the mean of a statistic over seeds is at least, or at most, a threshold.

    HOLDS if the 95 % confidence interval of the mean (Student's t, from the spread between seeds) lies wholly on the
    claimed side of the threshold, FAILS if it lies on the other, UNDECIDED if it contains or touches it up to rounding
    (as when any difference would count and there is none), or if there is only one seed.

    Parameters
    ----------
    statement, statistic, paper
        See :class:`Claim`.
    values
        The statistic, one value a seed; compare arms of the same seed and give their differences.
    why
        Why the threshold is what it is.
    at_least, at_most
        The threshold; exactly one of them.

    Raises
    ------
    ValueError
        If there is no value, one is not finite, or not exactly one threshold is given.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if (at_least is None) == (at_most is None):
        raise ValueError("exactly one of `at_least` and `at_most` must be given")
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise ValueError(f"`values` must be finite numbers, one for each of one or more seeds, got {values!r}")
    bound, sign = (at_least, 1) if at_least is not None else (at_most, -1)
    threshold = f"{'≥' if sign > 0 else '≤'} {bound:g}: {why}"
    ours = Spread(float(numbers.mean()), float(numbers.min()), float(numbers.max()))
    interval = _interval(numbers)
    rounding = ROUNDING * max(1.0, abs(bound), float(np.abs(numbers).max()))
    verdict = UNDECIDED if interval is None else _verdict(*sorted(sign * (end - bound) for end in interval), rounding)
    return Claim(statement, statistic, threshold, ours, paper, verdict, interval=interval)


def _interval(numbers: np.ndarray) -> tuple[float, float] | None:
    """Return the confidence interval of the mean, None for a single number."""
    k, mean = len(numbers), float(numbers.mean())
    if k == 1:
        return None
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, k - 1) * numbers.std(ddof=1) / np.sqrt(k))
    return mean - half, mean + half


def _verdict(low: float, high: float, rounding: float) -> str:
    """Return the verdict on the claim that what lies in this interval is positive, by more than rounding."""
    if low > rounding:
        return HOLDS
    return FAILS if high < -rounding else UNDECIDED


def said_by(claim: Claim) -> str:
    """Return the statement as it is shown."""
    return ("Check: " if claim.check else "") + claim.statement


def ours_of(claim: Claim) -> str:
    """Return our number as it is shown, with the interval that decides."""
    if claim.interval is None:
        return as_text(claim.ours)
    low, high = map(as_text, claim.interval)
    return f"{as_text(claim.ours)}; {100 * CONFIDENCE:g} % interval {low} to {high}"


def judge_number(
    statement: str,
    statistic: str,
    value: float,
    expected: float,
    *,
    within: float,
    why: str,
    paper: str = "",
    check: bool = False,
) -> Claim:
    """Return the claim that a number which no training decides is as expected: HOLDS or FAILS.

    Parameters
    ----------
    statement, statistic, paper, check
        See :class:`Claim`.
    value, expected, within
        HOLDS if ``|value - expected| <= within``, up to rounding.
    why
        Why so far and no farther.
    """
    verdict = HOLDS if abs(value - expected) <= within * (1 + 1e-9) + ROUNDING else FAILS
    threshold = f"{expected:g} ± {within:g}: {why}" if within else f"= {expected:g}: {why}"
    return Claim(statement, statistic, threshold, float(value), paper, verdict, check)


def claims_table(claims: Sequence[Claim], title: str = "") -> Table:
    """Return one row a claim."""
    columns = ("claim", "statistic", "holds if", "ours", "paper", "verdict")
    rows: list[tuple[Any, ...]] = [
        (said_by(c), c.statistic, c.threshold, ours_of(c), c.paper or "-", c.verdict) for c in claims
    ]
    return Table(columns, tuple(rows), title=title)


def rank_correlation(a: Sequence[float] | np.ndarray | range, b: Sequence[float] | np.ndarray) -> float:
    """Return Spearman's rank correlation, 0 if all numbers of one side are equal."""
    ranks = np.array([stats.rankdata(a), stats.rankdata(b)])
    return float(np.corrcoef(ranks)[0, 1]) if ranks.std(axis=1).all() else 0.0


def points(value: float | None) -> str:
    """Return a difference in percentage points as it is shown, nothing if there is none."""
    return "" if value is None else f"{value:+.2f} points"
