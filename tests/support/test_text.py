"""Predicted times in words."""

import pytest

from topofl._support.text import approximate


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "less than a second"),
        (5, "about 5 s"),
        (59.7, "about 1 min"),
        (125, "about 2 min 5 s"),
        (3600, "about 1 h"),
        (3605, "about 1 h"),
        (3660, "about 1 h 1 min"),
        (100_000, "about 1 d 3 h"),
    ],
)
def test_predicted_times_have_their_two_largest_units(seconds, words):
    assert approximate(seconds) == words
