"""Claims of a paper: how confidence intervals over seeds judge them, and their text in reports."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from topofl import Spread, Table
from topofl.summary.verdicts import (
    CONFIDENCE,
    FAILS,
    HOLDS,
    UNDECIDED,
    Quantile,
    as_numbers,
    mean_interval,
    t_quantile,
    verdict,
)
from topofl.toolkit import as_text, check_choice

PAPER, CHECK, OUR_QUESTION = "paper", "check", "ours"


KINDS = (PAPER, CHECK, OUR_QUESTION)
"""The source of a claim: the paper, a check against another implementation, or ours."""


class Bound(NamedTuple):
    """The values for which a claim holds, with the reason for them.

    See :func:`at_least`, :func:`at_most` and :func:`exactly`. If the claim orders methods, the
    statistic of equal methods is `tie`, 0 for differences and 1 for ratios; else it is None.
    """

    value: float
    why: str
    sign: int
    within: float = 0.0
    tie: float | None = None

    def text(self, which: str = "") -> str:
        """Return the bound with its reason as text; `which` names the comparisons it is for."""
        if self.sign:
            shown = f"{'≥' if self.sign > 0 else '≤'} {self.value:g}"
        else:
            shown = f"{self.value:g} ± {self.within:g}" if self.within else f"= {self.value:g}"
        return f"{shown}{which}: {self.why}"


class Evidence(NamedTuple):
    """What a claim on training is judged by.

    Parameters
    ----------
    values
        One value per seed, by name of the comparison; the name of a single statistic is empty.
    bound
        The values for which the claim holds.
    any_of
        Whether one of several comparisons on the claimed side is enough.
    """

    values: tuple[tuple[str, tuple[float, ...]], ...]
    bound: Bound
    any_of: bool = False

    @property
    def levels(self) -> tuple[float, float]:
        """Levels of the intervals of comparisons that must hold, and that must fail.

        One of them is corrected for the number of comparisons (Bonferroni).
        """
        strict = corrected_level(len(self.values))
        return (strict, CONFIDENCE) if self.any_of else (CONFIDENCE, strict)

    @property
    def order(self) -> tuple[str, str]:
        """The verdict for which one comparison is enough, and that which needs all of them."""
        return (HOLDS, FAILS) if self.any_of else (FAILS, HOLDS)

    def verdict(self, found: Collection[str]) -> str:
        """Return the verdict on a claim whose comparisons have these verdicts."""
        enough, needed = self.order
        return enough if enough in found else needed if set(found) == {needed} else UNDECIDED


def corrected_level(m: int) -> float:
    """Return the level of intervals of m comparisons, one of which is enough for a verdict."""
    return 1 - (1 - CONFIDENCE) / m


@dataclass(frozen=True)
class Part:
    """One comparison of a claim that combines several.

    Parameters
    ----------
    name
        Name of the comparison, for example the other method.
    ours
        Mean over seeds of the compared statistic, with its lowest and highest value.
    interval
        The 95 % confidence interval of the mean; None with a single seed.
    corrected
        The wider interval, at the level corrected for the number of comparisons.
    verdict
        Verdict of this comparison at the level that :func:`judge` sets.
    """

    name: str
    ours: Spread
    interval: tuple[float, float] | None
    corrected: tuple[float, float] | None
    verdict: str


@dataclass(frozen=True)
class Claim:
    """One claim of a paper, judged by our numbers.

    Parameters
    ----------
    statement
        The paper's claim in our words.
    statistic
        The number that decides the claim, with its unit.
    threshold
        The values for which the claim holds, with a reason. They were chosen from the paper's words
        before the results of this figure's runs were known, unless the reason says otherwise.
    ours
        Our value of the statistic: its mean over seeds with the lowest and highest value, or a
        number that does not depend on seeds.
    paper
        The paper's own number, or an empty string.
    verdict
        :data:`HOLDS`, :data:`FAILS` or :data:`UNDECIDED`.
    kind
        One of :data:`KINDS`. Only claims that the paper itself makes count in headlines.
    interval
        The 95 % confidence interval that was compared with the threshold, or None. For a claim with
        `parts`, the interval of the part that is shown.
    parts
        The comparisons of a claim on several arms. `ours` is the one whose mean over seeds is
        closest to refuting the claim; for differences this is the difference of the means, which
        is what papers print.
    of_means
        For a claim on ratios, the ratio of the means over seeds, comparable with the paper's.
    evidence
        What a claim on training is judged by; None if more seeds cannot change the verdict, and
        for numbers that do not depend on seeds.
    """

    statement: str
    statistic: str
    threshold: str
    ours: Spread | float
    paper: str
    verdict: str
    kind: str = PAPER
    interval: tuple[float, float] | None = None
    parts: tuple[Part, ...] = ()
    of_means: float | None = None
    evidence: Evidence | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)

    @property
    def shown_part(self) -> Part | None:
        """The part whose number is `ours`; None for a claim without parts."""
        return next((part for part in self.parts if part.ours == self.ours), None)


ROUNDING = 1e-12
"""Tolerance added to that of :func:`exactly`, for numbers that are equal up to rounding."""


def at_least(value: float, why: str, *, tie: float | None = None) -> Bound:
    """Return the bound of claims that hold from a value on."""
    return Bound(value, why, 1, tie=tie)


def at_most(value: float, why: str, *, tie: float | None = None) -> Bound:
    """Return the bound of claims that hold up to a value."""
    return Bound(value, why, -1, tie=tie)


def exactly(value: float, why: str, *, within: float = 0.0) -> Bound:
    """Return the bound of claims on numbers that do not depend on seeds, with a tolerance."""
    return Bound(value, why, 0, within)


def judge(
    statement: str,
    statistic: str,
    values: float | Sequence[float] | np.ndarray | Mapping[str, Sequence[float] | np.ndarray],
    bound: Bound,
    *,
    paper: str = "",
    kind: str = PAPER,
    any_of: bool = False,
    of_means: float | None = None,
) -> Claim:
    """Return a claim with its verdict.

    A claim on one value per seed HOLDS if the 95 % confidence interval of the mean (Student's t,
    from the spread between seeds) lies entirely on the claimed side of the bound, and FAILS if it
    lies on the other side. It is UNDECIDED if it contains the bound or, up to rounding, touches it
    (as when the bound is 0 and there is no difference), or if there is only one seed. Either
    verdict is therefore wrong in at most one case in forty.

    A claim on several statistics, as in "better than all others", is an intersection-union test.
    It HOLDS if the interval of each statistic's mean lies on the claimed side. No correction for
    their number is needed: the claim is false as soon as one comparison is, and that one is
    accepted in at most one case in forty (Berger 1982). It FAILS if at least one of the m
    statistics lies on the other side by its interval at the level 1 - 0.05 / m (Bonferroni), so
    that a true claim fails in at most one case in forty. With `any_of`, as in "at least one is
    better", levels and verdicts are exchanged: HOLDS if one of the intervals at the level
    1 - 0.05 / m lies on the claimed side, FAILS if all 95 % intervals lie on the other side.

    Parameters
    ----------
    statement, statistic, paper, kind, of_means
        See :class:`Claim`.
    values
        The statistic, one value per seed, or by the name of the comparison; arms are compared by
        their differences for the same seed. If several differences must all be on the claimed side,
        name them all rather than their extreme, because the highest of several noisy arms is biased
        upward. For a bound of :func:`exactly`, a number that does not depend on training.
    bound
        The values for which the claim holds.
    any_of
        Whether one of several comparisons on the claimed side is enough.

    Raises
    ------
    ValueError
        If there is no value, or a value is not finite.

    References
    ----------
    Berger, "Multiparameter hypothesis testing and acceptance sampling" (Technometrics 24, 1982).

    Examples
    --------
    >>> any_lead = at_least(0, "any lead")
    >>> judge("A is better.", "A - B, points", [1.0, 1.2, 0.9], any_lead).verdict
    'HOLDS'
    >>> leads = {"B": [1.0, 1.2, 0.9], "C": [0.1, -0.2, 0.2]}
    >>> claim = judge("A is best.", "A - others, points", leads, any_lead)
    >>> claim.verdict, claim.shown_part.name
    ('UNDECIDED', 'C')
    >>> judge("A ring is sparse.", "degree", 2, exactly(2, "two neighbors")).verdict
    'HOLDS'
    """
    value, _, sign, within, _ = bound
    several = values if isinstance(values, Mapping) else None
    claim = Claim(statement, statistic, bound.text(_which(several, any_of)), 0.0, paper, "", kind)
    if several is None and not sign:
        number = float(np.asarray(values))
        near = abs(number - value) <= within * (1 + 1e-9) + ROUNDING
        return replace(claim, ours=number, verdict=HOLDS if near else FAILS)
    rows: Mapping[str, Any] = {"": values} if several is None else several
    numbers = tuple((name, tuple(as_numbers(row).tolist())) for name, row in rows.items())
    if not numbers:
        raise ValueError("`values` must contain at least one statistic, got none")
    ratio = None if several is None else of_means
    return judged(replace(claim, of_means=ratio, evidence=Evidence(numbers, bound, any_of)))


def _which(several: object, any_of: bool) -> str:
    """Return which of several comparisons must be on the claimed side; empty for a single one."""
    return "" if several is None else ", at least one" if any_of else ", each"


def ordering_of(claim: Claim) -> Claim | None:
    """Return the claim that methods are in the claimed order, by any margin.

    None if the claim is not about an ordering. Claims of which any margin is enough are unchanged.
    Otherwise the intervals are compared with the statistic of equal methods.

    Examples
    --------
    >>> clear = at_least(5, "clearly visible", tie=0)
    >>> claim = judge("A is clearly better.", "A - B, points", [1.0, 1.2, 0.9], clear)
    >>> claim.verdict, ordering_of(claim).verdict
    ('FAILS', 'HOLDS')
    """
    evidence = claim.evidence
    if evidence is None or evidence.bound.tie is None:
        return None
    if evidence.bound.value == evidence.bound.tie:
        return claim
    bound = evidence.bound._replace(value=evidence.bound.tie, why="the ordering alone")
    evidence = evidence._replace(bound=bound)
    parts = [
        replace(part, verdict=_beyond(evidence, part.interval, part.corrected))
        for part in claim.parts
    ]
    ordered = replace(
        claim,
        statement=f"{claim.statement.removesuffix('.')} (the ordering alone).",
        threshold=bound.text(_which(claim.parts or None, evidence.any_of)),
        evidence=evidence,
    )
    if parts:
        return with_parts(ordered, evidence, parts)
    return replace(ordered, verdict=_beyond(evidence, claim.interval, claim.interval))


def _beyond(
    evidence: Evidence, plain: tuple[float, float] | None, strict: tuple[float, float] | None
) -> str:
    """Return the verdict of a comparison by its intervals at 95 % and at the corrected level."""
    if plain is None or strict is None:
        return UNDECIDED
    to_hold, to_fail = (strict, plain) if evidence.any_of else (plain, strict)
    value, sign = evidence.bound.value, evidence.bound.sign
    low = min(sign * (end - value) for end in to_hold)
    high = max(sign * (end - value) for end in to_fail)
    return HOLDS if low > ROUNDING else FAILS if high < -ROUNDING else UNDECIDED


def judged(claim: Claim, quantile: Quantile = t_quantile) -> Claim:
    """Return a claim judged by its evidence; unchanged if it has none.

    Parameters
    ----------
    claim
        The claim.
    quantile
        Half-width of the intervals in standard errors; by default that of Student's t.
    """
    if claim.evidence is None:
        return claim
    rows, bound, _ = claim.evidence
    if rows[0][0] != "":
        return _with_parts(claim, claim.evidence, quantile)
    numbers = np.array(rows[0][1])
    return replace(
        claim,
        ours=spread_of(numbers),
        interval=mean_interval(numbers, quantile=quantile),
        verdict=verdict(numbers, bound.value, bound.sign, quantile=quantile),
    )


def _with_parts(claim: Claim, evidence: Evidence, quantile: Quantile) -> Claim:
    """Return a claim with its verdict, its parts and the number of the most critical part."""
    strict, bound = corrected_level(len(evidence.values)), evidence.bound
    to_hold, to_fail = evidence.levels
    parts = []
    for name, row in evidence.values:
        numbers = np.array(row)
        plain, corrected = (
            mean_interval(numbers, level, quantile) for level in (CONFIDENCE, strict)
        )
        how = {"to_hold": to_hold, "to_fail": to_fail, "quantile": quantile}
        found = verdict(numbers, bound.value, bound.sign, **how)
        parts.append(Part(name, spread_of(numbers), plain, corrected, found))
    return with_parts(claim, evidence, parts)


def with_parts(claim: Claim, evidence: Evidence, parts: Sequence[Part]) -> Claim:
    """Return a claim with these comparisons, its verdict and the number that is shown."""
    found = evidence.verdict({part.verdict for part in parts})
    pick = max if evidence.any_of else min
    shown = pick(parts, key=lambda part: evidence.bound.sign * part.ours.mean)
    return replace(
        claim, ours=shown.ours, interval=shown.interval, parts=tuple(parts), verdict=found
    )


def spread_of(numbers: np.ndarray) -> Spread:
    """Return the mean of numbers with the lowest and the highest of them."""
    return Spread(float(numbers.mean()), float(numbers.min()), float(numbers.max()))


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


def shown_statement(claim: Claim) -> str:
    """Return a claim's statement, prefixed with its kind if it is not the paper's."""
    return {PAPER: "", CHECK: "Check: ", OUR_QUESTION: "Ours: "}[claim.kind] + claim.statement


def shown_number(claim: Claim) -> str:
    """Return our number as text, with its interval and the verdicts of its comparisons."""
    shown, part, m = [as_text(claim.ours)], claim.shown_part, len(claim.parts)
    if claim.interval is not None:
        text = f"{100 * CONFIDENCE:g} % interval {_range(claim.interval)}"
        if part is not None and part.corrected is not None and m > 1:
            level = 100 * corrected_level(m)
            text += f" ({level:.4g} % for {m} comparisons: {_range(part.corrected)})"
        shown.append(text)
    if claim.of_means is not None:
        shown.append(f"ratio of means {as_text(claim.of_means)}")
    if part is not None:
        held, failed = (
            [each.name for each in claim.parts if each.verdict == verdict]
            for verdict in (HOLDS, FAILS)
        )
        names = f" ({'; '.join(failed)})" if failed else ""
        shown.append(f"shown: {part.name}")
        shown.append(f"of {m} comparisons {len(held)} {HOLDS}, {len(failed)} {FAILS}{names}")
    return "; ".join(shown)


def _range(interval: tuple[float, float]) -> str:
    return " to ".join(map(as_text, interval))


def claims_table(claims: Sequence[Claim], title: str = "") -> Table:
    """Return a table with one row per claim."""
    columns = ("claim", "statistic", "holds if", "ours", "paper", "verdict")
    rows: list[tuple[Any, ...]] = [
        (shown_statement(c), c.statistic, c.threshold, shown_number(c), c.paper or "-", c.verdict)
        for c in claims
    ]
    return Table(columns, tuple(rows), title=title)


def kind_of(title: str, titles: Iterable[str]) -> str:
    """Return the kind of the claims on a split: the paper's, or ours if it lacks the split."""
    return PAPER if title in titles else OUR_QUESTION


def judge_each(
    panels: Mapping[str, Any], judge: Callable[[str, Any], Sequence[Claim]]
) -> list[Claim]:
    """Return the claims that a function makes about each panel, by its title and arms."""
    return [claim for title, arms in panels.items() for claim in judge(title, arms)]


def points(value: float | None) -> str:
    """Return a difference in percentage points as text; an empty string for None."""
    return "" if value is None else f"{value:+.2f} points"
