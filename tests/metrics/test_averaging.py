"""Averaging over rounds: windows, limits, times and contraction, against theorems."""

import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from tests.rows.metrics import (
    EVERY,
    ONE_PEER,
    PULLED,
    dcliques,
    halving,
    irregular_digraph,
    product,
    pull,
    push,
    relabelled,
    rounds,
    strongly_connected,
    undirected,
)
from topofl import metrics, mixing, topologies
from topofl.metrics import (
    dobrushin,
    effective_neighbors,
    expected_gap,
    measured_contraction,
    mixing_time,
    perron_skewness,
    perron_vector,
    pi_weighted_gap,
    product_contraction,
    sigma,
    slem,
    smallest_eigenvalue,
    window_product,
)
from topofl.mixing import MixingSequence
from topofl.topology import TopologySequence, as_topology, from_edges

# Ergodicity


@given(PULLED, st.integers(0, 100))
def test_dobrushin_bounds_ranges_and_second_eigenvalues(members, seed):
    first, tau = members[0], dobrushin(members)
    values = np.random.default_rng(seed).standard_normal((first.n, 5))
    ranges = np.ptp(values, axis=0)
    assert (np.ptp(product(members) @ values, axis=0) <= tau * ranges + 1e-12).all()
    assert 0 <= tau <= math.prod(map(dobrushin, members)) + 1e-12
    # Rounding moves an eigenvalue of multiplicity m, here 5 at most, by the m-th root of 2e-16.
    assert slem(first) <= dobrushin(first) + 1e-3
    rank = np.linalg.matrix_rank(first.weights.toarray())
    assert (dobrushin(first) < 1e-12) == (rank == 1)
    equal = np.tile(first.weights.toarray()[:1], (first.n, 1))
    assert dobrushin(mixing.from_weights(equal)) == 0.0


@pytest.mark.parametrize("window", [1, 2, 5])
def test_dobrushin_bounds_the_second_eigenvalue_of_powers(window):
    directed = topologies.exponential(12, directed=True)
    for graph in (topologies.ring(5), topologies.star(6), topologies.grid(9), directed):
        assert slem(graph) ** window <= dobrushin(graph, rounds=window) + 1e-12
    ring = topologies.ring(7)  # and is it in the long run, of symmetric weights
    ratio = dobrushin(ring, rounds=39 + window) / dobrushin(ring, rounds=39)
    assert ratio == pytest.approx(slem(ring) ** window, rel=1e-9)


@given(rounds(*EVERY))
def test_a_window_of_a_period_may_start_in_any_round(members):
    later = (members * 3)[1 : len(members) + 2]
    window = dobrushin(members, start=1, rounds=len(members) + 1)
    assert window == pytest.approx(dobrushin(later), abs=1e-12)


@pytest.mark.slow
def test_large_graphs_with_nodes_without_common_sources_have_coefficient_one():
    large = [topologies.ring(100_000), ONE_PEER(100_000), topologies.grid(10_000)]
    assert [dobrushin(graph, rounds=2) for graph in large] == [1.0] * 3
    # In 11 rounds, each of 4,096 nodes receives from 2^11 nodes: opposite nodes have no sources in
    # common, all other pairs do.
    assert dobrushin(ONE_PEER(4096), rounds=11) == 1.0
    # A star whose leaf 1 has a leaf of its own: the center shares with all, but the latter and leaf
    # 2 nothing.
    assert dobrushin(from_edges([(0, i) for i in range(1, 2500)] + [(1, 2500)], 2501)) == 1.0
    assert dobrushin(topologies.random_out(5000, 3, seed=0), rounds=2, weights=push) == 1.0


def test_every_round_is_computed_once():
    asked = []
    sequence = TopologySequence(4, lambda t: asked.append(t) or topologies.ring(4))
    assert sequence.nodes == ()  # the labels that all rounds must have, of round 0
    asked.clear()
    dobrushin(sequence, start=3, rounds=4)
    assert asked == [3, 4, 5, 6]


