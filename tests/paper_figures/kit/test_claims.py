"""Verdicts are those of the t interval, with its error rates; what cannot be judged is an error."""

import numpy as np
import pytest
from scipy import stats

from paper_figures.kit import claims as kit_claims
from paper_figures.kit.claims import (
    CHECK,
    CONFIDENCE,
    FAILS,
    HOLDS,
    OUR_QUESTION,
    UNDECIDED,
    Claim,
    claims_table,
    exactly,
    judge,
    shown_number,
    shown_statement,
)
from topofl import Spread


def at_least(values, threshold=0.0):
    return judge("it is so", "points", values, kit_claims.at_least(threshold, "we say so"))


def at_most(values, threshold=0.0):
    return judge("it is so", "points", values, kit_claims.at_most(threshold, "we say so"))


def test_claim_carries_what_it_was_judged_by():
    half = kit_claims.at_least(0.5, "half is seen")
    claim = judge("a is faster", "points", [1.0, 2.0, 6.0], half, paper="2.9")
    assert (claim.statement, claim.statistic, claim.paper) == ("a is faster", "points", "2.9")
    assert claim.threshold == "≥ 0.5: half is seen"
    assert claim.ours == Spread(3.0, 1.0, 6.0)
    assert at_most([1.0], 7).threshold == "≤ 7: we say so"
    assert at_most([1.0], -2).threshold == "≤ -2: we say so"


def test_interval_is_the_t_interval_by_hand():
    values = np.array([1.0, 2.0, 3.0])
    half = 4.302652729911275 / np.sqrt(
        3
    )  # t with 2 degrees of freedom, 97.5 %, for a deviation of 1
    assert CONFIDENCE == 0.95
    assert at_least(values, 2 - half - 1e-9).verdict == HOLDS
    assert at_least(values, 2 - half + 1e-9).verdict == UNDECIDED
    assert at_least(values, 2 + half - 1e-9).verdict == UNDECIDED
    assert at_least(values, 2 + half + 1e-9).verdict == FAILS


@pytest.mark.parametrize("k", [2, 3, 5, 20])
def test_interval_is_scipys(k):
    values = np.random.default_rng(k).normal(3, 2, k)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    for edge, (above, below) in ((low, (UNDECIDED, HOLDS)), (high, (FAILS, UNDECIDED))):
        assert at_least(values, edge + 1e-9).verdict == above
        assert at_least(values, edge - 1e-9).verdict == below


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("threshold", [-4.0, -1.0, 0.0, 1.0, 4.0])
def test_at_most_is_at_least_of_the_negative(k, threshold):
    values = np.random.default_rng(k).normal(0, 1, k)
    assert at_most(values, threshold).verdict == at_least(-values, -threshold).verdict


def test_verdict_depends_on_distance_and_spread_alone():
    values = np.array([0.3, 0.9, 1.4])
    for threshold in (-2.0, 0.5, 3.0):
        expected = at_least(values, threshold).verdict
        assert at_least(values + 100, threshold + 100).verdict == expected
        assert at_least(values * 16, threshold * 16).verdict == expected
        assert at_least(values[::-1], threshold).verdict == expected


@pytest.mark.parametrize("k", [2, 3, 5])
def test_either_verdict_is_wrong_in_at_most_one_case_of_forty(k):
    rng, trials = np.random.default_rng(k), 4000
    verdicts = np.array([at_least(rng.normal(1, 2, k), 1.0).verdict for _ in range(trials)])
    slack = 4 * np.sqrt(0.025 * 0.975 / trials)  # four standard deviations of what is counted
    for verdict in (HOLDS, FAILS):
        assert abs((verdicts == verdict).mean() - 0.025) < slack


def test_what_is_far_from_the_threshold_is_decided():
    rng = np.random.default_rng(0)
    for sign, expected in ((1, HOLDS), (-1, FAILS)):
        verdicts = [at_least(rng.normal(5 * sign, 1, 5)).verdict for _ in range(500)]
        assert verdicts.count(expected) > 490


@pytest.mark.parametrize("value", [-1e9, 0.0, 1e9])
def test_one_seed_decides_nothing(value):
    assert at_least([value]).verdict == at_most([value]).verdict == UNDECIDED


