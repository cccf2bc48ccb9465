from fractions import Fraction
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import metrics, mixing, topologies
from topofl._support.seeding import stream
from topofl.topology import Topology, TopologyError


def is_same_graph(graph: Topology, other: nx.Graph) -> bool:
    return nx.is_isomorphic(graph.to_networkx(), other)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16])
def test_parity_with_networkx(n: int) -> None:
    assert is_same_graph(topologies.fully_connected(n), nx.complete_graph(n))
    assert is_same_graph(topologies.star(n), nx.star_graph(n - 1))
    # networkx gives a cycle of one node a self-loop; here it has no edge
    assert is_same_graph(topologies.ring(n), nx.cycle_graph(n) if n > 1 else nx.empty_graph(1))


@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1), (1, 2), (1, 6), (2, 2), (2, 3), (2, 7), (3, 3), (4, 5), (5, 4)]
)
def test_grid_and_torus_are_networkx_grids(rows: int, columns: int) -> None:
    n = rows * columns
    assert is_same_graph(topologies.grid(n, rows=rows), nx.grid_2d_graph(rows, columns))
    assert is_same_graph(
        topologies.torus(n, rows=rows), nx.grid_2d_graph(rows, columns, periodic=True)
    )


def test_node_numbers_run_along_rows() -> None:
    graph = topologies.grid(12, rows=3)
    assert graph.in_neighbors(5).tolist() == [1, 4, 6, 9]
    assert topologies.torus(12, rows=3).in_neighbors(0).tolist() == [1, 3, 4, 8]


@pytest.mark.parametrize(
    ("n", "rows"), [(12, 3), (100, 10), (36, 6), (30, 5), (2, 1), (3, 1), (1, 1), (14, 2)]
)
def test_default_sides_are_the_closest_factors(n: int, rows: int) -> None:
    for generator in (topologies.grid, topologies.torus):
        default, explicit = generator(n), generator(n, rows=rows)
        assert (default.adjacency != explicit.adjacency).nnz == 0
        assert default.name == f"{generator.__name__}(n={n})"
        assert explicit.name == f"{generator.__name__}(n={n}, rows={rows})"


@pytest.mark.parametrize("n", [5, 7, 97])
def test_primes_are_refused_unless_rows_are_given(n: int) -> None:
    with pytest.raises(
        TopologyError, match=rf"`n` must .* grid, got the prime {n}.*n={n - 1} and n={n + 1}.*path"
    ):
        topologies.grid(n)
    with pytest.raises(
        TopologyError, match=rf"`n` must .* torus, got the prime {n}.*rows=1 for a ring"
    ):
        topologies.torus(n)
    assert is_same_graph(topologies.grid(n, rows=1), nx.path_graph(n))
    assert is_same_graph(topologies.grid(n, rows=n), nx.path_graph(n))
    assert is_same_graph(topologies.torus(n, rows=1), nx.cycle_graph(n))


def test_mean_degrees_of_the_papers_graphs() -> None:
    assert topologies.grid(100).out_degrees.mean() == 3.6
    assert topologies.torus(100).out_degrees.tolist() == [4] * 100
    assert (
        topologies.torus(8, rows=2).out_degrees.tolist() == [3] * 8
    )  # a side of 2 has no double edges
    assert topologies.star(100).diameter == 2


