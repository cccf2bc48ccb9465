"""Label distributions of nodes, cliques and neighbors; communities; distances of models."""

from itertools import permutations
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.spatial import distance
from scipy.stats import entropy

from tests.rows.metrics import counts_of, graphs, pull, undirected
from topofl import mixing, topologies
from topofl._linalg.distributions import distance as between
from topofl.metrics import (
    clique_skew,
    clustering,
    communities,
    consensus,
    consensus_distance,
    gradient_mixing_error,
    label_distributions,
    label_separation,
    mean_model,
    modularity,
    neighbor_label_distance,
    neighborhood_heterogeneity,
    sigma,
)
from topofl.topology import as_topology, from_edges

PATH = from_edges([(0, 1), (1, 2)], 3, name="path")
LINE = from_edges([(0, 1), (1, 2)], 3, name="line", directed=True)
COUNTS = [[6, 0], [0, 3], [2, 2]]


def two_shards(n: int, seed: int, per_class: int = 5000, classes: int = 10) -> np.ndarray:
    """Return label counts of sorted examples in 2n equal shards, two per node."""
    shards = np.repeat(np.arange(classes), per_class).reshape(2 * n, -1)
    order = np.random.default_rng(seed).permutation(2 * n).reshape(n, 2)
    return np.stack([np.bincount(shards[pair].ravel(), minlength=classes) for pair in order])


# Neighborhoods


def test_label_distributions_by_hand():
    for counts in (COUNTS, np.array(COUNTS, np.uint8), torch.tensor(COUNTS)):
        for given_as in (counts, SimpleNamespace(label_counts=counts)):
            shares = label_distributions(given_as)
            assert shares.dtype == np.float64
            np.testing.assert_array_equal(shares, [[1, 0], [0, 1], [0.5, 0.5]])
    np.testing.assert_allclose(label_distributions(3 * counts_of(9)).sum(axis=1), 1)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (lambda seed: topologies.ring(100), 0.150),
        (lambda seed: topologies.grid(100), 0.100),
        (lambda seed: topologies.random_regular(100, 10, seed=seed), 0.0366),
        (lambda seed: topologies.exponential(100), 0.0255),
    ],
    ids=["ring", "grid", "random_regular", "exponential"],
)
def test_known_values_of_two_shards_per_node(graph, expected):
    values = [neighborhood_heterogeneity(graph(s), two_shards(100, s)) for s in range(20)]
    # The known values are means of 5 seeds: allow 4 standard errors of such a mean, and the last
    # digit given.
    assert np.mean(values) == pytest.approx(expected, abs=4 * np.std(values) / np.sqrt(5) + 5e-4)


@given(graphs(), undirected, st.integers(0, 99))
def test_heterogeneity_is_bounded_by_that_without_communication(graph, doubly, seed):
    alone = mixing.from_weights(np.eye(doubly.n))
    counts = counts_of(doubly.n, seed=seed)
    variance = neighborhood_heterogeneity(alone, counts)
    assert neighborhood_heterogeneity(doubly, counts) <= variance + 1e-12
    assert variance <= 1 - 1 / counts.shape[1] + 1e-12
    one_class_each = neighborhood_heterogeneity(alone, np.eye(doubly.n, dtype=int))
    assert one_class_each == pytest.approx(1 - 1 / doubly.n)
    equal = np.repeat(counts[:1], graph.n, axis=0)
    assert neighborhood_heterogeneity(graph, equal) == pytest.approx(0, abs=1e-15)


# Cliques


def test_clique_skew_by_hand():
    # Mean shares of class 0: all 1/2; of nodes 0 and 2, 3/4; of node 1, 0. Both classes differ by
    # as much.
    groups = [(0, 2), (1,)]
    for cliques in (groups, from_edges([(0, 2)], 3, groups=groups)):
        np.testing.assert_allclose(clique_skew(cliques, COUNTS), [0.5, 1.0])
    # Pooled: all 8/13; nodes 0 and 2 together 8/10, node 1 0/3.
    pooled = clique_skew(groups, COUNTS, weighting="pooled")
    np.testing.assert_allclose(pooled, [2 * (8 / 10 - 8 / 13), 2 * 8 / 13])
    empty = [[4, 0], [0, 0], [0, 4]]  # nodes without data, but no such group
    np.testing.assert_allclose(clique_skew([(0, 1, 2)], empty, weighting="pooled"), [0.0])


def test_weightings_agree_for_equal_amounts_of_data():
    counts, groups = two_shards(100, seed=0), np.arange(100).reshape(10, 10)
    pooled = clique_skew(groups, counts, weighting="pooled")
    np.testing.assert_allclose(clique_skew(groups, counts), pooled)


DISTANCES = {
    "l1": distance.cityblock,
    "total_variation": lambda p, q: distance.cityblock(p, q) / 2,
    "kl": entropy,
    "symmetric_kl": lambda p, q: entropy(p, q) + entropy(q, p),
    "hellinger": lambda p, q: distance.euclidean(np.sqrt(p), np.sqrt(q)) / np.sqrt(2),
    "euclidean": distance.euclidean,
    "chebyshev": distance.chebyshev,
    "jensen_shannon": distance.jensenshannon,
}


