"""Label distributions of nodes, cliques, neighbors and communities."""

from functools import partial
from itertools import permutations
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import distance
from scipy.stats import entropy

from topofl import mixing, topologies
from topofl._linalg.distributions import distance as between
from topofl.metrics import (
    clique_skew,
    clustering,
    communities,
    label_distributions,
    label_separation,
    modularity,
    neighbor_label_distance,
    neighborhood_heterogeneity,
)
from topofl.topology import TopologyError, as_topology, from_edges

PATH = from_edges([(0, 1), (1, 2)], 3, name="path")
COUNTS = [[6, 0], [0, 3], [2, 2]]


def two_shards(n: int, seed: int, per_class: int = 5000, classes: int = 10) -> np.ndarray:
    """Return label counts of sorted examples in 2n equal shards, two per node."""
    shards = np.repeat(np.arange(classes), per_class).reshape(2 * n, -1)
    order = np.random.default_rng(seed).permutation(2 * n).reshape(n, 2)
    return np.stack([np.bincount(shards[pair].ravel(), minlength=classes) for pair in order])


# label_distributions


def test_label_distributions_by_hand():
    expected = [[1, 0], [0, 1], [0.5, 0.5]]
    for counts in (
        COUNTS,
        np.array(COUNTS, np.uint8),
        torch.tensor(COUNTS),
        SimpleNamespace(label_counts=COUNTS),
    ):
        shares = label_distributions(counts)
        assert shares.dtype == np.float64
        np.testing.assert_array_equal(shares, expected)


def test_label_distributions_names_nodes_without_data():
    with pytest.raises(ValueError, match=r"`label_counts`.* nodes 1, 3 have none"):
        label_distributions([[1, 0], [0, 0], [0, 2], [0, 0]])
    with pytest.raises(ValueError, match="nodes 0, 1, 2, 3, 4 and 3 more have none"):
        label_distributions(np.zeros((8, 2), int))


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        ([1, 2], ValueError),
        (np.zeros((0, 3), int), ValueError),
        (np.zeros((3, 0), int), ValueError),
        ([[1, -1]], ValueError),
        ([[0.5, 0.5]], TypeError),
        ([["a"]], TypeError),
    ],
)
@pytest.mark.parametrize(
    "metric",
    [
        label_distributions,
        partial(neighborhood_heterogeneity, PATH),
        partial(clique_skew, [[0]]),
        partial(clique_skew, [[0]], weighting="pooled"),
    ],
)
def test_bad_label_counts_are_refused(metric, counts, error):
    with pytest.raises(error, match="`label_counts`"):
        metric(counts)


# neighborhood_heterogeneity


def test_neighborhood_heterogeneity_by_hand():
    # Metropolis-Hastings on the path: 1/3 on edges, 2/3, 1/3 and 2/3 on the diagonal; mean shares
    # are 1/2 and 1/2. Class 0 in the rows of W Pi: 2/3, (1 + 0 + 1/2)/3 = 1/2, (0 + 1)/3 = 1/3. So
    # 2 ((1/6)^2 + 0 + (1/6)^2) / 3.
    assert neighborhood_heterogeneity(PATH, COUNTS) == pytest.approx(1 / 27, abs=1e-15)


def test_the_mean_over_nodes_is_not_weighted_by_the_amount_of_data():
    scaled = np.array(COUNTS) * np.array([[1], [50], [3]])
    assert neighborhood_heterogeneity(PATH, scaled) == pytest.approx(1 / 27, abs=1e-15)


def test_without_communication_it_is_the_variance_of_the_shares():
    identity = mixing.from_weights(np.eye(4))
    one_class_each = np.eye(4, dtype=int)
    assert neighborhood_heterogeneity(identity, one_class_each) == pytest.approx(1 - 1 / 4)


def test_pull_on_a_digraph():
    # 0 -> 1 -> 2: rows of W are (1, 0, 0), (1/2, 1/2, 0), (0, 1/2, 1/2); class 0 in W Pi: 1, 1/2,
    # 1/4.
    line = from_edges([(0, 1), (1, 2)], 3, directed=True)
    assert neighborhood_heterogeneity(line, COUNTS) == pytest.approx(2 * (1 / 4 + 0 + 1 / 16) / 3)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (lambda seed: nx.cycle_graph(100), 0.150),
        (lambda seed: nx.grid_2d_graph(10, 10), 0.100),
        (lambda seed: nx.random_regular_graph(10, 100, seed=seed), 0.0366),
        (lambda seed: nx.circulant_graph(100, [2**e for e in range(7)]), 0.0255),
    ],
    ids=["ring", "grid", "random_regular", "exponential"],
)
def test_known_values_of_two_shards_per_node(graph, expected):
    values = [
        neighborhood_heterogeneity(as_topology(graph(s)), two_shards(100, s)) for s in range(20)
    ]
    # The known values are means of 5 seeds: allow 4 standard errors of such a mean, and the last
    # digit given.
    assert np.mean(values) == pytest.approx(expected, abs=4 * np.std(values) / np.sqrt(5) + 5e-4)


