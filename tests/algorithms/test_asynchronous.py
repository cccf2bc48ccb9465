"""Asynchronous methods and simulated clocks: events, seconds, messages, groups, and attacks."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.algorithms.harness import N, engine, trail
from tests.rows.methods import LINKS, MEANS
from topofl import algorithms, attacks, clocks, data, mixing, topologies
from topofl.algorithms import ad_psgd, random_walks, timed
from topofl.algorithms.asynchronous.nodes_and_walks import _timeline
from topofl.algorithms.exchanges.events import zero_times
from topofl.engine.round import Round

BOTH = pytest.mark.parametrize("build", [ad_psgd, random_walks], ids=["ad_psgd", "random_walks"])
RING = topologies.ring(6)
MODEL = 111 * 4
"""Bytes of the linear model."""


def run(algorithm, rounds, graph, clients=None, **settings):
    """Return the history of a run in float32, evaluated at its end."""
    clients = clients or data.iid(problems.dataset(), graph.n, seed=0)
    how = {"seed": 0, "init": "common", "every": rounds, "dtype": torch.float32} | settings
    return engine(algorithm, None, clients, graph, rounds=rounds, **how)[0]


def seconds(algorithm, rounds, graph, **settings):
    return run(algorithm, rounds, graph, **settings)["simulated_seconds"].tolist()


@pytest.mark.parametrize("clock", [{}, {"compute": MEANS, "delay": LINKS}], ids=["equal", "table"])
def test_averaging_keeps_the_sum_and_reaches_the_mean(clock):
    """Where the learning rate is 0."""
    seen = trail(ad_psgd(lambda t, k: 0.0, clock=clock), graph=RING, rounds=60, every=60, seed=0)
    mean = seen[0].mean(0)
    torch.testing.assert_close(seen.mean(1), mean.expand(60, -1), rtol=0, atol=1e-13)
    assert (seen[0] - mean).abs().max() > 0.01
    torch.testing.assert_close(seen[-1], mean.expand(N, -1), rtol=0, atol=1e-4)


def test_staleness_by_a_slow_node_on_a_small_example():
    """At 1 s nodes 0 and 1, at 2 s all three, and so on; three events are a round."""
    history = run(ad_psgd(0.1, clock={"compute": [1, 1, 2]}), 4, topologies.ring(3))
    assert history["simulated_seconds"].tolist() == [2, 3, 4, 5]
    assert history["staleness"].tolist() == [1, 4, 2, 4]


@pytest.mark.parametrize("n", [3, 6])
def test_equal_speeds_make_gradients_one_round_stale_at_most(n):
    history = run(ad_psgd(0.1), 4, topologies.ring(n))
    assert history["staleness"].tolist() == [n - 1] * 4
    assert history["simulated_seconds"].tolist() == [1, 2, 3, 4]


def test_exchanges_take_time_in_addition_to_steps():
    for compute, wanted in ((1.0, [3, 6, 9]), (4.0, [4, 8, 12])):
        slow = clocks.Clock(compute=compute, delay=0.5, bandwidth=MODEL / 2.5)  # 3 s a message
        assert seconds(ad_psgd(0.1, clock=slow), 3, topologies.ring(4)) == wanted


def without_staying(n):
    """Weights by which a walk on a ring never stays."""
    return mixing.from_weights(topologies.ring(n).adjacency.toarray() / 2)


def test_seconds_and_bytes_of_a_walk_on_a_small_example():
    """Steps take 2 s, hops after them half a second; a round's last hop comes with the next."""
    walk = random_walks(0.1, clock={"compute": 2.0, "delay": 0.5})
    history = run(walk, 3, topologies.ring(4), mixing=without_staying(4))
    assert history["simulated_seconds"].tolist() == [9.5, 19.5, 29.5]
    assert history["messages"].tolist() == [4, 4, 4]
    assert history["bytes"].tolist() == [4 * MODEL] * 3


