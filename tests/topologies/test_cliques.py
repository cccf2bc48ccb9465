"""Greedy-Swap, central and by leaders who gossip: skews, distances, draws, messages."""

from collections import Counter
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from topofl import topologies
from topofl._support.seeding import stream
from topofl.metrics import clique_skew
from topofl.topologies import decentralized_greedy_swap_trace, greedy_swap_trace
from topofl.topologies.dcliques import gossip_estimates
from topofl.topology import from_edges

MNIST = [4943, 5607, 4926, 5121, 4860, 4529, 4960, 5237, 4877, 4940]  # 50,000 training examples
CIFAR10 = [5000] * 10
DISTANCES = [
    *("l1", "total_variation", "kl", "symmetric_kl", "hellinger", "euclidean", "chebyshev"),
    "jensen_shannon",
]


def two_shards(class_sizes: list[int], n: int, seed: int) -> np.ndarray:
    """Return label counts of nodes with two random shards each of the examples sorted by label."""
    labels = np.repeat(np.arange(len(class_sizes)), class_sizes)
    shards = labels.reshape(2 * n, -1)[np.random.default_rng(seed).permutation(2 * n)]
    counts = [np.bincount(mine, minlength=len(class_sizes)) for mine in shards.reshape(n, -1)]
    return np.array(counts)


