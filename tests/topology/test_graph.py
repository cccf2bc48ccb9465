"""Topology and TopologySequence: edges, weights, distances, labels."""

import copy
import math
import pickle
import sys
import tracemalloc

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse

from analysis import gallery
from tests.topology.samples import EDGES, directed, equal, undirected_samples
from topofl import mixing, topologies
from topofl._linalg import sparse as module
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology, from_edges


def test_edges_go_from_source_to_target():
    graph = directed()
    assert graph.adjacency.toarray().tolist() == [
        [0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [1, 0, 0, 1, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
    ]
    assert graph.edge_index.tolist() == [[0, 1, 2, 2], [1, 2, 0, 3]]
    assert graph.out_degrees.tolist() == [1, 1, 2, 0, 0]
    assert graph.in_degrees.tolist() == [1, 1, 1, 1, 0]
    assert graph.in_neighbors(3).tolist() == [2]
    assert graph.out_neighbors(3).tolist() == []
    assert graph.out_neighbors(2).tolist() == [0, 3]
    assert graph.is_directed
    assert graph.n_edges == 4
    assert not graph.is_connected
    assert repr(graph) == "Topology('directed', n=5, edges=4, directed)"


def test_connectivity_is_strong():
    cycle, path = from_edges(EDGES[:3], 3, directed=True), from_edges(EDGES[:2], 3, directed=True)
    assert cycle.is_connected
    assert cycle.diameter == 2
    assert not path.is_connected
    assert path.distances.tolist() == [[0, 1, 2], [math.inf, 0, 1], [math.inf, math.inf, 0]]
    assert path.diameter == path.mean_distance == math.inf


@undirected_samples
def test_degrees_and_connectivity_equal_networkx(graph):
    other = graph.to_networkx()
    assert not graph.is_directed
    assert graph.n_edges == other.number_of_edges()
    degrees = [degree for _, degree in other.degree]
    assert graph.in_degrees.tolist() == graph.out_degrees.tolist() == degrees
    assert graph.is_connected == nx.is_connected(other)
    for node in range(graph.n):
        senders, receivers = graph.in_neighbors(node), graph.out_neighbors(node)
        assert senders.tolist() == receivers.tolist() == sorted(other[node])


@pytest.mark.parametrize("limit", [64, 2])
@pytest.mark.parametrize("block", [1, 3000, 2**26])
@pytest.mark.parametrize("seed", range(4))
def test_hops_are_counted_without_the_matrix_of_distances(seed, block, limit, monkeypatch):
    """By bits and by rows, in one block and in many; directed and undirected."""
    monkeypatch.setattr(module, "BLOCK_BYTES", block)
    monkeypatch.setattr(module, "SHALLOW", limit)
    n = (70, 131, 9, 1)[seed]
    edges = np.random.default_rng(seed).integers(n, size=(n, 2))
    cycle = np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1)
    edges = np.concatenate([edges, cycle])
    graph = from_edges(edges[edges[:, 0] != edges[:, 1]], n, directed=seed % 2 == 0)
    counts = np.bincount(graph.distances.astype(int).reshape(-1))
    assert module.hop_counts(graph.adjacency).tolist() == counts.tolist()
    assert graph.diameter == graph.distances.max()
    assert graph.mean_distance == (graph.distances.sum() / (n * (n - 1)) if n > 1 else 0)


def test_diameter_of_a_large_graph_takes_no_matrix(monkeypatch):
    monkeypatch.setattr(sys.modules[Topology.__module__], "MATRIX_BYTES", 10**6)
    n = 20_000
    hub = from_edges(np.stack([np.zeros(n - 1, dtype=int), np.arange(1, n)], axis=1), n)
    with pytest.raises(TopologyError, match="above the limit of 1,000,000"):
        _ = hub.distances
    tracemalloc.start()
    assert hub.diameter == 2
    assert hub.mean_distance == pytest.approx(2 - 2 / n)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n**2 / 10


@undirected_samples
def test_distances_equal_networkx(graph):
    other = graph.to_networkx()
    for source, lengths in nx.all_pairs_shortest_path_length(other):
        expected = [lengths.get(node, math.inf) for node in range(graph.n)]
        assert graph.distances[source].tolist() == expected
    if graph.is_connected:
        assert graph.diameter == nx.diameter(other)
        mean = nx.average_shortest_path_length(other) if graph.n > 1 else 0
        assert graph.mean_distance == pytest.approx(mean)
    else:
        assert graph.diameter == graph.mean_distance == math.inf


@undirected_samples
def test_algebraic_connectivity_equals_the_laplacian_spectrum(graph):
    spectrum = np.linalg.eigvalsh(nx.laplacian_matrix(graph.to_networkx()).toarray().astype(float))
    expected = spectrum[1] if graph.n > 1 else 0
    assert graph.algebraic_connectivity == pytest.approx(expected, abs=1e-9)
    assert (graph.algebraic_connectivity == 0) == (not graph.is_connected or graph.n == 1)


def test_algebraic_connectivity_counts_weights_and_needs_symmetry():
    heavy = as_topology(3.0 * topologies.ring(6).adjacency)
    assert isinstance(heavy, Topology)
    light = topologies.ring(6).algebraic_connectivity
    assert heavy.algebraic_connectivity == pytest.approx(3 * light)
    with pytest.raises(TopologyError, match="needs an undirected graph, directed is directed"):
        _ = directed().algebraic_connectivity


def test_a_static_graph_is_a_sequence_of_period_one():
    graph = topologies.ring(4)
    assert graph.period == 1
    assert graph.at(0) is graph.at(17) is graph


@pytest.mark.filterwarnings(
    "ignore::scipy.sparse.SparseEfficiencyWarning"
)  # of scipy, that new edges are slow
@pytest.mark.parametrize(
    "remake", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))]
)
def test_nothing_can_be_changed_in_place(remake):
    graph = topologies.random_cliques(6, 3, seed=0)
    for member in (graph, remake(graph)):
        for array in (
            member.adjacency.data,
            member.adjacency.indices,
            member.adjacency.indptr,
            member.edge_index,
        ):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 5
        for array in (member.in_degrees, member.out_degrees, member.distances):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 5
        with pytest.raises(AttributeError):
            member.name = "other"
        for u, v in (
            member.edge_index[:, 0],
            (member.groups[0][0], member.groups[1][0]),
        ):  # an edge, and a new one
            with pytest.raises(ValueError, match="read-only"):
                member.adjacency[u, v] = 2.0
        assert (member.adjacency != topologies.random_cliques(6, 3, seed=0).adjacency).nnz == 0
    assert equal(remake(graph), graph)
    assert remake(graph).groups == graph.groups
    assert remake(graph).name == graph.name


