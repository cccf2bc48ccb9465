"""Spectra of graphs with several strongly connected classes."""

import math

import mpmath
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.metrics.graphs import relabelled, triangles
from topofl import mixing, topologies
from topofl._linalg import second, spectral
from topofl.metrics import slem, spectral_gap
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, as_topology, from_edges

DIRECTIONS = ["pull", "push"]


SIZES = [399, 1500, 1503, 1602]
"""Numbers of nodes below and above 1,500, the limit of dense decompositions."""


def binary_tree(n: int) -> Topology:
    """Return a binary tree in which every node sends to its two children."""
    return from_edges(
        np.stack([(np.arange(1, n) - 1) // 2, np.arange(1, n)], axis=1), n, directed=True
    )


def near_acyclic(n: int, seed: int) -> Topology:
    """Return a digraph with edges from lower to higher nodes and a few short edges back."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(n, size=(3 * n, 2)), axis=1)
    back = rng.integers(n - 4, size=n // 8)
    back = np.stack([back + rng.integers(1, 4, size=len(back)), back], axis=1)
    edges = np.concatenate([ends, back])
    return from_edges(edges[edges[:, 0] != edges[:, 1]], n, directed=True)


def spectrum_of_blocks(weights: sparse.csr_array) -> np.ndarray:
    """Return the sorted eigenvalue moduli of all strongly connected classes, by numpy."""
    graph = nx.from_scipy_sparse_array(weights, create_using=nx.DiGraph)
    blocks = [
        weights[sorted(c)][:, sorted(c)].toarray() for c in nx.strongly_connected_components(graph)
    ]
    return np.sort(np.abs(np.concatenate([np.linalg.eigvals(block) for block in blocks])))


def exact_weights(graph: Topology, direction: str) -> mpmath.matrix:
    """Return uniform weights with 60 digits."""
    receives = (
        graph.to_scipy().toarray().T > 0 if direction == "pull" else graph.to_scipy().toarray() > 0
    )
    receives |= np.eye(graph.n, dtype=bool)
    return mpmath.matrix(
        [[mpmath.mpf(int(entry)) / int(row.sum()) for entry in row] for row in receives]
    )


def exact_slem(matrix: mpmath.matrix) -> float:
    """Return the SLEM with 60 digits, of which a Jordan block of order 6 for 0 leaves 10."""
    try:
        return float(
            sorted(abs(value) for value in mpmath.eig(matrix, left=False, right=False))[-2]
        )
    except RuntimeError:  # its iteration does not converge on some matrices that are nilpotent
        assume(False)
        raise


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(60):
        yield


@st.composite
def digraphs(draw, least: int = 2) -> Topology:
    n = draw(st.integers(least, 9))
    node = st.integers(0, n - 1)
    edges = draw(
        st.lists(st.tuples(node, node).filter(lambda edge: edge[0] != edge[1]), max_size=3 * n)
    )
    return from_edges(edges, n, directed=True)


@pytest.mark.parametrize("n", [*SIZES, 99_999])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_triangles_in_a_row_have_the_spectrum_of_a_triangle(n: int, direction: str) -> None:
    """Each class has a row of 1/4 and two of 1/3: rank one, with eigenvalue 11/12, the trace."""
    graph = triangles(n)
    for same in (graph, relabelled(graph)):
        solution = mixing.uniform(same, direction=direction).slem_solution
        assert solution.value == pytest.approx(11 / 12, abs=1e-13)
        assert solution.residual < 1e-14


@pytest.mark.parametrize("n", [1023, 1500, 1601, 100_000])
def test_trees_that_send_down_have_slem_a_half(n: int) -> None:
    tree = binary_tree(n)
    assert slem(tree) == slem(relabelled(tree)) == 0.5
    assert mixing.uniform(tree, direction="push").slem == 1  # every leaf keeps what it has
    assert (
        mixing.uniform(
            from_edges(tree.edge_index.T[:, ::-1], n, directed=True), direction="push"
        ).slem
        == 0.5
    )


def test_several_closed_classes_never_average() -> None:
    graph = from_edges([(0, 2), (1, 2), (2, 3), (3, 2)], 4, directed=True)
    assert mixing.uniform(graph).slem_solution.solver == "components"
    assert (slem(graph), spectral_gap(graph)) == (1, 0)
    assert slem(as_topology([graph, graph])) == 1


def test_a_large_class_that_is_not_closed() -> None:
    """One node of a regular graph of 1,600 nodes also receives from a source."""
    regular = topologies.random_regular(1600, 4, seed=0)
    edges = np.concatenate([regular.edge_index.T, [[1600, 0]]])
    W = mixing.uniform(from_edges(edges, 1601, directed=True))
    block = W.weights[:1600][:, :1600].toarray()
    expected = np.linalg.eigvalsh(np.sqrt(block * block.T))[
        -1
    ]  # W is reversible there: similar to this
    assert W.slem_solution.solver == "arnoldi"
    assert W.slem == pytest.approx(expected, abs=1e-10)
    assert W.slem_solution.residual < 1e-9


@pytest.mark.parametrize(
    ("n", "solver"), [(1200, "dense"), (2000, "arnoldi"), (20_000, "shift-invert")]
)
@pytest.mark.slow
def test_a_path_below_a_source_mixes_slowly(n: int, solver: str) -> None:
    """With weights of 1/3 and a reflecting end, the SLEM is ``(1 + 2 cos(pi / (2 n + 1))) / 3``."""
    diagonal, on_kept_models = np.full(n + 1, 1 / 3), np.full(n, 1 / 3)
    diagonal[[0, -1]] = 1, 2 / 3
    above = on_kept_models.copy()
    above[0] = 0  # the source receives from none
    W = mixing.from_weights(
        sparse.csr_array(sparse.diags_array([diagonal, above, on_kept_models], offsets=[0, 1, -1]))
    )
    assert W.slem_solution.solver == solver
    assert W.slem == pytest.approx((1 + 2 * math.cos(math.pi / (2 * n + 1))) / 3, abs=1e-12)


@given(graph=digraphs(), direction=st.sampled_from(DIRECTIONS), seed=st.integers(0, 99))
def test_slem_of_digraphs_agrees_with_sixty_digits_and_in_any_order(graph, direction, seed) -> None:
    found = mixing.uniform(graph, direction=direction).slem
    assert found == pytest.approx(exact_slem(exact_weights(graph, direction)), abs=1e-9)
    assert mixing.uniform(relabelled(graph, seed), direction=direction).slem == pytest.approx(
        found, abs=1e-9
    )


@given(first=digraphs(), data=st.data())
def test_slem_of_periods_of_digraphs_agrees_with_sixty_digits(first, data) -> None:
    graphs = [first] + [
        relabelled(first, data.draw(st.integers(0, 99)))
        for _ in range(data.draw(st.integers(1, 2)))
    ]
    product = mpmath.eye(first.n)
    for graph in graphs:
        product = exact_weights(graph, "pull") * product
    assert slem(as_topology(graphs)) == pytest.approx(
        exact_slem(product) ** (1 / len(graphs)), abs=1e-7
    )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed", range(2))
def test_near_acyclic_digraphs_agree_with_numpys_blocks_in_any_order(n: int, seed: int) -> None:
    graph = near_acyclic(n, seed)
    W = mixing.uniform(graph)
    expected = spectrum_of_blocks(W.weights)
    assert nx.number_strongly_connected_components(graph.to_networkx()) > 10
    assert W.slem == pytest.approx(expected[-2], abs=1e-12)
    assert slem(relabelled(graph, seed)) == pytest.approx(W.slem, abs=1e-12)
    np.testing.assert_allclose(
        np.abs(W.eigenvalues), expected[::-1], atol=1e-6
    )  # numpy's zeros may be defective


@pytest.mark.parametrize("n", [300, 1602])
def test_a_period_of_equal_digraphs_has_the_rate_of_one(n: int) -> None:
    graph = triangles(n)
    assert slem(as_topology([graph] * 3)) == pytest.approx(slem(graph), abs=1e-12)
    graph = near_acyclic(n, 0)
    assert slem(as_topology([graph] * 2)) == pytest.approx(slem(graph), abs=1e-9)


def test_all_eigenvalues_of_many_classes_of_a_large_graph() -> None:
    values = mixing.uniform(triangles(30_000)).eigenvalues
    assert values[0] == pytest.approx(1, abs=1e-13)
    np.testing.assert_allclose(np.abs(values[1:10_000]), 11 / 12, atol=1e-13)
    np.testing.assert_allclose(np.abs(values[10_000:]), 0, atol=1e-13)


def expander(n: int, k: int, seed: int) -> MixingMatrix:
    """Return weights with which every node averages itself and k random others."""
    senders = np.random.default_rng(seed).integers(n, size=n * k)
    counts = sparse.csr_array(
        (np.ones(n * k), (np.repeat(np.arange(n), k), senders)), (n, n)
    ) + sparse.eye_array(n)
    return MixingMatrix(sparse.csr_array(sparse.diags_array(1 / counts.sum(axis=1)) @ counts))


@pytest.mark.parametrize("is_found", [True, False], ids=["left vector", "decay"])
def test_directed_expanders_are_not_taken_for_exact_averaging(is_found, monkeypatch) -> None:
    W = expander(700, 40, seed=0)
    expected = np.sort(np.abs(np.linalg.eigvals(W.weights.toarray())))[-2]
    assert expected < 0.2
    for limit in ("DENSE_LIMIT", "SPECTRUM_LIMIT"):
        monkeypatch.setattr(spectral, limit, 100)
    if not is_found:
        monkeypatch.setattr(second, "_left_vector", lambda rows, value: None)
    assert W.slem_solution.solver == "arnoldi"
    assert W.slem == pytest.approx(expected, abs=1e-10)


@pytest.mark.slow
def test_a_directed_expander_above_the_limit_of_dense_spectra() -> None:
    """Six eigenvalues of the transpose are too close to converge, and n is too large for all."""
    W = expander(8000, 30, seed=1)
    assert W.n > spectral.SPECTRUM_LIMIT
    assert W.slem_solution.solver == "arnoldi"
    assert W.slem == pytest.approx(0.2082469169781907, abs=1e-10)  # with 40 values and 250 vectors
    # on some processors the first iteration stalls, and the second has this relative tolerance
    assert W.slem_solution.residual < spectral.TOLERANCE * W.slem


def test_the_largest_of_many_eigenvalues_on_the_rim_of_a_disc(monkeypatch) -> None:
    """Iterations for one eigenvalue converge to 0.5393, which is inside the disc."""
    W = expander(4000, 5, seed=2)
    operator = sparse.linalg.LinearOperator(
        W.weights.shape, lambda x: W @ (x - x.mean()), dtype=float
    )
    start = np.random.default_rng(1).standard_normal(W.n)
    expected = np.abs(
        sparse.linalg.eigs(operator, k=12, ncv=200, v0=start, return_eigenvectors=False)
    ).max()
    assert expected > 0.5400
    monkeypatch.setattr(second, "second_near_one", None)  # nothing is factorized
    assert W.slem_solution.solver == "arnoldi"
    assert W.slem == pytest.approx(expected, abs=1e-9)
