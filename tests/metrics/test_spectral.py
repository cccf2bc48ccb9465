"""Rates of matrices and periods: exact averaging, classes of nodes, and large matrices."""

import math

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse

from tests.rows.metrics import ONE_PEER, push, relabelled, triangles
from topofl import mixing, topologies
from topofl._linalg import second, spectral
from topofl._linalg.nilpotent import averages_exactly
from topofl.metrics import slem, spectral_gap, window_product
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError, as_topology, from_edges

# Periods


@pytest.mark.parametrize("n", [100, 100_000])
def test_one_peer_exponential_is_the_root_of_its_product(n):
    """Circulants commute, so that eigenvalues of the product are products of (1 + w^k 2^t) / 2."""
    k, sequence = np.arange(1, n), ONE_PEER(n)
    angles = [np.pi * (k * 2**t % n) / n for t in range(sequence.period)]
    logs = sum(np.log(np.maximum(np.abs(np.cos(angle)), 1e-300)) for angle in angles)
    assert slem(sequence) == pytest.approx(np.exp(logs.max() / sequence.period), rel=1e-9)


@pytest.mark.parametrize("n", [3, 12, 50, 64])
def test_periods_of_circulants_equal_the_same_graphs_in_another_order(n):
    period = [ONE_PEER(n).at(t) for t in range(ONE_PEER(n).period)]
    shuffled = as_topology(relabelled(period))  # one order for all rounds
    last = mixing.uniform(shuffled.at(len(period) - 1)).weights
    assert n == 3 or spectral.circulant_spectrum(last) is None
    for weights in (None, push):
        assert slem(ONE_PEER(n), weights=weights) == pytest.approx(slem(shuffled), rel=1e-9)
    assert spectral_gap(shuffled) == 1 - slem(shuffled)


def test_large_periods_in_any_order_average_exactly(monkeypatch):
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 1)
    assert slem(as_topology(relabelled([ONE_PEER(64).at(t) for t in range(6)]))) == 0.0


@pytest.mark.slow
def test_long_periods_do_not_underflow():
    matrix = mixing.metropolis_hastings(topologies.star(4))
    other = mixing.lazy(matrix)  # same eigenvectors, so rates multiply: eigenvalues 3/4 and 7/8
    assert slem([matrix, other] * 4000) == pytest.approx((3 / 4 * 7 / 8) ** 0.5, rel=1e-9)


def test_large_periods_that_do_not_converge_say_what_to_do(monkeypatch):
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 1)
    monkeypatch.setattr(second, "RESTARTS", 1)
    matrix = mixing.metropolis_hastings(relabelled(topologies.ring(3000)))
    with pytest.raises(TopologyError, match="measured_contraction"):
        slem([matrix, mixing.lazy(matrix)])


@pytest.mark.parametrize("rounds", [2, 5, 10])
def test_a_small_rate_of_a_period_of_different_matrices(rounds):
    """With eigenvalues 1, 0.001 (t + 1), 0 in a common basis, the rate is a geometric mean."""
    n, rng = 30, np.random.default_rng(0)
    basis = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, 1))]))[0]
    period = [mixing.from_weights((basis * [1, 0.001 * (t + 1)]) @ basis.T) for t in range(rounds)]
    expected = 0.001 * math.factorial(rounds) ** (1 / rounds)
    assert slem(period) == pytest.approx(expected, rel=1e-9)


# Exact averaging


def de_bruijn(n: int, symbols: int = 2) -> sparse.csr_array:
    """Return weights whose row i averages nodes s i, s i + 1, ...; exact after log_s(n) rounds."""
    columns = np.arange(symbols * n) % n
    rows = np.repeat(np.arange(n), symbols)
    return sparse.csr_array((np.full(symbols * n, 1 / symbols), (rows, columns)), (n, n))


def real_weights(size: int) -> np.ndarray:
    weights = np.random.default_rng(0).random(size) + 0.1
    return weights / weights.sum()


def shift_register(n: int) -> sparse.csr_array:
    """Return a De Bruijn graph with a weight per symbol, not a fraction; exact as well."""
    matrix = de_bruijn(n, 3)
    return sparse.csr_array((np.tile(real_weights(3), n), matrix.indices, matrix.indptr), (n, n))


def perturbed(weights: sparse.csr_array, size: float) -> MixingMatrix:
    weights = weights.copy()
    weights.data *= 1 + size * np.random.default_rng(0).standard_normal(weights.nnz)
    return MixingMatrix(weights)


