"""Effective neighbors: known values, limits, scipy's Lyapunov solver, and the random walk."""

from functools import partial

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from topofl import mixing, topologies
from topofl.metrics import averaging, effective_neighbors
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError, as_topology, from_edges

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
