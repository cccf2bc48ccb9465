"""Mixing matrices: their weights, nodes, messages and spectra."""

import copy
import dataclasses
import pickle

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.nn import MessagePassing

from tests.mixing.samples import RULES, TAKEN, directed_path, shares
from topofl import mixing, topologies
from topofl.mixing import MixingMatrix
from topofl.topology import as_topology, from_edges

RING = topologies.ring(4)


@pytest.mark.parametrize(
    "remake", [copy.copy, copy.deepcopy, lambda W: pickle.loads(pickle.dumps(W))]
)
def test_nothing_can_be_changed_in_place(remake):
    W = mixing.metropolis_hastings(RING)
    for matrix in (W, remake(W)):
        for array in (matrix.weights.data, matrix.weights.indices, matrix.weights.indptr):
            assert not array.flags.writeable
        with pytest.raises(AttributeError):
            matrix.name = "other"
    assert (remake(W).name, remake(W).nodes) == (W.name, W.nodes)
    assert (remake(W).weights != W.weights).nnz == 0


# Weights


def test_from_weights_takes_arrays_tensors_and_sparse_matrices():
    dense = mixing.metropolis_hastings(RING).weights.toarray()
    tensor, coo, csc = torch.from_numpy(dense), sparse.coo_matrix(dense), sparse.csc_array(dense)
    for weights in (dense, dense.tolist(), tensor, coo, csc):
        W = mixing.from_weights(weights, RING, name="mine")
        assert W.weights.toarray().tolist() == W.to_torch(dtype=torch.float64).tolist()
        assert W.weights.toarray().tolist() == dense.tolist()
        assert W.name == "mine"
    dense[:] = 0
    assert W.weights.sum() == pytest.approx(4)
    assert W.to_torch().dtype == torch.float32


def test_from_weights_takes_networkx_graphs():
    array = nx.to_numpy_array(shares(), nodelist=range(3))
    for W in (
        mixing.from_weights(shares()),
        mixing.from_weights(shares(), edges="u->v"),
        mixing.from_weights(shares().reverse(), edges="u<-v"),
        mixing.from_weights(array, edges="u->v"),
        mixing.from_weights(sparse.csr_array(array), edges="u->v"),
        mixing.from_weights(TAKEN, edges="u<-v"),
        mixing.from_weights(mixing.from_weights(TAKEN).to_pyg()),
    ):
        assert W.weights.toarray().tolist() == TAKEN
        assert W.is_row_stochastic
        assert W.name == "from_weights(n=3)"
    assert mixing.from_weights(nx.Graph([(0, 1)])).weights.toarray().tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_of_low_precision_are_divided_by_their_sums(dtype):
    drawn = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    low = torch.softmax(drawn, 1).to(dtype)
    exact = low.double().numpy()
    assert np.abs(exact.sum(axis=1) - 1).max() > 1e-8
    wanted = exact / exact.sum(axis=1, keepdims=True)
    for weights, expected in ((low, wanted), (low.T, wanted.T)):
        W = mixing.from_weights(weights, edges="u<-v")
        np.testing.assert_allclose(W.weights.toarray(), expected, rtol=1e-15)


def test_weights_that_push_are_not_taken_for_averaging_without_a_word():
    array = nx.to_numpy_array(shares(), nodelist=range(3))  # (source, target): columns sum to 1
    with pytest.warns(
        UserWarning,
        match=r"only columns sum to 1, so these weights push. If entry \(u, v\) is the weight that "
        r"v gives to u, pass edges='u->v' and they average; to push, pass edges='u<-v'",
    ):
        pushes = mixing.from_weights(array)
    assert pushes.stochasticity == "column stochastic"
    with pytest.warns(
        UserWarning,
        match=r"If the edge \(u, v\) is the weight that u gives to v, pass edges='u<-v' and .* "
        "pass edges='u->v'",
    ):
        mixing.from_weights(shares().reverse())
    assert mixing.from_weights(array, edges="u<-v").weights.toarray().tolist() == array.tolist()
    graph = as_topology(shares(), drop_self_loops=True)
    assert mixing.from_weights(array, graph, edges="u->v").weights.toarray().tolist() == TAKEN


# Nodes