# Effective neighbors


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (topologies.ring(100), (3.72, 6.63, 17.83)),
        (topologies.grid(100), (6.21, 14.80, 51.53)),
        (topologies.exponential(100), (23.96, 58.24, 93.10)),
        (topologies.star(100), (1.05, 1.21, 3.00)),
        (topologies.fully_connected(100), (100, 100, 100)),
        (topologies.dcliques(n=100, inter="fully_connected", seed=0), (12.67, 23.75, 68.26)),
        (topologies.dcliques(n=100, inter="ring", seed=0), (10.53, 12.77, 26.95)),
    ],
    ids=["ring", "grid", "exponential", "star", "complete", "dcliques", "dcliques-ring"],
)
def test_effective_neighbors_of_the_paper(graph, expected):
    found = [effective_neighbors(graph, gamma) for gamma in (0.5, 0.9, 0.99)]
    assert found == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize("which", ["mean", "worst"])
def test_near_one_effective_neighbors_count_all_nodes_or_the_influential_ones(which):
    directed = topologies.exponential(9, directed=True)
    doubly = [topologies.ring(9), topologies.grid(9), topologies.star(9), directed, ONE_PEER(9)]
    for gamma, error in ((1 - 1e-6, 1e-3), (1 - 1e-12, 1e-9)):
        for graph in doubly:
            assert effective_neighbors(graph, gamma, which=which) == pytest.approx(9, rel=error)
    pi = perron_vector(irregular_digraph())
    influential = effective_neighbors(irregular_digraph(), 1 - 1e-9, which=which)
    assert influential == pytest.approx(1 / (pi @ pi), rel=1e-6)
    assert influential < 5.9


# Windows


def test_window_product_multiplies_in_chronological_order():
    sequence = topologies.random_in(7, 2, seed=3)
    members = [pull(sequence.at(t)) for t in range(6)]
    found = window_product(sequence, start=2, rounds=3).weights.toarray()
    assert np.allclose(found, product(members[2:5]), rtol=0, atol=1e-15)
    assert abs(window_product(sequence, start=5, rounds=1).weights - members[5].weights).max() == 0
    for start in range(4):  # from any start
        assert window_product(ONE_PEER(16), start=start, rounds=4).is_uniform_mean
    assert not window_product(ONE_PEER(16), rounds=3).is_uniform_mean
    assert product_contraction(ONE_PEER(16), rounds=4) == 0
    assert product_contraction(ONE_PEER(16), rounds=3, start=1) == pytest.approx(1)


def test_product_of_partial_contractions_bounds_that_of_the_window():
    regular = [topologies.random_regular(12, 3, seed=seed) for seed in range(5)]
    members = [mixing.metropolis_hastings(graph) for graph in regular]
    whole = product_contraction(members, rounds=5)
    first = product_contraction(members, rounds=2)
    last = product_contraction(members, start=2, rounds=3)
    assert slem(members) ** 5 - 1e-12 <= whole <= first * last + 1e-12


def test_values_of_minus_one_zero_and_one_are_exact():
    for k, n in ((2, 5), (3, 7), (2, 9)):  # bipartite, regular, no self-weights
        half = sum(np.roll(np.eye(n), s, axis=0) for s in range(k)) / k
        W = mixing.from_weights(np.block([[np.zeros((n, n)), half], [half.T, np.zeros((n, n))]]))
        assert smallest_eigenvalue(W) == -1
        assert sigma(W) <= 1
    for n in range(5, 40):
        order = np.random.default_rng(n).permutation(n)
        turn = mixing.from_weights(np.roll(np.eye(n), 1, axis=0)[:, order])
        assert sigma(turn) <= 1
        assert product_contraction(turn, rounds=3) == 1
    assert expected_gap(from_edges([(0, 1), (2, 3), (3, 4)], 6)) == 0
    assert expected_gap(topologies.fully_connected(3)) == 1


def test_smallest_eigenvalue_of_large_graphs_takes_no_longer_than_the_second():
    cliques = topologies.dcliques(n=4000, clique_size=10, inter="ring", seed=0)
    W = mixing.metropolis_hastings(cliques)
    shuffled = smallest_eigenvalue(relabelled(W))
    assert shuffled == pytest.approx(smallest_eigenvalue(W), abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 5, 10])
