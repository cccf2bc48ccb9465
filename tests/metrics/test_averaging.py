"""Averaging over rounds: ergodicity coefficients and effective neighbors."""

import sys
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from topofl import mixing, topologies
from topofl.metrics import averaging, dobrushin, effective_neighbors, slem
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology, from_edges

push = partial(mixing.uniform, direction="push")


def stochastic(n: int) -> st.SearchStrategy[MixingMatrix]:
    """Draw row-stochastic matrices with many zeros."""
    entries = arrays.arrays(np.float64, (n, n), elements=st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0]))
    return entries.map(
        lambda a: mixing.from_weights((a + np.eye(n)) / (a + np.eye(n)).sum(axis=1, keepdims=True))
    )


@st.composite
def matrices(draw: st.DrawFn, count: int = 1) -> list[MixingMatrix]:
    n = draw(st.integers(1, 6))
    return [draw(stochastic(n)) for _ in range(count)]


def brute(matrix: np.ndarray) -> float:
    """Return one minus the smallest overlap of two rows, an equivalent formula."""
    return 1 - min(np.minimum(a, b).sum() for a in matrix for b in matrix)


def product(members: list[MixingMatrix]) -> np.ndarray:
    """Return the product of the matrices in chronological order."""
    result = np.eye(members[0].n)
    for member in members:
        result = member.weights.toarray() @ result
    return result


# Definition


@given(matrices(3))
def test_agrees_with_brute_force_over_pairs_and_windows(members):
    for member in members:
        assert dobrushin(member) == pytest.approx(brute(member.weights.toarray()), abs=1e-12)
    assert dobrushin(members) == pytest.approx(brute(product(members)), abs=1e-12)
    later = [members[1], members[2], members[0], members[1]]  # the period begins again
    assert dobrushin(members, start=1, rounds=4) == pytest.approx(brute(product(later)), abs=1e-12)


@given(matrices(2))
def test_columns_are_compared_where_columns_sum_to_one(members):
    transposed = [mixing.from_weights(member.weights.T, edges="u<-v") for member in members]
    for member, other in zip(members, transposed, strict=True):
        assert dobrushin(other) == pytest.approx(dobrushin(member), abs=1e-12)
    if not any(other.is_row_stochastic for other in transposed):
        reverse = product(transposed)
        assert dobrushin(transposed) == pytest.approx(brute(reverse.T), abs=1e-12)


