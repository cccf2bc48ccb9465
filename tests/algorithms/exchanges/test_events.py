"""Asynchronous methods equal naive loops over events; their times, messages and groups."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.exchanges.asynchronous_runs import run
from tests.algorithms.harness import BATCH, CLIENTS, HOW, ROUNDS, N, check, engine, nodes_at_start
from tests.engine.train.test_divergence import BAD, clients_with_extremes
from topofl import algorithms, attacks, clocks, data, mixing, topologies
from topofl.algorithms.asynchronous.random_walks import _timeline
from topofl.algorithms.exchanges.events import groups_without_repeats, zero_times
from topofl.engine.round import Round

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


def test_staleness_by_a_slow_node_on_a_small_example():
    """At 1 s nodes 0 and 1, at 2 s all three, and so on; three events are a round."""
    history = run(algorithms.ad_psgd(0.1, clock={"compute": [1, 1, 2]}), 4, topologies.ring(3))
    assert history["simulated_seconds"].tolist() == [2, 3, 4, 5]
    assert history["staleness"].tolist() == [1, 4, 2, 4]


@pytest.mark.parametrize("n", [3, 6])
def test_equal_speeds_make_gradients_one_round_stale_at_most(n):
    history = run(algorithms.ad_psgd(0.1), 4, topologies.ring(n))
    assert history["staleness"].tolist() == [n - 1] * 4
    assert history["simulated_seconds"].tolist() == [1, 2, 3, 4]


def test_exchanges_take_time_in_addition_to_steps():
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


def test_seconds_and_bytes_of_a_walk_on_a_small_example():
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
    state = zero_times(due=(1, 1), at=(1, 1), came_at=(1, 1), stage=(1, 1))
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


def test_a_straggler_slows_only_nodes_that_wait():
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
    calls, train = [], Round._train

    def counting(self, run, models, training, state, all_counts, counts, weights):
        calls.append(np.count_nonzero(counts))
        return train(self, run, models, training, state, all_counts, counts, weights)

    monkeypatch.setattr(Round, "_train", counting)
    clients = data.iid(problems.dataset(n_examples=300), 100, seed=0)
    run(algorithms.ad_psgd(0.1, clock={"compute": compute}), 3, HUNDRED, clients)
    assert sum(calls) == 300
    assert 3 <= len(calls) <= 3 * most


def test_groups_preserve_the_order_and_have_no_repeated_participants():
    events = np.random.default_rng(0).integers(20, size=300).tolist()
    groups = list(groups_without_repeats(events, lambda event: [event]))
    assert [event for group in groups for event in group] == events
    assert all(len(set(group)) == len(group) for group in groups)
    assert all(after[0] in before for before, after in pairwise(groups)), "groups are too small"


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
def test_gradients_that_diverge_are_not_applied(build):
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


def test_attackers_send_forged_models():
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
