"""Distances, connectivity and resistance of graphs, and walks on them."""

import itertools
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows.metrics import (
    conductances,
    fewest_edges,
    fewest_nodes,
    graphs,
    relabelled,
    undirected,
)
from topofl import metrics, mixing, topologies
from topofl._support.table import NotApplicable
from topofl.metrics import (
    clustering,
    edge_connectivity,
    effective_resistance,
    kemeny_constant,
    kirchhoff_index,
    node_connectivity,
)
from topofl.topology import Topology, as_topology, from_edges

# Connectivity


@pytest.mark.parametrize(
    ("graph", "edge", "node"),
    [
        (topologies.ring(9), 2, 2),
        (topologies.star(7), 1, 1),
        (topologies.torus(36), 4, 4),
        (nx.windmill_graph(3, 4), 3, 1),
        (topologies.exponential(20, directed=True), 5, 5),
        (from_edges([], 5), 0, 0),
        (from_edges([(0, 1), (1, 2), (0, 2)], 3, directed=True), 0, 0),  # weakly connected only
        (topologies.star(50_000), 1, 1),
    ],
    ids=str,
)
def test_connectivities_have_their_closed_forms(graph, edge, node):
    assert (edge_connectivity(graph), node_connectivity(graph)) == (edge, node)
    assert type(edge_connectivity(graph)) is type(node_connectivity(graph)) is int


def test_edge_connectivity_of_large_complete_graphs():
    assert edge_connectivity(topologies.fully_connected(600)) == 599


# Cuts smaller than the smallest degree, wherever they are and whichever way they point


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_one_way_bottlenecks(k, reverse, seed):
    # Seven nodes and six, complete; all edges from the second part to the first, only k back.
    first, second = range(7), range(7, 13)
    edges = [*itertools.permutations(first, 2), *itertools.permutations(second, 2)]
    edges += [*itertools.product(second, first), *((i, 7 + i) for i in range(k))]
    graph = from_edges([(v, u) if reverse else (u, v) for u, v in edges], 13, directed=True)
    assert min(graph.in_degrees.min(), graph.out_degrees.min()) >= 5
    graph = relabelled(graph, seed)
    assert edge_connectivity(graph) == node_connectivity(graph) == k


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("directed", [False, True])
def test_smallest_cuts_at_nodes_of_smallest_degree(k, directed, seed):
    # Two complete graphs of eight; k nodes between them, each joined to two of each. Cutting off
    # one takes 4 nodes.
    parts = range(8), range(8, 16)
    edges = [pair for part in parts for pair in itertools.permutations(part, 2)]
    links = [(16 + i, part[(2 * i + j) % 8]) for i in range(k) for part in parts for j in range(2)]
    edges += links + [(v, u) for u, v in links]
    if directed:  # edges from the second to the first part take the cut away in one direction only
        edges += itertools.product(*reversed(parts))
    graph = relabelled(from_edges(edges, 16 + k, directed=True), seed)
    assert node_connectivity(graph) == k
    assert edge_connectivity(graph) == min(2 * k, 4)


@given(st.integers(4, 7), st.integers(0, 10**6))
def test_connectivities_of_layers_agree_with_brute_force(n, seed):
    # Edges mostly from one part to the next, so that cuts are one-way and small.
    rng = np.random.default_rng(seed)
    layer = np.sort(rng.integers(0, 3, n))
    chosen = rng.random((n, n)) < np.where(layer[:, None] <= layer, 0.95, 0.35)
    graph = relabelled(from_edges(np.argwhere(chosen & ~np.eye(n, dtype=bool)), n, directed=True))
    assert node_connectivity(graph) == fewest_nodes(graph)
    assert edge_connectivity(graph) == fewest_edges(graph)


@given(undirected)
def test_fiedlers_and_whitneys_inequalities(graph):
    node, edge = node_connectivity(graph), edge_connectivity(graph)
    assert node <= edge <= graph.out_degrees.min()
    if graph.n_edges < graph.n * (graph.n - 1) / 2:
        assert graph.algebraic_connectivity <= node + 1e-9


@given(graphs())
def test_edge_weights_do_not_matter(graph):
    matrix = graph.to_scipy()
    matrix.data = np.linspace(0.5, 3, matrix.nnz)  # other weights each way: formally directed
    for metric in (clustering, edge_connectivity, node_connectivity):
        assert metric(Topology(matrix)) == pytest.approx(metric(graph), abs=1e-14)


def test_large_graphs_need_no_dense_matrix():
    n = 50_000
    wheel = [(0, i) for i in range(1, n)] + [(i, i % (n - 1) + 1) for i in range(1, n)]
    hub = 2 * (n - 1) / ((n - 1) * (n - 2))  # n - 1 triangles; the others have 2 among 3 pairs
    assert clustering(from_edges(wheel, n)) == pytest.approx((hub + (n - 1) * 2 / 3) / n, rel=1e-12)
    assert clustering(topologies.star(n)) == 0.0
    graph = topologies.random_out(100_000, 3, seed=0).at(0)
    assert metrics.sparsity(graph) == pytest.approx(1 - 3 / 99_999)
    assert metrics.reciprocity(graph) < 0.001
    assert clustering([(0, 1), (1, 2), (2, 0)]) == clustering(nx.cycle_graph(3)) == 1


