"""Which claims of the papers are decided: at scale ``quick``, by more seeds, or by a second look.

``python -m paper_figures.decided_claims`` reads committed results, trains nothing, and writes
``paper_figures/results/decided-claims.md``; a test compares the page with what it would write. A
claim that three seeds on the paper's data leave undecided counts as decided by more seeds if the
rule of ``--until-decided`` has a verdict with them. Otherwise the second look decides if its
ordering of methods (:func:`.kit.claims.ordering_of`) holds or fails on MNIST at 14 x 14 pixels or
on MNIST-1D. An effect is too small if the rule of :mod:`.kit.sequential` would need more than
:data:`.kit.sequential.MOST` seeds on the paper's data, with the means and spreads of the three.
Only claims that the papers make count.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topofl import Table

from .command import PAPERS, figures_named
from .kit.claims import FAILS, HOLDS, PAPER, UNDECIDED, Claim, ordering_of, shown_statement
from .kit.paper import LOOKS, Paper
from .kit.second_look import stored_verdicts, verdict_on
from .kit.sequential import MOST
from .kit.until_decided import Comparison, seeds_to_decide, stored_decisions

RESULTS = Path(__file__).parent / "results"
PAGE = RESULTS / "decided-claims.md"

QUICK, SEEDS, LOOK, SMALL, OPEN = (
    "quick", "more seeds", "second look", f"more than {MOST} seeds", "open"
)  # fmt: skip
"""How a claim is decided, in the order in which it is asked; the last two are not decided."""


@dataclass(frozen=True)
class Standing:
    """What is known of one claim.

    Parameters
    ----------
    figure
        The figure that the claim is about.
    claim
        The claim, judged at scale ``quick``.
    looks
        Verdicts on its ordering by scale of the second look, of those that judged it.
    more
        Verdict with more seeds than three, if some were added.
    """

    figure: str
    claim: Claim
    looks: Mapping[str, str]
    more: str = UNDECIDED

    @property
    def how(self) -> str:
        """One of :data:`QUICK`, :data:`SEEDS`, :data:`LOOK`, :data:`SMALL` and :data:`OPEN`."""
        if self.claim.verdict != UNDECIDED:
            return QUICK
        if self.more != UNDECIDED:
            return SEEDS
        if {HOLDS, FAILS} & set(self.looks.values()):
            return LOOK
        return SMALL if self.claim.evidence and seeds_to_decide(self.claim) is None else OPEN

    @property
    def verdict(self) -> str:
        """The verdict of what decides it; of the second look, ``"DIFFERS"`` if its data do."""
        if self.how != LOOK:
            return self.more if self.how == SEEDS else self.claim.verdict
        found = sorted({HOLDS, FAILS} & set(self.looks.values()))
        return found[0] if len(found) == 1 else "DIFFERS"


def standings(paper: Paper, results: Path = RESULTS) -> Iterator[Standing]:
    """Yield what is known of every claim that a paper makes, from results in folders by scale."""
    folder = results / paper.id
    for figure, claims in quick_claims(folder):
        looks = {scale: stored_verdicts(folder, scale, figure) for scale in LOOKS}
        more = stored_decisions(folder / "until-decided" / f"{figure}-decisions.json")
        for claim in claims:
            verdict = _with_more_seeds(figure, claim, more)
            yield Standing(figure, claim, dict(_looks(claim, looks)), verdict)


def quick_claims(folder: Path) -> Iterator[tuple[str, list[Claim]]]:
    """Yield figures with the claims of their paper, from the results in ``quick`` of a folder."""
    for path in sorted(folder.glob("quick/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        (figure,) = figures_named(record["figure"])[1]
        yield figure.id, [one for one in figure.claims(record["data"]) if one.kind == PAPER]


def without_file(folder: Path) -> list[str]:
    """Return the figures in ``quick`` of a folder that are drawn without a file of numbers."""
    drawn = sorted(folder.glob("quick/*.png"))
    return [path.stem for path in drawn if not path.with_suffix(".json").exists()]


def _with_more_seeds(figure: str, claim: Claim, more: Mapping[Comparison, tuple[str, int]]) -> str:
    if claim.evidence is None:
        return UNDECIDED
    names = [Comparison(figure, claim.statement, name) for name, _ in claim.evidence.values]
    return claim.evidence.verdict([more.get(name, (UNDECIDED, 0))[0] for name in names])


def _looks(claim: Claim, looks: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    ordering = ordering_of(claim)
    for scale, found in looks.items():
        if ordering is not None and (one := verdict_on(ordering, scale, found)) is not None:
            yield scale, one[0]


def summary(found: Mapping[str, Sequence[Standing]]) -> Table:
    """Return one row per paper: how many claims are decided, by what, and how."""
    rows = []
    for paper, claims in found.items():
        how = Counter(one.how for one in claims)
        verdicts = Counter((one.how, one.verdict) for one in claims)
        rows.append((
            paper, len(claims),
            *(verdicts[by, verdict] for by in (QUICK, SEEDS) for verdict in (HOLDS, FAILS)),
            *(verdicts[LOOK, verdict] for verdict in (HOLDS, FAILS, "DIFFERS")),
            how[SMALL], how[OPEN],
            *(
                f"{100 * (how[QUICK] + how[SEEDS] + how[LOOK]) / count:.0f} %"
                for count in (len(claims), len(claims) - how[SMALL])
            ),
        ))  # fmt: skip
    columns = (
        "paper", "claims", "quick: hold", "quick: fail", "seeds: hold", "seeds: fail",
        "look: hold", "look: fail", "look: differ", SMALL, OPEN, "decided", "decided of the others",
    )  # fmt: skip
    return Table(columns, tuple(rows), title="Claims of the papers")


def details(claims: Sequence[Standing], title: str) -> Table:
    """Return one row per claim of a paper."""
    rows = tuple(
        (
            shown_statement(one.claim), one.figure, one.claim.verdict,
            *(one.looks.get(scale, "not judged") for scale in LOOKS),
            one.how,
        )
        for one in claims
    )  # fmt: skip
    looks = [f"ordering on {name}" for name in LOOKS.values()]
    columns = ("claim", "figure", "quick", *looks, "decided by")
    return Table(columns, rows, title=title)


def page(results: Path = RESULTS) -> str:
    """Return the page as Markdown."""
    found = {paper.id: list(standings(paper, results)) for paper in PAPERS}
    uncounted = [f"`{one}`" for paper in PAPERS for one in without_file(results / paper.id)]
    parts = [
        "# Decided claims",
        "`python -m paper_figures.decided_claims` writes this page from results in the tree: the "
        "papers' own claims, on CIFAR-10 at scale `quick` with three seeds, and their orderings of "
        "methods in the [second look](../../docs/papers/second-look.md) with 20 seeds, on data "
        'that are not the papers\'. "look" counts the claims that `quick` leaves undecided; they '
        "differ if they hold on one data set and fail on the other. The second look judges "
        'orderings alone, also where a claim says by how much, such as "almost twice as fast". '
        "Claims that `quick` decides keep that verdict, even if the ordering fails there. The "
        "effects of the column "
        f'"{SMALL}" are too small for {MOST} seeds at scale `quick`, by the means and spreads of '
        "three, and the second look does not decide them. Figures whose numbers are computed anew "
        f"each time, without training, have no file and are not counted: {', '.join(uncounted)}.",
        summary(found).to_markdown(),
        *(details(claims, title).to_markdown() for title, claims in found.items()),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write the page."""
    argparse.ArgumentParser(description="Write which claims are decided.").parse_args()
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
