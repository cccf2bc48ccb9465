"""A partition with few classes per node, each divided by Dirichlet shares, that limits sizes."""

import numpy as np

from topofl._support.check import check_int, check_positive
from topofl._support.seeding import Seed, stream
from topofl.data.dataset import Dataset
from topofl.data.partitioners import _dealing as dealing
from topofl.data.partitioners._dealing import Shares, partitioner, stock_of

__all__ = ["extended_dirichlet"]

SHARE = 5
"""Every class gets at least the mean number of nodes per class, divided by this."""


@partitioner()
def extended_dirichlet(
    dataset: Dataset,
    n: int,
    *,
    classes_per_node: int,
    alpha: float,
    seed: Seed,
    min_size: int = 10,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Shares:
    """Return a partition with random classes per node, divided by Dirichlet shares up to a size.

    This is the extended Dirichlet strategy, ExDir(C, alpha) with C classes per node.

    Parameters
    ----------
    dataset, n, seed, val_fraction, test_fraction
        As in :func:`shards`.
    classes_per_node
        Number of distinct classes that a node draws among those with training examples; large
        enough that every class can have a node. It may get no examples of some of them.
    alpha
        Concentration, above 0. Near 0 a class goes to few of its nodes; large values divide it
        evenly.
    min_size
        Minimum number of examples per node, held-out ones included.

    Raises
    ------
    ValueError
        If `classes_per_node` exceeds the number of classes or leaves one without nodes, if `alpha`
        is not above 0, if nodes cannot get `min_size` examples of their classes (the message names
        settings that suffice), or a node has too few to hold any out.

    See Also
    --------
    pathological_dirichlet : without a limit of sizes, and with a minimum per class.
    dirichlet_per_class : the same for nodes that may hold all classes.

    Notes
    -----
    Each node draws its classes uniformly and independently. All are drawn again until every class
    has a fifth of the mean number of nodes per class, rounded down, and at least one. For each
    class in turn, its nodes draw shares q ~ Dir(alpha, ..., alpha). Shares of nodes that already
    hold at least ``len(dataset.train) / n`` examples become 0, unless that leaves none; the others
    are renormalized, and the shuffled class is cut at their cumulative sums. The published code
    draws classes, and then shares, until they suffice, which may never happen, and divides by 0 if
    all nodes of a class are full. Here there are at most 100 draws of either. Then classes are
    spread evenly, and the draw that lacks the fewest examples is repaired: in the order of their
    indices, nodes that lack examples take one at a time from the largest node that has some of
    their classes. All of ``dataset.train`` is dealt out.

    References
    ----------
    Li and Lyu, "Convergence analysis of sequential federated learning on heterogeneous data"
    (2023), and its code, liyipeng00/convergence, sim/data/partition.py, class ExDirPartitioner.

    Examples
    --------
    >>> from topofl import data
    >>> extended_dirichlet(data.digits(), n=30, classes_per_node=2, alpha=10, seed=0)
    Partition('extended_dirichlet(digits, n=30, classes_per_node=2, alpha=10, min_size=10)', n=30, \
train=22..76 and classes=2..2 per node)
    """
    stock = stock_of(dataset)
    classes_per_node = dealing.check_classes_per_node(classes_per_node, stock)
    alpha = check_positive("alpha", alpha)
    present, total = int((stock > 0).sum()), len(dataset.train)
    if n * classes_per_node < present:
        raise ValueError(
            f"`classes_per_node` must be at least {-(-present // n)} for n={n} nodes, so that each "
            f"of {present} classes has a node, got {classes_per_node}"
        )
    min_size = check_int("min_size", min_size, minimum=1)
    if n * min_size > total:
        raise ValueError(
            f"`min_size` must be at most {total // n} for n={n} nodes and {total} training "
            f"examples, got {min_size}"
        )
    rng = stream(seed, "partition")
    holders = _holders(stock, n, classes_per_node, rng)
    counts = dealing.best_division(n, stock, alpha, min_size, rng, holders)
    return dealing.deal(dataset, _repaired(counts, holders, min_size), rng)


def _holders(
    stock: np.ndarray, n: int, classes_per_node: int, rng: np.random.Generator
) -> np.ndarray:
    """Return an (n, n_classes) mask of the classes of each node: every class has enough nodes."""
    present = stock > 0
    fewest = max(classes_per_node * n // present.sum() // SHARE, 1)
    for _ in range(dealing.REDRAWS):
        mask = dealing.drawn_classes(stock, n, classes_per_node, rng)
        if mask.sum(axis=0)[present].min() >= fewest:
            return mask
    # as if classes had enough examples for all nodes, since a node may get none of a class
    return dealing.holders(np.where(present, n * classes_per_node, 0), n, classes_per_node, rng)


def _repaired(counts: np.ndarray, holders: np.ndarray, min_size: int) -> np.ndarray:
    """Return `counts` after moving examples to nodes below `min_size`, of their classes only.

    If every class has at least `min_size` examples per node that holds it, there is always a giver:
    of a class of a node that lacks examples, the other nodes have more than `min_size` on average.
    """
    counts = counts.copy()
    for taker in np.flatnonzero(counts.sum(axis=1) < min_size):
        while (sizes := counts.sum(axis=1))[taker] < min_size:
            gives = (sizes > min_size) & (counts[:, holders[taker]] > 0).any(axis=1)
            if not gives.any():
                held = holders.any(axis=0)
                enough = int((counts.sum(axis=0)[held] // holders.sum(axis=0)[held]).min())
                remedy = f"use min_size={enough}, or " if enough else "use "
                raise ValueError(
                    f"`min_size` must leave enough examples of the classes that node {taker} drew, "
                    f"got {min_size}; {remedy}fewer nodes or more classes_per_node"
                )
            giver = np.where(gives, sizes, -1).argmax()
            label = np.where(holders[taker], counts[giver], 0).argmax()
            counts[giver, label] -= 1
            counts[taker, label] += 1
    return counts