def test_expected_gap_of_random_pulls_is_the_exact_expectation(k):
    # By symmetry E[W^T (I - J) W] = c (I - J), c = E||(I - J) W||_F^2 / (n - 1); rows have k + 1
    # equal entries, and two rows agree in column j with a probability that is counted here.
    n, count = 12, 600
    both = (2 * k * (n - 1) + (n - 2) * k**2) / (n - 1) ** 2  # expected common entries of two rows
    c = (n / (k + 1) - (n / (k + 1) + n * (n - 1) * both / (k + 1) ** 2) / n) / (n - 1)
    matrices = [pull(topologies.random_in(n, k, seed=0).at(t)) for t in range(count)]
    gap = expected_gap(MixingSequence(n, matrices.__getitem__), rounds=count)
    dense = [W.weights.toarray() for W in matrices]
    traces = np.array([((W - W.mean(axis=0)) ** 2).sum() for W in dense]) / (n - 1)
    # The trace of the sample mean is unbiased; its largest eigenvalue is above the mean of its
    # eigenvalues.
    assert traces.mean() == pytest.approx(c, abs=5 * traces.std() / math.sqrt(count))
    assert 1 - traces.mean() - 0.15 * c < gap <= 1 - traces.mean()


def test_recorded_sequences_are_used_to_their_end():
    matrices = [pull(topologies.random_in(8, 3, seed=1).at(t)) for t in range(12)]
    recorded = MixingSequence(8, matrices.__getitem__, "a run", length=12)
    assert expected_gap(recorded) == expected_gap(matrices)
    b = metrics.b_connectivity(recorded, rounds=12)
    assert b == metrics.b_connectivity(recorded)
    assert b == metrics.b_connectivity(recorded.support(), rounds=12)
    assert dobrushin(recorded, start=2) == dobrushin(matrices, start=2, rounds=10)


# Mixing time


def exact_distances(weights, count):
    """Return the exact largest total variation of a row from uniform after 0, 1, ... rounds."""
    n = len(weights)
    entries = [Fraction(w).limit_denominator(10**4) for w in weights.ravel().tolist()]
    rows = np.array(entries, dtype=object).reshape(n, n)
    assert all(sum(row) == 1 for row in rows)
    power, distances = np.eye(n, dtype=int) * Fraction(1), []
    for _ in range(count):
        distances.append(np.abs(power - Fraction(1, n)).sum(axis=1).max() / 2)
        power = rows @ power
    return distances


@pytest.mark.parametrize("share", [0, 0.5, 0.1])
@pytest.mark.parametrize(
    "name", ["ring", "star", "path", "hypercube", "exponential", "fully_connected"]
)
def test_mixing_time_counts_a_distance_that_is_epsilon_exactly(name, share):
    W = mixing.lazy(mixing.metropolis_hastings(getattr(topologies, name)(8)), share=share)
    distances = exact_distances(W.weights.toarray(), 20)
    for distance in distances:
        if Fraction(1, 10**5) < distance < 1:
            expected = next(t for t, other in enumerate(distances) if other <= distance)
            assert mixing_time(W, epsilon=float(distance)) == expected
            later = expected + 1 + distances[expected + 1 :].count(distance)
            assert mixing_time(W, epsilon=float(distance) * (1 - 1e-9)) == later


def test_mixing_time_and_gap_bound_each_other():
    # Reversible and lazy: Levin, Peres, Wilmer, 12.4 and 12.5
    regular = topologies.random_regular(20, 3, seed=0)
    for graph in (topologies.ring(20), regular, topologies.tree(20)):
        W = mixing.lazy(mixing.metropolis_hastings(graph))
        relaxation = 1 / W.spectral_gap
        most = math.ceil(relaxation * math.log(4 * 20))
        assert (relaxation - 1) * math.log(2) <= mixing_time(W) <= most


@pytest.mark.parametrize(("d", "epsilon"), [(1e-6, 1e-9), (1e-8, 1e-9), (1e-10, 1e-6)])
def test_mixing_time_of_very_slow_chains(d, epsilon):
    W = mixing.from_weights([[1 - d, d], [2 * d, 1 - 2 * d]])  # TV of t rounds: 2/3 (1 - 3 d)^t
    exact = math.ceil(math.log(epsilon * 3 / 2) / math.log1p(-3 * d))
    assert mixing_time(W, epsilon=epsilon) == pytest.approx(exact, rel=1e-5)


