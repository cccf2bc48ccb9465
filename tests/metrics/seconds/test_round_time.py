"""Hardware and seconds per round: closed forms, and published latencies."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from tests.rows.metrics import ONE_PEER
from topofl import clocks, data, metrics, mixing, models, topologies
from topofl.metrics import AZURE_REGIONS, Hardware, azure_latency, round_time
from topofl.metrics.hardware import as_hardware
from topofl.topology import TopologySequence, as_topology

C, ALPHA, BANDWIDTH, NUMBERS = 0.3, 0.7, 1000.0, 25
MESSAGE = 4 * NUMBERS / BANDWIDTH  # seconds that a message occupies a link
UNIFORM = Hardware(compute=C, latency=ALPHA, bandwidth=BANDWIDTH)
either = pytest.mark.parametrize("waiting", ["all", "neighbors"])


def time_of(graph, hardware=UNIFORM, **options):
    return round_time(graph, hardware=hardware, n_parameters=NUMBERS, **options)


def seconds(graph, hardware=UNIFORM, **options):
    return time_of(graph, hardware, **options).seconds


def parts(found):
    return found.compute, found.latency, found.transfer


# Hardware


def test_an_infinite_bandwidth_is_no_limit():
    for name in ("bandwidth", "path_bandwidth"):
        unlimited = Hardware(compute=1, **{name: np.inf})
        assert getattr(unlimited, name) is None
        assert unlimited.settings == Hardware(compute=1).settings
    for infinity in (np.inf, np.float32("inf"), np.float64("inf")):
        assert Hardware(compute=1, server_bandwidth=infinity).server_bandwidth == np.inf


def test_text_dictionaries_and_objects_are_equal():
    text = "Hardware(compute=exponential(0.5), latency=0.1, bandwidth=1e6, messages='parallel')"
    table = {"compute": "exponential(0.5)", "latency": 0.1, "bandwidth": 1e6}
    direct = Hardware(clocks.exponential(0.5), 0.1, 1e6, messages="parallel")
    assert as_hardware(direct) is direct
    assert as_hardware(text).settings == direct.settings
    assert as_hardware(table | {"messages": "parallel"}).settings == direct.settings
    assert repr(Hardware(compute=1)) == "Hardware(compute=1)"
    assert direct.is_random
    assert not Hardware(compute=[1.0, 2.0]).is_random
    own = clocks.Times(1.0, lambda rng, count: rng.uniform(0.5, 1.5, count))
    assert Hardware(compute=own).is_random


def test_published_latencies_are_consistent():
    latency = azure_latency()
    assert latency.shape == (len(AZURE_REGIONS),) * 2
    assert not latency.diagonal().any()
    assert (latency[~np.eye(10, dtype=bool)] > 0).all()
    # Two directions of a path are measured apart, and differ by 4 ms of the round trip at most.
    round_trips = np.rint(2000 * latency)
    assert np.abs(round_trips - round_trips.T).max() <= 4
    # No signal is faster than light in glass, some 200 km per ms: London to Sydney is 17,000 km.
    uk, sydney = AZURE_REGIONS.index("UK South"), AZURE_REGIONS.index("Australia East")
    assert latency[uk, sydney] == 0.129 > 17_000 / 200_000
    some = azure_latency(["Japan East", "East US", "Japan East"], within=0.001)  # may repeat
    assert some[0, 2] == some[2, 0] == 0.001
    assert some[0, 1] == some[2, 1] == azure_latency(["Japan East", "East US"])[0, 1] == 0.079


def test_measured_steps():
    clients = data.iid(data.digits(), n=4, seed=0)
    model = models.logistic_regression(64)
    before = [p.detach().clone() for p in model.parameters()]
    assert metrics.step_seconds(model, clients, batch_size=8, steps=2) > 0
    assert all((p == q).all() for p, q in zip(model.parameters(), before, strict=True))


# Closed forms


@either
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
    found = time_of(graph, waiting=waiting)
    assert found.seconds == pytest.approx(C + ALPHA + messages * MESSAGE, rel=1e-12)
    assert parts(found) == pytest.approx((C, ALPHA, messages * MESSAGE))


def test_a_server_takes_two_ways():
    graph, both_ways = topologies.ring(6), C + 2 * ALPHA
    assert seconds(graph, server=True) == pytest.approx(both_ways + 2 * 6 * MESSAGE)
    tables = replace(UNIFORM, bandwidth=np.full(6, BANDWIDTH), server_bandwidth=np.inf)
    for unlimited in (replace(UNIFORM, server_bandwidth=1e12), tables):
        found = seconds(graph, unlimited, server=True)  # up and down on the links of the nodes
        assert found == pytest.approx(both_ways + 2 * MESSAGE)


def test_one_way_ring_by_hand():
    # 0 -> 1 -> 2 -> 0, with one slow machine and one slow link.
    graph = as_topology(nx.DiGraph([(0, 1), (1, 2), (2, 0)]))
    latency = np.array([[0, 1, 0], [0, 0, 2], [6, 0, 0]])
    hardware = Hardware(compute=[1.0, 5.0, 1.0], latency=latency)
    assert seconds(graph, hardware) == 7.0  # max of 1 + 1, 5 + 2 and 1 + 6
    # around the ring: (1 + 1 + 5 + 2 + 1 + 6) / 3
    assert seconds(graph, hardware, waiting="neighbors") == pytest.approx(16 / 3)


@either
def test_unlimited_links_and_paths_cost_latency_only(waiting):
    n = 9
    hub = Hardware(compute=C, latency=ALPHA, bandwidth=[np.inf] + [BANDWIDTH] * (n - 1))
    # The links of the leaves, which carry one message each way, are all that limits a star.
    assert seconds(topologies.star(n), hub, waiting=waiting) == pytest.approx(C + ALPHA + MESSAGE)
    paths = np.full((n, n), np.inf)
    for name, table in (("bandwidth", np.full(n, np.inf)), ("path_bandwidth", paths)):
        for messages in ("serial", "parallel"):
            unlimited = Hardware(compute=C, latency=ALPHA, messages=messages, **{name: table})
            found = seconds(topologies.star(n), unlimited, waiting=waiting)
            assert found == pytest.approx(C + ALPHA)
    paths[0, 5] = 4 * NUMBERS / 2.5  # 2.5 seconds from the center to node 5
    slow = Hardware(compute=C, latency=ALPHA, path_bandwidth=paths)
    assert parts(time_of(topologies.star(n), slow)) == pytest.approx((C, ALPHA, 2.5))


@pytest.mark.parametrize("copies", ["node", "machine"])
def test_placement_on_machines(copies):
    # Nodes 0, 1, 2 on one machine and 3, 4, 5 on another; all nodes send to all.
    graph = topologies.fully_connected(6)
    found = time_of(graph, replace(UNIFORM, placement=[0] * 3 + [1] * 3, copies=copies))
    across = {"node": 9, "machine": 3}[copies]  # messages in each direction
    assert found.seconds == pytest.approx(3 * C + ALPHA + across * MESSAGE)
    assert found.messages == 30
    assert found.network_bytes == 2 * across * 4 * NUMBERS
    alone = replace(UNIFORM, placement=[0] * 6, processors=2)
    assert seconds(graph, alone) == pytest.approx(3 * C)


@pytest.mark.parametrize(
    ("compute", "expected"),
    # Of three equal nodes on two processors, one moves: 0 0 1 and 1 2 2 in half seconds.
    [([1.0, 1.0, 1.0], 1.5), ([1.0, 1.0, 3.0], 3.0), ([2.0, 1.0, 2.0], 2.5)],
)
def test_nodes_move_between_processors(compute, expected):
    hardware = Hardware(compute=compute, placement=[0, 0, 0], processors=2)
    assert seconds(topologies.ring(3), hardware) == expected


# Sequences


def test_sequences_average_over_their_period():
    assert seconds(ONE_PEER(8)) == pytest.approx(C + ALPHA + MESSAGE)
    mixed = as_topology([topologies.ring(6), topologies.star(6)])
    per_round = time_of(mixed).per_round
    assert per_round == pytest.approx([C + ALPHA + 2 * MESSAGE, C + ALPHA + 5 * MESSAGE])
    # a node of the ring waits for a slow star, and the star for nobody
    assert seconds(mixed, waiting="neighbors") == pytest.approx(C + ALPHA + 3.5 * MESSAGE)
    matrix = mixing.metropolis_hastings(topologies.ring(6))
    for x in (matrix, [matrix, matrix], mixing.lazy(matrix)):  # the diagonal sends nothing
        assert seconds(x) == seconds(topologies.ring(6))


@pytest.mark.slow
@either
def test_simulated_rounds_agree_with_exact_ones(waiting):
    rng = np.random.default_rng(3)
    graphs = [topologies.erdos_renyi(10, p=0.4, seed=s) for s in range(3)]
    hardware = Hardware(compute=rng.uniform(1, 5, 10), latency=rng.uniform(0, 5, (10, 10)))
    exact = seconds(as_topology(graphs), hardware, waiting=waiting)
    endless = TopologySequence(10, lambda t: graphs[t % 3], "endless")
    long = seconds(endless, hardware, waiting=waiting, rounds=3000)
    # clocks and the cycle time differ by a bounded number of seconds in all
    assert long == pytest.approx(exact, abs=60 / 3000)
    assert waiting == "all" or exact < seconds(as_topology(graphs), hardware) - 0.1


@pytest.mark.parametrize("compute", [C, clocks.exponential(C)], ids=["fixed", "random"])
def test_number_of_simulated_rounds(compute):
    matrices = [mixing.metropolis_hastings(topologies.ring(6)), mixing.from_weights(np.eye(6))]
    ending = mixing.MixingSequence(6, lambda t: matrices[t % 2], "ending", length=8)
    hardware = Hardware(compute=compute, latency=ALPHA)
    found = [time_of(ending, hardware, rounds=rounds, seed=0) for rounds in (None, 1, 5)]
    assert [len(one.per_round) for one in found] == [8, 1, 5]
    assert [one.messages for one in found] == pytest.approx([6.0, 12.0, 7.2])


def test_cost_agrees_with_round_cost():
    graph = topologies.barabasi_albert(30, m=2, seed=0)
    found, cost = time_of(graph), metrics.round_cost(mixing.metropolis_hastings(graph), NUMBERS)
    assert (found.messages, found.bytes) == (cost.messages, cost.bytes)
    # a full-duplex link: half of what the busiest node sends and receives
    assert found.transfer == pytest.approx(cost.busiest_bytes / 2 / BANDWIDTH)
