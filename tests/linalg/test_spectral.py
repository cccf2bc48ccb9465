"""Solvers of the second eigenvalue: which is chosen, that all agree, and the residuals."""

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st

from tests.rows.metrics import pull, push, relabelled
from topofl import mixing, topologies
from topofl._linalg import second, spectral
from topofl.topology import from_edges

EPS = np.finfo(float).eps


def dense_second(weights: sparse.csr_array) -> float:
    return float(np.sort(np.abs(np.linalg.eigvals(weights.toarray())))[-2])


@st.composite
def circulants(draw) -> sparse.csr_array:
    """Doubly stochastic circulants with unequal weights."""
    n = draw(st.integers(2, 40))
    row, size = np.zeros(n), st.floats(0.05, 1)
    for offset in draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=min(n, 6))):
        row[offset] = draw(size)
    return sparse.csr_array(np.stack([np.roll(row / row.sum(), i) for i in range(n)]))


@given(matrix=circulants())
def test_circulants_are_recognized_and_have_the_spectrum_of_numpy(matrix):
    values, dense = spectral.circulant_spectrum(matrix), np.linalg.eigvals(matrix.toarray())
    assert values is not None
    assert values[0] == pytest.approx(1)
    # circulants are normal: eigenvalues move by rounding only
    distances = np.abs(values[:, None] - dense[None, :])
    assert max(distances.min(axis=0).max(), distances.min(axis=1).max()) < 1e-12
    if second.second_modulus(matrix).solver != "components":
        assert second.second_modulus(matrix).value == pytest.approx(dense_second(matrix), abs=1e-12)


@given(matrix=circulants(), data=st.data())
def test_any_other_entry_is_noticed(matrix, data):
    place = data.draw(st.integers(0, matrix.nnz - 1))
    changed = matrix.copy()
    changed.data[place] *= 1 + 1e-9
    assert matrix.shape[0] == 1 or spectral.circulant_spectrum(changed) is None
    row = int(np.searchsorted(matrix.indptr, place, side="right")) - 1
    moved = matrix.toarray()
    moved[row] = np.roll(moved[row], 1)
    if not np.array_equal(moved[row], matrix.toarray()[row]):
        assert spectral.circulant_spectrum(sparse.csr_array(moved)) is None


def test_tiny_entries_are_not_taken_for_rounding():
    dense = np.zeros((6, 6))
    dense[np.arange(6), (np.arange(6) + 1) % 6] = dense[np.arange(6), (np.arange(6) + 2) % 6] = 1
    assert spectral.circulant_spectrum(sparse.csr_array(dense)) is not None
    assert spectral.circulant_spectrum(sparse.csr_array(1e-20 * dense)) is not None
    dense[1, 3], dense[1, 5] = 0, 1e-16  # as many entries as the other rows
    assert spectral.circulant_spectrum(sparse.csr_array(dense)) is None
    assert spectral.circulant_spectrum(sparse.csr_array(1e-20 * np.triu(np.ones((6, 6))))) is None


@pytest.mark.parametrize("rule", [pull, push])
def test_arnoldi_on_weights_that_are_not_doubly_stochastic(rule, monkeypatch):
    W = rule(topologies.random_in(300, 9, seed=0).at(0))
    assert not W.is_doubly_stochastic
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 10)
    assert W.slem_solution.solver == "arnoldi"
    # of the vector of W itself, not of W without its eigenvalue 1
    assert W.slem_solution.residual < 1e-10
    assert W.slem == pytest.approx(dense_second(W.weights), abs=1e-9)


