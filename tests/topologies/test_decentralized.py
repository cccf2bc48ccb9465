"""Decentralized Greedy-Swap against the central one and a simulation of leaders; its gossip."""

import numpy as np
import pytest

from topofl import topologies
from topofl._support.seeding import stream
from topofl.metrics import clique_skew
from topofl.topologies import decentralized_greedy_swap_trace, greedy_swap_trace
from topofl.topologies.decentralized import gossip_estimates
from topofl.topology import from_edges


def some_counts(n: int, classes: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 40, (n, classes)) * rng.integers(1, 30, (n, 1))
        + np.eye(classes, dtype=int)[0]
    )


def shares_of(counts: np.ndarray) -> np.ndarray:
    return counts / counts.sum(axis=1, keepdims=True)


def simulate(counts: np.ndarray, size: int, steps: int, estimates: np.ndarray, seed: int):
    """Return cliques, messages and numbers of leaders who meet, straight from the description."""
    shares, (n, classes) = shares_of(counts), counts.shape
    rng = stream(seed, "graph")
    order = rng.permutation(n).tolist()
    cliques = [order[k : k + size] for k in range(0, n, size)]
    leaders = [clique[0] for clique in cliques]
    messages, numbers = (
        [sum(len(c) - 1 for c in cliques)],
        [sum(len(c) - 1 for c in cliques) * classes],
    )

    def skew(clique: list[int], p: np.ndarray) -> float:
        return float(np.abs(shares[clique].mean(axis=0) - p).sum())

    for draw in rng.random((steps, 3)):
        a = int(draw[0] * len(cliques))
        b = [k for k in range(len(cliques)) if k != a][int(draw[1] * (len(cliques) - 1))]
        first, second, p = cliques[a], cliques[b], estimates[leaders[b]]
        options = []
        for i in range(len(first)):
            for j in range(len(second)):
                one, two = first.copy(), second.copy()
                one[i], two[j] = second[j], first[i]
                if skew(one, p) + skew(two, p) < skew(first, p) + skew(second, p) - 1e-12:
                    options.append((one, two))
        messages.append(2)
        numbers.append(len(first) * (classes + 1))
        if options:
            cliques[a], cliques[b] = options[int(draw[2] * len(options))]
            numbers[-1] += 2 + classes
            for k in (a, b):
                chosen = min(cliques[k], key=order.index)
                if chosen != leaders[k]:
                    messages[-1] += 1
                    numbers[-1] += len(cliques[k]) * (classes + 1)
                leaders[k] = chosen
                messages[-1] += len(cliques[k]) - 1
                numbers[-1] += (len(cliques[k]) - 1) * len(cliques[k])
    return tuple(map(tuple, cliques)), messages, numbers


@pytest.mark.parametrize("distance", ["l1", "jensen_shannon"])
@pytest.mark.parametrize(("n", "size"), [(60, 10), (47, 6), (6, 6)])
def test_leaders_who_know_everybodys_distribution_make_the_swaps_of_the_central_algorithm(
    n, size, distance
) -> None:
    counts = some_counts(n, 5, seed=n)
    how = {"clique_size": size, "steps": 200, "distance": distance, "seed": 4}
    groups, skews = greedy_swap_trace(counts, **how)
    trace = decentralized_greedy_swap_trace(counts, **how)
    assert trace.groups == groups == topologies.decentralized_greedy_swap(counts, **how).groups
    np.testing.assert_array_equal(trace.skews, skews)
    np.testing.assert_allclose(trace.estimates, np.tile(shares_of(counts).mean(axis=0), (n, 1)))


@pytest.mark.parametrize("rounds", [None, 0, 3])
@pytest.mark.parametrize(("n", "size"), [(20, 5), (23, 4)])
def test_swaps_and_messages_are_those_of_a_plain_simulation(
    n: int, size: int, rounds: int | None
) -> None:
    counts = some_counts(n, 4, seed=1)
    trace = decentralized_greedy_swap_trace(counts, size, steps=60, gossip_rounds=rounds, seed=2)
    groups, messages, numbers = simulate(counts, size, 60, trace.estimates, seed=2)
    messages[0] += n * (rounds or 0)
    numbers[0] += n * (rounds or 0) * 5
    assert trace.groups == groups
    assert trace.messages.tolist() == messages
    assert trace.numbers.tolist() == numbers
    np.testing.assert_allclose(trace.skews[-1], clique_skew(groups, counts), atol=1e-12)
    assert len(set(messages[1:])) > 2  # passes, swaps, and swaps after which another node leads


def test_without_gossip_leaders_take_their_own_data_for_everybodys_and_may_do_harm() -> None:
    counts = some_counts(40, 5, seed=0)
    trace = decentralized_greedy_swap_trace(counts, 8, steps=300, gossip_rounds=0, seed=0)
    np.testing.assert_array_equal(trace.estimates, shares_of(counts))
    assert (np.diff(trace.skews.sum(axis=1)) > 1e-6).any()
    exact = decentralized_greedy_swap_trace(counts, 8, steps=300, seed=0)
    assert trace.skews[-1].sum() > exact.skews[-1].sum()


