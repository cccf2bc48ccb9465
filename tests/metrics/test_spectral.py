"""Spectral gaps of matrices and periods, and exact averaging."""

import math
from functools import partial

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse

from tests.metrics.graphs import (
    dcliques,
    exponential,
    irregular_digraph,
    one_peer,
    push,
    relabelled,
    ring,
    triangles,
)
from topofl import mixing, topologies
from topofl._linalg import second, spectral
from topofl.metrics import measured_contraction, sigma, slem, spectral_gap, window_product
from topofl.mixing import MixingMatrix
from topofl.topology import TopologyError, TopologySequence, as_topology, from_edges


@pytest.mark.parametrize("n", [4, 5, 16, 101])
def test_ring_has_its_closed_form(n):
    assert spectral_gap(ring(n)) == pytest.approx(
        1 - (1 + 2 * np.cos(2 * np.pi / n)) / 3, abs=1e-12
    )


@pytest.mark.parametrize("n", [3, 10, 100])
def test_star_has_gap_one_over_n(n):
    assert spectral_gap(as_topology(nx.star_graph(n - 1))) == pytest.approx(1 / n, abs=1e-12)


def test_complete_graph_averages_at_once():
    assert spectral_gap(as_topology(nx.complete_graph(7))) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("n", [2, 4, 16, 64])
def test_one_peer_exponential_averages_exactly_in_a_period_if_n_is_a_power_of_two(n):
    assert spectral_gap(one_peer(n)) == 1.0


def test_one_peer_exponential_otherwise_is_the_root_of_its_product():
    n, sequence = 100, one_peer(100)
    k = np.arange(
        1, n
    )  # circulants commute: eigenvalues of the product are the products of (1 + w^k 2^t) / 2
    moduli = np.prod([np.abs(1 + np.exp(-2j * np.pi * k * 2**t / n)) / 2 for t in range(7)], axis=0)
    assert slem(sequence) == pytest.approx(moduli.max() ** (1 / 7), rel=1e-9)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (ring(100), 0.998684),
        (as_topology(nx.grid_2d_graph(10, 10)), 0.979470),
        (exponential(100), 11 / 15),
        (as_topology(nx.star_graph(99)), 0.99),
        (as_topology(nx.complete_graph(100)), 0.0),
        (exponential(1000), 17 / 21),
        (dcliques(100), 0.918093),
        (dcliques(1000), 0.801215),
    ],
    ids=[
        "ring",
        "grid",
        "exponential",
        "star",
        "complete",
        "exponential-1000",
        "dcliques",
        "dcliques-1000",
    ],
)
def test_known_values_of_metropolis_hastings_weights(graph, expected):
    assert slem(graph) == pytest.approx(expected, abs=1e-6)


def test_a_single_node_and_disconnected_graphs():
    single, apart = from_edges([], 1), from_edges([(0, 1), (2, 3)], 4)
    assert slem(single) == 0.0
    assert slem(as_topology([single, single])) == 0.0
    assert slem(apart) == 1.0
    assert spectral_gap(as_topology([apart, apart])) == 0.0


def test_rounds_that_are_disconnected_can_average_together():
    pairs = as_topology([from_edges([(0, 1), (2, 3)], 4), from_edges([(0, 2), (1, 3)], 4)])
    assert [slem(pairs.at(t)) for t in (0, 1)] == [1.0, 1.0]
    assert spectral_gap(pairs) == 1.0


@pytest.mark.parametrize("rule", [None, push], ids=["pull", "push"])
def test_period_agrees_with_numpys_eigenvalues_of_the_product(rule):
    graphs = [
        irregular_digraph(),
        from_edges([(i, (i + 1) % 6) for i in range(6)], 6, directed=True),
    ]
    factors = [(rule or mixing.metropolis_or_uniform)(graph).weights.toarray() for graph in graphs]
    second = np.sort(np.abs(np.linalg.eigvals(factors[1] @ factors[0])))[-2]
    assert slem(as_topology(graphs), weights=rule) == pytest.approx(second**0.5, rel=1e-9)


