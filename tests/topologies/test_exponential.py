"""Exponential graphs, and graphs that average in finite time."""

from math import floor, log, log2

import networkx as nx
import numpy as np
import pytest

from topofl import mixing, topologies
from topofl.topology import TopologyError


def offsets(n: int) -> list[int]:
    return [2**e for e in range(floor(log2(n - 1)) + 1)] if n > 1 else []


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 16, 17, 33])
def test_static_exponential_is_a_circulant(n: int) -> None:
    graph = topologies.exponential(n)
    assert not graph.is_directed
    assert nx.is_isomorphic(graph.to_networkx(), nx.circulant_graph(n, offsets(n)))
    degree = len({d % n for d in offsets(n)} | {-d % n for d in offsets(n)})
    assert graph.out_degrees.tolist() == [degree] * n


@pytest.mark.parametrize("n", [4, 5, 8, 9, 16, 17, 33])
def test_directed_exponential_sends_forwards(n: int) -> None:
    graph = topologies.exponential(n, directed=True)
    assert graph.is_directed
    for i in range(n):
        assert graph.out_neighbors(i).tolist() == sorted((i + d) % n for d in offsets(n))


@pytest.mark.parametrize(("n", "degree"), [(100, 14), (1000, 20)])
def test_degrees_of_the_papers(n: int, degree: int) -> None:
    assert topologies.exponential(n).out_degrees.tolist() == [degree] * n
    assert topologies.exponential(n, directed=True).out_degrees.tolist() == [len(offsets(n))] * n


@pytest.mark.parametrize("n", [4, 8, 16, 64, 128])
def test_gap_of_the_directed_exponential_graph(n: int) -> None:
    """The gap is 2 / (1 + log2 n) for powers of two (Ying et al. 2021, Proposition 1)."""
    W = mixing.uniform(topologies.exponential(n, directed=True))
    assert W.is_doubly_stochastic
    assert W.spectral_gap == pytest.approx(2 / (1 + log2(n)), abs=1e-10)


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_one_peer_exponential_averages_exactly_in_one_period(n: int) -> None:
    pushes = topologies.one_peer_exponential(n)
    assert pushes.period == log2(n)
    for start in range(pushes.period):  # any consecutive period
        product = np.eye(n)
        for t in range(start, start + pushes.period):
            product = mixing.uniform(pushes.at(t), direction="push") @ product
        assert (product == 1 / n).all()  # powers of two: exact also in floating point


def test_one_peer_exponential_contracts_where_n_is_no_power_of_two() -> None:
    """Dobrushin's coefficient of the product over one period at n = 100."""
    product = np.eye(100)
    for t in range(7):
        product = (
            mixing.uniform(topologies.one_peer_exponential(100).at(t), direction="push") @ product
        )
    distances = np.abs(product.T[:, None, :] - product.T[None, :, :]).sum(axis=2)
    assert distances.max() / 2 == pytest.approx(0.219, abs=5e-4)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 100])
def test_rounds_of_one_peer_exponential(n: int) -> None:
    pushes = topologies.one_peer_exponential(n)
    assert pushes.period == floor(log2(n - 1)) + 1
    assert pushes.name == f"one_peer_exponential(n={n})"
    for t in range(2 * pushes.period):
        graph = pushes.at(t)
        shift = 2 ** (t % pushes.period)
        assert [graph.out_neighbors(i).tolist() for i in range(n)] == [
            [(i + shift) % n] for i in range(n)
        ]
        assert graph is pushes.at(t % pushes.period)
        assert graph.name == f"one_peer_exponential(n={n}).at({t % pushes.period})"


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="`n` must be at least 1, got 0"):
        topologies.exponential(0)
    with pytest.raises(TypeError, match="`n` must be an integer"):
        topologies.exponential(8.0)
    with pytest.raises(ValueError, match="`n` must be at least 2, got 1"):
        topologies.one_peer_exponential(1)
    with pytest.raises(TypeError, match="`n` must be an integer"):
        topologies.one_peer_exponential("8")


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_undirected_one_peer_exponential_is_the_one_peer_hypercube(n: int) -> None:
    pairs = topologies.one_peer_exponential(n, directed=False)
    assert pairs.period == log2(n)
    union = sum(pairs.at(t).adjacency for t in range(pairs.period))
    assert (union != topologies.hypercube(n).adjacency).nnz == 0
    for start in range(pairs.period):
        product = np.eye(n)
        for t in range(start, start + pairs.period):
            assert pairs.at(t).out_degrees.tolist() == [1] * n
            product = mixing.metropolis_hastings(pairs.at(t)) @ product
        assert (product == 1 / n).all()


