"""Dealing out examples in given numbers per node and class, and holding some of them out."""

from collections.abc import Sequence

import numpy as np

from topofl._support.check import check_fraction, check_int
from topofl._support.public import warn_caller
from topofl._support.seeding import seed_of
from topofl.data._split import apportion, by_class, sample_split
from topofl.data.dataset import Dataset
from topofl.data.partition import Partition, check_dataset, labels_of
from topofl.data.partitioners._allocation import dealt_again

__all__ = [
    "check_classes_per_node",
    "check_labeled_n",
    "check_n",
    "deal",
    "deal_again",
    "partition_of",
    "stock_of",
]


def check_n(dataset: Dataset, n: int) -> int:
    """Return the number of nodes, or raise unless it is in 1..len(dataset.train)."""
    check_dataset(dataset)
    return check_int(
        "n",
        n,
        minimum=1,
        maximum=len(dataset.train),
        remedy="every node needs one of the training examples",
    )


def check_labeled_n(dataset: Dataset, n: int) -> int:
    """Return the number of nodes as :func:`check_n`, for partitioners that divide by labels.

    Warns if several nodes are to divide examples with targets that have a single class.
    """
    n = check_n(dataset, n)
    if n > 1 and dataset.targets is not None and np.count_nonzero(stock_of(dataset)) == 1:
        warn_caller(
            f"`dataset`: all training examples of {dataset.name} have the same class, so all nodes "
            "have the same distribution; pass the classes to divide by as `y`, for numbers as in "
            "data.from_arrays(x, data.binned(targets, 10), targets=targets)"
        )
    return n


def check_classes_per_node(classes_per_node: int, stock: np.ndarray) -> int:
    """Return the number of classes per node, or raise unless so many have examples."""
    return check_int(
        "classes_per_node", classes_per_node, minimum=1, maximum=int((stock > 0).sum())
    )


def stock_of(dataset: Dataset) -> np.ndarray:
    """Return the number of training examples of each class, (n_classes,)."""
    return np.bincount(labels_of(dataset)[dataset.train], minlength=dataset.n_classes)


def deal(dataset: Dataset, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the examples of each node: ``counts[i, c]`` random ones of class c, all different."""
    order = by_class(dataset.train, labels_of(dataset), rng)
    owners = np.full(len(order), len(counts))  # len(counts) stands for no node
    starts = np.concatenate([[0], np.cumsum(stock_of(dataset))])
    for label, start in enumerate(starts[:-1]):
        dealt = np.repeat(np.arange(len(counts)), counts[:, label])
        owners[start : start + len(dealt)] = dealt
    ends = np.cumsum(np.bincount(owners, minlength=len(counts))[: len(counts)])
    return np.split(order[np.argsort(owners, kind="stable")], ends)[:-1]


def deal_again(dataset: Dataset, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the examples of each node, ``counts[i, c]`` of class c; nodes may share examples."""
    order = by_class(dataset.train, labels_of(dataset), rng)
    stacks = np.split(order, np.cumsum(stock_of(dataset))[:-1])
    takers = [rng.permutation(np.repeat(np.arange(len(counts)), wanted)) for wanted in counts.T]
    dealt = np.concatenate([dealt_again(*pair, rng) for pair in zip(stacks, takers, strict=True)])
    owners = np.concatenate(takers)
    return np.split(dealt[np.argsort(owners, kind="stable")], np.cumsum(counts.sum(axis=1))[:-1])


def partition_of(
    method: str,
    dataset: Dataset,
    shares: Sequence[np.ndarray],
    rng: np.random.Generator,
    val_fraction: float,
    test_fraction: float,
    overlapping: bool = False,
    /,
    **settings: float,
) -> Partition:
    """Return the partition in which node i trains on ``shares[i]`` except for held-out examples."""
    fractions = {
        "val_fraction": check_fraction("val_fraction", val_fraction),
        "test_fraction": check_fraction("test_fraction", test_fraction),
    }
    if sum(fractions.values()) >= 1:
        raise ValueError(
            "`val_fraction` and `test_fraction` must sum to less than 1, got "
            f"{sum(fractions.values()):g}"
        )
    settings |= {key: value for key, value in fractions.items() if value}
    words = [
        dataset.name,
        f"n={len(shares)}",
        *(f"{key}={value:g}" for key, value in settings.items()),
    ]
    name = f"{method}({', '.join(words)})"
    seed = seed_of(rng, "partition")
    shares = [np.sort(share) for share in shares]
    if not any(fractions.values()):
        return Partition(dataset, shares, name=name, overlapping=overlapping, seed=seed)
    labels = labels_of(dataset)
    sizes = [
        _held_out_sizes(node, len(share), *fractions.values()) for node, share in enumerate(shares)
    ]
    held = [_hold_out(share, labels, *size, rng) for share, size in zip(shares, sizes, strict=True)]
    train, val, test = zip(*held, strict=True)
    return Partition(dataset, train, val, test, name=name, overlapping=overlapping, seed=seed)


def _hold_out(
    share: np.ndarray, labels: np.ndarray, val: int, test: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the (train, val, test) split of a node in its class proportions."""
    test_indices, rest = sample_split(
        share, labels, apportion(np.bincount(labels[share]), test), rng
    )
    val_indices, train = sample_split(rest, labels, apportion(np.bincount(labels[rest]), val), rng)
    return train, val_indices, test_indices


def _held_out_sizes(
    node: int, size: int, val_fraction: float, test_fraction: float
) -> tuple[int, int]:
    """Return how many examples a node holds out for validation and test, not all of them."""
    least_val, least_test = int(val_fraction > 0), int(test_fraction > 0)
    if size < 1 + least_val + least_test:
        key, fraction = (
            ("val_fraction", val_fraction) if least_val else ("test_fraction", test_fraction)
        )
        raise ValueError(
            f"`{key}` must leave every node an example for training, got {fraction:g} where node "
            f"{node} has {size} examples and needs {1 + least_val + least_test}; use fewer nodes, "
            "or hold nothing out"
        )
    test = min(max(least_test, round(test_fraction * size)), size - 1 - least_val)
    val = min(max(least_val, round(val_fraction * size)), size - 1 - test)
    return val, test