def test_long_gossip_is_as_good_as_knowing() -> None:
    counts = some_counts(50, 5, seed=3)
    exact, long = (
        decentralized_greedy_swap_trace(counts, 5, gossip_rounds=r, seed=1) for r in (None, 100)
    )
    assert np.abs(long.estimates - exact.estimates).max() < 1e-12
    assert long.groups == exact.groups
    assert long.messages[0] == 100 * 50 + 40
    assert long.messages[1:].tolist() == exact.messages[1:].tolist()


def test_push_sum_is_that_of_a_loop_over_nodes() -> None:
    values = np.random.default_rng(0).random((7, 3))
    estimates, messages = gossip_estimates(values, 4, np.random.default_rng(1))
    rng, sums, weights = np.random.default_rng(1), values.copy(), np.ones(7)
    for _ in range(4):
        targets = (np.arange(7) + rng.integers(1, 7, size=7)) % 7
        new_sums, new_weights = sums / 2, weights / 2
        for node, target in enumerate(targets):
            assert node != target
            new_sums[target] += sums[node] / 2
            new_weights[target] += weights[node] / 2
        sums, weights = new_sums, new_weights
    np.testing.assert_allclose(estimates, sums / weights[:, None], rtol=1e-14)
    assert messages == 28


@pytest.mark.parametrize(
    "graph",
    [
        topologies.ring(12),
        topologies.exponential(12, directed=True),
        from_edges([(i, (i + 1) % 12) for i in range(12)], 12, directed=True),
    ],
    ids=lambda graph: graph.name,
)
def test_push_sum_over_a_graph_finds_the_mean(graph) -> None:
    values = np.random.default_rng(0).random((12, 2))
    estimates, messages = gossip_estimates(values, 1500, np.random.default_rng(0), graph)
    np.testing.assert_allclose(estimates, np.tile(values.mean(axis=0), (12, 1)), rtol=1e-9)
    assert messages == 12 * 1500


def test_push_sum_stays_within_components_and_has_no_zero_weights() -> None:
    values = np.array([[1.0], [3.0], [5.0], [8.0]])
    pairs = from_edges([(0, 1)], 4)
    estimates, messages = gossip_estimates(values, 60, np.random.default_rng(0), pairs)
    np.testing.assert_allclose(estimates[:, 0], [2, 2, 5, 8])
    assert messages == 120
    source = from_edges(
        [(0, 1), (1, 2), (2, 1), (2, 3), (3, 2)], 4, directed=True
    )  # 0 only gives: halves for ever
    estimates, _ = gossip_estimates(values, 4000, np.random.default_rng(0), source)
    np.testing.assert_allclose(estimates[:, 0], [1, 4.25, 4.25, 4.25])


def test_names_and_edges_between_cliques() -> None:
    graph = topologies.decentralized_greedy_swap(
        n=20, clique_size=5, gossip_rounds=3, gossip_graph=topologies.ring(20), inter="ring", seed=0
    )
    name = (
        "decentralized_greedy_swap(n=20, clique_size=5, gossip_rounds=3, "
        "gossip_graph=ring(n=20), inter='ring', seed=0)"
    )
    assert graph.name == name
    assert graph.n_edges == 4 * 10 + 4
    disjoint = topologies.decentralized_greedy_swap(n=20, clique_size=5, steps=50, seed=0)
    assert disjoint.n_edges == 4 * 10
    assert disjoint.name == "decentralized_greedy_swap(n=20, clique_size=5, steps=50, seed=0)"


def test_told_shares_are_what_leaders_send() -> None:
    shares = shares_of(some_counts(20, 4, seed=0)) + np.random.default_rng(0).normal(
        0, 0.2, (20, 4)
    )
    how = {"label_shares": shares, "clique_size": 5, "seed": 0}
    assert (
        topologies.decentralized_greedy_swap(**how).groups == topologies.greedy_swap(**how).groups
    )


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        ({"gossip_rounds": -1}, ValueError, "`gossip_rounds` must be at least 0, got -1"),
        ({"gossip_rounds": 1.0}, TypeError, "`gossip_rounds` must be an integer"),
        (
            {"gossip_graph": topologies.ring(8)},
            ValueError,
            "`gossip_graph` must be left out unless the number of `gossip_rounds`",
        ),
        (
            {"gossip_rounds": 1, "gossip_graph": topologies.ring(7)},
            ValueError,
            r"must have n=8 nodes, ring\(n=7\) has 7",
        ),
        (
            {"gossip_rounds": 1, "gossip_graph": [(0, 1)]},
            TypeError,
            "`gossip_graph` must be a Topology, got list",
        ),
        ({"steps": -1}, ValueError, "`steps` must be at least 0"),
        ({"distance": "l3"}, ValueError, "`distance` must be one of"),
        ({"clique_size": 9}, ValueError, "`clique_size` must be between 2 and n=8, got 9"),
        ({"inter": "star"}, ValueError, "`inter` must be one of"),
        (
            {"n": None},
            ValueError,
            "exactly one of `label_counts` and `n` must be given, got neither",
        ),
        ({"seed": None}, TypeError, "`seed`"),
    ],
)
def test_arguments_are_checked(call, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        topologies.decentralized_greedy_swap(**({"n": 8, "clique_size": 4, "seed": 0} | call))
