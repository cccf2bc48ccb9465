"""Conversion of graphs, and the order of their nodes."""

import pickle

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
import torch

from tests.topology.samples import EDGES, equal, pairs, pyg, weighted
from topofl import topologies
from topofl.topology import Topology, TopologySequence, as_topology, from_edges


def test_topologies_come_back_as_they_are_or_renamed():
    for graph in (topologies.ring(3), topologies.one_peer_exponential(4)):
        assert as_topology(graph) is graph
        renamed = as_topology(graph, name="mine")
        assert renamed.name == "mine"
        assert equal(renamed.at(0), graph.at(0))


def test_edge_lists_are_undirected():
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


def test_nodes_in_no_pair_are_there_where_their_number_is_given():
    assert as_topology([[(0, 1), (1, 2)], [(1, 2)]]).at(1).out_degrees.tolist() == [0, 1, 1]
    assert as_topology([[(0, 1), (2, 3)], [(1, 2)]], n=4).at(1).n == 4
    assert as_topology(nx.path_graph(3), n=3).n == 3
    labeled = as_topology(nx.Graph([(1, 2), (2, 3), (3, 1)]))
    assert (labeled.n, labeled.nodes) == (3, (1, 2, 3))


def test_two_pairs_are_tuples_and_two_rows_are_a_matrix():
    assert as_topology([(0, 1), (1, 2)]).n == 3
    assert as_topology([[0, 1], [1, 0]]).n == 2


def test_callables_are_sequences():
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


def test_lists_of_graphs_are_periodic_sequences():
    square = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    graphs = [nx.path_graph(3), topologies.ring(3), square, sparse.csr_array(square), [(0, 2)]]
    sequence = as_topology(graphs)
    assert isinstance(sequence, TopologySequence)
    assert sequence.period == 5
    assert [sequence.at(t).n_edges for t in range(6)] == [2, 3, 3, 3, 1, 2]
    assert [sequence.at(t).is_directed for t in range(5)] == [False, False, True, True, False]


def test_self_loops_are_dropped_where_asked():
    other = nx.Graph([(0, 1), (1, 1), (1, 2)])
    matrix = nx.to_numpy_array(other)
    data = pyg(edge_index=torch.tensor([[0, 1, 1, 1, 2], [1, 0, 1, 2, 1]]), num_nodes=3)
    for graph in (other, matrix, sparse.csr_array(matrix), data, [(0, 1), (1, 1), (1, 2)]):
        assert equal(as_topology(graph, drop_self_loops=True), topologies.path(3))
    for graphs in ([other, other], lambda t: other):
        assert equal(as_topology(graphs, drop_self_loops=True).at(1), topologies.path(3))
    assert as_topology([(3, 3)], drop_self_loops=True, n=4).n == 4
    assert as_topology([("a", "a"), ("a", "b")], drop_self_loops=True).nodes == ("a", "b")


@pytest.mark.parametrize(
    "pairs",
    [
        [("Zug", "Bern"), ("Bern", "Aarau"), ("Aarau", "Zug"), ("Zug", "Bern")],
        [["Zug", "Bern"], ["Bern", "Aarau"], ["Aarau", "Zug"]],
        np.array([("Zug", "Bern"), ("Bern", "Aarau"), ("Aarau", "Zug")]),
        [("b", "a"), ("c", "d")],
        [["b", "a"], ["c", "d"]],
        [("b", 1), (1, 0)],
        [("1", "0"), ("1", "2")],
    ],
)
def test_edge_lists_with_names_are_those_of_networkx(pairs):
    graph = as_topology(pairs)
    wanted = as_topology(nx.Graph([tuple(pair) for pair in pairs]))
    assert graph.nodes == wanted.nodes
    assert (graph.adjacency != wanted.adjacency).nnz == 0


def test_edge_lists_with_names_take_the_options_of_others():
    assert as_topology([("a", "b")], own_weights=True).own_weights
    assert as_topology([("a", "b")], n=2, name="pair").name == "pair"


def test_sequences_of_edge_lists_match_nodes_by_name():
    graphs = as_topology([[("a", "b"), ("b", "c")], [("c", "a"), ("a", "b")]])
    assert graphs.at(1).nodes == ("a", "b", "c")
    assert pairs(graphs.at(1)) == {(0, 1), (0, 2)}


@pytest.mark.parametrize("is_directed", [True, False])
def test_networkx_keeps_order_labels_weight_and_direction(is_directed):
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


def test_networkx_without_weights_gets_none():
    assert topologies.ring(4).to_networkx().get_edge_data(0, 1) == {}
    assert as_topology(nx.path_graph(3)).nodes == ()
    assert as_topology(nx.path_graph(3), name="mine").name == "mine"
    assert as_topology(nx.Graph([("b", "a"), ("a", 0)])).nodes == ("b", "a", 0)


@pytest.mark.parametrize("is_directed", [True, False])
def test_pyg_keeps_order_weight_and_direction(is_directed):
    graph = weighted(is_directed)
    data = graph.to_pyg()
    assert isinstance(data, type(pyg()))
    assert data.is_directed() == is_directed
    assert data.num_nodes == 4
    assert data.edge_index.dtype == torch.int64
    back = as_topology(data, name="weighted")
    assert equal(back, graph)
    data.edge_weight[:] = 0  # a copy
    assert (graph.adjacency.data > 0).all()


