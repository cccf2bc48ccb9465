"""Curves summarize histories, survive JSON, and their statistics are those computed by hand."""

import json

import numpy as np
import pytest

from paper_figures.kit.curves import (
    Curve,
    average,
    epochs_to,
    final,
    read_panels,
    spread,
    write_panels,
)


class Told:
    """A history with accuracies that we choose, (E, n), and evaluations after some rounds."""

    def __init__(self, accuracy, rounds):
        self.columns = {"accuracy": np.array(accuracy), "round": np.array(rounds)}

    def __getitem__(self, name):
        return self.columns[name]


def curve(mean, epochs=None, apart=0.0, numbers=None):
    """Return a curve with these means, one row a seed, and nodes `apart` from each other."""
    mean = np.atleast_2d(np.array(mean, dtype=float))
    epochs = (
        np.arange(mean.shape[1], dtype=float) if epochs is None else np.array(epochs, dtype=float)
    )
    half = np.broadcast_to(np.asarray(apart) / 2, mean.shape)
    return Curve(np.arange(len(mean)), epochs, mean, mean - half, mean + half, numbers or {})


def same(one, other):
    assert set(one.numbers) == set(other.numbers)
    for name in ("seeds", "epochs", "mean", "low", "high"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=5e-7)
        assert getattr(one, name).shape == getattr(other, name).shape
    for name, values in one.numbers.items():
        np.testing.assert_allclose(values, other.numbers[name], rtol=0, atol=5e-7)


def test_histories_become_percents_over_nodes_and_rounds_epochs():
    histories = [Told([[0.1, 0.3], [0.5, 0.9]], [0, 8]), Told([[0.2, 0.2], [0.6, 0.6]], [0, 8])]
    made = Curve.of(
        [7, 9], histories, 4, [{"degree": 2.0, "gap": 0.5}, {"degree": 4.0, "gap": 0.25}]
    )
    np.testing.assert_array_equal(made.seeds, [7, 9])
    np.testing.assert_array_equal(made.epochs, [0, 2])
    np.testing.assert_allclose(made.mean, [[20, 70], [20, 60]])
    np.testing.assert_allclose(made.low, [[10, 50], [20, 60]])
    np.testing.assert_allclose(made.high, [[30, 90], [20, 60]])
    np.testing.assert_array_equal(made.numbers["degree"], [2, 4])
    np.testing.assert_array_equal(made.numbers["gap"], [0.5, 0.25])


def test_nodes_without_an_accuracy_are_left_out():
    made = Curve.of([0], [Told([[0.1, np.nan, 0.3]], [0])], 1, [{}])
    np.testing.assert_allclose((made.mean[0, 0], made.low[0, 0], made.high[0, 0]), (20, 10, 30))


def test_another_column_has_evaluations_of_its_own():
    told = Told([[0.1, 0.3], [0.5, 0.9]], [0, 8])
    told.columns["accuracy_fine_tuned"] = np.array([[np.nan, np.nan], [0.2, 0.4]])
    made = Curve.of([0], [told], 4, [{}], column="accuracy_fine_tuned")
    np.testing.assert_array_equal(made.epochs, [2])
    np.testing.assert_allclose(made.mean, [[30]])


def test_panels_survive_json():
    rng = np.random.default_rng(0)
    numbers = {"degree": np.array([9.9, 9.9]), "messages": np.array([18.9, 19.0])}
    panels = {
        "MNIST": {
            "ring": curve(rng.random((2, 4)), apart=1.0, numbers=numbers),
            "grid": curve(rng.random((2, 4))),
        },
        "CIFAR-10": {"ring": curve(rng.random((2, 3)), [0, 0.5, 1])},
    }
    read = read_panels(json.loads(json.dumps(write_panels(panels), allow_nan=False)))
    assert {title: list(arms) for title, arms in read.items()} == {
        "MNIST": ["ring", "grid"],
        "CIFAR-10": ["ring"],
    }
    for title, arms in panels.items():
        for label, expected in arms.items():
            same(read[title][label], expected)


