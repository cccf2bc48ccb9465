"""What is particular to textbook graphs, exponential graphs, and social networks.

Their degrees, edges, gaps and twins in networkx are declared in ``tests/rows/topologies.py``.
"""

from math import floor, log2

import networkx as nx
import numpy as np
import pytest

from tests.rows.topologies import DIGRAPHS, all_words, words_digraph
from topofl import as_topology, mixing, topologies


def test_node_numbers_run_along_rows():
    assert topologies.grid(12, rows=3).in_neighbors(5).tolist() == [1, 4, 6, 9]
    assert topologies.torus(12, rows=3).in_neighbors(0).tolist() == [1, 3, 4, 8]


@pytest.mark.parametrize(
    ("n", "rows"), [(12, 3), (100, 10), (36, 6), (30, 5), (2, 1), (3, 1), (1, 1), (14, 2)]
)
@pytest.mark.parametrize("generator", [topologies.grid, topologies.torus])
def test_default_sides_are_the_closest_factors(generator, n, rows):
    default, explicit = generator(n), generator(n, rows=rows)
    assert (default.adjacency != explicit.adjacency).nnz == 0
    assert default.name == f"{generator.__name__}(n={n})"
    assert explicit.name == f"{generator.__name__}(n={n}, rows={rows})"


def test_circulant_is_connected_if_offsets_share_no_divisor_with_n():
    assert topologies.circulant(12, [4, 3]).is_connected
    assert not topologies.circulant(12, [4, 2]).is_connected


def test_a_path_has_the_lowest_algebraic_connectivity_but_not_the_lowest_gap():
    """Over all 853 connected graphs of 7 nodes; and the graph of 10 nodes of the docstring."""
    path = topologies.path(7)
    atlas = [graph for graph in nx.graph_atlas_g() if len(graph) == 7 and nx.is_connected(graph)]
    connected = [as_topology(graph) for graph in atlas]
    assert len(connected) == 853
    least = min(graph.algebraic_connectivity for graph in connected)
    assert least == pytest.approx(path.algebraic_connectivity)
    assert max(graph.diameter for graph in connected) == path.diameter == 6
    graphs = as_topology(nx.barbell_graph(3, 4)), topologies.path(10)
    gaps = [round(mixing.metropolis_hastings(graph).spectral_gap, 4) for graph in graphs]
    assert gaps == [0.0324, 0.0326]


@pytest.mark.parametrize(("d", "k"), DIGRAPHS)
def test_de_bruijn_is_the_digraph_of_all_words(d, k):
    graph, n = topologies.de_bruijn(d**k, d), d**k
    wanted = words_digraph(all_words(d, k))  # words in order of the number that they spell
    number = {word: i for i, word in enumerate(wanted)}
    edges = {(number[u], number[v]) for u, v in wanted.edges}
    assert {(u, v) for u, v in graph.edge_index.T.tolist()} == edges
    constant = [node for node in range(n) if node * (d - 1) % (n - 1) == 0]
    assert len(constant) == d, "words of one letter, whose self-loops are dropped"
    wanted_degrees = np.where(np.isin(np.arange(n), constant), d - 1, d)
    assert graph.out_degrees.tolist() == graph.in_degrees.tolist() == wanted_degrees.tolist()
    W = mixing.own_weights(as_topology(graph.adjacency / d, own_weights=True)).weights.toarray()
    np.testing.assert_allclose(np.linalg.matrix_power(W, k), 1 / n, atol=1e-12)
    assert abs(np.linalg.matrix_power(W, k - 1) - 1 / n).max() > 0.01


@pytest.mark.parametrize(("d", "k"), [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2)])
def test_kautz_is_the_line_digraph_of_the_smaller_one(d, k):
    smaller, larger = (
        topologies.kautz(d**length + d ** (length - 1), d).to_networkx().to_directed()
        for length in (k, k + 1)
    )
    assert nx.is_isomorphic(nx.line_graph(smaller), larger)


