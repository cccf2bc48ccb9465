"""Nodes moved on a graph by their labels: neighborhood swaps, and dissimilar rings."""

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import metrics, mixing, topologies
from topofl._support.seeding import stream
from topofl.topologies import neighborhood_swap_trace
from topofl.topology import Topology, as_topology, from_edges

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
    counts = rng.integers(0, 9, (n, classes))
    return counts + np.eye(classes, dtype=int)[rng.integers(classes, size=n)]


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
def test_every_step_equals_naive_recomputation(base):
    counts = counts_of(12, 0)
    trace = neighborhood_swap_trace(counts, base, steps=60, seed=np.random.default_rng(5))
    assert trace == pytest.approx(naive_path(counts, base, 60, 5), abs=1e-12)
    assert (np.diff(trace) <= 0).all()


@given(seed=st.integers(0, 2**32), base=st.sampled_from(BASES), steps=st.integers(0, 40))
def test_the_trace_is_the_metric_of_the_graph(seed, base, steps):
    counts = counts_of(12, seed)
    trace = neighborhood_swap_trace(counts, base, steps=40, seed=seed)
    graph = topologies.neighborhood_swap(counts, base, steps=steps, seed=seed)
    found = metrics.neighborhood_heterogeneity(graph, counts)
    assert trace[steps] == pytest.approx(found, abs=1e-12)
    assert nx.is_isomorphic(graph.to_networkx(), base.to_networkx())


def test_groups_move_with_their_places():
    base = topologies.random_cliques(12, 4, seed=0)
    graph = topologies.neighborhood_swap(counts_of(12, 1), base, steps=50, seed=0)
    assert graph.groups != base.groups
    for group in graph.groups:
        assert all(graph.adjacency[i, j] == 1 for i in group for j in group if i != j)


def test_labels_stay_with_their_nodes():
    base = as_topology(nx.relabel_nodes(nx.path_graph(4), dict(enumerate("abcd"))))
    graph = topologies.neighborhood_swap([[5, 0], [5, 0], [0, 5], [0, 5]], base, seed=0)
    assert graph.nodes == tuple("abcd")
    counts = [[5, 0], [5, 0], [0, 5], [0, 5]]
    moved = topologies.neighborhood_swap(counts, topologies.path(4), seed=0).to_networkx()
    wanted = nx.relabel_nodes(moved, dict(enumerate("abcd")))
    assert nx.utils.edges_equal(graph.to_networkx().edges, wanted.edges)
    # of one class: a or b went elsewhere, by its name
    assert not graph.to_networkx().has_edge("a", "b")


def test_own_weights_are_used_and_kept():
    edges = np.zeros((12, 12))
    edges[np.arange(0, 12, 2), np.arange(1, 12, 2)] = 0.5
    base = Topology(as_topology(edges + edges.T).adjacency, name="pairs", own_weights=True)
    counts = counts_of(12, 2)
    graph = topologies.neighborhood_swap(counts, base, steps=60, seed=np.random.default_rng(1))
    assert graph.own_weights
    assert sorted(graph.adjacency.data) == sorted(base.adjacency.data)
    expected = naive_path(counts, base, 60, 1)
    found = metrics.neighborhood_heterogeneity(graph, counts)
    assert found == pytest.approx(expected[-1], abs=1e-12)
    assert expected[-1] < expected[0]


def test_it_ends_where_no_exchange_helps():
    counts = counts_of(6, 0)
    graph = topologies.neighborhood_swap(counts, topologies.path(6), steps=3000, seed=0)
    reached = metrics.neighborhood_heterogeneity(graph, counts)
    for u in range(6):
        for v in range(u):
            order = np.arange(6)
            order[[u, v]] = v, u
            other = as_topology(graph.adjacency[order][:, order])
            assert metrics.neighborhood_heterogeneity(other, counts) >= reached - 1e-12


def test_pairs_are_distinct_and_uniform():
    counts = np.array([[1, 0]] * 4 + [[0, 1]] * 2)
    base = from_edges([(0, 5)], 6)  # the one edge joins both classes already
    assert np.ptp(neighborhood_swap_trace(counts, base, steps=500, seed=0)) == 0
    base = from_edges([(0, 1)], 6)  # of the 15 exchanges those of 0 or 1 with 4 or 5 help
    traces = (neighborhood_swap_trace(counts, base, steps=1, seed=s) for s in range(1500))
    helped = [np.ptp(trace) > 0 for trace in traces]
    assert np.mean(helped) == pytest.approx(4 / 15, abs=4 * np.sqrt(4 / 15 * 11 / 15 / 1500))