def joined_to_a_pair(n: int) -> MixingMatrix:
    """Return De Bruijn rows of weight 0.4 and a pair that keeps 0.0012 of its difference."""
    dense = np.full((n + 2, n + 2), 0.8 / n)
    dense[:n, :n] = 0.8 * de_bruijn(n).toarray()
    dense[:, n:] = 0.1
    dense[n:, n:] = [[0.1006, 0.0994], [0.0994, 0.1006]]
    return mixing.from_weights(dense)


@pytest.mark.parametrize("limit", [1500, 10])
@pytest.mark.parametrize(("n", "symbols"), [(8, 2), (64, 2), (1024, 2), (729, 3)])
def test_exact_averaging_is_recognized_by_structure(n, symbols, limit, monkeypatch):
    """All eigenvalues but one are 0, in large Jordan blocks, of which computed ones are not 0."""
    monkeypatch.setattr(spectral, "DENSE_LIMIT", limit)
    W, steps = mixing.from_weights(de_bruijn(n, symbols)), round(math.log(n, symbols))
    power = np.linalg.matrix_power(W.weights.toarray(), steps)
    np.testing.assert_allclose(power, 1 / n, rtol=0, atol=4 * steps * np.finfo(float).eps / n)
    assert W.slem == slem([W, W]) == slem([W] * 7) == 0
    assert W.slem_solution.solver == ("dense" if limit > n else "fractions")
    if n <= 64:  # as defective, and not taken for 0
        assert slem(mixing.lazy(W, share=0.01)) == pytest.approx(0.01, abs=1e-12)


def test_exact_averaging_of_a_hundred_thousand_nodes():
    assert mixing.from_weights(de_bruijn(2**17)).slem_solution.solver == "fractions"


def test_averaging_that_is_exact_after_two_periods_has_slem_zero():
    matchings = topologies.matchings(topologies.torus(16))
    once, twice = (window_product(matchings, rounds=4 * k) for k in (1, 2))
    assert not once.is_uniform_mean
    assert twice.is_uniform_mean  # the one eigenvalue, 0, is defective: computed ones would be 1e-9
    assert slem(matchings) == 0


@pytest.mark.parametrize("limit", [1500, 30])
@pytest.mark.parametrize("n", [32, 64, 128])
def test_a_small_eigenvalue_among_zeros_is_distinguished(n, limit, monkeypatch):
    monkeypatch.setattr(spectral, "DENSE_LIMIT", limit)
    W, difference = joined_to_a_pair(n), np.zeros(n + 2)
    difference[n:] = 1, -1
    np.testing.assert_allclose(W @ difference, 0.0012 * difference, atol=1e-16)
    assert W.slem == pytest.approx(0.0012, abs=1e-12)


def test_a_small_eigenvalue_of_a_long_period_is_not_taken_for_zero(monkeypatch):
    exact = joined_to_a_pair(64)
    inexact = perturbed(exact.weights, 1e-15)  # no fractions, no equal rows
    for W in (exact, inexact):
        for rounds in (1, 2, 5, 9):  # 0.0012^9 is 5e-27
            assert slem([W] * rounds) == pytest.approx(0.0012, rel=1e-6)
    monkeypatch.setattr(spectral, "SPECTRUM_LIMIT", 100)
    remedy = "denominators up to 1,000,000; use metrics.measured_contraction"
    with pytest.raises(TopologyError, match=rf"0 or below rounding, .* for n=66; .*{remedy}"):
        slem([inexact] * 9)


def test_exact_averaging_with_weights_that_are_no_fractions():
    weights, order = shift_register(3**8), np.random.default_rng(0).permutation(3**8)
    for W in (MixingMatrix(weights), MixingMatrix(sparse.csr_array(weights[order][:, order]))):
        assert (W.slem, W.slem_solution.solver) == (0, "equal rows")
        assert slem([W] * 3) == slem([W] * 9) == 0


def test_exact_averaging_that_rounding_hides_is_refused():
    W = perturbed(shift_register(3**8), 1e-14)
    with pytest.raises(TopologyError, match=r"from a 0 perturbed by rounding; .* fractions with"):
        _ = W.slem
    with pytest.raises(TopologyError, match=r"0 or below rounding, .* fractions with denominators"):
        slem([W] * 3)


def test_nodes_with_equal_rows_are_merged_and_the_rest_is_solved():
    solution = joined_to_a_pair(2048).slem_solution
    assert solution.value == pytest.approx(0.0012, abs=1e-15)
    assert solution.residual < 1e-14


