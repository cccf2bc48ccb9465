"""Asynchronous methods equal naive loops of single events in float64.

Their seconds are those by hand.
"""

import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import BATCH, CLIENTS, HOW, ROUNDS, N, check, engine, nodes_at_start
from tests.engine.train.test_divergence import BAD, clients_with_extremes
from topofl import algorithms, attacks, clocks, data, mixing, topologies
from topofl.algorithms.asynchronous.random_walks import _timeline
from topofl.algorithms.exchanges.events import in_groups, start_of_clock
from topofl.engine.rounds import EngineRound

MEANS = [1.0, 2.5, 1.0, 0.7, 3.0, 1.0]
LINKS = np.random.default_rng(0).uniform(0.1, 4.0, size=(N, N))
SPREAD = 0.5

COMPUTE = {
    "equal": (1.0, lambda rng, i: 1.0),
    "table": (MEANS, lambda rng, i: MEANS[i]),
    "exponential": (clocks.exponential(MEANS), lambda rng, i: MEANS[i] * rng.exponential()),
    "lognormal": (
        clocks.lognormal(2.0, SPREAD),
        lambda rng, i: 2.0 * np.exp(SPREAD * rng.standard_normal() - SPREAD**2 / 2),
    ),
}
DELAYS = {
    "none": (0.0, lambda rng, i, j: 0.0),
    "table": (LINKS, lambda rng, i, j: LINKS[i, j]),
    "exponential": (clocks.exponential(0.3), lambda rng, i, j: 0.3 * rng.exponential()),
}
TIMES = pytest.mark.parametrize(
    ("compute", "delay"),
    [("equal", "none"), ("table", "table"), ("exponential", "exponential")],
)


def graph_of(clients):
    return problems.cliques(clients)


@HOW
@CLIENTS
@TIMES
def test_ad_psgd_equals_naive_events(compute, delay, make, settings):
    clients, model = make(), problems.convolutional()
    graph = graph_of(clients)
    (given, step), (links, message) = COMPUTE[compute], DELAYS[delay]
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    neighbors = [graph.out_neighbors(i) for i in range(N)]
    told = naive.ad_psgd(nodes, neighbors, ROUNDS, lr=0.1, compute=step, delay=message)
    algorithm = algorithms.ad_psgd(0.1, batch_size=BATCH, clock=clocks.Clock(given, links))
    history, models = engine(algorithm, model, clients, graph, **settings)
    check(nodes.flat(), models.flat, start)
    np.testing.assert_allclose(nodes.flat(), models.flat, rtol=0, atol=1e-12)
    seconds, stale = zip(*told, strict=True)
    np.testing.assert_allclose(history["simulated_seconds"], seconds, rtol=1e-12)
    np.testing.assert_array_equal(history["staleness"], stale)


@HOW
@CLIENTS
@pytest.mark.parametrize(
    ("walks", "merge", "compute", "delay"),
    [
        (1, False, "exponential", "table"),
        (3, True, "lognormal", "exponential"),
        (6, False, "table", "table"),
        (6, True, "equal", "none"),
    ],
)
def test_random_walks_equal_naive_events(walks, merge, compute, delay, make, settings):
    clients, model = make(), problems.convolutional()
    graph = graph_of(clients)
    (given, step), (links, message) = COMPUTE[compute], DELAYS[delay]
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    weights = mixing.metropolis_hastings(graph).weights.toarray()
    told = naive.random_walks(
        nodes, weights, ROUNDS, lr=0.1, walks=walks, merge=merge, compute=step, delay=message
    )  # fmt: skip
    algorithm = algorithms.random_walks(
        0.1, walks=walks, merge=merge, batch_size=BATCH, clock=clocks.Clock(given, links)
    )
    history, models = engine(algorithm, model, clients, graph, **settings)
    check(nodes.flat(), models.flat, start)
    np.testing.assert_allclose(nodes.flat(), models.flat, rtol=0, atol=1e-12)
    seconds, moves = zip(*told, strict=True)
    np.testing.assert_allclose(history["simulated_seconds"], seconds, rtol=1e-12)
    np.testing.assert_array_equal(history["messages"], moves)
    np.testing.assert_array_equal(history["bytes"], np.array(moves) * models.flat.shape[1] * 8)