def test_a_period_of_equal_matrices_has_the_rate_of_one():
    matrix = mixing.metropolis_hastings(ring(9))
    assert slem([matrix] * 3) == pytest.approx(matrix.slem, rel=1e-12)
    assert slem(mixing.uniform(ring(9))) == pytest.approx(matrix.slem, rel=1e-12)


def test_long_periods_do_not_underflow():
    matrix = mixing.metropolis_hastings(as_topology(nx.star_graph(3)))
    other = mixing.lazy(matrix)  # same eigenvectors, so rates multiply: eigenvalues 3/4 and 7/8
    assert slem([matrix, other] * 4000) == pytest.approx((3 / 4 * 7 / 8) ** 0.5, rel=1e-9)


def test_large_periods_agree_with_the_dense_computation(monkeypatch):
    sequence = as_topology([relabelled(one_peer(50).at(t)) for t in range(6)])
    digraph = as_topology([irregular_digraph(), irregular_digraph()])
    dense = [slem(sequence), slem(digraph), slem(digraph, weights=push)]
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 1)
    assert [slem(sequence), slem(digraph), slem(digraph, weights=push)] == pytest.approx(
        dense, rel=1e-7
    )
    assert slem(as_topology([relabelled(one_peer(64).at(t)) for t in range(6)])) == 0.0


@pytest.mark.parametrize("n", [3, 12, 50, 64])
def test_periods_of_circulants_equal_the_same_graphs_in_another_order(n):
    sequence = one_peer(n)
    period = sequence.period
    shuffled = as_topology(
        [relabelled(sequence.at(t)) for t in range(period)]
    )  # one order for all rounds
    matrices = [mixing.uniform(shuffled.at(t)).weights for t in range(period)]
    assert n == 3 or spectral.circulant_spectrum(matrices[-1]) is None
    assert slem(sequence) == pytest.approx(slem(shuffled), rel=1e-9)
    assert slem(sequence, weights=push) == pytest.approx(slem(shuffled), rel=1e-9)


def test_period_of_a_hundred_thousand_nodes_has_its_closed_form():
    n, sequence = 100_000, topologies.one_peer_exponential(100_000)
    k = np.arange(1, n)
    logs = sum(
        np.log(np.maximum(np.abs(np.cos(np.pi * (k * 2**t % n) / n)), 1e-300)) for t in range(17)
    )
    assert slem(sequence) == pytest.approx(np.exp(logs.max() / 17), rel=1e-9)


def test_disconnected_circulants_never_average():
    even = from_edges([(i, (i + 2) % 8) for i in range(8)], 8)
    assert slem(as_topology([even, even])) == 1.0


def test_large_one_peer_exponential_needs_no_dense_matrix():
    assert spectral_gap(one_peer(4096)) == 1.0


def test_large_periods_that_do_not_converge_say_what_to_do(monkeypatch):
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 1)
    monkeypatch.setattr(second, "RESTARTS", 1)
    matrix = mixing.metropolis_hastings(relabelled(ring(3000)))
    with pytest.raises(TopologyError, match="measured_contraction"):
        slem([matrix, mixing.lazy(matrix)])


def test_sigma_is_slem_for_symmetric_weights():
    assert sigma(ring(12)) == pytest.approx(slem(ring(12)), abs=1e-12)


def test_sigma_exceeds_slem_for_doubly_stochastic_weights_that_are_not_normal():
    permutations = [np.eye(3)[list(p)] for p in ([1, 0, 2], [1, 2, 0], [0, 1, 2])]
    matrix = mixing.from_weights(
        0.5 * permutations[0] + 0.3 * permutations[1] + 0.2 * permutations[2]
    )
    expected = np.linalg.norm(matrix.weights.toarray() - 1 / 3, 2)
    assert sigma(matrix) == pytest.approx(expected, rel=1e-12)
    assert sigma(matrix) > slem(matrix) + 0.05


def test_one_step_of_one_peer_exponential_does_not_contract():
    assert sigma(one_peer(8).at(2)) == pytest.approx(1.0)


@pytest.mark.parametrize("rule", [None, push])
def test_sigma_refuses_weights_that_are_not_doubly_stochastic(rule):
    with pytest.raises(TopologyError, match="doubly stochastic"):
        sigma(irregular_digraph(), weights=rule)


