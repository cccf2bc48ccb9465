import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import metrics, mixing, topologies
from topofl.topologies import neighborhood_swap_trace
from topofl.topology import Topology, TopologyError, as_topology, from_edges

BASES = [
    topologies.ring(12),
    topologies.star(12),
    topologies.grid(12),
    topologies.fully_connected(12),
    topologies.random_cliques(12, 4, seed=0),
    topologies.barabasi_albert(12, 2, seed=3),
    from_edges([(0, 1), (2, 3)], 12, name="two edges"),
]


def counts_of(n: int, seed: int, classes: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 9, (n, classes)) + np.eye(classes, dtype=int)[rng.integers(classes, size=n)]
    )


def naive_path(counts: np.ndarray, base: Topology, steps: int, seed: int) -> list[float]:
    """Return the skew after every step by the definition alone, for the generator's pairs."""
    draws = np.random.default_rng(seed).random((steps, 2))
    weights, here = mixing.metropolis_or_uniform(base).weights.toarray(), list(range(base.n))
    shares = counts / counts.sum(axis=1, keepdims=True)

    def skew(order: list[int]) -> float:
        return float(np.linalg.norm(weights @ shares[order] - shares.mean(axis=0)) ** 2) / base.n

    values = [skew(here)]
    for first, second in draws:
        u, v = int(first * base.n), int(second * (base.n - 1))
        v += v >= u
        other = here.copy()
        other[u], other[v] = here[v], here[u]
        if skew(other) < values[-1] - 1e-12:
            here = other
        values.append(skew(here))
    return values


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.name)
def test_every_step_equals_naive_recomputation(base: Topology) -> None:
    counts = counts_of(12, 0)
    trace = neighborhood_swap_trace(counts, base, steps=60, seed=np.random.default_rng(5))
    assert trace == pytest.approx(naive_path(counts, base, 60, 5), abs=1e-12)
    assert (np.diff(trace) <= 0).all()


@given(seed=st.integers(0, 2**32), base=st.sampled_from(BASES), steps=st.integers(0, 40))
def test_the_trace_is_the_metric_of_the_graph(seed: int, base: Topology, steps: int) -> None:
    counts = counts_of(12, seed)
    trace = neighborhood_swap_trace(counts, base, steps=40, seed=seed)
    graph = topologies.neighborhood_swap(counts, base, steps=steps, seed=seed)
    assert trace[steps] == pytest.approx(
        metrics.neighborhood_heterogeneity(graph, counts), abs=1e-12
    )
    assert nx.is_isomorphic(graph.to_networkx(), base.to_networkx())


def test_groups_move_with_their_places() -> None:
    base = topologies.random_cliques(12, 4, seed=0)
    graph = topologies.neighborhood_swap(counts_of(12, 1), base, steps=50, seed=0)
    assert graph.groups != base.groups
    for group in graph.groups:
        assert all(graph.adjacency[i, j] == 1 for i in group for j in group if i != j)


def test_labels_stay_with_their_nodes() -> None:
    base = as_topology(nx.relabel_nodes(nx.path_graph(4), dict(enumerate("abcd"))))
    graph = topologies.neighborhood_swap([[5, 0], [5, 0], [0, 5], [0, 5]], base, seed=0)
    assert graph.nodes == tuple("abcd")
    moved = topologies.neighborhood_swap(
        [[5, 0], [5, 0], [0, 5], [0, 5]], topologies.path(4), seed=0
    ).to_networkx()
    assert nx.utils.edges_equal(
        graph.to_networkx().edges, nx.relabel_nodes(moved, dict(enumerate("abcd"))).edges
    )
    assert not graph.to_networkx().has_edge(
        "a", "b"
    )  # of one class: a or b went elsewhere, by its name


def test_own_weights_are_used_and_kept() -> None:
    edges = np.zeros((12, 12))
    edges[np.arange(0, 12, 2), np.arange(1, 12, 2)] = 0.5
    base = Topology(as_topology(edges + edges.T).adjacency, name="pairs", own_weights=True)
    counts = counts_of(12, 2)
    graph = topologies.neighborhood_swap(counts, base, steps=60, seed=np.random.default_rng(1))
    assert graph.own_weights
    assert sorted(graph.adjacency.data) == sorted(base.adjacency.data)
    expected = naive_path(counts, base, 60, 1)
    assert metrics.neighborhood_heterogeneity(graph, counts) == pytest.approx(
        expected[-1], abs=1e-12
    )
    assert expected[-1] < expected[0]


