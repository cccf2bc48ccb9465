"""D-Cliques: edges between cliques, and ideal cliques."""

from itertools import combinations

import numpy as np
import pytest

from topofl import mixing, topologies
from topofl.metrics import clique_skew
from topofl.topologies.dcliques import (
    MOST_PAIRS,
    _fully_connected,
    _least_loaded,
    _ring,
    _small_world,
)
from topofl.topology import Topology

SCHEMES = ["fully_connected", "ring", "fractal", "small_world"]


def between(graph: Topology) -> np.ndarray:
    """Return the (E, 2) edges between cliques, each once."""
    clique = clique_of(graph)
    u, v = graph.edge_index
    return graph.edge_index.T[(u < v) & (clique[u] != clique[v])]


def clique_of(graph: Topology) -> np.ndarray:
    clique = np.empty(graph.n, dtype=int)
    for k, group in enumerate(graph.groups):
        clique[list(group)] = k
    return clique


def loads(graph: Topology) -> np.ndarray:
    """Return how many edges to other cliques each node has."""
    return np.bincount(between(graph).reshape(-1), minlength=graph.n)


def dcliques(n: int, inter: str, clique_size: int = 10, seed: int = 0, **kwargs) -> Topology:
    how = {"clique_size": clique_size, "cliques": "random", "seed": seed} | kwargs
    return topologies.dcliques(n=n, inter=inter, **how)


@pytest.mark.parametrize(
    ("n", "low", "high", "slem_low", "slem_high"),
    [(100, 12.0, 12.2, 0.79, 0.81), (1000, 14.54, 14.6, 0.832, 0.837)],
)
def test_small_world_degree_and_slem(n, low, high, slem_low, slem_high):
    """Reference runs: degrees 12.1-12.2 and 14.56-14.58, SLEM 0.799-0.802 and 0.833-0.836.

    Random ties move them.
    """
    graph = dcliques(n, "small_world")
    q = n // 10
    assert len(between(graph)) <= 4 * q * int(np.ceil(np.log2(q)))
    assert low <= graph.out_degrees.mean() <= high
    assert slem_low <= mixing.metropolis_hastings(graph).slem <= slem_high