@pytest.mark.parametrize(("n", "rounds"), [(200, 1), (200, 9), (1000, 1), (2000, 1)])
@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.slow
def test_one_weighted_average_makes_a_period_exact(n, rounds, is_whole):
    """A matrix whose rows are equal has rank one for any weights."""
    sizes = np.random.default_rng(0).integers(5000, 10_000, n) if is_whole else real_weights(n)
    W, average = mixing.metropolis_hastings(topologies.ring(n)), mixing.average_of(sizes)
    assert slem([W] * rounds + [average]) == slem([average] + [W] * rounds) == 0


@pytest.mark.parametrize("n", [64, 256])
def test_inexact_weights_of_a_period_that_averages_exactly(n):
    graphs = [ONE_PEER(n).at(t) for t in range(ONE_PEER(n).period)]
    assert slem([perturbed(mixing.uniform(graph).weights, 1e-15) for graph in graphs]) == 0


def test_weights_that_are_no_fractions_are_not_proven_exact():
    exact = de_bruijn(16)
    assert averages_exactly([exact])
    assert averages_exactly([exact, exact])
    rows = exact.toarray()
    rows[3, 6:8] = math.pi / 8, 1 - math.pi / 8
    assert not averages_exactly([sparse.csr_array(rows)])
    assert not averages_exactly([joined_to_a_pair(16).weights])
    assert not averages_exactly([mixing.uniform(triangles(9)).weights])


# Strongly connected classes

SIZES = [399, 1500, 1503, 1602]
"""Numbers of nodes below and above 1,500, the limit of dense decompositions."""


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
    classes = [sorted(one) for one in nx.strongly_connected_components(graph)]
    values = [np.linalg.eigvals(weights[nodes][:, nodes].toarray()) for nodes in classes]
    return np.sort(np.abs(np.concatenate(values)))


@pytest.mark.parametrize("n", [*SIZES, 99_999])
@pytest.mark.parametrize("direction", ["pull", "push"])
def test_triangles_in_a_row_have_the_spectrum_of_a_triangle(n, direction):
    """Each class has a row of 1/4 and two of 1/3: rank one, with eigenvalue 11/12, the trace."""
    for graph in (triangles(n), relabelled(triangles(n))):
        solution = mixing.uniform(graph, direction=direction).slem_solution
        assert solution.value == pytest.approx(11 / 12, abs=1e-13)
        assert solution.residual < 1e-14


