"""Clocks: seconds of synchronous rounds, random times, and errors."""

import numpy as np
import pytest

import topofl
from tests import problems
from tests.algorithms.exchanges.asynchronous_runs import run
from topofl import algorithms, clocks, topologies

TABLE = [[0, 1.0, 9, 2], [1, 0, 1, 9], [9, 1, 0, 1], [3, 9, 1, 0]]
"""Seconds from row to column; those of a ring are at most 3."""


@pytest.mark.parametrize(
    ("algorithm", "clock", "seconds"),
    [
        (algorithms.dsgd(0.1, local_steps=2), {"compute": [1, 1, 2, 1]}, 4),
        (algorithms.dsgd(0.1), {"delay": TABLE}, 1 + 3),
        (algorithms.dsgd(0.1), {"bandwidth": 111 * 4 / 2}, 1 + 2),
        (algorithms.dsgt(0.1), {"bandwidth": 111 * 4 / 2}, 1 + 4),
        (
            algorithms.fedavg(0.1, epochs=1, batch_size=1000),
            {"compute": [1, 1, 2, 1], "delay": 0.5},
            2 + 1,
        ),
        (algorithms.local_only(0.1, local_steps=3), {"delay": 5.0}, 3),
        (
            algorithms.chain(
                "gradients",
                take=algorithms.Phase(
                    lambda models: {},
                    lambda models, state, round: round.gradients(models, 4, "g") is None or state,
                ),
            ),
            {"compute": [1, 1, 2, 1]},
            2,
        ),
    ],
    ids=[
        "slowest node",
        "slowest link",
        "bandwidth",
        "two models",
        "server",
        "no messages",
        "bare gradients",
    ],
)
def test_seconds_of_synchronous_rounds_on_small_examples(algorithm, clock, seconds):
    graph = topologies.ring(4)
    history, plain = (
        run(algorithms.timed(algorithm, clock), 3, graph, every=1),
        run(algorithm, 3, graph, every=1),
    )
    assert history["simulated_seconds"].tolist() == [seconds * (t + 1) for t in range(3)]
    for column in ("loss", "bytes", "train_loss"):
        np.testing.assert_array_equal(history[column], plain[column])


def test_averaged_gradients_are_waited_for_in_each_step():
    clients = problems.equal_clients(4)
    graph = topologies.random_cliques(4, 2, seed=0)
    timed = algorithms.timed(
        algorithms.clique_averaging(0.1), {"compute": [1, 2, 1, 1], "delay": 0.25}
    )
    history = topofl.run(
        timed,
        model=problems.linear(),
        clients=clients,
        topology=graph,
        rounds=2,
        seed=0,
        compute=topofl.Compute(on_disconnected="allow"),
    )
    one = 2 + 0.25  # a step and its gradients; models travel within cliques too
    assert history["simulated_seconds"].tolist() == [one + 0.25, 2 * one + 0.5]


def test_random_times_differ_between_rounds_and_are_reproducible(tmp_path):
    clock = clocks.Clock(compute=clocks.exponential(1.0), delay=clocks.lognormal(0.1, 1.0))
    algorithm = algorithms.timed(algorithms.dsgd(0.1), clock)
    whole = run(algorithm, 6, topologies.ring(4), every=3)["simulated_seconds"]
    assert len(set(np.diff(whole).tolist())) == 5
    run(algorithm, 3, topologies.ring(4), every=3, saving=tmp_path)
    resumed = run(
        algorithm, 6, topologies.ring(4), every=3, saving=topofl.Saving(tmp_path, resume=True)
    )
    np.testing.assert_array_equal(resumed["simulated_seconds"], whole)