def unequal_counts(n: int, classes: int, seed: int) -> np.ndarray:
    """Return random label counts, with nodes of very different sizes."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 40, (n, classes)) * rng.integers(1, 30, (n, 1))
    return counts + np.eye(classes, dtype=int)[0]


def naive_skew(group, counts: np.ndarray, weighting: str) -> float:
    """Return the skew of one clique straight from its definition."""
    if weighting == "pooled":
        mine, everyone = counts[list(group)].sum(axis=0), counts.sum(axis=0)
        return float(np.abs(mine / mine.sum() - everyone / everyone.sum()).sum())
    shares = counts / counts.sum(axis=1, keepdims=True)
    return float(np.abs(shares[list(group)].mean(axis=0) - shares.mean(axis=0)).sum())


def naive_improvements(first, second, counts, weighting):
    """Return the swaps of `first` with `second` that lower the sum of skews, and the new sums."""
    before = naive_skew(first, counts, weighting) + naive_skew(second, counts, weighting)
    after = {}
    for i in first:
        for j in second:
            a = [j if node == i else node for node in first]
            b = [i if node == j else node for node in second]
            after[i, j] = naive_skew(a, counts, weighting) + naive_skew(b, counts, weighting)
    return {swap: value for swap, value in after.items() if value < before - 1e-9}


def as_sets(groups) -> list[frozenset[int]]:
    return [frozenset(group) for group in groups]


def test_random_cliques_are_drawn_uniformly():
    partners = Counter()
    for seed in range(600):
        group = next(g for g in topologies.random_cliques(4, 2, seed=seed).groups if 0 in g)
        partners[next(node for node in group if node != 0)] += 1
    # 4 standard deviations
    assert all(abs(partners[j] - 200) < 4 * np.sqrt(600 * 2 / 9) for j in (1, 2, 3))


@pytest.mark.parametrize("weighting", ["uniform", "pooled"])
def test_every_step_makes_one_improving_swap_or_none(weighting):
    counts, how = unequal_counts(15, 5, seed=3), {"weighting": weighting, "seed": 2}
    path = [topologies.greedy_swap(counts, 4, steps=k, **how).groups for k in range(60)]
    n_swaps = 0
    for before, after in pairwise(path):
        assert [len(group) for group in before] == [len(group) for group in after]
        sets = enumerate(zip(as_sets(before), as_sets(after), strict=True))
        if changed := [k for k, (a, b) in sets if a != b]:
            first, second = changed
            old, new = set(before[first]), set(after[first])
            (i,), (j,) = old - new, new - old
            assert (i, j) in naive_improvements(before[first], before[second], counts, weighting)
            n_swaps += 1
    assert n_swaps > 3


def test_the_swap_is_uniform_among_the_improving_ones_not_the_best():
    """With two cliques, the best swap is made with probability 1 / (improving swaps) a step.

    Nor do members' places matter: the rank of the swap among the improving ones, from 0 to 1, is
    1/2 on average.
    """
    counts = unequal_counts(6, 3, seed=8)
    best, expected, variance, ranks = 0, 0.0, 0.0, []
    for seed in range(400):
        first, second = topologies.random_cliques(6, 3, seed=seed).groups
        improving = naive_improvements(first, second, counts, "uniform")
        if improving:
            after = topologies.greedy_swap(counts, 3, steps=1, seed=seed).groups[0]
            (i,), (j,) = set(first) - set(after), set(after) - set(first)
            ranks.append((list(improving).index((i, j)) + 0.5) / len(improving))
            best += (i, j) == min(improving, key=improving.__getitem__)
            expected += 1 / len(improving)
            variance += (1 - 1 / len(improving)) / len(improving)
    assert variance > 30
    assert abs(best - expected) < 4 * np.sqrt(variance)
    assert abs(np.mean(ranks) - 0.5) < 4 * np.sqrt(1 / 12 / len(ranks))


def test_the_two_cliques_are_drawn_uniformly():
    """The first step changes each of the three pairs of equally large cliques equally often."""
    counts = unequal_counts(9, 4, seed=1)
    pairs = Counter()
    for seed in range(450):
        before = as_sets(topologies.random_cliques(9, 3, seed=seed).groups)
        after = as_sets(topologies.greedy_swap(counts, 3, steps=1, seed=seed).groups)
        pairs[tuple(k for k in range(3) if before[k] != after[k])] += 1
    drawn = [pairs[pair] for pair in combinations(range(3), 2)]
    total = sum(drawn)
    assert total > 300
    assert all(abs(count - total / 3) < 4 * np.sqrt(total * 2 / 9) for count in drawn)


@pytest.mark.parametrize(
    ("class_sizes", "oracle"),
    [
        (MNIST, {0: 0.48, 100: 0.110, 200: 0.076, 400: 0.064, 1000: 0.063}),
        (CIFAR10, {0: 0.46, 100: 0.046, 200: 0.019, 400: 0.018, 1000: 0.018}),
    ],
    ids=["mnist", "cifar10"],
)
def test_mean_skew_of_the_papers_setting(class_sizes, oracle):
    """100 nodes of two shards, cliques of 10 (D-Cliques, Figures 17 and 18).

    The reference values are means over 10 seeds of another implementation, ours over 40. With s the
    standard deviation between seeds, their difference has standard error s sqrt(1/10 + 1/40); we
    allow 3 of them plus the rounding.
    """
    counts = [two_shards(class_sizes, 100, seed) for seed in range(40)]
    curves = [greedy_swap_trace(one, seed=s)[1].mean(axis=1) for s, one in enumerate(counts)]
    for steps, expected in oracle.items():
        values = np.array([curve[steps] for curve in curves])
        rounding = 0.005 if steps == 0 else 0.0005
        error = values.std(ddof=1) * np.sqrt(1 / 10 + 1 / 40)
        assert abs(values.mean() - expected) < 3 * error + rounding
    plateau = np.mean(curves, axis=0)
    # the paper: low skew in less than 400 steps
    assert plateau[400] - plateau[1000] < 0.1 * plateau[400]


def test_one_class_a_node_reaches_no_skew():
    counts = np.eye(10, dtype=int)[np.random.default_rng(0).permutation(100) % 10]
    assert greedy_swap_trace(counts, 10, seed=0)[1][-1].max() < 1e-12
    graph = topologies.greedy_swap(n=100, seed=0)
    assert all({node % 10 for node in group} == set(range(10)) for group in graph.groups)


def test_a_single_clique_has_nothing_to_swap():
    groups, skews = greedy_swap_trace(unequal_counts(6, 3, seed=0), 6, steps=5, seed=0)
    assert len(groups) == 1
    assert skews.shape == (6, 1)
    assert np.abs(skews).max() < 1e-12


@pytest.mark.parametrize("distance", DISTANCES)
def test_classes_that_a_clique_lacks_stay_at_zero_share(distance):
    """Thirds and sevenths are not exact: rounding must not pass for a class, nor be negative."""
    counts = np.eye(21, dtype=int)[np.random.default_rng(0).permutation(63) % 21] * 3
    groups, skews = greedy_swap_trace(counts, 7, steps=200, distance=distance, seed=0)
    expected = clique_skew(groups, counts, distance=distance)
    np.testing.assert_allclose(skews[-1], expected, rtol=0, atol=1e-12)
    assert np.isinf(skews).all() == (distance == "symmetric_kl")  # 7 nodes cannot have 21 classes


def test_shares_that_nodes_tell_replace_their_counts():
    counts = unequal_counts(20, 4, seed=2)
    shares = counts / counts.sum(axis=1, keepdims=True)
    told = topologies.greedy_swap(label_shares=shares, clique_size=5, seed=0)
    assert told.groups == topologies.greedy_swap(counts, clique_size=5, seed=0).groups
    assert told.name == "greedy_swap(label_shares[20x4], clique_size=5, seed=0)"
    wrong = shares + np.random.default_rng(0).normal(size=shares.shape)
    groups, skews = greedy_swap_trace(label_shares=wrong, clique_size=5, steps=50, seed=0)
    expected = [np.abs(wrong[list(g)].mean(axis=0) - wrong.mean(axis=0)).sum() for g in groups]
    assert np.allclose(skews[-1], expected, rtol=0, atol=1e-12)
    assert topologies.dcliques(label_shares=wrong, clique_size=5, steps=50, seed=0).groups == groups


@pytest.mark.parametrize("weighting", ["uniform", "pooled"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_trace_is_the_skew_by_the_distance_and_its_sum_never_grows(distance, weighting):
    counts = unequal_counts(26, 5, seed=4)
    how = {"weighting": weighting, "distance": distance}
    final, skews = greedy_swap_trace(counts, 4, steps=80, seed=1, **how)
    for steps in (0, 7, 40, 80):
        groups = topologies.greedy_swap(counts, 4, steps=steps, seed=1, **how).groups
        assert np.allclose(skews[steps], clique_skew(groups, counts, **how), rtol=0, atol=1e-12)
    assert groups == final
    total = skews.sum(axis=1)
    assert (total[1:] <= total[:-1] + 1e-12).all()
    assert (np.diff(total) < -1e-12).sum() > 5


@pytest.mark.parametrize("weighting", ["uniform", "pooled"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_it_stops_only_where_no_swap_improves(distance, weighting):
    counts, how = unequal_counts(14, 4, seed=5), {"distance": distance, "weighting": weighting}
    groups = topologies.greedy_swap(counts, 4, steps=600, seed=0, **how).groups
    for first, second in combinations(groups, 2):
        before = clique_skew([first, second], counts, **how).sum()
        for i, j in product(first, second):
            swapped = [[j if k == i else k for k in first], [i if k == j else k for k in second]]
            assert clique_skew(swapped, counts, **how).sum() >= before - 1e-9


def test_where_the_distance_is_infinite_swaps_first_complete_the_classes():
    """One class a node and one-class cliques: skews are infinite, yet swaps lead to no skew."""
    counts, how = np.eye(4, dtype=int)[np.arange(40) % 4], {"distance": "symmetric_kl", "seed": 0}
    groups, skews = greedy_swap_trace(counts, 4, **how)
    assert np.isinf(skews[0]).sum() > 5
    paths = [topologies.greedy_swap(counts, 4, steps=k, **how).groups for k in range(60)]
    held = [sum(len({k % 4 for k in group}) for group in path) for path in paths]
    assert np.diff(held).min() >= 0
    assert held[0] < held[-1] <= 4 * len(groups)
    assert skews[-1].max() < 1e-12
    assert greedy_swap_trace(counts, 4, distance="kl", seed=0)[1][-1].max() < 1e-12


def test_inputs_are_arrays_lists_or_partitions():
    counts = unequal_counts(12, 3, seed=0)

    class Clients:
        label_counts = counts

    given = counts, counts.tolist(), Clients()
    assert len({topologies.greedy_swap(data, 4, seed=0).groups for data in given}) == 1
    assert (counts == unequal_counts(12, 3, seed=0)).all()  # the caller's array is left alone


# Leaders


def shares_of(counts: np.ndarray) -> np.ndarray:
    return counts / counts.sum(axis=1, keepdims=True)


def simulate(counts: np.ndarray, size: int, steps: int, estimates: np.ndarray, seed: int):
    """Return cliques, messages and numbers of leaders who meet, straight from the description."""
    shares, (n, classes) = shares_of(counts), counts.shape
    rng = stream(seed, "graph")
    order = rng.permutation(n).tolist()
    cliques = [order[k : k + size] for k in range(0, n, size)]
    leaders = [clique[0] for clique in cliques]
    members = n - len(cliques)
    messages, numbers = [members], [members * classes]

    def skew(clique: list[int], p: np.ndarray) -> float:
        return float(np.abs(shares[clique].mean(axis=0) - p).sum())

    for draw in rng.random((steps, 3)):
        a = int(draw[0] * len(cliques))
        b = [k for k in range(len(cliques)) if k != a][int(draw[1] * (len(cliques) - 1))]
        first, second, p = cliques[a], cliques[b], estimates[leaders[b]]
        options = []
        for i in range(len(first)):
            for j in range(len(second)):
                one, two = first.copy(), second.copy()
                one[i], two[j] = second[j], first[i]
                if skew(one, p) + skew(two, p) < skew(first, p) + skew(second, p) - 1e-12:
                    options.append((one, two))
        messages.append(2)
        numbers.append(len(first) * (classes + 1))
        if options:
            cliques[a], cliques[b] = options[int(draw[2] * len(options))]
            numbers[-1] += 2 + classes
            for k in (a, b):
                chosen = min(cliques[k], key=order.index)
                if chosen != leaders[k]:
                    messages[-1] += 1
                    numbers[-1] += len(cliques[k]) * (classes + 1)
                leaders[k] = chosen
                messages[-1] += len(cliques[k]) - 1
                numbers[-1] += (len(cliques[k]) - 1) * len(cliques[k])
    return tuple(map(tuple, cliques)), messages, numbers


@pytest.mark.parametrize("distance", ["l1", "jensen_shannon"])
@pytest.mark.parametrize(("n", "size"), [(60, 10), (47, 6), (6, 6)])
def test_leaders_who_know_everything_make_the_swaps_of_the_central_algorithm(n, size, distance):
    counts = unequal_counts(n, 5, seed=n)
    how = {"clique_size": size, "steps": 200, "distance": distance, "seed": 4}
    groups, skews = greedy_swap_trace(counts, **how)
    trace = decentralized_greedy_swap_trace(counts, **how)
    assert trace.groups == groups == topologies.decentralized_greedy_swap(counts, **how).groups
    np.testing.assert_array_equal(trace.skews, skews)
    np.testing.assert_allclose(trace.estimates, np.tile(shares_of(counts).mean(axis=0), (n, 1)))


@pytest.mark.parametrize("rounds", [None, 0, 3])
@pytest.mark.parametrize(("n", "size"), [(20, 5), (23, 4)])
def test_swaps_and_messages_are_those_of_a_plain_simulation(n, size, rounds):
    counts = unequal_counts(n, 4, seed=1)
    trace = decentralized_greedy_swap_trace(counts, size, steps=60, gossip_rounds=rounds, seed=2)
    groups, messages, numbers = simulate(counts, size, 60, trace.estimates, seed=2)
    messages[0] += n * (rounds or 0)
    numbers[0] += n * (rounds or 0) * 5
    assert trace.groups == groups
    assert trace.messages.tolist() == messages
    assert trace.numbers.tolist() == numbers
    np.testing.assert_allclose(trace.skews[-1], clique_skew(groups, counts), atol=1e-12)
    assert len(set(messages[1:])) > 2  # passes, swaps, and swaps after which another node leads


def test_without_gossip_leaders_take_their_own_data_for_everybodys_and_may_do_harm():
    counts = unequal_counts(40, 5, seed=0)
    trace = decentralized_greedy_swap_trace(counts, 8, steps=300, gossip_rounds=0, seed=0)
    np.testing.assert_array_equal(trace.estimates, shares_of(counts))
    assert (np.diff(trace.skews.sum(axis=1)) > 1e-6).any()
    exact = decentralized_greedy_swap_trace(counts, 8, steps=300, seed=0)
    assert trace.skews[-1].sum() > exact.skews[-1].sum()


def test_push_sum_is_that_of_a_loop_over_nodes():
    values = np.random.default_rng(0).random((7, 3))
    estimates, messages = gossip_estimates(values, 4, np.random.default_rng(1))
    rng, sums, weights = np.random.default_rng(1), values.copy(), np.ones(7)
    for _ in range(4):
        targets = (np.arange(7) + rng.integers(1, 7, size=7)) % 7
        new_sums, new_weights = sums / 2, weights / 2
        for node, target in enumerate(targets):
            assert node != target
            new_sums[target] += sums[node] / 2
            new_weights[target] += weights[node] / 2
        sums, weights = new_sums, new_weights
    np.testing.assert_allclose(estimates, sums / weights[:, None], rtol=1e-14)
    assert messages == 28


@pytest.mark.parametrize(
    "graph",
    [
        topologies.ring(12),
        topologies.exponential(12, directed=True),
        from_edges([(i, (i + 1) % 12) for i in range(12)], 12, directed=True),
    ],
    ids=lambda graph: graph.name,
)
def test_push_sum_over_a_graph_finds_the_mean(graph):
    values = np.random.default_rng(0).random((12, 2))
    estimates, messages = gossip_estimates(values, 1500, np.random.default_rng(0), graph)
    np.testing.assert_allclose(estimates, np.tile(values.mean(axis=0), (12, 1)), rtol=1e-9)
    assert messages == 12 * 1500


def test_push_sum_stays_within_components_and_has_no_zero_weights():
    values = np.array([[1.0], [3.0], [5.0], [8.0]])
    pairs = from_edges([(0, 1)], 4)
    estimates, messages = gossip_estimates(values, 60, np.random.default_rng(0), pairs)
    np.testing.assert_allclose(estimates[:, 0], [2, 2, 5, 8])
    assert messages == 120
    # 0 only gives: halves for ever
    source = from_edges([(0, 1), (1, 2), (2, 1), (2, 3), (3, 2)], 4, directed=True)
    estimates, _ = gossip_estimates(values, 4000, np.random.default_rng(0), source)
    np.testing.assert_allclose(estimates[:, 0], [1, 4.25, 4.25, 4.25])


def test_told_shares_are_what_leaders_send():
    shares = shares_of(unequal_counts(20, 4, seed=0))
    shares += np.random.default_rng(0).normal(0, 0.2, (20, 4))
    how = {"label_shares": shares, "clique_size": 5, "seed": 0}
    led = topologies.decentralized_greedy_swap(**how)
    assert led.groups == topologies.greedy_swap(**how).groups