@pytest.mark.parametrize("n", [1023, 1500, 1601, 100_000])
def test_trees_that_send_down_have_slem_a_half(n):
    up = np.stack([np.arange(1, n), (np.arange(1, n) - 1) // 2], axis=1)
    tree = from_edges(up[:, ::-1], n, directed=True)
    assert slem(tree) == slem(relabelled(tree)) == 0.5
    assert push(tree).slem == 1  # every leaf keeps what it has
    assert push(from_edges(up, n, directed=True)).slem == 0.5


def test_several_closed_classes_never_average():
    graph = from_edges([(0, 2), (1, 2), (2, 3), (3, 2)], 4, directed=True)
    assert mixing.uniform(graph).slem_solution.solver == "components"
    assert slem(graph) == slem(as_topology([graph, graph])) == 1


def test_a_large_class_that_is_not_closed():
    """One node of a regular graph of 1,600 nodes also receives from a source."""
    regular = topologies.random_regular(1600, 4, seed=0)
    edges = np.concatenate([regular.edge_index.T, [[1600, 0]]])
    W = mixing.uniform(from_edges(edges, 1601, directed=True))
    block = W.weights[:1600][:, :1600].toarray()
    expected = np.linalg.eigvalsh(np.sqrt(block * block.T))[-1]  # W is reversible there: similar
    assert W.slem_solution.solver == "arnoldi"
    assert W.slem == pytest.approx(expected, abs=1e-10)
    assert W.slem_solution.residual < 1e-9


@pytest.mark.parametrize(
    ("n", "solver"), [(1200, "dense"), (2000, "arnoldi"), (20_000, "shift-invert")]
)
@pytest.mark.slow
def test_a_path_below_a_source_mixes_slowly(n, solver):
    """With weights of 1/3 and a reflecting end, the SLEM is ``(1 + 2 cos(pi / (2 n + 1))) / 3``."""
    diagonal, below = np.full(n + 1, 1 / 3), np.full(n, 1 / 3)
    diagonal[[0, -1]] = 1, 2 / 3
    above = below.copy()
    above[0] = 0  # the source receives from none
    weights = sparse.diags_array([diagonal, above, below], offsets=[0, 1, -1])
    W = mixing.from_weights(sparse.csr_array(weights))
    assert W.slem_solution.solver == solver
    assert W.slem == pytest.approx((1 + 2 * math.cos(math.pi / (2 * n + 1))) / 3, abs=1e-12)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed", range(2))
def test_near_acyclic_digraphs_agree_with_numpys_blocks_in_any_order(n, seed):
    graph = near_acyclic(n, seed)
    W = mixing.uniform(graph)
    expected = spectrum_of_blocks(W.weights)
    assert nx.number_strongly_connected_components(graph.to_networkx()) > 10
    assert W.slem == pytest.approx(expected[-2], abs=1e-12)
    assert slem(relabelled(graph, seed)) == pytest.approx(W.slem, abs=1e-12)
    values = np.abs(W.eigenvalues)  # numpy's zeros may be defective
    np.testing.assert_allclose(values, expected[::-1], atol=1e-6)


@pytest.mark.parametrize("n", [300, 1602])
def test_a_period_of_equal_digraphs_has_the_rate_of_one(n):
    for graph, rounds, error in ((triangles(n), 3, 1e-12), (near_acyclic(n, 0), 2, 1e-9)):
        assert slem(as_topology([graph] * rounds)) == pytest.approx(slem(graph), abs=error)


@pytest.mark.slow
def test_all_eigenvalues_of_many_classes_of_a_large_graph():
    values = mixing.uniform(triangles(30_000)).eigenvalues
    assert values[0] == pytest.approx(1, abs=1e-13)
    np.testing.assert_allclose(np.abs(values[1:10_000]), 11 / 12, atol=1e-13)
    np.testing.assert_allclose(np.abs(values[10_000:]), 0, atol=1e-13)


# Iterations


def test_large_matrices_whose_smallest_eigenvalue_is_the_slem(monkeypatch):
    """Bipartite, and next to nothing kept: lambda_n is far nearer to -1 than lambda_2 to 1."""
    n, rng = 60, np.random.default_rng(0)
    half = sum(np.eye(n)[rng.permutation(n)] for _ in range(4)) / 4
    zero = np.zeros((n, n))
    W = mixing.lazy(mixing.from_weights(np.block([[zero, half], [half.T, zero]])), share=0.001)
    values = np.linalg.eigvalsh(W.weights.toarray())
    assert values[0] == pytest.approx(-0.998)
    assert values[-2] < 0.95
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 20)
    for solver in ("lanczos", "shift-invert"):
        solution = mixing.from_weights(W.weights).slem_solution
        assert (solution.solver, solution.value) == (solver, pytest.approx(0.998, abs=1e-9))
        monkeypatch.setattr(spectral, "lanczos", lambda apply, n: None)  # it gives up


def expander(n: int, k: int, seed: int) -> MixingMatrix:
    """Return weights with which every node averages itself and k random others."""
    senders = np.random.default_rng(seed).integers(n, size=n * k)
    received = sparse.csr_array((np.ones(n * k), (np.repeat(np.arange(n), k), senders)), (n, n))
    counts = received + sparse.eye_array(n)
    return MixingMatrix(sparse.csr_array(sparse.diags_array(1 / counts.sum(axis=1)) @ counts))


@pytest.mark.parametrize("is_found", [True, False], ids=["left vector", "decay"])
def test_directed_expanders_are_not_taken_for_exact_averaging(is_found, monkeypatch):
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
def test_a_directed_expander_above_the_limit_of_dense_spectra():
    """Six eigenvalues of the transpose are too close to converge, and n is too large for all."""
    W = expander(8000, 30, seed=1)
    assert W.n > spectral.SPECTRUM_LIMIT
    assert W.slem_solution.solver == "arnoldi"
    assert W.slem == pytest.approx(0.2082469169781907, abs=1e-10)  # with 40 values and 250 vectors
    # on some processors the first iteration stalls, and the second has this relative tolerance
    assert W.slem_solution.residual < spectral.TOLERANCE * W.slem


@pytest.mark.slow
def test_the_largest_of_many_eigenvalues_on_the_rim_of_a_disc(monkeypatch):
    """Iterations for one eigenvalue converge to 0.5393, which is inside the disc."""
    W, start = expander(4000, 5, seed=2), np.random.default_rng(1).standard_normal(4000)
    operator = sparse.linalg.LinearOperator((4000,) * 2, lambda x: W @ (x - x.mean()), dtype=float)
    found = sparse.linalg.eigs(operator, k=12, ncv=200, v0=start, return_eigenvectors=False)
    expected = np.abs(found).max()
    assert expected > 0.5400
    monkeypatch.setattr(second, "second_near_one", None)  # nothing is factorized
    assert W.slem_solution.solver == "arnoldi"
    assert W.slem == pytest.approx(expected, abs=1e-9)