def test_matrices_keep_labels_and_stand_where_the_nodes_of_a_topology_do():
    graph = nx.relabel_nodes(shares(), {0: "z", 1: "x", 2: "y"})
    support = nx.DiGraph()
    support.add_nodes_from("xyz")
    support.add_edges_from((u, v) for u, v in graph.edges if u != v)
    topology, W = as_topology(support), mixing.from_weights(graph)
    assert W.nodes == W.support().nodes == mixing.lazy(W).nodes == tuple(graph)
    placed = mixing.from_weights(graph, topology)
    order = [tuple(graph).index(node) for node in "xyz"]
    assert placed.weights.toarray().tolist() == W.weights[order][:, order].toarray().tolist()
    assert placed.nodes == topology.nodes == ("x", "y", "z")
    assert placed.check_on(topology) is placed
    for unlabeled in (dataclasses.replace(placed, nodes=()), mixing.from_weights(placed.weights)):
        assert unlabeled.check_on(topology).nodes == ()
    complete = as_topology(nx.relabel_nodes(nx.complete_graph(3), dict(enumerate("abc"))))
    for rule in RULES[:3]:
        assert rule(complete).nodes == ("a", "b", "c")


# Messages


def test_messages_are_off_diagonal_weights():
    graph = topologies.star(5)
    W = mixing.metropolis_hastings(graph)
    assert W.out_messages.tolist() == W.in_messages.tolist() == [4, 1, 1, 1, 1]
    assert W.n_messages == 2 * graph.n_edges == 8
    assert mixing.from_weights([[0, 1], [1, 0]]).n_messages == 2
    alone = mixing.from_weights(np.eye(2))
    assert isinstance(alone, MixingMatrix)
    assert (alone.n_messages, alone.is_uniform_mean) == (0, False)


class Mix(MessagePassing):
    def __init__(self):
        super().__init__(aggr="add")

    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j, edge_weight):
        return edge_weight[:, None] * x_j


@pytest.mark.parametrize(
    "graph",
    [
        topologies.star(6),
        topologies.exponential(9, directed=True),
        topologies.random_in(8, 3, seed=0).at(4),
    ],
)
def test_message_passing_of_pyg_with_our_weights_is_the_product(graph):
    x = np.random.default_rng(0).standard_normal((graph.n, 3))
    for W in (mixing.metropolis_or_uniform(graph), mixing.uniform(graph, direction="push")):
        data = W.to_pyg()
        assert data.num_nodes == graph.n
        mixed = Mix()(torch.from_numpy(x), data.edge_index, data.edge_weight)
        assert np.allclose(mixed.numpy(), W @ x, rtol=0, atol=1e-15)


@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_average_of_chosen_is_the_weighted_mean_of_groups(n, seed):
    rng = np.random.default_rng(seed)
    receives, sizes = rng.random((n, n)) < 0.4, rng.integers(1, 9, n)
    weights = mixing.average_of_chosen(receives, sizes).weights.toarray()
    wanted = (receives | np.eye(n, dtype=bool)) * sizes
    wanted = wanted / wanted.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weights, wanted, rtol=1e-12)
    scaled = mixing.average_of_chosen(receives, 3.7 * sizes).weights.toarray()
    np.testing.assert_allclose(scaled, weights, rtol=1e-12)


# Spectra


def test_one_tolerance_decides_what_is_symmetric():
    for gap in (1e-16, 5e-10):
        weights = np.array([[0.5, 0.3 + gap, 0.2 - gap], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]])
        W = mixing.from_weights(weights)
        assert W.is_symmetric
        assert np.isrealobj(W.eigenvalues)
        assert not as_topology(weights - np.diag(np.diag(weights))).is_directed


def test_gap_is_zero_without_connection_or_with_a_period():
    assert mixing.metropolis_hastings(from_edges([(0, 1), (2, 3)], 4)).spectral_gap == 0
    # each takes over another's model: connected, period 5
    shift = mixing.from_weights(np.roll(np.eye(5), 1, axis=0))
    assert shift.support().is_connected
    assert shift.spectral_gap == pytest.approx(0, abs=1e-12)
    assert mixing.metropolis_hastings(from_edges([], 1)).spectral_gap == 1


def test_directed_spectra_are_complex_and_by_modulus():
    values = mixing.uniform(topologies.exponential(12, directed=True)).eigenvalues
    assert np.iscomplexobj(values)
    assert (np.diff(np.abs(values)) <= 1e-12).all()
    assert mixing.uniform(directed_path()).check_on(directed_path()).n == 3
