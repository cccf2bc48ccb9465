"""Textbook graphs with closed-form properties, and social networks."""

import dataclasses
import itertools

import networkx as nx
import numpy as np
import pytest

from topofl import metrics, mixing, topologies
from topofl.topology import TopologyError, as_topology


@pytest.mark.parametrize(
    ("graph", "wanted"),
    [
        (topologies.path(7), nx.path_graph(7)),
        (topologies.complete_bipartite(7, 3), nx.complete_bipartite_graph(3, 4)),
        (topologies.complete_bipartite(2), nx.path_graph(2)),
        (topologies.hypercube(16), nx.hypercube_graph(4)),
        (topologies.hypercube(1), nx.path_graph(1)),
        (topologies.tree(15), nx.balanced_tree(2, 3)),
        (topologies.tree(13, 3), nx.balanced_tree(3, 2)),
        (topologies.tree(9, 4), nx.full_rary_tree(4, 9)),
        (topologies.tree(6, 1), nx.path_graph(6)),
        (topologies.circulant(12, [1, 5]), nx.circulant_graph(12, [1, 5])),
        (topologies.circulant(9, [1]), topologies.ring(9).to_networkx()),
        (topologies.circulant(8, [1, 2, 4]), topologies.exponential(8).to_networkx()),
        (
            topologies.circulant(7, [1, 2, 4], directed=True),
            topologies.exponential(7, directed=True).to_networkx(),
        ),
    ],
)
def test_isomorphic_to_networkx(graph, wanted):
    assert nx.is_isomorphic(graph.to_networkx(), wanted)


@pytest.mark.parametrize("n", [3, 4, 11, 40])
def test_gap_of_the_path(n):
    gap = mixing.metropolis_hastings(topologies.path(n)).spectral_gap
    assert gap == pytest.approx((2 - 2 * np.cos(np.pi / n)) / 3, abs=1e-12)


@pytest.mark.parametrize("n", [2, 8, 64])
def test_spectrum_of_the_hypercube(n):
    """Eigenvalues 1 - 2 k / (d + 1), each binom(d, k) times, for d = log2 n."""
    d = int(np.log2(n))
    values = np.array([1 - 2 * bin(node).count("1") / (d + 1) for node in range(n)])
    W = mixing.metropolis_hastings(topologies.hypercube(n))
    np.testing.assert_allclose(W.eigenvalues, np.sort(values)[::-1], atol=1e-12)
    assert topologies.hypercube(n).diameter == d


@pytest.mark.parametrize(("n", "left"), [(7, 3), (9, 1), (6, 3)])
def test_laplacian_spectrum_of_complete_bipartite(n, left):
    graph = topologies.complete_bipartite(n, left)
    spectrum = np.linalg.eigvalsh(nx.laplacian_matrix(graph.to_networkx()).toarray())
    wanted = [0, *[left] * (n - left - 1), *[n - left] * (left - 1), n]
    np.testing.assert_allclose(spectrum, np.sort(wanted), atol=1e-9)
    assert graph.groups == (tuple(range(left)), tuple(range(left, n)))


@pytest.mark.parametrize("offsets", [[1], [1, 5], [2, 3, 4]])
@pytest.mark.parametrize("directed", [False, True])
def test_eigenvalues_of_circulants(offsets, directed):
    n = 13
    graph = topologies.circulant(n, offsets, directed=directed)
    j = np.arange(n)
    signed = [o for offset in offsets for o in ([offset] if directed else [offset, -offset])]
    wanted = sum(np.exp(2j * np.pi * j * o / n) for o in signed)
    got = np.linalg.eigvals(graph.adjacency.toarray())
    for value in wanted:
        assert np.abs(got - value).min() < 1e-9


def test_circulant_is_connected_if_offsets_share_no_divisor_with_n():
    assert topologies.circulant(12, [4, 3]).is_connected
    assert not topologies.circulant(12, [4, 2]).is_connected


def test_fewest_edges_that_connect():
    for branching in (1, 2, 3):
        assert topologies.tree(20, branching).n_edges == 19
        assert topologies.tree(20, branching).is_connected


def test_small_world_without_rewiring_is_the_lattice():
    lattice = topologies.small_world(15, k=4, p=0.0, seed=0)
    assert (lattice.adjacency != topologies.circulant(15, [1, 2]).adjacency).nnz == 0


def test_rewiring_shortens_paths_and_widens_the_gap():
    lattice, rewired = (topologies.small_world(200, k=6, p=p, seed=0) for p in (0.0, 0.3))
    assert rewired.n_edges == lattice.n_edges == 600
    assert rewired.mean_distance < 0.5 * lattice.mean_distance
    assert metrics.spectral_gap(rewired) > 5 * metrics.spectral_gap(lattice)


