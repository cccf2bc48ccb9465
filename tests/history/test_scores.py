"""Scores of nodes, and rounds, bytes and seconds to targets."""

from functools import partial

import numpy as np
import pytest

import topofl
from tests.history.helpers import ACCURACY, VALIDATION, run_of, scored
from topofl import algorithms, topologies
from topofl.history import Personal

NOTHING = [np.nan] * 3


def test_last_and_best_are_rows():
    history = scored(accuracy=ACCURACY, loss=-np.array(ACCURACY))
    np.testing.assert_array_equal(history.last(), ACCURACY[3])
    np.testing.assert_array_equal(history.best(), ACCURACY[2])  # the mean is that of the row before
    np.testing.assert_array_equal(history.best("loss"), -np.array(ACCURACY[2]))
    np.testing.assert_array_equal(scored(loss=ACCURACY).best("loss"), ACCURACY[0])


def test_best_skips_evaluations_without_a_score():
    tuned = [NOTHING, ACCURACY[1], NOTHING, ACCURACY[3]]
    history = scored(accuracy_fine_tuned=tuned, loss=[NOTHING] * 4)
    np.testing.assert_array_equal(history.best("accuracy_fine_tuned"), ACCURACY[1])
    assert np.isnan(history.best("loss")).all()
    assert np.isposinf(scored(loss=[NOTHING, [np.inf] * 3, NOTHING]).best("loss")).all()


def test_each_node_has_its_own_best_round_on_validation():
    history = scored(accuracy=ACCURACY, accuracy_own_val=VALIDATION)
    np.testing.assert_array_equal(history.best_on_validation(), [1.0, 0.625, np.nan])
    by_loss = scored(accuracy=ACCURACY, loss_own_val=VALIDATION)
    found = by_loss.best_on_validation(validation="loss_own_val")
    np.testing.assert_array_equal(found, [0.875, 0.25, np.nan])
    infinite = [[np.inf, np.inf], [np.inf, 3.0]]
    late = scored(accuracy=[[0.5, 0.5], [np.nan, 0.7]], loss_own_val=infinite)
    np.testing.assert_array_equal(late.best_on_validation(validation="loss_own_val"), [0.5, 0.7])


def test_best_on_validation_equals_a_loop_over_nodes():
    rng = np.random.default_rng(0)
    accuracy, validation = rng.integers(0, 4, (2, 30, 50)) / 4
    for values in (accuracy, validation):
        values[rng.random(values.shape) < 0.3] = np.nan
    accuracy[:, 3], validation[:, 7] = np.nan, np.nan
    found = scored(accuracy=accuracy, accuracy_own_val=validation).best_on_validation()
    for i in range(50):
        best, kept = -1.0, np.nan
        for t in range(30):
            if validation[t, i] >= best and not np.isnan(accuracy[t, i]):
                best, kept = validation[t, i], accuracy[t, i]
        np.testing.assert_equal(found[i], kept)
    assert np.isnan(found[[3, 7]]).all()


def test_personal_equals_manual_statistics():
    values = [*np.linspace(0, 1, 21), np.nan, np.nan]
    personal = Personal.of(values)
    assert personal.mean == pytest.approx(0.5)
    assert personal.variance == pytest.approx(np.mean((np.linspace(0, 1, 21) - 0.5) ** 2))
    assert personal.worst_tenth == pytest.approx(0.025)  # 2 of 21: 0 and 0.05
    assert (personal.n, personal.without) == (21, 2)
    assert Personal.of(values, low_is_good=True).worst_tenth == pytest.approx(0.975)
    assert Personal.of([0.3]).worst_tenth == 0.3
    nobody = Personal.of([np.nan, np.nan])
    assert (nobody.n, nobody.without) == (0, 2)
    assert np.isnan([nobody.mean, nobody.variance, nobody.worst_tenth]).all()
    assert Personal.of([np.inf, 1.0]).mean == np.inf


def test_personal_of_a_history():
    history = scored(accuracy=ACCURACY, accuracy_own_val=VALIDATION, loss=ACCURACY)
    assert history.personal() == Personal.of(ACCURACY[3])
    assert history.personal(validation="accuracy_own_val").mean == 0.8125
    assert history.personal("loss").worst_tenth == 0.5
    assert history.personal().without == 1


@pytest.mark.parametrize("column", ["accuracy", "accuracy_before_exchange"])
def test_rounds_and_bytes_to(history, column):
    means = history[column].mean(1)
    assert history.rounds_to(0.0, column) == history.bytes_to(0.0, column) == 0
    for accuracy in (means[-1], means[2]):
        done = history.rounds_to(accuracy, column)
        assert done == history["round"][(means >= accuracy).argmax()]
        counted = done - (column != "accuracy")  # the bytes of the exchange come after the score
        assert history.bytes_to(accuracy, column) == sum(history["bytes"][:counted])
    assert history.bytes_to(means.max(), column) > 0


def test_targets_that_are_missed_have_a_reason():
    falling = scored(accuracy=[[0.1]] * 3, loss=[[3.0], [1.0], [0.5]])
    assert [falling.rounds_to(value, "loss") for value in (4, 1, 0.75)] == [0, 1, 2]
    missed = topofl.NotApplicable(
        "no mean loss of 3 evaluations in 2 rounds is 0.25 or less: the lowest is 0.5"
    )
    assert falling.rounds_to(0.25, "loss") == falling.bytes_to(0.25, "loss") == missed
    high = scored(accuracy=[[0.1, 0.3], [0.2, 0.4]])
    assert high.bytes_to(0.9) == topofl.NotApplicable(
        "no mean accuracy of 2 evaluations in 1 rounds is 0.9 or more: the highest is 0.3"
    )
    assert "it has no value" in scored(accuracy=[[np.nan, np.nan]]).bytes_to(0.1).reason


def test_seconds_to_a_score(timed, history):
    score = float(np.nanmax(np.nanmean(timed["accuracy"][1:], axis=1)))
    reached = timed.rounds_to(score)
    assert reached in (2, 4)
    assert timed.seconds_to(score) == 1.5 * reached
    assert timed.seconds_to(0.0) == 0
    missed = "no mean accuracy of 3 evaluations in 4 rounds is 1 or more"
    assert missed in timed.seconds_to(1.0).reason
    remedy = "has no simulated seconds: run algorithms.timed(algorithm, clock)"
    assert remedy in history.seconds_to(0.0).reason


@pytest.mark.parametrize("name", ["ad_psgd", "random_walks"])
def test_asynchronous_runs_have_seconds_and_steps(name):
    build = partial(getattr(algorithms, name), clock={"compute": 2.0})
    history = run_of(build, topologies.ring(6), rounds=3, every=1)
    seconds = history["simulated_seconds"]
    drawn = history.plot(x="seconds").axes[0].lines[0]
    assert drawn.get_xdata().tolist() == [0, *seconds]
    assert history.seconds_to(0.0, "accuracy") == 0
    assert history["steps"].tolist() == [6] * 3
    assert f", {seconds[-1]:.4g} simulated seconds)" in repr(history)
