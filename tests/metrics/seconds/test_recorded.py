"""Seconds of finished runs: the clock of `timed`, for every algorithm, and servers of two nodes."""

from dataclasses import replace

import numpy as np
import pytest

import topofl
from tests import problems
from tests.algorithms.table import ALGORITHMS
from topofl import algorithms, clocks, data, metrics, topologies
from topofl.metrics import Hardware, round_time
from topofl.topology import TopologyError

C, ALPHA, BANDWIDTH = 0.3, 0.7, 1000.0
SERIAL = Hardware(compute=C, latency=ALPHA, bandwidth=BANDWIDTH)
PARALLEL = Hardware(compute=C, latency=ALPHA, bandwidth=BANDWIDTH, messages="parallel")
OWN_CLOCK = {"ad_psgd", "random_walks"}
OTHER_LINKS = {"clique_averaging", "dpfl"}
GRAPHS = {
    "relay_sgd": topologies.path(6),
    "clique_averaging": topologies.with_groups(topologies.ring(6), [[0, 1, 2], [3, 4, 5]]),
}


def run(algorithm, n=6, rounds=2, **options):
    """Return a run of nodes with equally many examples, and therefore equally many steps."""
    return topofl.run(
        algorithm,
        model=problems.perceptron(),
        clients=data.iid(problems.dataset(), n, seed=0, val_fraction=0.3),
        rounds=rounds,
        seed=0,
        progress=False,
        **{"topology": topologies.ring(n) if n > 2 else topologies.path(n), **options},
    )


@pytest.mark.parametrize("name", [x for x in algorithms.__all__ if x not in OWN_CLOCK])
def test_seconds_are_those_of_the_clock_of_every_algorithm(name):
    # The clock of `timed` sends messages in parallel, and waits for all nodes.
    algorithm = getattr(algorithms, name)(**ALGORITHMS[name].arguments)
    clock = clocks.Clock(compute=C, delay=ALPHA, bandwidth=BANDWIDTH)
    graph = GRAPHS.get(name, topologies.ring(6))
    history = run(algorithms.timed(algorithm, clock), topology=graph)
    if name in OTHER_LINKS:
        with pytest.raises(TopologyError, match="`x` must have recorded the links"):
            round_time(history, hardware=PARALLEL)
        return
    found = round_time(history, hardware=PARALLEL)
    assert found.elapsed == pytest.approx(history["simulated_seconds"], rel=1e-9)
    assert found.messages == history["messages"].mean()
    assert found.bytes == pytest.approx(history["bytes"].mean(), rel=1e-15)


SERVED = {
    "fedavg": algorithms.fedavg(lr=0.1, epochs=1),
    "pfedgraph": algorithms.pfedgraph(lr=0.1, epochs=1, batch_size=128),
}


def seconds_with_server(history):
    size = history["bytes"][0] / history["messages"][0]
    return C + 2 * ALPHA + 2 * history.meta["n"] * size / BANDWIDTH


@pytest.mark.parametrize("n", [2, 6])
@pytest.mark.parametrize("name", SERVED)
def test_a_server_shares_its_link(name, n):
    # Models of different nodes have different weights in pfedgraph. Two nodes send as many messages
    # to a server as two exchanges along their edge would have.
    history = run(SERVED[name], n=n)
    assert history.meta["server"]
    found = round_time(history, hardware=SERIAL)
    assert found.per_round == pytest.approx(seconds_with_server(history))


@pytest.mark.parametrize("n", [2, 6])
def test_runs_of_earlier_versions_have_their_server_in_the_name_of_the_graph(n):
    history = run(SERVED["fedavg"], n=n)
    old = {key: value for key, value in history.meta.items() if key != "server"}
    found = round_time(replace(history, meta=old), hardware=SERIAL)
    assert found.per_round == pytest.approx(seconds_with_server(history))


@pytest.mark.parametrize("n", [2, 6])
def test_two_exchanges_along_edges_are_not_a_server(n):
    history = run(algorithms.dfedsam(lr=0.1, epochs=1, batch_size=128, gossip_steps=2), n=n)
    assert "server" not in history.meta
    message = 4 * history.meta["parameters"] / BANDWIDTH
    expected = C + 2 * (ALPHA + min(2, n - 1) * message)
    assert round_time(history, hardware=SERIAL).per_round == pytest.approx(expected)


def test_a_table_has_the_reason_of_a_run_that_cannot_be_timed():
    chosen = run(algorithms.dpfl(lr=0.1, epochs=1))
    table = metrics.compare(
        [chosen, topologies.ring(6)], about="cost", n_parameters=10, hardware=PARALLEL
    )
    seconds = table.column("seconds per round")
    assert "some went along other links" in seconds[0].reason
    assert seconds[1] == pytest.approx(C + ALPHA + 40 / BANDWIDTH)


def test_a_table_does_not_hide_other_errors():
    def failing(rng, count):
        return np.ones(count) if count < 20 else -np.ones(count)

    times = clocks.Times(1.0, failing)
    with pytest.raises(ValueError, match="`factor` of `compute` must return finite numbers"):
        metrics.compare(
            [topologies.ring(20)], about="cost", n_parameters=10, hardware={"compute": times}
        )