@pytest.mark.parametrize("clock", [{}, {"compute": MEANS, "delay": LINKS}], ids=["equal", "table"])
def test_averaging_keeps_the_sum_and_reaches_the_mean(clock):
    """Where the learning rate is 0."""
    seen = []
    clients = problems.equal_clients()
    callbacks = [problems.each_round(lambda t, models: seen.append(models.flat.clone()))]
    topofl.run(
        algorithms.ad_psgd(lambda t, k: 0.0, clock=clock), model=problems.linear(), clients=clients,
        topology=topologies.ring(N), rounds=60, seed=0, init="independent", callbacks=callbacks,
        **problems.options(dtype=torch.float64, every=60),
    )  # fmt: skip
    mean = seen[0].mean(0)
    for flat in seen:
        torch.testing.assert_close(flat.mean(0), mean, rtol=0, atol=1e-13)
    assert (seen[0] - mean).abs().max() > 0.01
    torch.testing.assert_close(seen[-1], mean.expand(N, -1), rtol=0, atol=1e-4)


def run(algorithm, rounds, graph, clients=None, **settings):
    clients = clients or data.iid(problems.dataset(), graph.n, seed=0)
    return topofl.run(
        algorithm, model=problems.linear(), clients=clients, topology=graph, rounds=rounds, seed=0,
        **problems.options(**{"every": rounds} | settings),
    )  # fmt: skip


def test_a_slow_node_makes_gradients_as_stale_as_by_hand():
    """At 1 s nodes 0 and 1, at 2 s all three, and so on; three events are a round."""
    history = run(algorithms.ad_psgd(0.1, clock={"compute": [1, 1, 2]}), 4, topologies.ring(3))
    assert history["simulated_seconds"].tolist() == [2, 3, 4, 5]
    assert history["staleness"].tolist() == [1, 4, 2, 4]


@pytest.mark.parametrize("n", [3, 6])
def test_equal_speeds_make_gradients_one_round_stale_at_most(n):
    history = run(algorithms.ad_psgd(0.1), 4, topologies.ring(n))
    assert history["staleness"].tolist() == [n - 1] * 4
    assert history["simulated_seconds"].tolist() == [1, 2, 3, 4]


def test_exchanges_take_time_beside_steps():
    d = 36 * 3 + 3
    slow = clocks.Clock(delay=0.5, bandwidth=d * 4 / 2.5)  # of float32: 3 s a message
    assert run(algorithms.ad_psgd(0.1, clock=slow), 3, topologies.ring(4))[
        "simulated_seconds"
    ].tolist() == [3, 6, 9]
    fast = clocks.Clock(compute=4.0, delay=0.5, bandwidth=d * 4 / 2.5)
    assert run(algorithms.ad_psgd(0.1, clock=fast), 3, topologies.ring(4))[
        "simulated_seconds"
    ].tolist() == [4, 8, 12]


def without_staying(n):
    """Weights by which a walk on a ring never stays."""
    return mixing.from_weights(topologies.ring(n).adjacency.toarray() / 2)


def test_seconds_and_bytes_of_a_walk_are_those_by_hand():
    """Steps take 2 s, hops after them half a second; a round's last hop comes with the next."""
    clock = {"compute": 2.0, "delay": 0.5}
    history = run(
        algorithms.random_walks(0.1, clock=clock), 3, topologies.ring(4), mixing=without_staying(4)
    )
    assert history["simulated_seconds"].tolist() == [9.5, 19.5, 29.5]
    assert history["messages"].tolist() == [4, 4, 4]
    assert history["bytes"].tolist() == [4 * 111 * 4] * 3


def test_walks_wait_for_each_other_at_a_node():
    """Two nodes, two walks that never leave: where both are at one node they take turns."""
    identity = mixing.from_weights(np.eye(2))
    algorithm = algorithms.random_walks(0.1, walks=2, clock={"compute": [1.0, 3.0]})
    history = run(algorithm, 3, topologies.ring(2), mixing=identity)
    assert history["simulated_seconds"].tolist() == [2, 3, 5]  # ends at 1, 2 | 3, 3 | 4, 5 | 6, 6
    swap = mixing.from_weights(np.array([[0.0, 1.0], [1.0, 0.0]]))
    moving = run(algorithm, 3, topologies.ring(2), mixing=swap)
    # 0 -> 1 at 1 s, and waits there until 3 s; from then on both are at node 1 or 0 in turns
    assert moving["simulated_seconds"].tolist() == [3, 6, 9]