def test_the_callers_matrix_is_copied():
    matrix = topologies.ring(4).to_scipy()
    graph = Topology(matrix)
    matrix.data[:] = 7
    assert (graph.adjacency.data == 1).all()
    graph.to_scipy().data[:] = 9  # a writable copy
    assert (graph.adjacency.data == 1).all()


def test_stored_zeros_are_no_edges_and_repeated_entries_are_summed():
    matrix = sparse.coo_array(([1.0, 1.0, 0.0], ([0, 0, 1], [1, 1, 2])), shape=(3, 3))
    graph = Topology(matrix)
    assert graph.edge_index.tolist() == [[0], [1]]
    assert graph.adjacency[0, 1] == 2


def test_renamed_keeps_all_else():
    graph = topologies.random_cliques(6, 3, seed=0)
    other = graph.renamed("mine")
    assert other.name == "mine"
    assert other.groups == graph.groups
    assert equal(other, graph)


@pytest.mark.parametrize(
    "edges", [EDGES, np.array(EDGES), set(EDGES), (edge for edge in EDGES), [*EDGES, EDGES[0]]]
)
def test_from_edges_takes_any_pairs_and_counts_repeated_ones_once(edges):
    graph = from_edges(edges, 5, name="mine", groups=[[0, 1], [4]])
    assert {tuple(sorted(edge)) for edge in graph.edge_index.T.tolist()} == {
        tuple(sorted(edge)) for edge in EDGES
    }
    assert (graph.n, graph.n_edges) == (5, 4)
    assert (graph.adjacency.data == 1).all()
    assert not graph.is_directed
    assert graph.name == "mine"
    assert graph.groups == ((0, 1), (4,))


def test_from_edges_without_edges():
    for edges in ([], np.zeros((0, 2)), np.zeros((0, 2), int)):
        assert from_edges(edges, 3).n_edges == 0


SHARES = nx.DiGraph()


SHARES.add_weighted_edges_from([(1, 0, 0.1), (2, 0, 0.2), (0, 1, 0.5), (1, 2, 0.6)])


W_OF_SHARES = [[0.7, 0.1, 0.2], [0.5, 0.5, 0], [0, 0.6, 0.4]]  # row i: what node i takes from whom


def with_loops(share: float) -> nx.DiGraph:
    graph = SHARES.copy()
    graph.add_weighted_edges_from([(0, 0, share), (1, 1, 0.5)])
    return graph


