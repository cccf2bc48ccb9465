"""Seconds per round: closed forms, the engine's clock, and recorded bytes."""

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import topofl
from tests import problems
from topofl import algorithms, clocks, metrics, mixing, topologies
from topofl.metrics import Hardware, round_time

C, ALPHA, BANDWIDTH, NUMBERS = 0.3, 0.7, 1000.0, 25
MESSAGE = 4 * NUMBERS / BANDWIDTH  # seconds that a message occupies a link
UNIFORM = Hardware(compute=C, latency=ALPHA, bandwidth=BANDWIDTH)


def seconds(graph, hardware=UNIFORM, **options):
    return round_time(graph, hardware=hardware, n_parameters=NUMBERS, **options).seconds


@pytest.mark.parametrize("waiting", ["all", "neighbors"])
@pytest.mark.parametrize(
    ("graph", "messages"),
    [
        (topologies.ring(8), 2),
        (topologies.ring(3), 2),
        (topologies.star(9), 8),
        (topologies.fully_connected(7), 6),
        (topologies.torus(16), 4),
        (topologies.exponential(8, directed=True), 3),
        (topologies.path(2), 1),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_uniform_hardware(graph, messages, waiting):
    # Both machines of a link are as busy as its busier one; a star waits for its center.
    expected = C + ALPHA + messages * MESSAGE
    assert seconds(graph, waiting=waiting) == pytest.approx(expected, rel=1e-12)
    found = round_time(graph, hardware=UNIFORM, n_parameters=NUMBERS, waiting=waiting)
    parts = (found.compute, found.latency, found.transfer)
    assert parts == pytest.approx((C, ALPHA, messages * MESSAGE))


@pytest.mark.parametrize("n", [2, 9])
def test_parallel_messages_do_not_share_links(n):
    parallel = Hardware(compute=C, latency=ALPHA, bandwidth=BANDWIDTH, messages="parallel")
    for graph in (topologies.star(n), topologies.fully_connected(n)):
        assert seconds(graph, parallel) == pytest.approx(C + ALPHA + MESSAGE)


def test_overhead_is_per_message():
    hardware = Hardware(compute=C, overhead=0.25)
    assert seconds(topologies.star(9), hardware) == pytest.approx(C + 8 * 0.25)


def test_a_server_takes_two_ways():
    graph = topologies.ring(6)
    assert seconds(graph, server=True) == pytest.approx(C + 2 * ALPHA + 2 * 6 * MESSAGE)
    fast = Hardware(compute=C, latency=ALPHA, bandwidth=BANDWIDTH, server_bandwidth=1e12)
    assert seconds(graph, fast, server=True) == pytest.approx(C + 2 * ALPHA + 2 * MESSAGE)


def test_steps_and_exchanges():
    expected = 4 * C + 3 * (ALPHA + 2 * MESSAGE)
    for waiting in ("all", "neighbors"):
        assert seconds(topologies.ring(6), steps=4, exchanges=3, waiting=waiting) == pytest.approx(
            expected
        )


def test_one_way_ring_by_hand():
    # 0 -> 1 -> 2 -> 0, with one slow machine and one slow link.
    graph = topofl.as_topology(nx.DiGraph([(0, 1), (1, 2), (2, 0)]))
    latency = np.array([[0, 1, 0], [0, 0, 2], [6, 0, 0]])
    hardware = Hardware(compute=[1.0, 5.0, 1.0], latency=latency)
    assert seconds(graph, hardware) == 7.0  # max of 1 + 1, 5 + 2 and 1 + 6
    # around the ring: (1 + 1 + 5 + 2 + 1 + 6) / 3
    assert seconds(graph, hardware, waiting="neighbors") == pytest.approx(16 / 3)


def test_tables_of_bandwidths_and_paths():
    graph = topologies.path(3)
    links = Hardware(compute=None, bandwidth=[100.0, 50.0, 1000.0])
    assert seconds(graph, links) == pytest.approx(2 * 100 / 50)  # the middle sends two messages
    paths = np.full((3, 3), 25.0)
    slow = Hardware(compute=None, bandwidth=[100.0, 50.0, 1000.0], path_bandwidth=paths)
    assert seconds(graph, slow) == pytest.approx(100 / 25)  # paths are not shared


@pytest.mark.parametrize("waiting", ["all", "neighbors"])
def test_unlimited_links_and_paths_cost_latency_only(waiting):
    n = 9
    hub = Hardware(compute=C, latency=ALPHA, bandwidth=[np.inf] + [BANDWIDTH] * (n - 1))
    # The links of the leaves, which carry one message each way, are all that limits a star.
    assert seconds(topologies.star(n), hub, waiting=waiting) == pytest.approx(C + ALPHA + MESSAGE)
    paths = np.full((n, n), np.inf)
    every = {"bandwidth": np.full(n, np.inf), "path_bandwidth": paths}
    for name, table in every.items():
        unlimited = Hardware(compute=C, latency=ALPHA, **{name: table})
        for messages in ("serial", "parallel"):
            parallel = replace(unlimited, messages=messages)
            found = seconds(topologies.star(n), parallel, waiting=waiting)
            assert found == pytest.approx(C + ALPHA)
    one_slow = np.full((n, n), np.inf)
    one_slow[0, 5] = 4 * NUMBERS / 2.5  # 2.5 seconds from the center to node 5
    slow = Hardware(compute=C, latency=ALPHA, path_bandwidth=one_slow)
    found = round_time(topologies.star(n), hardware=slow, n_parameters=NUMBERS)
    assert (found.compute, found.latency, found.transfer) == pytest.approx((C, ALPHA, 2.5))


def test_a_server_without_limit_costs_latency_only():
    links = {"latency": ALPHA, "bandwidth": np.full(6, BANDWIDTH), "server_bandwidth": np.inf}
    graph = topologies.ring(6)
    expected = C + 2 * ALPHA + 2 * MESSAGE  # up and down on the links of the nodes
    assert seconds(graph, Hardware(compute=C, **links), server=True) == pytest.approx(expected)


@pytest.mark.parametrize("copies", ["node", "machine"])
def test_placement_on_machines(copies):
    # Nodes 0, 1, 2 on one machine and 3, 4, 5 on another; all nodes send to all.
    placed = Hardware(
        compute=C, latency=ALPHA, bandwidth=BANDWIDTH, placement=[0] * 3 + [1] * 3, copies=copies
    )
    found = round_time(topologies.fully_connected(6), hardware=placed, n_parameters=NUMBERS)
    across = {"node": 9, "machine": 3}[copies]  # messages in each direction
    assert found.seconds == pytest.approx(3 * C + ALPHA + across * MESSAGE)
    assert found.messages == 30
    assert found.network_bytes == 2 * across * 4 * NUMBERS
    alone = Hardware(compute=C, latency=ALPHA, bandwidth=BANDWIDTH, placement=[0] * 6, processors=2)
    assert seconds(topologies.fully_connected(6), alone) == pytest.approx(3 * C)


@pytest.mark.parametrize(
    ("compute", "expected"),
    # Of three equal nodes on two processors, one moves: 0 0 1 and 1 2 2 in half seconds.
    [([1.0, 1.0, 1.0], 1.5), ([1.0, 1.0, 3.0], 3.0), ([2.0, 1.0, 2.0], 2.5)],
)
def test_nodes_move_between_processors(compute, expected):
    hardware = Hardware(compute=compute, placement=[0, 0, 0], processors=2)
    assert seconds(topologies.ring(3), hardware) == expected


def test_one_node_per_machine_is_no_placement():
    rng = np.random.default_rng(0)
    graph = topologies.erdos_renyi(12, p=0.4, seed=1)
    common: dict[str, Any] = {
        "compute": rng.uniform(1, 2, 12),
        "latency": rng.uniform(0, 1, (12, 12)),
        "bandwidth": rng.uniform(50, 100, 12),
    }
    placed = Hardware(**common, placement=np.arange(12))
    for waiting in ("all", "neighbors"):
        assert seconds(graph, placed, waiting=waiting) == seconds(
            graph, Hardware(**common), waiting=waiting
        )


def test_sequences_average_over_their_period():
    graph = topologies.one_peer_exponential(8)
    assert seconds(graph) == pytest.approx(C + ALPHA + MESSAGE)
    mixed = topofl.as_topology([topologies.ring(6), topologies.star(6)])
    found = round_time(mixed, hardware=UNIFORM, n_parameters=NUMBERS)
    assert found.per_round == pytest.approx([C + ALPHA + 2 * MESSAGE, C + ALPHA + 5 * MESSAGE])
    # a node of the ring waits for a slow star, and the star for nobody
    assert seconds(mixed, waiting="neighbors") == pytest.approx(C + ALPHA + 3.5 * MESSAGE)


@pytest.mark.parametrize("waiting", ["all", "neighbors"])
def test_simulated_rounds_agree_with_exact_ones(waiting):
    rng = np.random.default_rng(3)
    graphs = [topologies.erdos_renyi(10, p=0.4, seed=s) for s in range(3)]
    hardware = Hardware(compute=rng.uniform(1, 5, 10), latency=rng.uniform(0, 5, (10, 10)))
    exact = seconds(topofl.as_topology(graphs), hardware, waiting=waiting)
    endless = topofl.TopologySequence(10, lambda t: graphs[t % 3], "endless")
    long = seconds(endless, hardware, waiting=waiting, rounds=3000)
    # clocks and the cycle time differ by a bounded number of seconds in all
    assert long == pytest.approx(exact, abs=60 / 3000)
    if waiting == "neighbors":
        assert exact < seconds(topofl.as_topology(graphs), hardware) - 0.1


@pytest.mark.parametrize("random", [False, True])
def test_number_of_simulated_rounds(random):
    matrices = [mixing.metropolis_hastings(topologies.ring(6)), mixing.from_weights(np.eye(6))]
    ending = mixing.MixingSequence(6, lambda t: matrices[t % 2], "ending", length=8)
    hardware = Hardware(compute=clocks.exponential(C) if random else C, latency=ALPHA)
    found = {
        rounds: round_time(ending, hardware=hardware, n_parameters=1, rounds=rounds, seed=0)
        for rounds in (None, 1, 5)
    }
    assert [len(one.per_round) for one in found.values()] == [8, 1, 5]
    assert [one.messages for one in found.values()] == pytest.approx([6.0, 12.0, 7.2])
    with pytest.raises(ValueError, match="`rounds` must be between 1 and the length=8, got 9"):
        round_time(ending, hardware=hardware, n_parameters=1, rounds=9, seed=0)


@pytest.mark.parametrize("waiting", ["all", "neighbors"])
def test_recorded_rounds_of_fixed_graph_are_those_of_the_graph(waiting):
    history = run(algorithms.dsgd(lr=0.1, local_steps=2), topology=topologies.ring(8), rounds=40)
    found = round_time(history, hardware=UNIFORM, waiting=waiting)
    d = history.meta["parameters"]
    again = round_time(
        topologies.ring(8), hardware=UNIFORM, n_parameters=d, steps=2, waiting=waiting
    )
    assert found.per_round == pytest.approx(again.seconds)
    assert found.elapsed[-1] == pytest.approx(40 * again.seconds)


def run(algorithm, **options):
    clients = problems.equal_clients(8)
    if "topology" not in options:
        options["topology"] = None
    return topofl.run(
        algorithm, model=problems.linear(), clients=clients, seed=0, progress=False, **options
    )


METHODS = {
    "dsgd": (algorithms.dsgd(lr=0.1, local_steps=3), topologies.exponential(8)),
    "one peer": (algorithms.dsgd(lr=0.1), topologies.one_peer_exponential(8)),
    "dsgt": (algorithms.dsgt(lr=0.1), topologies.star(8)),
    "osgp": (
        algorithms.osgp(lr=0.1),
        topologies.exponential(8, directed=True),
    ),
    "fedavg": (algorithms.fedavg(lr=0.1, participation=0.5, epochs=1), None),
    "fedavg of all": (algorithms.fedavg(lr=0.1, epochs=1), None),
    "local_only": (algorithms.local_only(lr=0.1), None),
}


@pytest.mark.parametrize("name", METHODS)
def test_bytes_are_those_of_the_run(name):
    algorithm, graph = METHODS[name]
    history = run(algorithm, topology=graph, rounds=6)
    found = round_time(history, hardware=UNIFORM)
    assert found.messages == history["messages"].mean()
    assert found.bytes == pytest.approx(history["bytes"].mean(), rel=1e-15)
    assert found.network_bytes == pytest.approx(found.bytes)
    if name == "dsgd":
        assert graph is not None
        same = round_time(graph, hardware=UNIFORM, n_parameters=history.meta["parameters"])
        assert same.bytes == history["bytes"][0]


@pytest.mark.parametrize("name", METHODS)
def test_timed_runs_agree_with_the_engine(name):
    # The clock of `timed` sends messages in parallel, and waits for all nodes.
    algorithm, graph = METHODS[name]
    clock = clocks.Clock(compute=C, delay=ALPHA, bandwidth=BANDWIDTH)
    history = run(algorithms.timed(algorithm, clock), topology=graph, rounds=6)
    hardware = Hardware(compute=C, latency=ALPHA, bandwidth=BANDWIDTH, messages="parallel")
    found = round_time(history, hardware=hardware)
    if name == "dsgt":  # one message of two vectors
        assert history["bytes"][0] == 14 * 2 * 4 * history.meta["parameters"]
    assert found.elapsed == pytest.approx(history["simulated_seconds"], rel=1e-9)


def test_matrices_and_sequences_of_them():
    graph = topologies.ring(6)
    matrix = mixing.metropolis_hastings(graph)
    assert seconds(matrix) == seconds([matrix, matrix]) == seconds(graph)
    lazy = mixing.lazy(matrix)
    assert seconds(lazy) == seconds(graph)  # the diagonal sends nothing


def test_cost_agrees_with_round_cost():
    graph = topologies.barabasi_albert(30, m=2, seed=0)
    found = round_time(graph, hardware=UNIFORM, n_parameters=NUMBERS)
    cost = metrics.round_cost(mixing.metropolis_hastings(graph), NUMBERS)
    assert (found.messages, found.bytes) == (cost.messages, cost.bytes)
    # a full-duplex link: half of what the busiest node sends and receives
    assert found.transfer == pytest.approx(cost.busiest_bytes / 2 / BANDWIDTH)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "`model` or `n_parameters` must be given, one of the two, got none"),
        ({"n_parameters": 1, "model": problems.linear()}, "not both, got both; leave out one"),
        ({"n_parameters": 1, "waiting": "nobody"}, "`waiting` must be one of 'all', 'neighbors'"),
        ({"n_parameters": 1, "rounds": 3}, "`rounds` must be left out, since its rounds repeat"),
        ({"n_parameters": 1, "steps": -1}, "`steps` must be"),
        ({"n_parameters": 1, "exchanges": 0}, "`exchanges` must be"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        round_time(topologies.ring(4), hardware=UNIFORM, **options)


def test_refused_hardware_for_a_graph():
    ring = topologies.ring(4)
    with pytest.raises(ValueError, match=r"`compute` must be for all nodes, n=4, got shape \(3,\)"):
        seconds(ring, Hardware(compute=[1.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match=r"`latency` must be for all nodes, n=4"):
        seconds(ring, Hardware(compute=1.0, latency=np.zeros((3, 3))))
    with pytest.raises(ValueError, match=r"`placement` must be for all nodes, n=4"):
        seconds(ring, Hardware(compute=1.0, placement=[0, 1]))
    with pytest.raises(ValueError, match="`latency` must be one number with a server"):
        seconds(ring, Hardware(compute=1.0, latency=np.zeros((4, 4))), server=True)
    with pytest.raises(ValueError, match="`server_bandwidth` must be given"):
        seconds(ring, Hardware(compute=1.0, bandwidth=np.ones(4)), server=True)
    with pytest.raises(ValueError, match="`seed` must be given if times are drawn"):
        seconds(ring, Hardware(compute=clocks.exponential(1.0)), waiting="neighbors")


def test_refused_histories():
    history = run(algorithms.dsgd(lr=0.1), topology=topologies.ring(8), rounds=2)
    with pytest.raises(ValueError, match="`n_parameters` must be left out for a History"):
        round_time(history, hardware=UNIFORM, n_parameters=3)
    events = run(algorithms.ad_psgd(lr=0.1), topology=topologies.ring(8), rounds=2)
    with pytest.raises(ValueError, match="`x` must be a synchronous run, got one of ad_psgd"):
        round_time(events, hardware=UNIFORM)
    cliques = topologies.with_groups(topologies.ring(8), [[0, 1], [2, 3], [4, 5], [6, 7]])
    averaged = run(algorithms.clique_averaging(lr=0.1), topology=cliques, rounds=2)
    with pytest.raises(ValueError, match="`x` must have recorded the links of its messages"):
        round_time(averaged, hardware=UNIFORM)
