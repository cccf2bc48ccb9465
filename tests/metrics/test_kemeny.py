"""The Kemeny constant against closed forms, eigenvalues and mean first passage times."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import metrics, mixing, topologies
from topofl._support.table import NotApplicable
from topofl.metrics import kemeny_constant
from topofl.metrics import walks as module
from topofl.topology import TopologyError, as_topology, from_edges

CYCLE = from_edges([(i, (i + 1) % 7) for i in range(7)], 7, directed=True)
GRAPHS = [topologies.star(9), as_topology(nx.lollipop_graph(4, 3)), topologies.ring(6)]


def passage_times(W):
    """Return mean first passage times, one target at a time: m_ij = 1 + sum_{k != j} W_ik m_kj."""
    n = len(W)
    times = np.zeros((n, n))
    for j in range(n):
        others = [i for i in range(n) if i != j]
        left = np.eye(n - 1) - W[np.ix_(others, others)]
        times[others, j] = np.linalg.solve(left, np.ones(n - 1))
    return times


def walks(n, seed):
    """Return weights of a random strongly connected digraph without symmetries."""
    rng = np.random.default_rng(seed)
    W = rng.random((n, n)) * (rng.random((n, n)) < 0.4)
    W[np.arange(n), (np.arange(n) + 1) % n] += 0.1
    return W / W.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_exact_averaging(n):
    assert kemeny_constant(mixing.from_weights(np.full((n, n), 1 / n))) == pytest.approx(n - 1)
    assert kemeny_constant(topologies.fully_connected(n)) == pytest.approx(n - 1)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_complete_graph_without_self_weights(n):
    W = (np.ones((n, n)) - np.eye(n)) / (n - 1)  # all other eigenvalues are -1 / (n - 1)
    assert kemeny_constant(mixing.from_weights(W)) == pytest.approx((n - 1) ** 2 / n)


@pytest.mark.parametrize("n", [4, 5, 16, 101])
def test_ring(n):
    assert kemeny_constant(topologies.ring(n)) == pytest.approx((n**2 - 1) / 4)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.9])
def test_directed_cycle(keep):
    W = keep * np.eye(7) + (1 - keep) * np.roll(np.eye(7), 1, axis=1)
    assert kemeny_constant(mixing.from_weights(W)) == pytest.approx(3 / (1 - keep))
    assert kemeny_constant(CYCLE) == pytest.approx(6)  # uniform pull keeps a half


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.2), (1.0, 1.0), (1e-9, 2e-9), (1e-9, 0.5)])
def test_two_nodes(a, b):
    W = mixing.from_weights([[1 - a, a], [b, 1 - b]])
    assert kemeny_constant(W) == pytest.approx(1 / (a + b), rel=1e-6)


@pytest.mark.parametrize("graph", GRAPHS)
def test_weights_from_the_laplacian_give_the_kirchhoff_index(graph):
    laplacian = nx.laplacian_matrix(graph.to_networkx(), weight=None).toarray()
    scale = 2 * laplacian.max()
    W = mixing.from_weights(np.eye(graph.n) - laplacian / scale)
    expected = scale * metrics.kirchhoff_index(graph) / graph.n
    assert kemeny_constant(W) == pytest.approx(expected)


@given(st.integers(2, 12), st.integers(0, 10**6))
def test_mean_passage_times_weighted_by_pi_are_equal_from_all_nodes(n, seed):
    W = walks(n, seed)
    matrix = mixing.from_weights(W)
    times = passage_times(W) @ metrics.perron_vector(matrix)
    np.testing.assert_allclose(times, times[0], rtol=1e-7)
    assert kemeny_constant(matrix) == pytest.approx(times[0], rel=1e-7)


@given(st.integers(2, 12), st.integers(0, 10**6))
def test_eigenvalues_of_directed_chains(n, seed):
    W = walks(n, seed)
    rest = np.sort_complex(np.linalg.eigvals(W))[:-1]
    assert kemeny_constant(mixing.from_weights(W)) == pytest.approx((1 / (1 - rest)).sum().real)


@given(st.integers(2, 12), st.integers(0, 10**6))
def test_bounds_laziness_and_order_of_nodes(n, seed):
    W = walks(n, seed)
    value = kemeny_constant(mixing.from_weights(W))
    assert value >= (n - 1) / 2 - 1e-9
    assert kemeny_constant(mixing.lazy(mixing.from_weights(W))) == pytest.approx(2 * value)
    order = np.random.default_rng(seed).permutation(n)
    assert kemeny_constant(mixing.from_weights(W[np.ix_(order, order)])) == pytest.approx(value)


def test_weights_can_be_given():
    path = as_topology(nx.path_graph(5))
    lazy = kemeny_constant(path, weights=lambda graph: mixing.lazy(mixing.uniform(graph)))
    assert lazy == pytest.approx(2 * kemeny_constant(mixing.uniform(path)))


def test_compare_shows_it_for_static_graphs():
    line = from_edges([(0, 1), (1, 2)], 3, directed=True, name="line")
    table = metrics.compare([topologies.ring(9), [CYCLE, CYCLE], line], about="averaging")
    ring, periodic, broken = table.column("Kemeny constant")
    assert ring == pytest.approx(20)
    assert periodic == NotApplicable("of one matrix: take a round of the sequence")
    assert broken.reason.startswith("the Kemeny constant needs a strongly connected graph, that of")


def test_matrices_without_a_kemeny_constant_are_refused(monkeypatch):
    push = mixing.uniform(
        from_edges([(0, 1), (1, 0), (1, 2), (2, 0)], 3, directed=True), direction="push"
    )
    with pytest.raises(TopologyError, match=r"needs rows that sum to 1, .* is column stochastic"):
        kemeny_constant(push)
    with pytest.raises(TopologyError, match="needs a strongly connected graph"):
        kemeny_constant(from_edges([(0, 1), (2, 3)], 4))
    with pytest.raises(TopologyError, match="is dominated by rounding errors"):
        kemeny_constant(mixing.from_weights([[1 - 1e-12, 1e-12], [1e-12, 1 - 1e-12]]))
    with pytest.raises(TypeError, match="`x` must be one MixingMatrix or Topology"):
        kemeny_constant(topologies.one_peer_exponential(4))
    monkeypatch.setattr(module, "WALK_LIMIT", 5)
    with pytest.raises(TopologyError, match=r"is computed up to n=5, .* has n=6"):
        kemeny_constant(topologies.ring(6))