@pytest.mark.parametrize(
    "graph",
    [
        SHARES,
        with_loops(0.7),
        nx.to_numpy_array(SHARES, nodelist=range(3)),
        nx.to_scipy_sparse_array(with_loops(0.7), nodelist=range(3), format="csc"),
        as_topology(SHARES),
        as_topology(SHARES).to_pyg(),
    ],
    ids=lambda graph: type(graph).__name__,
)
def test_weights_of_edges_are_the_mixing_weights_where_asked(graph):
    for own in (
        as_topology(graph, own_weights=True),
        as_topology([graph, graph], own_weights=True).at(1),
    ):
        assert own.own_weights
        found = mixing.metropolis_or_uniform(own).weights.toarray()
        np.testing.assert_allclose(found, W_OF_SHARES, atol=1e-15)
    later = as_topology(as_topology(lambda t: graph, drop_self_loops=True), own_weights=True)
    assert later.at(3).own_weights
    back = as_topology(as_topology(graph, own_weights=True).to_networkx(), own_weights=True)
    lossy = as_topology(with_loops(0.3), own_weights=True, drop_self_loops=True)
    for other in (back, lossy):
        found = mixing.metropolis_or_uniform(other).weights.toarray()
        np.testing.assert_allclose(found, W_OF_SHARES, atol=1e-15)


def test_weights_that_no_rule_uses_are_known_and_the_librarys_graphs_have_none():
    assert as_topology(SHARES).has_unused_weights
    assert not as_topology(SHARES, own_weights=True).has_unused_weights
    assert not as_topology(nx.path_graph(3)).has_unused_weights
    assert not Topology(3 * topologies.ring(4).adjacency).has_unused_weights
    assert not from_edges([], 2).has_unused_weights
    for spec in gallery.EXAMPLES.values():
        graphs = gallery.example(spec)
        assert not any(graphs.at(t).has_unused_weights for t in range(min(graphs.period or 3, 3)))


def test_symmetric_up_to_rounding_is_undirected():
    karate = nx.to_numpy_array(nx.karate_club_graph(), weight=None)
    degrees = karate.sum(axis=0)
    normalized = karate / np.sqrt(degrees)[:, None] / np.sqrt(degrees)
    assert (normalized != normalized.T).any()
    for scale in (1.0, 1e-6, 1e9):
        graph = as_topology(scale * normalized)
        assert not graph.is_directed
        assert graph.n_edges == 78
        assert mixing.metropolis_or_uniform(graph).name == "metropolis_hastings(matrix)"
    for other in (1e-10, 0.5 * (1 + 1e-6), 0):  # a light edge with none back, one of another weight
        matrix = np.array([[0, 0.5, 1e-10], [0.5, 0, 1], [other, 1, 0]])
        matrix[1, 0] = 0.5 if other == 1e-10 else 0.5 + 1e-7
        assert as_topology(matrix).is_directed == (other != 1e-10)
    lonely = np.zeros((3, 3))
    lonely[0, 1] = 1e-12
    assert as_topology(lonely).is_directed


def test_a_sequence_repeats_after_its_period():
    members = [topologies.ring(4), topologies.star(4)]
    sequence = TopologySequence(4, members.__getitem__, name="two", period=2)
    assert sequence.at(0) is sequence.at(2) is members[0]
    assert sequence.at(1) is sequence.at(5) is members[1]
    assert repr(sequence) == "TopologySequence('two', n=4, period=2)"
    endless = TopologySequence(4, lambda t: from_edges([(0, 1 + t % 3)], 4))
    assert endless.period is None
    assert endless.at(5).edge_index.tolist() == [[0, 3], [3, 0]]


SEQUENCES = {
    name: graphs
    for name, spec in gallery.EXAMPLES.items()
    if isinstance(graphs := gallery.example(spec), TopologySequence)
}


def two_rounds(t: int) -> Topology:
    return topologies.star(4) if t % 2 else topologies.ring(4)


@pytest.mark.parametrize(
    "sequence",
    [
        *SEQUENCES.values(),
        as_topology([topologies.ring(4), topologies.star(4)]),
        as_topology(two_rounds),
    ],
    ids=lambda sequence: sequence.name,
)
def test_sequences_that_generators_lists_and_functions_give_can_be_pickled(sequence):
    before = [sequence.at(t) for t in range(4)]
    again = pickle.loads(pickle.dumps(sequence))
    assert (again.name, again.n, again.period) == (sequence.name, sequence.n, sequence.period)
    for t in reversed(range(4)):
        assert equal(again.at(t), before[t])
        assert again.at(t).name == before[t].name
        assert again.at(t).own_weights == before[t].own_weights
