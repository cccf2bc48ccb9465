"""Claims of a paper with their verdicts, and their text in reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from topofl import Spread, Table
from topofl.summary.verdicts import CONFIDENCE, FAILS, HOLDS
from topofl.summary.verdicts import UNDECIDED as UNDECIDED

from .arguments import check_choice, text_of

PAPER, CHECK, OUR_QUESTION = "paper", "check", "ours"


KINDS = (PAPER, CHECK, OUR_QUESTION)
"""The source of a claim: the paper, a check against another implementation, or ours."""


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
        Verdict of this comparison at the level that :func:`judge_every` or :func:`judge_any` sets.
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

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)

    @property
    def shown_part(self) -> Part | None:
        """The part whose number is `ours`; None for a claim without parts."""
        return next((part for part in self.parts if part.ours == self.ours), None)


def shown_statement(claim: Claim) -> str:
    """Return a claim's statement, prefixed with its kind if it is not the paper's."""
    return {PAPER: "", CHECK: "Check: ", OUR_QUESTION: "Ours: "}[claim.kind] + claim.statement


def shown_number(claim: Claim) -> str:
    """Return our number as text, with its interval and the verdicts of its comparisons."""
    shown = [text_of(claim.ours)]
    if claim.interval is not None:
        low, high = map(text_of, claim.interval)
        shown.append(f"{100 * CONFIDENCE:g} % interval {low} to {high}{_corrected_of(claim)}")
    if claim.of_means is not None:
        shown.append(f"ratio of means {text_of(claim.of_means)}")
    return "; ".join([*shown, *_parts_of(claim)])


def _corrected_of(claim: Claim) -> str:
    """Return the corrected interval of the shown comparison as text; empty if there is only one."""
    part = claim.shown_part
    if part is None or part.corrected is None or len(claim.parts) == 1:
        return ""
    low, high = map(text_of, part.corrected)
    return (
        f" ({_corrected(len(claim.parts)):.4g} % for {len(claim.parts)} comparisons: "
        f"{low} to {high})"
    )


def _corrected(m: int) -> float:
    """Return the level of Bonferroni's correction for m comparisons, in %."""
    return 100 * (1 - (1 - CONFIDENCE) / m)


def _parts_of(claim: Claim) -> list[str]:
    """Return the name of the shown comparison and the number of comparisons per verdict."""
    if claim.shown_part is None:
        return []
    names = {
        verdict: [part.name for part in claim.parts if part.verdict == verdict]
        for verdict in (HOLDS, FAILS)
    }
    failed = f" ({'; '.join(names[FAILS])})" if names[FAILS] else ""
    counts = (
        f"of {len(claim.parts)} comparisons {len(names[HOLDS])} {HOLDS}, "
        f"{len(names[FAILS])} {FAILS}{failed}"
    )
    return [f"shown: {claim.shown_part.name}", counts]


def claims_table(claims: Sequence[Claim], title: str = "") -> Table:
    """Return a table with one row per claim."""
    columns = ("claim", "statistic", "holds if", "ours", "paper", "verdict")
    rows: list[tuple[Any, ...]] = [
        (shown_statement(c), c.statistic, c.threshold, shown_number(c), c.paper or "-", c.verdict)
        for c in claims
    ]
    return Table(columns, tuple(rows), title=title)


def points(value: float | None) -> str:
    """Return a difference in percentage points as text; an empty string for None."""
    return "" if value is None else f"{value:+.2f} points"