def test_pyg_edge_index_is_source_over_target():
    data = pyg(edge_index=torch.tensor([[2, 0], [1, 2]]), num_nodes=4)
    graph = as_topology(data)
    assert graph.name == "pyg"
    assert graph.n == 4
    assert graph.out_neighbors(2).tolist() == [1]
    with_attribute = pyg(
        edge_index=data.edge_index, edge_attr=torch.tensor([[2.0], [3.0]]), num_nodes=4
    )
    assert as_topology(with_attribute).adjacency[0, 2] == 3
    empty = pyg(edge_index=torch.zeros((2, 0), dtype=torch.long), num_nodes=2)
    assert as_topology(empty).n_edges == 0


@pytest.mark.parametrize("shape", [(2, 3), (2, 1, 2)])
def test_pyg_features_of_edges_are_no_weights(shape):
    edges = torch.tensor([[2, 0], [1, 2]])
    data = pyg(edge_index=edges, edge_attr=-torch.ones(shape), num_nodes=4)
    assert equal(as_topology(data), as_topology(pyg(edge_index=edges, num_nodes=4)))
    data.edge_weight = torch.tensor([0.5, 0.25], requires_grad=True)
    assert as_topology(data, own_weights=True).adjacency[0, 2] == 0.25


@pytest.mark.parametrize("is_directed", [True, False])
def test_scipy_and_dense_matrices_keep_everything(is_directed):
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


EVEN, ODD = [(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4), (5, 0)]


def matching(t: int) -> nx.Graph:
    return nx.Graph([EVEN, ODD][t % 2])  # which adds nodes as its edges name them


def named(edges: list[tuple[int, int]], letters: str = "fedcba") -> nx.Graph:
    return nx.Graph([(letters[u], letters[v]) for u, v in edges])


@pytest.mark.parametrize("graphs", [matching, [nx.Graph(EVEN), nx.Graph(ODD)]])
def test_rounds_of_networkx_have_the_same_nodes_in_the_same_places(graphs):
    sequence = as_topology(graphs)
    assert pairs(sequence.at(0)) == {(0, 1), (2, 3), (4, 5)}
    assert pairs(sequence.at(1)) == pairs(sequence.at(7)) == {(1, 2), (3, 4), (0, 5)}
    assert sequence.nodes == ()
    again = pickle.loads(pickle.dumps(as_topology(matching)))
    assert pairs(again.at(1)) == {(1, 2), (3, 4), (0, 5)}


def test_other_labels_stand_in_the_order_of_round_0():
    def rounds(t: int) -> nx.Graph:
        return named([EVEN, ODD][t % 2])

    for sequence in (as_topology(rounds), as_topology([rounds(0), rounds(1)])):
        assert sequence.nodes == sequence.at(1).nodes == tuple("fedcba")
        assert pairs(sequence.at(1)) == {(1, 2), (3, 4), (0, 5)}
        assert nx.utils.graphs_equal(sequence.at(1).to_networkx(), named(ODD))
    later = as_topology([rounds(1), rounds(0)])
    assert later.nodes == tuple("edcbaf")


def test_groups_and_weights_follow_their_nodes():
    first = Topology(topologies.path(3).adjacency, nodes=("a", "b", "c"))
    matrix = np.array([[0, 0.5, 0], [0, 0, 0.25], [0.125, 0, 0]])
    other = Topology(matrix, nodes=("c", "a", "b"), groups=((0,), (1, 2)), own_weights=True)
    moved = as_topology([first, other]).at(1)
    assert moved.nodes == ("a", "b", "c")
    assert moved.adjacency.toarray().tolist() == [[0, 0.25, 0], [0, 0, 0.125], [0.5, 0, 0]]
    assert moved.groups == ((2,), (0, 1))
    assert moved.own_weights


def test_members_of_all_kinds_are_matched():
    square = nx.to_numpy_array(nx.Graph(ODD), nodelist=range(6))
    data = from_edges(ODD, 6).to_pyg()
    shuffled = pyg(
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


def test_node_i_of_a_graph_with_labels_0_to_n_is_the_one_labeled_i():
    graph = as_topology(nx.Graph([(1, 2), (2, 0)]))
    assert graph.nodes == ()
    assert pairs(graph) == {(1, 2), (0, 2)}


def test_networkx_gives_back_an_order_of_numbers():
    graph = topologies.induced_subgraph(topologies.path(4), [2, 0, 3, 1])
    assert graph.nodes == (2, 0, 3, 1)
    back = as_topology(graph.to_networkx())
    assert back.nodes == graph.nodes
    assert equal(back, graph)
    cut = graph.to_networkx()
    cut.remove_node(3)  # the order is no longer that of its nodes
    assert as_topology(cut).nodes == ()


# n_id of PyG graphs


def test_n_id_in_any_order_sorts_nodes_as_networkx_labels_do():
    labels = [2, 0, 3, 1]
    path = nx.DiGraph([(labels[i], labels[i + 1]) for i in range(3)])
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    ours = as_topology(pyg(edge_index=edges, num_nodes=4, n_id=torch.tensor(labels)))
    theirs = as_topology(path)
    assert isinstance(ours, Topology)
    assert isinstance(theirs, Topology)
    assert ours.nodes == theirs.nodes == ()
    np.testing.assert_array_equal(ours.adjacency.toarray(), theirs.adjacency.toarray())