def test_means_of_drawn_times():
    rng, nodes = np.random.default_rng(0), np.zeros(100_000, dtype=int)
    for times in (clocks.exponential([2.0, 1.0]), clocks.lognormal([2.0, 1.0], 0.5)):
        assert clocks.Clock(times).steps(rng, nodes).mean() == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"compute": 0},
            ValueError,
            "`clock.compute` must be finite seconds above 0, got 0; remove nodes that never",
        ),
        (
            {"compute": [1, -1]},
            ValueError,
            "`clock.compute` must be finite seconds above 0, got -1 for node 1",
        ),
        ({"compute": [1, float("inf")]}, ValueError, "`clock.compute`.*got inf for node 1"),
        (
            {"compute": [[1]]},
            ValueError,
            r"`clock.compute` must be one number or one per node, shape \(n,\), got shape",
        ),
        (
            {"compute": "fast"},
            ValueError,
            "`clock.compute` must be such as 1.0 or exponential.*, lognormal, got 'fast'",
        ),
        (
            {"compute": "exponential(0)"},
            ValueError,
            "`clock.compute` must be finite seconds above 0, got 0",
        ),
        (
            {"compute": "exponential(1"},
            ValueError,
            "`clock.compute` must be such as .* got 'exponential",
        ),
        (
            {"delay": "lognormal(0.1)"},
            ValueError,
            "`clock.delay` must be such as .*missing 1 required.*sigma",
        ),
        (
            {"delay": "lognormal(0.1, sigma=-1)"},
            ValueError,
            "`sigma` must be a finite number of at least 0",
        ),
        (
            {"delay": "eval(0.1)"},
            ValueError,
            "`clock.delay` must be such as .* by one of exponential, lognormal",
        ),
        (
            {"compute": clocks.exponential(0)},
            ValueError,
            "`clock.compute` must be finite seconds above 0",
        ),
        (
            {"compute": "exponential([1, 0])"},
            ValueError,
            "`mean` must be finite seconds above 0, got 0 for node 1",
        ),
        ({"compute": "nan"}, ValueError, "`clock.compute` must be such as .* got 'nan'"),
        ({"compute": "-1.0"}, ValueError, "`clock.compute` must be finite seconds above 0, got -1"),
        (
            {"delay": -0.1},
            ValueError,
            "`clock.delay` must be finite seconds of at least 0, got -0.1",
        ),
        ({"delay": [[0, 1], [-2, 0]]}, ValueError, r"`clock.delay`.*got -2 at \(1, 0\)"),
        ({"delay": [1, 2]}, ValueError, "`clock.delay` must be one number or one per link"),
        ({"bandwidth": 0}, ValueError, "`clock.bandwidth` must be a finite number above 0"),
        (
            {"speed": 1},
            ValueError,
            "`clock` must only have the keys compute, delay, bandwidth, got 'speed'",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_clocks_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        algorithms.ad_psgd(0.1, clock=arguments)


TIMES_MADE = {
    "number": (
        lambda rng, count: 1.0,
        "must return an array of `count` numbers, shape \\(1,\\), got 1.0; draw",
    ),
    "one number": (lambda rng, count: np.ones(1), "shape \\(16,\\), got shape \\(1,\\)"),
    "table": (lambda rng, count: np.ones((count, 2)), "shape \\(1,\\), got shape \\(1, 2\\)"),
    "text": (lambda rng, count: np.full(count, "1"), "shape \\(1,\\), got shape \\(1,\\) of <U1"),
    "negative": (
        lambda rng, count: rng.standard_normal(count),
        "must return finite numbers .*, got -.*; bound the draws",
    ),
    "nan": (
        lambda rng, count: np.full(count, np.nan),
        "must return finite numbers .*, got nan; bound",
    ),
    "infinite": (
        lambda rng, count: np.full(count, np.inf),
        "must return finite numbers .*, got inf; bound",
    ),
    "vanishing": (clocks.lognormal(1.0, 100.0).factor, "must return finite numbers"),
}


@pytest.mark.parametrize("name", ["compute", "delay"])
@pytest.mark.parametrize("made", TIMES_MADE)
def test_bad_draws_are_named_before_the_run(made, name):
    factor, message = TIMES_MADE[made]
    if (made, name) == ("vanishing", "delay"):
        clocks.Clock(delay=clocks.Times(1.0, factor))  # a message may take no time
        return
    with pytest.raises(
        ValueError, match=f"^`factor` of `clock.{name}` {message}" if "must" in message else message
    ):
        algorithms.ad_psgd(0.1, clock={name: clocks.Times(1.0, factor)})


@pytest.mark.parametrize("name", ["compute", "seconds"])
def test_any_argument_can_have_times_of_steps(name):
    assert clocks.as_times(name, 0.0, of_steps=False).mean == 0
    with pytest.raises(ValueError, match=f"`{name}` must be finite seconds above 0, got 0"):
        clocks.as_times(name, 0.0, of_steps=True)
    with pytest.raises(ValueError, match=rf"`{name}` must be one number or one per link"):
        clocks.as_times(name, [1.0, 2.0], of_steps=False)


def test_steps_must_take_time_and_messages_need_not():
    halting = clocks.Times(1.0, lambda rng, count: np.where(rng.random(count) < 0.5, 2.0, 0.0))
    with pytest.raises(
        ValueError,
        match=r"`factor` of `clock.compute` must return finite numbers above 0, .* got 0; bound",
    ):
        clocks.Clock(compute=halting)
    with pytest.raises(ValueError, match=r"`factor` of `clock.compute` .* got 0; lower `sigma`"):
        clocks.Clock(compute=clocks.lognormal(1.0, 100.0))
    assert set(
        clocks.Clock(delay=halting).messages(np.random.default_rng(0), [0] * 50, [1] * 50, 8)
    ) == {0, 2}


@pytest.mark.parametrize(
    "factor", [3.0, "exp", lambda rng: np.ones(1)], ids=["number", "text", "one argument"]
)
def test_factors_are_functions_of_two_arguments(factor):
    with pytest.raises(TypeError, match=r"`factor` must be a function (of )?\(rng, count\)"):
        clocks.Times(1.0, factor)


def test_wrong_times_in_later_rounds_are_named():
    """As of times that go wrong once in a while, which no trial shows for sure."""
    draws = iter([np.ones(1), np.ones(16), np.ones(1), np.array([-1.0])])
    clock = clocks.Clock(compute=clocks.Times(1.0, lambda rng, count: next(draws)))
    clock.steps(np.random.default_rng(0), [0])
    with pytest.raises(
        ValueError,
        match=r"`factor` of `clock.compute` must return finite numbers above 0, .* got -1",
    ):
        clock.steps(np.random.default_rng(0), [0])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: clocks.exponential([1, 0]),
            "`mean` must be finite seconds above 0, got 0 for node 1",
        ),
        (lambda: clocks.exponential(-1), "`mean` must be finite seconds of at least 0, got -1"),
        (lambda: clocks.lognormal([[0, 1], [-1, 0]], 1.0), r"`mean` .* got -1 at \(1, 0\)"),
        (lambda: clocks.exponential(np.ones((2, 3))), r"`mean` must be .* got shape \(2, 3\)"),
        (
            lambda: clocks.Times(float("nan")),
            "`mean` must be finite seconds of at least 0, got nan",
        ),
    ],
    ids=["zero", "negative", "link", "shape", "nan"],
)
def test_bad_means_are_refused_where_they_are_given(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_measured_times_can_be_replayed():
    """Lists are taken; the trial takes 17 of the measured numbers."""
    measured = iter(range(1, 101))
    replay = clocks.Times(0.5, lambda rng, count: [next(measured) for _ in range(count)])
    clock = clocks.Clock(compute=replay)
    assert clock.steps(np.random.default_rng(0), [0, 1]).tolist() == [9.0, 9.5]
    few = iter([1.0] * 5)
    spent = clocks.Times(1.0, lambda rng, count: np.array([next(few) for _ in range(count)]))
    with pytest.raises(
        ValueError, match=r"`factor` of `clock.delay` must return 16 numbers .*cycle"
    ):
        clocks.Clock(delay=spent)


def test_errors_of_a_factor_pass_unchanged():
    def factor(rng, count):
        return np.ones(count) + "1"

    with pytest.raises(TypeError) as raised:
        clocks.Clock(compute=clocks.Times(1.0, factor))
    assert "take both" not in str(raised.value)
    assert raised.value.__notes__ == ["raised by `factor` of `clock.compute`, called with count=1"]


def test_numbers_and_tables_may_be_text():
    clock = clocks.Clock(compute="1.5", delay="[[0, 1], [2, 0]]", bandwidth=100)
    assert clock.steps(np.random.default_rng(0), [0]).tolist() == [1.5]
    assert repr(clock) == "Clock(compute=1.5, delay=[[0.0, 1.0], [2.0, 0.0]], bandwidth=100.0)"
    again = clocks.as_clock(repr(clock))
    assert again.settings == clock.settings == clocks.Clock(**clock.settings).settings
    assert repr(clocks.exponential(2)) == "exponential(2)"


def test_clocks_have_readable_text():
    for text, made in (
        ("exponential(2.0)", clocks.exponential(2.0)),
        ("exponential([1, 2, 3])", clocks.exponential([1, 2, 3])),
        ("lognormal(mean=0.1, sigma=0.5)", clocks.lognormal(0.1, 0.5)),
    ):
        given, wanted = (clocks.Clock(compute=one) for one in (text, made))
        assert given.settings == wanted.settings
        assert clocks.Clock(compute=given.settings["compute"]).settings == given.settings
        found, drawn = (one.steps(np.random.default_rng(0), [0, 1, 2]) for one in (given, wanted))
        np.testing.assert_array_equal(found, drawn)
    whole = clocks.as_clock("Clock(compute=exponential(2.0), bandwidth=1e6)")
    assert whole.settings == {"compute": "exponential(2)", "delay": "0", "bandwidth": 1e6}


def test_objects_other_than_clocks_are_named():
    with pytest.raises(
        ValueError, match=r"`clock` must be such as Clock.*by one of exponential, lognormal, Clock"
    ):
        algorithms.random_walks(0.1, clock="sundial")
    with pytest.raises(TypeError, match="`clock` must be a Clock such as"):
        algorithms.random_walks(0.1, clock="exponential(1.0)")
    with pytest.raises(TypeError, match="`clock` must be a Clock such as"):
        algorithms.random_walks(0.1, clock=3.0)


def test_one_pooled_model_is_timed_by_one_number():
    history = run(
        algorithms.timed(algorithms.centralized(0.1), {"compute": 2.0}), 3, topologies.ring(4)
    )
    assert history["simulated_seconds"].tolist() == [2.0, 4.0, 6.0]