def test_rows_are_compared_where_both_sum_to_one():
    # Rows (1, 0, 0), (0, 1/2, 1/2) twice: 1 by rows as by columns; a permutation of it differs from
    # its transpose.
    doubly = mixing.from_weights([[0, 0.5, 0.5], [0.5, 0.5, 0], [0.5, 0, 0.5]])
    circulant = mixing.from_weights([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
    assert dobrushin(doubly) == pytest.approx(0.5)
    assert dobrushin(circulant) == pytest.approx(brute(circulant.weights.toarray()), abs=1e-15)


# Theorems


@given(matrices(2))
def test_is_submultiplicative_and_bounds_the_second_eigenvalue(members):
    first, second = members
    assert 0 <= dobrushin(members) <= dobrushin(first) * dobrushin(second) + 1e-12
    # Rounding moves an eigenvalue of multiplicity m, here 5 at most, by the m-th root of 2e-16.
    assert slem(first) <= dobrushin(first) + 1e-3


@pytest.mark.parametrize(
    "graph",
    [
        topologies.ring(5),
        topologies.star(6),
        topologies.grid(9),
        topologies.exponential(12, directed=True),
    ],
    ids=lambda graph: graph.name,
)
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_bounds_the_second_eigenvalue_of_powers(graph, rounds):
    assert slem(graph) ** rounds <= dobrushin(graph, rounds=rounds) + 1e-12


@given(matrices(), st.integers(0, 100))
def test_bounds_how_the_range_of_values_shrinks(members, seed):
    values = np.random.default_rng(seed).standard_normal((members[0].n, 5))
    mixed = members[0] @ values
    assert (np.ptp(mixed, axis=0) <= dobrushin(members) * np.ptp(values, axis=0) + 1e-12).all()


@given(matrices())
def test_is_zero_exactly_for_rank_one(members):
    rank = np.linalg.matrix_rank(members[0].weights.toarray())
    assert (dobrushin(members) < 1e-12) == (rank == 1)
    equal = mixing.from_weights(np.tile(members[0].weights.toarray()[:1], (members[0].n, 1)))
    assert dobrushin(equal) == 0.0


def test_never_grows_with_the_window():
    values = [
        dobrushin(topologies.random_out(30, 2, seed=3), rounds=k, weights=push)
        for k in range(1, 12)
    ]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(values))
    assert values[0] == 1.0
    assert values[-1] < 0.2


def test_symmetric_weights_shrink_by_the_second_eigenvalue_in_the_long_run():
    graph = topologies.ring(7)
    ratio = dobrushin(graph, rounds=40) / dobrushin(graph, rounds=39)
    assert ratio == pytest.approx(slem(graph), rel=1e-9)


# Known values


def test_one_peer_exponential():
    assert dobrushin(topologies.one_peer_exponential(100)) == pytest.approx(0.219, abs=5e-4)
    # Rows of the product of 7 rounds are uniform on 128 offsets, 28 of 100 of them twice: shifts by
    # 28..72 share least.
    assert dobrushin(topologies.one_peer_exponential(100)) == pytest.approx(28 / 128, abs=1e-12)
    for n in (2, 8, 64):
        assert dobrushin(topologies.one_peer_exponential(n)) == 0.0


def test_closed_forms():
    assert dobrushin(topologies.fully_connected(9)) == pytest.approx(0, abs=1e-15)
    assert dobrushin(topologies.star(10)) == pytest.approx(
        1 - 1 / 10
    )  # two leaves share the center's 1/n
    assert dobrushin(topologies.ring(6)) == 1.0
    assert dobrushin(topologies.ring(5)) == pytest.approx(
        2 / 3
    )  # neighbors of opposite nodes: one of three in common
    assert dobrushin(from_edges([], 1)) == 0.0
    assert dobrushin(from_edges([], 2)) == 1.0
    assert dobrushin(from_edges([(0, 1)], 2)) == 0.0
    assert dobrushin(from_edges([(0, 1), (2, 3)], 4), rounds=50) == 1.0


# Large graphs


def test_large_graphs_with_nodes_without_common_sources_have_coefficient_one():
    for graph in (
        topologies.ring(100_000),
        topologies.one_peer_exponential(100_000),
        topologies.grid(10_000),
    ):
        assert dobrushin(graph, rounds=2) == 1.0
    # In 11 rounds, each of 4,096 nodes receives from 2^11 nodes: opposite nodes have no sources in
    # common, all other pairs do.
    assert dobrushin(topologies.one_peer_exponential(4096), rounds=11) == 1.0
    # A star whose leaf 1 has a leaf of its own: the center shares with all, but the latter and leaf
    # 2 nothing.
    star = from_edges([(0, i) for i in range(1, 2500)] + [(1, 2500)], 2501)
    assert dobrushin(star) == 1.0
    directed = topologies.random_out(5000, 3, seed=0)
    assert dobrushin(directed, rounds=2, weights=push) == 1.0


def test_other_large_graphs_are_refused(monkeypatch):
    with pytest.raises(TopologyError, match=r"up to n=2,000, star.* has n=2,001; use metrics.slem"):
        dobrushin(topologies.star(2001))
    with pytest.raises(TopologyError, match="up to n=2,000"):
        dobrushin(topologies.one_peer_exponential(2048), rounds=11)  # exact averaging
    monkeypatch.setattr(sys.modules["topofl.metrics.averaging"], "ENTRY_LIMIT", 20_000)
    with pytest.raises(TopologyError, match=r"too large from round 3 on .* use fewer rounds"):
        dobrushin(topologies.one_peer_exponential(2048))


# Bad input


def test_needs_a_window_and_matrices_of_one_kind():
    endless = topologies.random_out(6, 2, seed=0)
    assert endless.period is None
    with pytest.raises(
        TopologyError, match=r"has no period, so `rounds` is needed: dobrushin\(sequence, rounds"
    ):
        dobrushin(endless)
    line = from_edges([(0, 1), (1, 2)], 3, directed=True)
    with pytest.raises(
        TopologyError,
        match="of matrices must be row-stochastic in all rounds, or column",
    ):
        dobrushin([mixing.uniform(line), push(line)])
    with pytest.raises(ValueError, match="`rounds` must be at least 1, got 0"):
        dobrushin(line, rounds=0)
    with pytest.raises(ValueError, match="`start` must be at least 0, got -1"):
        dobrushin(line, start=-1)
    with pytest.raises(TypeError, match="`x`"):
        dobrushin(np.eye(2))


def test_every_round_is_computed_once():
    asked = []

    def graph(t):
        asked.append(t)
        return topologies.ring(4)

    sequence = TopologySequence(4, graph)
    assert sequence.nodes == ()  # the labels that all rounds must have, of round 0
    asked.clear()
    dobrushin(sequence, start=3, rounds=4)
    assert asked == [3, 4, 5, 6]


GAMMAS = (0.5, 0.9, 0.99)
# Strongly connected, with degrees that differ: pull weights are row- but not column-stochastic.
DIGRAPH = from_edges(
    [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3), (0, 2), (4, 1)],
    6,
    directed=True,
    name="digraph",
)


