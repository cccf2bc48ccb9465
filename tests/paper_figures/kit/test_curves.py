"""Curves summarize histories, survive JSON, and their statistics and tables are those by hand."""

import json

import numpy as np
import pytest

from paper_figures.kit.curves import (
    Curve,
    arms_table,
    average,
    epochs_to,
    final,
    read_panels,
    spread,
    write_panels,
)
from topofl import NotApplicable, Spread


class Told:
    """A history with accuracies that we choose, (E, n), and evaluations after some rounds."""

    def __init__(self, accuracy, rounds, **more):
        self.columns = {"accuracy": np.array(accuracy), "round": np.array(rounds), **more}

    def __getitem__(self, name):
        return self.columns[name]


def curve(mean, epochs=None, apart=0.0, numbers=None):
    """Return a curve with these means, one row a seed, and nodes `apart` from each other."""
    mean = np.atleast_2d(np.array(mean, dtype=float))
    epochs = np.array(range(mean.shape[1]) if epochs is None else epochs, dtype=float)
    half = np.broadcast_to(np.asarray(apart) / 2, mean.shape)
    return Curve(np.arange(len(mean)), epochs, mean, mean - half, mean + half, numbers or {})


def test_histories_become_percents_over_nodes_and_rounds_epochs():
    histories = [Told([[0.1, 0.3], [0.5, 0.9]], [0, 8]), Told([[0.2, np.nan], [0.6, 0.6]], [0, 8])]
    numbers = [{"degree": 2.0, "gap": 0.5}, {"degree": 4.0, "gap": 0.25}]
    made = Curve.of([7, 9], histories, 4, numbers)
    np.testing.assert_array_equal(made.seeds, [7, 9])
    np.testing.assert_array_equal(made.epochs, [0, 2])
    np.testing.assert_allclose(made.mean, [[20, 70], [20, 60]])  # without nodes that have none
    np.testing.assert_allclose(made.low, [[10, 50], [20, 60]])
    np.testing.assert_allclose(made.high, [[30, 90], [20, 60]])
    np.testing.assert_array_equal(made.numbers["degree"], [2, 4])
    np.testing.assert_array_equal(made.numbers["gap"], [0.5, 0.25])


def test_another_column_has_evaluations_of_its_own():
    tuned = {"accuracy_fine_tuned": np.array([[np.nan, np.nan], [0.2, 0.4]])}
    told = Told([[0.1, 0.3], [0.5, 0.9]], [0, 8], **tuned)
    made = Curve.of([0], [told], 4, [{}], column="accuracy_fine_tuned")
    np.testing.assert_array_equal(made.epochs, [2])
    np.testing.assert_allclose(made.mean, [[30]])


def test_panels_survive_json_with_six_decimals_and_whole_seeds():
    numbers = {"degree": np.array([1 / 7, 9.9])}
    some = curve(np.random.default_rng(0).random((2, 3)), [0, 0.5, 1], apart=1.0, numbers=numbers)
    panels = {"MNIST": {"ring": some, "grid": curve([[1 / 3, 2 / 3]])}, "CIFAR-10": {"ring": some}}
    told = write_panels(panels)
    assert told["MNIST"]["grid"]["mean"] == [[0.333333, 0.666667]]
    assert told["MNIST"]["ring"]["numbers"] == {"degree": [0.142857, 9.9]}
    assert [type(seed) for seed in told["MNIST"]["ring"]["seeds"]] == [int, int]
    read = read_panels(json.loads(json.dumps(told, allow_nan=False)))
    assert write_panels(read) == told
    assert {title: list(arms) for title, arms in read.items()} == {
        "MNIST": ["ring", "grid"],
        "CIFAR-10": ["ring"],
    }
    for name in ("seeds", "epochs", "mean", "low", "high"):
        found = getattr(read["CIFAR-10"]["ring"], name)
        np.testing.assert_allclose(found, getattr(some, name), rtol=0, atol=5e-7, strict=True)


def test_average_is_over_evaluations_after_the_start_up_to_the_stop():
    c = curve([[0, 10, 20, 30], [1, 2, 3, 4]])
    np.testing.assert_allclose(average(c), [20, 3])  # not the one at 0
    np.testing.assert_allclose(average(c, 1, 3), [25, 3.5])  # not at the start, but at the stop
    np.testing.assert_allclose(average(c, -1), [15, 2.5])
    np.testing.assert_allclose(average(c, 0, 1), [10, 2])


