"""Judge claims by confidence intervals over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from topofl import Spread
from topofl.summary.verdicts import as_numbers, mean_interval, verdict

from .claims import CONFIDENCE, FAILS, HOLDS, PAPER, UNDECIDED, Claim, Part

ROUNDING = 1e-12
"""Tolerance added to that of :func:`judge_number`, for numbers that are equal up to rounding."""


def judge_seeds(
    statement: str,
    statistic: str,
    values: Sequence[float] | np.ndarray,
    *,
    why: str,
    at_least: float | None = None,
    at_most: float | None = None,
    paper: str = "",
    kind: str = PAPER,
) -> Claim:
    """Return the claim that a statistic's mean over seeds is at least, or at most, a threshold.

    HOLDS if the 95 % confidence interval of the mean (Student's t, from the spread between seeds)
    lies entirely on the claimed side of the threshold, FAILS if it lies on the other side.
    UNDECIDED if it contains the threshold or, up to rounding, touches it (as when the threshold is
    0 and there is no difference), or if there is only one seed. Either verdict is therefore wrong
    in at most one case in forty.

    Parameters
    ----------
    statement, statistic, paper, kind
        See :class:`Claim`.
    values
        The statistic, one value per seed. Arms are compared by their differences for the same seed.
        If several differences must all be on the claimed side, use :func:`judge_every` rather than
        their extreme, because the highest of several noisy arms is biased upward.
    why
        Reason for the threshold.
    at_least, at_most
        The threshold; exactly one of the two.

    Raises
    ------
    ValueError
        If there is no value, a value is not finite, or not exactly one threshold is given.

    Examples
    --------
    >>> leads = [1.0, 1.2, 0.9]
    >>> claim = judge_seeds("A is better.", "A - B, points", leads, at_least=0, why="any lead")
    >>> claim.verdict
    'HOLDS'
    """
    bound, sign = _threshold(at_least, at_most)
    numbers = as_numbers(values)
    interval = mean_interval(numbers)
    return Claim(
        statement,
        statistic,
        f"{_relation(bound, sign)}: {why}",
        _spread(numbers),
        paper,
        verdict(numbers, bound, sign),
        kind,
        interval,
    )


def judge_every(
    statement: str,
    statistic: str,
    values: Mapping[str, Sequence[float] | np.ndarray],
    *,
    why: str,
    at_least: float | None = None,
    at_most: float | None = None,
    paper: str = "",
    kind: str = PAPER,
    of_means: float | None = None,
) -> Claim:
    """Return the claim that every statistic passes a threshold, as in "better than all others".

    This is an intersection-union test. HOLDS if the 95 % confidence interval of each statistic's
    mean lies on the claimed side. No correction for their number is needed: the claim is false as
    soon as one comparison is, and that one is accepted in at most one case in forty (Berger 1982).
    FAILS if at least one of the m statistics lies on the other side by its interval at the level
    1 - 0.05 / m (Bonferroni), so that a true claim fails in at most one case in forty. UNDECIDED
    otherwise.

    Parameters
    ----------
    statement, statistic, why, at_least, at_most, paper, kind
        As in :func:`judge_seeds`.
    values
        Statistics by name of the comparison, one value per seed: differences between arms of the
        same seed.
    of_means
        See :class:`Claim`.

    Raises
    ------
    ValueError
        If `values` is empty, and as :func:`judge_seeds`.

    References
    ----------
    Berger, "Multiparameter hypothesis testing and acceptance sampling" (Technometrics 24, 1982).

    Examples
    --------
    >>> leads = {"B": [1.0, 1.2, 0.9], "C": [0.1, -0.2, 0.2]}
    >>> claim = judge_every("A is best.", "A - others, points", leads, at_least=0, why="any lead")
    >>> claim.verdict, claim.shown_part.name
    ('UNDECIDED', 'C')
    """
    bound, sign = _threshold(at_least, at_most)
    return _judge_parts(
        Claim(
            statement,
            statistic,
            f"{_relation(bound, sign)}, each: {why}",
            0.0,
            paper,
            "",
            kind,
            of_means=of_means,
        ),
        values,
        bound,
        sign,
        any_holds=False,
    )


def judge_any(
    statement: str,
    statistic: str,
    values: Mapping[str, Sequence[float] | np.ndarray],
    *,
    why: str,
    at_least: float | None = None,
    at_most: float | None = None,
    paper: str = "",
    kind: str = PAPER,
) -> Claim:
    """Return the claim that at least one of several statistics passes a threshold.

    The counterpart of :func:`judge_every`: HOLDS if one of the m intervals at the level
    1 - 0.05 / m lies on the claimed side, FAILS if all 95 % intervals lie on the other side.

    Parameters
    ----------
    statement, statistic, values, why, at_least, at_most, paper, kind
        As in :func:`judge_every`.

    Raises
    ------
    ValueError
        As :func:`judge_every`.

    Examples
    --------
    >>> gaps = {"ring": [12.0, 12.5, 11.8], "grid": [1.0, 1.2, 0.9]}
    >>> claim = judge_any("One is slow.", "gap, points", gaps, at_least=10, why="a tenth")
    >>> claim.verdict
    'HOLDS'
    """
    bound, sign = _threshold(at_least, at_most)
    return _judge_parts(
        Claim(
            statement,
            statistic,
            f"{_relation(bound, sign)}, at least one: {why}",
            0.0,
            paper,
            "",
            kind,
        ),
        values,
        bound,
        sign,
        any_holds=True,
    )


def _judge_parts(
    claim: Claim,
    values: Mapping[str, Sequence[float] | np.ndarray],
    bound: float,
    sign: int,
    *,
    any_holds: bool,
) -> Claim:
    """Return a claim with its verdict, its parts and the number of the most critical part."""
    if not values:
        raise ValueError("`values` must contain at least one statistic, got none")
    strict = 1 - (1 - CONFIDENCE) / len(values)
    to_hold, to_fail = (strict, CONFIDENCE) if any_holds else (CONFIDENCE, strict)
    numbers = {name: as_numbers(row) for name, row in values.items()}
    parts = tuple(
        Part(
            name,
            _spread(row),
            mean_interval(row),
            mean_interval(row, strict),
            verdict(row, bound, sign, to_hold=to_hold, to_fail=to_fail),
        )
        for name, row in numbers.items()
    )
    verdicts = {part.verdict for part in parts}
    if any_holds:
        found = HOLDS if HOLDS in verdicts else FAILS if verdicts == {FAILS} else UNDECIDED
    else:
        found = FAILS if FAILS in verdicts else HOLDS if verdicts == {HOLDS} else UNDECIDED
    shown = (max if any_holds else min)(parts, key=lambda part: sign * part.ours.mean)
    return replace(claim, ours=shown.ours, interval=shown.interval, parts=parts, verdict=found)


def _threshold(at_least: float | None, at_most: float | None) -> tuple[float, int]:
    """Return the threshold, and the sign of the claimed side: 1 above, -1 below."""
    if at_least is not None and at_most is None:
        return at_least, 1
    if at_most is not None and at_least is None:
        return at_most, -1
    raise ValueError("exactly one of `at_least` and `at_most` must be given")


def _relation(bound: float, sign: int) -> str:
    return f"{'≥' if sign > 0 else '≤'} {bound:g}"


def _spread(numbers: np.ndarray) -> Spread:
    return Spread(float(numbers.mean()), float(numbers.min()), float(numbers.max()))


def judge_number(
    statement: str,
    statistic: str,
    value: float,
    expected: float,
    *,
    within: float,
    why: str,
    paper: str = "",
    kind: str = PAPER,
) -> Claim:
    """Return the claim that a number independent of training is as expected: HOLDS or FAILS.

    Parameters
    ----------
    statement, statistic, paper, kind
        See :class:`Claim`.
    value, expected, within
        HOLDS if ``|value - expected| <= within``, up to rounding.
    why
        Reason for the tolerance.

    Examples
    --------
    >>> judge_number("A ring is sparse.", "degree", 2, 2, within=0, why="two neighbors").verdict
    'HOLDS'
    """
    found = HOLDS if abs(value - expected) <= within * (1 + 1e-9) + ROUNDING else FAILS
    threshold = f"{expected:g} ± {within:g}: {why}" if within else f"= {expected:g}: {why}"
    return Claim(statement, statistic, threshold, float(value), paper, found, kind)


def rank_correlation(
    a: Sequence[float] | np.ndarray | range, b: Sequence[float] | np.ndarray
) -> float:
    """Return Spearman's rank correlation, 0 if all values of `a` or of `b` are equal.

    Examples
    --------
    >>> round(rank_correlation([1, 2, 3], [10, 30, 20]), 6)
    0.5
    """
    ranks = np.array([stats.rankdata(a), stats.rankdata(b)])
    return float(np.corrcoef(ranks)[0, 1]) if ranks.std(axis=1).all() else 0.0