def test_sigma_refuses_sequences():
    with pytest.raises(TypeError, match=r"x\.at\(t\)"):
        sigma(one_peer(8))


@pytest.mark.parametrize(
    "metric", [slem, spectral_gap, partial(measured_contraction, rounds=5, seed=0)]
)
def test_refusals_common_to_all(metric):
    matrix = mixing.metropolis_hastings(ring(5))
    for x in (np.eye(3), nx.cycle_graph(3), [], [matrix, ring(5)], sparse.eye_array(3), None):
        with pytest.raises(TypeError, match="`x`"):
            metric(x)
    with pytest.raises(ValueError, match="`x` must hold matrices of one size"):
        metric([matrix, mixing.metropolis_hastings(ring(6))])
    with pytest.raises(ValueError, match="`weights` must be None"):
        metric(matrix, weights=push)
    for rule in ("metropolis", lambda graph: graph.to_scipy()):
        with pytest.raises(TypeError, match="`weights`"):
            metric(ring(5), weights=rule)
    with pytest.raises(TopologyError, match="column-stochastic in all"):
        metric([mixing.uniform(irregular_digraph()), push(irregular_digraph())])


def test_sequences_without_a_period_have_no_gap_but_can_be_measured():
    sequence = TopologySequence(5, lambda t: ring(5), name="endless")
    for metric in (slem, spectral_gap):
        with pytest.raises(TopologyError, match=r"endless has no period.*measured_contraction"):
            metric(sequence)
    assert measured_contraction(sequence, rounds=400, seed=0) == pytest.approx(
        slem(ring(5)), rel=1e-9
    )


def test_metropolis_hastings_refuses_a_digraph_and_the_default_takes_pull():
    with pytest.raises(TopologyError, match="undirected"):
        slem(irregular_digraph(), weights=mixing.metropolis_hastings)
    assert slem(irregular_digraph()) == mixing.uniform(irregular_digraph(), direction="pull").slem


def test_averaging_that_is_exact_after_two_periods_has_slem_zero() -> None:
    matchings = topologies.matchings(topologies.torus(16))
    once, twice = (window_product(matchings, rounds=4 * k) for k in (1, 2))
    assert not once.is_uniform_mean
    assert twice.is_uniform_mean  # the one eigenvalue, 0, is defective: computed ones would be 1e-9
    assert slem(matchings) == 0


@pytest.mark.parametrize("n", [8, 32, 256])
def test_exact_averaging_by_a_nilpotent_matrix_is_recognized(n: int) -> None:
    # de Bruijn weights: row i takes half of 2 i and of 2 i + 1; all eigenvalues but one are 0, in
    # large Jordan blocks.
    rows = np.repeat(np.arange(n), 2)
    W = mixing.from_weights(
        sparse.csr_array((np.full(2 * n, 0.5), (rows, np.arange(2 * n) % n)), shape=(n, n))
    )
    assert slem(W) == slem([W, W]) == slem([W, W, W]) == 0
    assert slem(mixing.lazy(W, share=0.01)) == pytest.approx(
        0.01, abs=1e-12
    )  # as defective, and not taken for 0


def test_periods_of_pushes_multiply_in_chronological_order() -> None:
    pushes = [
        mixing.uniform(topologies.random_out(7, 2, seed=seed).at(0), direction="push")
        for seed in (1, 2, 5)
    ]
    product = pushes[2].weights @ pushes[1].weights @ pushes[0].weights
    other = pushes[0].weights @ pushes[1].weights @ pushes[2].weights
    moduli, wrong = (np.sort(np.abs(np.linalg.eigvals(P.toarray())))[-2] for P in (product, other))
    assert slem(pushes) == pytest.approx(moduli ** (1 / 3), rel=1e-9)
    assert abs(wrong - moduli) > 1e-3


def test_large_matrices_whose_smallest_eigenvalue_is_the_slem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Bipartite, of good expansion, and next to nothing kept: lambda_n is far nearer to -1 than
    # lambda_2 to 1.
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
        monkeypatch.setattr(second, "lanczos", lambda apply, n: None)  # it gives up


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
@pytest.mark.slow
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
