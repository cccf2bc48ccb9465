"""Exact averaging after finitely many rounds is recognized and distinguished from small rates."""

import math

import numpy as np
import pytest
import scipy.sparse as sparse

from tests.metrics.graphs import triangles
from topofl import mixing, topologies
from topofl._linalg import spectral
from topofl.metrics import slem
from topofl.mixing import MixingMatrix
from topofl.topology import TopologyError


def de_bruijn(n: int, symbols: int = 2) -> sparse.csr_array:
    """Return weights whose row i averages nodes s i, s i + 1, ...; exact after log_s(n) rounds."""
    columns = np.arange(symbols * n) % n
    return sparse.csr_array(
        (np.full(symbols * n, 1 / symbols), (np.repeat(np.arange(n), symbols), columns)), (n, n)
    )


def joined_to_a_pair(n: int) -> MixingMatrix:
    """Return De Bruijn rows of weight 0.4 and a pair that keeps 0.0012 of its difference."""
    dense = np.full((n + 2, n + 2), 0.8 / n)
    dense[:n, :n] = 0.8 * de_bruijn(n).toarray()
    dense[:, n:] = 0.1
    dense[n:, n:] = [[0.1006, 0.0994], [0.0994, 0.1006]]
    return mixing.from_weights(dense)


@pytest.mark.parametrize("limit", [1500, 10])
@pytest.mark.parametrize(("n", "symbols"), [(64, 2), (1024, 2), (729, 3)])
def test_exact_averaging_is_recognized_by_structure(n, symbols, limit, monkeypatch) -> None:
    monkeypatch.setattr(spectral, "DENSE_LIMIT", limit)
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
def test_a_small_eigenvalue_among_zeros_is_distinguished(n, limit, monkeypatch) -> None:
    monkeypatch.setattr(spectral, "DENSE_LIMIT", limit)
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
    monkeypatch.setattr(spectral, "SPECTRUM_LIMIT", 100)
    remedy = (
        "proven for weights that are fractions with denominators up to 1,000,000; "
        "use metrics.measured_contraction"
    )
    with pytest.raises(
        TopologyError, match=rf"is 0 or below rounding, .* distinguished for n=66; .*{remedy}"
    ):
        slem([W] * 9)


def real_weights(size: int, seed: int = 0) -> np.ndarray:
    weights = np.random.default_rng(seed).random(size) + 0.1
    return weights / weights.sum()


def shift_register(n: int, weights: np.ndarray) -> sparse.csr_array:
    """Return a De Bruijn graph with a weight per symbol; exact after as many rounds as letters."""
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
        match=r"distinguished from a 0 perturbed by rounding; .* fractions with denominators",
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
    """A matrix whose rows are equal has rank one for any weights."""
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
    """With eigenvalues 1, 0.001 (t + 1), 0 in a common basis, the rate is a geometric mean."""
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
