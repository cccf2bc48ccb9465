"""Partitions into shards of sorted labels, uniformly at random, or with one class per node."""

import numpy as np

from topofl._support.check import check_int
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.data._split import by_class
from topofl.data.dataset import Dataset
from topofl.data.partition import Partition, labels_of
from topofl.data.partitioners._allocation import (
    even_counts,
    shared_out,
)
from topofl.data.partitioners._deal import check_labeled_n, check_n, deal, partition_of, stock_of

__all__ = ["iid", "one_class_per_node", "shards"]


@public
def shards(
    dataset: Dataset,
    n: int,
    per_node: int = 2,
    *,
    seed: int | np.random.Generator,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Partition:
    """Return a partition with `per_node` random shards of the class-sorted examples per node.

    Parameters
    ----------
    dataset
        All examples in ``dataset.train`` are dealt out.
    n
        Number of nodes.
    per_node
        Number of shards per node.
    seed
        Seed of the order within a class and of the assignment of shards.
    val_fraction, test_fraction
        Share of each node's examples that the node holds out, in its class proportions as far as
        whole numbers allow; at least one example if above 0. At least one remains for training.

    Raises
    ------
    ValueError
        If there are fewer examples than shards, or a node has too few to hold any out.

    Notes
    -----
    The sizes of the ``n * per_node`` shards differ by at most one. A shard may straddle classes, so
    two shards hold up to four classes when shards are smaller than classes.

    References
    ----------
    McMahan et al. (2017), Communication-Efficient Learning of Deep Networks from Decentralized
    Data, section 3; Bellet, Kermarrec and Lavoie (2022), D-Cliques, section IV-A.

    Examples
    --------
    >>> from topofl import data
    >>> shards(data.digits(), n=50, per_node=2, seed=0)
    Partition('shards(digits, n=50, per_node=2)', n=50, train=29..30 and classes=1..3 per node)
    """
    n = check_labeled_n(dataset, n)
    per_node = check_int("per_node", per_node, minimum=1)
    if n * per_node > len(dataset.train):
        raise ValueError(
            f"`per_node` must be at most {len(dataset.train) // n} for n={n} nodes and "
            f"{len(dataset.train)} training examples, got {per_node}; a shard needs an example"
        )
    rng = stream(seed, "partition")
    pieces = np.array_split(by_class(dataset.train, labels_of(dataset), rng), n * per_node)
    shards_of = rng.permutation(n * per_node).reshape(n, per_node)
    shares = [np.concatenate([pieces[shard] for shard in own]) for own in shards_of]
    return partition_of(
        "shards", dataset, shares, rng, val_fraction, test_fraction, per_node=per_node
    )


@public
def iid(
    dataset: Dataset,
    n: int,
    *,
    seed: int | np.random.Generator,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Partition:
    """Return a uniformly random partition of the training examples; sizes differ by at most one.

    Parameters
    ----------
    dataset, n, seed, val_fraction, test_fraction
        As in :func:`shards`.

    Raises
    ------
    ValueError
        If there are fewer examples than nodes, or a node has too few to hold any out.

    Examples
    --------
    >>> from topofl import data
    >>> iid(data.digits(), n=10, seed=0)
    Partition('iid(digits, n=10)', n=10, train=149..150 and classes=10..10 per node)
    """
    n = check_n(dataset, n)
    rng = stream(seed, "partition")
    shares = np.array_split(rng.permutation(dataset.train), n)
    return partition_of("iid", dataset, shares, rng, val_fraction, test_fraction)


@public
def one_class_per_node(
    dataset: Dataset,
    n: int,
    *,
    seed: int | np.random.Generator,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Partition:
    """Return a partition with one class per node and about equally many nodes per class.

    Parameters
    ----------
    dataset, n, seed, val_fraction, test_fraction
        As in :func:`shards`.

    Raises
    ------
    ValueError
        If there are fewer examples than nodes, or a node has too few to hold any out.

    Notes
    -----
    The numbers of nodes per class differ by at most one, except that a class with fewer examples
    than that has one node per example. Nodes are assigned to classes at random, and each class is
    divided evenly among its nodes. With fewer nodes than classes, some random classes stay unused;
    otherwise all of ``dataset.train`` is dealt out. Unlike ``pathological(classes_per_node=1)``,
    this also works with rare classes.

    References
    ----------
    The most heterogeneous setting of Bellet, Kermarrec and Lavoie, D-Cliques, in their extended
    paper (2021).

    Examples
    --------
    >>> from topofl import data
    >>> one_class_per_node(data.digits(), n=50, seed=0)
    Partition('one_class_per_node(digits, n=50)', n=50, train=29..31 and classes=1..1 per node)
    """
    n = check_labeled_n(dataset, n)
    stock = stock_of(dataset)
    rng = stream(seed, "partition")
    classes = rng.permutation(np.repeat(np.arange(len(stock)), shared_out(n, stock, rng)))
    counts = even_counts(np.eye(len(stock), dtype=bool)[classes], stock, rng)
    return partition_of(
        "one_class_per_node", dataset, deal(dataset, counts, rng), rng, val_fraction, test_fraction
    )
