"""Greedy-Swap with other distances between label distributions."""

from itertools import combinations, product

import numpy as np
import pytest

from tests.topologies.cliques import MNIST, paths, two_shards, unequal_counts
from topofl import topologies
from topofl.metrics import clique_skew
from topofl.topologies import greedy_swap_trace

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
