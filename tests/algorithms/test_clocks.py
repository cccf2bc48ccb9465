"""Clocks: seconds of synchronous rounds, random times, and text."""

import numpy as np
import pytest

import topofl
from tests.algorithms.test_asynchronous import MODEL, run, seconds
from topofl import algorithms, clocks, topologies
from topofl.algorithms import timed

TABLE = [[0, 1.0, 9, 2], [1, 0, 1, 9], [9, 1, 0, 1], [3, 9, 1, 0]]
"""Seconds from row to column; those of a ring are at most 3."""

SLOW = {"compute": [1, 1, 2, 1]}
BARE = algorithms.Phase(
    lambda models: {},
    lambda models, state, round: round.gradients(models, 4, "g") is None or state,
)
RING = topologies.ring(4)


@pytest.mark.parametrize(
    ("algorithm", "clock", "wanted"),
    [
        (algorithms.dsgd(0.1, local_steps=2), SLOW, 4),
        (algorithms.dsgd(0.1), {"delay": TABLE}, 1 + 3),
        (algorithms.dsgd(0.1), {"bandwidth": MODEL / 2}, 1 + 2),
        (algorithms.dsgt(0.1), {"bandwidth": MODEL / 2}, 1 + 4),
        (algorithms.fedavg(0.1, epochs=1, batch_size=1000), SLOW | {"delay": 0.5}, 2 + 1),
        (algorithms.local_only(0.1, local_steps=3), {"delay": 5.0}, 3),
        (algorithms.centralized(0.1), {"compute": 2.0}, 2),
        (algorithms.chain("gradients", take=BARE), SLOW, 2),
    ],
    ids=lambda value: value.name if isinstance(value, algorithms.Algorithm) else None,
)
def test_seconds_of_synchronous_rounds_on_small_examples(algorithm, clock, wanted):
    history, plain = (run(one, 3, RING, every=1) for one in (timed(algorithm, clock), algorithm))
    assert history["simulated_seconds"].tolist() == [wanted * (t + 1) for t in range(3)]
    for column in ("loss", "bytes", "train_loss"):
        np.testing.assert_array_equal(history[column], plain[column])


def test_averaged_gradients_are_waited_for_in_each_step():
    clock = {"compute": [1, 2, 1, 1], "delay": 0.25}
    cliques = topologies.random_cliques(4, 2, seed=0)
    found = seconds(timed(algorithms.clique_averaging(0.1), clock), 2, cliques)
    one = 2 + 0.25  # a step and its gradients; models travel within cliques too
    assert found == [one + 0.25, 2 * one + 0.5]


def test_random_times_differ_between_rounds_and_are_reproducible(tmp_path):
    clock = clocks.Clock(compute=clocks.exponential(1.0), delay=clocks.lognormal(0.1, 1.0))
    algorithm = timed(algorithms.dsgd(0.1), clock)
    whole = seconds(algorithm, 6, RING, every=3)
    assert len(set(np.diff(whole).tolist())) == 5
    run(algorithm, 3, RING, every=3, saving=tmp_path)
    saving = topofl.Saving(tmp_path, resume=True)
    assert seconds(algorithm, 6, RING, every=3, saving=saving) == whole


def test_means_of_drawn_times():
    rng, nodes = np.random.default_rng(0), np.zeros(100_000, dtype=int)
    for times in (clocks.exponential([2.0, 1.0]), clocks.lognormal([2.0, 1.0], 0.5)):
        assert clocks.Clock(times).steps(rng, nodes).mean() == pytest.approx(2.0, rel=0.02)


def test_any_argument_can_have_times_of_steps():
    assert clocks.as_times("seconds", 0.0, of_steps=False).mean == 0
    with pytest.raises(ValueError, match="`seconds` must be finite seconds above 0, got 0"):
        clocks.as_times("seconds", 0.0, of_steps=True)
    with pytest.raises(ValueError, match=r"`seconds` must be one number or one per link"):
        clocks.as_times("seconds", [1.0, 2.0], of_steps=False)


def test_wrong_times_in_later_rounds_are_named():
    """As of times that go wrong once in a while, which no trial shows for sure."""
    draws = iter([np.ones(1), np.ones(16), np.ones(1), np.array([-1.0])])
    clock = clocks.Clock(compute=clocks.Times(1.0, lambda rng, count: next(draws)))
    clock.steps(np.random.default_rng(0), [0])
    said = r"`factor` of `clock.compute` must return finite numbers above 0, .* got -1"
    with pytest.raises(ValueError, match=said):
        clock.steps(np.random.default_rng(0), [0])


def test_measured_times_can_be_replayed():
    """Lists are taken; the trial takes 17 of the measured numbers."""
    measured, few = iter(range(1, 101)), iter([1.0] * 5)
    replay = clocks.Times(0.5, lambda rng, count: [next(measured) for _ in range(count)])
    clock = clocks.Clock(compute=replay)
    assert clock.steps(np.random.default_rng(0), [0, 1]).tolist() == [9.0, 9.5]
    spent = clocks.Times(1.0, lambda rng, count: np.array([next(few) for _ in range(count)]))
    said = r"`factor` of `clock.delay` must return 16 numbers .*cycle"
    with pytest.raises(ValueError, match=said):
        clocks.Clock(delay=spent)


def test_errors_of_a_factor_pass_unchanged():
    wrong = clocks.Times(1.0, lambda rng, count: np.ones(count) + "1")
    with pytest.raises(TypeError) as raised:
        clocks.Clock(compute=wrong)
    assert "take both" not in str(raised.value)
    assert raised.value.__notes__ == ["raised by `factor` of `clock.compute`, called with count=1"]


def test_numbers_and_tables_may_be_text():
    clock = clocks.Clock(compute="1.5", delay="[[0, 1], [2, 0]]", bandwidth=100)
    assert clock.steps(np.random.default_rng(0), [0]).tolist() == [1.5]
    assert repr(clock) == "Clock(compute=1.5, delay=[[0.0, 1.0], [2.0, 0.0]], bandwidth=100.0)"
    again = clocks.as_clock(repr(clock))
    assert again.settings == clock.settings == clocks.Clock(**clock.settings).settings
    assert repr(clocks.exponential(2)) == "exponential(2)"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("exponential(2.0)", clocks.exponential(2.0)),
        ("exponential([1, 2, 3])", clocks.exponential([1, 2, 3])),
        ("lognormal(mean=0.1, sigma=0.5)", clocks.lognormal(0.1, 0.5)),
    ],
)
def test_clocks_have_readable_text(text, made):
    given, wanted = (clocks.Clock(compute=one) for one in (text, made))
    assert given.settings == wanted.settings
    assert clocks.Clock(compute=given.settings["compute"]).settings == given.settings
    found, drawn = (one.steps(np.random.default_rng(0), [0, 1, 2]) for one in (given, wanted))
    np.testing.assert_array_equal(found, drawn)
    whole = clocks.as_clock("Clock(compute=exponential(2.0), bandwidth=1e6)")
    assert whole.settings == {"compute": "exponential(2)", "delay": "0", "bandwidth": 1e6}