@st.composite
def graphs(draw: st.DrawFn, directed: bool | None = None) -> Topology:
    n = draw(st.integers(1, 8))
    directed = draw(st.booleans()) if directed is None else directed
    nodes = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(nodes, nodes), max_size=2 * n))
    return from_edges([pair for pair in pairs if pair[0] != pair[1]], n, directed=directed)


def simulated(
    matrices: list[MixingMatrix], gamma: float, walks: int, periods: int, seed: int
) -> np.ndarray:
    """Return n_W of each node by simulated walks, with variances averaged over the last period."""
    rng = np.random.default_rng(seed)
    x, variances = np.zeros((matrices[0].n, walks)), []
    for t in range(periods * len(matrices)):
        x = matrices[t % len(matrices)] @ (np.sqrt(gamma) * x + rng.standard_normal(x.shape))
        variances.append((x**2).mean(axis=1))
    return 1 / (1 - gamma) / np.mean(variances[-len(matrices) :], axis=0)


# Known values


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
def test_known_values(graph, expected):
    assert [effective_neighbors(graph, gamma) for gamma in GAMMAS] == pytest.approx(
        expected, abs=0.005
    )


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("which", ["mean", "worst"])
@pytest.mark.parametrize("gamma", [0, 0.3, 0.999999])
def test_one_without_communication_and_n_for_exact_averaging(n, which, gamma):
    assert effective_neighbors(mixing.from_weights(np.eye(n)), gamma, which=which) == pytest.approx(
        1, rel=1e-9
    )
    assert effective_neighbors(
        mixing.from_weights(np.full((n, n), 1 / n)), gamma, which=which
    ) == pytest.approx(n)
    pieces = from_edges([(0, 1)], n + 2)  # two nodes share, the others are alone
    variance = {"mean": (1 + n) / (2 + n), "worst": 1}[which]
    assert effective_neighbors(pieces, gamma, which=which) == pytest.approx(1 / variance, rel=1e-9)


def test_permutations_have_one_effective_neighbor():
    cycle = mixing.from_weights(np.roll(np.eye(5), 1, axis=0))
    assert effective_neighbors(cycle, 0.9) == pytest.approx(1)


def test_one_peer_exponential_has_its_closed_form():
    # The last j rounds average 2^j nodes, the last log2(n) all: whichever round it is.
    n, gamma = 32, 0.9
    variance = sum(gamma ** (j - 1) / min(2**j, n) for j in range(1, 2000))
    expected = 1 / (1 - gamma) / variance
    for which in ("mean", "worst"):
        assert effective_neighbors(
            topologies.one_peer_exponential(n), gamma, which=which
        ) == pytest.approx(expected)


# Limits


@given(graphs())
def test_at_zero_it_counts_the_weights(graph):
    weights = mixing.metropolis_or_uniform(graph).weights.toarray()
    squares = np.square(weights).sum(axis=1)
    assert effective_neighbors(graph, 0) == pytest.approx(graph.n / squares.sum(), rel=1e-12)
    assert effective_neighbors(graph, 0, which="worst") == pytest.approx(
        1 / squares.max(), rel=1e-12
    )


@pytest.mark.parametrize(
    "graph",
    [
        topologies.ring(9),
        topologies.grid(9),
        topologies.star(9),
        topologies.exponential(9, directed=True),
        topologies.one_peer_exponential(9),
    ],
)
def test_near_one_it_counts_all_nodes_of_doubly_stochastic_weights(graph):
    for gamma, error in ((1 - 1e-6, 1e-3), (1 - 1e-12, 1e-9)):
        for which in ("mean", "worst"):
            assert effective_neighbors(graph, gamma, which=which) == pytest.approx(9, rel=error)


def test_near_one_it_counts_influential_nodes_of_row_stochastic_weights():
    values, vectors = np.linalg.eig(mixing.uniform(DIGRAPH).weights.toarray().T)
    stationary = np.real(vectors[:, np.argmax(values.real)])
    stationary /= stationary.sum()
    assert effective_neighbors(DIGRAPH, 1 - 1e-9) == pytest.approx(
        1 / np.square(stationary).sum(), rel=1e-6
    )
    assert 1 / np.square(stationary).sum() < 5.9


# Against scipy, the series, and simulation


@pytest.mark.parametrize("gamma", GAMMAS)
def test_solves_the_lyapunov_equation(gamma):
    weights = mixing.uniform(DIGRAPH).weights.toarray()
    covariance = scipy.linalg.solve_discrete_lyapunov(np.sqrt(gamma) * weights, weights @ weights.T)
    assert effective_neighbors(DIGRAPH, gamma) == pytest.approx(
        1 / (1 - gamma) / np.diag(covariance).mean(), rel=1e-9
    )
    worst = 1 / (1 - gamma) / np.diag(covariance).max()
    assert effective_neighbors(DIGRAPH, gamma, which="worst") == pytest.approx(worst, rel=1e-9)


