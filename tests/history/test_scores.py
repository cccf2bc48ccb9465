"""Scores of nodes, and rounds, bytes and seconds to targets."""

import numpy as np
import pytest

import topofl
from tests.history.helpers import ACCURACY, VALIDATION, scored


def test_last_and_best_are_rows():
    history = scored(accuracy=ACCURACY, loss=-np.array(ACCURACY))
    np.testing.assert_array_equal(history.last(), ACCURACY[3])
    np.testing.assert_array_equal(history.best(), ACCURACY[2])  # the mean is that of the row before
    np.testing.assert_array_equal(history.best("loss"), -np.array(ACCURACY[2]))
    np.testing.assert_array_equal(scored(loss=ACCURACY).best("loss"), ACCURACY[0])


def test_best_skips_evaluations_without_a_score():
    nothing = [np.nan] * 3
    history = scored(
        accuracy_fine_tuned=[nothing, ACCURACY[1], nothing, ACCURACY[3]], loss=[nothing] * 4
    )
    np.testing.assert_array_equal(history.best("accuracy_fine_tuned"), ACCURACY[1])
    assert np.isnan(history.best("loss")).all()
    infinite = scored(loss=[nothing, [np.inf] * 3, nothing])
    assert np.isposinf(infinite.best("loss")).all()


def test_each_node_has_its_own_best_round_on_validation():
    history = scored(accuracy=ACCURACY, accuracy_own_val=VALIDATION)
    np.testing.assert_array_equal(history.best_on_validation(), [1.0, 0.625, np.nan])
    by_loss = scored(accuracy=ACCURACY, loss_own_val=VALIDATION)
    np.testing.assert_array_equal(
        by_loss.best_on_validation(validation="loss_own_val"), [0.875, 0.25, np.nan]
    )


def test_best_on_validation_equals_a_loop_over_nodes():
    rng = np.random.default_rng(0)
    accuracy, validation = rng.integers(0, 4, (2, 30, 50)) / 4
    accuracy[rng.random(accuracy.shape) < 0.3], validation[rng.random(accuracy.shape) < 0.3] = (
        np.nan,
        np.nan,
    )
    accuracy[:, 3], validation[:, 7] = np.nan, np.nan
    found = scored(accuracy=accuracy, accuracy_own_val=validation).best_on_validation()
    for i in range(50):
        best, kept = -1.0, np.nan
        for t in range(30):
            if validation[t, i] >= best and not np.isnan(accuracy[t, i]):
                best, kept = validation[t, i], accuracy[t, i]
        np.testing.assert_equal(found[i], kept)
    assert np.isnan(found[[3, 7]]).all()


def test_infinite_losses_can_be_the_best():
    history = scored(
        accuracy=[[0.5, 0.5], [np.nan, 0.7]], loss_own_val=[[np.inf, np.inf], [np.inf, 3.0]]
    )
    np.testing.assert_array_equal(history.best_on_validation(validation="loss_own_val"), [0.5, 0.7])


def test_personal_equals_manual_statistics():
    values = [*np.linspace(0, 1, 21), np.nan, np.nan]
    personal = topofl.history.Personal.of(values)
    assert personal.mean == pytest.approx(0.5)
    assert personal.variance == pytest.approx(np.mean((np.linspace(0, 1, 21) - 0.5) ** 2))
    assert personal.worst_tenth == pytest.approx(0.025)  # 2 of 21: 0 and 0.05
    assert (personal.n, personal.without) == (21, 2)
    assert topofl.history.Personal.of(values, low_is_good=True).worst_tenth == pytest.approx(0.975)
    assert topofl.history.Personal.of([0.3]).worst_tenth == 0.3
    with pytest.raises(
        ValueError, match=r"`values` must be one number per node, \(n,\), got shape \(2, 3\)"
    ):
        topofl.history.Personal.of(np.zeros((2, 3)))


def test_personal_without_any_score_is_nan():
    personal = topofl.history.Personal.of([np.nan, np.nan])
    assert (personal.n, personal.without) == (0, 2)
    assert np.isnan([personal.mean, personal.variance, personal.worst_tenth]).all()
    assert topofl.history.Personal.of([np.inf, 1.0]).mean == np.inf


def test_personal_of_a_history():
    history = scored(accuracy=ACCURACY, accuracy_own_val=VALIDATION, loss=ACCURACY)
    assert history.personal() == topofl.history.Personal.of(ACCURACY[3])
    assert history.personal(validation="accuracy_own_val").mean == 0.8125
    assert history.personal("loss").worst_tenth == 0.5
    assert history.personal().without == 1


@pytest.mark.parametrize("method", ["last", "best", "best_on_validation", "personal"])
def test_missing_columns_are_named(method, history):
    with pytest.raises(KeyError, match=r"`column`: no column 'acuracy'.*did you mean 'accuracy'"):
        getattr(history, method)("acuracy")
    with pytest.raises(
        ValueError, match=r"`column` must have one score per node, as accuracy, loss, .*'messages'"
    ):
        getattr(history, method)("messages")


def test_errors_for_missing_validation_say_how_to_evaluate_it(history):
    with pytest.raises(
        KeyError, match=r"`validation`: no column .*run with evaluation=\('own_test', 'own_val'\)"
    ):
        history.best_on_validation()


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
