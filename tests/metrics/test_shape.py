"""Size, clustering, distances and connectivity of graphs."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import topologies
from topofl.metrics import (
    clustering,
    edge_connectivity,
    node_connectivity,
    reciprocity,
    shape,
    sparsity,
)
from topofl.topology import Topology, TopologyError, as_topology, from_edges

METRICS = [clustering, edge_connectivity, node_connectivity]


@st.composite
def graphs(draw: st.DrawFn, directed: bool | None = None, largest: int = 9) -> Topology:
    """Draw a graph, sparse or nearly complete."""
    n = draw(st.integers(1, largest))
    directed = draw(st.booleans()) if directed is None else directed
    pairs = list(itertools.permutations(range(n), 2))
    kept = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    inverted = draw(st.booleans())
    edges = [pair for pair, keep in zip(pairs, kept, strict=True) if keep != inverted]
    return from_edges(edges, n, directed=directed)


def is_parted(graph: nx.DiGraph) -> bool:
    return len(graph) < 2 or not nx.is_strongly_connected(graph)


def fewest_nodes(graph: Topology) -> int:
    """Return the smallest number of nodes whose removal disconnects a graph, by brute force."""
    whole = nx.DiGraph(graph.to_networkx())
    for size in range(graph.n):
        for removed in itertools.combinations(range(graph.n), size):
            if is_parted(whole.subgraph(set(range(graph.n)) - set(removed))):
                return size
    raise AssertionError("a single node is always left")


def fewest_edges(graph: Topology) -> int:
    """Return the smallest number of edges that leave a set of nodes, by brute force."""
    whole = nx.DiGraph(graph.to_networkx())
    sets = (
        set(s) for size in range(1, graph.n) for s in itertools.combinations(range(graph.n), size)
    )
    return min((sum(u in s and v not in s for u, v in whole.edges) for s in sets), default=0)


# Closed forms


@pytest.mark.parametrize(
    ("graph", "edge", "node"),
    [
        (topologies.ring(9), 2, 2),
        (topologies.ring(2), 1, 1),
        (topologies.star(7), 1, 1),
        (topologies.fully_connected(7), 6, 6),
        (topologies.hypercube(16), 4, 4),
        (topologies.hypercube(64), 6, 6),
        (topologies.torus(36), 4, 4),
        (topologies.grid(30), 2, 2),
        (as_topology(nx.petersen_graph()), 3, 3),
        (as_topology(nx.balanced_tree(2, 4)), 1, 1),
        (as_topology(nx.barbell_graph(5, 0)), 1, 1),
        (as_topology(nx.complete_bipartite_graph(3, 8)), 3, 3),
        (as_topology(nx.windmill_graph(3, 4)), 3, 1),
        (topologies.exponential(20, directed=True), 5, 5),
        (topologies.circulant(7, [1], directed=True), 1, 1),
    ],
    ids=lambda value: value.name if isinstance(value, Topology) else str(value),
)
def test_connectivities_have_their_closed_forms(graph, edge, node):
    assert edge_connectivity(graph) == edge
    assert node_connectivity(graph) == node
    assert type(edge_connectivity(graph)) is type(node_connectivity(graph)) is int


def test_clustering_has_its_closed_forms():
    # Watts and Strogatz's lattice of degree k: 3 (k - 2) / (4 (k - 1)).
    assert clustering(topologies.circulant(40, [1, 2, 3])) == pytest.approx(
        3 * (6 - 2) / (4 * (6 - 1)), abs=1e-15
    )
    assert clustering(topologies.fully_connected(6)) == 1.0
    assert clustering(topologies.ring(3)) == 1.0
    assert clustering(topologies.hypercube(32)) == 0.0
    # All orientations of one triangle: of 8 directed triangles through a node, 1 is there in a
    # directed cycle.
    assert clustering(from_edges([(0, 1), (1, 2), (2, 0)], 3, directed=True)) == pytest.approx(
        1 / 2
    )


def test_single_nodes_and_disconnected_graphs():
    for n in (1, 2, 5):
        apart = from_edges([], n)
        assert [metric(apart) for metric in METRICS] == [0, 0, 0]
    halves = from_edges([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)], 7)
    assert [metric(halves) for metric in METRICS] == [pytest.approx(6 / 7), 0, 0]
    one_way = from_edges([(0, 1), (1, 2), (0, 2)], 3, directed=True)  # weakly connected only
    assert [edge_connectivity(one_way), node_connectivity(one_way)] == [0, 0]


# Against networkx and brute force


@given(graphs())
def test_clustering_agrees_with_networkx(graph):
    assert clustering(graph) == pytest.approx(nx.average_clustering(graph.to_networkx()), abs=1e-14)


@pytest.mark.parametrize("directed", [False, True])
def test_sparse_clustering_agrees_with_the_dense_one(monkeypatch, directed):
    graphs = [nx.gnp_random_graph(60, p, seed=1, directed=directed) for p in (0.06, 0.3, 1.0)]
    graphs.append(nx.barabasi_albert_graph(60, 4, seed=1))
    dense = [clustering(graph) for graph in graphs]
    monkeypatch.setattr(shape, "DENSE_LIMIT", 0)
    assert [clustering(graph) for graph in graphs] == pytest.approx(dense, abs=1e-14)
    assert dense == pytest.approx([nx.average_clustering(graph) for graph in graphs], abs=1e-14)


@given(graphs(largest=6))
def test_connectivities_agree_with_brute_force(graph):
    assert node_connectivity(graph) == fewest_nodes(graph)
    assert edge_connectivity(graph) == fewest_edges(graph)


@given(graphs(directed=False))
def test_connectivities_agree_with_networkx(graph):
    if graph.n > 1:
        assert edge_connectivity(graph) == nx.edge_connectivity(graph.to_networkx())
        assert node_connectivity(graph) == nx.node_connectivity(graph.to_networkx())


@pytest.mark.parametrize("seed", range(4))
def test_connectivities_of_larger_graphs_agree_with_networkx(seed):
    graph = nx.gnp_random_graph(40, 0.2, seed=seed)
    clusters = nx.disjoint_union(nx.complete_graph(12), nx.complete_graph(12))
    clusters.add_edges_from((i, 12 + (i * (seed + 1)) % 5) for i in range(6))
    for example in (graph, clusters):
        assert edge_connectivity(example) == nx.edge_connectivity(example)
        assert node_connectivity(example) == nx.node_connectivity(example)
    directed = nx.gnp_random_graph(30, 0.2, seed=seed, directed=True)
    assert edge_connectivity(directed) == nx.edge_connectivity(directed)


# Cuts smaller than the smallest degree, wherever they are and whichever way they point


def relabelled(graph: Topology, seed: int) -> Topology:
    order = np.random.default_rng(seed).permutation(graph.n)
    return Topology(graph.to_scipy()[order][:, order])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_one_way_bottlenecks(k, reverse, seed):
    # Seven nodes and six, complete; all edges from the second part to the first, only k back.
    first, second = range(7), range(7, 13)
    edges = [*itertools.permutations(first, 2), *itertools.permutations(second, 2)]
    edges += [*itertools.product(second, first), *((i, 7 + i) for i in range(k))]
    graph = from_edges([(v, u) if reverse else (u, v) for u, v in edges], 13, directed=True)
    graph = relabelled(graph, seed)
    assert min(graph.in_degrees.min(), graph.out_degrees.min()) >= 5
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
    if (
        directed
    ):  # straight edges from the second to the first part take the cut away in one direction only
        edges += itertools.product(*reversed(parts))
    graph = relabelled(from_edges(edges, 16 + k, directed=True), seed)
    assert node_connectivity(graph) == k
    assert edge_connectivity(graph) == min(2 * k, 4)


@given(st.data())
def test_connectivities_of_layers_agree_with_brute_force(data):
    # Edges mostly from one part to the next, so that cuts are one-way and small.
    n, seed = data.draw(st.integers(4, 7)), data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    layer = np.sort(rng.integers(0, 3, n))
    likely = np.where(layer[:, None] <= layer, 0.95, 0.35)
    matrix = (rng.random((n, n)) < likely).astype(float)
    np.fill_diagonal(matrix, 0)
    graph = relabelled(Topology(matrix), seed)
    assert node_connectivity(graph) == fewest_nodes(graph)
    assert edge_connectivity(graph) == fewest_edges(graph)


# Theorems


@given(graphs(directed=False))
def test_fiedlers_and_whitneys_inequalities(graph):
    node, edge = node_connectivity(graph), edge_connectivity(graph)
    assert node <= edge <= graph.out_degrees.min()
    if graph.n_edges < graph.n * (graph.n - 1) / 2:
        assert graph.algebraic_connectivity <= node + 1e-9


@given(graphs())
def test_edge_weights_and_the_order_of_nodes_do_not_matter(graph):
    order = np.random.default_rng(0).permutation(graph.n)
    matrix = graph.to_scipy()[order][:, order]
    matrix.data = np.linspace(
        0.5, 3, matrix.nnz
    )  # other weights in each direction make it formally directed
    for metric in METRICS:
        assert metric(Topology(matrix)) == pytest.approx(metric(graph), abs=1e-14)


def test_an_undirected_graph_is_a_digraph_with_both_directions():
    graph = topologies.random_regular(12, 3, seed=0)
    matrix = graph.to_scipy()
    matrix.data[0] = 2  # no equal edge back
    assert Topology(matrix).is_directed
    for metric in METRICS:
        assert metric(Topology(matrix)) == pytest.approx(metric(graph), abs=1e-15)


# Size, and bad input


def test_clustering_of_large_graphs_with_hubs_needs_no_dense_matrix():
    n = 50_000
    wheel = [(0, i) for i in range(1, n)] + [(i, i % (n - 1) + 1) for i in range(1, n)]
    hub = 2 * (n - 1) / ((n - 1) * (n - 2))  # n - 1 triangles; the others have 2 among 3 pairs
    assert clustering(from_edges(wheel, n)) == pytest.approx((hub + (n - 1) * 2 / 3) / n, rel=1e-12)
    assert clustering(topologies.star(n)) == 0.0


def test_trees_of_any_size_have_connectivity_one_and_other_large_graphs_are_refused():
    assert (
        edge_connectivity(topologies.star(50_000))
        == node_connectivity(topologies.star(50_000))
        == 1
    )
    assert edge_connectivity(topologies.fully_connected(600)) == 599
    for metric, kind in ((edge_connectivity, "edge"), (node_connectivity, "node")):
        with pytest.raises(
            TopologyError, match=f"{kind} connectivity of ring.* maximum flows .*smallest degree"
        ):
            metric(topologies.ring(50_000))


@pytest.mark.parametrize("metric", METRICS)
def test_needs_one_graph(metric):
    assert metric([(0, 1), (1, 2), (2, 0)]) == metric(nx.cycle_graph(3))
    with pytest.raises(TypeError, match=r"`graph` must be one graph.*graph\.at"):
        metric(topologies.one_peer_exponential(4))
    with pytest.raises(TypeError, match="`graph`"):
        metric(None)


@st.composite
def digraphs(draw: st.DrawFn) -> Topology:
    n, density = draw(st.integers(1, 9)), draw(st.sampled_from([0.0, 0.2, 0.6, 1.0]))
    chosen = np.random.default_rng(draw(st.integers(0, 2**32))).random((n, n)) < density
    return from_edges(np.argwhere(chosen & ~np.eye(n, dtype=bool)), n, directed=True)


@given(graph=digraphs())
def test_reciprocity_agrees_with_networkx_and_dense_matrices(graph: Topology) -> None:
    present = graph.adjacency.toarray() != 0
    if present.any():
        digraph = nx.DiGraph(present.astype(int))
        assert reciprocity(graph) == pytest.approx(nx.overall_reciprocity(digraph), abs=1e-15)
    else:
        assert reciprocity(graph) == 1.0
    upper = np.triu_indices(graph.n, 1)
    agree = (present == present.T)[upper]
    assert reciprocity(graph, over="pairs") == pytest.approx(
        agree.mean() if agree.size else 1.0, abs=1e-15
    )
    if graph.n > 1:
        most = int(graph.in_degrees.max())
        assert reciprocity(graph, over="pairs") >= 1 - 2 * most / (graph.n - 1) - 1e-15


@given(graph=digraphs())
def test_sparsity_is_one_minus_density(graph: Topology) -> None:
    present = graph.adjacency.toarray() != 0
    digraph = nx.DiGraph(present.astype(int))
    assert sparsity(graph) == pytest.approx(1 - nx.density(digraph), abs=1e-15)
    assert sparsity(graph, count_self=True) == pytest.approx(
        1 - (present | np.eye(graph.n, dtype=bool)).mean(), abs=1e-15
    )
    budget = int(graph.in_degrees.max()) + 1
    assert sparsity(graph, count_self=True) >= 1 - budget / graph.n - 1e-15


def test_known_graphs() -> None:
    assert sparsity(topologies.fully_connected(7)) == 0
    assert sparsity(topologies.fully_connected(7), count_self=True) == 0
    assert sparsity(topologies.ring(100), count_self=True) == pytest.approx(0.97)
    assert sparsity(from_edges([], 1)) == 1
    assert sparsity(from_edges([], 4)) == 1
    assert sparsity(from_edges([], 4), count_self=True) == 0.75
    for graph in (topologies.torus(12), topologies.star(5), from_edges([], 3)):
        assert reciprocity(graph) == reciprocity(graph, over="pairs") == 1
    assert reciprocity(topologies.exponential(8, directed=True)) == pytest.approx(
        1 / 3
    )  # offset 4 is its own way back


def test_edge_weights_are_ignored() -> None:
    graph = as_topology(np.array([[0, 0.5, 0.1], [2.0, 0, 0], [0, 0, 0]]))
    assert reciprocity(graph) == pytest.approx(2 / 3)
    assert sparsity(graph) == pytest.approx(1 / 2)


def test_large_graphs_stay_sparse() -> None:
    graph = topologies.random_out(100_000, 3, seed=0).at(0)
    assert sparsity(graph) == pytest.approx(1 - 3 / 99_999)
    assert reciprocity(graph) < 0.001


def test_inputs_are_checked() -> None:
    for metric in (sparsity, reciprocity):
        with pytest.raises(
            TypeError, match=r"`topology` must be a Topology, got TopologySequence; .*\.at\(t\)"
        ):
            metric(topologies.random_out(4, 2, seed=0))
    with pytest.raises(
        ValueError, match="`over` must be one of 'edges', 'pairs', got 'pair'; did you mean 'pairs'"
    ):
        reciprocity(topologies.ring(4), over="pair")
