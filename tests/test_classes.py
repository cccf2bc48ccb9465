"""Spectra of graphs with several strongly connected classes, and of exact averaging."""

import math

import mpmath
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import assume, given
from hypothesis import strategies as st

from topofl import mixing, topologies
from topofl._linalg import spectral
from topofl.metrics import slem, spectral_gap
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError, as_topology, from_edges

DIRECTIONS = ["pull", "push"]
SIZES = [399, 1500, 1503, 1602]
"""On both sides of 1,500 nodes, up to which matrices are decomposed densely."""


def relabelled(graph: Topology, seed: int = 0) -> Topology:
    order = np.random.default_rng(seed).permutation(graph.n)
    return from_edges(order[graph.edge_index.T], graph.n, directed=graph.is_directed)


def triangles(n: int) -> Topology:
    """Complete triangles in a row, each of which sends to the next."""
    first = np.arange(0, n, 3)
    inside = [
        np.stack([first + i, first + j], axis=1) for i in range(3) for j in range(3) if i != j
    ]
    between = np.stack([first[:-1] + 2, first[1:]], axis=1)
    return from_edges(np.concatenate([*inside, between]), n, directed=True)


def binary_tree(n: int) -> Topology:
    """Every node sends to its two children."""
    return from_edges(
        np.stack([(np.arange(1, n) - 1) // 2, np.arange(1, n)], axis=1), n, directed=True
    )


def near_acyclic(n: int, seed: int) -> Topology:
    """Edges from lower to higher nodes, and a few back over short distances."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(n, size=(3 * n, 2)), axis=1)
    back = rng.integers(n - 4, size=n // 8)
    back = np.stack([back + rng.integers(1, 4, size=len(back)), back], axis=1)
    edges = np.concatenate([ends, back])
    return from_edges(edges[edges[:, 0] != edges[:, 1]], n, directed=True)


def de_bruijn(n: int, symbols: int = 2) -> sparse.csr_array:
    """Row i averages nodes s i, s i + 1, ...: all equal after log_s(n) rounds."""
    columns = np.arange(symbols * n) % n
    return sparse.csr_array(
        (np.full(symbols * n, 1 / symbols), (np.repeat(np.arange(n), symbols), columns)), (n, n)
    )


def joined_to_a_pair(n: int) -> MixingMatrix:
    """De Bruijn rows of weight 0.4 and a pair that keeps 0.0012 of its difference."""
    dense = np.full((n + 2, n + 2), 0.8 / n)
    dense[:n, :n] = 0.8 * de_bruijn(n).toarray()
    dense[:, n:] = 0.1
    dense[n:, n:] = [[0.1006, 0.0994], [0.0994, 0.1006]]
    return mixing.from_weights(dense)


def spectrum_of_blocks(weights: sparse.csr_array) -> np.ndarray:
    """Moduli, ascending, of the eigenvalues of each strongly connected class by numpy."""
    graph = nx.from_scipy_sparse_array(weights, create_using=nx.DiGraph)
    blocks = [
        weights[sorted(c)][:, sorted(c)].toarray() for c in nx.strongly_connected_components(graph)
    ]
    return np.sort(np.abs(np.concatenate([np.linalg.eigvals(block) for block in blocks])))


def exact_weights(graph: Topology, direction: str) -> mpmath.matrix:
    """Uniform weights with 60 digits."""
    receives = (
        graph.to_scipy().toarray().T > 0 if direction == "pull" else graph.to_scipy().toarray() > 0
    )
    receives |= np.eye(graph.n, dtype=bool)
    return mpmath.matrix(
        [[mpmath.mpf(int(entry)) / int(row.sum()) for entry in row] for row in receives]
    )


def exact_slem(matrix: mpmath.matrix) -> float:
    """Return the second modulus with 60 digits; a zero in a Jordan block of order 6 leaves 10."""
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


# Closed forms


@pytest.mark.parametrize("n", [*SIZES, 99_999])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_triangles_in_a_row_have_the_spectrum_of_a_triangle(n: int, direction: str) -> None:
    """One row of 1/4 and two of 1/3, so of rank one: its eigenvalue is its trace, 11/12."""
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
    """A regular graph of 1,600 nodes, of which one also hears a source that hears nobody."""
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
def test_a_path_below_a_source_mixes_slowly(n: int, solver: str) -> None:
    """Thirds to each side and itself; the far end reflects: ``(1 + 2 cos(pi / (2 n + 1))) / 3``."""
    diagonal, on_kept_models = np.full(n + 1, 1 / 3), np.full(n, 1 / 3)
    diagonal[[0, -1]] = 1, 2 / 3
    above = on_kept_models.copy()
    above[0] = 0  # the source hears nobody
    W = mixing.from_weights(
        sparse.csr_array(sparse.diags_array([diagonal, above, on_kept_models], offsets=[0, 1, -1]))
    )
    assert W.slem_solution.solver == solver
    assert W.slem == pytest.approx((1 + 2 * math.cos(math.pi / (2 * n + 1))) / 3, abs=1e-12)


# Against 60 digits, numpy's blocks, and in another order


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


# Exact averaging


@pytest.mark.parametrize("limit", [1500, 10])
@pytest.mark.parametrize(("n", "symbols"), [(64, 2), (1024, 2), (729, 3)])
def test_exact_averaging_is_seen_by_its_structure(n, symbols, limit, monkeypatch) -> None:
    monkeypatch.setattr(spectral.limits, "DENSE_LIMIT", limit)
    W = mixing.from_weights(de_bruijn(n, symbols))
    steps = round(math.log(n, symbols))
    power = np.linalg.matrix_power(W.weights.toarray(), steps)
    np.testing.assert_allclose(
        power, 1 / n, rtol=0, atol=4 * steps * np.finfo(float).eps / n
    )  # it is exact
    assert W.slem == slem([W, W]) == slem([W] * 7) == 0
    assert W.slem_solution.solver == ("dense" if limit > n else "fractions")


def test_exact_averaging_of_a_hundred_thousand_nodes() -> None:
    assert mixing.from_weights(de_bruijn(2**17)).slem_solution.solver == "fractions"


@pytest.mark.parametrize("limit", [1500, 30])
@pytest.mark.parametrize("n", [32, 64, 128])
def test_a_small_eigenvalue_beside_zeros_is_not_taken_for_one_of_them(
    n, limit, monkeypatch
) -> None:
    monkeypatch.setattr(spectral.limits, "DENSE_LIMIT", limit)
    W = joined_to_a_pair(n)
    difference = np.zeros(n + 2)
    difference[n:] = 1, -1
    np.testing.assert_allclose(W @ difference, 0.0012 * difference, atol=1e-16)
    assert W.slem == pytest.approx(0.0012, abs=1e-12)


def test_a_small_eigenvalue_of_a_long_period_is_not_taken_for_zero(monkeypatch) -> None:
    W = joined_to_a_pair(64)
    for rounds in (1, 2, 5, 9):  # 0.0012^9 is 5e-27
        assert slem([W] * rounds) == pytest.approx(0.0012, rel=1e-6)
    inexact = joined_to_a_pair(64).weights.copy()
    inexact.data *= 1 + 1e-15 * np.random.default_rng(0).standard_normal(
        inexact.nnz
    )  # no fractions, no equal rows
    W = MixingMatrix(inexact)
    for rounds in (1, 2, 5, 9):
        assert slem([W] * rounds) == pytest.approx(0.0012, rel=1e-6)
    monkeypatch.setattr(spectral.limits, "SPECTRUM_LIMIT", 100)
    remedy = (
        "proven for weights that are fractions with denominators up to 1,000,000; "
        "use metrics.measured_contraction"
    )
    with pytest.raises(
        TopologyError, match=rf"0 or below rounding, .* distinguished for n=66; .*{remedy}"
    ):
        slem([W] * 9)


def expander(n: int, k: int, seed: int) -> MixingMatrix:
    """Every node averages itself and k random ones."""
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
        monkeypatch.setattr(spectral.limits, limit, 100)
    if not is_found:
        monkeypatch.setattr(spectral.asymmetric, "_left_vector", lambda rows, value: None)
    assert W.slem_solution.solver == "arnoldi"
    assert W.slem == pytest.approx(expected, abs=1e-10)


def test_a_directed_expander_above_the_limit_of_dense_spectra() -> None:
    """Six eigenvalues of its transpose are too close to converge; all are too many."""
    W = expander(8000, 30, seed=1)
    assert W.n > spectral.limits.SPECTRUM_LIMIT
    assert W.slem_solution.solver == "arnoldi"
    assert W.slem == pytest.approx(0.2082469169781907, abs=1e-10)  # with 40 values and 250 vectors
    assert W.slem_solution.residual < 1e-11


def test_the_largest_of_many_eigenvalues_on_the_rim_of_a_disc(monkeypatch) -> None:
    """Iterations for a single one settle on 0.5393, which is inside."""
    W = expander(4000, 5, seed=2)
    operator = sparse.linalg.LinearOperator(
        W.weights.shape, lambda x: W @ (x - x.mean()), dtype=float
    )
    start = np.random.default_rng(1).standard_normal(W.n)
    expected = np.abs(
        sparse.linalg.eigs(operator, k=12, ncv=200, v0=start, return_eigenvectors=False)
    ).max()
    assert expected > 0.5400
    monkeypatch.setattr(spectral.asymmetric, "second_near_one", None)  # nothing is factorized
    assert W.slem_solution.solver == "arnoldi"
    assert W.slem == pytest.approx(expected, abs=1e-9)


def real_weights(size: int, seed: int = 0) -> np.ndarray:
    weights = np.random.default_rng(seed).random(size) + 0.1
    return weights / weights.sum()


def shift_register(n: int, weights: np.ndarray) -> sparse.csr_array:
    """De Bruijn's graph with a weight per symbol: all agree after a word's length of rounds."""
    matrix = de_bruijn(n, len(weights))
    return sparse.csr_array((np.tile(weights, n), matrix.indices, matrix.indptr), (n, n))


def test_exact_averaging_with_weights_that_are_no_fractions() -> None:
    weights = shift_register(3**8, real_weights(3))
    order = np.random.default_rng(0).permutation(3**8)
    for W in (MixingMatrix(weights), MixingMatrix(sparse.csr_array(weights[order][:, order]))):
        assert (W.slem, W.slem_solution.solver) == (0, "equal rows")
        assert slem([W] * 3) == slem([W] * 9) == 0


def test_exact_averaging_that_rounding_hides_is_refused() -> None:
    weights = shift_register(3**8, real_weights(3))
    weights.data *= 1 + 1e-14 * np.random.default_rng(0).standard_normal(weights.nnz)
    W = MixingMatrix(weights)
    with pytest.raises(
        TopologyError,
        match=r"distinguished from a perturbed 0; .* fractions with denominators",
    ):
        _ = W.slem
    with pytest.raises(TopologyError, match=r"0 or below rounding, .* fractions with denominators"):
        slem([W] * 3)


def test_nodes_with_equal_rows_are_merged_and_the_rest_is_solved() -> None:
    solution = joined_to_a_pair(2048).slem_solution
    assert solution.value == pytest.approx(0.0012, abs=1e-15)
    assert solution.residual < 1e-14


@pytest.mark.parametrize(("n", "rounds"), [(200, 1), (200, 9), (1000, 1), (2000, 1)])
@pytest.mark.parametrize("is_whole", [True, False])
def test_one_weighted_average_makes_a_period_exact(n: int, rounds: int, is_whole: bool) -> None:
    """Whatever its weights: rows that are all equal have rank one."""
    sizes = np.random.default_rng(0).integers(5000, 10_000, n) if is_whole else real_weights(n)
    W, average = mixing.metropolis_hastings(topologies.ring(n)), mixing.average_of(sizes)
    assert slem([W] * rounds + [average]) == slem([average] + [W] * rounds) == 0


@pytest.mark.parametrize("n", [64, 256])
def test_inexact_weights_of_a_period_that_averages_exactly(n: int) -> None:
    rng, graphs = np.random.default_rng(0), topologies.one_peer_exponential(n)
    period = [mixing.uniform(graphs.at(t)).weights.toarray() for t in range(graphs.period)]
    assert (
        slem([mixing.from_weights(w * (1 + 1e-15 * rng.standard_normal(w.shape))) for w in period])
        == 0
    )


@pytest.mark.parametrize("rounds", [2, 5, 10])
def test_a_small_rate_of_a_period_of_different_matrices(rounds: int) -> None:
    """Eigenvalues 1, 0.001 (t + 1), 0 in one basis: the rate is the second's geometric mean."""
    n, rng = 30, np.random.default_rng(0)
    basis = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, 1))]))[0]
    period = [mixing.from_weights((basis * [1, 0.001 * (t + 1)]) @ basis.T) for t in range(rounds)]
    expected = 0.001 * math.factorial(rounds) ** (1 / rounds)
    assert slem(period) == pytest.approx(expected, rel=1e-9)


def test_weights_that_are_no_fractions_are_not_proven_exact() -> None:
    from topofl._linalg.nilpotent import averages_exactly

    exact = de_bruijn(16)
    assert averages_exactly([exact])
    assert averages_exactly([exact, exact])
    rows = exact.toarray()
    rows[3, 6:8] = math.pi / 8, 1 - math.pi / 8
    assert not averages_exactly([sparse.csr_array(rows)])
    assert not averages_exactly([joined_to_a_pair(16).weights])
    assert not averages_exactly([mixing.uniform(triangles(9)).weights])
