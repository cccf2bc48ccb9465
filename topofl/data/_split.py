"""Stratified choice of examples, for the splits of readers and for partitioners."""

import numpy as np

from topofl._support.check import check_int

__all__ = ["apportion", "by_class", "sample_split", "validation"]


def apportion(weights: np.ndarray, total: int) -> np.ndarray:
    """Return integers proportional to `weights` that sum to `total`, by largest remainders.

    Ties go to the lower index. No entry exceeds its weight if `total` is at most the sum of the
    weights.

    Parameters
    ----------
    weights
        (k,) non-negative integers, not all 0 unless `total` is.

    Examples
    --------
    >>> apportion(np.array([5, 3, 2]), 4).tolist()
    [2, 1, 1]
    """
    whole, remainder = np.divmod(weights.astype(np.int64) * total, max(int(weights.sum()), 1))
    winners = np.argsort(-remainder, kind="stable")[: total - int(whole.sum())]
    whole[winners] += 1
    return whole


def by_class(indices: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return `indices` sorted by class, in random order within a class."""
    shuffled = rng.permutation(indices)
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def sample_split(
    indices: np.ndarray, labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``counts[c]`` random `indices` of each class c, and the other ones; both ascending."""
    order = by_class(indices, labels, rng)
    classes = labels[order]
    rank = np.arange(len(order)) - np.searchsorted(classes, classes)
    chosen = rank < counts[classes]
    return np.sort(order[chosen]), np.sort(order[~chosen])


def validation(
    labels: np.ndarray, train_size: int, val: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return `val` training examples in the class proportions of the test set, and the rest."""
    val = check_int(
        "val", val, minimum=0, maximum=train_size - 1, remedy="one image must remain for training"
    )
    n_classes = int(labels.max()) + 1
    stock = np.bincount(labels[:train_size], minlength=n_classes)
    wanted = apportion(np.bincount(labels[train_size:], minlength=n_classes), val)
    scarce = int((stock - wanted).argmin())
    if wanted[scarce] > stock[scarce]:
        raise ValueError(
            f"`val` must be small enough for the class proportions of the test set, got {val}: it "
            f"needs {wanted[scarce]} training images of class {scarce}, which has {stock[scarce]}"
        )
    return sample_split(np.arange(train_size), labels, wanted, rng)
