"""Verdicts are those of the t interval, with its error rates."""

import numpy as np
import pytest
from scipy import stats

from paper_figures.kit import claims as kit_claims
from paper_figures.kit.claims import (
    CHECK,
    FAILS,
    HOLDS,
    OUR_QUESTION,
    UNDECIDED,
    claims_table,
    exactly,
    judge,
    rank_correlation,
    shown_number,
    shown_statement,
)
from topofl import Spread


def at_least(values, threshold=0.0, **how):
    return judge("it is so", "points", values, kit_claims.at_least(threshold, "we say so"), **how)


def at_most(values, threshold=0.0):
    return judge("it is so", "points", values, kit_claims.at_most(threshold, "we say so"))


def some(values, threshold=0.0):
    return at_least(values, threshold, any_of=True)


def test_claim_carries_what_it_was_judged_by():
    claim = at_least([1.0, 2.0, 6.0], 0.5, paper="2.9")
    assert (claim.statement, claim.statistic, claim.paper) == ("it is so", "points", "2.9")
    assert claim.threshold == "≥ 0.5: we say so"
    assert claim.ours == Spread(3.0, 1.0, 6.0)
    assert at_most([1.0], -2).threshold == "≤ -2: we say so"
    assert at_least({"a": [1.0, 2.0]}).threshold == "≥ 0, each: we say so"
    assert some({"a": [1.0, 2.0]}).threshold == "≥ 0, at least one: we say so"


@pytest.mark.parametrize("k", [2, 3, 5, 20])
def test_interval_is_scipys(k):
    values = np.random.default_rng(k).normal(3, 2, k)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    for edge, (above, below) in ((low, (UNDECIDED, HOLDS)), (high, (FAILS, UNDECIDED))):
        for off, wanted in ((1e-9, above), (-1e-9, below)):
            found = at_least(values, edge + off).verdict
            assert found == wanted
            assert at_least({"a": values}, edge + off).verdict == found
            assert some({"a": values}, edge + off).verdict == found
            assert at_most(-values, -edge - off).verdict == found
            assert at_least(values[::-1] * 16 + 100, (edge + off) * 16 + 100).verdict == found


@pytest.mark.parametrize(
    ("value", "threshold", "above", "below"),
    [
        (0.51, 0.5, HOLDS, FAILS),
        (0.5, 0.6, FAILS, HOLDS),
        (0.0, 0.0, UNDECIDED, UNDECIDED),  # no difference is no advantage
        (0.1 + 0.2, 0.3, UNDECIDED, UNDECIDED),  # above 0.3 by rounding alone
        (81.7 - 80.3, 1.4, UNDECIDED, UNDECIDED),
        (0.3 + 1e-9, 0.3, HOLDS, FAILS),
    ],
)
def test_seeds_that_agree_are_decided_and_the_threshold_itself_is_not_enough(
    value, threshold, above, below
):
    assert at_least([value] * 3, threshold).verdict == above
    assert at_most([value] * 3, threshold).verdict == below
    assert at_least({"a": [value] * 3, "b": [99.0] * 3}, threshold).verdict == above
    noise = np.array([1e-15, 2e-15, 1.5e-15])
    assert at_least(noise).verdict == at_most(noise).verdict == UNDECIDED


def test_every_comparison_must_hold_and_one_that_fails_is_enough():
    ahead, behind, unsure = [1.0, 1.1, 0.9], [-9.0, -9.1, -8.9], [1.0, -1.0, 0.2]
    assert at_least({"a": ahead, "b": ahead}).verdict == HOLDS
    assert at_least({"a": ahead, "b": unsure}).verdict == UNDECIDED
    assert at_least({"a": ahead, "b": behind, "c": unsure}).verdict == FAILS
    assert some({"a": behind, "b": ahead, "c": unsure}).verdict == HOLDS
    assert some({"a": behind, "b": unsure}).verdict == UNDECIDED
    assert some({"a": behind, "b": behind}).verdict == FAILS
    assert at_least({"a": [1.0], "b": [-9.0]}).verdict == UNDECIDED  # of one seed


def test_what_is_shown_is_the_difference_of_the_means():
    """The lead over the highest of noisy arms is too low; the paper's is over the best mean."""
    ours, others = np.array([80.0, 81, 82]), {"a": [83.0, 77, 80], "b": [76.0, 84, 79]}
    claim = at_least({label: ours - value for label, value in others.items()})
    assert claim.ours.mean == pytest.approx(ours.mean() - max(map(np.mean, others.values())))
    assert claim.ours.mean > (ours - np.max(list(others.values()), axis=0)).mean()
    assert claim.shown_part.name == "a"  # the first of two equals
    assert "shown: a; of 2 comparisons 0 HOLDS, 0 FAILS" in shown_number(claim)