def test_it_ends_where_no_exchange_helps() -> None:
    counts = counts_of(6, 0)
    graph = topologies.neighborhood_swap(counts, topologies.path(6), steps=3000, seed=0)
    reached = metrics.neighborhood_heterogeneity(graph, counts)
    for u in range(6):
        for v in range(u):
            order = np.arange(6)
            order[[u, v]] = v, u
            other = as_topology(graph.adjacency[order][:, order])
            assert metrics.neighborhood_heterogeneity(other, counts) >= reached - 1e-12


def test_pairs_are_distinct_and_uniform() -> None:
    counts = np.array([[1, 0]] * 4 + [[0, 1]] * 2)
    base = from_edges([(0, 5)], 6)  # the one edge joins both classes already
    assert np.ptp(neighborhood_swap_trace(counts, base, steps=500, seed=0)) == 0
    base = from_edges([(0, 1)], 6)  # of the 15 exchanges those of 0 or 1 with 4 or 5 help
    helped = [
        np.ptp(neighborhood_swap_trace(counts, base, steps=1, seed=seed)) > 0
        for seed in range(1500)
    ]
    assert np.mean(helped) == pytest.approx(4 / 15, abs=4 * np.sqrt(4 / 15 * 11 / 15 / 1500))


def test_an_integer_is_the_degree_of_a_random_regular_base() -> None:
    counts = counts_of(20, 0)
    graph = topologies.neighborhood_swap(counts, 4, steps=0, seed=7)
    assert (graph.adjacency != topologies.random_regular(20, 4, seed=7).adjacency).nnz == 0
    swapped = topologies.neighborhood_swap(counts, 4, seed=7)
    assert set(swapped.out_degrees) == {4}
    assert metrics.neighborhood_heterogeneity(swapped, counts) < metrics.neighborhood_heterogeneity(
        graph, counts
    )


def test_names() -> None:
    ring = topologies.ring(3)
    named = {
        "neighborhood_swap(n=12, base=4, seed=0)": {"n": 12, "base": 4},
        "neighborhood_swap(n=3, base=ring(n=3), steps=5, seed=0)": {
            "n": 3,
            "base": ring,
            "steps": 5,
        },
        "neighborhood_swap(label_counts[2x1], base=1, seed=0)": {
            "label_counts": [[1], [2]],
            "base": 1,
        },
    }
    for name, arguments in named.items():
        assert topologies.neighborhood_swap(**arguments, seed=0).name == name


def test_one_node_stays_where_it_is() -> None:
    base = from_edges([], 1)
    assert topologies.neighborhood_swap([[3, 4]], base, seed=0).n_edges == 0
    assert neighborhood_swap_trace([[3, 4]], base, steps=2, seed=0).tolist() == [0, 0, 0]


def test_inputs_are_checked() -> None:
    with pytest.raises(
        TopologyError, match=r"`base` must be undirected, exponential\(n=4, directed=True\) is"
    ):
        topologies.neighborhood_swap(n=4, base=topologies.exponential(4, directed=True), seed=0)
    with pytest.raises(
        ValueError, match=r"one node per row of `label_counts`, 4, ring\(n=5\) has 5"
    ):
        topologies.neighborhood_swap(n=4, base=topologies.ring(5), seed=0)
    with pytest.raises(
        ValueError, match="`base` must be between 1 and n-1=4, got 10; pass a smaller degree"
    ):
        topologies.neighborhood_swap(n=5, seed=0)
    for one in ({"n": 1}, {"label_counts": [[1, 2]]}):
        with pytest.raises(
            ValueError,
            match="`base` must be a graph for n=1, which has no neighbors, got the degree 10",
        ):
            topologies.neighborhood_swap(**one, seed=0)
    with pytest.raises(TopologyError, match="must be even"):
        topologies.neighborhood_swap(n=5, base=3, seed=0)
    with pytest.raises(
        TypeError, match="`base` must be a Topology or a degree, got Graph; use as_topology"
    ):
        topologies.neighborhood_swap(n=5, base=nx.cycle_graph(5), seed=0)  # pyright: ignore
    with pytest.raises(ValueError, match="`steps` must be at least 0, got -1"):
        topologies.neighborhood_swap(n=5, base=2, steps=-1, seed=0)
    with pytest.raises(ValueError, match="exactly one of `label_counts` and `n`"):
        topologies.neighborhood_swap(seed=0)