def test_an_integer_is_the_degree_of_a_random_regular_base():
    counts = counts_of(20, 0)
    graph = topologies.neighborhood_swap(counts, 4, steps=0, seed=7)
    assert (graph.adjacency != topologies.random_regular(20, 4, seed=7).adjacency).nnz == 0
    swapped = topologies.neighborhood_swap(counts, 4, seed=7)
    assert set(swapped.out_degrees) == {4}
    after, before = (metrics.neighborhood_heterogeneity(g, counts) for g in (swapped, graph))
    assert after < before


def test_one_node_stays_where_it_is():
    base = from_edges([], 1)
    assert topologies.neighborhood_swap([[3, 4]], base, seed=0).n_edges == 0
    assert neighborhood_swap_trace([[3, 4]], base, steps=2, seed=0).tolist() == [0, 0, 0]


def greedy_ring(counts: list[list[int]], order: list[int], ties: str) -> set[frozenset[int]]:
    """Return the edges of the ring that goes on to the farthest node left, by plain loops.

    Stable: the rule of the authors' simulator, which sorts who is left by distance, stably, and
    takes the last; it starts at the last node. Random: the first of equals in random order.
    """
    shares = [[Fraction(count, sum(row)) for count in row] for row in counts]
    left = list(order)[::-1] if ties == "stable" else list(order)
    ring = [left.pop() if ties == "stable" else left.pop(0)]

    def distance(other: int) -> Fraction:
        return sum(abs(a - b) for a, b in zip(shares[other], shares[ring[-1]], strict=True))

    while left:
        if ties == "stable":
            left.sort(key=distance)
            ring.append(left.pop())
        else:
            ring.append(max(left, key=distance))
            left.remove(ring[-1])
    pairs = zip(ring, ring[1:] + ring[:1], strict=True)
    return {frozenset(pair) for pair in pairs if len(ring) > 1}


@st.composite
def counts_with_ties(draw: st.DrawFn, ties: str) -> list[list[int]]:
    """Label counts of few values; if ties are random, with shares that floats hold exactly."""
    n, classes = draw(st.integers(1, 14)), draw(st.integers(1, 4))
    row = st.lists(st.integers(0, 3), min_size=classes, max_size=classes).filter(any)
    if ties == "random":
        labels = st.lists(st.integers(0, classes - 1), min_size=4, max_size=4)
        row = labels.map(lambda labels: [labels.count(label) for label in range(classes)])
    return draw(st.lists(row, min_size=n, max_size=n))


@pytest.mark.parametrize("ties", ["stable", "random"])
@given(data=st.data(), seed=st.integers(0, 99))
def test_dissimilar_rings_go_on_to_the_farthest_node(ties, data, seed):
    counts = data.draw(counts_with_ties(ties))
    graph = topologies.dissimilar_ring(counts, ties=ties, seed=seed)
    order = stream(seed, "graph").permutation(len(counts)).tolist()
    edges = {frozenset(edge) for edge in graph.edge_index.T.tolist()}
    assert edges == greedy_ring(counts, order, ties)


def test_ties_of_dissimilar_rings_decide_who_stands_where_and_nothing_else():
    """Two shards of one class each at 100 nodes, so that most distances are equal."""
    left = {"stable": [], "random": []}
    for seed in range(5):
        shards = np.random.default_rng(seed).permutation(np.arange(200) % 10).reshape(100, 2)
        counts = np.eye(10, dtype=int)[shards].sum(axis=1)
        for ties, values in left.items():
            graph = topologies.dissimilar_ring(counts, ties=ties, seed=seed)
            assert nx.is_isomorphic(graph.to_networkx(), nx.cycle_graph(100))
            values.append(metrics.neighborhood_heterogeneity(graph, counts))
    assert max(left["stable"]) < 0.85 * min(left["random"])


def test_dissimilar_rings_take_a_partition_or_n():
    class Clients:
        label_counts = np.eye(10, dtype=int)[np.arange(30) % 10]

    by_counts = topologies.dissimilar_ring(Clients(), seed=3)
    by_n = topologies.dissimilar_ring(n=30, seed=3)
    assert (by_counts.adjacency != by_n.adjacency).nnz == 0
    assert by_counts.name == "dissimilar_ring(label_counts[30x10], seed=3)"
    assert topologies.dissimilar_ring(n=1, seed=0).n_edges == 0
