"""Effective resistance, Kirchhoff index and Kemeny constant."""

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import metrics, mixing, topologies
from topofl._support.table import NotApplicable
from topofl.metrics import effective_resistance, kemeny_constant, kirchhoff_index
from topofl.metrics import walks as module
from topofl.topology import Topology, TopologyError, as_topology, from_edges


@st.composite
def weighted_graphs(draw: st.DrawFn) -> Topology:
    """Draw a connected undirected graph with weights: a path and other edges."""
    n = draw(st.integers(2, 9))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(
        lambda pair: pair[0] != pair[1]
    )
    edges = {*draw(st.lists(pairs, max_size=2 * n)), *((i, i + 1) for i in range(n - 1))}
    matrix = np.zeros((n, n))
    for u, v in sorted(edges):
        matrix[u, v] = matrix[v, u] = draw(st.sampled_from([0.25, 0.5, 1.0, 2.0, 5.0]))
    return as_topology(matrix)


# Closed forms


@pytest.mark.parametrize("n", [3, 4, 10, 101])
def test_resistance_of_rings(n):
    graph = topologies.ring(n)
    assert kirchhoff_index(graph) == pytest.approx((n**3 - n) / 12, rel=1e-10)
    assert effective_resistance(graph) == pytest.approx((n + 1) / 6, rel=1e-10)
    for v in range(n):  # v resistors in parallel with n - v
        assert effective_resistance(graph, 0, v) == pytest.approx(v * (n - v) / n, abs=1e-10)


@pytest.mark.parametrize("n", [2, 3, 10, 50])
def test_complete_graph_star_and_path(n):
    complete, star = topologies.fully_connected(n), topologies.star(n)
    assert kirchhoff_index(complete) == pytest.approx(n - 1, rel=1e-12)
    assert effective_resistance(complete, 0, n - 1) == pytest.approx(2 / n, rel=1e-12)
    assert kirchhoff_index(star) == pytest.approx((n - 1) ** 2, rel=1e-12)
    assert kirchhoff_index(as_topology(nx.path_graph(n))) == pytest.approx(
        (n**3 - n) / 6, rel=1e-10
    )


def test_hypercube_by_its_eigenvalues():
    # Eigenvalue 2 k comes (d choose k) times.
    expected = 32 * sum(
        count / (2 * k) for k, count in zip(range(1, 6), [5, 10, 10, 5, 1], strict=True)
    )
    assert kirchhoff_index(topologies.hypercube(32)) == pytest.approx(expected, rel=1e-12)


def test_weights_are_conductances():
    assert effective_resistance([[0, 4], [4, 0]], 0, 1) == pytest.approx(0.25)
    series = as_topology([[0, 2, 0], [2, 0, 0.5], [0, 0.5, 0]])
    assert effective_resistance(series, 0, 2) == pytest.approx(0.5 + 2)


# Degenerate graphs


def test_one_node_two_nodes_and_disconnected_graphs():
    single, pair, apart = (
        from_edges([], 1),
        from_edges([(0, 1)], 2),
        from_edges([(0, 1), (2, 3)], 5),
    )
    assert [
        effective_resistance(single),
        kirchhoff_index(single),
        effective_resistance(single, 0, 0),
    ] == [0, 0, 0]
    assert [effective_resistance(pair), kirchhoff_index(pair)] == pytest.approx([1, 1])
    assert (
        effective_resistance(apart)
        == kirchhoff_index(apart)
        == effective_resistance(apart, 0, 4)
        == np.inf
    )
    assert effective_resistance(apart, 3, 2) == pytest.approx(1)  # within a piece it is finite
    assert effective_resistance(apart, 4, 4) == 0


# Against networkx, and theorems


@given(weighted_graphs())
def test_agrees_with_networkx(graph):
    other = graph.to_networkx()
    weight = "weight" if nx.is_weighted(other) else None
    pairs = nx.resistance_distance(other, weight=weight, invert_weight=False)
    values = [[effective_resistance(graph, u, v) for v in range(graph.n)] for u in range(graph.n)]
    np.testing.assert_allclose(
        values, [[pairs[u][v] for v in range(graph.n)] for u in range(graph.n)], atol=1e-10
    )
    expected = nx.effective_graph_resistance(other, weight=weight, invert_weight=False)
    assert kirchhoff_index(graph) == pytest.approx(expected, rel=1e-9)
    assert kirchhoff_index(graph) == pytest.approx(np.sum(values) / 2, rel=1e-9)
    assert effective_resistance(graph) == pytest.approx(
        np.sum(values) / (graph.n * (graph.n - 1)), rel=1e-9
    )


@given(weighted_graphs())
def test_fosters_theorem(graph):
    total = sum(
        w * effective_resistance(graph, u, v)
        for u, v, w in graph.to_networkx().edges(data="weight", default=1)
    )
    assert total == pytest.approx(graph.n - 1, rel=1e-9)


