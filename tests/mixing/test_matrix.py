"""Mixing matrices and their spectra."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sparse
import torch

from tests.mixing.samples import directed_path, path
from topofl import mixing, topologies
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, as_topology, from_edges


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


@pytest.mark.parametrize("n", [4, 5, 16, 101])
def test_gaps_of_classic_graphs(n: int) -> None:
    gap = {
        "ring": 1 - max((1 + 2 * np.cos(2 * np.pi / n)) / 3, 1 / 3),
        "star": 1 / n,
        "fully_connected": 1.0,
    }
    for name, expected in gap.items():
        W = mixing.metropolis_hastings(getattr(topologies, name)(n))
        assert W.spectral_gap == pytest.approx(expected, abs=1e-10)
        assert W.spectral_gap == 1 - W.slem


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (3, 5), (4, 4), (5, 8)])
def test_spectrum_of_the_torus(rows: int, columns: int) -> None:
    W = mixing.metropolis_hastings(topologies.torus(rows * columns, rows=rows))
    a, b = np.meshgrid(np.arange(rows) / rows, np.arange(columns) / columns, indexing="ij")
    expected = (1 + 2 * np.cos(2 * np.pi * a) + 2 * np.cos(2 * np.pi * b)) / 5
    assert np.allclose(W.eigenvalues, np.sort(expected.reshape(-1))[::-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [3, 6, 25])
def test_spectrum_of_the_path(n: int) -> None:
    W = mixing.max_degree(path(n))  # I - L / 3; the path's Laplacian has 2 - 2 cos(pi k / n)
    assert np.allclose(
        W.eigenvalues, (1 + 2 * np.cos(np.pi * np.arange(n) / n)) / 3, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("graph", "slem", "tolerance"),
    [
        (topologies.ring(100), 0.998684, 5e-7),
        (topologies.grid(100), 0.979470, 5e-7),
        (topologies.exponential(100), 11 / 15, 1e-10),
        (topologies.star(100), 0.99, 1e-10),
        (topologies.fully_connected(100), 0.0, 1e-10),
        (topologies.exponential(1000), 17 / 21, 1e-10),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_slem_of_the_papers_graphs(graph: Topology, slem: float, tolerance: float) -> None:
    assert mixing.metropolis_hastings(graph).slem == pytest.approx(slem, abs=tolerance)


@pytest.mark.parametrize("graph", [topologies.ring(16), topologies.star(7), topologies.grid(12)])
def test_measured_contraction_is_one_minus_the_gap(graph: Topology) -> None:
    """Declared against measured: disagreement shrinks by SLEM per exchange, in the long run."""
    W = mixing.lazy(mixing.metropolis_hastings(graph))
    x = np.random.default_rng(0).standard_normal(graph.n)
    norms = []
    for _ in range(400):
        x = W @ x
        x -= x.mean()
        norms.append(np.linalg.norm(x))
        x /= norms[-1]
    assert norms[-1] == pytest.approx(1 - W.spectral_gap, abs=1e-4)


def test_gap_is_zero_without_connection_or_with_a_period() -> None:
    assert mixing.metropolis_hastings(from_edges([(0, 1), (2, 3)], 4)).spectral_gap == 0
    shift = mixing.from_weights(
        np.eye(5)[:, [1, 2, 3, 4, 0]]
    )  # each takes over another's model: connected, period 5
    assert shift.support().is_connected
    assert shift.spectral_gap == pytest.approx(0, abs=1e-12)
    assert mixing.metropolis_hastings(from_edges([], 1)).spectral_gap == 1


def test_directed_spectra_are_complex_and_by_modulus() -> None:
    values = mixing.uniform(topologies.exponential(12, directed=True)).eigenvalues
    assert np.iscomplexobj(values)
    assert (np.diff(np.abs(values)) <= 1e-12).all()