def test_seeds_that_agree_exactly_are_decided_and_the_threshold_itself_is_not_enough():
    assert at_least([0.51] * 3, 0.5).verdict == at_most([0.49] * 3, 0.5).verdict == HOLDS
    assert at_least([0.5] * 3, 0.5).verdict == at_most([0.5] * 3, 0.5).verdict == UNDECIDED
    assert at_least([0.0] * 3, 0.0).verdict == UNDECIDED  # no difference is no advantage
    assert at_least([0.5] * 3, 0.6).verdict == at_most([0.5] * 3, 0.4).verdict == FAILS


def test_a_threshold_is_touched_up_to_rounding():
    """0.1 + 0.2 is above 0.3 by rounding alone: no verdict may depend on that."""
    assert (
        at_least([0.1 + 0.2] * 3, 0.3).verdict == at_most([0.1 + 0.2] * 3, 0.3).verdict == UNDECIDED
    )
    assert (
        at_least([81.7 - 80.3] * 3, 1.4).verdict
        == at_most([81.7 - 80.3] * 3, 1.4).verdict
        == UNDECIDED
    )
    noise = np.array([1e-15, 2e-15, 1.5e-15])
    assert at_least(noise, 0.0).verdict == at_most(noise, 0.0).verdict == UNDECIDED
    assert (
        at_least([0.3 + 1e-9] * 3, 0.3).verdict == at_most([0.3 - 1e-9] * 3, 0.3).verdict == HOLDS
    )
    assert every({"a": [0.1 + 0.2] * 3, "b": [1.0] * 3}, 0.3).verdict == UNDECIDED


def every(values, threshold=0.0):
    return judge("best", "points", values, kit_claims.at_least(threshold, "any"))


def some(values, threshold=0.0):
    return judge("some are", "points", values, kit_claims.at_least(threshold, "any"), any_of=True)


def test_every_comparison_must_hold_and_one_that_fails_is_enough():
    ahead, behind, unsure = [1.0, 1.1, 0.9], [-9.0, -9.1, -8.9], [1.0, -1.0, 0.2]
    assert every({"a": ahead, "b": ahead}).verdict == HOLDS
    assert every({"a": ahead, "b": unsure}).verdict == UNDECIDED
    assert every({"a": ahead, "b": behind, "c": unsure}).verdict == FAILS
    assert some({"a": behind, "b": ahead, "c": unsure}).verdict == HOLDS
    assert some({"a": behind, "b": unsure}).verdict == UNDECIDED
    assert some({"a": behind, "b": behind}).verdict == FAILS
    assert every({"a": [1.0], "b": [-9.0]}).verdict == UNDECIDED  # of one seed


def test_what_is_shown_is_the_difference_of_the_means():
    """The lead over the highest of noisy arms is too low; the paper's is over the best mean."""
    ours, others = (
        np.array([80.0, 81.0, 82.0]),
        {"a": np.array([83.0, 77.0, 80.0]), "b": np.array([76.0, 84.0, 79.0])},
    )
    claim = every({label: ours - value for label, value in others.items()})
    assert claim.ours.mean == pytest.approx(
        ours.mean() - max(value.mean() for value in others.values())
    )
    assert claim.ours.mean > (ours - np.max(list(others.values()), axis=0)).mean()
    assert claim.shown_part.name == "a"  # the first of two equals
    assert "shown: a; of 2 comparisons 0 HOLDS, 0 FAILS" in shown_number(claim)
    assert claim.threshold == "≥ 0, each: any"
    assert (
        judge("s", "p", {"a": [2.0, 3.0]}, kit_claims.at_most(1, "w"), any_of=True).threshold
        == "≤ 1, at least one: w"
    )


def test_a_single_comparison_is_judged_as_any_other():
    rng = np.random.default_rng(0)
    for values in rng.normal(0.5, 1, (200, 3)):
        assert (
            every({"a": values}).verdict == some({"a": values}).verdict == at_least(values).verdict
        )


def test_any_is_every_of_the_negation():
    turned = {HOLDS: FAILS, FAILS: HOLDS, UNDECIDED: UNDECIDED}
    rng = np.random.default_rng(1)
    for values in rng.normal(1.0, 2, (300, 3, 3)):
        rows = dict(zip("abc", values, strict=True))
        negated = judge("none is", "points", rows, kit_claims.at_most(0.0, "any"))
        assert negated.verdict == turned[some(rows).verdict]