@given(graphs(), st.sampled_from([0.0, 0.3, 0.8]))
def test_agrees_with_the_series(graph, gamma):
    weights = mixing.metropolis_or_uniform(graph).weights.toarray()
    power, variances = np.eye(graph.n), np.zeros(graph.n)
    for k in range(200):
        power = weights @ power
        variances += gamma**k * np.square(power).sum(axis=1)
    assert effective_neighbors(graph, gamma) == pytest.approx(
        1 / (1 - gamma) / variances.mean(), rel=1e-9
    )
    assert effective_neighbors(graph, gamma, which="worst") == pytest.approx(
        1 / (1 - gamma) / variances.max(), rel=1e-9
    )


@pytest.mark.parametrize(
    "matrices",
    [
        [mixing.metropolis_hastings(topologies.star(6))],
        [mixing.uniform(DIGRAPH)],
        [
            mixing.uniform(DIGRAPH),
            mixing.metropolis_hastings(topologies.ring(6)),
            mixing.from_weights(np.eye(6)),
        ],
    ],
    ids=["symmetric", "pull", "period"],
)
def test_agrees_with_simulated_walks(matrices):
    gamma, walks = 0.8, 40_000
    measured = simulated(matrices, gamma, walks, periods=40, seed=0)
    error = 4 * np.sqrt(
        2 / walks
    )  # of a variance, relative: four standard errors, nodes and rounds taken as one
    assert effective_neighbors(matrices, gamma) == pytest.approx(
        1 / np.mean(1 / measured), rel=error
    )
    assert effective_neighbors(matrices, gamma, which="worst") == pytest.approx(
        measured.min(), rel=error
    )


# Properties


@given(graphs(), st.floats(0, 0.999))
def test_is_between_one_and_n_and_the_worst_is_the_least(graph, gamma):
    mean, worst = (effective_neighbors(graph, gamma, which=which) for which in ("mean", "worst"))
    assert 1 <= worst <= mean + 1e-9
    assert mean <= graph.n


@given(graphs(directed=False), st.floats(0, 0.999), st.floats(0, 0.999))
def test_does_not_decrease_with_gamma_for_doubly_stochastic_weights(graph, gamma, other):
    low, high = sorted([gamma, other])
    for which in ("mean", "worst"):
        assert (
            effective_neighbors(graph, low, which=which)
            <= effective_neighbors(graph, high, which=which) + 1e-9
        )


@given(graphs(directed=False), st.floats(0, 0.999))
def test_a_period_of_equal_matrices_is_one_of_them(graph, gamma):
    for which in ("mean", "worst"):
        once = effective_neighbors(graph, gamma, which=which)
        assert effective_neighbors(as_topology([graph] * 3), gamma, which=which) == pytest.approx(
            once, rel=1e-9
        )


def test_a_period_can_start_anywhere():
    period = [
        mixing.uniform(DIGRAPH),
        mixing.metropolis_hastings(topologies.star(6)),
        mixing.from_weights(np.eye(6)),
    ]
    for which in ("mean", "worst"):
        value = effective_neighbors(period, 0.9, which=which)
        assert effective_neighbors(period[1:] + period[:1], 0.9, which=which) == pytest.approx(
            value, rel=1e-10
        )


# Bad input


def test_undefined_values_are_refused():
    with pytest.raises(
        TopologyError,
        match=r"rows that sum to 1, .*digraph.* column stochastic; use mixing\.uniform",
    ):
        effective_neighbors(DIGRAPH, 0.5, weights=partial(mixing.uniform, direction="push"))
    with pytest.raises(TopologyError, match="has no period"):
        effective_neighbors(topologies.random_out(6, 2, seed=0), 0.5)
    with pytest.raises(TopologyError, match=f"up to n={averaging.COVARIANCE_LIMIT:,}, .*n=2,001"):
        effective_neighbors(topologies.ring(2001), 0.5)
    for gamma in (1, -0.1, np.nan):
        with pytest.raises(ValueError, match=r"`gamma` must be in \[0, 1\)"):
            effective_neighbors(DIGRAPH, gamma)
    with pytest.raises(TypeError, match="`gamma` must be a number"):
        effective_neighbors(DIGRAPH, "0.5")
    with pytest.raises(ValueError, match="`which` must be one of 'mean', 'worst', got 'all'"):
        effective_neighbors(DIGRAPH, 0.5, which="all")
    with pytest.raises(TypeError, match="`x`"):
        effective_neighbors(np.eye(3), 0.5)
