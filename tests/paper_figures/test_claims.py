"""Verdicts are those of the t interval, with its error rates; what cannot be judged is an error."""

import numpy as np
import pytest
from scipy import stats

from paper_figures.claims import CONFIDENCE, FAILS, HOLDS, UNDECIDED, claims_table, judge_number, judge_seeds
from topofl import Spread


def at_least(values, threshold=0.0):
    return judge_seeds("it is so", "points", values, at_least=threshold, why="we say so")


def at_most(values, threshold=0.0):
    return judge_seeds("it is so", "points", values, at_most=threshold, why="we say so")


def test_claim_carries_what_it_was_judged_by():
    claim = judge_seeds("a is faster", "points", [1.0, 2.0, 6.0], at_least=0.5, why="half is seen", paper="2.9")
    assert (claim.statement, claim.statistic, claim.paper) == ("a is faster", "points", "2.9")
    assert claim.threshold == "≥ 0.5: half is seen"
    assert claim.ours == Spread(3.0, 1.0, 6.0)
    assert at_most([1.0], 7).threshold == "≤ 7: we say so"
    assert at_most([1.0], -2).threshold == "≤ -2: we say so"


def test_interval_is_the_t_interval_by_hand():
    values = np.array([1.0, 2.0, 3.0])
    half = 4.302652729911275 / np.sqrt(3)  # t with 2 degrees of freedom, 97.5 %, for a deviation of 1
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


@pytest.mark.parametrize(
    ("values", "threshold"),
    [
        ([0.1 + 0.2] * 3, 0.3),
        ([0.3] * 3, 0.1 + 0.2),
        ([1.1 * 3] * 2, 3.3),
        ([100 * 1.1] * 2, 110.0),
        ([0.1 - 0.1], 0.0),
    ],
)
def test_a_mean_that_is_the_threshold_up_to_rounding_decides_nothing(values, threshold):
    assert at_least(values, threshold).verdict == at_most(values, threshold).verdict == UNDECIDED
    far = np.array(values) * (1 + 1e-9) + 1e-9
    if len(values) > 1:
        assert at_least(far, threshold).verdict == HOLDS
        assert at_most(far, threshold).verdict == FAILS


@pytest.mark.parametrize("thresholds", [{}, {"at_least": 0.0, "at_most": 1.0}])
def test_exactly_one_threshold_is_needed(thresholds):
    with pytest.raises(ValueError, match="`at_least` and `at_most`"):
        judge_seeds("it is so", "points", [1.0], why="we say so", **thresholds)


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
    claim = judge_number("it is so", "%", value, expected, within=within, why="we say so")
    assert claim.verdict == verdict
    assert isinstance(claim.ours, float)


def test_threshold_of_a_number_says_how_far():
    assert judge_number("s", "%", 1, 80, within=0.5, why="rounded").threshold == "80 ± 0.5: rounded"
    assert judge_number("s", "%", 1, 80, within=0, why="exact").threshold == "= 80: exact"


def test_table_has_a_row_a_claim():
    claims = [at_least([1.0, 1.0]), judge_number("n", "%", 3, 4, within=0, why="exact", paper="4")]
    table = claims_table(claims, "Figure 0")
    assert table.columns == ("claim", "statistic", "holds if", "ours", "paper", "verdict")
    assert table.column("verdict") == (HOLDS, FAILS)
    assert table.column("paper") == ("-", "4")
    assert table.column("ours") == ("1 (1 to 1); 95 % interval 1 to 1", "3")
    assert table.title == "Figure 0"
    assert "1 (1 to 1)" in str(table)
    assert claims_table([]).rows == ()