@given(graphs(directed=True, least=2))
def test_few_edges_into_a_node_bound_reciprocity_and_sparsity(graph):
    most = int(graph.in_degrees.max())
    assert metrics.reciprocity(graph, over="pairs") >= 1 - 2 * most / (graph.n - 1) - 1e-15
    assert metrics.sparsity(graph, count_self=True) >= 1 - (most + 1) / graph.n - 1e-15


# Resistance


@pytest.mark.parametrize("n", [66, 130, 257])
def test_nodes_are_eliminated_block_by_block(n):
    graph = topologies.random_regular(n, 4, seed=0)
    inverse = np.linalg.pinv(np.diag(graph.out_degrees) - graph.to_scipy().toarray())
    expected = inverse[3, 3] + inverse[n - 2, n - 2] - 2 * inverse[3, n - 2]
    assert effective_resistance(graph, 3, n - 2) == pytest.approx(expected, rel=1e-11)


def test_weights_are_conductances_and_pieces_are_apart():
    assert effective_resistance([[0, 4], [4, 0]], 0, 1) == pytest.approx(0.25)
    series = as_topology([[0, 2, 0], [2, 0, 0.5], [0, 0.5, 0]])
    assert effective_resistance(series, 0, 2) == pytest.approx(0.5 + 2)
    apart = from_edges([(0, 1), (2, 3)], 5)
    assert effective_resistance(apart, 0, 4) == np.inf
    assert effective_resistance(apart, 3, 2) == pytest.approx(1)  # within a piece it is finite
    assert effective_resistance(apart, 4, 4) == 0


@given(conductances())
def test_fosters_theorem_and_the_sum_over_pairs(graph):
    nodes = range(graph.n)
    values = np.array([[effective_resistance(graph, u, v) for v in nodes] for u in nodes])
    assert (values * graph.to_scipy().toarray()).sum() / 2 == pytest.approx(graph.n - 1, rel=1e-9)
    assert kirchhoff_index(graph) == pytest.approx(values.sum() / 2, rel=1e-9)
    np.testing.assert_allclose(values, values.T, atol=1e-10)
    between = (values[:, None] + values).transpose(0, 2, 1)  # over each third node
    assert (values[:, :, None] <= between + 1e-10).all()


def exact_resistance(weights: list[list[Fraction]], u: int, v: int) -> Fraction:
    """Return the resistance by exact Gaussian elimination on the Laplacian without node v."""
    free = [i for i in range(len(weights)) if i != v]
    laplacian = np.diag(np.sum(weights, axis=1)) - np.array(weights)
    rows = [[*laplacian[i, free], Fraction(i == u)] for i in free]
    for k in range(len(rows)):
        pivot = next(i for i in range(k, len(rows)) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in set(range(len(rows))) - {k}:
            rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return rows[free.index(u)][-1]


@given(st.integers(2, 7), st.integers(0, 10**6), st.sampled_from([1, 6, 15, 30]))
def test_uneven_weights_are_exact_and_equal_in_both_directions(n, seed, decades):
    rng = np.random.default_rng(seed)
    weights = np.triu(10.0 ** -rng.uniform(0, decades, size=(n, n)), 1)
    weights *= (rng.random((n, n)) < 0.5) | np.eye(n, k=1, dtype=bool)  # connected by a path
    weights = weights + weights.T
    exact = [[Fraction(w) for w in row] for row in weights.tolist()]
    u, v = (int(node) for node in rng.choice(n, size=2, replace=False))
    there = effective_resistance(weights, u, v)
    assert there == effective_resistance(weights, v, u)
    assert there == pytest.approx(float(exact_resistance(exact, u, v)), rel=1e-13)


@pytest.mark.parametrize("w", [1e-20, 1e-200])
def test_of_a_pair_in_a_chain_of_uneven_weights_nothing_is_lost(w):
    graph = Topology(np.array([[0, 1, 0, 0], [1, 0, w, 0], [0, w, 0, 1], [0, 0, 1, 0.0]]))
    assert effective_resistance(graph, 0, 1) == 1
    assert effective_resistance(graph, 0, 3) == pytest.approx(2 + 1 / w, rel=1e-12)


# The Kemeny constant

CYCLE = topologies.circulant(7, [1], directed=True)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.2), (1.0, 1.0), (1e-9, 2e-9), (1e-9, 0.5)])
def test_kemeny_constant_of_two_nodes(a, b):
    W = mixing.from_weights([[1 - a, a], [b, 1 - b]])
    assert kemeny_constant(W) == pytest.approx(1 / (a + b), rel=1e-6)


@pytest.mark.parametrize("graph", [topologies.star(9), topologies.ring(6), topologies.grid(6)])
def test_weights_from_the_laplacian_give_the_kirchhoff_index(graph):
    laplacian = nx.laplacian_matrix(graph.to_networkx(), weight=None).toarray()
    scale = 2 * laplacian.max()
    W = mixing.from_weights(np.eye(graph.n) - laplacian / scale)
    assert kemeny_constant(W) == pytest.approx(scale * kirchhoff_index(graph) / graph.n)


def test_compare_shows_the_kemeny_constant_of_static_graphs():
    line = from_edges([(0, 1), (1, 2)], 3, directed=True, name="line")
    table = metrics.compare([topologies.ring(9), [CYCLE, CYCLE], line], about="averaging")
    ring, periodic, broken = table.column("Kemeny constant")
    assert ring == pytest.approx(20)
    assert periodic == NotApplicable("of one matrix: take a round of the sequence")
    assert broken.reason.startswith("the Kemeny constant needs a strongly connected graph, that of")
