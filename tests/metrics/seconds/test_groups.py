"""Seconds of rounds in which groups of nodes average by all-reduce: closed forms."""

import numpy as np
import pytest

import topofl
from tests import problems
from topofl import algorithms, clocks, mixing, topologies
from topofl.metrics import Hardware, round_time

C, ALPHA, OVERHEAD, NUMBERS, BANDWIDTH = 0.3, 0.7, 0.05, 30, 100.0
BYTES = 4 * NUMBERS
MESSAGE = BYTES / BANDWIDTH
LINKS = {"latency": ALPHA, "bandwidth": BANDWIDTH, "overhead": OVERHEAD}


def groups_of(n, k, partitions=3):
    return topologies.rotating_cliques(n=n, clique_size=k, partitions=partitions, steps=20, seed=0)


def time_of(graph, groups, waiting="all", **changes):
    hardware = Hardware(**{"compute": C, "groups": groups} | LINKS | changes)
    return round_time(graph, hardware=hardware, n_parameters=NUMBERS, waiting=waiting)


@pytest.mark.parametrize("waiting", ["all", "neighbors"])
@pytest.mark.parametrize("k", [2, 3, 4, 6])
def test_equal_groups(k, waiting):
    sent = time_of(groups_of(12, k), "messages", waiting)
    reduced = time_of(groups_of(12, k), "all-reduce", waiting)
    assert sent.seconds == pytest.approx(C + ALPHA + (k - 1) * (OVERHEAD + MESSAGE))
    assert reduced.seconds == pytest.approx(C + 2 * ALPHA + 2 * (k - 1) * (OVERHEAD + MESSAGE / k))
    parts = (reduced.compute, reduced.latency, reduced.transfer)
    assert parts == pytest.approx((C, 2 * ALPHA, reduced.seconds - C - 2 * ALPHA))
    assert (sent.messages, sent.bytes, sent.reduced_bytes) == (
        12 * (k - 1),
        12 * (k - 1) * BYTES,
        0,
    )
    assert reduced.messages == 12 * 2 * (k - 1)
    each = 12 * 2 * (k - 1) / k * BYTES
    assert (reduced.bytes, reduced.network_bytes, reduced.reduced_bytes) == pytest.approx(
        [each] * 3
    )


def test_messages_that_do_not_share_links():
    found = time_of(groups_of(12, 4), "all-reduce", messages="parallel")
    assert found.seconds == pytest.approx(C + 2 * (ALPHA + OVERHEAD + MESSAGE / 4))


def test_paths_between_machines():
    changes = {"bandwidth": None, "overhead": 0.0, "path_bandwidth": 10.0}
    found = time_of(groups_of(12, 4), "all-reduce", **changes)
    assert found.seconds == pytest.approx(C + 2 * (ALPHA + BYTES / 4 / 10))


def test_the_slowest_of_unequal_groups_counts():
    found = time_of(groups_of(11, 4), "all-reduce")
    assert found.seconds == pytest.approx(C + 2 * (ALPHA + 3 * (OVERHEAD + MESSAGE / 4)))
    assert found.bytes == pytest.approx(2 * (3 + 3 + 2) * BYTES)


def test_nodes_of_a_machine_add_up_before():
    """Groups of four on three machines, of which the last one is on two of them only."""
    pairs = [(i + a, i + b) for i in (0, 4) for a in range(4) for b in range(a)]
    graph, places = topofl.as_topology(pairs), [0, 0, 1, 2, 1, 1, 2, 2]
    found = time_of(graph, "all-reduce", placement=places, processors=3)
    # Machine 1 exchanges thirds of one model with two machines, and halves of one with machine 2.
    link = 2 * (OVERHEAD + MESSAGE / 3) + OVERHEAD + MESSAGE / 2
    assert found.seconds == pytest.approx(C + 2 * (ALPHA + link))
    assert found.network_bytes == pytest.approx(2 * (2 + 1) * BYTES)
    assert found.bytes == pytest.approx(2 * (3 + 3) * BYTES)
    alone = time_of(graph, "all-reduce", placement=places, processors=3, messages="parallel")
    assert alone.seconds == pytest.approx(C + 2 * (ALPHA + OVERHEAD + MESSAGE / 2))


@pytest.mark.parametrize(("bandwidth", "how"), [(BANDWIDTH, "all-reduce"), (1e6, "messages")])
def test_the_cheapest_exchange_is_chosen_and_reported(bandwidth, how):
    graph = groups_of(12, 4)
    found = time_of(graph, "cheapest", bandwidth=bandwidth)
    seconds = {
        one: time_of(graph, one, bandwidth=bandwidth).seconds for one in ("messages", "all-reduce")
    }
    assert found.seconds == seconds[how] < max(seconds.values())
    assert (found.reduced_bytes > 0) == ("by all-reduce" in str(found)) == (how == "all-reduce")


@pytest.mark.parametrize(
    "graph",
    [
        topologies.ring(8),
        topologies.dcliques(n=12, clique_size=4, inter="ring", seed=0),
        mixing.from_weights([[0.7, 0.3], [0.3, 0.7]]),
        topologies.circulant(6, [1], directed=True),
    ],
)
def test_other_rounds_send_messages(graph):
    sent, reduced = (time_of(graph, groups) for groups in ("messages", "all-reduce"))
    assert (sent.seconds, sent.bytes) == (reduced.seconds, reduced.bytes)
    assert reduced.reduced_bytes == 0


def test_a_sequence_may_have_both():
    both = topofl.topology.TopologySequence(
        12, lambda t: (groups_of(12, 4).at(0), topologies.ring(12))[t], "both", period=2
    )
    found = time_of(both, "all-reduce").per_round
    assert found == pytest.approx(
        [
            time_of(one, "all-reduce").seconds
            for one in (groups_of(12, 4).at(0), topologies.ring(12))
        ]
    )


def test_expected_seconds_of_random_steps():
    found = time_of(topologies.fully_connected(2), "all-reduce", compute=clocks.exponential(2.0))
    assert found.seconds == pytest.approx(3.0 + 2 * (ALPHA + OVERHEAD + MESSAGE / 2))


def test_recorded_rounds():
    graph = groups_of(8, 4)
    history = topofl.run(
        algorithms.dsgd(lr=0.1, batch_size=4),
        model=problems.linear(),
        clients=problems.equal_clients(8),
        topology=graph,
        rounds=3,
        seed=0,
        progress=False,
    )
    per_message = history.rounds["bytes"][0] / history.rounds["messages"][0]
    hardware = Hardware(compute=C, groups="all-reduce", **LINKS)
    steps = history.rounds["steps"] / 8
    link = 2 * (ALPHA + 3 * (OVERHEAD + per_message / 4 / BANDWIDTH))
    found = round_time(history, hardware=hardware)
    np.testing.assert_allclose(found.per_round, C * np.asarray(steps) + link)
    assert found.reduced_bytes == pytest.approx(8 * 2 * 3 / 4 * per_message)
    timed = history.with_seconds(hardware)
    np.testing.assert_allclose(timed.rounds["simulated_seconds"], found.elapsed)
