"""Random graphs, drawn once or redrawn every round."""

import functools
import itertools
import tracemalloc
from collections import Counter

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from topofl import TopologyError, metrics, mixing, topologies
from topofl._support.seeding import stream
from topofl.topologies.random import independent_pairs


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


@pytest.mark.parametrize(("n", "k"), [(2, 1), (10, 9), (10, 3), (60, 5), (60, 20)])
def test_degrees_are_k_on_the_side_that_chooses(n, k):
    for t in (0, 1, 17):
        assert set(topologies.random_out(n, k, seed=3).at(t).out_degrees) == {k}
        assert set(topologies.random_in(n, k, seed=3).at(t).in_degrees) == {k}


def test_rounds_are_pure_in_seed_and_t_and_differ():
    graphs, again = topologies.random_out(30, 4, seed=1), topologies.random_out(30, 4, seed=1)
    later = again.at(5)  # asked for first
    for t in range(5):
        assert (graphs.at(t).adjacency != again.at(t).adjacency).nnz == 0
    assert (graphs.at(5).adjacency != later.adjacency).nnz == 0
    assert (graphs.at(0).adjacency != graphs.at(1).adjacency).nnz > 0
    assert (graphs.at(0).adjacency != topologies.random_out(30, 4, seed=2).at(0).adjacency).nnz > 0


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


def test_push_and_pull_weights_are_what_the_directions_promise():
    out, into = (
        topologies.random_out(40, 6, seed=0).at(2),
        topologies.random_in(40, 6, seed=0).at(2),
    )
    push, pull = mixing.uniform(out, direction="push"), mixing.uniform(into)
    assert push.is_column_stochastic
    assert pull.is_row_stochastic
    assert np.allclose(push.weights.data, 1 / 7)
    assert np.allclose(pull.weights.data, 1 / 7)


@pytest.mark.parametrize(
    ("k", "known"), [(2, 0.324), (5, 0.159), (10, 0.081), (20, 0.038), (40, 0.014)]
)
def test_one_pull_shrinks_disagreement_as_known(k, known):
    """E|(I-J) W x|^2 / |(I-J) x|^2 over draws, and its closed form (1 - k / (n - 1)) / (k + 1)."""
    graphs, rng = topologies.random_in(100, k, seed=0), np.random.default_rng(0)
    ratios = []
    for t in range(200):
        x = rng.standard_normal(100)
        y = mixing.uniform(graphs.at(t)) @ x
        ratios.append(((y - y.mean()) ** 2).sum() / ((x - x.mean()) ** 2).sum())
    standard_error = np.std(ratios) / np.sqrt(len(ratios))
    closed = (1 - k / 99) / (k + 1)
    assert abs(np.mean(ratios) - closed) < 4 * standard_error
    assert known == pytest.approx(closed, rel=0.05)


def test_measured_contraction_of_pulls_is_near_the_square_root():
    measured = metrics.measured_contraction(
        topologies.random_in(100, 10, seed=0), rounds=100, seed=0
    )
    assert measured == pytest.approx(np.sqrt((1 - 10 / 99) / 11), rel=0.05)


def graph_key(graph):
    return tuple(graph.adjacency.toarray().argmax(axis=1)), tuple(graph.out_degrees)


@pytest.mark.parametrize(("n", "number"), [(1, 1), (2, 1), (4, 3), (5, 15), (6, 15)])
def test_all_matchings_are_equally_likely(n, number):
    """There are n! / (2^(n/2) (n/2)!) for even n; for odd n, any of the n nodes may be alone."""
    rounds = 200 * number
    graphs = topologies.random_matching(n, seed=0)
    counts = Counter(graph_key(graphs.at(t)) for t in range(rounds))
    assert len(counts) == number
    assert number == 1 or stats.chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize("n", [1, 2, 3, 50, 51])
def test_matchings_pair_all_but_the_odd_one(n):
    for t in (0, 1, 9):
        graph = topologies.random_matching(n, seed=4).at(t)
        assert not graph.is_directed
        assert sorted(graph.out_degrees) == [0] * (n % 2) + [1] * (n - n % 2)