@pytest.mark.parametrize(
    ("graph", "rule"),
    [
        (topologies.star(5), mixing.metropolis_hastings),
        (topologies.star(5), mixing.uniform),
        (topologies.path(4), mixing.uniform),
    ],
    ids=["all alike", "by degree on a star", "by degree on a path"],
)
def test_visits_tend_to_the_stationary_distribution(graph, rule):
    weights, n, steps = rule(graph), graph.n, 20_000
    state = start_of_clock(due=(1, 1), at=(1, 1), came_at=(1, 1), stage=(1, 1))
    rng = np.random.default_rng(0)
    round = SimpleNamespace(
        n=steps, rng=lambda purpose: rng, weights=weights, note=lambda name, value: None
    )
    events = _timeline(SimpleNamespace(flat=torch.zeros(n, 1)), state, round, clocks.Clock())
    share = np.bincount([i for _, i, _ in events], minlength=n) / steps
    wanted = (
        np.ones(n) / n
        if rule is mixing.metropolis_hastings
        else (1 + graph.out_degrees) / (1 + graph.out_degrees).sum()
    )
    np.testing.assert_allclose(wanted @ weights.weights.toarray(), wanted, atol=1e-12)
    np.testing.assert_allclose(share, wanted, atol=0.02)


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
def test_on_one_node_it_is_plain_sgd(build):
    plain = algorithms.chain("plain", events=algorithms.sgd(0.1, batch_size=8))
    graph = topologies.fully_connected(1)
    found, wanted = (run(one, 6, graph, every=1) for one in (build(0.1, batch_size=8), plain))
    np.testing.assert_allclose(found["loss"], wanted["loss"], rtol=1e-6)
    assert not found["messages"].any()


def test_walks_that_stay_are_local_training():
    plain = algorithms.chain("plain", events=algorithms.sgd(0.1, batch_size=8))
    walking = algorithms.random_walks(0.1, walks=N, batch_size=8)
    identity = mixing.from_weights(np.eye(N))
    found = run(walking, 6, topologies.ring(N), every=1, mixing=identity)
    np.testing.assert_allclose(
        found["loss"], run(plain, 6, topologies.ring(N), every=1)["loss"], rtol=1e-6
    )
    assert not found["messages"].any()


def test_an_event_sends_two_models_along_its_link():
    """On two nodes both events of a round use the one link there is."""
    history = run(algorithms.ad_psgd(0.1), 3, topologies.ring(2))
    assert history["messages"].tolist() == [4, 4, 4]
    assert history["bytes"].tolist() == [4 * 111 * 4] * 3
    assert history["busiest_bytes"].tolist() == [4 * 111 * 4] * 3
    ring = run(
        algorithms.ad_psgd(0.1, clock={"compute": clocks.exponential(1.0)}), 20, topologies.ring(6)
    )
    assert ring["messages"].tolist() == [12] * 20
    assert ring.mixing(3).is_doubly_stochastic
    used = ring.mixing(3).support().adjacency != 0
    assert not (used - used.multiply(topologies.ring(6).adjacency != 0)).nnz


def test_a_straggler_slows_those_who_wait_and_nobody_else():
    n, slow = 5, 10.0
    clock = clocks.Clock(compute=[1.0] * (n - 1) + [slow])
    waiting = run(algorithms.timed(algorithms.dsgd(0.1), clock), 12, topologies.ring(n))
    assert waiting["simulated_seconds"].tolist() == [slow * (t + 1) for t in range(12)]
    free = run(algorithms.ad_psgd(0.1, clock=clock), 12, topologies.ring(n))
    ends = sorted(
        [k + 1.0 for k in range(100) for _ in range(n - 1)] + [slow * (k + 1) for k in range(10)]
    )
    assert free["simulated_seconds"].tolist() == ends[n - 1 : 12 * n : n]
    assert free["simulated_seconds"][-1] == 15  # of 120: 60 steps of the 61 that are then done


HUNDRED = topologies.ring(100)


@pytest.mark.parametrize(
    ("compute", "most"), [(1.0, 1), (clocks.exponential(1.0), 14)], ids=["equal", "exponential"]
)
def test_gradients_of_a_hundred_nodes_are_taken_together(compute, most, monkeypatch):
    calls, train = [], EngineRound.train

    def counting(self, *args, **kwargs):
        calls.append(kwargs["participants"].sum())
        return train(self, *args, **kwargs)

    monkeypatch.setattr(EngineRound, "train", counting)
    clients = data.iid(problems.dataset(n_examples=300), 100, seed=0)
    run(algorithms.ad_psgd(0.1, clock={"compute": compute}), 3, HUNDRED, clients)
    assert sum(calls) == 300
    assert 3 <= len(calls) <= 3 * most


