"""Seconds per round against a plain loop over nodes and messages."""

from typing import Any

import numpy as np
import pytest

import topofl
from tests import problems
from tests.metrics.seconds.naive import links, naive_seconds
from topofl import algorithms, clocks, mixing, topologies
from topofl.metrics import Hardware, round_time

N, NBYTES = 10, 100.0
PLACES = [0, 0, 0, 1, 1, 2, 3, 3, 3, 3]
COMPUTE = np.random.default_rng(0).uniform(1, 5, N)


def links_of(size) -> dict[str, Any]:
    """Return random links between this many machines, of which transfers and latency both count."""
    rng = np.random.default_rng(size)
    return {
        "latency": rng.uniform(0, 3, (size, size)),
        "bandwidth": rng.uniform(50, 200, size),
        "path_bandwidth": rng.uniform(20, 200, (size, size)),
        "overhead": 0.1,
    }


def server_links(size) -> dict[str, Any]:
    tables = links_of(size) | {"latency": 0.7, "path_bandwidth": 60.0}
    return tables | {"server_bandwidth": 500.0}


def check(found, naive, rounds):
    ends, parts = naive
    assert found.elapsed == pytest.approx(ends)
    per_round = (found.compute, found.latency, found.transfer)
    assert per_round == pytest.approx(np.array(parts) / rounds)


HARDWARE: dict[str, dict[str, Any]] = {
    "nodes": {},
    "parallel": {"messages": "parallel"},
    "placed": {"placement": PLACES, "processors": 2},
    "copies": {"placement": PLACES, "copies": "machine"},
    "unlimited": {"bandwidth": np.where(np.arange(N) % 3, 80.0, np.inf)},
}


def drawn(hardware, rounds, steps, seed):
    """Return the seconds (R, n) in which nodes train, with the draws of round_time."""
    rng = np.random.default_rng(seed)
    return [steps * COMPUTE * hardware.compute.factor(rng, N) for _ in range(rounds)]


@pytest.mark.parametrize("make", [np.asarray, clocks.exponential], ids=["fixed", "random"])
@pytest.mark.parametrize("waiting", ["all", "neighbors"])
@pytest.mark.parametrize("name", HARDWARE)
def test_graphs_that_change(name, waiting, make):
    rounds = 5
    options = HARDWARE[name]
    size = 4 if "placement" in options else N
    hardware = Hardware(compute=make(COMPUTE), **{**links_of(size), **options})
    graphs = [topologies.erdos_renyi(N, p=0.3, seed=seed) for seed in range(rounds)]
    changing = topofl.TopologySequence(N, lambda t: graphs[t], "changing")
    times = {"waiting": waiting, "exchanges": 2}
    more = {"n_parameters": 25, "steps": 3, "rounds": rounds, "seed": 5} | times
    found = round_time(changing, hardware=hardware, **more)
    messages = [links(mixing.metropolis_hastings(graph)) for graph in graphs]
    seconds = drawn(hardware, rounds, 3, seed=5)
    check(found, naive_seconds(messages, seconds, hardware, nbytes=NBYTES, **times), rounds)


@pytest.mark.parametrize("waiting", ["all", "neighbors"])
@pytest.mark.parametrize("name", HARDWARE)
def test_servers_with_fixed_times(name, waiting):
    options = HARDWARE[name]
    size = 4 if "placement" in options else N
    hardware = Hardware(compute=COMPUTE, **{**server_links(size), **options})
    times = {"waiting": waiting, "exchanges": 2, "server": True}
    found = round_time(topologies.ring(N), hardware=hardware, n_parameters=25, **times)
    # All nodes wait for the server, so every round takes as long as the first.
    naive = naive_seconds([range(N)], [COMPUTE], hardware, nbytes=NBYTES, **times)
    assert found.messages == 2 * 2 * N
    if waiting == "all":
        check(found, naive, 1)
    else:
        ends, _ = naive_seconds([range(N)] * 9, [COMPUTE] * 9, hardware, nbytes=NBYTES, **times)
        assert found.seconds == pytest.approx((ends[-1] - ends[4]) / 4)


@pytest.mark.parametrize(
    ("name", "waiting"),
    [("nodes", "neighbors"), ("placed", "all"), ("copies", "all"), ("copies", "neighbors")],
)
def test_servers_with_random_times(name, waiting):
    options = HARDWARE[name]
    size = 4 if "placement" in options else N
    hardware = Hardware(compute=clocks.exponential(COMPUTE), **server_links(size), **options)
    times = {"waiting": waiting, "server": True}
    more = {"n_parameters": 25, "rounds": 5, "seed": 5} | times
    found = round_time(topologies.ring(N), hardware=hardware, **more)
    seconds = drawn(hardware, 5, 1, seed=5)
    check(found, naive_seconds([range(N)] * 5, seconds, hardware, nbytes=NBYTES, **times), 5)


@pytest.mark.parametrize(
    ("make", "n", "draws"),
    [
        (clocks.exponential, 6, 3000),
        (lambda means: clocks.lognormal(means, sigma=0.7), 6, 3000),
        # more different nodes than points are taken of
        pytest.param(clocks.exponential, 130, 200, marks=pytest.mark.slow),
    ],
)
def test_expected_parts(make, n, draws):
    rng = np.random.default_rng(n)
    means = rng.uniform(0.5, 3, n)
    hardware = Hardware(compute=make(means), latency=rng.uniform(0, 6, (n, n)), bandwidth=100.0)
    graph = topologies.ring(n)
    found = round_time(graph, hardware=hardware, n_parameters=25)
    seconds = [means * hardware.compute.factor(rng, n) for _ in range(draws)]
    messages = links(mixing.metropolis_hastings(graph))
    naive = [naive_seconds([messages], [one], hardware, nbytes=NBYTES) for one in seconds]
    each = np.array([parts for _, parts in naive])
    parts = (found.compute, found.latency, found.transfer)
    error = 4 * each.std(axis=0) / np.sqrt(draws)
    assert (np.abs(each.mean(axis=0) - parts) <= error + 1e-9).all()
    assert error[:2].max() < 0.1 * found.seconds


RUNS = {
    "two exchanges": algorithms.dfedsam(lr=0.1, epochs=1, gossip_steps=2),
    "some at a server": algorithms.fedavg(lr=0.1, epochs=1, participation=0.4),
}


@pytest.mark.parametrize("waiting", ["all", "neighbors"])
@pytest.mark.parametrize("placement", [None, PLACES])
@pytest.mark.parametrize("name", RUNS)
def test_histories(name, placement, waiting):
    settings = {"clients": problems.equal_clients(N), "topology": topologies.ring(N)}
    settings |= {"model": problems.linear(), "rounds": 4, "seed": 0, "progress": False}
    history = topofl.run(RUNS[name], **settings)
    server = name == "some at a server"
    size = 4 if placement else N
    tables = server_links(size) if server else links_of(size)
    hardware = Hardware(compute=COMPUTE, placement=placement, **tables)
    trained = ~np.isnan(history.node_loss)
    steps = history["steps"] / trained.sum(axis=1)
    messages = list(map(np.flatnonzero, trained))
    if not server:
        messages = [links(history.mixing(t)) for t in range(4)]
    seconds, nbytes = steps[:, None] * trained * COMPUTE, 4 * history.meta["parameters"]
    how = {"exchanges": 1 if server else 2, "waiting": waiting, "server": server}
    naive = naive_seconds(messages, seconds, hardware, nbytes=nbytes, **how)
    check(round_time(history, hardware=hardware, waiting=waiting), naive, 4)