@pytest.mark.parametrize(("n", "ratio"), [(10, 8 / 18), (60, 58 / 118), (11, 0.5)])
def test_a_matching_shrinks_disagreement_as_declared(n, ratio):
    graphs, rng = topologies.random_matching(n, seed=1), np.random.default_rng(1)
    x = rng.standard_normal(n)
    ratios = [(mixing.metropolis_hastings(graphs.at(t)) @ x).var() / x.var() for t in range(800)]
    assert abs(np.mean(ratios) - ratio) < 4 * np.std(ratios) / np.sqrt(len(ratios))


def test_pairs_of_erdos_renyi_rounds_are_joined_independently():
    n, p, rounds = 8, 0.3, 1000
    graphs = topologies.erdos_renyi_sequence(n, p, seed=0)
    edges = np.array(
        [graphs.at(t).adjacency.toarray()[np.triu_indices(n, 1)] for t in range(rounds)]
    )
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
    "generator",
    [topologies.random_matching, functools.partial(topologies.erdos_renyi_sequence, p=0.3)],
)
def test_undirected_rounds_are_pure_in_seed_and_t_and_differ(generator):
    graphs, again = generator(20, seed=1), generator(20, seed=1)
    later = again.at(5)  # asked for first
    assert (graphs.at(5).adjacency != later.adjacency).nnz == 0
    assert (graphs.at(0).adjacency != graphs.at(1).adjacency).nnz > 0
    assert (graphs.at(0).adjacency != generator(20, seed=2).at(0).adjacency).nnz > 0


@pytest.mark.parametrize(
    ("generator", "arguments", "error", "name"),
    [
        (topologies.random_matching, {"n": 0}, ValueError, "n"),
        (topologies.random_matching, {"n": 4, "seed": -1}, ValueError, "seed"),
        (topologies.random_matching, {"n": 4, "seed": 0.5}, TypeError, "seed"),
        (topologies.erdos_renyi_sequence, {"n": 0, "p": 0.5}, ValueError, "n"),
        (topologies.erdos_renyi_sequence, {"n": 4, "p": 1.5}, ValueError, "p"),
        (topologies.erdos_renyi_sequence, {"n": 4, "p": "half"}, TypeError, "p"),
        (topologies.erdos_renyi_sequence, {"n": 4, "p": 0.5, "seed": -1}, ValueError, "seed"),
    ],
)
def test_bad_arguments_of_undirected_rounds_are_named(generator, arguments, error, name):
    with pytest.raises(error, match=f"`{name}`"):
        generator(**{"seed": 0} | arguments)


@pytest.mark.parametrize("generator", [topologies.random_out, topologies.random_in])
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"n": 1, "k": 1}, "n"),
        ({"n": 5, "k": 0}, "k"),
        ({"n": 5, "k": 5}, "k"),
        ({"n": 5, "k": 2, "seed": -1}, "seed"),
    ],
)
def test_bad_arguments_of_sequences_are_named(generator, arguments, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        generator(**{"seed": 0} | arguments)


def test_random_regular_rounds_are_regular_connected_and_differ():
    graphs, again = (topologies.random_regular_sequence(20, 5, seed=3) for _ in range(2))
    later = again.at(4)
    for t in range(5):
        graph = graphs.at(t)
        assert not graph.is_directed
        assert graph.is_connected
        assert set(graph.out_degrees) == {5}
    assert (graphs.at(4).adjacency != later.adjacency).nnz == 0
    assert (graphs.at(0).adjacency != graphs.at(1).adjacency).nnz > 0
    assert (
        graphs.at(0).adjacency != topologies.random_regular_sequence(20, 5, seed=4).at(0).adjacency
    ).nnz > 0
    weights = mixing.metropolis_hastings(graphs.at(2)).weights.toarray()
    np.testing.assert_allclose(weights.sum(axis=0), 1)
    np.testing.assert_allclose(weights[weights > 0], 1 / 6)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n": 5, "k": 3}, TopologyError, "must be even"),
        ({"n": 4, "k": 1}, TopologyError, "at least 2 to connect"),
        ({"n": 4, "k": 4}, ValueError, "`k`"),
        ({"n": 6, "k": 2, "seed": np.random.default_rng(0)}, TypeError, "`seed`"),
    ],
)
def test_bad_random_regular_rounds_are_refused_at_once(arguments, error, message):
    with pytest.raises(error, match=message):
        topologies.random_regular_sequence(**{"seed": 0} | arguments)
