"""Greedy-Swap: skews, distances and arguments."""

from collections import Counter
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from tests.topologies.cliques import (
    CIFAR10,
    MNIST,
    as_sets,
    naive_improvements,
    naive_skew,
    paths,
    two_shards,
    unequal_counts,
)
from topofl import topologies
from topofl.metrics import clique_skew
from topofl.topologies import greedy_swap_trace
from topofl.topologies.cliques import cliques_of, histograms, improving_swaps, swap_steps


@pytest.mark.parametrize(
    ("n", "size", "sizes"), [(20, 10, [10, 10]), (21, 10, [10, 10, 1]), (7, 7, [7]), (5, 3, [3, 2])]
)
def test_random_cliques_cover_the_nodes_with_complete_cliques(
    n: int, size: int, sizes: list[int]
) -> None:
    graph = topologies.random_cliques(n, size, seed=0)
    assert [len(group) for group in graph.groups] == sizes
    assert sorted(node for group in graph.groups for node in group) == list(range(n))
    pairs = {pair for group in graph.groups for pair in combinations(sorted(group), 2)}
    assert {(u, v) for u, v in graph.edge_index.T.tolist() if u < v} == pairs
    assert graph.n_edges == sum(size * (size - 1) // 2 for size in sizes)
    assert graph.is_connected == (len(sizes) == 1)


def test_random_cliques_are_drawn_uniformly() -> None:
    partners = Counter()
    for seed in range(600):
        group = next(g for g in topologies.random_cliques(4, 2, seed=seed).groups if 0 in g)
        partners[next(node for node in group if node != 0)] += 1
    assert all(
        abs(partners[j] - 200) < 4 * np.sqrt(600 * 2 / 9) for j in (1, 2, 3)
    )  # 4 standard deviations


@pytest.mark.parametrize("weighting", ["uniform", "pooled"])
def test_no_steps_are_random_cliques(weighting: str) -> None:
    counts = unequal_counts(23, 4, seed=0)
    swapped = topologies.greedy_swap(counts, 5, steps=0, weighting=weighting, seed=7)
    assert swapped.groups == topologies.random_cliques(23, 5, seed=7).groups


@pytest.mark.parametrize("weighting", ["uniform", "pooled"])
@pytest.mark.parametrize("n", [12, 14])
def test_trace_is_the_skew_of_the_definition_after_every_step(weighting: str, n: int) -> None:
    counts = unequal_counts(n, 5, seed=n)
    final, skews = greedy_swap_trace(counts, 4, steps=40, weighting=weighting, seed=1)
    for steps in range(41):
        groups = topologies.greedy_swap(counts, 4, steps=steps, weighting=weighting, seed=1).groups
        naive = [naive_skew(group, counts, weighting) for group in groups]
        assert np.allclose(skews[steps], naive, rtol=0, atol=1e-12)
    assert groups == final


@pytest.mark.parametrize("weighting", ["uniform", "pooled"])
def test_every_step_makes_one_improving_swap_or_none(weighting: str) -> None:
    counts = unequal_counts(15, 5, seed=3)
    path = [
        topologies.greedy_swap(counts, 4, steps=k, weighting=weighting, seed=2).groups
        for k in range(60)
    ]
    n_swaps = 0
    for before, after in pairwise(path):
        assert [len(group) for group in before] == [len(group) for group in after]
        changed = [
            k
            for k, (a, b) in enumerate(zip(as_sets(before), as_sets(after), strict=True))
            if a != b
        ]
        if changed:
            first, second = changed
            (i,), (j,) = (
                set(before[first]) - set(after[first]),
                set(after[first]) - set(before[first]),
            )
            assert (i, j) in naive_improvements(before[first], before[second], counts, weighting)
            n_swaps += 1
    assert n_swaps > 3


def test_steps_in_which_no_swap_is_looked_for_have_none() -> None:
    counts = two_shards(CIFAR10, 100, seed=0)
    rng = np.random.default_rng(0)
    cliques = cliques_of(
        np.split(rng.permutation(100), 10),
        histograms(counts, None, None, 10, "uniform", "l1"),
        "l1",
    )
    fruitless = []

    def improving(a, b):
        found = improving_swaps(a, b)
        if not len(found):
            fruitless.append((a.nodes.tobytes(), b.nodes.tobytes()))
        return found

    idle = 0
    for a, b, swapped in swap_steps(cliques, rng.random((1000, 3)), improving):
        assert swapped or not len(improving_swaps(cliques[a], cliques[b]))
        idle += not swapped
    assert (
        len(set(fruitless)) == len(fruitless) < 0.5 * idle
    )  # no pair is looked at twice unless one has changed


@pytest.mark.parametrize("weighting", ["uniform", "pooled"])
def test_it_stops_only_where_no_swap_improves(weighting: str) -> None:
    counts = unequal_counts(14, 4, seed=5)
    groups = topologies.greedy_swap(counts, 4, steps=600, weighting=weighting, seed=0).groups
    assert not any(naive_improvements(a, b, counts, weighting) for a, b in combinations(groups, 2))


def test_the_swap_is_uniform_among_the_improving_ones_not_the_best() -> None:
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


def test_the_two_cliques_are_drawn_uniformly() -> None:
    """The first step changes each of the three pairs of equally large cliques equally often."""
    counts = unequal_counts(9, 4, seed=1)
    pairs = Counter()
    for seed in range(450):
        before = as_sets(topologies.random_cliques(9, 3, seed=seed).groups)
        after = as_sets(topologies.greedy_swap(counts, 3, steps=1, seed=seed).groups)
        pairs[tuple(k for k in range(3) if before[k] != after[k])] += 1
    total = sum(pairs[pair] for pair in combinations(range(3), 2))
    assert total > 300
    assert all(
        abs(pairs[pair] - total / 3) < 4 * np.sqrt(total * 2 / 9)
        for pair in combinations(range(3), 2)
    )


@pytest.mark.parametrize(
    ("class_sizes", "oracle"),
    [
        (MNIST, {0: 0.48, 100: 0.110, 200: 0.076, 400: 0.064, 1000: 0.063}),
        (CIFAR10, {0: 0.46, 100: 0.046, 200: 0.019, 400: 0.018, 1000: 0.018}),
    ],
    ids=["mnist", "cifar10"],
)
def test_mean_skew_of_the_papers_setting(class_sizes: list[int], oracle: dict[int, float]) -> None:
    """100 nodes of two shards, cliques of 10 (D-Cliques, Figures 17 and 18).

    The reference values are means over 10 seeds of another implementation, ours over 40. With s the
    standard deviation between seeds, their difference has standard error s sqrt(1/10 + 1/40); we
    allow 3 of them plus the rounding.
    """
    curves = [
        greedy_swap_trace(two_shards(class_sizes, 100, s), seed=s)[1].mean(axis=1)
        for s in range(40)
    ]
    for steps, expected in oracle.items():
        values = np.array([curve[steps] for curve in curves])
        rounding = 0.005 if steps == 0 else 0.0005
        assert (
            abs(values.mean() - expected)
            < 3 * values.std(ddof=1) * np.sqrt(1 / 10 + 1 / 40) + rounding
        )
    plateau = np.mean(curves, axis=0)
    assert (
        plateau[400] - plateau[1000] < 0.1 * plateau[400]
    )  # the paper: low skew in less than 400 steps


def test_one_class_a_node_reaches_no_skew() -> None:
    counts = np.eye(10, dtype=int)[np.random.default_rng(0).permutation(100) % 10]
    assert greedy_swap_trace(counts, 10, seed=0)[1][-1].max() < 1e-12
    graph = topologies.greedy_swap(n=100, seed=0)
    assert {frozenset(node % 10 for node in group) for group in graph.groups} == {
        frozenset(range(10))
    }


def test_both_weightings_are_the_same_for_nodes_of_equal_size() -> None:
    counts = two_shards(MNIST, 100, seed=0)
    uniform, pooled = (
        greedy_swap_trace(counts, weighting=w, seed=4) for w in ("uniform", "pooled")
    )
    assert uniform[0] == pooled[0]
    assert np.allclose(uniform[1], pooled[1], rtol=0, atol=1e-12)
    other = unequal_counts(40, 5, seed=0)
    assert (
        topologies.greedy_swap(other, 5, seed=0).groups
        != topologies.greedy_swap(other, 5, weighting="pooled", seed=0).groups
    )


def test_a_single_clique_has_nothing_to_swap() -> None:
    groups, skews = greedy_swap_trace(unequal_counts(6, 3, seed=0), 6, steps=5, seed=0)
    assert len(groups) == 1
    assert skews.shape == (6, 1)
    assert np.abs(skews).max() < 1e-12


def test_inputs_are_arrays_lists_or_partitions() -> None:
    counts = unequal_counts(12, 3, seed=0)

    class Clients:
        label_counts = counts

    graphs = [
        topologies.greedy_swap(given, 4, seed=0) for given in (counts, counts.tolist(), Clients())
    ]
    assert len({graph.groups for graph in graphs}) == 1
    assert graphs[0].name == "greedy_swap(label_counts[12x3], clique_size=4, seed=0)"
    pooled = topologies.greedy_swap(counts, 4, steps=5, weighting="pooled", seed=0)
    assert (
        pooled.name
        == "greedy_swap(label_counts[12x3], clique_size=4, steps=5, weighting='pooled', seed=0)"
    )
    assert (
        topologies.greedy_swap(n=12, clique_size=4, seed=0).name
        == "greedy_swap(n=12, clique_size=4, seed=0)"
    )
    assert (
        counts.tolist() == unequal_counts(12, 3, seed=0).tolist()
    )  # the caller's array is left alone


DISTANCES = [
    "total_variation",
    "kl",
    "symmetric_kl",
    "hellinger",
    "euclidean",
    "chebyshev",
    "jensen_shannon",
]


@pytest.mark.parametrize("weighting", ["uniform", "pooled"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_trace_is_the_skew_by_the_distance_and_its_sum_never_grows(
    distance: str, weighting: str
) -> None:
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


@pytest.mark.parametrize("distance", DISTANCES)
def test_by_any_distance_it_stops_only_where_no_swap_improves(distance: str) -> None:
    counts = unequal_counts(14, 4, seed=5)
    groups = topologies.greedy_swap(counts, 4, steps=600, distance=distance, seed=0).groups
    for first, second in combinations(groups, 2):
        before = clique_skew([first, second], counts, distance=distance).sum()
        for i, j in product(first, second):
            swapped = [[j if k == i else k for k in first], [i if k == j else k for k in second]]
            assert clique_skew(swapped, counts, distance=distance).sum() >= before - 1e-9


@pytest.mark.parametrize("distance", DISTANCES)
def test_classes_that_a_clique_lacks_stay_at_zero_share(distance: str) -> None:
    """Thirds and sevenths are not exact: rounding must not pass for a class, nor be negative."""
    counts = np.eye(21, dtype=int)[np.random.default_rng(0).permutation(63) % 21] * 3
    groups, skews = greedy_swap_trace(counts, 7, steps=200, distance=distance, seed=0)
    assert np.allclose(
        skews[-1], clique_skew(groups, counts, distance=distance), rtol=0, atol=1e-12
    )
    assert np.isinf(skews).all() == (distance == "symmetric_kl")  # 7 nodes cannot have 21 classes


def test_half_the_distance_makes_the_same_swaps() -> None:
    counts = two_shards(MNIST, 100, seed=0)
    l1, half = (
        greedy_swap_trace(counts, steps=300, distance=d, seed=0) for d in ("l1", "total_variation")
    )
    assert l1[0] == half[0]
    assert np.allclose(l1[1], 2 * half[1], rtol=0, atol=1e-12)


def test_where_the_distance_is_infinite_swaps_first_complete_the_classes() -> None:
    """One class a node and one-class cliques: skews are infinite, yet swaps lead to no skew."""
    counts = np.eye(4, dtype=int)[np.arange(40) % 4]
    groups, skews = greedy_swap_trace(counts, 4, distance="symmetric_kl", seed=0)
    assert np.isinf(skews[0]).sum() > 5
    missing = [
        4 * len(groups) - sum(len({k % 4 for k in group}) for group in path)
        for path in paths(counts, 4, 60)
    ]
    assert np.diff(missing).max() <= 0
    assert missing[0] > missing[-1]
    assert skews[-1].max() < 1e-12
    assert greedy_swap_trace(counts, 4, distance="kl", seed=0)[1][-1].max() < 1e-12


def test_shares_that_nodes_tell_replace_their_counts() -> None:
    counts = unequal_counts(20, 4, seed=2)
    shares = counts / counts.sum(axis=1, keepdims=True)
    told, known = (
        topologies.greedy_swap(**k, clique_size=5, seed=0)
        for k in ({"label_shares": shares}, {"label_counts": counts})
    )
    assert told.groups == known.groups
    assert told.name == "greedy_swap(label_shares[20x4], clique_size=5, seed=0)"
    wrong = shares + np.random.default_rng(0).normal(size=shares.shape)
    groups, skews = greedy_swap_trace(label_shares=wrong, clique_size=5, steps=50, seed=0)
    expected = [
        np.abs(wrong[list(group)].mean(axis=0) - wrong.mean(axis=0)).sum() for group in groups
    ]
    assert np.allclose(skews[-1], expected, rtol=0, atol=1e-12)
    assert topologies.dcliques(label_shares=wrong, clique_size=5, steps=50, seed=0).groups == groups


def test_shares_are_checked() -> None:
    shares = np.full((4, 2), 0.5)
    for make in (topologies.greedy_swap, topologies.dcliques):
        for given in ({"label_counts": np.ones((4, 2), int)}, {"n": 4}):
            with pytest.raises(ValueError, match="`label_shares` must be given alone"):
                make(label_shares=shares, clique_size=2, seed=0, **given)
        with pytest.raises(ValueError, match=r"`label_shares` must be finite, got nan at \(0, 1\)"):
            make(label_shares=[[0.5, np.nan]] * 4, clique_size=2, seed=0)
        with pytest.raises(
            ValueError, match=r"`label_shares` must have shape \(n, classes\), got \(2,\)"
        ):
            make(label_shares=[0.5, 0.5], clique_size=2, seed=0)
        with pytest.raises(TypeError, match="`label_shares` must be real numbers, got dtype <U1"):
            make(label_shares=[["a"]], clique_size=2, seed=0)
        with pytest.raises(ValueError, match="`weighting` must be 'uniform' with `label_shares`"):
            make(label_shares=shares, weighting="pooled", clique_size=2, seed=0)
        for bad in ([[1.5, -0.5]] * 4, [[0.5, 0.4]] * 4):
            make(label_shares=bad, distance="euclidean", clique_size=2, seed=0)
            with pytest.raises(ValueError, match=r"sum to 1 for distance='kl'.*clip=True"):
                make(label_shares=bad, distance="kl", clique_size=2, seed=0)
        with pytest.raises(ValueError, match=r"`distance` must be one of .*got 'l2'"):
            make(label_shares=shares, distance="l2", clique_size=2, seed=0)
        with pytest.raises(ValueError, match="`clique_size` must be between 2 and n=4, got 5"):
            make(label_shares=shares, clique_size=5, seed=0)


BAD_COUNTS = [
    ([1, 2, 3], ValueError, r"`label_counts` must have shape \(n, classes\), got \(3,\)"),
    (np.zeros((0, 3), int), ValueError, r"`label_counts` must have shape"),
    (5, ValueError, "`label_counts` must have shape"),
    ([[1, 2], [3]], ValueError, "`label_counts` must be an"),
    ([[1.0, 2.0], [0.5, 1.0]], TypeError, "`label_counts` must be integers, got dtype float64"),
    (
        [[1.0, np.nan], [0.5, 1.0]],
        ValueError,
        r"`label_counts` must be finite, got nan at \(0, 1\)",
    ),
    ([["a", "b"], ["c", "d"]], TypeError, "`label_counts` must be integers"),
    (
        [[1, 2], [3, -4]],
        ValueError,
        "`label_counts` must be non-negative, got -4 for node 1, class 1",
    ),
    (
        [[1, 2], [0, 0], [1, 1]],
        ValueError,
        "`label_counts` must give every node at least one example, but node 1 has none",
    ),
]


@pytest.mark.parametrize(("counts", "error", "match"), BAD_COUNTS)
@pytest.mark.parametrize(
    "generator",
    [topologies.greedy_swap, topologies.dcliques, topologies.dissimilar_ring, greedy_swap_trace],
)
def test_bad_label_counts(generator, counts, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        generator(counts, seed=0)


@pytest.mark.parametrize("size", [1, 0, -3, 101])
def test_clique_size_is_checked(size: int) -> None:
    match = f"`clique_size` must be between 2 and n=100, got {size}"
    counts = np.ones((100, 2), dtype=int)
    for make in (
        lambda: topologies.random_cliques(100, size, seed=0),
        lambda: topologies.greedy_swap(counts, size, seed=0),
        lambda: topologies.greedy_swap(n=100, clique_size=size, seed=0),
        lambda: greedy_swap_trace(counts, size, seed=0),
        lambda: topologies.dcliques(counts, clique_size=size, seed=0),
        lambda: topologies.dcliques(n=100, clique_size=size, seed=0),
    ):
        with pytest.raises(ValueError, match=match):
            make()
    with pytest.raises(TypeError, match="`clique_size` must be an integer"):
        topologies.random_cliques(100, 10.0, seed=0)


def test_other_arguments_are_checked() -> None:
    counts = np.ones((4, 2), dtype=int)
    with pytest.raises(ValueError, match="`n` must be at least 2, got 1"):
        topologies.random_cliques(1, 2, seed=0)
    with pytest.raises(ValueError, match="`n` must be at least 2, got 1"):
        topologies.greedy_swap(n=1, seed=0)
    with pytest.raises(ValueError, match="`label_counts` and `n`"):
        topologies.greedy_swap(seed=0)
    with pytest.raises(ValueError, match="`label_counts` and `n`"):
        topologies.greedy_swap(counts, 2, n=4, seed=0)
    for make in (topologies.greedy_swap, greedy_swap_trace):
        with pytest.raises(ValueError, match="`steps` must be at least 0, got -1"):
            make(counts, 2, steps=-1, seed=0)
        with pytest.raises(TypeError, match="`steps` must be an integer"):
            make(counts, 2, steps=1.5, seed=0)
        with pytest.raises(
            ValueError,
            match=r"`weighting` must be one of 'uniform', 'pooled', got 'pool'.*'pooled'",
        ):
            make(counts, 2, weighting="pool", seed=0)
        with pytest.raises(TypeError, match="`seed`"):
            make(counts, 2, seed=None)


def test_a_number_of_nodes_is_given_by_name():
    with pytest.raises(ValueError, match="for one class per node pass n=50"):
        topologies.dcliques(50, seed=0)
