"""Matrices of weighted averages over chosen nodes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import mixing


@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_average_of_chosen_is_the_weighted_mean_of_groups(n, seed):
    rng = np.random.default_rng(seed)
    receives, sizes = rng.random((n, n)) < 0.4, rng.integers(1, 9, n)
    weights = mixing.average_of_chosen(receives, sizes).weights.toarray()
    for k in range(n):
        group = sorted({k, *np.flatnonzero(receives[k])})
        wanted = np.zeros(n)
        wanted[group] = sizes[group] / sizes[group].sum()
        np.testing.assert_allclose(weights[k], wanted, rtol=1e-12)
    scaled = mixing.average_of_chosen(receives, 3.7 * sizes).weights.toarray()
    np.testing.assert_allclose(scaled, weights, rtol=1e-12)


@pytest.mark.parametrize(
    ("chosen", "sizes", "name"),
    [
        (np.ones((2, 3)), None, "chosen"),
        (np.full((2, 2), np.nan), None, "chosen"),
        (1, None, "chosen"),
        (np.eye(2), [1, 0], "sizes"),
        (np.eye(2), [1], "sizes"),
    ],
)
def test_average_of_chosen_refuses(chosen, sizes, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        mixing.average_of_chosen(chosen, sizes)