@pytest.mark.parametrize("m", [2, 9])
@pytest.mark.slow
def test_joint_verdicts_are_wrong_in_at_most_one_case_of_forty(m):
    """HOLDS is wrong with one comparison on the threshold, FAILS with all on it.

    Of nine arms as good as ours the highest is ahead by noise alone.
    """
    rng, trials, seeds = np.random.default_rng(m), 3000, 3
    slack = 4 * np.sqrt(0.025 * 0.975 / trials)  # four standard deviations of what is counted
    far = [0.0] + [50.0] * (m - 1)
    noise = rng.normal(0, 1, (trials, m, seeds))
    for means, verdict, judged in (
        (far, HOLDS, at_least),
        (m * [0.0], FAILS, at_least),
        (m * [0.0], HOLDS, some),
    ):
        rows = [dict(enumerate(draw + np.array(means)[:, None])) for draw in noise]
        wrong = np.mean([judged(row).verdict == verdict for row in rows])
        assert wrong < 0.025 + slack
    assert wrong > 0.005  # the correction is not far too strict
    by_extreme = [at_least(np.min(draw, axis=0)).verdict == FAILS for draw in noise[:500]]
    assert np.mean(by_extreme) > {2: 0.05, 9: 0.3}[m]


def test_kinds_are_said_and_comparisons_counted():
    pair = {"a": [1.0, 1.1], "b": [3.0, 3.1]}
    claims = [
        at_least([1.0, 2.0], kind=OUR_QUESTION),
        judge("n", "%", 1, exactly(1, "w"), kind=CHECK),
        judge("e", "p", pair, kit_claims.at_most(9, "w"), of_means=2.0),
    ]
    assert [shown_statement(claim) for claim in claims] == ["Ours: it is so", "Check: n", "e"]
    assert shown_number(claims[2]).endswith(
        "ratio of means 2; shown: b; of 2 comparisons 2 HOLDS, 0 FAILS"
    )


def test_both_intervals_of_a_comparison_are_shown():
    """The 95 % interval alone would look as if the claim failed."""
    claim = at_least({"a": [-1.0, -1.3, -0.9]} | {name: [5.0, 6.0, 7.0] for name in "bcdef"})
    assert claim.verdict == UNDECIDED
    assert claim.interval[1] < 0 < claim.shown_part.corrected[1]
    t = stats.t.ppf(1 - 0.025 / 6, 2) * np.std([-1.0, -1.3, -0.9], ddof=1) / np.sqrt(3)
    assert claim.shown_part.corrected == pytest.approx((-3.2 / 3 - t, -3.2 / 3 + t))
    assert "95 % interval -1.584 to -0.5496 (99.17 % for 6 comparisons: " in shown_number(claim)
    assert "for 1" not in shown_number(at_least({"a": [1.0, 2.0]}))


@pytest.mark.parametrize(
    ("value", "expected", "within", "verdict"),
    [
        (80.9, 80, 1, HOLDS),
        (79.0, 80, 1, HOLDS),
        (78.99, 80, 1, FAILS),
        (81.01, 80, 1, FAILS),
        (0.1 + 0.2, 0.3, 0, HOLDS),  # up to rounding
        (0.3 + 1e-9, 0.3, 0, FAILS),
        (0.3, 0.2, 0.1, HOLDS),
        (np.nan, 0.3, 1, FAILS),
        (np.inf, 0.3, 1, FAILS),
    ],
)
def test_numbers_are_judged_up_to_rounding(value, expected, within, verdict):
    claim = judge("it is so", "%", value, exactly(expected, "we say so", within=within))
    assert claim.verdict == verdict
    assert isinstance(claim.ours, float)
    shown = f"{expected} ± {within}" if within else f"= {expected}"
    assert claim.threshold == f"{shown}: we say so"


def test_table_has_a_row_a_claim():
    claims = [at_least([1.0, 1.0]), judge("n", "%", 3, exactly(4, "exact"), paper="4")]
    table = claims_table(claims, "Figure 0")
    assert table.columns == ("claim", "statistic", "holds if", "ours", "paper", "verdict")
    assert table.column("verdict") == (HOLDS, FAILS)
    assert table.column("paper") == ("-", "4")
    assert table.column("ours") == ("1 (1 to 1); 95 % interval 1 to 1", "3")
    assert table.title == "Figure 0"
    assert claims_table([]).rows == ()


def test_equal_numbers_have_no_order():
    assert rank_correlation([1, 1, 1], [1, 2, 3]) == rank_correlation([1, 2, 3], [2, 2, 2]) == 0
    assert rank_correlation([1, 2, 3], [5, 7, 9]) == pytest.approx(1)
