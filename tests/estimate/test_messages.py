"""Estimated messages and bytes equal those that runs record."""

import pytest

import topofl
from tests import problems
from tests.estimate.helpers import ESTIMATE, need
from topofl import algorithms, data, mixing, topologies
from topofl.topology import TopologySequence


def test_changing_graphs_are_averaged_over_their_period():
    clients = problems.equal_clients()
    ring, star = topologies.ring(6), topologies.star(6)
    algorithm = algorithms.dsgd(0.1)
    how = {"model": problems.linear(), "clients": clients, "topology": [ring, star]}
    history = topofl.run(algorithm, rounds=4, seed=0, compute="cpu", **how)
    result = need(algorithm, clients, [ring, star])
    assert result.messages == 11
    for column in ("messages", "bytes", "messages_paper", "bytes_paper"):
        assert getattr(result, column) == history[column].mean(), column
    for column in ("busiest_messages", "busiest_bytes"):
        assert getattr(result, column) == history[column].max(), column
    endless = TopologySequence(6, lambda t: ring if t % 2 else star)
    assert need(algorithm, clients, endless).messages == 11


def test_fixed_weights_and_own_rules():
    ring = topologies.ring(6)
    for weights in (mixing.metropolis_hastings(ring), mixing.max_degree):
        assert need(algorithms.dsgd(0.1), graph=ring, mixing=weights).messages == 12


def test_algorithms_without_messages():
    clients = problems.equal_clients()
    pooled = topofl.estimate(algorithms.centralized(0.1), model=problems.linear(), clients=clients)
    assert (pooled.n, pooled.messages, pooled.busiest_bytes) == (1, 0, 0)
    silent = topofl.estimate(algorithms.local_only(0.1), model=problems.linear(), clients=clients)
    assert (silent.n, silent.messages) == (6, 0)


@pytest.mark.parametrize("walks", [1, 6])
@pytest.mark.parametrize("graph", [topologies.star(12), topologies.ring(12)], ids=["star", "ring"])
@pytest.mark.slow
def test_messages_of_random_walks_are_means_over_many_rounds(graph, walks):
    """A walk stays at its first leaf of a star for some rounds: round 0 differs from others."""
    clients = data.iid(problems.dataset(n_examples=120), 12, seed=0)
    how = {"model": problems.linear(), "clients": clients, "topology": graph}
    algorithm = algorithms.random_walks(0.1, walks=walks, batch_size=4)
    need = topofl.estimate(algorithm, rounds=100, evaluation=50, **how)
    history = topofl.run(algorithm, rounds=100, evaluation=50, seed=7, **how)
    for column in ("messages", "bytes"):
        assert getattr(need, column) == pytest.approx(history[column].mean(), rel=0.2)
    rounds, fewest, most = need.drawn
    assert rounds == 100
    assert fewest < need.messages < most
    assert (
        f"means over 100 rounds, with {fewest} to {most} messages each; a run draws others"
        in str(need)
    )


@pytest.mark.parametrize("members", [10, 12, None], ids=["period 10", "period 12", "no period"])
def test_random_messages_are_recognized_on_changing_graphs(members):
    """By a second seed, since rounds of a period cannot be compared with each other."""
    graphs = [topologies.ring(6), topologies.star(6)] * 6
    graph = TopologySequence(6, lambda t: graphs[t % 2]) if members is None else graphs[:members]
    clients = problems.equal_clients()
    found = need(algorithms.random_walks(0.1, walks=2, batch_size=4), clients, graph)
    rounds, fewest, most = found.drawn
    assert rounds == {10: 100, 12: 108, None: 100}[members], "whole periods"
    assert fewest < found.messages < most
    choco = algorithms.choco_sgd(0.1, compressor="random_k(0.5)")
    for steady, over in ((algorithms.dsgd(0.1), graph), (choco, topologies.ring(6))):
        found = need(steady, clients, over)
        assert found.drawn is None
        assert "drawn at random" not in str(found)


@pytest.mark.parametrize(
    ("method", "mean", "deviation"),
    [
        (algorithms.proxskip(0.1, probability=0.2), 12 * 0.2, 12 * 0.4),
        (algorithms.dp_fedavg(0.1, participation=0.1), 12 * 0.1, 2 * (6 * 0.1 * 0.9) ** 0.5),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_rounds_without_messages_count_in_the_mean(method, mean, deviation):
    found = need(method, graph=topologies.ring(6))
    rounds, fewest, most = found.drawn
    assert (rounds, fewest) == (100, 0)
    assert most > mean
    assert abs(found.messages - mean) < 4 * deviation / rounds**0.5


def every_fifth_round(models, state, round):
    """Draw numbers that decide nothing, and exchange in rounds 4, 9, ..."""
    round.rng("unused").random()
    if round.t % 5 == 4:
        round.mix(round.weights, models.flat)
    return state


def test_messages_of_some_rounds_are_averaged_and_not_called_random():
    phase = algorithms.Phase(lambda models: {}, every_fifth_round)
    found = need(algorithms.chain("lazy", lazy=phase), graph=topologies.ring(6))
    assert found.drawn is None
    assert found.messages == 12 / 5
    two = need(algorithms.chain("lazy", lazy=phase), graph=[topologies.ring(6), topologies.star(6)])
    assert (two.drawn, two.messages) == (None, (12 + 10) / 10)


@pytest.mark.slow
def test_large_random_estimates_stop_when_their_mean_is_precise(monkeypatch):
    rounds, play = [], ESTIMATE.play_rounds

    def counted(played, count):
        for round in play(played, count):
            rounds.append(round.t)
            yield round

    monkeypatch.setattr(ESTIMATE, "play_rounds", counted)
    clients = data.iid(problems.dataset(n_examples=6000), 3000, seed=0)
    found = need(algorithms.random_walks(0.1, batch_size=1), clients, topologies.ring(3000))
    assert found.drawn[0] == 3
    assert sorted(rounds) == [0, 0, 1, 2]
    assert found.messages == pytest.approx(2000, rel=0.03)


def test_constant_numbers_of_random_messages_have_no_range():
    clock = {"compute": "exponential(1.0)"}
    found = need(algorithms.ad_psgd(0.1, clock=clock), graph=topologies.ring(6))
    assert found.drawn == (10, 12, 12)
    assert "which nodes send messages is drawn at random: maxima are those of 10 rounds" in str(
        found
    )
    assert "12 to 12" not in str(found)