@pytest.mark.parametrize("name", ["karate_club", "davis_southern_women", "florentine_families"])
def test_equal_to_networkx_but_for_weights(name):
    graph, wanted = getattr(topologies, name)(), getattr(nx, f"{name}_graph")()
    assert list(graph.to_networkx()) == list(wanted)
    assert nx.utils.edges_equal(list(graph.to_networkx().edges), list(wanted.edges))


def test_groups_of_social_networks():
    karate, women = topologies.karate_club(), topologies.davis_southern_women()
    clubs = nx.get_node_attributes(nx.karate_club_graph(), "club")
    assert [len(group) for group in karate.groups] == [17, 17]
    assert [{clubs[i] for i in group} for group in karate.groups] == [{"Mr. Hi"}, {"Officer"}]
    assert [len(group) for group in women.groups] == [18, 14]
    assert [women.nodes[i] for i in women.groups[1]] == [f"E{k}" for k in range(1, 15)]
    for group in women.groups:
        assert topologies.induced_subgraph(women, group).n_edges == 0
    assert topologies.florentine_families().groups == karate.nodes == ()
    assert topologies.complete_bipartite(5, 2).groups == ((0, 1), (2, 3, 4))


# Exponential graphs


@pytest.mark.parametrize("n", [4, 5, 8, 9, 16, 17, 33])
def test_directed_exponential_sends_forwards(n):
    graph = topologies.exponential(n, directed=True)
    offsets = [2**e for e in range(floor(log2(n - 1)) + 1)]
    for i in range(n):
        assert graph.out_neighbors(i).tolist() == sorted((i + d) % n for d in offsets)


def test_one_peer_exponential_contracts_where_n_is_no_power_of_two():
    """Dobrushin's coefficient of the product over one period at n = 100."""
    product, pushes = np.eye(100), topologies.one_peer_exponential(100)
    for t in range(7):
        product = mixing.uniform(pushes.at(t), direction="push") @ product
    distances = np.abs(product.T[:, None, :] - product.T[None, :, :]).sum(axis=2)
    assert distances.max() / 2 == pytest.approx(0.219, abs=5e-4)


@pytest.mark.parametrize("n", [*range(2, 35), 100])
def test_undirected_one_peer_exponential_pairs_numbers_that_differ_in_one_bit(n):
    pairs = topologies.one_peer_exponential(n, directed=False)
    assert pairs.period == floor(log2(n - 1)) + 1
    union = sum(pairs.at(t).adjacency for t in range(pairs.period))
    for e in range(pairs.period):
        for i in range(n):
            assert pairs.at(e).out_neighbors(i).tolist() == [i ^ 2**e] * (i ^ 2**e < n)
    if n & (n - 1) == 0:
        assert (union != topologies.hypercube(n).adjacency).nnz == 0


@pytest.mark.parametrize("n", [2, 3, 6, 9, 10, 26, 27, 28, 50, 100])
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_peers_of_p_peer_exponential(n, p):
    """Distances are j (p + 1)^e, one round for each power of p + 1 below n; equal ones merge."""
    p = min(p, n - 1)
    pushes = topologies.p_peer_exponential(n, p)
    powers = [(p + 1) ** e for e in range(n) if (p + 1) ** e <= n - 1]
    assert pushes.period == len(powers)
    for t, power in enumerate(powers * 2):
        for i in range(n):
            wanted = {(i + j * power) % n for j in range(1, p + 1)} - {i}
            assert pushes.at(t).out_neighbors(i).tolist() == sorted(wanted)
    one_peer = topologies.one_peer_exponential(n)
    for t in range(pushes.period if p == 1 else 0):
        assert np.array_equal(pushes.at(t).edge_index, one_peer.at(t).edge_index)
        assert one_peer.at(t + one_peer.period) is one_peer.at(t)
    assert p > 1 or pushes.period == one_peer.period