def test_edges_of_erdos_renyi_are_binomial():
    edges = [topologies.erdos_renyi(40, 0.3, seed=seed).n_edges for seed in range(60)]
    pairs = 40 * 39 / 2
    assert np.mean(edges) == pytest.approx(0.3 * pairs, abs=4 * np.sqrt(pairs * 0.3 * 0.7 / 60))
    assert topologies.erdos_renyi(6, 1.0, seed=0).n_edges == 15


@pytest.mark.parametrize(("n", "m"), [(30, 1), (30, 3), (5, 4)])
def test_edges_of_preferential_attachment(n, m):
    graph = topologies.barabasi_albert(n, m, seed=0)
    assert graph.n_edges == m * (n - m)
    assert graph.is_connected


BAD = {
    "path": ({"n": 0}, ValueError, "`n`"),
    "complete_bipartite": ({"n": 4, "left": 4}, ValueError, "`left` must be between 1 and"),
    "hypercube": ({"n": 12}, TopologyError, "power of two, got 12; the nearest are 8 and 16"),
    "tree": ({"n": 4, "branching": 0}, ValueError, "`branching`"),
    "circulant": ({"n": 4, "offsets": [1, 8]}, ValueError, "`offsets`"),
    "circulant of nothing": ({"n": 4, "offsets": []}, ValueError, "`offsets`"),
    "circulant of halves": ({"n": 4, "offsets": [0.5]}, TypeError, "`offsets`"),
    "erdos_renyi": (
        {"n": 50, "p": 0.001, "seed": 0},
        TopologyError,
        r"none of 100 draws .* take `p` above",
    ),
    "erdos_renyi of nothing": ({"n": 5, "p": 0.0, "seed": 0}, ValueError, "`p`"),
    "erdos_renyi above": ({"n": 5, "p": 1.5, "seed": 0}, ValueError, "`p`"),
    "small_world": ({"n": 10, "k": 3, "seed": 0}, ValueError, "`k` must be even"),
    "small_world of one": ({"n": 10, "p": "half", "seed": 0}, TypeError, "`p`"),
    "barabasi_albert": ({"n": 4, "m": 4, "seed": 0}, ValueError, "`m` must be between 1 and"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_named(case):
    arguments, error, message = BAD[case]
    with pytest.raises(error, match=message):
        getattr(topologies, case.split()[0])(**arguments)


def test_a_path_has_the_lowest_algebraic_connectivity_but_not_the_lowest_gap() -> None:
    """Over all 853 connected graphs of 7 nodes; and the graph of 10 nodes of the docstring."""
    path = topologies.path(7)
    connected = [
        as_topology(graph)
        for graph in nx.graph_atlas_g()
        if len(graph) == 7 and nx.is_connected(graph)
    ]
    assert len(connected) == 853
    assert min(graph.algebraic_connectivity for graph in connected) == pytest.approx(
        path.algebraic_connectivity
    )
    assert max(graph.diameter for graph in connected) == path.diameter == 6
    barbell = as_topology(nx.barbell_graph(3, 4))
    gaps = [
        mixing.metropolis_hastings(graph).spectral_gap for graph in (barbell, topologies.path(10))
    ]
    assert [round(gap, 4) for gap in gaps] == [0.0324, 0.0326]


def words_digraph(words):
    """Return the digraph of words in which an edge drops the first letter and appends one."""
    shifts = [(u, v) for u in words for v in words if u[1:] == v[:-1] and u != v]
    graph = nx.DiGraph()
    graph.add_nodes_from(words)
    graph.add_edges_from(shifts)
    return graph


def all_words(letters, length):
    return list(itertools.product(range(letters), repeat=length))


DIGRAPHS = [(2, 1), (2, 2), (2, 3), (2, 5), (3, 1), (3, 2), (3, 3), (4, 2), (5, 2)]
"""Degrees, and lengths of words, which are diameters."""


@pytest.mark.parametrize(("d", "k"), DIGRAPHS)
def test_de_bruijn_is_the_digraph_of_all_words(d, k):
    graph = topologies.de_bruijn(d**k, d)
    wanted = words_digraph(all_words(d, k))  # words in order of the number that they spell
    assert sorted(graph.edge_index.T.tolist()) == sorted(
        [list(wanted).index(u), list(wanted).index(v)] for u, v in wanted.edges
    )
    assert graph.n == d**k
    assert graph.is_connected
    assert graph.diameter == k
    constant = [node for node in range(d**k) if node * (d - 1) % (d**k - 1) == 0]
    assert len(constant) == d, "words of one letter, whose self-loops are dropped"
    wanted_degrees = np.where(np.isin(np.arange(d**k), constant), d - 1, d)
    assert graph.out_degrees.tolist() == wanted_degrees.tolist()
    assert graph.in_degrees.tolist() == wanted_degrees.tolist()


@pytest.mark.parametrize(("d", "k"), DIGRAPHS)
def test_de_bruijn_averages_exactly_in_k_exchanges(d, k):
    graph = topologies.de_bruijn(d**k, d)
    shares = dataclasses.replace(graph, adjacency=graph.adjacency / d, own_weights=True)
    W = mixing.own_weights(shares).weights.toarray()
    np.testing.assert_allclose(np.linalg.matrix_power(W, k), 1 / d**k, atol=1e-12)
    assert abs(np.linalg.matrix_power(W, k - 1) - 1 / d**k).max() > 0.01


@pytest.mark.parametrize(("d", "k"), DIGRAPHS)
def test_kautz_is_the_digraph_of_words_without_repetition(d, k):
    n = d**k + d ** (k - 1)
    graph = topologies.kautz(n, d)
    words = [
        word for word in all_words(d + 1, k) if all(a != b for a, b in itertools.pairwise(word))
    ]
    assert graph.n == len(words) == n
    assert nx.is_isomorphic(graph.to_networkx().to_directed(), words_digraph(words))
    assert (graph.out_degrees == d).all()
    assert (graph.in_degrees == d).all()
    assert graph.is_connected
    assert graph.diameter == k
    W = mixing.uniform(graph)
    assert W.is_doubly_stochastic
    assert W.spectral_gap == pytest.approx(1 if k == 1 else d / (d + 1), abs=1e-9)


@pytest.mark.parametrize(("d", "k"), [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2)])
def test_kautz_is_the_line_digraph_of_the_smaller_one(d, k):
    smaller, larger = (
        topologies.kautz(d**length + d ** (length - 1), d).to_networkx().to_directed()
        for length in (k, k + 1)
    )
    assert nx.is_isomorphic(nx.line_graph(smaller), larger)


def test_one_node_is_a_de_bruijn_digraph_without_edges():
    assert topologies.de_bruijn(1).n_edges == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: topologies.de_bruijn(12), r"`n` must be degree\^k .* the nearest are 8 and 16"),
        (lambda: topologies.de_bruijn(12, 3), r"got 12; the nearest are 9 and 27"),
        (lambda: topologies.kautz(8), r"degree\^\(k - 1\) .* the nearest are 6 and 12"),
        (lambda: topologies.kautz(3, 3), r"`degree`=3, got 3; the smallest is 4"),
        (lambda: topologies.kautz(2**62), "`n` must be"),
        (lambda: topologies.kautz(6, 1), "`degree` must be"),
        (lambda: topologies.de_bruijn(8, 1), "`degree` must be"),
        (lambda: topologies.de_bruijn(0), "`n` must be"),
    ],
)
def test_sizes_that_no_digraph_has(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("graph", "wanted"),
    [
        (topologies.karate_club(), nx.karate_club_graph()),
        (topologies.davis_southern_women(), nx.davis_southern_women_graph()),
        (topologies.florentine_families(), nx.florentine_families_graph()),
    ],
)
def test_equal_to_networkx_but_for_weights(graph, wanted):
    ours = graph.to_networkx()
    assert list(ours.nodes) == list(wanted.nodes)
    assert nx.utils.edges_equal(list(ours.edges), list(wanted.edges))
    assert (graph.adjacency.data == 1).all()
    assert graph.is_connected