@pytest.mark.parametrize("weighting", ["uniform", "pooled"])
@pytest.mark.parametrize("name", DISTANCES)
def test_skews_are_the_distances_of_scipy(name, weighting):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 4, (30, 6)) * rng.integers(1, 9, (30, 1)) + np.eye(6, dtype=int)[0]
    counts[:10, 5] = 0  # so that the first two cliques lack a class
    groups = np.arange(30).reshape(6, 5)
    rows = counts / counts.sum(axis=1, keepdims=True) if weighting == "uniform" else counts
    q = rows.sum(axis=0) / rows.sum()
    expected = [DISTANCES[name](rows[g].sum(axis=0) / rows[g].sum(), q) for g in groups]
    measured = clique_skew(groups, counts, weighting=weighting, distance=name)
    np.testing.assert_allclose(measured, expected, rtol=1e-12)
    assert (np.isinf(measured) == (name == "symmetric_kl") * (np.arange(6) < 2)).all()
    whole = clique_skew([range(30)], counts, weighting=weighting, distance=name)
    assert 0 <= whole[0] < 1e-15


def test_distances_of_near_distributions_agree_to_second_order():
    # For p = q + e v and chi = sum v^2 / q: to first order both KL are e^2 chi / 2,
    # and the squares of the first two are e^2 chi / 8.
    q, v = np.array([0.2, 0.3, 0.5])[:, None], np.array([1.0, -2.0, 1.0])[:, None]
    chi = float((v**2 / q).sum())
    for e in (1e-3, 1e-6, 1e-9):
        close = 2 * e + 1e-6  # relative error of the second order
        root = pytest.approx(e * np.sqrt(chi / 8), rel=close)
        assert between("jensen_shannon", q + e * v, q)[0] == root
        assert between("hellinger", q + e * v, q)[0] == root
        both = between("symmetric_kl", q + e * v, q)[0]
        assert both == pytest.approx(e**2 * chi, rel=4 * e + 1e-6, abs=1e-16)


# Communities

CAVEMEN = as_topology(nx.connected_caveman_graph(4, 6))


def test_communities_of_connected_cliques_are_the_cliques():
    assert communities(CAVEMEN) == [list(range(k, k + 6)) for k in range(0, 24, 6)]
    assert communities(from_edges([(0, 1)], 4)) == [[0, 1], [2], [3]]
    assert communities(topologies.fully_connected(5)) == [[0, 1, 2, 3, 4]]
    weights = pull(topologies.random_in(8, 2, seed=0).at(0))
    for function in (communities, clustering, lambda graph: modularity(graph, [range(8)])):
        assert function(weights) == function(weights.support())


def test_modularity_of_disjoint_cliques_has_its_closed_form():
    cliques = topologies.random_cliques(20, 5, seed=0)
    assert modularity(cliques, cliques.groups) == pytest.approx(1 - 1 / 4)
    assert communities(cliques) == sorted(sorted(map(int, group)) for group in cliques.groups)
    assert modularity(cliques, [range(20)]) == pytest.approx(0)
    assert modularity(from_edges([], 3), [[0, 1], [2]]) == 0


def test_neighbor_label_distance_is_one_by_chance_and_less_for_similar_neighbors():
    counts = np.eye(4, dtype=int).repeat(3, axis=0)  # nodes 0, 1, 2 have class 0, and so on
    alike = [range(k, k + 3) for k in range(0, 12, 3)]
    mixed = [range(k, 12, 3) for k in range(3)]
    unlike = from_edges([(0, 3), (4, 7)], 12)
    assert neighbor_label_distance(topologies.fully_connected(12), counts) == pytest.approx(1)
    assert neighbor_label_distance(from_edges([(0, 1), (4, 5)], 12), counts) == 0
    assert neighbor_label_distance(unlike, counts) == pytest.approx(1 / (9 / 11))
    assert label_separation(alike, counts) == pytest.approx(1)
    assert label_separation(mixed, counts) == pytest.approx(1 - (9 / 9) / (9 / 11))
    assert label_separation([range(12)], counts) == 0
    # shares whose sum is not 1 after rounding
    for row in ([1, 1, 1], [7, 7, 4, 3, 2, 3, 4], [1, 0, 6, 3, 3, 0]):
        equal = np.tile(row, (12, 1))
        assert neighbor_label_distance(topologies.ring(12), equal) == 1
        assert label_separation(alike, equal) == 0


def test_label_separation_of_random_groups_is_zero_on_average():
    counts = np.array([[5, 0, 0], [4, 1, 0], [0, 3, 0], [1, 1, 2], [0, 0, 7]])
    orders = map(list, permutations(range(len(counts))))
    over_all = [label_separation([order[:2], order[2:]], counts) for order in orders]
    assert np.mean(over_all) == pytest.approx(0, abs=1e-12)
    assert max(over_all) > 0.3


# Consensus distance

