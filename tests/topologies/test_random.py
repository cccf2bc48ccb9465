"""Random graphs, drawn once or redrawn every round."""

import itertools
import tracemalloc
from collections import Counter

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from topofl import TopologyError, mixing, topologies
from topofl._support.seeding import stream
from topofl.topologies.random import independent_pairs


def test_pairs_of_a_large_graph_are_numbered_exactly():
    """Each node's first and last pair, among 5e9, are numbered as by the integer formula."""

    class Chosen:
        def binomial(self, n, p):
            return None

        def choice(self, n, size, replace, shuffle):
            rows = np.array([1, 2, 3, 4_999, 70_000, 94_906, 99_999])
            return np.concatenate([rows * (rows - 1) // 2, rows * (rows + 1) // 2 - 1])

    pairs = independent_pairs(np.array([100_000]), 0.5, Chosen())
    rows = [1, 2, 3, 4_999, 70_000, 94_906, 99_999]
    assert pairs.tolist() == [[row, 0] for row in rows] + [[row, row - 1] for row in rows]


@pytest.mark.slow
def test_erdos_renyi_graphs_have_the_law_given_connection():
    """The 38 connected graphs on 4 nodes, in proportion to p^m (1 - p)^(6 - m) for m edges."""
    p, tries = 0.45, 2000
    pairs = list(itertools.combinations(range(4), 2))
    subsets = itertools.chain.from_iterable(itertools.combinations(pairs, m) for m in range(3, 7))
    connected = [edges for edges in subsets if is_connected(edges)]
    wanted = {edges: p ** len(edges) * (1 - p) ** (6 - len(edges)) for edges in connected}
    assert len(wanted) == 38
    graphs = [topologies.erdos_renyi(4, p, seed=seed) for seed in range(tries)]
    edges = (graph.edge_index.T.tolist() for graph in graphs)
    counts = Counter(tuple((u, v) for u, v in one if u < v) for one in edges)
    expected = tries * np.array(list(wanted.values())) / sum(wanted.values())
    assert stats.chisquare([counts[edges] for edges in wanted], expected).pvalue > 1e-3


def is_connected(edges):
    return len({node for edge in edges for node in edge}) == 4 and nx.is_connected(nx.Graph(edges))


def test_erdos_renyi_is_the_block_model_of_one_block():
    for seed in range(5):
        graph = topologies.erdos_renyi(30, 0.2, seed=seed)
        model = topologies.stochastic_block_model(30, 1, p_in=0.2, p_out=0.9, seed=seed)
        assert (graph.adjacency != model.adjacency).nnz == 0


def test_one_block_draws_no_pairs_across():
    tracemalloc.start()
    graph = topologies.stochastic_block_model(5000, 1, p_in=2e-3, p_out=0.5, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * 2 * graph.n_edges  # pairs across would be 6 million


def test_every_pair_is_joined_with_its_probability():
    n, tries, p_in, p_out = 9, 800, 0.6, 0.2
    how = {"p_in": p_in, "p_out": p_out, "connected": False}
    graphs = [topologies.stochastic_block_model(n, 2, **how, seed=s) for s in range(tries)]
    block = np.repeat([0, 1], [5, 4])
    assert graphs[0].groups == (tuple(range(5)), tuple(range(5, 9)))
    p = np.where(block[:, None] == block[None, :], p_in, p_out)[np.triu_indices(n, 1)]
    edges = np.array([graph.adjacency.toarray()[np.triu_indices(n, 1)] for graph in graphs])
    z = (edges.sum(axis=0) - tries * p) / np.sqrt(tries * p * (1 - p))
    assert stats.chi2.sf((z**2).sum(), len(z)) > 1e-3
    # Independence: numbers of edges of the 36 pairs have the variance of a sum of independent
    # indicators.
    total = edges.sum(axis=1)
    statistic = (tries - 1) * total.var(ddof=1) / (p * (1 - p)).sum()
    assert 1e-3 < stats.chi2.sf(statistic, tries - 1) < 1 - 1e-3


def test_special_cases():
    turan = topologies.stochastic_block_model(10, 3, p_in=0, p_out=1, seed=0)
    assert nx.is_isomorphic(turan.to_networkx(), nx.turan_graph(10, 3))
    assert topologies.stochastic_block_model(7, 1, p_in=1, p_out=0, seed=0).n_edges == 21
    assert topologies.stochastic_block_model(7, 7, p_in=0, p_out=1, seed=0).n_edges == 21
    cliques = topologies.stochastic_block_model(9, 3, p_in=1, p_out=0, seed=0, connected=False)
    assert cliques.groups == ((0, 1, 2), (3, 4, 5), (6, 7, 8))
    assert np.array_equal(cliques.adjacency.toarray(), np.kron(np.eye(3), 1 - np.eye(3)))
    assert topologies.stochastic_block_model(1, 1, p_in=0, p_out=0, seed=0).n == 1


@pytest.mark.slow
def test_large_graphs_take_memory_for_their_edges():
    graph = topologies.erdos_renyi(100_000, 2e-4, seed=0)
    pairs = 100_000 * 99_999 / 2
    assert graph.is_connected
    assert abs(graph.n_edges - 2e-4 * pairs) < 5 * np.sqrt(2e-4 * pairs)
    graph = topologies.stochastic_block_model(100_000, 40_000, p_in=0.5, p_out=2e-4, seed=0)
    assert graph.is_connected
    within, across = 20_000 * 3 + 20_000 * 1, 100_000 * 99_999 / 2
    assert graph.n_edges == pytest.approx(0.5 * within + 2e-4 * (across - within), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(12, 2), (12, 5)])  # one with each way of drawing
def test_all_others_are_equally_likely(n, k):
    graphs = topologies.random_out(n, k, seed=0)
    counts = sum(graphs.at(t).adjacency.toarray() for t in range(1500))
    off = counts[~np.eye(n, dtype=bool)]
    assert not counts.diagonal().any()
    expected = 1500 * k / (n - 1)
    # Within a row the k choices exclude each other, which shrinks the variance by (1 - k / (n -
    # 1)).
    statistic = ((off - expected) ** 2 / expected).sum() / (1 - k / (n - 1))
    assert stats.chi2.sf(statistic, n * (n - 2)) > 1e-3


def test_others_drawn_in_blocks_of_rows_are_those_drawn_at_once():
    n, k = 1500, 40  # two blocks
    keys = stream(5, "graph", 2).random((n, n - 1))
    graph = topologies.random_out(n, k, seed=5).at(2)
    for node in range(n):
        smallest = np.argsort(keys[node])[:k]
        assert graph.out_neighbors(node).tolist() == sorted(smallest + (smallest >= node))


def test_many_others_take_memory_for_a_block_of_rows():
    n, k = 3000, 60
    tracemalloc.start()
    graph = topologies.random_in(n, k, seed=0).at(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert set(graph.in_degrees) == {k}
    assert peak < 8 * n * (n - 1)  # of one number a pair


@pytest.mark.slow
@pytest.mark.parametrize(("n", "number"), [(1, 1), (2, 1), (4, 3), (5, 15), (6, 15)])
def test_all_matchings_are_equally_likely(n, number):
    """There are n! / (2^(n/2) (n/2)!) for even n; for odd n, any of the n nodes may be alone."""
    rounds = 200 * number
    graphs = topologies.random_matching(n, seed=0)
    counts = Counter(graphs.at(t).adjacency.toarray().tobytes() for t in range(rounds))
    assert len(counts) == number
    assert number == 1 or stats.chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize(
    ("n", "ratio"),
    [pytest.param(10, 8 / 18, marks=pytest.mark.slow), (60, 58 / 118), (11, 0.5)],
)
def test_a_matching_shrinks_disagreement_as_declared(n, ratio):
    graphs, rng = topologies.random_matching(n, seed=1), np.random.default_rng(1)
    x = rng.standard_normal(n)
    ratios = [(mixing.metropolis_hastings(graphs.at(t)) @ x).var() / x.var() for t in range(800)]
    assert abs(np.mean(ratios) - ratio) < 4 * np.std(ratios) / np.sqrt(len(ratios))


def test_pairs_of_erdos_renyi_rounds_are_joined_independently():
    n, p, rounds = 8, 0.3, 1000
    graphs = topologies.erdos_renyi_sequence(n, p, seed=0)
    upper = np.triu_indices(n, 1)
    edges = np.array([graphs.at(t).adjacency.toarray()[upper] for t in range(rounds)])
    z = (edges.sum(axis=0) - rounds * p) / np.sqrt(rounds * p * (1 - p))
    assert stats.chi2.sf((z**2).sum(), len(z)) > 1e-3
    number = edges.sum(axis=1)
    statistic = (rounds - 1) * number.var(ddof=1) / (len(z) * p * (1 - p))
    assert 1e-3 < stats.chi2.sf(statistic, rounds - 1) < 1 - 1e-3
    assert abs(np.corrcoef(number[1:], number[:-1])[0, 1]) < 4 / np.sqrt(rounds)  # between rounds


def test_erdos_renyi_rounds_at_the_ends_of_p():
    assert topologies.erdos_renyi_sequence(6, 0, seed=0).at(3).n_edges == 0
    assert topologies.erdos_renyi_sequence(6, 1, seed=0).at(3).n_edges == 15
    assert topologies.erdos_renyi_sequence(1, 0.5, seed=0).at(3).n_edges == 0


def test_large_rounds_take_memory_for_their_edges():
    graph = topologies.erdos_renyi_sequence(200_000, 1e-5, seed=0).at(2)
    expected = 1e-5 * 200_000 * 199_999 / 2
    assert abs(graph.n_edges - expected) < 5 * np.sqrt(expected)
    assert topologies.random_matching(200_000, seed=0).at(2).n_edges == 100_000


@pytest.mark.parametrize(
    ("n", "k"), [(2, 1), (5, 2), (10, 3), (10, 4), (10, 5), (10, 8), (10, 9), (3, 2), (100, 10)]
)
def test_regular_graphs_and_rounds_are_connected_and_regular(n, k):
    rounds = topologies.random_regular_sequence(n, k, seed=3)
    graphs = [topologies.random_regular(n, k, seed=seed) for seed in (0, 1)]
    for graph in (*graphs, rounds.at(0), rounds.at(17)):
        assert graph.out_degrees.tolist() == [k] * n
        assert graph.is_connected
        assert not graph.is_directed
    assert n < 6 or k > 7 or (graphs[0].adjacency != graphs[1].adjacency).nnz


def test_random_2_regular_is_a_ring_in_random_order():
    graph = topologies.random_regular(30, 2, seed=0)
    assert nx.is_isomorphic(graph.to_networkx(), nx.cycle_graph(30))
    assert graph.in_neighbors(0).tolist() != [1, 29]


def test_dense_random_regular_graphs_are_complements_and_fast():
    graph = topologies.random_regular(60, 57, seed=0)  # drawn directly this takes minutes
    absent = nx.complement(graph.to_networkx())
    assert {degree for _, degree in absent.degree} == {2}


def test_random_regular_says_when_no_draw_is_connected(monkeypatch):
    two_squares = np.array([(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4)])
    monkeypatch.setattr("topofl.topologies.random._regular_edges", lambda n, k, rng: two_squares)
    with pytest.raises(TopologyError, match=r"of random_regular\(n=8, k=3, .*`seed`"):
        topologies.random_regular(8, 3, seed=0)


@pytest.mark.slow
def test_small_random_regular_graphs_are_not_uniform_as_the_docstring_says():
    """70 cubic graphs on 6 nodes: 60 prisms and 10 complete bipartite graphs."""
    graphs = [topologies.random_regular(6, 3, seed=s).to_networkx() for s in range(1500)]
    share = np.mean([nx.is_bipartite(graph) for graph in graphs])
    assert share == pytest.approx(0.31, abs=0.04)
    assert share > 10 / 70 + 0.1


def test_small_world_without_rewiring_is_the_lattice_and_rewiring_shortens_paths():
    lattice = topologies.small_world(15, k=4, p=0.0, seed=0)
    assert (lattice.adjacency != topologies.circulant(15, [1, 2]).adjacency).nnz == 0
    lattice, rewired = (topologies.small_world(200, k=6, p=p, seed=0) for p in (0.0, 0.3))
    assert rewired.n_edges == lattice.n_edges == 600
    assert rewired.mean_distance < 0.5 * lattice.mean_distance
    gaps = [mixing.metropolis_hastings(graph).spectral_gap for graph in (lattice, rewired)]
    assert gaps[1] > 5 * gaps[0]


@pytest.mark.parametrize(("n", "m"), [(30, 1), (30, 3), (5, 4)])
def test_edges_of_preferential_attachment(n, m):
    assert topologies.barabasi_albert(n, m, seed=0).n_edges == m * (n - m)


def test_the_edges_that_are_expected_of_a_random_graph_are_counted_exactly():
    with pytest.raises(ValueError, match="at most 50,000,000 edges"):
        topologies.erdos_renyi(10_001, 50_000_001 / (10_001 * 5_000), seed=0)


def test_averages_over_random_receivers_are_those_of_epidemic_learning():
    """EL-Local: each node averages its model with all that it receives, in equal shares."""
    graph = topologies.random_out(12, 3, seed=1).at(2)
    rule = mixing.rules.metropolis_or_uniform  # the default of methods that average
    shares = graph.adjacency.toarray().T + np.eye(12)
    assert set(graph.out_degrees) == {3}
    assert len(set(graph.in_degrees)) > 1
    np.testing.assert_allclose(rule(graph).weights.toarray(), shares / shares.sum(1, keepdims=True))
