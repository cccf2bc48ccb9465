"""Intervals and verdicts over seeds, against scipy.stats."""

import numpy as np
import pytest
from scipy import stats

from topofl.summary.verdicts import (
    FAILS,
    HOLDS,
    UNDECIDED,
    mean_interval,
    t_quantile,
    verdict,
)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("k", [2, 3, 10, 1000])
def test_interval_is_that_of_scipy(k, level):
    values = np.random.default_rng(k).normal(3.0, 2.0, k)
    expected = stats.t.interval(level, k - 1, loc=values.mean(), scale=stats.sem(values))
    assert mean_interval(values, level) == pytest.approx(expected, rel=1e-12)
    assert t_quantile(level, k) == pytest.approx(stats.t.ppf((1 + level) / 2, k - 1), rel=1e-12)


def test_verdicts_follow_the_interval():
    assert verdict([1.0, 1.2, 0.9]) == HOLDS
    assert verdict([1.0, 1.2, 0.9], sign=-1) == FAILS
    assert verdict([1.0, 1.2, 0.9], 1.1) == UNDECIDED
    assert verdict([0.0, 0.0]) == UNDECIDED  # it touches the bound
    assert verdict([5.0]) == UNDECIDED


def test_a_higher_level_decides_less():
    values = [1.0, 2.0, 3.0, 1.5]
    assert mean_interval(values, 0.95)[0] > 0 > mean_interval(values, 0.9999)[0]
    assert verdict(values) == HOLDS
    assert verdict(values, to_hold=0.9999) == UNDECIDED


@pytest.mark.parametrize("values", [[], [np.nan], [1.0, np.inf], [[1.0]]])
def test_values_must_be_finite_numbers(values):
    with pytest.raises(ValueError, match="`values` must be finite numbers, one per seed"):
        mean_interval(values)