def test_json_has_six_decimals_and_whole_seeds():
    told = write_panels(curve([[1 / 3, 2 / 3]], numbers={"degree": np.array([1 / 7])}))
    assert told["mean"] == [[0.333333, 0.666667]]
    assert told["numbers"] == {"degree": [0.142857]}
    assert told["seeds"] == [0]
    assert isinstance(told["seeds"][0], int)


def test_what_was_written_and_read_is_written_the_same():
    written = write_panels(curve(np.random.default_rng(1).random((3, 5)), apart=0.1))
    assert write_panels(read_panels(written)) == written


def test_average_is_over_evaluations_after_the_start_up_to_the_stop():
    c = curve([[0, 10, 20, 30], [1, 2, 3, 4]])
    np.testing.assert_allclose(average(c), [20, 3])  # not the one at 0
    np.testing.assert_allclose(
        average(c, 1, 3), [25, 3.5]
    )  # not the one at the start, but that at the stop
    np.testing.assert_allclose(average(c, -1), [15, 2.5])
    np.testing.assert_allclose(average(c, 0, 1), [10, 2])


def test_spread_is_best_minus_worst_node():
    c = curve([[50, 60, 70]], apart=[[9, 4, 2]])
    np.testing.assert_allclose(spread(c), [3])
    np.testing.assert_allclose(spread(c, 1), [2])
    np.testing.assert_allclose(spread(c, -1, 0), [9])
    np.testing.assert_allclose(spread(curve([[1, 2]])), [0])


def test_final_is_the_last_tenth_with_its_first_evaluation():
    accuracy = np.arange(101.0)
    np.testing.assert_allclose(final(curve([accuracy, accuracy + 1])), [95, 96])  # of 90 to 100
    np.testing.assert_allclose(final(curve([[10, 50, 60]], [0, 0.9, 1.8])), [60])


@pytest.mark.parametrize("last", [1.0, 3.7, 46.0, 500 / 11, 100.0])
@pytest.mark.parametrize("evaluations", [2, 3, 11, 101])
def test_final_always_has_an_evaluation(last, evaluations):
    epochs = np.linspace(0, last, evaluations)
    count = max(1, round((evaluations - 1) / 10) + 1 if (evaluations - 1) % 10 == 0 else 1)
    np.testing.assert_allclose(
        final(curve([np.arange(evaluations)], epochs)), [evaluations - 1 - (count - 1) / 2]
    )


def test_epochs_to_is_linear_between_evaluations():
    c = curve([[0, 10, 30], [30, 30, 30], [0, 5, 10]], [0, 2, 4])
    np.testing.assert_allclose(epochs_to(c, 20), [3, 0, np.inf])
    np.testing.assert_allclose(epochs_to(c, 10), [2, 0, 4])  # reached at an evaluation
    np.testing.assert_allclose(epochs_to(c, 5), [1, 0, 2])
    np.testing.assert_allclose(epochs_to(c, 0), [0, 0, 0])
    np.testing.assert_array_equal(epochs_to(c, 31), [np.inf] * 3)


def test_epochs_to_may_ask_every_seed_for_its_own_accuracy():
    c = curve([[0, 10, 30], [0, 10, 30]], [0, 2, 4])
    np.testing.assert_allclose(epochs_to(c, np.array([5.0, 20.0])), [1, 3])


def test_epochs_to_is_the_first_time_of_a_curve_that_falls_again():
    np.testing.assert_allclose(epochs_to(curve([[0, 20, 5, 40]]), 10), [0.5])


def test_epochs_to_never_falls_with_accuracy():
    c = curve(np.random.default_rng(2).normal(50, 20, (3, 30)).cumsum(axis=1))
    times = np.array([epochs_to(c, level) for level in np.linspace(0, 1500, 100)])
    assert (times[1:] >= times[:-1]).all()


@pytest.mark.parametrize("statistic", [average, spread])
@pytest.mark.parametrize(("start", "stop"), [(3, np.inf), (0.2, 0.8), (2, 1)])
def test_a_window_without_evaluations_is_an_error_that_names_it(statistic, start, stop):
    with pytest.raises(
        ValueError, match=rf"epochs {start:g} and {stop:g}; the last one is at epoch 3"
    ):
        statistic(curve([[0, 1, 2, 3]]), start, stop)