@pytest.mark.parametrize(
    ("n", "k"), [(2, 1), (5, 2), (10, 3), (10, 4), (10, 5), (10, 8), (10, 9), (3, 2), (100, 10)]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_random_regular(n: int, k: int, seed: int) -> None:
    graph = topologies.random_regular(n, k, seed=seed)
    assert graph.out_degrees.tolist() == [k] * n
    assert graph.is_connected
    assert not graph.is_directed
    assert (graph.adjacency.data == 1).all()
    again = topologies.random_regular(n, k, seed=seed)
    assert (graph.adjacency != again.adjacency).nnz == 0


def test_random_regular_varies_with_the_seed() -> None:
    graphs = [topologies.random_regular(20, 3, seed=seed).adjacency for seed in range(5)]
    assert all((graphs[0] != other).nnz for other in graphs[1:])


def test_random_2_regular_is_a_ring_in_random_order() -> None:
    graph = topologies.random_regular(30, 2, seed=0)
    assert is_same_graph(graph, nx.cycle_graph(30))
    assert graph.in_neighbors(0).tolist() != [1, 29]


def test_dense_random_regular_graphs_are_complements_and_fast() -> None:
    graph = topologies.random_regular(60, 57, seed=0)  # drawn directly this takes minutes
    absent = nx.complement(graph.to_networkx())
    assert {degree for _, degree in absent.degree} == {2}


def test_random_regular_10_has_the_weights_of_the_paper() -> None:
    """Metropolis-Hastings weights on k-regular graphs: 1/(k + 1) (D-Cliques, Figure 11: k = 10)."""
    weights = mixing.metropolis_hastings(topologies.random_regular(100, 10, seed=0)).weights
    assert np.allclose(weights.data, 1 / 11, rtol=0, atol=1e-12)


def test_random_regular_says_when_no_draw_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    two_squares = np.array([(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4)])
    monkeypatch.setattr("topofl.topologies.random._regular_edges", lambda n, k, rng: two_squares)
    with pytest.raises(TopologyError, match=r"no connected graph with n=8 and k=3 .* `seed`"):
        topologies.random_regular(8, 3, seed=0)


def dissimilarities(order: list[int], counts: np.ndarray) -> np.ndarray:
    shares = counts / counts.sum(axis=1, keepdims=True)
    return np.array([np.abs(shares[a] - shares[b]).sum() for a, b in pairwise(order)])


def walk(graph: Topology, start: int, then: int) -> list[int]:
    """Return the nodes of a ring in order."""
    order = [start, then]
    while len(order) < graph.n:
        order.append(next(int(j) for j in graph.in_neighbors(order[-1]) if j != order[-2]))
    return order


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ties", ["stable", "random"])
def test_dissimilar_ring_is_greedy(ties: str, seed: int) -> None:
    """From some start and direction, each next node is the farthest left (by plain loops)."""
    counts = np.random.default_rng(seed).integers(1, 50, size=(9, 4))
    graph = topologies.dissimilar_ring(counts, ties=ties, seed=seed)
    assert is_same_graph(graph, nx.cycle_graph(9))

    def is_greedy(order: list[int]) -> bool:
        steps = dissimilarities(order, counts)
        best = [
            max(dissimilarities([order[k], other], counts)[0] for other in order[k + 1 :])
            for k in range(len(steps))
        ]
        return bool(np.allclose(steps, best))

    assert any(
        is_greedy(walk(graph, start, int(then)))
        for start in range(9)
        for then in graph.in_neighbors(start).tolist()
    )


@pytest.mark.parametrize("ties", ["stable", "random"])
def test_dissimilar_ring_starts_at_random_and_breaks_the_last_ties_at_random(ties: str) -> None:
    counts = np.eye(2, dtype=int)[np.arange(12) % 2]
    graphs = [topologies.dissimilar_ring(counts, ties=ties, seed=seed) for seed in range(6)]
    for graph in graphs:  # two classes alternate all along
        u, v = graph.edge_index
        assert (u % 2 != v % 2).all()
    assert len({graph.adjacency.toarray().tobytes() for graph in graphs}) == 6


def simulated_ring(counts: list[list[int]], nodes: list[int]) -> set[frozenset[int]]:
    """Return the edges by the rule of the authors' simulator.

    Sort who is left by distance, stably, take the last, and go on from there.
    """
    shares = [[Fraction(count, sum(row)) for count in row] for row in counts]
    left = list(nodes)
    here = first = left.pop()
    edges = set()
    while left:
        left.sort(
            key=lambda other: sum(
                abs(a - b) for a, b in zip(shares[other], shares[here], strict=True)
            )
        )
        there = left.pop()
        edges.add(frozenset((here, there)))
        here = there
    return edges | ({frozenset((here, first))} if len(nodes) > 1 else set())


@st.composite
def counts_with_ties(draw) -> list[list[int]]:
    n, classes = draw(st.integers(1, 14)), draw(st.integers(1, 4))
    row = st.lists(st.integers(0, 3), min_size=classes, max_size=classes).filter(any)
    return draw(st.lists(row, min_size=n, max_size=n))


@given(counts=counts_with_ties(), seed=st.integers(0, 99))
def test_dissimilar_ring_is_that_of_the_authors_simulator(
    counts: list[list[int]], seed: int
) -> None:
    graph = topologies.dissimilar_ring(counts, seed=seed)
    nodes = (
        stream(seed, "graph").permutation(len(counts)).tolist()[::-1]
    )  # the simulator starts at the last
    assert {frozenset(edge) for edge in graph.edge_index.T.tolist()} == simulated_ring(
        counts, nodes
    )


def test_ties_of_dissimilar_rings_decide_who_stands_where_and_nothing_else() -> None:
    """Two shards of one class each at 100 nodes, so that most distances are equal."""
    stable, random = [], []
    for seed in range(5):
        shards = np.random.default_rng(seed).permutation(np.arange(200) % 10).reshape(100, 2)
        counts = np.eye(10, dtype=int)[shards].sum(axis=1)
        for ties, heterogeneity in (("stable", stable), ("random", random)):
            graph = topologies.dissimilar_ring(counts, ties=ties, seed=seed)
            W = mixing.metropolis_hastings(graph)
            assert is_same_graph(graph, nx.cycle_graph(100))
            assert W.spectral_gap == pytest.approx(
                mixing.metropolis_hastings(topologies.ring(100)).spectral_gap
            )
            heterogeneity.append(metrics.neighborhood_heterogeneity(W, counts))
    assert max(stable) < 0.85 * min(random)


def test_random_ties_of_dissimilar_rings_have_a_name_and_the_first_of_equals_in_random_order() -> (
    None
):
    graph = topologies.dissimilar_ring(n=20, ties="random", seed=4)
    assert graph.name == "dissimilar_ring(n=20, ties='random', seed=4)"
    classes = np.arange(20) % 10
    order = stream(4, "graph").permutation(20).tolist()
    here, left, edges = order[0], order[1:], set()
    while left:
        there = next((node for node in left if classes[node] != classes[here]), left[0])
        edges.add(frozenset((here, there)))
        left.remove(there)
        here = there
    edges.add(frozenset((here, order[0])))
    assert {frozenset(edge) for edge in graph.edge_index.T.tolist()} == edges
    with pytest.raises(
        ValueError,
        match="`ties` must be one of 'stable', 'random', got 'stabel'; did you mean 'stable'",
    ):
        topologies.dissimilar_ring(n=20, ties="stabel", seed=4)


def test_dissimilar_ring_takes_a_partition_or_n() -> None:
    class Clients:
        label_counts = np.eye(10, dtype=int)[np.arange(30) % 10]

    by_counts = topologies.dissimilar_ring(Clients(), seed=3)
    by_n = topologies.dissimilar_ring(n=30, seed=3)
    assert (by_counts.adjacency != by_n.adjacency).nnz == 0
    assert by_counts.name == "dissimilar_ring(label_counts[30x10], seed=3)"
    assert by_n.name == "dissimilar_ring(n=30, seed=3)"
    assert topologies.dissimilar_ring(n=1, seed=0).n_edges == 0


@pytest.mark.parametrize(
    "generator", [topologies.fully_connected, topologies.ring, topologies.grid, topologies.star]
)
def test_n_is_checked(generator) -> None:
    with pytest.raises(ValueError, match="`n` must be at least 1, got 0"):
        generator(0)
    with pytest.raises(TypeError, match="`n` must be an integer"):
        generator(4.0)
    with pytest.raises(TypeError, match="`n` must be an integer"):
        generator(True)


@pytest.mark.parametrize("generator", [topologies.grid, topologies.torus])
def test_rows_are_checked(generator) -> None:
    with pytest.raises(
        ValueError, match="`rows` must divide n=12, got 5; the most square is rows=3"
    ):
        generator(12, rows=5)
    with pytest.raises(ValueError, match="`rows` must be between 1 and n=12, got 13"):
        generator(12, rows=13)
    with pytest.raises(ValueError, match="`rows` must be between 1 and n=12, got 0"):
        generator(12, rows=0)
    with pytest.raises(TypeError, match="`rows`"):
        generator(12, rows=3.0)


def test_random_regular_checks_its_arguments() -> None:
    with pytest.raises(TopologyError, match=r"`n` \* `k` must be even, got n=5 and k=3"):
        topologies.random_regular(5, 3, seed=0)
    with pytest.raises(TopologyError, match="`k` must be at least 2 to connect n=4"):
        topologies.random_regular(4, 1, seed=0)
    with pytest.raises(ValueError, match="`k` must be between 1 and n-1=3, got 4"):
        topologies.random_regular(4, 4, seed=0)
    with pytest.raises(ValueError, match="`k` must be between 1 and n-1=3, got 0"):
        topologies.random_regular(4, 0, seed=0)
    with pytest.raises(ValueError, match="`n` must be at least 2"):
        topologies.random_regular(1, 0, seed=0)
    with pytest.raises(TypeError, match="`k` must be an integer"):
        topologies.random_regular(4, 2.5, seed=0)
    with pytest.raises(TypeError, match="`seed` must be an integer"):
        topologies.random_regular(10, 3, seed=None)
    with pytest.raises(ValueError, match="`seed` must be at least 0"):
        topologies.random_regular(10, 3, seed=-1)


def test_dissimilar_ring_checks_its_arguments() -> None:
    with pytest.raises(
        ValueError, match="exactly one of `label_counts` and `n` must be given, got neither"
    ):
        topologies.dissimilar_ring(seed=0)
    with pytest.raises(
        ValueError, match="exactly one of `label_counts` and `n` must be given, got both"
    ):
        topologies.dissimilar_ring([[1, 2]], n=1, seed=0)
    with pytest.raises(ValueError, match="`n` must be at least 1"):
        topologies.dissimilar_ring(n=0, seed=0)
    with pytest.raises(TypeError, match="`seed`"):
        topologies.dissimilar_ring([[1, 2]], seed="0")


def test_small_random_regular_graphs_are_not_uniform_as_the_docstring_says() -> None:
    """70 cubic graphs on 6 nodes: 60 prisms and 10 complete bipartite graphs."""
    draws = 1500
    share = (
        sum(
            nx.is_bipartite(topologies.random_regular(6, 3, seed=s).to_networkx())
            for s in range(draws)
        )
        / draws
    )
    assert share == pytest.approx(0.31, abs=0.04)
    assert share > 10 / 70 + 0.1