def test_groups_keep_the_order_and_have_nobody_twice():
    events = np.random.default_rng(0).integers(20, size=300).tolist()
    groups = list(in_groups(events, lambda event: [event]))
    assert [event for group in groups for event in group] == events
    assert all(len(set(group)) == len(group) for group in groups)
    assert all(after[0] in before for before, after in pairwise(groups)), "groups are too small"


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
def test_what_diverges_at_one_node_takes_no_step(build):
    kept, clients = [], clients_with_extremes()
    history = topofl.run(
        build(0.1),
        model=problems.linear(),
        clients=clients,
        topology=problems.cliques(clients),
        rounds=6,
        seed=0,
        compute=topofl.Compute(on_divergence="freeze"),
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
    )
    assert torch.isfinite(kept[-1]).all()
    assert history.meta["diverged"]
    others = np.arange(N) != BAD
    assert np.isfinite(history.node_loss[:, others]).any()


def test_attackers_send_others_something_else():
    """Of two nodes with learning rate 0 one flips signs.

    The other takes the mean with its negative; the node that flips does not.
    """
    kept = []
    callbacks = [problems.each_round(lambda t, models: kept.append(models.flat.clone()))]
    flipped = attacks.Attack("flipped", (1,), lambda sent, bad, weights, rng: -sent)
    how = {"callbacks": callbacks, "attackers": flipped, "init": "independent", "every": 1}
    zero = {"lr": lambda t, k: 0.0}
    still = algorithms.chain("still", local=algorithms.train(algorithms.descend(**zero)))
    run(still, 1, topologies.ring(2), **how | {"attackers": None})
    ((a, b),) = kept
    run(algorithms.ad_psgd(**zero), 1, topologies.ring(2), **how)
    a, b = (a - b) / 2, (a + b) / 2
    a, b = (a - b) / 2, (a + b) / 2
    torch.testing.assert_close(kept[-1], torch.stack([a, b]))
    swap = mixing.from_weights(np.array([[0.0, 1.0], [1.0, 0.0]]))
    run(algorithms.random_walks(**zero), 3, topologies.ring(2), mixing=swap, **how)
    torch.testing.assert_close(kept[-1][0].abs(), kept[-1][1].abs())
    lone = kept[-2][0]
    torch.testing.assert_close(kept[-1][0], -lone)  # once around, once flipped


# Synchronous methods


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
def test_seconds_of_synchronous_rounds_are_those_by_hand(algorithm, clock, seconds):
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


def test_drawn_times_are_others_in_each_round_and_the_same_again(tmp_path):
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


# What is refused


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


def test_steps_that_take_no_time_are_refused_and_messages_are_not():
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


def test_what_is_drawn_wrong_later_is_named_too():
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


def test_what_a_factor_raises_itself_is_not_reworded():
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


def test_text_says_what_functions_make():
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


def test_what_is_no_clock_is_named():
    with pytest.raises(
        ValueError, match=r"`clock` must be such as Clock.*by one of exponential, lognormal, Clock"
    ):
        algorithms.random_walks(0.1, clock="sundial")
    with pytest.raises(TypeError, match="`clock` must be a Clock such as"):
        algorithms.random_walks(0.1, clock="exponential(1.0)")
    with pytest.raises(TypeError, match="`clock` must be a Clock such as"):
        algorithms.random_walks(0.1, clock=3.0)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda: algorithms.ad_psgd(0.1, clock={"compute": [1, 2]}),
            ValueError,
            "`clock.compute`.*n=4, got shape",
        ),
        (
            lambda: algorithms.random_walks(0.1, clock={"delay": np.ones((3, 3))}),
            ValueError,
            "`clock.delay`.*n=4, got shape",
        ),
        (
            lambda: algorithms.random_walks(0.1, walks=5),
            ValueError,
            "`walks` must be between 1 and n=4, got 5",
        ),
        (lambda: algorithms.random_walks(0.1, walks=0), ValueError, "`walks`"),
        (lambda: algorithms.random_walks(0.1, merge="yes"), ValueError, "`merge`"),
        (lambda: algorithms.timed(0.1), TypeError, "`algorithm` must be an Algorithm"),
        (
            lambda: algorithms.timed(algorithms.timed(algorithms.dsgd(0.1))),
            ValueError,
            "`algorithm` must not be timed already .* got dsgd with phases local, exchange, "
            "clock; call timed once",
        ),
        (
            lambda: algorithms.timed(algorithms.centralized(0.1), {"compute": [1, 1, 1, 2]}),
            ValueError,
            r"`compute` must be one number for centralized, .* got "
            r"a table of shape \(4,\); give the seconds",
        ),
        (
            lambda: algorithms.timed(algorithms.centralized(0.1), {"delay": np.ones((4, 4))}),
            ValueError,
            r"`delay` must be one number for centralized, .* got a table of shape \(4, 4\); give",
        ),
        (
            lambda: algorithms.timed(algorithms.ad_psgd(0.1)),
            ValueError,
            "`algorithm` must be synchronous, .* itself; run it without timed",
        ),
        (
            lambda: algorithms.timed(algorithms.fedavg(0.1), {"delay": np.ones((4, 4))}),
            ValueError,
            "with a server",
        ),
    ],
    ids=[
        "compute",
        "delay",
        "walks",
        "no walk",
        "merge",
        "number",
        "twice",
        "pooled",
        "pooled delay",
        "asynchronous",
        "server",
    ],
)
def test_bad_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        run(build(), 1, topologies.ring(4))


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
def test_directed_graphs_are_refused(build):
    with pytest.raises(topofl.TopologyError, match="must be undirected"):
        run(build(0.1), 1, topologies.exponential(6, directed=True))