def test_karate_club():
    graph = topologies.karate_club()
    clubs = nx.get_node_attributes(nx.karate_club_graph(), "club")
    assert graph.nodes == ()
    assert [len(group) for group in graph.groups] == [17, 17]
    assert {clubs[i] for i in graph.groups[0]} == {"Mr. Hi"}
    assert {clubs[i] for i in graph.groups[1]} == {"Officer"}
    # The Fiedler vector tells the clubs apart, up to a few members on the fence.
    _, vectors = np.linalg.eigh(nx.laplacian_matrix(graph.to_networkx()).toarray().astype(float))
    second = vectors[:, 1] * np.sign(vectors[33, 1])
    assert sum(second[list(graph.groups[1])] > 0) + sum(second[list(graph.groups[0])] < 0) >= 30


def test_davis_southern_women_is_bipartite():
    graph = topologies.davis_southern_women()
    women, meetings = graph.groups
    assert (len(women), len(meetings), graph.n_edges) == (18, 14, 89)
    assert [graph.nodes[i] for i in meetings] == [f"E{k}" for k in range(1, 15)]
    dense = graph.adjacency.toarray()
    assert not dense[np.ix_(women, women)].any()
    assert not dense[np.ix_(meetings, meetings)].any()


def test_florentine_families():
    graph = topologies.florentine_families()
    assert graph.groups == ()
    assert graph.n_edges == 20
    assert graph.out_degrees[graph.nodes.index("Medici")] == 6 == graph.out_degrees.max()