@given(weighted_graphs(), st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
def test_is_a_metric_and_more_conductance_never_adds_resistance(graph, u, v, w):
    u, v, w = u % graph.n, v % graph.n, w % graph.n
    there = effective_resistance(graph, u, v)
    assert there == pytest.approx(effective_resistance(graph, v, u), abs=1e-10)
    assert there <= effective_resistance(graph, u, w) + effective_resistance(graph, w, v) + 1e-10
    more = graph.to_scipy().toarray()
    if u != w:
        more[u, w] = more[w, u] = more[u, w] + 1  # Rayleigh
    assert effective_resistance(more, u, v) <= there + 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_is_at_most_the_distance_and_equal_in_trees(seed):
    tree = as_topology(nx.random_labeled_tree(12, seed=seed))
    graph = topologies.random_regular(12, 3, seed=seed)
    for v in range(12):
        assert effective_resistance(tree, 0, v) == pytest.approx(tree.distances[0, v], abs=1e-10)
        assert effective_resistance(graph, 0, v) <= graph.distances[0, v] + 1e-12
    assert effective_resistance(tree) == pytest.approx(tree.mean_distance, rel=1e-10)


# Bad input


def test_digraphs_large_graphs_and_missing_nodes_are_refused():
    digraph = from_edges([(0, 1), (1, 2), (2, 0)], 3, name="cycle", directed=True)
    for metric in (effective_resistance, kirchhoff_index):
        with pytest.raises(TopologyError, match="undirected graph, cycle is directed"):
            metric(digraph)
        with pytest.raises(
            TopologyError, match=r"up to n=3,000, .*n=3,001; use Topology.algebraic_connectivity"
        ):
            metric(topologies.ring(3001))
        with pytest.raises(TypeError, match="`graph` must be one graph"):
            metric(as_topology([topologies.ring(3)] * 2))
    ring = topologies.ring(3)
    with pytest.raises(ValueError, match="`u` and `v` must be two nodes"):
        effective_resistance(ring, 1)
    with pytest.raises(ValueError, match="`v` must be between 0 and 2, got 3"):
        effective_resistance(ring, 0, 3)
    with pytest.raises(TypeError, match="`u` must be an integer"):
        effective_resistance(ring, 0.5, 1)


@pytest.mark.parametrize("w", [1e-20, 1e-200])
def test_weights_that_differ_too_much_are_refused(w: float) -> None:
    graph = Topology(np.array([[0, 1, 0, 0], [1, 0, w, 0], [0, w, 0, 1], [0, 0, 1, 0.0]]))
    with pytest.raises(TopologyError, match="differ too much for its resistance to be computed"):
        kirchhoff_index(graph)
    assert effective_resistance(graph, 0, 1) == 1  # of a pair nothing is lost
    assert effective_resistance(graph, 0, 3) == pytest.approx(2 + 1 / w, rel=1e-12)


def test_resistances_beyond_the_floating_point_numbers_are_refused() -> None:
    tiny = Topology(np.array([[0, 1e-310], [1e-310, 0]]))
    with pytest.raises(TopologyError, match="differ too much for its resistance to be computed"):
        effective_resistance(tiny, 0, 1)


def exact_resistance(weights: list[list[Fraction]], u: int, v: int) -> Fraction:
    """Return the resistance by exact Gaussian elimination on the Laplacian without node v."""
    free = [i for i in range(len(weights)) if i != v]
    rows = [
        [-weights[i][j] if i != j else sum(weights[i]) for j in free] + [Fraction(i == u)]
        for i in free
    ]
    for k in range(len(rows)):
        pivot = next(i for i in range(k, len(rows)) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        rows = [row if i == k else [a - row[k] * b for a, b in zip(row, rows[k], strict=True)]
                for i, row in enumerate(rows)]  # fmt: skip
    return rows[free.index(u)][-1]


@given(st.integers(2, 7), st.integers(0, 10**6), st.sampled_from([1, 6, 15, 30]))
def test_uneven_weights_are_exact_and_equal_in_both_directions(
    n: int, seed: int, decades: int
) -> None:
    rng = np.random.default_rng(seed)
    weights = np.triu(10.0 ** -rng.uniform(0, decades, size=(n, n)), 1)
    weights *= (rng.random((n, n)) < 0.5) | (
        np.arange(n) == np.arange(n)[:, None] + 1
    )  # connected by a path
    weights = weights + weights.T
    exact = [[Fraction(float(w)) for w in row] for row in weights]
    u, v = rng.choice(n, size=2, replace=False)
    there = effective_resistance(weights, int(u), int(v))
    assert there == effective_resistance(weights, int(v), int(u))
    assert there == pytest.approx(float(exact_resistance(exact, int(u), int(v))), rel=1e-13)


@pytest.mark.parametrize("n", [66, 130, 257])
def test_nodes_are_eliminated_block_by_block(n: int) -> None:
    graph = topologies.random_regular(n, 4, seed=0)
    inverse = np.linalg.pinv(np.diag(graph.out_degrees) - graph.to_scipy().toarray())
    expected = inverse[3, 3] + inverse[n - 2, n - 2] - 2 * inverse[3, n - 2]
    assert effective_resistance(graph, 3, n - 2) == pytest.approx(expected, rel=1e-11)
    ring = topologies.ring(n)
    assert effective_resistance(ring, 5, 40) == pytest.approx(35 * (n - 35) / n, rel=1e-13)


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
def test_kemeny_constant_of_rings(n):
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