@pytest.mark.parametrize("m", [2, 9])
@pytest.mark.slow
def test_joint_verdicts_are_wrong_in_at_most_one_case_of_forty(m):
    """HOLDS is wrong with one comparison on the threshold, FAILS with all on it."""
    rng, trials, seeds = np.random.default_rng(m), 3000, 3
    slack = 4 * np.sqrt(0.025 * 0.975 / trials)  # four standard deviations of what is counted
    far = [0.0] + [50.0] * (m - 1)
    noise = rng.normal(0, 1, (trials, m, seeds))
    for means, verdict, judged in (
        (far, HOLDS, every),
        (m * [0.0], FAILS, every),
        (m * [0.0], HOLDS, some),
    ):
        rows = [dict(enumerate(map(list, draw + np.array(means)[:, None]))) for draw in noise]
        wrong = np.mean(
            [judged({str(k): row for k, row in each.items()}).verdict == verdict for each in rows]
        )
        assert wrong < 0.025 + slack
    assert wrong > 0.005  # the correction is not far too strict


def test_the_highest_of_noisy_arms_would_be_taken_for_better():
    """Of nine arms as good as ours the highest is ahead by noise alone."""
    rng, trials = np.random.default_rng(3), 500
    leads = rng.normal(0, 1, (trials, 9, 3))
    by_extreme = np.mean([at_least(np.min(draw, axis=0)).verdict == FAILS for draw in leads])
    jointly = np.mean(
        [every(dict(zip("abcdefghi", draw, strict=True))).verdict == FAILS for draw in leads]
    )
    assert by_extreme > 0.3
    assert jointly < 0.06


def test_kinds_are_said_and_comparisons_counted():
    claims = [
        judge("s", "p", [1.0, 2.0], kit_claims.at_least(0, "w"), paper="1", kind=OUR_QUESTION),
        judge("n", "%", 1, exactly(1, "w"), kind=CHECK),
        judge(
            "e",
            "p",
            {"a": [1.0, 1.1], "b": [3.0, 3.1]},
            kit_claims.at_most(9, "w"),
            of_means=2.0,
        ),
    ]
    assert [shown_statement(claim) for claim in claims] == ["Ours: s", "Check: n", "e"]
    assert shown_number(claims[2]).endswith(
        "ratio of means 2; shown: b; of 2 comparisons 2 HOLDS, 0 FAILS"
    )
    with pytest.raises(ValueError, match="`kind` must be one of"):
        Claim("s", "p", "t", 1.0, "", HOLDS, "mine")


def test_both_intervals_of_a_comparison_are_shown():
    """The 95 % interval alone would look as if the claim failed."""
    claim = every({"a": [-1.0, -1.3, -0.9]} | {name: [5.0, 6.0, 7.0] for name in "bcdef"})
    assert claim.verdict == UNDECIDED
    assert claim.interval[1] < 0 < claim.shown_part.corrected[1]
    t = stats.t.ppf(1 - 0.025 / 6, 2) * np.std([-1.0, -1.3, -0.9], ddof=1) / np.sqrt(3)
    assert claim.shown_part.corrected == pytest.approx((-3.2 / 3 - t, -3.2 / 3 + t))
    assert "95 % interval -1.584 to -0.5496 (99.17 % for 6 comparisons: " in shown_number(claim)
    assert "for 1" not in shown_number(every({"a": [1.0, 2.0]}))


@pytest.mark.parametrize("judged", [every, some])
def test_nothing_to_compare_is_an_error(judged):
    with pytest.raises(ValueError, match="`values` must contain at least one statistic, got none"):
        judged({})
    with pytest.raises(ValueError, match="`values` must be finite"):
        judged({"a": [np.nan]})


@pytest.mark.parametrize("values", [[], [np.nan, 1.0], [1.0, np.inf], [[1.0, 2.0]], 1.0])
def test_values_that_cannot_be_judged_are_an_error(values):
    with pytest.raises(ValueError, match="`values`"):
        at_least(values)


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


def test_threshold_of_a_number_says_how_far():
    assert judge("s", "%", 1, exactly(80, "rounded", within=0.5)).threshold == "80 ± 0.5: rounded"
    assert judge("s", "%", 1, exactly(80, "exact")).threshold == "= 80: exact"


def test_table_has_a_row_a_claim():
    claims = [at_least([1.0, 1.0]), judge("n", "%", 3, exactly(4, "exact"), paper="4")]
    table = claims_table(claims, "Figure 0")
    assert table.columns == ("claim", "statistic", "holds if", "ours", "paper", "verdict")
    assert table.column("verdict") == (HOLDS, FAILS)
    assert table.column("paper") == ("-", "4")
    assert table.column("ours") == ("1 (1 to 1); 95 % interval 1 to 1", "3")
    assert table.title == "Figure 0"
    assert "1 (1 to 1)" in str(table)
    assert claims_table([]).rows == ()