@pytest.mark.parametrize("inter", SCHEMES)
@pytest.mark.parametrize(
    ("n", "size"), [(10, 10), (20, 10), (30, 10), (21, 10), (35, 10), (11, 2), (8, 2), (41, 4)]
)
def test_every_scheme_at_every_size(inter, n, size):
    """Numbers of cliques 1, 2, 3; sizes that do not divide n; a last clique of one node."""
    graph = dcliques(n, inter, size, seed=2)
    q = -(-n // size)
    sizes = [size] * (n // size) + ([n % size] if n % size else [])
    assert [len(group) for group in graph.groups] == sizes
    assert graph.groups == topologies.random_cliques(n, size, seed=2).groups
    for group in graph.groups:
        inside = graph.adjacency[list(group)][:, list(group)]
        assert inside.nnz == len(group) * (len(group) - 1)
    assert graph.is_connected
    assert (loads(graph) == 0).all() == (q == 1)


@pytest.mark.parametrize("seed", range(5))
def test_ring_uses_two_nodes_a_clique(seed):
    graph = dcliques(100, "ring", seed=seed)
    load, clique = loads(graph), clique_of(graph)
    assert load.max() == 1
    assert np.bincount(clique, weights=load).tolist() == [2] * 10
    pairs = {frozenset(pair) for pair in clique[between(graph)].tolist()}
    assert pairs == {frozenset((k, (k + 1) % 10)) for k in range(10)}


@pytest.mark.parametrize("n", [100, 1000, 95])
def test_fully_connected_joins_each_pair_once_and_balances(n):
    graph = dcliques(n, "fully_connected")
    q = len(graph.groups)
    pairs = [tuple(pair) for pair in np.sort(clique_of(graph)[between(graph)], axis=1).tolist()]
    assert sorted(pairs) == [(a, b) for a in range(q) for b in range(a + 1, q)]
    assert all(np.ptp(loads(graph)[list(group)]) <= 1 for group in graph.groups)
    assert graph.diameter <= 3  # the paper: distance between any two nodes


def test_fractal_joins_groups_of_groups():
    graph = dcliques(1000, "fractal")
    load, clique = loads(graph), clique_of(graph)
    assert all(np.ptp(load[list(group)]) <= 1 for group in graph.groups)
    # the paper: at most as many edges to other groups as a clique has members
    assert load.max() <= 10
    pairs = clique[between(graph)]
    same = pairs[:, 0] // 10 == pairs[:, 1] // 10
    assert same.sum() == 450
    groups = np.sort(pairs[~same] // 10, axis=1)
    assert sorted(map(tuple, groups.tolist())) == list(combinations(range(10), 2))


@pytest.mark.parametrize(
    ("q", "group_size", "edges"), [(8, 2, 4 + 2 + 1), (9, 3, 9 + 3), (5, 4, 6 + 1), (5, 10, 10)]
)
def test_fractal_group_size(q, group_size, edges):
    graph = dcliques(3 * q, "fractal", 3, group_size=group_size)
    assert len(between(graph)) == edges
    assert graph.is_connected
    assert f"group_size={group_size}" in graph.name
    default = dcliques(3 * q, "fractal", 3)
    assert (default.adjacency != dcliques(3 * q, "fractal", 3, group_size=3).adjacency).nnz == 0


@pytest.mark.parametrize("q", [2, 3, 4, 5, 16])
def test_small_world_joins_the_listed_cliques(q):
    graph = dcliques(4 * q, "small_world", 4)
    levels = int(np.ceil(np.log2(q)))
    allowed = {(2**e + k) % q for e in range(levels) for k in (0, 1)} - {0}
    allowed |= {-d % q for d in allowed}
    pairs = clique_of(graph)[between(graph)]
    apart = pairs[:, 0] - pairs[:, 1]
    assert {int(d) for d in np.concatenate([apart, -apart]) % q} == allowed
    assert len(pairs) <= 4 * q * levels


def test_ties_are_broken_at_random_except_in_the_deterministic_scheme():
    rng = np.random.default_rng

    groups = [np.arange(k, k + 5) for k in range(0, 30, 5)]
    for scheme in (_ring, _small_world):
        assert scheme(groups, rng(0)).tolist() != scheme(groups, rng(1)).tolist()
    fixed = _fully_connected(groups, rng(0))
    assert fixed.tolist() == _fully_connected(groups, rng(1)).tolist()
    assert fixed[:5].tolist() == [[0, 5], [1, 10], [2, 15], [3, 20], [4, 25]]


def test_least_loaded_breaks_ties_uniformly():

    rng = np.random.default_rng(0)
    group, loads = np.array([4, 2, 9]), np.zeros(10, int)
    firsts = [int(_least_loaded(group, 2, loads.copy(), rng)[0]) for _ in range(600)]
    assert all(abs(firsts.count(node) - 200) < 4 * np.sqrt(600 * 2 / 9) for node in (4, 2, 9))


@pytest.mark.parametrize("inter", SCHEMES)
def test_cliques_are_those_of_greedy_swap(inter):
    counts = np.random.default_rng(0).integers(1, 50, size=(47, 6))
    how = {"steps": 50, "weighting": "pooled", "seed": 9}
    graph = topologies.dcliques(counts, clique_size=6, inter=inter, **how)
    swapped = topologies.greedy_swap(counts, 6, steps=50, weighting="pooled", seed=9)
    assert graph.groups == swapped.groups
    assert (graph.adjacency - swapped.adjacency).nnz == 2 * len(between(graph))


def one_class(classes: list[int], sizes: int = 7) -> np.ndarray:
    return sizes * np.eye(max(classes) + 1, dtype=int)[classes]


@pytest.mark.parametrize("per_class", [1, 3, 10])
def test_every_clique_holds_every_class_once(per_class):
    classes = np.random.default_rng(0).permutation(np.repeat(np.arange(10), per_class))
    graph = topologies.ideal_cliques(one_class(classes.tolist()), seed=0)
    assert len(graph.groups) == per_class
    assert all(sorted(classes[list(group)]) == list(range(10)) for group in graph.groups)
    assert graph.n_edges == 45 * per_class


@pytest.mark.parametrize("seed", range(5))
def test_sizes_and_classes_are_shared_out_evenly(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    size = int(rng.integers(2, n + 1))
    classes = rng.integers(0, 7, n)
    graph = topologies.ideal_cliques(one_class([*classes.tolist()]), size, seed=seed)
    assert sorted(node for group in graph.groups for node in group) == list(range(n))
    assert len(graph.groups) == -(-n // size)
    held = np.array([np.bincount(classes[list(group)], minlength=7) for group in graph.groups])
    assert held.sum(axis=1).max() <= size
    assert np.ptp(held.sum(axis=1)) <= 1
    assert np.ptp(held, axis=0).max() <= 1


@pytest.mark.parametrize("classes", [[0, 0, 0, 1, 1, 2], [0, 0, 0, 0, 0, 1], [0, 0, 1, 1, 2, 3]])
def test_cliques_of_equal_size_have_the_least_skew_there_is(classes):
    counts = one_class(classes)
    halves = combinations(range(6), 3)
    splits = ([first, sorted(set(range(6)) - set(first))] for first in halves)
    least = min(clique_skew(split, counts).sum() for split in splits)
    for seed in range(5):
        graph = topologies.ideal_cliques(counts, 3, seed=seed)
        assert clique_skew(graph, counts).sum() == pytest.approx(least, abs=1e-12)


def test_nodes_and_classes_are_dealt_at_random():
    graphs = [topologies.ideal_cliques(n=6, clique_size=3, seed=seed) for seed in range(200)]
    together = [any({0, 1} <= set(group) for group in graph.groups) for graph in graphs]
    # node 1 is in the clique of node 0 or in the other one
    assert abs(sum(together) - 100) < 4 * np.sqrt(50)


def test_cliques_may_be_joined():
    disjoint = topologies.ideal_cliques(n=40, seed=0)
    ring = topologies.ideal_cliques(n=40, inter="ring", seed=0)
    assert disjoint.groups == ring.groups
    assert (disjoint.is_connected, ring.is_connected) == (False, True)
    assert ring.n_edges == disjoint.n_edges + 4


@pytest.mark.parametrize(
    ("classes", "sizes"), [([0, 2, 2, 0, 2, 0], [2, 2, 2]), ([1, 1, 1], [2, 1]), ([0, 1], [2])]
)
def test_the_default_size_is_the_number_of_classes_as_far_as_it_can(classes, sizes):
    graph = topologies.ideal_cliques(one_class(classes), seed=0)
    assert [len(group) for group in graph.groups] == sizes
    assert topologies.ideal_cliques(n=7, seed=0).name == "ideal_cliques(n=7, clique_size=7, seed=0)"


@pytest.mark.parametrize("inter", ["fully_connected", "ring", "fractal"])
@pytest.mark.parametrize(("n", "size"), [(96, 5), (103, 10), (55, 2), (64, 4)])
def test_loads_inside_a_clique_differ_by_at_most_one_also_in_smaller_cliques(inter, n, size):
    graph = dcliques(n, inter, size)
    assert max(np.ptp(loads(graph)[list(clique)]) for clique in graph.groups) <= 1


@pytest.mark.parametrize(
    ("n", "size", "group", "is_even"), [(64, 4, 4, True), (54, 2, 3, True), (96, 5, 4, False)]
)
def test_loads_of_a_fractal_are_even_where_cliques_and_groups_are(n, size, group, is_even):
    assert (np.ptp(loads(dcliques(n, "fractal", size, group_size=group))) <= 1) == is_even


def test_without_label_counts_a_node_has_one_class():
    graph = topologies.dcliques(n=100, inter="ring", seed=0)
    assert all({node % 10 for node in group} == set(range(10)) for group in graph.groups)
    given = topologies.dcliques(np.eye(10, dtype=int)[np.arange(100) % 10], inter="ring", seed=0)
    assert (graph.adjacency != given.adjacency).nnz == 0


@pytest.mark.slow
def test_a_hundred_thousand_nodes():
    counts = np.eye(10, dtype=int)[np.arange(100_000) % 10]
    for inter, edges in (("ring", 10_000), ("fractal", 45 * (1000 + 100 + 10 + 1))):
        graph = topologies.dcliques(counts, inter=inter, steps=10, seed=0)
        assert graph.n_edges == 450_000 + edges
        assert graph.is_connected
    most = next(q for q in range(6000, 7000) if q * (q - 1) // 2 > MOST_PAIRS)
    assert most == 6326  # as the docstring says
