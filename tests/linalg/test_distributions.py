"""Projection onto the probability simplex."""

import hypothesis.extra.numpy as arrays
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from topofl._linalg.distributions import simplex_projection

numbers = st.floats(-5, 5, width=32)
rows = arrays.arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 7)), elements=numbers)


@given(rows)
def test_only_the_nearest_point_lowers_all_that_stay_by_the_same(values):
    found = simplex_projection(values)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0, atol=1e-12)
    for value, weights in zip(values, found, strict=True):
        lowered = (value - weights)[weights > 0]
        np.testing.assert_allclose(lowered, lowered[0], rtol=0, atol=1e-12)
        assert (value[weights == 0] <= lowered[0] + 1e-12).all()


@given(rows, st.randoms(use_true_random=False), st.floats(-1e3, 1e3))
def test_it_stays_moves_and_turns_with_the_point(values, random, much):
    found = simplex_projection(values)
    np.testing.assert_allclose(simplex_projection(found), found, rtol=0, atol=1e-12)
    np.testing.assert_allclose(simplex_projection(values + much), found, rtol=0, atol=1e-9)
    order = random.sample(range(values.shape[1]), values.shape[1])
    permuted = simplex_projection(values[:, order])
    np.testing.assert_allclose(permuted, found[:, order], rtol=0, atol=1e-12)


@given(rows, st.data())
def test_where_entries_must_be_zero_the_others_are_projected(values, data):
    where = data.draw(arrays.arrays(bool, values.shape))
    where[:, 0] |= ~where.any(axis=1)
    found = simplex_projection(values, where)
    assert (found[~where] == 0).all()
    for value, inside, weights in zip(values, where, found, strict=True):
        alone = simplex_projection(value[inside][None])[0]
        np.testing.assert_allclose(weights[inside], alone, rtol=0, atol=1e-12)


def test_large_numbers_keep_their_digits():
    large = simplex_projection(np.array([[1e17, 0.0], [2.0**52, 2.0**52 - 0.5]]))
    np.testing.assert_array_equal(large, [[1, 0], [0.75, 0.25]])