def test_heterogeneity_refuses_weights_that_do_not_average():
    line = from_edges([(0, 1), (1, 2)], 3, directed=True)
    with pytest.raises(TopologyError, match="the weight of node 0 tends to 0"):
        neighborhood_heterogeneity(line, COUNTS, weights=partial(mixing.uniform, direction="push"))


def test_heterogeneity_refuses_other_sizes():
    with pytest.raises(
        ValueError, match=r"`label_counts`.* 2 rows, metropolis_hastings\(path\) has n=3"
    ):
        neighborhood_heterogeneity(PATH, COUNTS[:2])
    with pytest.raises(TypeError, match="`x`"):
        neighborhood_heterogeneity("path", COUNTS)
    with pytest.raises(ValueError, match="nodes 0 have none"):
        neighborhood_heterogeneity(PATH, [[0, 0], [1, 0], [1, 0]])


# clique_skew


def test_clique_skew_by_hand():
    # Mean shares of class 0: all 1/2; of nodes 0 and 2, 3/4; of node 1, 0. Both classes differ by
    # as much.
    np.testing.assert_allclose(clique_skew([(0, 2), (1,)], COUNTS), [0.5, 1.0])
    # Pooled: all 8/13; nodes 0 and 2 together 8/10, node 1 0/3.
    pooled = clique_skew([(0, 2), (1,)], COUNTS, weighting="pooled")
    np.testing.assert_allclose(pooled, [2 * (8 / 10 - 8 / 13), 2 * 8 / 13])


def test_clique_skew_of_a_topology_uses_its_groups():
    grouped = from_edges([(0, 2)], 3, groups=[(0, 2), (1,)])
    np.testing.assert_array_equal(clique_skew(grouped, COUNTS), clique_skew([(0, 2), (1,)], COUNTS))


def test_weightings_agree_for_equal_amounts_of_data():
    counts, groups = two_shards(100, seed=0), np.arange(100).reshape(10, 10)
    np.testing.assert_allclose(
        clique_skew(groups, counts), clique_skew(groups, counts, weighting="pooled")
    )


def test_random_cliques_of_two_shards_have_the_known_skew():
    values = []
    for seed in range(20):
        groups = np.random.default_rng([seed, 1]).permutation(100).reshape(10, 10)
        values.append(clique_skew(groups, two_shards(100, seed)).mean())
    # Known value: 0.46, a mean of 10 seeds; allow 3 standard errors of the difference, and the last
    # digit given.
    assert np.mean(values) == pytest.approx(
        0.46, abs=3 * np.std(values) * np.sqrt(1 / 10 + 1 / 20) + 5e-3
    )


def test_pooled_weighting_allows_nodes_without_data_but_no_such_group():
    counts = [[4, 0], [0, 0], [0, 4]]
    np.testing.assert_allclose(clique_skew([(0, 1, 2)], counts, weighting="pooled"), [0.0])
    with pytest.raises(ValueError, match="groups 1 have none"):
        clique_skew([(0, 2), (1,)], counts, weighting="pooled")
    with pytest.raises(ValueError, match="nodes 1 have none"):
        clique_skew([(0, 1, 2)], counts)


def test_clique_skew_refuses_bad_groups():
    with pytest.raises(TopologyError, match="path has none"):
        clique_skew(PATH, COUNTS)
    for groups in ([], [()], [(0, 3)], [(-1,)], [(0.5,)], [0, 1]):
        with pytest.raises(ValueError, match="`topology_or_groups`"):
            clique_skew(groups, COUNTS)
    with pytest.raises(ValueError, match="`label_counts`"):
        clique_skew(from_edges([], 4, groups=[(0,)]), COUNTS)
    with pytest.raises(ValueError, match="`weighting` must be one of 'uniform', 'pooled'"):
        clique_skew([(0,)], COUNTS, weighting="pool")