# Mean (1, 2); squared distances 1 + 4, 1 + 1 and 0 + 1 sum to 8.
MODELS = np.array([[0.0, 0.0], [2.0, 3.0], [1.0, 3.0]])
KINDS = [
    np.asarray,
    lambda a: a.astype(np.float16),
    lambda a: a.astype(int),
    torch.from_numpy,
    lambda a: torch.from_numpy(a).to(torch.bfloat16),
    lambda a: torch.from_numpy(a).requires_grad_(),
]
every_kind = pytest.mark.parametrize(
    "convert", KINDS, ids=["float64", "float16", "int", "torch", "bfloat16", "requires_grad"]
)
vectors = arrays.arrays(np.float64, (4, 3), elements=st.integers(-1000, 1000).map(float))


@every_kind
def test_consensus_distance_by_hand(convert):
    models, expected = convert(MODELS.copy()), np.sqrt((5 + 2 + 1) / 3)
    found = [consensus_distance(models, relative=relative) for relative in (False, True)]
    assert found == pytest.approx([expected, expected / np.sqrt(5)], rel=1e-15)
    assert type(found[0]) is float
    mean = mean_model(models)
    assert type(mean) is type(models)
    np.testing.assert_array_equal(np.asarray(mean), [1.0, 2.0])
    np.testing.assert_array_equal(np.asarray(models.tolist()), MODELS)
    assert np.isnan(consensus_distance(np.array([[0.0], [np.nan]])))


def test_consensus_distance_accumulates_in_float64():
    # In float32 the squares of differences around 10^4 would lose the small one, and the mean would
    # be rounded.
    models = torch.tensor([[1e4, 1.0], [1e4 + 0.0009765625, 1.0]], dtype=torch.float32)
    assert consensus_distance(models) == pytest.approx(0.0009765625 / 2, rel=1e-12)
    assert mean_model(models).dtype == torch.float64
    equal = np.full((3, 4), 0.1)
    assert equal.mean(axis=0)[0] != 0.1  # the sum of three is rounded
    assert consensus_distance(equal) == consensus_distance(MODELS[:1]) == 0.0


@given(vectors, vectors, st.floats(-100, 100))
def test_consensus_distance_ignores_translation_and_is_homogeneous(stack, other, factor):
    value = consensus_distance(stack)
    assert (value == 0) == bool((stack == stack[0]).all())
    assert consensus_distance(stack + other[0]) == pytest.approx(value, abs=1e-9)
    scaled = consensus_distance(factor * stack)
    assert scaled == pytest.approx(abs(factor) * value, abs=1e-9)


@given(vectors, undirected)
def test_one_exchange_shrinks_distances_by_sigma_at_least(stack, graph):
    stack, matrix = np.resize(stack, (graph.n, 3)), mixing.metropolis_hastings(graph)
    bound = sigma(matrix) * consensus_distance(stack)
    assert consensus_distance(matrix @ stack) <= bound + 1e-9
    assert gradient_mixing_error(matrix, stack / 1000) <= (bound / 1000) ** 2 + 1e-12


# Gradient mixing error

# Metropolis-Hastings on the path: rows (2, 1, 0)/3, (1, 1, 1)/3, (0, 1, 2)/3. The columns become 4,
# 3, 2 and 1, 1, 1. Their means are 3 and 1.
GRADIENTS = np.array([[6.0, 0.0], [0.0, 3.0], [3.0, 0.0]])


def weights(n, seed):
    """Return row-stochastic weights with no other structure."""
    matrix = np.random.default_rng(seed).random((n, n)) ** 3
    return mixing.from_weights(matrix / matrix.sum(axis=1, keepdims=True))


@every_kind
def test_gradient_mixing_error_by_hand(convert):
    gradients = convert(GRADIENTS.copy())
    found = gradient_mixing_error(PATH, gradients)
    assert found == pytest.approx((1 + 0 + 1) / 3, rel=1e-14)
    assert type(found) is float
    # Rows (1, 0, 0), (1, 1, 0)/2, (0, 1, 1)/2: 6, 3, 3/2 and 0, 3/2, 3/2.
    expected = (9 + 0 + 9 / 4 + 1 + 1 / 4 + 1 / 4) / 3
    assert gradient_mixing_error(LINE, gradients) == pytest.approx(expected, rel=1e-14)
    np.testing.assert_array_equal(np.asarray(gradients.tolist()), GRADIENTS)


@pytest.mark.parametrize("chunk", [1, 12, 10**6])
def test_it_agrees_with_the_formula_for_any_chunk_size(monkeypatch, chunk):
    monkeypatch.setattr(consensus, "CHUNK", chunk)
    matrix, gradients = weights(5, seed=0), np.random.default_rng(1).standard_normal((5, 11))
    expected = np.linalg.norm((matrix.weights.toarray() - 1 / 5) @ gradients) ** 2 / 5
    for values in (gradients, torch.from_numpy(gradients)):
        assert gradient_mixing_error(matrix, values) == pytest.approx(expected, rel=1e-12)
