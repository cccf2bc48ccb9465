"""Graphs that average exactly in finite time, and EquiTopo: weights as defined, rates as proved."""

from collections import Counter
from math import ceil, log

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from topofl import metrics, mixing, topologies

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
    factors = (f for f in range(2, min(n, largest) + 1) if n % f == 0)
    return n == 1 or any(has_only_factors_up_to(n // f, largest) for f in factors)


def fewest_factors(n, largest):
    """Count factors by brute force, for n with prime factors up to `largest`."""
    if n == 1:
        return 0
    factors = [f for f in range(2, largest + 1) if n % f == 0]
    usable = [f for f in factors if has_only_factors_up_to(n // f, largest)]
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
            inside = graph.to_networkx().subgraph(nodes).number_of_edges()
            assert inside == len(nodes) * (len(nodes) - 1) // 2
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


# EquiTopo

GENERATORS = [
    topologies.d_equistatic,
    topologies.u_equistatic,
    topologies.od_equidyn,
    topologies.ou_equidyn,
]


def basis(n, shift):
    """Return the directed basis graph, node by node; rows are receivers."""
    W = np.eye(n) / n
    for i in range(n):
        W[(i + shift) % n, i] = (n - 1) / n
    return W


def matching(n, shift, start):
    """Return the pairs of the undirected one-peer graph, node by node as defined."""
    free, pairs = set(range(n)), set()
    for i in [(start + k) % n for k in range(n)]:
        peer = (i + shift) % n
        if i in free and peer in free:
            free -= {i, peer}
            pairs.add(frozenset((i, peer)))
    return frozenset(pairs)


def one_peer_weights(n, pairs, eta):
    """(1 - eta) I + eta (I / n + (n - 1) / n M), with M the permutation that swaps each pair."""
    W = np.eye(n)
    for i, j in pairs:
        W[[i, j]] = W[[j, i]]
    return (1 - eta) * np.eye(n) + eta * (np.eye(n) / n + (n - 1) / n * W)


def left_over(matrices):
    """Return the largest expected share of squared disagreement left by a random one of these."""
    n = len(matrices[0])
    squares = [(W - 1 / n).T @ (W - 1 / n) for W in matrices]
    return np.linalg.eigvalsh(np.mean(squares, axis=0))[-1]


def dense(graph):
    return mixing.metropolis_or_uniform(graph).weights.toarray()


def shift_of(graph):
    """Return the shift of a directed one-peer graph."""
    return int(graph.out_neighbors(0)[0])


def shifts_of(graph, m):
    """How often a directed static graph has each shift."""
    counts = graph.adjacency[[0]].toarray()[0] * m * graph.n / (graph.n - 1)
    assert np.allclose(counts, counts.round())
    return counts.round().astype(int)


@pytest.mark.parametrize(("n", "m"), [(2, 1), (3, 4), (12, 3), (13, 1), (50, 20), (8, 100)])
def test_static_graphs_are_means_of_basis_graphs(n, m):
    directed = topologies.d_equistatic(n, m, seed=5)
    undirected = topologies.u_equistatic(n, m, seed=5)
    counts = shifts_of(directed, m)
    assert counts.sum() == m
    mean = sum(count * basis(n, shift) for shift, count in enumerate(counts) if count) / m
    assert np.allclose(dense(directed), mean, rtol=0, atol=1e-15)
    assert np.allclose(dense(undirected), (mean + mean.T) / 2, rtol=0, atol=1e-15)
    assert not undirected.is_directed
    assert set(directed.out_degrees) == set(directed.in_degrees) == {np.count_nonzero(counts)}
    assert undirected.out_degrees.max() <= 2 * m
    for graph in (directed, undirected):
        assert graph.own_weights
        assert mixing.own_weights(graph).is_doubly_stochastic


def test_shifts_are_drawn_uniformly_with_replacement():
    counts = shifts_of(topologies.d_equistatic(11, 5000, seed=0), 5000)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > 1e-3


@pytest.mark.parametrize("n", [50, 100, 200, 400])
def test_disagreement_shrinks_by_rho_whatever_the_size(n):
    """With m = 8 ln(2 n / p) / (3 rho^2) basis graphs, with probability at least 1 - p."""
    rho, p = 0.5, 1e-4
    m = ceil(8 * log(2 * n / p) / (3 * rho**2))
    for seed in range(5):
        sigma = metrics.sigma(topologies.d_equistatic(n, m, seed=seed))
        assert sigma <= rho
        assert metrics.sigma(topologies.u_equistatic(n, m, seed=seed)) <= sigma + 1e-9


@pytest.mark.parametrize(
    ("n", "m", "eta"), [(2, None, 0.5), (7, None, 0.5), (12, 3, 0.3), (20, None, 1.0)]
)
def test_rounds_of_the_directed_one_peer_graphs(n, m, eta):
    pushes = topologies.od_equidyn(n, seed=1, m=m, eta=eta)
    static = None
    if m is not None:
        static = set(np.flatnonzero(shifts_of(topologies.d_equistatic(n, m, seed=1), m)))
    seen = set()
    for t in range(200):
        graph = pushes.at(t)
        seen.add(shift_of(graph))
        W = (1 - eta) * np.eye(n) + eta * basis(n, shift_of(graph))
        assert np.allclose(dense(graph), W, rtol=0, atol=1e-15)
        assert mixing.own_weights(graph).is_doubly_stochastic
        assert set(graph.out_degrees) == set(graph.in_degrees) == {1}
    assert seen == (set(range(1, n)) if static is None else static)


@pytest.mark.parametrize("eta", [0.3, 1.0])
@pytest.mark.parametrize("n", [2, 5, 12, 40])
def test_over_all_shifts_disagreement_is_left_over_exactly_as_known(n, eta):
    """Enumerate rounds: E (W - J)^T (W - J) = ((1 - eta)^2 + eta^2 (n - 2) / n) (I - J)."""
    pushes = topologies.od_equidyn(n, seed=0, eta=eta)
    by_shift = {shift_of(graph): graph for graph in map(pushes.at, range(15 * n))}
    assert len(by_shift) == n - 1
    squares = np.mean([(W - 1 / n).T @ (W - 1 / n) for W in map(dense, by_shift.values())], axis=0)
    closed = (1 - eta) ** 2 + eta**2 * (n - 2) / n
    assert np.allclose(squares, closed * (np.eye(n) - 1 / n), rtol=0, atol=1e-12)
    assert closed <= 1 - 2 * eta * (1 - eta) + 1e-15


@pytest.mark.parametrize("eta", [0.3, 0.5, 0.8])
@pytest.mark.parametrize(("n", "m"), [(12, 4), (13, 6), (30, 12)])
def test_over_some_shifts_disagreement_shrinks_by_the_rate_of_the_static_graph(n, m, eta):
    for seed in range(5):
        counts = shifts_of(topologies.d_equistatic(n, m, seed=seed), m)
        shifts = np.repeat(np.arange(n), counts)
        rho = metrics.sigma(topologies.d_equistatic(n, m, seed=seed))
        rounds = [(1 - eta) * np.eye(n) + eta * basis(n, shift) for shift in shifts]
        assert left_over(rounds) <= 1 - 2 * eta * (1 - eta) * (1 - rho) + 1e-12

        rho = metrics.sigma(topologies.u_equistatic(n, m, seed=seed))
        pairs = [matching(n, shift, start) for shift in shifts for start in range(n)]
        rounds = [one_peer_weights(n, each, eta) for each in pairs]
        assert left_over(rounds) <= 1 - 4 / 3 * eta * (1 - eta) * (1 - rho) + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 6, 7, 9])
def test_matchings_have_the_law_of_their_definition(n):
    """All that the node-by-node definition gives, as often as it gives them, and nothing else."""
    law = Counter(matching(n, shift, start) for shift in range(1, n) for start in range(n))
    pairs = topologies.ou_equidyn(n, seed=0)
    rounds = 1000
    edges = (pairs.at(t).edge_index.T.tolist() for t in range(rounds))
    seen = Counter(frozenset(map(frozenset, one)) for one in edges)
    assert set(seen) == set(law)
    expected = np.array([law[each] for each in law]) * rounds / (n * (n - 1))
    assert len(law) == 1 or stats.chisquare([seen[each] for each in law], expected).pvalue > 1e-3


@pytest.mark.parametrize(
    ("n", "m", "eta"), [(2, None, 0.5), (7, None, 0.5), (12, 3, 0.3), (21, 2, 1.0)]
)
def test_rounds_of_the_undirected_one_peer_graphs(n, m, eta):
    pairs = topologies.ou_equidyn(n, seed=1, m=m, eta=eta)
    allowed = np.ones(n) if m is None else shifts_of(topologies.d_equistatic(n, m, seed=1), m)
    for t in range(50):
        graph = pairs.at(t)
        assert not graph.is_directed
        assert graph.out_degrees.max() == 1
        edges = graph.edge_index.T
        wanted = one_peer_weights(n, edges[edges[:, 0] < edges[:, 1]], eta)
        assert np.allclose(dense(graph), wanted, rtol=0, atol=1e-15)
        assert mixing.own_weights(graph).is_doubly_stochastic
        shift = (edges[0, 1] - edges[0, 0]) % n
        assert allowed[shift] or allowed[-shift % n]


def test_large_graphs_are_sparse():
    assert topologies.u_equistatic(100_000, 10, seed=0).n_edges == 1_000_000
    assert topologies.ou_equidyn(100_000, seed=0).at(0).n_edges >= 100_000 / 3
