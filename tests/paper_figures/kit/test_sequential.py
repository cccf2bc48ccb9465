"""Intervals for added seeds: error rates under repeated looks, exact values, and power."""

import math

import numpy as np
import pytest
from scipy import stats

from paper_figures.compare_rules import anytime, compare_skewed, first_decisions, rules
from paper_figures.kit.claims import HOLDS, UNDECIDED, at_least, corrected_level, judge, judged
from paper_figures.kit.sequential import (
    FIRST,
    MOST,
    boundary,
    boundary_of,
    critical,
    seeds_needed,
    spent,
)

TRIALS = 40_000


def four_errors(rate, trials=TRIALS):
    """Return a rate plus four standard errors of its estimate."""
    return rate + 4 * math.sqrt(rate * (1 - rate) / trials)


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 5])
def test_false_verdicts_stay_below_their_level_and_use_most_of_it(m):
    """Each side has half of it; a rule that never decides would also be valid."""
    error = 1 - corrected_level(m)
    first, right = first_decisions(boundary(corrected_level(m)), np.zeros(1), TRIALS, seed=m)
    rates = [(first > 0).mean(), 2 * right.mean(), 2 * ((first > 0) & ~right).mean()]
    assert max(rates) < four_errors(error)
    assert min(rates) > 2 * error - four_errors(error)
    for k in (3, 4, 8, 20, 40):
        until = ((first > 0) & (first <= k)).mean()
        assert until == pytest.approx(spent(k / MOST, error), abs=four_errors(error) - error)


@pytest.mark.slow
def test_looking_at_students_interval_after_every_seed_is_wrong_far_more_often():
    first, _ = first_decisions(rules()["Student's t at every look"], np.zeros(1), TRIALS)
    assert (first > 0).mean() > 0.15


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 6])
def test_joint_verdicts_are_wrong_in_at_most_one_case_of_forty(m):
    """With seeds until each comparison is decided: FAILS with all on the bound, HOLDS with one."""
    (failed, right) = first_decisions(
        boundary(corrected_level(m)), np.zeros(m), TRIALS // 4, seed=m
    )
    wrong = ((failed > 0) & ~right).any(axis=0).mean()
    assert wrong < four_errors(0.025, TRIALS // 4)
    assert wrong > 0.01
    _, held = first_decisions(boundary(0.95), np.array([0.0] + [3.0] * (m - 1)), TRIALS // 4)
    assert 0.01 < held.all(axis=0).mean() < four_errors(0.025, TRIALS // 4)


def test_a_single_look_is_students_interval():
    """The distribution is followed over all values before it, in cells as wide as without looks."""
    for k, error in ((3, 1e-3), (10, 1e-3), (40, 5e-3)):
        (found,) = boundary_of(lambda share: 0.05, [k])
        assert found == pytest.approx(stats.t.ppf(0.975, k - 1), rel=error)


def test_the_first_critical_value_is_students():
    tail = spent(FIRST / MOST, 0.05) / 2
    assert critical(0.95, FIRST) == pytest.approx(stats.t.ppf(1 - tail, FIRST - 1), rel=3e-3)
    assert critical(0.95, FIRST - 1) == math.inf


@pytest.mark.slow
def test_critical_values_hardly_depend_on_the_number_of_cells():
    fine = boundary_of(lambda share: spent(share, 0.05), cells=300)
    np.testing.assert_allclose(boundary(0.95), fine, rtol=3e-3)


@pytest.mark.parametrize(("effect", "share", "seeds"), [(1.0, 0.98, 16), (2.0, 0.999, 7)])
def test_strong_effects_are_decided_soon(effect, share, seeds):
    first, right = first_decisions(boundary(0.95), np.array([effect]), 4000)
    assert right.mean() > share
    assert np.where(first > 0, first, MOST).mean() < seeds


def test_the_rule_needs_fewer_seeds_than_the_anytime_valid_one():
    for effect in (0.25, 0.5, 1.0):
        seeds = []
        for rule in (boundary(0.95), *(anytime(c2) for c2 in (0.01, 0.1, 1.0))):
            first, _ = first_decisions(rule, np.array([effect]), 2000)
            seeds.append(np.where(first > 0, first, MOST).mean())
        assert seeds[0] == min(seeds)


def test_the_anytime_valid_interval_is_where_the_mixture_is_one_over_its_error():
    """Theorem 4.9 of Wang and Ramdas."""
    c2, k = 0.1, 7
    t = anytime(c2)[k - FIRST]
    values = np.random.default_rng(0).standard_normal(k)
    values += t * np.std(values, ddof=1) / math.sqrt(k) - values.mean()
    total, square = values.sum(), np.square(values).sum()
    inside = (k + c2) * square
    mixture = math.sqrt(c2 / (k + c2)) * (inside / (inside - total**2)) ** (k / 2)
    assert mixture == pytest.approx(20)


def test_claims_are_judged_by_wider_intervals():
    values = [1.0, 1.3, 0.9]
    claim = judge("it is so", "points", {"a": values, "b": [9.0, 9.1, 9.2]}, at_least(0, "any"))
    assert claim.verdict == HOLDS
    wider = judged(claim, critical)
    assert (wider.verdict, [part.verdict for part in wider.parts]) == (
        UNDECIDED,
        [UNDECIDED, HOLDS],
    )
    half = critical(0.95, 3) * np.std(values, ddof=1) / math.sqrt(3)
    assert wider.interval == pytest.approx((np.mean(values) - half, np.mean(values) + half))
    assert judged(claim) == claim


def test_the_number_of_seeds_needed_is_that_at_which_the_interval_excludes_the_bound():
    values = [1.0, 0.2, 0.9, -0.1]
    k = seeds_needed(values, 0.0, 0.95)
    assert k is not None
    effect = np.mean(values) / np.std(values, ddof=1)
    assert effect * math.sqrt(k) > critical(0.95, k)
    assert effect * math.sqrt(k - 1) < critical(0.95, k - 1)
    assert seeds_needed(values, float(np.mean(values)) + 0.01, 0.95) is None


def test_skewed_values_are_judged_wrongly_hardly_more_often_than_by_students_interval():
    """All intervals by Student's t share this limit, which the documentation states."""
    rows = {row[0]: row[1:] for row in compare_skewed(4000).rows}
    assert len(rows) == 4
    for below, above, rule_below, rule_above in rows.values():
        assert max(rule_below, rule_above) < 1.8 * max(below, above, 2.5)
    assert max(rows["Student's t, 5 degrees of freedom"]) < 3.5