# Perron vectors


@given(rounds(pull, push, connected=True), st.integers(0, 99))
def test_averaging_and_push_sum_converge_to_the_perron_vector(members, seed):
    pi, power = perron_vector(members), np.linalg.matrix_power(product(members), 3000)
    assert pi.sum() == pytest.approx(1)
    limit = power[0] if all(W.is_row_stochastic for W in members) else power.sum(axis=1) / len(pi)
    np.testing.assert_allclose(pi, limit, rtol=0, atol=1e-12)


def test_perron_vectors_by_hand():
    star = topologies.star(5)  # reversible: pi is proportional to degree + 1
    for rule in (pull, push):
        assert perron_vector(rule(star)) == pytest.approx(np.array([5, 2, 2, 2, 2]) / 13)
    assert perron_vector(topologies.ring(7)).tolist() == [1 / 7] * 7
    outside = from_edges([(0, 1), (1, 0), (1, 2)], 3, directed=True)  # node 2 only receives
    assert perron_vector(pull(outside)).tolist() == [0.5, 0.5, 0.0]
    assert perron_vector(push(outside)).tolist() == [0.0, 0.0, 1.0]  # it keeps all weight
    W = mixing.from_weights([[1 - 1e-13, 1e-13], [3e-13, 1 - 3e-13]])
    # 1 - 1e-13 is a float only roughly
    assert perron_vector(W) == pytest.approx([0.75, 0.25], rel=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_the_weighted_norm_never_expands_and_bounds_the_gap(seed):
    graph = strongly_connected(10, seed)
    for W in (pull(graph), push(graph)):
        gap, pi = pi_weighted_gap(W), perron_vector(W)
        assert 0 <= gap <= W.spectral_gap + 1e-12  # a norm is at least the spectral radius
        dense = W.weights.toarray() if W.is_row_stochastic else W.weights.toarray().T
        x = np.random.default_rng(seed).standard_normal((10, 200))
        x -= pi @ x  # what is left to forget
        before, after = (pi @ x**2) ** 0.5, (pi @ (dense @ x) ** 2) ** 0.5
        assert (after <= (1 - gap) * before + 1e-12).all()
        assert (after / before).max() > 0.5 * (1 - gap)  # and the bound is not idle


@pytest.mark.parametrize("n", [50, 60, 80])
def test_entries_far_below_machine_precision_are_accurate(n):
    W = pull(halving(n))  # whose elimination in fractions is exact
    rows = [[Fraction(w).limit_denominator(1000) for w in row] for row in W.weights.toarray()]
    for k in range(n - 1, 0, -1):
        left = sum(rows[k][:k])
        for i in range(k):
            rows[i][k] /= left
            rows[i][:k] = [w + rows[i][k] * v for w, v in zip(rows[i], rows[k][:k], strict=False)]
    pi = [Fraction(1)]
    for k in range(1, n):
        pi.append(sum(pi[i] * rows[i][k] for i in range(k)))
    assert perron_skewness(W) == pytest.approx(float(max(pi) / min(pi)), rel=1e-9)
    np.testing.assert_allclose(perron_vector(W), [float(p / sum(pi)) for p in pi], rtol=1e-9)


@pytest.mark.parametrize("n", [20, 40, 60])
def test_the_gap_of_reversible_chains_that_are_very_uneven(n):
    """Birth and death: similar to a symmetric matrix, whose eigenvalues are exact."""
    up, down = 0.2, 0.6
    dense = np.diag(np.full(n - 1, up), 1) + np.diag(np.full(n - 1, down), -1)
    dense += np.diag(1 - dense.sum(axis=1))
    symmetric = np.diag(np.diag(dense)) + np.sqrt(up * down) * (np.eye(n, k=1) + np.eye(n, k=-1))
    expected = 1 - np.sort(np.abs(np.linalg.eigvalsh(symmetric)))[-2]
    assert pi_weighted_gap(mixing.from_weights(dense)) == pytest.approx(expected, rel=1e-9)


# Measured contraction

PULLS = as_topology([irregular_digraph(), irregular_digraph().to_scipy().T])


@pytest.mark.parametrize(
    ("x", "rule"),
    [
        (irregular_digraph(), None),
        (irregular_digraph(), push),
        (as_topology([nx.path_graph(6), nx.star_graph(5), nx.cycle_graph(6)]), None),
        (PULLS, None),
        (PULLS, push),
    ],
)
def test_measured_contraction_is_the_declared_slem(x, rule):
    # Complex pairs of eigenvalues make single rounds oscillate: over 2400 rounds that leaves below
    # 1e-3.
    measured = measured_contraction(x, rounds=2400, seed=0, weights=rule)
    assert measured == pytest.approx(slem(x, weights=rule), rel=1e-3)


def test_measured_contractions_that_are_known():
    measured = measured_contraction(topologies.ring(16), rounds=500, seed=1)
    assert 1 - measured == pytest.approx(0.05075, abs=5e-6)  # 0.05075 to the digits given
    for exact in (topologies.fully_connected(6), ONE_PEER(16), from_edges([], 1)):
        assert measured_contraction(exact, rounds=8, seed=0) == 0.0
    apart = from_edges([(0, 1), (2, 3)], 4)
    assert measured_contraction(apart, rounds=50, seed=0) == pytest.approx(1.0, abs=1e-12)
    endless = TopologySequence(5, lambda t: topologies.ring(5))
    measured = measured_contraction(endless, rounds=400, seed=0)
    assert measured == pytest.approx(slem(topologies.ring(5)), rel=1e-9)


def test_random_graphs_without_a_period_are_measured():
    measured = measured_contraction(topologies.random_in(40, 5, seed=7), rounds=200, seed=0)
    # Mean square contraction of k-in pulls is (1/(k+1))(1 - k/(n-1)); the geometric mean lies a
    # little below its root.
    assert measured == pytest.approx(np.sqrt(1 / 6 * (1 - 5 / 39)), rel=0.06)


@pytest.mark.parametrize("rule", [pull, push])
def test_contraction_without_burn_in_is_the_ratio_of_consensus_distances(rule):
    """Of debiased models, if weights push."""
    matrix, start = rule(irregular_digraph()), np.random.default_rng(5).standard_normal(6)
    power = np.linalg.matrix_power(matrix.weights.toarray(), 4)
    again = np.random.default_rng(5)
    measured = measured_contraction(matrix, rounds=4, seed=again, burn_in=0)
    end = power @ start / power.sum(axis=1)
    assert measured**4 == pytest.approx(np.std(end) / np.std(start), rel=1e-12)


def test_same_seed_same_contraction():
    values = [measured_contraction(dcliques(20), rounds=3, seed=s, burn_in=0) for s in (3, 3, 4)]
    assert values[0] == values[1] != values[2]


@given(undirected, st.integers(0, 100))
def test_consensus_never_grows_by_more_than_sigma_in_a_round(graph, seed):
    measured = measured_contraction(graph, rounds=3, seed=seed, burn_in=0)
    assert measured <= sigma(graph) + 1e-9


# Its picture


@pytest.fixture
def ax():
    return Figure().subplots()


def test_symmetric_weights_stay_below_the_prediction_and_end_parallel(ax):
    graph = topologies.torus(25)
    assert metrics.plot_contraction(graph, rounds=80, seed=0, ax=ax) is ax.figure
    measured, predicted = (line.get_ydata() for line in ax.lines)
    np.testing.assert_allclose(predicted, slem(graph) ** np.arange(81))
    assert measured[0] == 1
    assert (measured <= predicted * (1 + 1e-9)).all()
    assert measured[-1] / measured[-2] == pytest.approx(slem(graph), abs=1e-3)
    assert ax.lines[1].get_label() == f"predicted, {slem(graph):.4g} per round"


def test_what_is_not_drawn_is_said(ax):
    metrics.plot_contraction(ONE_PEER(8), rounds=10, seed=0, ax=ax)
    measured, cross, predicted = ax.lines
    assert len(measured.get_ydata()) == 3
    assert cross.get_label() == "then exact averaging"
    assert predicted.get_label() == "predicted: exact averaging within a period"
    endless = topologies.random_out(10, 2, seed=0)
    (axes,) = metrics.plot_contraction(endless, rounds=5, seed=0, weights=mixing.uniform).axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[1].startswith("no rate predicted")
    assert len(axes.lines[0].get_ydata()) == 6
