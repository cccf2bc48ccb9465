"""Nodes of sequences are matched by label."""

import pickle

import networkx as nx
import numpy as np
import pytest
import torch

from tests.topology.samples import equal, pairs
from topofl import topologies
from topofl.topology import Topology, TopologySequence, as_topology, from_edges

EVEN, ODD = [(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4), (5, 0)]


def matching(t: int) -> nx.Graph:
    return nx.Graph([EVEN, ODD][t % 2])  # which adds nodes as its edges name them


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


# n_id of PyG graphs


def test_n_id_in_any_order_sorts_nodes_as_networkx_labels_do(data_class: type) -> None:
    labels = [2, 0, 3, 1]
    path = nx.DiGraph([(labels[i], labels[i + 1]) for i in range(3)])
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    ours = as_topology(data_class(edge_index=edges, num_nodes=4, n_id=torch.tensor(labels)))
    theirs = as_topology(path)
    assert isinstance(ours, Topology)
    assert isinstance(theirs, Topology)
    assert ours.nodes == theirs.nodes == ()
    np.testing.assert_array_equal(ours.adjacency.toarray(), theirs.adjacency.toarray())


@pytest.mark.parametrize("labeled_first", [True, False])
def test_snapshots_with_and_without_n_id_are_refused(labeled_first: bool, data_class: type) -> None:
    edges = torch.tensor([[0, 1], [1, 2]])
    bare = data_class(edge_index=edges, num_nodes=3)
    labeled = data_class(edge_index=edges, num_nodes=3, n_id=torch.tensor([2, 0, 1]))
    pair = [labeled, bare] if labeled_first else [bare, labeled]
    has, lacks = (0, 1) if labeled_first else (1, 0)
    with pytest.raises(ValueError, match=f"`n_id`.*graph {has} has one, graph {lacks} has none"):
        as_topology(pair)
    sequence = as_topology(lambda t: pair[t])
    with pytest.raises(ValueError, match=f"`n_id`.*round {has} has one, round {lacks} has none"):
        sequence.at(1)
