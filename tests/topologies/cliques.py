"""Label counts and reference computations that several tests of cliques use."""

import numpy as np

from topofl import topologies

MNIST = [4943, 5607, 4926, 5121, 4860, 4529, 4960, 5237, 4877, 4940]  # 50,000 training examples


CIFAR10 = [5000] * 10


def two_shards(class_sizes: list[int], n: int, seed: int) -> np.ndarray:
    """Return label counts of nodes with two random shards each of the examples sorted by label."""
    labels = np.repeat(np.arange(len(class_sizes)), class_sizes)
    shards = labels.reshape(2 * n, -1)[np.random.default_rng(seed).permutation(2 * n)]
    return np.array(
        [np.bincount(mine, minlength=len(class_sizes)) for mine in shards.reshape(n, -1)]
    )


def unequal_counts(n: int, classes: int, seed: int) -> np.ndarray:
    """Return random label counts, with nodes of very different sizes."""
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 40, (n, classes)) * rng.integers(1, 30, (n, 1))
        + np.eye(classes, dtype=int)[0]
    )


def naive_skew(group, counts: np.ndarray, weighting: str) -> float:
    """Return the skew of one clique straight from its definition."""
    if weighting == "pooled":
        mine, everyone = counts[list(group)].sum(axis=0), counts.sum(axis=0)
        return float(np.abs(mine / mine.sum() - everyone / everyone.sum()).sum())
    shares = counts / counts.sum(axis=1, keepdims=True)
    return float(np.abs(shares[list(group)].mean(axis=0) - shares.mean(axis=0)).sum())


def naive_improvements(
    first, second, counts: np.ndarray, weighting: str
) -> dict[tuple[int, int], float]:
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


def paths(counts: np.ndarray, size: int, steps: int):
    """Return the groups after each of the first steps."""
    return [
        topologies.greedy_swap(counts, size, steps=k, distance="symmetric_kl", seed=0).groups
        for k in range(steps)
    ]
