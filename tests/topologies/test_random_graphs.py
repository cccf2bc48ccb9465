"""Erdos-Renyi graphs and stochastic block models: laws of their edges, blocks, connection."""

import itertools
import tracemalloc
from collections import Counter

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from topofl import topologies
from topofl.topologies.random import independent_pairs
from topofl.topology import TopologyError


@pytest.mark.parametrize("sizes", [[2], [7], [1, 1], [3, 4, 1, 5], [10, 9, 9]])
def test_with_probability_one_all_pairs_within_blocks_are_joined(sizes):
    sizes = np.array(sizes)
    starts = np.cumsum(sizes) - sizes
    wanted = {
        pair
        for start, size in zip(starts, sizes, strict=True)
        for pair in itertools.combinations(range(start, start + size), 2)
    }
    pairs = independent_pairs(sizes, 1.0, np.random.default_rng(0))
    assert len(pairs) == len(wanted)
    assert {tuple(sorted(pair)) for pair in pairs.tolist()} == wanted
    assert independent_pairs(sizes, 0.0, np.random.default_rng(0)).shape == (0, 2)


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


def test_erdos_renyi_graphs_have_the_law_given_connection():
    """The 38 connected graphs on 4 nodes, in proportion to p^m (1 - p)^(6 - m) for m edges."""
    p, tries = 0.45, 2000
    pairs = list(itertools.combinations(range(4), 2))
    subsets = itertools.chain.from_iterable(itertools.combinations(pairs, m) for m in range(3, 7))
    wanted = {
        edges: p ** len(edges) * (1 - p) ** (6 - len(edges))
        for edges in subsets
        if is_connected(edges)
    }
    assert len(wanted) == 38
    graphs = [topologies.erdos_renyi(4, p, seed=seed) for seed in range(tries)]
    counts = Counter(
        tuple((u, v) for u, v in graph.edge_index.T.tolist() if u < v) for graph in graphs
    )
    expected = tries * np.array(list(wanted.values())) / sum(wanted.values())
    assert stats.chisquare([counts[edges] for edges in wanted], expected).pvalue > 1e-3


def is_connected(edges):
    return len({node for edge in edges for node in edge}) == 4 and nx.is_connected(nx.Graph(edges))


@pytest.mark.parametrize("p", [5e-324, 1e-17, 1e-9])
def test_tiny_probabilities_give_no_connected_graph_of_several_nodes(p):
    with pytest.raises(
        TopologyError,
        match=r"none of 100 draws of erdos_renyi.* take `p` above log\(n\) / n = 0.113",
    ):
        topologies.erdos_renyi(30, p, seed=0)
    assert topologies.erdos_renyi(1, p, seed=0).n == 1


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
    graphs = [
        topologies.stochastic_block_model(n, 2, p_in=p_in, p_out=p_out, seed=seed, connected=False)
        for seed in range(tries)
    ]
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


def test_edge_counts_are_those_of_networkx():
    """Mean numbers of edges within and across blocks differ from networkx by chance only."""

    def count(graph, block):
        within = sum(block[u] == block[v] for u, v in graph.edges)
        return within, graph.number_of_edges() - within

    block = np.repeat([0, 1, 2], [14, 13, 13])
    ours, theirs = [], []
    for seed in range(100):
        graph = topologies.stochastic_block_model(
            40, 3, p_in=0.4, p_out=0.05, seed=seed, connected=False
        )
        ours.append(count(graph.to_networkx(), block))
        p = [[0.4 if i == j else 0.05 for j in range(3)] for i in range(3)]
        theirs.append(count(nx.stochastic_block_model([14, 13, 13], p, seed=seed), block))
    for a, b in zip(np.transpose(ours), np.transpose(theirs), strict=True):
        assert stats.ttest_ind(a, b).pvalue > 1e-3
    pairs = np.array([14 * 13 / 2 + 13 * 12, 14 * 26 + 13 * 13])
    assert np.allclose(np.mean(ours, axis=0), pairs * [0.4, 0.05], rtol=0.05)


def test_special_cases():
    turan = topologies.stochastic_block_model(10, 3, p_in=0, p_out=1, seed=0)
    assert nx.is_isomorphic(turan.to_networkx(), nx.turan_graph(10, 3))
    assert topologies.stochastic_block_model(7, 1, p_in=1, p_out=0, seed=0).n_edges == 21
    assert topologies.stochastic_block_model(7, 7, p_in=0, p_out=1, seed=0).n_edges == 21
    cliques = topologies.stochastic_block_model(9, 3, p_in=1, p_out=0, seed=0, connected=False)
    assert cliques.groups == ((0, 1, 2), (3, 4, 5), (6, 7, 8))
    assert np.array_equal(cliques.adjacency.toarray(), np.kron(np.eye(3), 1 - np.eye(3)))
    assert topologies.stochastic_block_model(1, 1, p_in=0, p_out=0, seed=0).n == 1


def test_large_graphs_take_memory_for_their_edges():
    graph = topologies.erdos_renyi(100_000, 2e-4, seed=0)
    pairs = 100_000 * 99_999 / 2
    assert graph.is_connected
    assert abs(graph.n_edges - 2e-4 * pairs) < 5 * np.sqrt(2e-4 * pairs)
    graph = topologies.stochastic_block_model(100_000, 40_000, p_in=0.5, p_out=2e-4, seed=0)
    assert graph.is_connected
    within, across = 20_000 * 3 + 20_000 * 1, 100_000 * 99_999 / 2
    assert graph.n_edges == pytest.approx(0.5 * within + 2e-4 * (across - within), rel=0.01)


def test_unconnected_draws():
    with pytest.raises(
        TopologyError,
        match=r"none of 100 draws of stochastic_block_model.* was connected; take a larger",
    ):
        topologies.stochastic_block_model(50, 5, p_in=1.0, p_out=1e-5, seed=0)
    graph = topologies.stochastic_block_model(50, 5, p_in=1.0, p_out=1e-5, seed=0, connected=False)
    assert not graph.is_connected
    assert (
        graph.name
        == "stochastic_block_model(n=50, blocks=5, p_in=1.0, p_out=1e-05, seed=0, connected=False)"
    )


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"n": 0}, ValueError, "`n`"),
        ({"blocks": 0}, ValueError, "`blocks`"),
        ({"blocks": 11}, ValueError, "`blocks` must be between 1 and n=10, got 11"),
        ({"p_in": 1.5}, ValueError, "`p_in`"),
        ({"p_out": "little"}, TypeError, "`p_out`"),
        ({"p_out": 0}, ValueError, r"`p_out` must be above 0 .* or pass connected=False"),
        ({"seed": -1}, ValueError, "`seed`"),
    ],
)
def test_bad_arguments_are_named(changes, error, message):
    arguments = {"n": 10, "blocks": 2, "p_in": 0.5, "p_out": 0.5, "seed": 0} | changes
    with pytest.raises(error, match=message):
        topologies.stochastic_block_model(**arguments)
