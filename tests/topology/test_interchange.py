"""Round trips through networkx, PyG, scipy and numpy."""

import re

import networkx as nx
import pytest
import scipy.sparse as sparse
import torch

from tests.topology.samples import equal, weighted
from topofl import topologies
from topofl.topology import Topology, as_topology


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


@pytest.mark.parametrize("shape", [(2, 3), (2, 1, 2)])
def test_pyg_features_of_edges_are_no_weights(data_class: type, shape: tuple[int, ...]) -> None:
    edges = torch.tensor([[2, 0], [1, 2]])
    data = data_class(edge_index=edges, edge_attr=-torch.ones(shape), num_nodes=4)
    assert equal(as_topology(data), as_topology(data_class(edge_index=edges, num_nodes=4)))
    message = (
        f"`edge_attr` must have one number per edge to be mixing weights, got features of shape "
        f"{shape}; choose a column: graph.edge_weight = graph.edge_attr[:, 0]"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        as_topology(data, own_weights=True)
    data.edge_weight = torch.tensor([0.5, 0.25])
    assert as_topology(data, own_weights=True).adjacency[0, 2] == 0.25


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
