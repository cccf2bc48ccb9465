"""Communities and labels against closed forms, brute force over pairs, and random groups."""

from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import mixing, topologies
from topofl.metrics import (
    clustering,
    communities,
    label_distributions,
    label_separation,
    modularity,
    neighbor_label_distance,
)
from topofl.topology import TopologyError, as_topology, from_edges

CAVEMEN = as_topology(nx.connected_caveman_graph(4, 6))
CAVES = [list(range(k, k + 6)) for k in range(0, 24, 6)]


@st.composite
def labelled(draw):
    """Return a random directed graph with edges, and label counts without empty nodes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, classes = draw(st.integers(3, 12)), draw(st.integers(1, 5))
    mask = (rng.random((n, n)) < draw(st.sampled_from([0.1, 0.4, 0.9]))) & ~np.eye(n, dtype=bool)
    mask[0, 1] = True
    counts = rng.integers(0, 4, (n, classes))
    counts[:, 0] += counts.sum(axis=1) == 0
    return from_edges(np.argwhere(mask), n, directed=True), counts


def test_communities_of_a_matrix_are_those_of_its_graph():
    weights = mixing.uniform(topologies.random_in(8, 2, seed=0).at(0), direction="pull")
    for function in (communities, clustering, lambda graph: modularity(graph, [range(8)])):
        assert function(weights) == function(weights.support())


def test_communities_of_connected_cliques_are_the_cliques():
    assert communities(CAVEMEN) == CAVES
    assert communities(from_edges([(0, 1)], 4)) == [[0, 1], [2], [3]]
    assert communities(topologies.fully_connected(5)) == [[0, 1, 2, 3, 4]]


def test_modularity_of_disjoint_cliques_has_its_closed_form():
    cliques = topologies.random_cliques(20, 5, seed=0)
    assert modularity(cliques, cliques.groups) == pytest.approx(1 - 1 / 4)
    assert communities(cliques) == sorted(sorted(map(int, group)) for group in cliques.groups)
    assert modularity(cliques, [range(20)]) == pytest.approx(0)
    assert modularity(from_edges([], 3), [[0, 1], [2]]) == 0


@given(labelled())
def test_modularity_is_newmans_sum_over_pairs(case):
    graph, _ = case
    weights = (graph.adjacency + graph.adjacency.T).toarray()
    degrees, total = weights.sum(axis=1), weights.sum()
    found = communities(graph)
    group = {node: k for k, nodes in enumerate(found) for node in nodes}
    same = [[group[i] == group[j] for j in range(graph.n)] for i in range(graph.n)]
    expected = ((weights - np.outer(degrees, degrees) / total) * same).sum() / total
    assert modularity(graph, found) == pytest.approx(expected)
    assert (
        expected >= -1e-12
    )  # Louvain starts from single nodes and never gets worse; one group of all has 0


@given(labelled())
def test_neighbor_label_distance_agrees_with_brute_force(case):
    graph, counts = case
    shares = label_distributions(counts)

    def distance(i, j):
        return np.abs(shares[i] - shares[j]).sum() / 2

    edges = np.mean([distance(i, j) for i, j in graph.edge_index.T])
    pairs = np.mean([distance(i, j) for i, j in permutations(range(graph.n), 2)])
    expected = 1.0 if pairs == 0 else edges / pairs
    assert neighbor_label_distance(graph, counts) == pytest.approx(expected)


def test_neighbor_label_distance_is_one_by_chance_and_less_for_similar_neighbors():
    counts = np.eye(4, dtype=int).repeat(3, axis=0)  # nodes 0, 1, 2 have class 0, and so on
    alike = [range(k, k + 3) for k in range(0, 12, 3)]
    mixed = [range(k, 12, 3) for k in range(3)]
    assert neighbor_label_distance(topologies.fully_connected(12), counts) == pytest.approx(1)
    assert neighbor_label_distance(from_edges([(0, 1), (4, 5)], 12), counts) == 0
    assert neighbor_label_distance(from_edges([(0, 3), (4, 7)], 12), counts) == pytest.approx(
        1 / (9 / 11)
    )
    assert label_separation(alike, counts) == pytest.approx(1)
    assert label_separation(mixed, counts) == pytest.approx(1 - (9 / 9) / (9 / 11))
    assert label_separation([range(12)], counts) == 0
    assert label_separation(alike, np.ones((12, 3), dtype=int)) == 0
    for row in (
        [1, 1, 1],
        [7, 7, 4, 3, 2, 3, 4],
        [1, 0, 6, 3, 3, 0],
    ):  # shares whose sum is not 1 after rounding
        equal = np.tile(row, (12, 1))
        assert neighbor_label_distance(topologies.ring(12), equal) == 1
        assert label_separation(alike, equal) == 0


def test_label_separation_of_random_groups_is_zero_on_average():
    counts = np.array([[5, 0, 0], [4, 1, 0], [0, 3, 0], [1, 1, 2], [0, 0, 7]])
    over_all = [
        label_separation([order[:2], order[2:]], counts)
        for order in map(list, permutations(range(len(counts))))
    ]
    assert np.mean(over_all) == pytest.approx(0, abs=1e-12)
    assert max(over_all) > 0.3


def test_invalid_groups_and_graphs_are_refused():
    counts = np.eye(3, dtype=int)
    with pytest.raises(TopologyError, match="needs edges"):
        neighbor_label_distance(from_edges([], 3), counts)
    with pytest.raises(ValueError, match="one row per node: got 3 rows"):
        neighbor_label_distance(topologies.ring(4), counts)
    with pytest.raises(ValueError, match="fewer than the 3 nodes"):
        label_separation([[0], [1], [2]], counts)
    with pytest.raises(ValueError, match=r"`groups` must hold nodes 0\.\.2, group 1 has others"):
        label_separation([[0, 1], [2, 3]], counts)
    for groups in ([[0, 1]], [[0, 1], [1, 2]]):
        with pytest.raises(ValueError, match=r"every node 0\.\.2 exactly once"):
            label_separation(groups, counts)
        with pytest.raises(ValueError, match=r"every node 0\.\.2 exactly once"):
            modularity(topologies.ring(3), groups)
    for groups in ([[0.9, 1.2], [2.7]], ["012"], [0, 1, 2], [[0, 1, 2], []]):
        with pytest.raises(ValueError, match="`groups` must hold non-empty sequences of nodes"):
            modularity(topologies.ring(3), groups)
    with pytest.raises(ValueError, match="`seed`"):
        communities(CAVEMEN, seed=-1)
    with pytest.raises(TypeError):
        communities(topologies.one_peer_exponential(8))
