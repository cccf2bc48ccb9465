"""Graphs that average exactly in finite time, against brute force."""

from math import log

import networkx as nx
import numpy as np
import pytest

from topofl import mixing, topologies

PAIRS = [(n, k) for n in range(1, 42) for k in range(1, 6) if k <= max(1, n - 1)]
ALL_DEGREES = [(n, k) for n in (2, 7, 15, 22) for k in range(1, n)]


def graphs_of(sequence):
    return [sequence.at(t) for t in range(sequence.period)]


def product(graphs):
    total = np.eye(graphs[0].n)
    for graph in graphs:
        total = mixing.metropolis_or_uniform(graph) @ total
    return total


def has_only_factors_up_to(n, largest):
    return n == 1 or any(
        n % f == 0 and has_only_factors_up_to(n // f, largest)
        for f in range(2, min(n, largest) + 1)
    )


def fewest_factors(n, largest):
    """Count factors by brute force, for n with prime factors up to `largest`."""
    if n == 1:
        return 0
    usable = [
        f for f in range(2, largest + 1) if n % f == 0 and has_only_factors_up_to(n // f, largest)
    ]
    return 1 + min(fewest_factors(n // f, largest) for f in usable)


def simple_period(n, k):
    """Count the rounds of the Simple Base-(k + 1) graph.

    V_1 averages, exchanges once, and its blocks average.
    """
    if has_only_factors_up_to(n, k + 1):
        return fewest_factors(n, k + 1)
    power = max(p for p in range(n) if (k + 1) ** p <= n)
    block = (k + 1) ** power
    return fewest_factors(n // block * block, k + 1) + 1 + power


def base_period(n, k):
    """Count the rounds of the shorter construction; a single node has one."""
    smooth = max(d for d in range(1, n + 1) if n % d == 0 and has_only_factors_up_to(d, k + 1))
    split = simple_period(n // smooth, k) + fewest_factors(smooth, k + 1)
    return max(1, min(simple_period(n, k), split))


@pytest.mark.parametrize(("n", "k"), PAIRS + ALL_DEGREES)
def test_base_graphs_average_exactly_in_one_period(n, k):
    sequence = topologies.base_graph(n, k)
    graphs = graphs_of(sequence)
    assert np.abs(product(graphs) - 1 / n).max() < 1e-12
    for graph in graphs:
        assert graph.own_weights
        assert not graph.is_directed
        assert graph.out_degrees.max() <= k
        W = mixing.own_weights(graph)
        assert W.is_doubly_stochastic
        assert W.is_symmetric
    assert sequence.period <= 2 * log(n, k + 1) + 2 + 1e-9  # Theorem 1
    assert sequence.period == base_period(n, k)


def test_of_both_constructions_the_shorter_is_taken():
    assert simple_period(6, 1) == 5
    assert (
        topologies.base_graph(6, 1).period == 4
    )  # two base graphs on 3 nodes, 3 rounds, and then 3 pairs
    assert simple_period(11, 4) + fewest_factors(2, 5) == 5
    assert topologies.base_graph(22, 4).period == simple_period(22, 4) == 4


@pytest.mark.parametrize(
    ("n", "k"), [(13, 2), (23, 1), (37, 3), (41, 4), (101, 2)]
)  # primes: one simple base graph
def test_while_some_exchange_the_others_average_too(n, k):
    """A node is idle only if its part (one per nonzero digit of n) has no other left for it."""
    digits = [n // (k + 1) ** p % (k + 1) for p in range(n.bit_length())]
    for graph in graphs_of(topologies.base_graph(n, k)):
        assert np.count_nonzero(graph.out_degrees == 0) <= np.count_nonzero(digits)


def test_a_large_base_graph_averages_and_is_sparse():
    graphs = topologies.base_graph(100_003, 2)  # a prime
    values = np.random.default_rng(0).standard_normal(100_003)
    mean = values.mean()
    assert graphs.period <= 2 * log(100_003, 3) + 2
    for t in range(graphs.period):
        values = mixing.own_weights(graphs.at(t)) @ values
    assert np.abs(values - mean).max() < 1e-12


@pytest.mark.parametrize(
    ("n", "k"), [(n, k) for n, k in PAIRS + ALL_DEGREES if has_only_factors_up_to(n, k + 1)]
)
def test_hyper_hypercubes_are_complete_graphs_side_by_side(n, k):
    sequence = topologies.hyper_hypercube(n, k)
    graphs = graphs_of(sequence)
    assert sequence.period == max(1, fewest_factors(n, k + 1))
    assert sequence.period <= max(1, 2 * log(n, k + 2)) + 1e-9
    for graph in graphs:
        assert graph.out_degrees.max() <= k
        for nodes in nx.connected_components(graph.to_networkx()):
            assert (
                graph.to_networkx().subgraph(nodes).number_of_edges()
                == len(nodes) * (len(nodes) - 1) // 2
            )
    for start in range(sequence.period):  # the rounds commute, so any period does
        assert np.abs(product(graphs[start:] + graphs[:start]) - 1 / n).max() < 1e-12


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_with_one_peer_it_is_the_one_peer_hypercube(n):
    a, b = topologies.hyper_hypercube(n, 1), topologies.one_peer_exponential(n, directed=False)
    base = topologies.base_graph(n, 1)
    assert a.period == b.period == base.period
    for t in range(a.period):
        assert np.array_equal(a.at(t).edge_index, b.at(t).edge_index)
        assert (a.at(t).adjacency != base.at(t).adjacency).nnz == 0
        assert set(a.at(t).adjacency.data) == {0.5}


def test_digits_of_mixed_radix_numbers():
    graphs = topologies.hyper_hypercube(12, 2)  # 2 * 2 * 3
    assert [graphs.at(t).out_neighbors(1).tolist() for t in range(3)] == [[0], [3], [5, 9]]
