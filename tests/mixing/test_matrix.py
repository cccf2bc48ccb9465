"""MixingMatrix: checks, immutability, conversions and messages."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sparse
import torch

from tests.mixing.samples import directed_path
from topofl import mixing, topologies
from topofl.mixing import MixingMatrix
from topofl.topology import as_topology, from_edges


@pytest.mark.parametrize(
    "remake", [copy.copy, copy.deepcopy, lambda W: pickle.loads(pickle.dumps(W))]
)
def test_nothing_can_be_changed_in_place(remake) -> None:
    W = mixing.metropolis_hastings(topologies.ring(4))
    for matrix in (W, remake(W)):
        for array in (matrix.weights.data, matrix.weights.indices, matrix.weights.indptr):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
        with pytest.raises(AttributeError):
            matrix.name = "other"
    assert remake(W).name == W.name
    assert (remake(W).weights != W.weights).nnz == 0


def test_from_weights_takes_arrays_tensors_and_sparse_matrices() -> None:
    dense = mixing.metropolis_hastings(topologies.ring(4)).weights.toarray()
    for weights in (
        dense,
        dense.tolist(),
        torch.from_numpy(dense),
        sparse.coo_matrix(dense),
        sparse.csc_array(dense),
    ):
        W = mixing.from_weights(weights, topologies.ring(4), name="mine")
        assert W.weights.toarray().tolist() == dense.tolist()
        assert W.name == "mine"
    dense[:] = 0
    assert W.weights.sum() == pytest.approx(4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_of_low_precision_are_divided_by_their_sums(dtype) -> None:
    shares = torch.softmax(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)), 1).to(
        dtype
    )
    exact = shares.double().numpy()
    assert np.abs(exact.sum(axis=1) - 1).max() > 1e-8
    for axis, weights in ((1, shares), (0, shares.T)):
        wanted = (exact if axis else exact.T) / (exact if axis else exact.T).sum(
            axis=axis, keepdims=True
        )
        W = mixing.from_weights(weights, edges="u<-v")
        np.testing.assert_allclose(W.weights.toarray(), wanted, rtol=1e-15)
    with pytest.raises(ValueError, match="sum to 1"):
        mixing.from_weights(1.01 * shares)
    with pytest.raises(ValueError, match="sum to 1"):
        mixing.from_weights(exact)  # of float64 nothing is taken for rounding


def test_to_torch() -> None:
    W = mixing.metropolis_hastings(topologies.ring(4))
    assert W.to_torch().dtype == torch.float32
    assert W.to_torch(dtype=torch.float64).tolist() == W.weights.toarray().tolist()


def test_messages_are_off_diagonal_weights() -> None:
    graph = topologies.star(5)
    W = mixing.metropolis_hastings(graph)
    assert W.out_messages.tolist() == W.in_messages.tolist() == [4, 1, 1, 1, 1]
    assert W.n_messages == 2 * graph.n_edges == 8
    empty_diagonal = mixing.from_weights([[0, 1], [1, 0]])
    assert empty_diagonal.n_messages == 2


def test_check_on_names_the_first_weight_off_the_edges() -> None:
    W = mixing.uniform(directed_path())
    assert W.check_on(directed_path()) is W
    reverse = from_edges([(1, 0), (2, 1)], 3, directed=True, name="reverse")
    with pytest.raises(
        ValueError,
        match=r"`weights` .* node 1 gives 0.5 to node 0, but there is no edge 0 -> 1 \(2 such",
    ):
        W.check_on(reverse)
    with pytest.raises(
        ValueError, match=r"`weights` must have one row per node: got n=3, ring\(n=4\) has n=4"
    ):
        W.check_on(topologies.ring(4))


@pytest.mark.parametrize(
    ("weights", "error", "match"),
    [
        (
            np.ones((2, 3)) / 3,
            ValueError,
            r"`weights` must be a square matrix .* got shape \(2, 3\)",
        ),
        (np.zeros((0, 0)), ValueError, "`weights` must be a square matrix"),
        (
            np.ones(3),
            ValueError,
            r"`weights` must be a square matrix with at least one node, got shape \(3,\)",
        ),
        ([[1, 2], [3]], ValueError, "`weights` must be an array of numbers, got list"),
        (np.eye(2) * 1j, TypeError, "`weights` must hold real numbers, got dtype complex128"),
        (sparse.csr_array(np.eye(2) * 1j), TypeError, "`weights` must hold real numbers"),
        ("ring", TypeError, "`weights` must hold real numbers"),
        ([["a", "b"], ["c", "d"]], TypeError, "`weights` must hold real numbers"),
        (
            np.array([[1, 0], [np.nan, 1]]),
            ValueError,
            r"`weights` must be finite, got nan at \(1, 0\)",
        ),
        (
            np.array([[2, -1], [-1, 2]]),
            ValueError,
            r"`weights` must have no negative entry, got -1 at \(0, 1\)",
        ),
        (
            np.array([[0.5, 0.4], [0.5, 0.5]]),
            ValueError,
            "`weights` must have rows or columns that sum to 1; row 0 sums",
        ),
    ],
)
def test_bad_weights(weights, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        mixing.from_weights(weights)


def test_sums_may_be_off_by_rounding_only() -> None:
    assert mixing.from_weights(np.array([[0.5, 0.5 + 1e-10], [0.5, 0.5]])).is_row_stochastic
    with pytest.raises(ValueError, match="`weights` must have rows or columns that sum to 1"):
        mixing.from_weights(np.array([[0.5, 0.5 + 1e-7], [0.5, 0.5 + 1e-6]]))


def test_it_is_a_frozen_value() -> None:
    W = mixing.from_weights(np.eye(2))
    assert isinstance(W, MixingMatrix)
    assert W.is_doubly_stochastic
    assert W.is_symmetric
    assert not W.is_uniform_mean
    assert W.n_messages == 0
    assert W.eigenvalues.tolist() == [1, 1]


@pytest.mark.parametrize(
    "graph",
    [
        topologies.star(6),
        topologies.exponential(9, directed=True),
        topologies.random_in(8, 3, seed=0).at(4),
    ],
)
def test_message_passing_of_pyg_with_our_weights_is_the_product(graph) -> None:
    from torch_geometric.nn import MessagePassing

    class Mix(MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="add")

        def forward(self, x, edge_index, edge_weight):
            return self.propagate(edge_index, x=x, edge_weight=edge_weight)

        def message(self, x_j, edge_weight):
            return edge_weight[:, None] * x_j

    x = np.random.default_rng(0).standard_normal((graph.n, 3))
    for W in (mixing.metropolis_or_uniform(graph), mixing.uniform(graph, direction="push")):
        data = W.to_pyg()
        assert data.num_nodes == graph.n
        mixed = Mix()(torch.from_numpy(x), data.edge_index, data.edge_weight)
        assert np.allclose(mixed.numpy(), W @ x, rtol=0, atol=1e-15)


def test_one_tolerance_decides_what_is_symmetric() -> None:
    for gap in (1e-16, 5e-10):
        weights = np.array([[0.5, 0.3 + gap, 0.2 - gap], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]])
        W = mixing.from_weights(weights)
        assert W.is_symmetric
        assert np.isrealobj(W.eigenvalues)
        assert not as_topology(weights - np.diag(np.diag(weights))).is_directed