@pytest.mark.parametrize(
    ("graph", "rule"),
    [
        (topologies.star(5), mixing.metropolis_hastings),
        (topologies.star(5), mixing.uniform),
        pytest.param(topologies.path(4), mixing.uniform, marks=pytest.mark.slow),
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
    wanted = np.ones(n) if rule is mixing.metropolis_hastings else 1 + graph.out_degrees
    wanted = wanted / wanted.sum()
    np.testing.assert_allclose(wanted @ weights.weights.toarray(), wanted, atol=1e-12)
    np.testing.assert_allclose(share, wanted, atol=0.02)


def test_an_event_sends_two_models_along_its_link():
    """On two nodes both events of a round use the one link there is."""
    history = run(ad_psgd(0.1), 3, topologies.ring(2))
    assert history["messages"].tolist() == [4, 4, 4]
    assert history["bytes"].tolist() == history["busiest_bytes"].tolist() == [4 * MODEL] * 3
    history = run(ad_psgd(0.1, clock={"compute": clocks.exponential(1.0)}), 20, RING)
    assert history["messages"].tolist() == [12] * 20
    assert history.mixing(3).is_doubly_stochastic
    used = history.mixing(3).support().adjacency != 0
    assert not (used - used.multiply(RING.adjacency != 0)).nnz


def test_a_straggler_slows_only_nodes_that_wait():
    n, slow = 5, 10.0
    clock, graph = clocks.Clock(compute=[1.0] * (n - 1) + [slow]), topologies.ring(n)
    waiting = seconds(timed(algorithms.dsgd(0.1), clock), 12, graph)
    assert waiting == [slow * (t + 1) for t in range(12)]
    fast = [k + 1.0 for k in range(100) for _ in range(n - 1)]
    ends = sorted(fast + [slow * (k + 1) for k in range(10)])
    free = seconds(ad_psgd(0.1, clock=clock), 12, graph)
    assert free == ends[n - 1 : 12 * n : n]
    assert free[-1] == 15  # of 120: 60 steps of the 61 that are then done


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
    run(ad_psgd(0.1, clock={"compute": compute}), 3, topologies.ring(100), clients)
    assert sum(calls) == 300
    assert 3 <= len(calls) <= 3 * most


@BOTH
def test_graphs_may_change(build):
    graphs = topofl.as_topology([RING, topologies.star(6)])
    assert run(build(0.1), 6, graphs)["messages"].sum() > 0


def test_walks_follow_the_edges_of_the_round_in_which_they_leave(monkeypatch):
    graphs, hops = [RING, topologies.star(6)], []
    module = sys.modules[random_walks.__module__]
    original = module.send_along

    def send_along(round, pairs, *rest):
        hops.extend((round.t, i, j) for i, j in pairs)
        return original(round, pairs, *rest)

    monkeypatch.setattr(module, "send_along", send_along)
    run(random_walks(0.1, walks=3), 6, topofl.as_topology(graphs))
    assert {t for t, _, _ in hops} == set(range(6))
    assert all(graphs[t % 2].adjacency[i, j] for t, i, j in hops)


@BOTH
@pytest.mark.parametrize(
    "attack", [attacks.sign_flip([1]), attacks.noise([1], 1.0), attacks.alie([1], z=1.0)]
)
def test_attacks_work_on_asynchronous_runs(attack, build):
    found, plain = (run(build(0.1), 6, RING, attackers=one, every=1) for one in (attack, None))
    honest = np.arange(6) != 1
    assert np.isfinite(found["loss"][:, honest]).all()
    assert np.isnan(found["loss"][:, 1]).all()
    assert not np.allclose(found["loss"][:, honest], plain["loss"][:, honest]), "it reaches nobody"
    np.testing.assert_array_equal(found["simulated_seconds"], plain["simulated_seconds"])


def test_attackers_send_forged_models():
    """Of two nodes with learning rate 0 one flips signs.

    The other takes the mean with its negative; the node that flips does not.
    """
    flipped = attacks.Attack("flipped", (1,), lambda sent, bad, weights, rng: -sent)
    zero, graph = {"lr": lambda t, k: 0.0}, topologies.ring(2)
    world = {"clients": problems.equal_clients(2), "graph": graph, "seed": 0, "every": 1}
    still = algorithms.chain("still", local=algorithms.train(algorithms.descend(**zero)))
    ((a, b),) = trail(still, rounds=1, **world)
    averaged = trail(ad_psgd(**zero), rounds=1, attackers=flipped, **world)[-1]
    for _ in range(2):
        a, b = (a - b) / 2, (a + b) / 2
    torch.testing.assert_close(averaged, torch.stack([a, b]))
    swap = mixing.from_weights(1 - np.eye(2))
    walked = trail(random_walks(**zero), rounds=3, mixing=swap, attackers=flipped, **world)
    torch.testing.assert_close(walked[-1][0].abs(), walked[-1][1].abs())
    torch.testing.assert_close(walked[-1][0], -walked[-2][0])  # once around, once flipped


TABLE = [[0, 1.0, 9, 2], [1, 0, 1, 9], [9, 1, 0, 1], [3, 9, 1, 0]]
"""Seconds from row to column; those of a ring are at most 3."""

SLOW = {"compute": [1, 1, 2, 1]}
BARE = algorithms.Phase(
    lambda models: {}, lambda models, state, round: round.gradients(models, 4, "g") is None or state
)
FOUR = topologies.ring(4)


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
    history, plain = (run(one, 3, FOUR, every=1) for one in (timed(algorithm, clock), algorithm))
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
    whole = seconds(algorithm, 6, FOUR, every=3)
    assert len(set(np.diff(whole).tolist())) == 5
    run(algorithm, 3, FOUR, every=3, saving=tmp_path)
    saving = topofl.Saving(tmp_path, resume=True)
    assert seconds(algorithm, 6, FOUR, every=3, saving=saving) == whole


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
