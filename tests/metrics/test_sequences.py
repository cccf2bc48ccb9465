"""Products of rounds and expectations over them, against closed forms and brute force."""

import math
from fractions import Fraction

import numpy as np
import pytest

from topofl import metrics, mixing, topologies
from topofl._linalg import spectral
from topofl.metrics import perron
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import TopologyError, from_edges


def push(graph) -> MixingMatrix:
    return mixing.uniform(graph, direction="push")


SWAP = mixing.from_weights(
    [[0, 1], [1, 0]], name="swap"
)  # bipartite without self-weights: the period-2 chain


def test_smallest_eigenvalue_closed_forms() -> None:
    for n in (4, 5, 9):
        expected = (1 + 2 * math.cos(2 * math.pi * (n // 2) / n)) / 3
        assert metrics.smallest_eigenvalue(topologies.ring(n)) == pytest.approx(expected, abs=1e-12)
    assert metrics.smallest_eigenvalue(SWAP) == -1
    assert metrics.smallest_eigenvalue(topologies.fully_connected(6)) == pytest.approx(0, abs=1e-12)
    assert metrics.smallest_eigenvalue(topologies.ring(1)) == 1
    for d in (2, 3, 4):  # hypercube with weights 1 / (d + 1): eigenvalues (1 + d - 2 k) / (1 + d)
        assert metrics.smallest_eigenvalue(topologies.hypercube(2**d)) == pytest.approx(
            (1 - d) / (1 + d), abs=1e-12
        )
    with pytest.raises(
        TopologyError, match=r"needs symmetric weights, .* is not symmetric; use metrics.slem"
    ):
        metrics.smallest_eigenvalue(topologies.exponential(7, directed=True))


@pytest.mark.parametrize("graph", [topologies.random_regular(200, 4, seed=0), topologies.ring(151)])
def test_smallest_eigenvalue_of_large_matrices(graph, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = metrics.smallest_eigenvalue(graph)
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 50)
    assert metrics.smallest_eigenvalue(graph) == pytest.approx(expected, abs=1e-9)


def test_window_product_multiplies_in_chronological_order() -> None:
    sequence = topologies.random_in(7, 2, seed=3)
    dense = [mixing.uniform(sequence.at(t)).weights.toarray() for t in range(6)]
    product = metrics.window_product(sequence, start=2, rounds=3)
    assert np.allclose(
        product.weights.toarray(), dense[4] @ dense[3] @ dense[2], rtol=0, atol=1e-15
    )
    assert (
        metrics.window_product(sequence, start=5, rounds=1).weights.toarray().tolist()
        == dense[5].tolist()
    )
    exponential = topologies.one_peer_exponential(16)
    for start in range(4):
        assert metrics.window_product(
            exponential, start=start, rounds=4
        ).is_uniform_mean  # from any start
    assert not metrics.window_product(exponential, rounds=3).is_uniform_mean


def test_product_contraction() -> None:
    ring = mixing.metropolis_hastings(topologies.ring(16))
    assert metrics.product_contraction(ring, rounds=10) == pytest.approx(ring.slem**10, abs=1e-12)
    assert metrics.product_contraction(topologies.one_peer_exponential(16), rounds=4) == 0
    assert metrics.product_contraction(
        topologies.one_peer_exponential(16), rounds=3, start=1
    ) == pytest.approx(1)
    assert metrics.product_contraction(SWAP, rounds=7) == pytest.approx(1)
    with pytest.raises(
        TopologyError,
        match=r"needs doubly stochastic rounds, .* is row stochastic; use metrics.dobr",
    ):
        metrics.product_contraction(topologies.random_in(9, 2, seed=0), rounds=2)


def test_product_of_partial_contractions_bounds_that_of_the_window() -> None:
    rounds = [
        mixing.metropolis_hastings(topologies.random_regular(12, 3, seed=seed)) for seed in range(5)
    ]
    whole = metrics.product_contraction(rounds, rounds=5)
    first, last = (
        metrics.product_contraction(rounds, start=s, rounds=k) for s, k in ((0, 2), (2, 3))
    )
    assert whole <= first * last + 1e-12
    assert whole >= metrics.slem(rounds) ** 5 - 1e-12


def test_expected_gap_of_static_weights_is_one_minus_sigma_squared() -> None:
    for graph in (
        topologies.ring(9),
        topologies.star(5),
        topologies.exponential(10, directed=True),
    ):
        assert metrics.expected_gap(graph) == pytest.approx(
            1 - metrics.sigma(graph) ** 2, abs=1e-12
        )
    for n in (5, 100):  # of 100 nodes, LAPACK fails to find a part of the spectrum
        assert metrics.expected_gap(topologies.fully_connected(n)) == pytest.approx(1)
    assert metrics.expected_gap(topologies.ring(1)) == 1
    assert metrics.expected_gap(SWAP) == pytest.approx(0, abs=1e-12)
    lonely = from_edges([(0, 1)], 3)
    assert metrics.expected_gap(lonely) == pytest.approx(0, abs=1e-12)


def test_expected_gap_of_a_period_is_that_of_the_mean_of_squares() -> None:
    n = 8
    matrices = [
        mixing.uniform(topologies.one_peer_exponential(n).at(t)).weights.toarray() for t in range(3)
    ]
    mean = sum(W.T @ W for W in matrices) / 3 - np.full((n, n), 1 / n)
    expected = 1 - np.linalg.eigvalsh(mean)[-1]
    assert metrics.expected_gap(topologies.one_peer_exponential(n)) == pytest.approx(
        expected, abs=1e-12
    )


@pytest.mark.parametrize("k", [2, 5, 10])
def test_expected_gap_of_random_pulls_is_the_exact_expectation(k: int) -> None:
    # By symmetry E[W^T (I - J) W] = c (I - J), c = E||(I - J) W||_F^2 / (n - 1); rows have k + 1
    # equal entries, and two rows agree in column j with a probability that is counted here.
    n, rounds = 12, 600
    both = (1 / (n - 1) ** 2) * (
        2 * k * (n - 1) + (n - 2) * k**2
    )  # expected common entries of two rows
    c = (n / (k + 1) - (n / (k + 1) + n * (n - 1) * both / (k + 1) ** 2) / n) / (n - 1)
    matrices = [mixing.uniform(topologies.random_in(n, k, seed=0).at(t)) for t in range(rounds)]
    gaps = [metrics.expected_gap(mixing.MixingSequence(n, matrices.__getitem__), rounds=rounds)]
    traces = [W.weights.toarray() for W in matrices]
    traces = [((W - W.mean(axis=0)) ** 2).sum() for W in traces]
    # The trace of the sample mean is unbiased; its largest eigenvalue is above the mean of its
    # eigenvalues.
    assert np.mean(traces) / (n - 1) == pytest.approx(
        c, abs=5 * np.std(traces) / (n - 1) / math.sqrt(rounds)
    )
    assert 1 - np.mean(traces) / (n - 1) - 0.15 * c < gaps[0] <= 1 - np.mean(traces) / (n - 1)


def test_expected_gap_asks_for_rounds_and_rows() -> None:
    sequence = topologies.random_in(9, 2, seed=0)
    with pytest.raises(
        TopologyError, match=r"`rounds` must be given, since random_in\(.*\) has no period"
    ):
        metrics.expected_gap(sequence)
    with pytest.raises(
        ValueError, match=r"`rounds` must be left out: ring\(n=5\) repeats after 1, got 3"
    ):
        metrics.expected_gap(topologies.ring(5), rounds=3)
    with pytest.raises(
        TopologyError,
        match=r"needs rows that sum to 1, .* column stochastic; use metrics.push_sum_c",
    ):
        metrics.expected_gap(sequence, rounds=3, weights=push)


def test_expected_gap_of_large_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    sequence = topologies.random_in(60, 3, seed=1)
    expected = metrics.expected_gap(sequence, rounds=20)
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 10)
    assert metrics.expected_gap(sequence, rounds=20) == pytest.approx(expected, abs=1e-9)


def brute_mixing_time(matrices: list[np.ndarray], epsilon: float, most: int = 3000) -> float:
    n = len(matrices[0])
    limit = np.eye(n)
    for t in range(3000 // len(matrices) * len(matrices)):
        limit = matrices[t % len(matrices)] @ limit
    by_rows = all(np.allclose(W.sum(axis=1), 1) for W in matrices)
    pi = limit[0] if by_rows else limit[:, 0]
    product = np.eye(n)
    for t in range(most):
        target = pi if by_rows else (product @ pi)[:, None]
        if 0.5 * np.abs(product - target).sum(axis=1 if by_rows else 0).max() <= epsilon:
            return t
        product = matrices[t % len(matrices)] @ product
    return math.inf


@pytest.mark.parametrize("epsilon", [0.25, 0.01])
@pytest.mark.parametrize(
    "x",
    [
        [mixing.metropolis_hastings(topologies.ring(11))],
        [mixing.uniform(topologies.star(6))],
        [push(topologies.star(6))],
        [
            mixing.uniform(topologies.exponential(6, directed=True)),
            mixing.uniform(topologies.tree(6)),
        ],
        [
            push(topologies.exponential(6, directed=True)),
            push(topologies.tree(6)),
            push(topologies.star(6)),
        ],
        [mixing.metropolis_hastings(topologies.path(12))],
    ],
)
def test_mixing_time_agrees_with_brute_force(x: list[MixingMatrix], epsilon: float) -> None:
    expected = brute_mixing_time([W.weights.toarray() for W in x], epsilon)
    assert metrics.mixing_time(x, epsilon=epsilon) == expected < math.inf


def exact_distances(weights: np.ndarray, rounds: int) -> list[Fraction]:
    """Return the exact largest total variation of a row from uniform after 0, 1, ... rounds."""
    n = len(weights)
    rows = np.array(
        [[Fraction(float(w)).limit_denominator(10**4) for w in row] for row in weights],
        dtype=object,
    )
    assert all(sum(row) == 1 for row in rows)
    product, distances = (
        np.array([[Fraction(int(i == j)) for j in range(n)] for i in range(n)], dtype=object),
        [],
    )
    for _ in range(rounds):
        distances.append(
            max(sum(abs(entry - Fraction(1, n)) for entry in row) for row in product) / 2
        )
        product = rows @ product
    return distances


@pytest.mark.parametrize("share", [None, 0.5, 0.1])
@pytest.mark.parametrize(
    "name", ["ring", "star", "path", "hypercube", "exponential", "fully_connected"]
)
def test_mixing_time_counts_a_distance_that_is_epsilon_exactly(
    name: str, share: float | None
) -> None:
    W = mixing.metropolis_hastings(getattr(topologies, name)(8))
    W = W if share is None else mixing.lazy(W, share=share)
    distances = exact_distances(W.weights.toarray(), 20)
    for distance in distances:
        if Fraction(1, 10**5) < distance < 1:
            expected = next(t for t, other in enumerate(distances) if other <= distance)
            assert metrics.mixing_time(W, epsilon=float(distance)) == expected
            assert metrics.mixing_time(
                W, epsilon=float(distance) * (1 - 1e-9)
            ) == expected + 1 + distances[expected + 1 :].count(distance)


def test_mixing_time_at_the_ends() -> None:
    assert metrics.mixing_time(SWAP) == math.inf
    assert metrics.mixing_time(mixing.lazy(SWAP)) == 1
    assert metrics.mixing_time(topologies.ring(1)) == 0
    assert metrics.mixing_time(topologies.fully_connected(9)) == 1
    assert metrics.mixing_time(topologies.one_peer_exponential(16), epsilon=1e-12) == 4
    with pytest.raises(TopologyError, match="is not unique: 2 groups"):
        metrics.mixing_time(from_edges([(0, 1)], 3))
    with pytest.raises(ValueError, match="`epsilon` must be between 0 and 1, got 1"):
        metrics.mixing_time(topologies.ring(4), epsilon=1)


def test_mixing_time_and_gap_bound_each_other() -> None:
    for graph in (
        topologies.ring(20),
        topologies.random_regular(20, 3, seed=0),
        topologies.tree(20),
    ):
        W = mixing.lazy(
            mixing.metropolis_hastings(graph)
        )  # reversible, lazy: Levin, Peres, Wilmer, 12.4 and 12.5
        relaxation, time = 1 / W.spectral_gap, metrics.mixing_time(W)
        assert (
            (relaxation - 1) * math.log(2) <= time <= math.ceil(relaxation * math.log(4 * graph.n))
        )


def test_large_graphs_are_refused_with_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perron, "PRODUCT_LIMIT", 5)
    with pytest.raises(TopologyError, match="products of several rounds are computed up to n=5"):
        metrics.window_product(topologies.ring(6), rounds=2)
    assert metrics.window_product(topologies.ring(6), rounds=1).n == 6
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 5)
    with pytest.raises(
        TopologyError, match=r"the mixing time is computed up to n=5, ring\(n=6\) has n=6"
    ):
        metrics.mixing_time(topologies.ring(6))


def test_recorded_sequences_are_used_to_their_end() -> None:
    matrices = [mixing.uniform(topologies.random_in(8, 3, seed=1).at(t)) for t in range(12)]
    recorded = MixingSequence(8, matrices.__getitem__, "a run", length=12)
    assert metrics.expected_gap(recorded) == metrics.expected_gap(matrices)
    assert metrics.b_connectivity(recorded) == metrics.b_connectivity(recorded, rounds=12)
    assert metrics.dobrushin(recorded, start=2) == metrics.dobrushin(matrices, start=2, rounds=10)
    assert metrics.b_connectivity(recorded, rounds=12) == metrics.b_connectivity(
        recorded.support(), rounds=12
    )
    with pytest.raises(ValueError, match="`rounds` must be between 1 and the recorded=12, got 13"):
        metrics.expected_gap(recorded, rounds=13)
    with pytest.raises(
        ValueError,
        match=r"`burn_in` \+ `rounds` must be at most the 12 rounds of a run, got 1 \+ 12",
    ):
        metrics.measured_contraction(recorded, rounds=12, burn_in=1, seed=0)
    with pytest.raises(ValueError, match="`weights` must be None if `x` has weights"):
        metrics.expected_gap(recorded, weights=mixing.metropolis_hastings)
    with pytest.raises(TopologyError, match="a run has no period"):
        metrics.slem(recorded)
    with pytest.raises(ValueError, match="every matrix of m must have n=3 nodes, round 0 has 8"):
        MixingSequence(3, matrices.__getitem__, "m").at(0)


@pytest.mark.parametrize(("d", "epsilon"), [(1e-6, 1e-9), (1e-8, 1e-9), (1e-10, 1e-6)])
def test_mixing_time_of_very_slow_chains(d: float, epsilon: float) -> None:
    W = mixing.from_weights([[1 - d, d], [2 * d, 1 - 2 * d]])  # TV of t rounds: 2/3 (1 - 3 d)^t
    exact = math.ceil(math.log(epsilon * 3 / 2) / math.log1p(-3 * d))
    assert metrics.mixing_time(W, epsilon=epsilon) == pytest.approx(exact, rel=1e-5)


def test_values_of_minus_one_zero_and_one_are_exact() -> None:
    for k, n in ((2, 5), (3, 7), (2, 9)):  # bipartite, regular, no self-weights
        half = sum(np.roll(np.eye(n), s, axis=0) for s in range(k)) / k
        W = mixing.from_weights(np.block([[np.zeros((n, n)), half], [half.T, np.zeros((n, n))]]))
        assert metrics.smallest_eigenvalue(W) == -1
        assert metrics.sigma(W) <= 1
    for n in range(5, 40):
        turn = mixing.from_weights(
            np.roll(np.eye(n), 1, axis=0)[:, np.random.default_rng(n).permutation(n)]
        )
        assert metrics.sigma(turn) <= 1
        assert metrics.product_contraction(turn, rounds=3) == 1
    assert metrics.expected_gap(from_edges([(0, 1), (2, 3), (3, 4)], 6)) == 0
    assert metrics.expected_gap(topologies.fully_connected(3)) == 1


def test_a_sequence_that_ends_before_its_period_is_refused() -> None:
    with pytest.raises(ValueError, match="`period` must be at most `length`=3, got 5"):
        MixingSequence(2, lambda t: SWAP, period=5, length=3)


def test_smallest_eigenvalue_of_large_graphs_takes_no_longer_than_the_second() -> None:
    assert metrics.smallest_eigenvalue(topologies.ring(20_000)) == pytest.approx(
        -1 / 3, abs=1e-12
    )  # closed form
    order = np.random.default_rng(0).permutation(4000)
    W = mixing.metropolis_hastings(
        topologies.dcliques(n=4000, clique_size=10, inter="ring", seed=0)
    )
    shuffled = mixing.from_weights(W.weights[order][:, order])
    assert metrics.smallest_eigenvalue(shuffled) == pytest.approx(
        metrics.smallest_eigenvalue(W), abs=1e-8
    )
