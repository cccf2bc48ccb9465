"""Which claims are decided, and by what: at scale quick, by the second look, or not at all."""

from dataclasses import replace

import pytest

from paper_figures import decided_claims
from paper_figures.command import figures_named
from paper_figures.decided_claims import (
    LOOK,
    OPEN,
    QUICK,
    SEEDS,
    SMALL,
    Standing,
    standings,
    summary,
)
from paper_figures.kit.claims import FAILS, HOLDS, UNDECIDED, at_least, judge
from paper_figures.kit.second_look import verdict_on
from paper_figures.kit.sequential import MOST, seeds_needed
from paper_figures.kit.until_decided import (
    Comparison,
    Progress,
    save_progress,
    seeds_to_decide,
    stored_decisions,
)

ANY = at_least(0, "any lead", tie=0)
CLEAR, LATER, NEVER = [1.0, 1.1, 0.9], [1.0, 0.2, 0.1], [1.0, -1.1, 0.2]


def judged(values, **how):
    return judge("CIFAR-10: A is better.", "A - B, points", values, ANY, **how)


def test_the_page_is_what_its_command_writes():
    assert decided_claims.PAGE.read_text(encoding="utf-8") == decided_claims.page()


def test_figures_without_a_file_of_numbers_are_named(tmp_path):
    """They are those that train nothing."""
    (tmp_path / "quick").mkdir()
    for name in ("fig02.png", "fig02.json", "fig01.png", "report.md"):
        (tmp_path / "quick" / name).touch()
    assert decided_claims.without_file(tmp_path) == ["fig01"]
    for paper in decided_claims.PAPERS:
        trained = {figure.id for figure in figures_named(paper.id)[1] if figure.arms is not None}
        assert not trained & {*decided_claims.without_file(decided_claims.RESULTS / paper.id)}


def test_all_claims_of_quick_reports_have_a_row():
    quick = {paper.id: list(standings(paper)) for paper in decided_claims.PAPERS}
    assert {key: len(found) for key, found in quick.items()} == {
        "dcliques": 51, "dfedpgp": 25, "pfeddst": 7, "dpfl": 40,
    }  # fmt: skip
    counted = summary(quick)
    kinds = (
        "quick: hold",
        "quick: fail",
        "seeds: hold",
        "seeds: fail",
        "look: hold",
        "look: fail",
        "look: differ",
        SMALL,
        OPEN,
    )
    total = [sum(row) for row in zip(*map(counted.column, kinds), strict=True)]
    assert total == list(counted.column("claims"))


@pytest.mark.parametrize(
    ("values", "looks", "how", "verdict"),
    [
        (CLEAR, {"mnist14": FAILS}, QUICK, HOLDS),
        (LATER, {"mnist14": FAILS, "mnist1d": UNDECIDED}, LOOK, FAILS),
        (LATER, {"mnist14": HOLDS, "mnist1d": HOLDS}, LOOK, HOLDS),
        (NEVER, {"mnist14": HOLDS, "mnist1d": FAILS}, LOOK, "DIFFERS"),
        (LATER, {"mnist14": UNDECIDED}, OPEN, UNDECIDED),
        (LATER, {}, OPEN, UNDECIDED),
        (NEVER, {"mnist14": UNDECIDED}, SMALL, UNDECIDED),
    ],
)
def test_a_claim_is_decided_by_the_first_that_does(values, looks, how, verdict):
    found = Standing("fig", judged(values), looks)
    assert (found.how, found.verdict) == (how, verdict)


@pytest.mark.parametrize("verdict", [HOLDS, FAILS])
def test_more_seeds_on_the_paper_s_data_come_before_other_data(verdict):
    found = Standing("fig", judged(LATER), {"mnist14": FAILS, "mnist1d": HOLDS}, verdict)
    assert (found.how, found.verdict) == (SEEDS, verdict)
    assert replace(found, claim=judged(CLEAR)).how == QUICK


def test_decisions_are_read_from_the_file_of_the_command(tmp_path):
    path = tmp_path / "fig-decisions.json"
    assert stored_decisions(path) == {}
    verdicts = {Comparison("fig", "A is better.", "B"): (HOLDS, 7)}
    save_progress(path, Progress("key", verdicts=verdicts))
    assert stored_decisions(path) == verdicts


def test_a_claim_needs_the_seeds_of_one_comparison_or_of_all():
    later = seeds_needed(LATER, 0, 0.975)
    assert later is not None
    assert 3 < later <= MOST
    one, other = {"A": LATER, "B": NEVER}, {"A": NEVER, "B": NEVER}
    assert seeds_to_decide(judged(LATER)) == seeds_needed(LATER, 0, 0.95)
    assert seeds_to_decide(judged(one)) is None
    assert seeds_to_decide(judged(one, any_of=True)) == later
    assert seeds_to_decide(judged(other, any_of=True)) is None
    behind = {"A": [-value for value in LATER], "B": NEVER}
    assert seeds_to_decide(judged(behind)) == later
    assert seeds_to_decide(replace(judged(LATER), evidence=None)) is None


def test_verdicts_of_the_second_look_are_found_by_the_data_that_they_name():
    stored = {"MNIST at 14 x 14 pixels: A is better.": (HOLDS, 20)}
    assert verdict_on(judged(LATER), "mnist14", stored) == (HOLDS, 20)
    assert verdict_on(judged(LATER), "mnist1d", stored) is None
