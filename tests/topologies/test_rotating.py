"""Rotating cliques: partitions, balance, repeated pairs, and the statements of their page."""

from itertools import combinations

import numpy as np
import pytest

from topofl import Topology, TopologySequence, data, metrics, mixing, topologies
from topofl.topologies import repeated_pairs
from topofl.topology import from_edges


@pytest.fixture(scope="module")
def counts():
    """Label counts of 60 nodes with two shards each."""
    return data.shards(data.digits(), n=60, per_node=2, seed=0).label_counts


def weights_of(graph):
    return mixing.metropolis_hastings(graph).weights.toarray()


def mean_skews(sequence, counts):
    return [metrics.clique_skew(sequence.at(t), counts).mean() for t in range(sequence.period)]


@pytest.mark.parametrize(("n", "size"), [(60, 10), (23, 5), (7, 2), (5, 5), (11, 10)])
def test_rounds_are_partitions_of_nearly_equal_sizes(n, size):
    sequence = topologies.rotating_cliques(n=n, clique_size=size, partitions=3, steps=50, seed=1)
    assert sequence.period == 3
    for t in range(3):
        graph = sequence.at(t)
        assert sorted(node for group in graph.groups for node in group) == list(range(n))
        sizes = [len(group) for group in graph.groups]
        assert len(sizes) == -(-n // size)
        assert max(sizes) <= size
        assert max(sizes) - min(sizes) <= 1
        assert graph.n_edges == sum(k * (k - 1) // 2 for k in sizes)


def test_every_round_is_nearly_as_balanced_as_greedy_swap(counts):
    sequence = topologies.rotating_cliques(counts, 10, seed=0)
    alone = metrics.clique_skew(topologies.greedy_swap(counts, 10, seed=0), counts).mean()
    random = metrics.clique_skew(topologies.random_cliques(60, 10, seed=0), counts).mean()
    assert max(mean_skews(sequence, counts)) < alone + (random - alone) / 10


def test_fewer_pairs_repeat_than_by_chance(counts):
    sequence = topologies.rotating_cliques(counts, 5, seed=0)
    chance = 120 * 4 / 59 * 6  # pairs of a partition that meet in another, for all 6 pairs of them
    assert repeated_pairs(sequence) < chance / 2


def test_repeated_pairs_are_counted_by_enumeration():
    sequence = topologies.rotating_cliques(n=12, clique_size=4, partitions=5, steps=20, seed=3)
    met, repeats = set(), 0
    for t in range(5):
        pairs = {p for g in sequence.at(t).groups for p in combinations(sorted(g), 2)}
        repeats += len(met & pairs)
        met |= pairs
    assert repeated_pairs(sequence) == repeats > 0
    assert repeated_pairs(topologies.ring(5)) == 0
    back = Topology(np.array([[0, 0], [1, 0]]))
    assert repeated_pairs(TopologySequence(2, lambda t: back, "back", period=2)) == 1


def test_a_node_needs_links_to_the_stated_number_of_others(counts):
    sequence = topologies.rotating_cliques(counts, 5, partitions=3, seed=0)
    union = np.stack([sequence.at(t).adjacency.toarray() for t in range(3)]).sum(axis=0)
    others = (union > 0).sum(axis=1)
    assert 9 <= others.min() <= others.max() <= 3 * 4


def test_without_partitions_every_round_is_new_and_a_function_of_its_number(counts):
    first, again = (
        topologies.rotating_cliques(counts, 5, partitions=None, steps=100, seed=4) for _ in range(2)
    )
    assert first.period is None
    assert first.at(7).groups == again.at(7).groups != first.at(8).groups


def test_noisy_shares_balance_true_labels(counts):
    shares = data.private_label_histograms(counts, epsilon=1.0, seed=0)
    sequence = topologies.rotating_cliques(label_shares=shares, clique_size=10, seed=0)
    random = metrics.clique_skew(topologies.random_cliques(60, 10, seed=0), counts).mean()
    assert max(mean_skews(sequence, counts)) < random


def test_groups_without_absent_nodes_leave_with_one_model(counts):
    sequence = topologies.rotating_cliques(counts, 5, seed=0)
    present = topologies.participation(sequence, fraction=0.8, seed=0)
    for t in range(4):
        weights = weights_of(present.at(t))
        np.testing.assert_allclose(weights @ weights, weights, atol=1e-12)


def test_failing_links_of_one_round_keep_the_mean_of_models(counts):
    graph = topologies.rotating_cliques(counts, 5, seed=0).at(1)
    failing = topologies.link_failures(graph, fail=0.2, recover=0.5, seed=0).at(3)
    assert failing.n_edges < graph.n_edges
    np.testing.assert_allclose(weights_of(failing).sum(axis=0), 1)


def test_links_of_a_sequence_fail_within_the_groups_of_each_round(counts):
    sequence = topologies.rotating_cliques(counts, 5, seed=0)
    failing = topologies.link_failures(sequence, fail=0.2, recover=0.5, seed=0)
    down = 0
    for t in range(8):  # the groups of a period come again, with other links that fail
        whole, left = sequence.at(t).adjacency.toarray(), failing.at(t).adjacency.toarray()
        assert (left <= whole).all()
        down += (whole - left).sum()
        weights = weights_of(failing.at(t))
        np.testing.assert_allclose(weights.sum(axis=0), 1)
        apart = ~np.eye(60, dtype=bool) & (whole == 0)
        assert (weights[apart] == 0).all()
    assert 0 < down < 8 * 240
    assert (failing.at(0).adjacency != failing.at(4).adjacency).nnz


def test_a_round_is_a_projection(counts):
    weights = weights_of(topologies.rotating_cliques(counts, 5, seed=0).at(1))
    np.testing.assert_allclose(weights @ weights, weights, atol=1e-12)


def test_uniform_partitions_leave_the_exact_share_of_the_deviation():
    """All 15 partitions of six nodes into pairs, and all 10 into triples."""

    def partitions(nodes, k):
        if not nodes:
            yield []
            return
        for others in combinations(nodes[1:], k - 1):
            left = [i for i in nodes[1:] if i not in others]
            yield from ([(nodes[0], *others), *rest] for rest in partitions(left, k))

    x = np.random.default_rng(0).normal(size=6)
    x -= x.mean()
    for k, count in ((2, 15), (3, 10)):
        squares = [
            sum(k * np.mean(x[list(group)]) ** 2 for group in groups)
            for groups in partitions(list(range(6)), k)
        ]
        assert len(squares) == count
        np.testing.assert_allclose(np.mean(squares), (6 / k - 1) / 5 * (x @ x))


def test_a_period_leaves_at_most_the_singular_value(counts):
    sequence = topologies.rotating_cliques(counts, 5, seed=0)
    product = np.eye(60)
    for t in range(4):
        product = weights_of(sequence.at(t)) @ product
    largest = np.linalg.svd(product - 1 / 60)[1][0]
    x = np.random.default_rng(0).normal(size=60)
    x -= x.mean()
    assert np.linalg.norm(product @ x) <= largest * np.linalg.norm(x)
    assert largest < 0.5


def test_the_bias_of_a_round_is_that_of_its_groups(counts):
    graph = topologies.rotating_cliques(counts, 5, seed=0).at(2)
    shares = counts / counts.sum(axis=1, keepdims=True)
    apart = [
        len(g) * np.square(shares[list(g)].mean(axis=0) - shares.mean(axis=0)).sum()
        for g in graph.groups
    ]
    bias = metrics.neighborhood_heterogeneity(graph, counts, hops=1)
    np.testing.assert_allclose(bias, sum(apart) / 60)


@pytest.mark.slow
def test_recommend_knows_them_and_what_links_they_need(counts):
    found = topologies.recommend(counts, max_degree=4, static=False)
    (one,) = (c for c in found.candidates if "rotating_cliques(clique_size=5)" in c.name)
    met = sum(one.topology.at(t).adjacency.toarray() != 0 for t in range(4)).astype(bool)
    most = met.sum(axis=1).max()
    assert 4 < most <= 16
    assert f"over 4 rounds, a node needs links to up to {most} of 59 others." in one.reason
    assert not any("links to" in c.reason for c in found.candidates if c.name == "ring(60)")


@pytest.mark.parametrize(("n", "k"), [(24, 4), (23, 5), (11, 10)])
def test_random_partitions_leave_the_stated_share_also_if_sizes_differ(n, k):
    """(groups - 1) / (n - 1), within four standard errors over 4,000 partitions."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=n)
    x -= x.mean()
    count = -(-n // k)
    left = [
        sum(len(g) * x[g].mean() ** 2 for g in np.array_split(rng.permutation(n), count))
        for _ in range(4000)
    ] / (x @ x)
    expected = (count - 1) / (n - 1)
    assert abs(left.mean() - expected) < 4 * left.std() / np.sqrt(len(left))
    assert expected < 1 / k or n % k


@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (5, 5), (2, 9)])
def test_rows_and_columns_of_a_grid_leave_nothing(rows, columns):
    n, nodes = rows * columns, np.arange(rows * columns).reshape(rows, columns)
    product = np.eye(n)
    for groups in (nodes, nodes.T):
        edges = [pair for group in groups.tolist() for pair in combinations(group, 2)]
        product = weights_of(from_edges(edges, n)) @ product
    np.testing.assert_allclose(product, 1 / n, atol=1e-15)