@pytest.mark.parametrize("n", [*range(2, 35), 100])
def test_undirected_one_peer_exponential_pairs_numbers_that_differ_in_one_bit(n: int) -> None:
    pairs = topologies.one_peer_exponential(n, directed=False)
    assert pairs.period == floor(log2(n - 1)) + 1
    assert pairs.name == f"one_peer_exponential(n={n}, directed=False)"
    union = nx.Graph()
    union.add_nodes_from(range(n))
    for e in range(pairs.period):
        graph = pairs.at(e)
        assert not graph.is_directed
        for i in range(n):
            assert graph.out_neighbors(i).tolist() == [i ^ 2**e] * (i ^ 2**e < n)
        union.add_edges_from(graph.edge_index.T.tolist())
    assert nx.is_connected(union)  # clearing bits one by one leads every node to 0


@pytest.mark.parametrize("n", [2, 3, 5, 8, 13, 64, 100])
def test_with_one_peer_p_peer_exponential_is_one_peer_exponential(n: int) -> None:
    a, b = topologies.p_peer_exponential(n, 1), topologies.one_peer_exponential(n)
    assert a.period == b.period
    for t in range(a.period):
        assert np.array_equal(a.at(t).edge_index, b.at(t).edge_index)


@pytest.mark.parametrize(
    ("p", "rounds"), [(1, 5), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2), (7, 2), (6, 1)]
)
def test_p_peer_exponential_averages_exactly_at_powers_of_p_plus_1(p: int, rounds: int) -> None:
    n = (p + 1) ** rounds
    pushes = topologies.p_peer_exponential(n, p)
    assert pushes.period == rounds
    for start in range(rounds):
        product = np.eye(n)
        for t in range(start, start + rounds):
            assert pushes.at(t).out_degrees.tolist() == [p] * n
            product = mixing.uniform(pushes.at(t), direction="push") @ product
        assert np.abs(product - 1 / n).max() < 1e-14


@pytest.mark.parametrize("n", [2, 3, 6, 9, 10, 26, 27, 28, 50])
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_peers_of_p_peer_exponential(n: int, p: int) -> None:
    """Distances are j (p + 1)^e, one round for each power of p + 1 below n; equal ones merge."""
    if p >= n:
        return
    pushes = topologies.p_peer_exponential(n, p)
    powers = [(p + 1) ** e for e in range(n) if (p + 1) ** e <= n - 1]
    assert pushes.period == len(powers)
    for t, power in enumerate(powers * 2):
        for i in range(n):
            wanted = {(i + j * power) % n for j in range(1, p + 1)} - {i}
            assert pushes.at(t).out_neighbors(i).tolist() == sorted(wanted)
        assert mixing.uniform(pushes.at(t)).is_doubly_stochastic


def test_with_all_peers_p_peer_exponential_is_complete() -> None:
    graphs = topologies.p_peer_exponential(7, 6)
    assert graphs.period == 1
    assert np.array_equal(graphs.at(0).edge_index, topologies.fully_connected(7).edge_index)


def test_arguments_of_p_peer_exponential_are_checked() -> None:
    with pytest.raises(ValueError, match="`n` must be at least 2, got 1"):
        topologies.p_peer_exponential(1, 1)
    with pytest.raises(ValueError, match="`p` must be between 1 and 7, got 8"):
        topologies.p_peer_exponential(8, 8)
    with pytest.raises(ValueError, match="`p` must be between 1 and 7, got 0"):
        topologies.p_peer_exponential(8, 0)
    with pytest.raises(TypeError, match="`p` must be an integer"):
        topologies.p_peer_exponential(8, 2.0)


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


def test_other_weights_do_not_average_exactly():
    total = np.eye(5)
    for graph in graphs_of(topologies.base_graph(5, 1)):
        total = mixing.metropolis_hastings(graph) @ total
    assert np.abs(total - 1 / 5).max() > 0.01


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


def test_with_all_peers_it_is_the_complete_graph():
    for graphs in (topologies.hyper_hypercube(7, 6), topologies.base_graph(7, 6)):
        assert graphs.period == 1
        assert np.allclose(graphs.at(0).adjacency.toarray(), (1 - np.eye(7)) / 7)


def test_digits_of_mixed_radix_numbers():
    graphs = topologies.hyper_hypercube(12, 2)  # 2 * 2 * 3
    assert [graphs.at(t).out_neighbors(1).tolist() for t in range(3)] == [[0], [3], [5, 9]]


def test_bad_arguments_are_named():
    with pytest.raises(
        TopologyError, match=r"prime factor above k \+ 1 = 3, got 7; the nearest are 6 and 8"
    ):
        topologies.hyper_hypercube(7, 2)
    with pytest.raises(TopologyError, match="got 25; the nearest are 16 and 32, or use base_graph"):
        topologies.hyper_hypercube(25, 1)
    for generator in (topologies.base_graph, topologies.hyper_hypercube):
        with pytest.raises(ValueError, match="`n` must be at least 1, got 0"):
            generator(0, 1)
        with pytest.raises(ValueError, match="`k` must be between 1 and 4, got 5"):
            generator(5, 5)
        with pytest.raises(ValueError, match="`k` must be between 1"):
            generator(5, 0)
        with pytest.raises(TypeError, match="`k` must be an integer"):
            generator(5, 1.0)
