import copy
import math
import pickle
import sys
import tracemalloc
import warnings
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
import torch

from analysis import gallery
from topofl import data, history, metrics, mixing, topologies
from topofl._linalg import hops, spectral
from topofl._spec import parameters
from topofl._support.check import NODES_LIMIT
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology, from_edges

EDGES = [(0, 1), (1, 2), (2, 0), (2, 3)]


@pytest.fixture
def data_class() -> type:
    """PyG's Data, imported without the deprecation warnings of its own imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.data import Data
    return Data


def directed() -> Topology:
    return from_edges(EDGES, 5, directed=True, name="directed")


def weighted(is_directed: bool) -> Topology:
    matrix = np.zeros((4, 4))
    matrix[0, 1], matrix[1, 2], matrix[3, 0] = 0.5, 2.0, 1.5
    return Topology(sparse.csr_array(matrix if is_directed else matrix + matrix.T), name="weighted")


def equal(a: Topology, b: Topology) -> bool:
    return a.n == b.n and (a.adjacency != b.adjacency).nnz == 0


SAMPLES = [
    topologies.ring(8),
    topologies.star(5),
    topologies.grid(12),
    topologies.exponential(9),
    topologies.random_regular(10, 3, seed=0),
    topologies.dcliques(n=23, clique_size=5, inter="ring", seed=0),
    from_edges([(0, 1), (2, 3)], 5),
    from_edges([], 1),
]
undirected_samples = pytest.mark.parametrize("graph", SAMPLES, ids=lambda graph: graph.name)


# The graph itself


def test_edges_go_from_source_to_target() -> None:
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


def test_connectivity_is_strong() -> None:
    cycle, path = from_edges(EDGES[:3], 3, directed=True), from_edges(EDGES[:2], 3, directed=True)
    assert cycle.is_connected
    assert cycle.diameter == 2
    assert not path.is_connected
    assert path.distances.tolist() == [[0, 1, 2], [math.inf, 0, 1], [math.inf, math.inf, 0]]
    assert path.diameter == path.mean_distance == math.inf


@undirected_samples
def test_degrees_and_connectivity_equal_networkx(graph: Topology) -> None:
    other = graph.to_networkx()
    assert not graph.is_directed
    assert graph.n_edges == other.number_of_edges()
    assert (
        graph.in_degrees.tolist()
        == graph.out_degrees.tolist()
        == [degree for _, degree in other.degree]
    )
    assert graph.is_connected == nx.is_connected(other)
    for node in range(graph.n):
        assert (
            graph.in_neighbors(node).tolist()
            == graph.out_neighbors(node).tolist()
            == sorted(other[node])
        )


def test_distances_say_their_size_before_they_take_it() -> None:
    graph = from_edges(
        np.stack([np.arange(99_999), np.arange(1, 100_000)], axis=1), 100_000, name="long"
    )
    message = (
        "n=100,000 nodes of long would take 80,000,000,000 bytes, .* "
        "use diameter or mean_distance, .* indices="
    )
    with pytest.raises(TopologyError, match=message):
        _ = graph.distances


@pytest.mark.parametrize("limit", [64, 2])
@pytest.mark.parametrize("block", [1, 3000, 2**26])
@pytest.mark.parametrize("seed", range(4))
def test_hops_are_counted_without_the_matrix_of_distances(
    seed: int, block: int, limit: int, monkeypatch
) -> None:
    """By bits and by rows, in one block and in many; directed and undirected."""
    monkeypatch.setattr(hops, "BLOCK_BYTES", block)
    monkeypatch.setattr(hops, "SHALLOW", limit)
    n = (70, 131, 9, 1)[seed]
    edges = np.random.default_rng(seed).integers(n, size=(n, 2))
    cycle = np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1)
    edges = np.concatenate([edges, cycle])
    graph = from_edges(edges[edges[:, 0] != edges[:, 1]], n, directed=seed % 2 == 0)
    counts = np.bincount(graph.distances.astype(int).reshape(-1))
    assert hops.hop_counts(graph.adjacency).tolist() == counts.tolist()
    assert graph.diameter == graph.distances.max()
    assert graph.mean_distance == (graph.distances.sum() / (n * (n - 1)) if n > 1 else 0)


def test_diameter_of_a_large_graph_takes_no_matrix(monkeypatch) -> None:
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
def test_distances_equal_networkx(graph: Topology) -> None:
    other = graph.to_networkx()
    for source, lengths in nx.all_pairs_shortest_path_length(other):
        assert [lengths.get(node, math.inf) for node in range(graph.n)] == graph.distances[
            source
        ].tolist()
    if graph.is_connected:
        assert graph.diameter == nx.diameter(other)
        assert graph.mean_distance == pytest.approx(
            nx.average_shortest_path_length(other) if graph.n > 1 else 0
        )
    else:
        assert graph.diameter == graph.mean_distance == math.inf


@undirected_samples
def test_algebraic_connectivity_equals_the_laplacian_spectrum(graph: Topology) -> None:
    spectrum = np.linalg.eigvalsh(nx.laplacian_matrix(graph.to_networkx()).toarray().astype(float))
    assert graph.algebraic_connectivity == pytest.approx(
        spectrum[1] if graph.n > 1 else 0, abs=1e-9
    )
    assert (graph.algebraic_connectivity == 0) == (not graph.is_connected or graph.n == 1)


@pytest.mark.parametrize("n", [3, 4, 9, 30])
def test_algebraic_connectivity_closed_forms(n: int) -> None:
    """Fiedler 1973: cycle, path, star, complete graph."""
    forms = {
        topologies.ring(n): 2 - 2 * np.cos(2 * np.pi / n),
        topologies.grid(n, rows=1): 2 - 2 * np.cos(np.pi / n),
        topologies.star(n): 1.0,
        topologies.fully_connected(n): float(n),
    }
    for graph, expected in forms.items():
        assert graph.algebraic_connectivity == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    "graph",
    [
        topologies.random_regular(300, 6, seed=0),
        topologies.exponential(257),
        topologies.dcliques(n=300, inter="ring", seed=0),
        topologies.ring(500),  # too slow for Lanczos: shift-invert
        topologies.star(300),
    ],
    ids=str,
)
def test_large_graphs_have_the_algebraic_connectivity_of_the_dense_computation(
    graph: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = np.random.default_rng(0).permutation(
        graph.n
    )  # then none is circulant, which has a closed form
    shuffled = from_edges(order[graph.edge_index.T], graph.n).adjacency
    dense = np.linalg.eigvalsh(np.diag(graph.out_degrees) - graph.adjacency.toarray())[1]
    monkeypatch.setattr(spectral.limits, "DENSE_LIMIT", 1)
    monkeypatch.setattr(spectral.limits, "STEPS", 200)
    assert graph.algebraic_connectivity == pytest.approx(dense, rel=1e-6, abs=1e-10)
    assert spectral.algebraic_connectivity(shuffled) == pytest.approx(dense, rel=1e-6, abs=1e-10)


def test_algebraic_connectivity_counts_weights_and_needs_symmetry() -> None:
    heavy = as_topology(3.0 * topologies.ring(6).adjacency)
    assert isinstance(heavy, Topology)
    assert heavy.algebraic_connectivity == pytest.approx(
        3 * topologies.ring(6).algebraic_connectivity
    )
    with pytest.raises(TopologyError, match="needs an undirected graph, directed is directed"):
        _ = directed().algebraic_connectivity


def test_a_static_graph_is_a_sequence_of_period_one() -> None:
    graph = topologies.ring(4)
    assert graph.period == 1
    assert graph.at(0) is graph.at(17) is graph


@pytest.mark.filterwarnings(
    "ignore::scipy.sparse.SparseEfficiencyWarning"
)  # of scipy, that new edges are slow
@pytest.mark.parametrize(
    "remake", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))]
)
def test_nothing_can_be_changed_in_place(remake) -> None:
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


def test_the_callers_matrix_is_copied() -> None:
    matrix = topologies.ring(4).to_scipy()
    graph = Topology(matrix)
    matrix.data[:] = 7
    assert (graph.adjacency.data == 1).all()
    graph.to_scipy().data[:] = 9  # a writable copy
    assert (graph.adjacency.data == 1).all()


def test_stored_zeros_are_no_edges_and_repeated_entries_are_summed() -> None:
    matrix = sparse.coo_array(([1.0, 1.0, 0.0], ([0, 0, 1], [1, 1, 2])), shape=(3, 3))
    graph = Topology(matrix)
    assert graph.edge_index.tolist() == [[0], [1]]
    assert graph.adjacency[0, 1] == 2


def test_renamed_keeps_all_else() -> None:
    graph = topologies.random_cliques(6, 3, seed=0)
    other = graph.renamed("mine")
    assert other.name == "mine"
    assert other.groups == graph.groups
    assert equal(other, graph)


@pytest.mark.parametrize(
    ("matrix", "error", "match"),
    [
        (
            np.zeros((2, 3)),
            ValueError,
            r"`adjacency` must be a square matrix .* got shape \(2, 3\)",
        ),
        (
            np.zeros((0, 0)),
            ValueError,
            "`adjacency` must be a square matrix with at least one node",
        ),
        (
            np.array([[0, np.nan], [0, 0]]),
            ValueError,
            r"`adjacency` must be finite, got nan at \(0, 1\)",
        ),
        (
            np.array([[0, 1], [np.inf, 0]]),
            ValueError,
            r"`adjacency` must be finite, got inf at \(1, 0\)",
        ),
        (
            np.array([[0, 1], [-2, 0]]),
            ValueError,
            r"`adjacency` must have no negative entry, got -2 at \(1, 0\)",
        ),
        (
            np.array([[0, 1], [1, 3]]),
            ValueError,
            "`adjacency` must have no self-loops, got one at node 1",
        ),
        (
            np.array([[0, 1j], [1, 0]]),
            TypeError,
            "`adjacency` must hold real numbers, got dtype complex128",
        ),
        (np.array([["0", "1"], ["1", "0"]]), TypeError, "`adjacency` must hold real numbers"),
    ],
)
def test_bad_adjacency(matrix: np.ndarray, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Topology(matrix)  # type: ignore[arg-type]
    if matrix.dtype.kind in "fic":
        with pytest.raises(error, match=match):
            Topology(sparse.csr_array(matrix))


def test_bad_groups_and_labels() -> None:
    matrix = topologies.ring(3).adjacency
    with pytest.raises(ValueError, match="`groups` must be disjoint"):
        Topology(matrix, groups=((0, 1), (1, 2)))
    with pytest.raises(ValueError, match=r"`groups` must hold nodes 0..2, got -1"):
        Topology(matrix, groups=((-1, 1),))
    with pytest.raises(ValueError, match=r"`groups` must hold nodes 0..2, got 3"):
        Topology(matrix, groups=((0, 3),))
    for group in ((0.7, 1), (np.float64(1), 2), ("0", 1)):
        with pytest.raises(
            TypeError, match="`groups` must hold sequences of nodes, which are integers, got"
        ):
            Topology(matrix, groups=(group,))
    assert Topology(matrix, groups=((np.int8(0), torch.tensor(2)),)).groups == ((0, 2),)
    for nodes in (("a", "b"), ("a", "b", "a")):
        with pytest.raises(
            ValueError, match="`nodes` must have one distinct label for each of the n=3 nodes"
        ):
            Topology(matrix, nodes=nodes)


def test_bad_nodes_of_queries() -> None:
    for query in (topologies.ring(3).in_neighbors, topologies.ring(3).out_neighbors):
        for node in (-1, 3):
            with pytest.raises(ValueError, match=f"`node` must be between 0 and 2, got {node}"):
                query(node)
        with pytest.raises(TypeError, match="`node` must be an integer"):
            query(1.0)


# Sequences


def test_a_sequence_repeats_after_its_period() -> None:
    members = [topologies.ring(4), topologies.star(4)]
    sequence = TopologySequence(4, members.__getitem__, name="two", period=2)
    assert sequence.at(0) is sequence.at(2) is members[0]
    assert sequence.at(1) is sequence.at(5) is members[1]
    assert repr(sequence) == "TopologySequence('two', n=4, period=2)"
    endless = TopologySequence(4, lambda t: from_edges([(0, 1 + t % 3)], 4))
    assert endless.period is None
    assert endless.at(5).edge_index.tolist() == [[0, 3], [3, 0]]


def test_sequences_are_checked() -> None:
    sequence = TopologySequence(4, lambda t: topologies.ring(4 + t), name="growing")
    assert sequence.at(0).n == 4
    with pytest.raises(
        ValueError, match="every graph of growing must have n=4 nodes, round 2 has 6"
    ):
        sequence.at(2)
    with pytest.raises(ValueError, match="`t` must be at least 0, got -1"):
        sequence.at(-1)
    with pytest.raises(TypeError, match="`t` must be an integer"):
        sequence.at(0.5)  # type: ignore[arg-type]


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
def test_sequences_that_generators_lists_and_functions_give_can_be_pickled(
    sequence: TopologySequence,
) -> None:
    before = [sequence.at(t) for t in range(4)]
    again = pickle.loads(pickle.dumps(sequence))
    assert (again.name, again.n, again.period) == (sequence.name, sequence.n, sequence.period)
    for t in reversed(range(4)):
        assert equal(again.at(t), before[t])
        assert again.at(t).name == before[t].name
        assert again.at(t).own_weights == before[t].own_weights


# From edges


@pytest.mark.parametrize(
    "edges", [EDGES, np.array(EDGES), set(EDGES), (edge for edge in EDGES), [*EDGES, EDGES[0]]]
)
def test_from_edges_takes_any_pairs_and_counts_repeated_ones_once(edges) -> None:
    graph = from_edges(edges, 5, name="mine", groups=[[0, 1], [4]])
    assert {tuple(sorted(edge)) for edge in graph.edge_index.T.tolist()} == {
        tuple(sorted(edge)) for edge in EDGES
    }
    assert (graph.n, graph.n_edges) == (5, 4)
    assert (graph.adjacency.data == 1).all()
    assert not graph.is_directed
    assert graph.name == "mine"
    assert graph.groups == ((0, 1), (4,))


def test_from_edges_without_edges() -> None:
    for edges in ([], np.zeros((0, 2)), np.zeros((0, 2), int)):
        assert from_edges(edges, 3).n_edges == 0


@pytest.mark.parametrize(
    ("edges", "n", "error", "match"),
    [
        ([(0, 3)], 3, ValueError, r"`edges` must join nodes 0..2, got node 3"),
        ([(-1, 1)], 3, ValueError, r"`edges` must join nodes 0..2, got node -1"),
        ([(1, 1)], 3, ValueError, "self-loops, got one at node 1"),
        ([(0.0, 1.0)], 3, TypeError, "`edges` must be pairs of integers, got dtype float64"),
        (
            [(0, 1, 2), (1, 2, 0)],
            3,
            ValueError,
            r"`edges` must be pairs \(source, target\), got shape \(2, 3\)",
        ),
        ([0, 1], 3, ValueError, r"`edges` must be pairs \(source, target\), got shape \(2,\)"),
        ([(0, 1), (2,)], 3, ValueError, r"`edges` must be pairs \(source, target\)"),
        ([], 0, ValueError, "`n` must be at least 1, got 0"),
        ([], 2.0, TypeError, "`n` must be an integer"),
    ],
)
def test_bad_edges(edges, n, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        from_edges(edges, n)


# There and back


@pytest.mark.parametrize("is_directed", [True, False])
def test_networkx_keeps_order_labels_weight_and_direction(is_directed: bool) -> None:
    other = nx.DiGraph(name="theirs") if is_directed else nx.Graph(name="theirs")
    other.add_nodes_from(["d", "b", "a", "c"])
    other.add_weighted_edges_from([("a", "b", 0.5), ("b", "c", 2.0), ("d", "a", 1.5)])
    graph = as_topology(other)
    assert isinstance(graph, Topology)
    assert graph.nodes == ("d", "b", "a", "c")
    assert graph.name == "theirs"
    assert graph.is_directed == is_directed
    assert graph.adjacency[2, 1] == 0.5
    assert graph.adjacency[1, 2] == (0 if is_directed else 0.5)
    back = graph.to_networkx()
    assert type(back) is type(other)
    assert list(back.nodes) == list(other.nodes)
    assert nx.utils.edges_equal(back.edges(data=True), other.edges(data=True), directed=is_directed)
    assert equal(as_topology(back), graph)


def test_networkx_without_weights_gets_none() -> None:
    assert topologies.ring(4).to_networkx().get_edge_data(0, 1) == {}
    assert as_topology(nx.path_graph(3)).nodes == ()
    assert as_topology(nx.path_graph(3), name="mine").name == "mine"
    assert as_topology(nx.Graph([("b", "a"), ("a", 0)])).nodes == ("b", "a", 0)


@pytest.mark.parametrize("is_directed", [True, False])
def test_pyg_keeps_order_weight_and_direction(is_directed: bool, data_class: type) -> None:
    graph = weighted(is_directed)
    data = graph.to_pyg()
    assert isinstance(data, data_class)
    assert data.is_directed() == is_directed
    assert data.num_nodes == 4
    assert data.edge_index.dtype == torch.int64
    back = as_topology(data, name="weighted")
    assert equal(back, graph)
    data.edge_weight[:] = 0  # a copy
    assert (graph.adjacency.data > 0).all()


def test_pyg_edge_index_is_source_over_target(data_class: type) -> None:
    data = data_class(edge_index=torch.tensor([[2, 0], [1, 2]]), num_nodes=4)
    graph = as_topology(data)
    assert graph.name == "pyg"
    assert graph.n == 4
    assert graph.out_neighbors(2).tolist() == [1]
    with_attribute = data_class(
        edge_index=data.edge_index, edge_attr=torch.tensor([[2.0], [3.0]]), num_nodes=4
    )
    assert as_topology(with_attribute).adjacency[0, 2] == 3
    assert (
        as_topology(
            data_class(edge_index=torch.zeros((2, 0), dtype=torch.long), num_nodes=2)
        ).n_edges
        == 0
    )


@pytest.mark.parametrize("is_directed", [True, False])
def test_scipy_and_dense_matrices_keep_everything(is_directed: bool) -> None:
    graph = weighted(is_directed)
    dense = graph.to_scipy().toarray()
    for matrix in (
        graph.to_scipy(),
        sparse.coo_matrix(dense),
        sparse.csc_array(dense),
        dense,
        dense.tolist(),
    ):
        assert equal(as_topology(matrix), graph)
    assert equal(as_topology(torch.from_numpy(dense)), graph)
    assert equal(as_topology(torch.from_numpy(dense).float()), graph)
    assert equal(as_topology(dense > 0), as_topology((dense > 0).astype(int)))
    assert as_topology(dense).name == "matrix"
    rows = [tuple(row) for row in dense.tolist()]
    assert equal(as_topology(rows), graph)


# as_topology


def test_topologies_come_back_as_they_are_or_renamed() -> None:
    for graph in (topologies.ring(3), topologies.one_peer_exponential(4)):
        assert as_topology(graph) is graph
        renamed = as_topology(graph, name="mine")
        assert renamed.name == "mine"
        assert equal(renamed.at(0), graph.at(0))


def test_edge_lists_are_undirected() -> None:
    for edges in (
        EDGES,
        tuple(EDGES),
        np.array(EDGES),
        torch.tensor(EDGES),
        [list(edge) for edge in EDGES],
    ):
        graph = as_topology(edges)
        assert isinstance(graph, Topology)
        assert graph.n == 4
        assert equal(graph, as_topology(nx.Graph(EDGES)))
        assert graph.name == "edges"
    assert as_topology(EDGES, n=6).n == 6
    assert as_topology([], n=3).n_edges == 0
    assert as_topology(np.zeros((0, 2), int), n=3).n == 3


def test_two_pairs_are_tuples_and_two_rows_are_a_matrix() -> None:
    assert as_topology([(0, 1), (1, 2)]).n == 3
    assert as_topology([[0, 1], [1, 0]]).n == 2


def test_callables_are_sequences() -> None:
    def growing_star(t: int) -> nx.Graph:
        return nx.star_graph(min(t, 2)) if t > 1 else nx.path_graph(3)

    sequence = as_topology(growing_star)
    assert isinstance(sequence, TopologySequence)
    assert sequence.name == "growing_star"
    assert sequence.n == 3
    assert sequence.period is None
    assert sequence.at(0).out_degrees.tolist() == [1, 2, 1]
    assert sequence.at(9).out_degrees.tolist() == [2, 1, 1]
    assert as_topology(growing_star, name="mine").name == "mine"


def test_lists_of_graphs_are_periodic_sequences() -> None:
    square = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    sequence = as_topology(
        [nx.path_graph(3), topologies.ring(3), square, sparse.csr_array(square), [(0, 2)]]
    )
    assert isinstance(sequence, TopologySequence)
    assert sequence.period == 5
    assert [sequence.at(t).n_edges for t in range(6)] == [2, 3, 3, 3, 1, 2]
    assert [sequence.at(t).is_directed for t in range(5)] == [False, False, True, True, False]


def test_self_loops_are_refused_or_dropped(data_class: type) -> None:
    other = nx.path_graph(3)
    other.add_edge(1, 1)
    matrix = nx.to_numpy_array(other)
    data = data_class(edge_index=torch.tensor([[0, 1, 1, 1, 2], [1, 0, 1, 2, 1]]), num_nodes=3)
    for graph in (other, matrix, sparse.csr_array(matrix), data, [(0, 1), (1, 1), (1, 2)]):
        with pytest.raises(ValueError, match="self-loops, got one at node 1"):
            as_topology(graph)
        assert equal(as_topology(graph, drop_self_loops=True), topologies.grid(3, rows=1))
    for graphs in ([other, other], lambda t: other):
        with pytest.raises(ValueError, match="self-loops"):
            as_topology(graphs)
        assert equal(as_topology(graphs, drop_self_loops=True).at(1), topologies.grid(3, rows=1))
    assert as_topology([(3, 3)], drop_self_loops=True).n == 4


def nan_weight() -> nx.Graph:
    graph = nx.path_graph(2)
    graph[0][1]["weight"] = math.nan
    return graph


@pytest.mark.parametrize(
    ("graph", "error", "match"),
    [
        (nx.MultiGraph([(0, 1), (0, 1)]), ValueError, "`graph` must not have parallel edges"),
        (nx.Graph(), ValueError, "`graph` must have at least one node"),
        (nan_weight(), ValueError, r"`adjacency` must be finite, got nan at \(0, 1\)"),
        (np.array([[0, -1.0], [0, 0]]), ValueError, "`adjacency` must have no negative entry"),
        (np.zeros((3, 4)), ValueError, r"square matrix .* got shape \(3, 4\)"),
        (sparse.csr_array(np.zeros((3, 4))), ValueError, r"square matrix .* got shape \(3, 4\)"),
        (np.zeros((0, 0)), ValueError, "`graph` must have at least one node"),
        (
            [],
            ValueError,
            "`graph` must have at least one node, got none; for nodes without edges pass `n`",
        ),
        (np.zeros((0, 2), int), ValueError, "`graph` must have at least one node"),
        ([(0, 1.5), (1, 2.5)], TypeError, "`edges` must be pairs of integers, got dtype float64"),
        ([(0, -1)], ValueError, r"`edges` must join nodes 0..0, got node -1"),
        ([(0, 1), (1, 2, 3)], TypeError, "`graph` must be a graph, a matrix or a list of pairs"),
        (
            torch.eye(2).to_sparse(),
            TypeError,
            "`graph` must be a graph, a matrix or a list of pairs: .*Sparse",
        ),
        (torch.eye(2, requires_grad=True), TypeError, "`graph` must be a graph.*detach"),
        (np.eye(2) * 1j, TypeError, "`graph` must be a networkx or PyG graph"),
        (sparse.csr_array(np.eye(2) * 1j), TypeError, "`adjacency` must hold real numbers"),
        ("ring", TypeError, "`graph` must be a networkx or PyG graph.* got str"),
        (None, TypeError, "`graph` must be .* got NoneType"),
        ({0: [1]}, TypeError, "`graph` must be .* got dict"),
        (["a", "b"], TypeError, "`graph` must be"),
        (np.zeros((2, 3, 3)), TypeError, "`graph` must be"),
        (
            [nx.path_graph(3), nx.path_graph(4)],
            ValueError,
            r"`graph` must be graphs with the same number .* \[3, 4\]",
        ),
        (
            [nx.path_graph(3), [nx.path_graph(3)]],
            TypeError,
            "one round of a sequence must be a single graph",
        ),
        (lambda t: [nx.path_graph(3)], TypeError, "one round of a sequence must be a single graph"),
        (lambda t: "ring", TypeError, "`graph` must be"),
    ],
)
def test_bad_graphs(graph, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        as_topology(graph)


def test_a_callable_must_keep_the_number_of_nodes() -> None:
    sequence = as_topology(lambda t: nx.path_graph(3 + t))
    with pytest.raises(ValueError, match="must have n=3 nodes, round 1 has 4"):
        sequence.at(1)


def test_n_must_agree_with_the_graph() -> None:
    assert as_topology(nx.path_graph(3), n=3).n == 3
    for graph in (nx.path_graph(3), topologies.ring(3), np.zeros((3, 3)), [nx.path_graph(3)]):
        with pytest.raises(
            ValueError, match="`n` must be left out or be 3, the number of nodes of `graph`, got 5"
        ):
            as_topology(graph, n=5)
    with pytest.raises(ValueError, match=r"`edges` must join nodes 0..2, got node 5"):
        as_topology([(0, 5)], n=3)


def test_bad_pyg_graphs(data_class: type) -> None:
    pairs = torch.tensor([[0, 1], [1, 2]])
    for given, error, match in [
        (data_class(x=torch.zeros(3, 1)), ValueError, "`graph` must have an `edge_index`"),
        (
            data_class(edge_index=pairs, num_nodes=2),
            ValueError,
            r"`edge_index` must join nodes 0..1, got 0 to 2",
        ),
        (
            data_class(edge_index=-pairs, num_nodes=3),
            ValueError,
            r"`edge_index` must join nodes 0..2, got -2 to 0",
        ),
        (
            data_class(edge_index=pairs.float(), num_nodes=3),
            TypeError,
            "`edge_index` must be integers",
        ),
        (
            data_class(edge_index=pairs, edge_attr=torch.ones(2, 3), num_nodes=3),
            ValueError,
            r"`edge_attr` must have one number per edge, got shape \(2, 3\)",
        ),
        (
            data_class(edge_index=pairs[:, [0, 0]], num_nodes=3),
            ValueError,
            "`graph` must not have parallel edges",
        ),
    ]:
        with pytest.raises(error, match=match):
            as_topology(given)


def test_functions_that_are_no_sequences_are_named():
    with pytest.raises(
        TypeError, match=r"`graph` must return a graph for round 0, .* raised KeyError"
    ):
        as_topology({}.__getitem__, name="lookup")


# Who stands where

EVEN, ODD = [(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4), (5, 0)]


def matching(t: int) -> nx.Graph:
    return nx.Graph([EVEN, ODD][t % 2])  # which adds nodes as its edges name them


def pairs(graph: Topology) -> set[tuple[int, int]]:
    return {(u, v) for u, v in graph.edge_index.T.tolist() if u < v}


def named(edges: list[tuple[int, int]], letters: str = "fedcba") -> nx.Graph:
    return nx.Graph([(letters[u], letters[v]) for u, v in edges])


@pytest.mark.parametrize("graphs", [matching, [nx.Graph(EVEN), nx.Graph(ODD)]])
def test_rounds_of_networkx_have_the_same_nodes_in_the_same_places(graphs) -> None:
    sequence = as_topology(graphs)
    assert pairs(sequence.at(0)) == {(0, 1), (2, 3), (4, 5)}
    assert pairs(sequence.at(1)) == pairs(sequence.at(7)) == {(1, 2), (3, 4), (0, 5)}
    assert sequence.nodes == ()
    again = pickle.loads(pickle.dumps(as_topology(matching)))
    assert pairs(again.at(1)) == {(1, 2), (3, 4), (0, 5)}


def test_other_labels_stand_in_the_order_of_round_0() -> None:
    def rounds(t: int) -> nx.Graph:
        return named([EVEN, ODD][t % 2])

    for sequence in (as_topology(rounds), as_topology([rounds(0), rounds(1)])):
        assert sequence.nodes == sequence.at(1).nodes == tuple("fedcba")
        assert pairs(sequence.at(1)) == {(1, 2), (3, 4), (0, 5)}
        assert nx.utils.graphs_equal(sequence.at(1).to_networkx(), named(ODD))
    later = as_topology([rounds(1), rounds(0)])
    assert later.nodes == tuple("edcbaf")


def test_groups_and_weights_follow_their_nodes() -> None:
    first = Topology(topologies.path(3).adjacency, nodes=("a", "b", "c"))
    matrix = np.array([[0, 0.5, 0], [0, 0, 0.25], [0.125, 0, 0]])
    other = Topology(matrix, nodes=("c", "a", "b"), groups=((0,), (1, 2)), own_weights=True)
    moved = as_topology([first, other]).at(1)
    assert moved.nodes == ("a", "b", "c")
    assert moved.adjacency.toarray().tolist() == [[0, 0.25, 0], [0, 0, 0.125], [0.5, 0, 0]]
    assert moved.groups == ((2,), (0, 1))
    assert moved.own_weights


def test_members_of_all_kinds_are_matched(data_class: type) -> None:
    square = nx.to_numpy_array(nx.Graph(ODD), nodelist=range(6))
    data = from_edges(ODD, 6).to_pyg()
    shuffled = data_class(
        edge_index=torch.tensor([[0, 3], [1, 2]]), num_nodes=4, n_id=torch.tensor([7, 5, 1, 3])
    )
    for other in (
        square,
        data,
        nx.Graph(ODD),
        topologies.induced_subgraph(from_edges(ODD, 6), [5, 4, 3, 2, 1, 0]),
    ):
        assert pairs(as_topology([nx.Graph(EVEN), other]).at(1)) == {(1, 2), (3, 4), (0, 5)}
    sampled = as_topology([nx.Graph([(1, 3), (5, 7)]), shuffled])
    assert sampled.nodes == (1, 3, 5, 7)
    assert sampled.at(1).edge_index.T.tolist() == [[1, 0], [3, 2]]  # 3 -> 1 and 7 -> 5
    assert as_topology(shuffled).nodes == (7, 5, 1, 3)


def test_rounds_with_other_nodes_are_refused() -> None:
    for graphs in (
        [named(EVEN), named(ODD, "fedcbz")],
        lambda t: named([EVEN, ODD][t], ["fedcba", "fedcbz"][t]),
    ):
        with pytest.raises(
            ValueError,
            match=r"same nodes, (graph|round) 1 has no node 'a', which the first one has",
        ):
            as_topology(graphs).at(1)
    with pytest.raises(ValueError, match="same nodes, graph 1 has no node 'f'"):
        as_topology([named(EVEN), topologies.ring(6)])
    with pytest.raises(
        ValueError, match=r"got \[6, 4\]; give each graph all nodes, including those without"
    ):
        as_topology([nx.Graph(EVEN), nx.Graph(ODD[:2])])
    members = [as_topology(named(EVEN)), as_topology(named(ODD))]
    with pytest.raises(
        ValueError, match="same labels in the same order, those of round 1 differ from those of"
    ):
        TopologySequence(6, members.__getitem__).at(1)
    assert as_topology([[(0, 1), (2, 3)], [(1, 2)]], n=4).at(1).n == 4
    members = [as_topology(named(EVEN)), topologies.ring(6)]
    for graphs in (members, members[::-1]):  # with labels and without
        with pytest.raises(
            ValueError,
            match=r"same labels in the same order, those of round 1 .*; .* or drop labels",
        ):
            TopologySequence(6, graphs.__getitem__).at(1)
        with pytest.raises(ValueError, match="same labels in the same order"):
            (sequence := TopologySequence(6, graphs.__getitem__)).at(0), sequence.at(1)
        with pytest.raises(ValueError, match="graphs of the same nodes"):
            as_topology(graphs)


def test_node_i_of_a_graph_with_labels_0_to_n_is_the_one_labeled_i() -> None:
    graph = as_topology(nx.Graph([(1, 2), (2, 0)]))
    assert graph.nodes == ()
    assert pairs(graph) == {(1, 2), (0, 2)}


def test_networkx_gives_back_an_order_of_numbers() -> None:
    graph = topologies.induced_subgraph(topologies.path(4), [2, 0, 3, 1])
    assert graph.nodes == (2, 0, 3, 1)
    back = as_topology(graph.to_networkx())
    assert back.nodes == graph.nodes
    assert equal(back, graph)
    cut = graph.to_networkx()
    cut.remove_node(3)  # the order is no longer that of its nodes
    assert as_topology(cut).nodes == ()


# Own weights

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
def test_weights_of_edges_are_the_mixing_weights_where_asked(graph) -> None:
    for own in (
        as_topology(graph, own_weights=True),
        as_topology([graph, graph], own_weights=True).at(1),
    ):
        assert own.own_weights
        np.testing.assert_allclose(
            mixing.metropolis_or_uniform(own).weights.toarray(), W_OF_SHARES, atol=1e-15
        )
    later = as_topology(as_topology(lambda t: graph, drop_self_loops=True), own_weights=True)
    assert later.at(3).own_weights
    back = as_topology(as_topology(graph, own_weights=True).to_networkx(), own_weights=True)
    np.testing.assert_allclose(
        mixing.metropolis_or_uniform(back).weights.toarray(), W_OF_SHARES, atol=1e-15
    )


def test_own_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"node 0 has a self-loop of 0.3 and 0.3 from others .* drop_self_loops",
    ):
        as_topology(with_loops(0.3), own_weights=True)
    dropped = as_topology(with_loops(0.3), own_weights=True, drop_self_loops=True)
    np.testing.assert_allclose(
        mixing.metropolis_or_uniform(dropped).weights.toarray(), W_OF_SHARES, atol=1e-15
    )
    heavy = nx.DiGraph()
    heavy.add_weighted_edges_from([(1, 0, 0.8), (2, 0, 0.9)])
    with pytest.raises(
        ValueError,
        match=r"node 0 sum to 1.7; .* .u, v. is the weight that u gives to v, reverse it",
    ):
        as_topology(heavy, own_weights=True)
    assert as_topology(heavy.reverse(), own_weights=True).own_weights
    with pytest.raises(ValueError, match="`own_weights` must be True or False, got 'yes'"):
        as_topology(SHARES, own_weights="yes")  # type: ignore[arg-type]


def test_weights_that_no_rule_uses_are_known_and_the_librarys_graphs_have_none() -> None:
    assert as_topology(SHARES).has_unused_weights
    assert not as_topology(SHARES, own_weights=True).has_unused_weights
    assert not as_topology(nx.path_graph(3)).has_unused_weights
    assert not Topology(3 * topologies.ring(4).adjacency).has_unused_weights
    assert not from_edges([], 2).has_unused_weights
    for spec in gallery.EXAMPLES.values():
        graphs = gallery.example(spec)
        assert not any(graphs.at(t).has_unused_weights for t in range(min(graphs.period or 3, 3)))


def test_symmetric_up_to_rounding_is_undirected() -> None:
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


# Input that would crash or exhaust the process


def crafted(form: str, bad: int) -> Any:
    """Return a sparse matrix whose entries lie elsewhere than its shape allows."""
    matrix = sparse.coo_array(topologies.ring(6).to_scipy()).asformat(form)
    if form == "coo":
        matrix.coords[0][0] = bad
    elif form == "lil":
        matrix.rows[0][0] = bad
    else:
        matrix.indices[0] = bad
    return matrix


def with_pointers(pointers: list[int]) -> sparse.csr_array:
    matrix = sparse.csr_array(topologies.ring(3).to_scipy())
    matrix.indptr = np.array(pointers, dtype=np.int32)
    return matrix


CRAFTED = [
    *(
        crafted(form, bad)
        for form in ("csr", "csc", "coo", "lil", "bsr")
        for bad in (10**8, -(10**8))
    ),
    with_pointers([0, 2, 10**8, 6]),
    with_pointers([0, 10**8, 0, 0]),
    with_pointers([0, 2, 4, 10**8]),
    with_pointers([-(10**8), 2, 4, 6]),
    with_pointers([0, -1, -1, -1]),
    with_pointers([0, 6]),
]


@pytest.mark.parametrize("matrix", CRAFTED, ids=lambda matrix: matrix.format)
@pytest.mark.parametrize(
    "door",
    [
        Topology,
        as_topology,
        lambda matrix: as_topology(matrix, drop_self_loops=True),
        lambda matrix: as_topology([matrix], own_weights=True),
        mixing.MixingMatrix,
        mixing.from_weights,
        lambda matrix: mixing.from_weights(matrix, edges="u->v"),
    ],
)
def test_indices_outside_of_sparse_matrices_are_refused(matrix: Any, door: Any) -> None:
    with pytest.raises(
        ValueError, match=r"must be a well-formed sparse matrix, got .*; build it again"
    ):
        door(matrix)


def test_lists_of_lists_with_more_places_than_values_are_refused() -> None:
    matrix = sparse.lil_array(topologies.ring(6).to_scipy())
    matrix.rows[0] = [0, 1] * 10_000
    with pytest.raises(ValueError, match="`rows` that do not fit its `data`"):
        Topology(matrix)


def test_edges_of_pyg_of_other_shapes_are_refused(data_class: type) -> None:
    with pytest.raises(ValueError, match=r"`edge_index` must have shape \(2, E\), .* got \(3, 2\)"):
        as_topology(data_class(edge_index=torch.zeros((3, 2), dtype=torch.long), num_nodes=3))
    with pytest.raises(ValueError, match="`num_nodes` must be at most 10,000,000"):
        as_topology(data_class(edge_index=torch.tensor([[0], [1]]), num_nodes=2**40))
    learned = data_class(
        edge_index=torch.tensor([[0], [1]]),
        edge_weight=torch.tensor([0.5], requires_grad=True),
        num_nodes=2,
    )
    assert as_topology(learned).adjacency[0, 1] == 0.5


@pytest.mark.parametrize("node", [10**7, 10**9, 2**40, 2**63, 10**30, 10**5000], ids=int.bit_length)
def test_edge_lists_are_refused_by_their_size(node: int) -> None:
    with pytest.raises(
        ValueError, match=r"`graph` must have nodes below 10,000,000, .*; number them 0..n-1"
    ):
        as_topology([(0, node)])
    with pytest.raises(ValueError, match="`n` must be at most 10,000,000"):
        from_edges([(0, 1)], node + 1)
    with pytest.raises(ValueError, match="`n` must be at most 10,000,000"):
        TopologySequence(node + 1, lambda t: topologies.ring(3))
    assert as_topology(nx.Graph([(0, node)])).nodes == (0, node)


def test_matrices_are_refused_by_their_size() -> None:
    matrix = sparse.coo_array(([1.0], ([0], [1])), shape=(2**40, 2**40))
    for door in (Topology, as_topology, mixing.from_weights):
        with pytest.raises(ValueError, match="must be at most 10,000,000"):
            door(matrix)


SIZED = [name for name in topologies.__all__ if "n" in parameters(getattr(topologies, name))]


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (lambda: topologies.fully_connected(10**6), "`n` must"),
        (lambda: topologies.complete_bipartite(10**6), "`n` and `left`"),
        (lambda: topologies.hypercube(2**23), "`n` must"),
        (lambda: topologies.circulant(10**6, range(1, 1000)), "`n` and `offsets`"),
        (lambda: topologies.exponential(10**7), "`n` must"),
        (lambda: topologies.one_peer_exponential(10**7), "`n` must .* per period"),
        (lambda: topologies.p_peer_exponential(10**6, 1000), "`n` and `p` .* per period"),
        (lambda: topologies.random_regular(10**6, 1000, seed=0), "`n` and `k`"),
        (lambda: topologies.random_regular(20_000, 19_999, seed=0), "`n` and `k`"),
        (lambda: topologies.erdos_renyi(10**6, p=0.5, seed=0), "`n` and `p`"),
        (lambda: topologies.small_world(10**6, 1000, seed=0), "`n` and `k`"),
        (lambda: topologies.barabasi_albert(10**6, 1000, seed=0), "`n` and `m`"),
        (
            lambda: topologies.stochastic_block_model(10**6, 2, p_in=0.5, p_out=0.1, seed=0),
            "`p_in` and `p_out`",
        ),
        (lambda: topologies.random_out(10**6, 1000, seed=0), "`n` and `k` .* per round"),
        (lambda: topologies.random_in(10**6, 1000, seed=0), "`n` and `k` .* per round"),
        (lambda: topologies.random_regular_sequence(10**6, 1000, seed=0), "`n` and `k`"),
        (lambda: topologies.erdos_renyi_sequence(10**6, p=0.5, seed=0), "`n` and `p` .* per round"),
        (lambda: topologies.d_equistatic(10**6, 1000, seed=0), "`n` and `m`"),
        (lambda: topologies.u_equistatic(10**6, 1000, seed=0), "`n` and `m`"),
        (lambda: topologies.random_cliques(10**6, 10**6, seed=0), "`n` and `clique_size`"),
        (lambda: topologies.base_graph(10**6, 1000), "`n` and `k` .* per round"),
        (lambda: topologies.hyper_hypercube(10**6, 1000), "`n` and `k` .* per round"),
    ],
)
def test_generators_are_refused_by_their_edges(make, arguments):
    with pytest.raises(ValueError, match=arguments) as refused:
        make()
    assert "at most 50,000,000 edges" in str(refused.value)


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("n", [10**8, 10**30, 10**5000], ids=int.bit_length)
def test_generators_are_refused_by_their_size(name: str, n: int) -> None:
    generator = getattr(topologies, name)
    needed = {
        key: (lambda node, members: 0.0)
        if key == "reward"
        else 1
        if key == "seed"
        else 0.5
        if key in ("p", "p_in", "p_out")
        else 2
        for key, parameter in parameters(generator).items()
        if parameter.default is parameter.empty and key != "n"
    }
    with pytest.raises(
        ValueError, match=r"`n` must be at most 10,000,000, .* got (1000000|about 10)"
    ):
        generator(**needed, n=n)


def test_other_sizes_and_numbers_beyond_all_arrays_are_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match="`steps` must be between 0 and 9223372036854775807, got 1000000"
    ):
        topologies.greedy_swap(n=20, steps=10**30, seed=0)
    for p, shown in ((10**400, "inf"), (-(10**400), "-inf")):
        with pytest.raises(ValueError, match=f"`p` must be between 0 and 1, got {shown}"):
            topologies.erdos_renyi(10, p, seed=0)
    assert topologies.erdos_renyi(10, 0.5, seed=10**30).n == 10  # seeds are no sizes


@pytest.mark.parametrize("label", [10**6, 2**40])
def test_labels_are_refused_by_their_size(label: int) -> None:
    with pytest.raises(
        ValueError, match=r"`y` must be below 1,000,000, .* got \d+ at index 1; number the classes"
    ):
        data.from_arrays(np.zeros((3, 2)), [0, label, 1])
    with pytest.raises(ValueError, match="`n_classes` must be between 1 and 1000000"):
        data.from_arrays(np.zeros((3, 2)), [0, 1, 1], n_classes=label + 1)


def test_the_largest_size_is_fine() -> None:
    assert from_edges([(0, NODES_LIMIT - 1)], NODES_LIMIT).n_edges == 1


MASKED = np.ma.masked_array([[0.0, 1.0], [1.0, 0.0]], mask=[[False, True], [False, False]])


@pytest.mark.parametrize(
    "door",
    [
        Topology,
        as_topology,
        lambda array: as_topology([array, array]),
        lambda array: as_topology(list(array)),
        lambda array: from_edges(array.astype(int), 3),
        mixing.MixingMatrix,
        mixing.from_weights,
        mixing.average_of_chosen,
        lambda array: mixing.average_of(array[0]),
        lambda array: topologies.greedy_swap(array.astype(int) + 1, clique_size=2, seed=0),
        lambda array: topologies.remove_edges(topologies.ring(3), array.astype(int)),
        lambda array: topologies.ring(2).plot(positions=array),
        lambda array: topologies.ring(2).plot(label_counts=array),
        lambda array: data.from_arrays(array, [0, 1]),
        lambda array: data.from_arrays(np.zeros((2, 1)), array[0].astype(int)),
        metrics.consensus_distance,
        lambda array: metrics.clique_skew([array[0].astype(int)], np.ones((2, 2), int)),
        lambda array: history.Personal.of(array[0]),
    ],
)
def test_masked_entries_are_refused(door: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"must have no masked entries, got \d+; replace them first, as in array.fil",
    ):
        door(MASKED)


def test_arrays_without_masked_entries_are_taken() -> None:
    assert as_topology(np.ma.masked_array([[0, 1], [1, 0]])).n_edges == 1


def test_groups_may_come_from_a_generator():
    graph = from_edges([(0, 1), (2, 3)], 4, groups=(range(k, k + 2) for k in (0, 2)))
    assert graph.groups == ((0, 1), (2, 3))