# distances of clique_skew

DISTANCES = [
    "l1",
    "total_variation",
    "kl",
    "symmetric_kl",
    "hellinger",
    "euclidean",
    "chebyshev",
    "jensen_shannon",
]


def reference_distance(name: str, p: np.ndarray, q: np.ndarray) -> float:
    """Return a distance computed by scipy."""
    return {
        "l1": lambda: distance.cityblock(p, q),
        "total_variation": lambda: distance.cityblock(p, q) / 2,
        "kl": lambda: entropy(p, q),
        "symmetric_kl": lambda: entropy(p, q) + entropy(q, p),
        "hellinger": lambda: distance.euclidean(np.sqrt(p), np.sqrt(q)) / np.sqrt(2),
        "euclidean": lambda: distance.euclidean(p, q),
        "chebyshev": lambda: distance.chebyshev(p, q),
        "jensen_shannon": lambda: distance.jensenshannon(p, q),
    }[name]()


@pytest.mark.parametrize("weighting", ["uniform", "pooled"])
@pytest.mark.parametrize("name", DISTANCES)
def test_skews_are_the_distances_of_scipy(name, weighting):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 4, (30, 6)) * rng.integers(1, 9, (30, 1)) + np.eye(6, dtype=int)[0]
    counts[:10, 5] = 0  # so that the first two cliques lack a class
    groups = np.arange(30).reshape(6, 5)
    rows = counts / counts.sum(axis=1, keepdims=True) if weighting == "uniform" else counts
    q = rows.sum(axis=0) / rows.sum()
    expected = [reference_distance(name, rows[g].sum(axis=0) / rows[g].sum(), q) for g in groups]
    measured = clique_skew(groups, counts, weighting=weighting, distance=name)
    np.testing.assert_allclose(measured, expected, rtol=1e-12)
    assert (np.isinf(measured) == (name == "symmetric_kl") * (np.arange(6) < 2)).all()


def test_distances_by_hand():
    # Cliques {0} and {1} of one class each; the global distribution is 1/2 and 1/2.
    counts = [[4, 0], [0, 4]]
    half = np.sqrt(0.5)
    js = np.sqrt((np.log(4 / 3) + 0.5 * np.log(2 / 3) + 0.5 * np.log(2)) / 2)
    expected = {
        "l1": 1,
        "total_variation": 0.5,
        "kl": np.log(2),
        "symmetric_kl": np.inf,
        "hellinger": np.sqrt(((1 - half) ** 2 + half**2) / 2),
        "euclidean": half,
        "chebyshev": 0.5,
        "jensen_shannon": js,
    }
    assert list(expected) == DISTANCES
    for name, value in expected.items():
        np.testing.assert_allclose(
            clique_skew([(0,), (1,)], counts, distance=name), [value] * 2, rtol=1e-14
        )


@pytest.mark.parametrize("name", DISTANCES)
def test_the_skew_of_the_global_distribution_is_zero_for_all_distances(name):
    counts = np.random.default_rng(1).integers(0, 9, (7, 5)) + np.eye(5, dtype=int)[0]
    assert 0 <= clique_skew([range(7)], counts, distance=name)[0] < 1e-15


def test_distances_of_near_distributions_agree_to_second_order():
    # For p = q + e v and chi = sum v^2 / q: to first order both KL are e^2 chi / 2,
    # and the squares of the first two are e^2 chi / 8.
    q, v = np.array([0.2, 0.3, 0.5])[:, None], np.array([1.0, -2.0, 1.0])[:, None]
    chi = float((v**2 / q).sum())
    for e in (1e-3, 1e-6, 1e-9):
        close = 2 * e  # relative error of the second order
        root = between("jensen_shannon", q + e * v, q)[0]
        assert root == pytest.approx(e * np.sqrt(chi / 8), rel=close + 1e-6)
        assert between("hellinger", q + e * v, q)[0] == pytest.approx(
            e * np.sqrt(chi / 8), rel=close + 1e-6
        )
        assert between("symmetric_kl", q + e * v, q)[0] == pytest.approx(
            e**2 * chi, rel=2 * close + 1e-6, abs=1e-16
        )


def test_clique_skew_refuses_unknown_distances():
    with pytest.raises(
        ValueError,
        match=r"`distance` must be one of 'l1', .*got 'hellingr'; did you mean 'hellinger'",
    ):
        clique_skew([(0,)], COUNTS, distance="hellingr")


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