def test_one_pooled_model_is_timed_by_one_number():
    history = run(
        algorithms.timed(algorithms.centralized(0.1), {"compute": 2.0}), 3, topologies.ring(4)
    )
    assert history["simulated_seconds"].tolist() == [2.0, 4.0, 6.0]


EVERY_OTHER = [topologies.ring(6), topologies.exponential(6, directed=True)]
REFUSED = {
    "directed": (
        topologies.exponential(6, directed=True),
        "`topology` must be undirected for .*give undirected graphs",
    ),
    "directed in one round": (
        EVERY_OTHER,
        "`topology` must be undirected for .*give undirected graphs",
    ),
    "none": (None, "`topology` must be given"),
    "in parts": (np.kron(np.eye(2), 1 - np.eye(3)), "`topology` must be connected"),
}


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
@pytest.mark.parametrize("case", REFUSED)
def test_graphs_that_are_refused(case, build):
    graph, message = REFUSED[case]
    graph = topofl.as_topology(graph) if graph is not None else None
    with pytest.raises((TypeError, ValueError), match=message):
        run(build(0.1), 4, graph, clients=problems.equal_clients(6))


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
def test_graphs_that_change_are_taken(build):
    graphs = [topologies.ring(6), topologies.star(6)]
    history = run(build(0.1), 6, topofl.as_topology(graphs), clients=problems.equal_clients(6))
    assert history["messages"].sum() > 0


def test_walks_follow_the_edges_of_the_round_in_which_they_leave(monkeypatch):
    graphs, hops = [topologies.ring(6), topologies.star(6)], []
    module = sys.modules[algorithms.random_walks.__module__]

    def send_along(round, pairs, *rest):
        hops.append((round.t, list(pairs)))
        return original(round, pairs, *rest)

    original = module.send_along
    monkeypatch.setattr(module, "send_along", send_along)
    walks = algorithms.random_walks(0.1, walks=3)
    run(walks, 6, topofl.as_topology(graphs), clients=problems.equal_clients(6))
    moved = [(t, i, j) for t, pairs in hops for i, j in pairs]
    assert {t for t, _, _ in moved} == set(range(6))
    assert all(graphs[t % 2].adjacency[i, j] for t, i, j in moved)


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
@pytest.mark.parametrize(
    "attack",
    [attacks.sign_flip([1]), attacks.noise([1], 1.0), attacks.alie([1], z=1.0)],
    ids=["sign_flip", "noise", "alie"],
)
def test_attacks_work_on_asynchronous_runs(attack, build):
    how = {"clients": problems.equal_clients(6), "every": 1}
    found = run(build(0.1), 6, topologies.ring(6), attackers=attack, **how)
    plain = run(build(0.1), 6, topologies.ring(6), **how)
    honest = np.arange(6) != 1
    assert np.isfinite(found["loss"][:, honest]).all()
    assert np.isnan(found["loss"][:, 1]).all()
    assert not np.allclose(found["loss"][:, honest], plain["loss"][:, honest]), (
        "the attack reaches nobody"
    )
    np.testing.assert_array_equal(found["simulated_seconds"], plain["simulated_seconds"])


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
def test_attacks_that_send_each_neighbor_something_else_are_refused(build):
    said = (
        f"`attackers` must send the same to all neighbors for {build.__name__}"
        ".*'dissensus'.*take sign_flip, noise"
    )
    with pytest.raises(ValueError, match=said):
        run(build(0.1), 1, topologies.ring(6), attackers=attacks.dissensus([1], 1.0))
