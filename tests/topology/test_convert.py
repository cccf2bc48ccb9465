"""Conversion of graphs in common formats by as_topology."""

import math

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
import torch

from tests.topology.samples import EDGES, equal
from topofl import topologies
from topofl.topology import Topology, TopologySequence, as_topology


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


@pytest.mark.parametrize(
    ("pairs", "lone"),
    [
        ([(1, 2), (2, 3), (3, 1)], "each node from 0 to 3 in a pair, got none with 0; "),
        (np.array([(0, 1), (1, 9), (9, 0)]), "got none with 2, 3, 4 and 4 more; "),
    ],
)
def test_nodes_in_no_pair_are_not_made_up(pairs, lone) -> None:
    """Pairs of nodes counted from 1 would get a node 0 without edges, which trains alone."""
    with pytest.raises(ValueError, match=f"`graph` must have .*{lone}.*pass n="):
        as_topology(pairs)
    assert as_topology([(1, 2), (2, 3), (3, 1)], n=4).out_degrees.tolist() == [0, 2, 2, 2]
    assert as_topology([[(0, 1), (1, 2)], [(1, 2)]]).at(1).out_degrees.tolist() == [0, 1, 1]
    labeled = as_topology(nx.Graph([(1, 2), (2, 3), (3, 1)]))
    assert (labeled.n, labeled.nodes) == (3, (1, 2, 3))


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
    assert as_topology([(3, 3)], drop_self_loops=True, n=4).n == 4


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
            data_class(edge_index=pairs, edge_attr=torch.ones(3, 2), num_nodes=3),
            ValueError,
            r"`edge_attr` must have one number per edge, here 2 edges, got shape \(3, 2\)",
        ),
        (
            data_class(edge_index=pairs, edge_weight=torch.ones(2, 2), num_nodes=3),
            ValueError,
            r"`edge_weight` must have one number per edge, here 2 edges, got shape \(2, 2\); "
            r"choose one, as in graph.edge_weight\[:, 0\], or remove edge_weight",
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
def test_edge_lists_with_names_are_those_of_networkx(pairs) -> None:
    graph = as_topology(pairs)
    wanted = as_topology(nx.Graph([tuple(pair) for pair in pairs]))
    assert graph.nodes == wanted.nodes
    assert (graph.adjacency != wanted.adjacency).nnz == 0


def test_edge_lists_with_names_take_the_options_of_others() -> None:
    loop = [("a", "a"), ("a", "b")]
    with pytest.raises(ValueError, match="self-loop"):
        as_topology(loop)
    assert as_topology(loop, drop_self_loops=True).nodes == ("a", "b")
    assert as_topology([("a", "b")], own_weights=True).own_weights
    assert as_topology([("a", "b")], n=2, name="pair").name == "pair"
    with pytest.raises(ValueError, match="`n` must be left out or be 2, the number of nodes"):
        as_topology([("a", "b")], n=3)
    with pytest.raises(
        TypeError, match=r"`graph` must be pairs of texts or of integers, got .*0.5"
    ):
        as_topology([("a", 0.5)])
    with pytest.raises(
        TypeError, match=r"`graph` must be pairs of texts or of integers, got .*None"
    ):
        as_topology([("a", None)])


def test_sequences_of_edge_lists_match_nodes_by_name() -> None:
    graphs = as_topology([[("a", "b"), ("b", "c")], [("c", "a"), ("a", "b")]])
    assert graphs.at(1).nodes == ("a", "b", "c")
    assert sorted(map(tuple, graphs.at(1).edge_index.T.tolist())) == [
        (0, 1),
        (0, 2),
        (1, 0),
        (2, 0),
    ]
