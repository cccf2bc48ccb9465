"""Partitions by labels: shards, uniform, by Dirichlet shares, or with few classes per node."""

import numpy as np

from topofl._support.check import check_int, check_positive
from topofl._support.seeding import Seed, stream
from topofl.data._labels import by_class
from topofl.data.dataset import Dataset
from topofl.data.partition import labels_of
from topofl.data.partitioners import _dealing as dealing
from topofl.data.partitioners._dealing import Shares, partitioner, stock_of

__all__ = [
    "dirichlet_per_class",
    "dirichlet_per_client",
    "iid",
    "one_class_per_node",
    "pathological",
    "pathological_dirichlet",
    "pathological_shared",
    "shards",
]


@partitioner()
def shards(
    dataset: Dataset,
    n: int,
    per_node: int = 2,
    *,
    seed: Seed,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Shares:
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
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data"
    (2017), section 3; Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section IV-A.

    Examples
    --------
    >>> from topofl import data
    >>> shards(data.digits(), n=50, per_node=2, seed=0)
    Partition('shards(digits, n=50, per_node=2)', n=50, train=29..30 and classes=1..3 per node)
    """
    per_node = check_int("per_node", per_node, minimum=1)
    if n * per_node > len(dataset.train):
        raise ValueError(
            f"`per_node` must be at most {len(dataset.train) // n} for n={n} nodes and "
            f"{len(dataset.train)} training examples, got {per_node}; a shard needs an example"
        )
    rng = stream(seed, "partition")
    pieces = np.array_split(by_class(dataset.train, labels_of(dataset), rng), n * per_node)
    shards_of = rng.permutation(n * per_node).reshape(n, per_node)
    return [np.concatenate([pieces[shard] for shard in own]) for own in shards_of]


@partitioner(by_label=False)
def iid(
    dataset: Dataset, n: int, *, seed: Seed, val_fraction: float = 0.0, test_fraction: float = 0.0
) -> Shares:
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
    rng = stream(seed, "partition")
    return np.array_split(rng.permutation(dataset.train), n)


@partitioner()
def one_class_per_node(
    dataset: Dataset, n: int, *, seed: Seed, val_fraction: float = 0.0, test_fraction: float = 0.0
) -> Shares:
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
    The most heterogeneous setting of Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), in their
    extended paper of 2021.

    Examples
    --------
    >>> from topofl import data
    >>> one_class_per_node(data.digits(), n=50, seed=0)
    Partition('one_class_per_node(digits, n=50)', n=50, train=29..31 and classes=1..1 per node)
    """
    stock = stock_of(dataset)
    rng = stream(seed, "partition")
    classes = rng.permutation(np.repeat(np.arange(len(stock)), dealing.shared_out(n, stock, rng)))
    counts = dealing.even_counts(np.eye(len(stock), dtype=bool)[classes], stock, rng)
    return dealing.deal(dataset, counts, rng)


@partitioner()
def dirichlet_per_client(
    dataset: Dataset,
    n: int,
    *,
    alpha: float,
    seed: Seed,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Shares:
    """Return a partition with Dirichlet class proportions per *node* and equal sizes.

    Parameters
    ----------
    dataset, n, seed, val_fraction, test_fraction
        As in :func:`shards`.
    alpha
        Concentration, above 0. Near 0 each node holds one class; large values give all nodes the
        same proportions.

    Raises
    ------
    ValueError
        If `alpha` is not above 0, if there are fewer examples than nodes, or a node has too few to
        hold any out.

    See Also
    --------
    dirichlet_per_class : the other distribution that papers call Dir(alpha), with unequal sizes.

    Notes
    -----
    Node i draws a prior p_i ~ Dir(alpha, ..., alpha) over classes. Until all nodes hold
    ``len(dataset.train) // n`` examples, a random node that is not full draws a class from its
    prior and takes an unused example of this class. The published code redraws if the class is
    used up, possibly forever; here the prior is renormalized over the classes that are left (the
    same distribution in one draw), so sampling always ends. As classes run out, late examples can
    deviate from a node's prior. Up to n - 1 examples remain unused.

    References
    ----------
    Dai et al., "DisPFL" (2022), and its code; used by Liu et al. (2024), DFedPGP, section 5.1.

    Examples
    --------
    >>> from topofl import data
    >>> dirichlet_per_client(data.digits(), n=50, alpha=0.1, seed=0)
    Partition('dirichlet_per_client(digits, n=50, alpha=0.1)', n=50, train=29..29 and \
classes=1..6 per node)
    """
    alpha = check_positive("alpha", alpha)
    rng = stream(seed, "partition")
    log_priors = dealing.log_dirichlet(alpha, (n, dataset.n_classes), rng)
    counts = dealing.fill(log_priors, stock_of(dataset), len(dataset.train) // n, rng)
    return dealing.deal(dataset, counts, rng)


@partitioner()
def dirichlet_per_class(
    dataset: Dataset,
    n: int,
    *,
    alpha: float,
    seed: Seed,
    min_size: int = 10,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Shares:
    """Return a partition that divides each *class* by Dirichlet shares; sizes are unequal.

    Parameters
    ----------
    dataset, n, seed, val_fraction, test_fraction
        As in :func:`shards`.
    alpha
        Concentration, above 0. Near 0 a class goes to few nodes; large values divide it evenly.
    min_size
        Minimum number of examples per node, held-out ones included; 20 in the code of DPFL.

    Raises
    ------
    ValueError
        If `alpha` is not above 0, if there are fewer than ``n * min_size`` examples (the message
        names feasible settings), or a node has too few to hold any out.

    See Also
    --------
    dirichlet_per_client : the other distribution that papers call Dir(alpha), with equal sizes.

    Notes
    -----
    For each class in turn, the nodes draw shares q ~ Dir(alpha, ..., alpha). Shares of nodes that
    already hold at least ``len(dataset.train) / n`` examples become 0, the others are renormalized,
    and the shuffled class is cut at their cumulative sums. The published code repeats this until
    every node has `min_size` examples, which may never happen. Here the whole draw is repeated at
    most 100 times. If none suffices, the draw that lacks the fewest examples is repaired: in the
    order of their indices, nodes that lack examples take one at a time from the largest node (ties
    to the lowest index), out of its most frequent class. All of ``dataset.train`` is dealt out.

    References
    ----------
    Yurochkin et al., "Bayesian nonparametric federated learning of neural networks" (2019); with
    the cap on sizes, Kharrat, Canini and Horváth, "DPFL" (2025), appendix F and its code.

    Examples
    --------
    >>> from topofl import data
    >>> dirichlet_per_class(data.digits(), n=50, alpha=0.1, seed=0)
    Partition('dirichlet_per_class(digits, n=50, alpha=0.1, min_size=10)', n=50, \
train=10..73 and classes=1..9 per node)
    """
    alpha = check_positive("alpha", alpha)
    min_size, total = check_int("min_size", min_size, minimum=1), len(dataset.train)
    if n * min_size > total:
        fewer = f" or n={total // min_size}" if min_size <= total else ""
        raise ValueError(
            f"`min_size` must be at most {total // n} for n={n} nodes and {total} training "
            f"examples, got {min_size}; use min_size={total // n}{fewer}"
        )
    rng = stream(seed, "partition")
    counts = dealing.repaired(
        dealing.best_division(n, stock_of(dataset), alpha, min_size, rng), min_size
    )
    return dealing.deal(dataset, counts, rng)


@partitioner()
def pathological(
    dataset: Dataset,
    n: int,
    *,
    classes_per_node: int,
    seed: Seed,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Shares:
    """Return a partition with a fixed number of classes per node, each divided evenly.

    Parameters
    ----------
    dataset, n, seed, val_fraction, test_fraction
        As in :func:`shards`.
    classes_per_node
        Number of distinct classes per node, held-out examples included, among the classes with
        training examples.

    Raises
    ------
    ValueError
        If `classes_per_node` exceeds the number of classes, if a class has fewer examples than
        nodes that are to hold it (the message names feasible settings), or a node has too few to
        hold any out.

    See Also
    --------
    pathological_shared : the papers' code, in which several nodes may hold the same example.
    pathological_dirichlet : nodes draw classes independently, and classes are divided unevenly.

    Notes
    -----
    The numbers of nodes per class differ by at most one. If ``n * classes_per_node`` is less than
    the number of classes, some classes stay unused; otherwise all of ``dataset.train`` is dealt
    out. No two nodes hold the same example.

    References
    ----------
    Dai et al., "DisPFL" (2022); Liu et al., "DFedPGP" (2024), section 5.1.

    Examples
    --------
    >>> from topofl import data
    >>> pathological(data.digits(), n=50, classes_per_node=2, seed=0)
    Partition('pathological(digits, n=50, classes_per_node=2)', n=50, train=29..31 and \
classes=2..2 per node)
    """
    stock = stock_of(dataset)
    classes_per_node = dealing.check_classes_per_node(classes_per_node, stock)
    if not dealing.is_feasible(stock, n, classes_per_node):
        fewer_nodes, fewer_classes = dealing.nearest_feasible(stock, n, classes_per_node)
        rarest = int(np.where(stock > 0, stock, stock.max()).argmin())
        raise ValueError(
            "`classes_per_node` must leave an example of each class for every node that holds it, "
            f"got {classes_per_node} with n={n}, where class {dataset.name_of(rarest)} has "
            f"{stock[rarest]} training examples; use n={fewer_nodes}"
            + (f" or classes_per_node={fewer_classes}" if fewer_classes else "")
        )
    rng = stream(seed, "partition")
    counts = dealing.even_counts(dealing.holders(stock, n, classes_per_node, rng), stock, rng)
    return dealing.deal(dataset, counts, rng)


@partitioner(overlapping=True)
def pathological_shared(
    dataset: Dataset, n: int, *, classes_per_node: int, seed: Seed, val_fraction: float = 0.0
) -> Shares:
    """Return a partition with random classes per node and equal sizes; nodes may share examples.

    Parameters
    ----------
    dataset, n, seed, val_fraction
        As in :func:`shards`. There is no `test_fraction`, since a node could train on an example
        that another one holds out; use :func:`match_test` for test examples per node.
    classes_per_node
        Number of distinct classes that a node draws among those with training examples.

    Returns
    -------
    Partition
        Each node holds ``len(dataset.train) // n`` different examples; `overlapping` is True.

    Raises
    ------
    ValueError
        If `classes_per_node` exceeds the number of classes, if the rarest classes have too few
        different examples for a node (the message names feasible settings), or a node has too few
        to hold any out.

    See Also
    --------
    pathological : no example is shared, and all classes have about equally many nodes.

    Notes
    -----
    Each node draws its classes uniformly and independently. Until all nodes are full, a random node
    that is not full draws one of its classes uniformly and takes the next example of this class;
    the examples of a class are in random order. When a class runs out, dealing continues from a
    random place in it. Hence several nodes hold some examples, and no node holds others. In the
    published code a node may hold an example twice; here it takes the next example that it does
    not hold, and draws among its other classes once it holds all examples of one.

    References
    ----------
    Dai et al., "DisPFL" (2022), and its code (``n_cls``); used by Liu et al. (2024), DFedPGP,
    section 5.1, and PFedDST.

    Examples
    --------
    >>> from topofl import data
    >>> pathological_shared(data.digits(), n=50, classes_per_node=2, seed=0)
    Partition('pathological_shared(digits, n=50, classes_per_node=2)', n=50, \
train=29..29 and classes=2..2 per node, overlapping)
    """
    stock = stock_of(dataset)
    classes_per_node = dealing.check_classes_per_node(classes_per_node, stock)
    size = len(dataset.train) // n
    rarest = np.cumsum(np.sort(stock[stock > 0]))
    if (room := int(rarest[classes_per_node - 1])) < size:  # any classes must fill a node
        raise ValueError(
            f"`classes_per_node` must provide {size} different examples per node, got "
            f"{classes_per_node} with n={n}, where the rarest such classes have {room} "
            f"examples together; use n={len(dataset.train) // (room + 1) + 1} or "
            f"classes_per_node={np.searchsorted(rarest, size) + 1}"
        )
    rng = stream(seed, "partition")
    drawn = dealing.drawn_classes(stock, n, classes_per_node, rng)
    counts = np.array([dealing.drawn_counts(np.where(own, stock, 0), size, rng) for own in drawn])
    return dealing.deal_again(dataset, counts, rng)


@partitioner()
def pathological_dirichlet(
    dataset: Dataset,
    n: int,
    *,
    classes_per_node: int,
    seed: Seed,
    alpha: float = 0.5,
    min_per_class: int = 10,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Shares:
    """Return a partition with random classes per node, each divided by Dirichlet shares.

    Parameters
    ----------
    dataset, n, seed, val_fraction, test_fraction
        As in :func:`shards`.
    classes_per_node
        Number of distinct classes that a node draws among those with training examples.
    alpha
        Concentration, above 0. Near 0 a class goes to few of its nodes; large values divide it
        evenly.
    min_per_class
        Minimum number of examples per node of each of its classes, held-out ones included.

    Raises
    ------
    ValueError
        If `classes_per_node` exceeds the number of classes, if `alpha` is not above 0, if a class
        has fewer than `min_per_class` examples per node that drew it, or a node has too few to hold
        any out.

    See Also
    --------
    pathological : all classes have about equally many nodes and are divided evenly.

    Notes
    -----
    Each node draws its classes uniformly and independently; a class that no node drew stays unused.
    Every other class is shuffled and cut at the cumulative sums of shares q ~ Dir(alpha, ...,
    alpha) of the nodes that drew it. The published code draws shares until each node has
    `min_per_class` examples, which may never happen. Here there are at most 10,000 draws (fewer for
    more than 4,000 nodes), enough in the setting of the paper, where one draw in 600 suffices. If
    none suffices, the draw that lacks the fewest examples is repaired as in
    :func:`dirichlet_per_class`.

    References
    ----------
    Kharrat, Canini and Horváth, "DPFL" (2025), where 3 classes of 10 are Patho(3), and its code.

    Examples
    --------
    >>> from topofl import data
    >>> pathological_dirichlet(data.digits(), n=30, classes_per_node=3, min_per_class=5, seed=0).n
    30
    """
    stock = stock_of(dataset)
    classes_per_node = dealing.check_classes_per_node(classes_per_node, stock)
    alpha = check_positive("alpha", alpha)
    least = check_int("min_per_class", min_per_class, minimum=1)
    rng = stream(seed, "partition")
    drawn = dealing.drawn_classes(stock, n, classes_per_node, rng)
    counts = np.zeros((n, len(stock)), np.int64)
    for label in np.flatnonzero(drawn.any(axis=0)):
        nodes = np.flatnonzero(drawn[:, label])
        if least * len(nodes) > stock[label]:
            most = stock[label] // len(nodes)
            remedy = "use fewer nodes or classes_per_node"
            if most:
                remedy = f"use min_per_class={most}, or fewer nodes"
            raise ValueError(
                f"`min_per_class` must leave enough examples for each of the {len(nodes)} nodes "
                f"that drew class {dataset.name_of(int(label))}, which has {stock[label]} training "
                f"examples, got {least}; {remedy}"
            )
        cut = dealing.best_cut(len(nodes), int(stock[label]), alpha, least, rng)
        counts[nodes, label] = dealing.repaired(cut[:, None], least)[:, 0]
    return dealing.deal(dataset, counts, rng)
