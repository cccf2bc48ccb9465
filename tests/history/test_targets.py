"""Rounds, bytes and seconds until a score is reached."""

import numpy as np
import pytest

import topofl
from tests.history.helpers import scored


def test_rounds_to(history):
    means = history["accuracy"].mean(1)
    assert history.rounds_to(0.0) == 0
    assert history.rounds_to(means[-1]) == history["round"][(means >= means[-1]).argmax()]
    assert isinstance(history.rounds_to(1.0), topofl.NotApplicable) == (means.max() < 1.0)
    with pytest.raises(ValueError, match="`value` must be between 0 and 1, got 80"):
        history.rounds_to(80)


def test_rounds_to_takes_any_accuracy(history):
    means = history["accuracy_before_exchange"].mean(1)
    wanted = history["round"][(means >= means[-1]).argmax()]
    assert history.rounds_to(means[-1], "accuracy_before_exchange") == wanted
    with pytest.raises(
        ValueError, match=r"`column` must be a score, .*accuracy, loss, got 'mixed'"
    ):
        scored(accuracy=[[0.5]], mixed=[[0.5]]).rounds_to(0.5, "mixed")


def test_losses_are_reached_from_above():
    falling = scored(accuracy=[[0.1]] * 3, loss=[[3.0], [1.0], [0.5]])
    assert [falling.rounds_to(value, "loss") for value in (4, 1, 0.75)] == [0, 1, 2]
    missed = topofl.NotApplicable(
        "no mean loss of 3 evaluations in 2 rounds is 0.25 or less: the lowest is 0.5"
    )
    assert falling.rounds_to(0.25, "loss") == falling.bytes_to(0.25, "loss") == missed


def test_bytes_to(history):
    means = history["accuracy"].mean(1)
    for accuracy in (0.0, means[-1], means[2]):
        done = history.rounds_to(accuracy)
        assert history.bytes_to(accuracy) == sum(history["bytes"][t] for t in range(done))
    assert history.bytes_to(0.0) == 0
    assert history.bytes_to(means.max()) > 0
    high = scored(accuracy=[[0.1, 0.3], [0.2, 0.4]])
    assert high.bytes_to(0.9) == topofl.NotApplicable(
        "no mean accuracy of 2 evaluations in 1 rounds is 0.9 or more: the highest is 0.3"
    )
    assert "it has no value" in scored(accuracy=[[np.nan, np.nan]]).bytes_to(0.1).reason
    with pytest.raises(ValueError, match="`value` must be between 0 and 1, got 80"):
        history.bytes_to(80)


def test_seconds_to_a_score(timed, history):
    score = float(np.nanmax(np.nanmean(timed["accuracy"][1:], axis=1)))
    reached = timed.rounds_to(score)
    assert reached in (2, 4)
    assert timed.seconds_to(score) == 1.5 * reached
    assert timed.seconds_to(0.0) == 0
    assert (
        "no mean accuracy of 3 evaluations in 4 rounds is 1 or more" in timed.seconds_to(1.0).reason
    )
    assert (
        "has no simulated seconds: run algorithms.timed(algorithm, clock)"
        in history.seconds_to(0.0).reason
    )
    with pytest.raises(KeyError, match="no column 'acuracy'"):
        timed.seconds_to(score, "acuracy")