def test_spread_is_best_minus_worst_node():
    c = curve([[50, 60, 70]], apart=[[9, 4, 2]])
    np.testing.assert_allclose([spread(c), spread(c, 1), spread(c, -1, 0)], [[3], [2], [9]])


@pytest.mark.parametrize("last", [1.0, 3.7, 46.0, 500 / 11, 100.0])
@pytest.mark.parametrize(("evaluations", "kept"), [(2, 1), (3, 1), (11, 2), (101, 11)])
def test_final_is_the_last_tenth_with_its_first_evaluation(last, evaluations, kept):
    c = curve([np.arange(evaluations)], np.linspace(0, last, evaluations))
    np.testing.assert_allclose(final(c), [evaluations - 1 - (kept - 1) / 2])


def test_epochs_to_is_linear_between_evaluations():
    c = curve([[0, 10, 30], [30, 30, 30], [0, 5, 10]], [0, 2, 4])
    for level, expected in (
        (20, [3, 0, np.inf]),
        (10, [2, 0, 4]),  # reached at an evaluation
        (5, [1, 0, 2]),
        (0, [0, 0, 0]),
        (31, [np.inf] * 3),
        (np.array([5.0, 20.0, 10.0]), [1, 0, 4]),  # of each seed its own
    ):
        np.testing.assert_allclose(epochs_to(c, level), expected)
    np.testing.assert_allclose(epochs_to(curve([[0, 20, 5, 40]]), 10), [0.5])  # the first time


NUMBERS = {"messages": 18.9, "messages_paper": 19.8, "bytes": 2.5e6, "gap": 0.08}


def rising(*ends, **numbers):
    """Return an arm that rises from 10 to an end a seed in half of 10 epochs; nodes are 4 below."""
    mean = np.array([10 + (end - 10) * np.minimum(1, np.arange(11) / 5) for end in ends])
    known = {name: np.broadcast_to(value, len(ends)) for name, value in numbers.items()}
    return Curve(np.arange(len(ends)), np.arange(11.0), mean, mean - 4, mean + 2, known)


def test_a_table_holds_what_the_curves_hold():
    own = NUMBERS | {"degree": 9.9, "heterogeneity": [0.1, 0.3], "skew": 0.0625}
    full = rising(89.5, 90.5, degree=99.0, heterogeneity=1e-17, **NUMBERS)
    table = arms_table("MNIST", {"full": full, "cliques": rising(79.5, 80.5, **own)})
    # The best arm ends at 90: 95 % of that is 85.5.
    assert dict(zip(table.columns, table.rows[1], strict=True)) == {
        "arm": "cliques",
        "mean degree": 9.9,
        "messages": 18.9,
        "messages, as in the paper": 19.8,
        "MB": 2.5,
        "spectral gap": 0.08,
        "heterogeneity": 0.2,
        "clique skew": 0.0625,
        "accuracy % mean": Spread(80.0, 79.5, 80.5),
        "worst node": Spread(76.0, 75.5, 76.5),
        "best node": Spread(82.0, 81.5, 82.5),
        "epochs to 85 %": NotApplicable("cliques: 2 of 2 seeds stayed below 85 %"),
    }
    assert table.column("mean degree") == (99.0, 9.9)
    assert table.column("heterogeneity")[0] == 0.0  # up to rounding
    assert table.column("clique skew")[0] == NotApplicable("the graph has no cliques")
    reached = table.column("epochs to 85 %")[0]  # from 10 up to 89.5 and 90.5 in 5 epochs
    assert (reached.high, reached.low) == pytest.approx((5 * 75 / 79.5, 5 * 75 / 80.5), abs=1e-12)
    assert table.title.startswith("MNIST: ")
    assert table.title.endswith("of 2 seeds")


def test_what_is_missing_or_not_reached_by_all_seeds_is_not_applicable():
    bare = arms_table("MNIST", {"bare": rising(90, degree=2.0)})
    row = dict(zip(bare.columns, bare.rows[0], strict=True))
    assert row["mean degree"] == 2.0
    for name in ("messages", "messages, as in the paper", "MB", "spectral gap", "heterogeneity"):
        assert row[name] == NotApplicable("was not recorded")
    assert bare.title.endswith("of 1 seed")
    table = arms_table("MNIST", {"full": rising(89.5, 90.5), "cliques": rising(84.5, 85.5)})
    reason = "cliques: 1 of 2 seeds stayed below 85 %"
    assert table.column("epochs to 85 %")[1] == NotApplicable(reason)