@pytest.mark.parametrize(
    ("graph", "solver"),
    [
        (topologies.ring(200), "circulant DFT"),
        (topologies.exponential(200), "circulant DFT"),
        (topologies.exponential(200, directed=True), "circulant DFT"),
        (relabelled(topologies.ring(200)), "dense"),
        (relabelled(topologies.exponential(200, directed=True)), "dense"),
        (topologies.torus(200), "dense"),
        (topologies.random_cliques(20, 5, seed=0), "components"),
        (from_edges([], 1), "components"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_solver_of_small_graphs(graph, solver):
    W = mixing.metropolis_or_uniform(graph)
    assert W.slem_solution.solver == solver
    assert W.slem == W.slem_solution.value
    assert W.slem_solution is W.slem_solution  # computed once
    assert W.slem_solution.residual <= 200 * 2 * EPS
    if graph.n > 1:
        assert W.slem == pytest.approx(dense_second(W.weights), abs=1e-9)


@pytest.mark.parametrize(
    "graph", [topologies.ring(4000), topologies.exponential(3000), topologies.ring(10_000)]
)
def test_order_of_nodes_changes_the_solver_but_not_the_value(graph):
    ordered = mixing.metropolis_hastings(graph).slem_solution
    shuffled = mixing.metropolis_hastings(relabelled(graph)).slem_solution
    assert ordered.solver == "circulant DFT"
    assert shuffled.solver in ("lanczos", "shift-invert")
    assert shuffled.value == pytest.approx(ordered.value, abs=1e-12)
    assert ordered.residual < 1e-13
    assert shuffled.residual < 1e-8


def test_residual_is_that_of_the_vector_and_bounds_the_error():
    weights = mixing.metropolis_hastings(topologies.random_regular(1600, 4, seed=0)).weights
    values = np.linalg.eigvalsh(weights.toarray())
    found = second.second_modulus(weights)
    assert found.solver == "lanczos"
    assert 0 < found.residual < 1e-8
    assert abs(found.value - np.sort(np.abs(values))[-2]) <= found.residual


def test_negative_end_of_the_spectrum_is_found():
    """Bipartite, so the graph's eigenvalues come as x and -x; a small self-weight leaves -0.98."""
    half = topologies.random_regular(900, 6, seed=0).to_scipy() / 6
    bipartite = sparse.block_array([[None, half], [half, None]])
    weights = sparse.csr_array(0.01 * sparse.eye_array(1800) + 0.99 * bipartite)
    found = second.second_modulus(weights)
    assert found.solver == "lanczos"
    assert found.value == pytest.approx(0.98, abs=1e-12)


@pytest.mark.parametrize("n", [1600, 1601])
@pytest.mark.slow
def test_lanczos_stops_where_the_krylov_space_ends(n):
    """A star has three distinct eigenvalues, a complete bipartite graph four."""
    star = mixing.metropolis_hastings(topologies.star(n)).slem_solution
    assert (star.solver, star.value) == ("lanczos", pytest.approx(1 - 1 / n, abs=1e-12))
    graph = topologies.complete_bipartite(n, n // 2)
    W = mixing.max_degree(graph)
    assert W.slem == pytest.approx(dense_second(W.weights), abs=1e-9)


@pytest.mark.slow
def test_a_hundred_thousand_nodes():
    """A dense matrix would take 80 GB. Friedman's bound holds for almost all 10-regular graphs."""
    found = mixing.metropolis_hastings(topologies.random_regular(100_000, 10, seed=0)).slem_solution
    assert found.solver == "lanczos"
    assert found.residual < 1e-8
    assert (1 + 2 * 3 * 0.99) / 11 < found.value < (1 + 2 * 3 * 1.01) / 11
    n = 100_000
    ring = mixing.metropolis_hastings(topologies.ring(n)).slem_solution
    assert ring.value == pytest.approx((1 + 2 * np.cos(2 * np.pi / n)) / 3, abs=1e-15)
    torus = mixing.metropolis_hastings(topologies.torus(10_000)).slem_solution
    assert torus.value == pytest.approx((3 + 2 * np.cos(2 * np.pi / 100)) / 5, abs=1e-12)


def test_all_eigenvalues_of_large_circulants():
    W = mixing.metropolis_hastings(topologies.ring(20_000))
    expected = np.sort((1 + 2 * np.cos(2 * np.pi * np.arange(20_000) / 20_000)) / 3)[::-1]
    assert np.isrealobj(W.eigenvalues)
    assert np.allclose(W.eigenvalues, expected, rtol=0, atol=1e-13)


def test_sigma_of_large_matrices(monkeypatch):
    """Doubly stochastic, not normal: a ring's averaging times a shift in another order."""
    ring = mixing.metropolis_hastings(topologies.ring(301)).weights
    order = np.random.default_rng(0).permutation(301)
    shift = sparse.csr_array(np.eye(301)[np.argsort(order)[(order + 1) % 301]])
    slow = sparse.csr_array(shift @ (0.999 * sparse.eye_array(301) + 0.001 * ring))
    fast = sparse.csr_array(0.5 * shift + 0.5 * ring @ shift.T)
    circulant = mixing.uniform(topologies.exponential(300, directed=True)).weights
    for matrix, steps in ((slow, 3000), (slow, 20), (fast, 3000), (circulant, 3000)):
        expected = np.linalg.norm(matrix.toarray() - 1 / matrix.shape[0], 2)
        monkeypatch.setattr(spectral, "DENSE_LIMIT", 10)
        monkeypatch.setattr(spectral, "STEPS", steps)
        assert spectral.sigma(matrix) == pytest.approx(expected, abs=1e-9)


def test_spectra_are_drawn_of_as_many_nodes_as_the_message_says(monkeypatch):
    monkeypatch.setattr("topofl._linalg.spectral.DENSE_LIMIT", 12)
    mixing.metropolis_hastings(topologies.ring(12)).plot_spectrum()
    with pytest.raises(ValueError, match="must have at most 12 nodes, got n=13"):
        mixing.metropolis_hastings(topologies.ring(13)).plot_spectrum()
