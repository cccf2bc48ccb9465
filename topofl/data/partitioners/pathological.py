"""Pathological partitions, in which every node holds only a few classes."""

import numpy as np

from topofl._support.check import check_int, check_positive
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.data.dataset import Dataset
from topofl.data.partition import Partition
from topofl.data.partitioners._allocation import (
    best_cut,
    drawn_classes,
    drawn_counts,
    even_counts,
    holders,
    is_feasible,
    nearest_feasible,
    repaired,
)
from topofl.data.partitioners._deal import (
    check_classes_per_node,
    check_labeled_n,
    deal,
    deal_again,
    partition_of,
    stock_of,
)

__all__ = ["pathological", "pathological_dirichlet", "pathological_shared"]


@public
def pathological(
    dataset: Dataset,
    n: int,
    *,
    classes_per_node: int,
    seed: int | np.random.Generator,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Partition:
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
    Dai et al. (2022), DisPFL; Liu et al. (2024), DFedPGP, section 5.1.

    Examples
    --------
    >>> from topofl import data
    >>> pathological(data.digits(), n=50, classes_per_node=2, seed=0)
    Partition('pathological(digits, n=50, classes_per_node=2)', n=50, train=29..31 and \
classes=2..2 per node)
    """
    n = check_labeled_n(dataset, n)
    stock = stock_of(dataset)
    classes_per_node = check_classes_per_node(classes_per_node, stock)
    if not is_feasible(stock, n, classes_per_node):
        raise ValueError(_explain_infeasible(dataset, n, classes_per_node))
    rng = stream(seed, "partition")
    counts = even_counts(holders(stock, n, classes_per_node, rng), stock, rng)
    shares = deal(dataset, counts, rng)
    settings = {"classes_per_node": classes_per_node}
    return partition_of(
        "pathological", dataset, shares, rng, val_fraction, test_fraction, **settings
    )


def _explain_infeasible(dataset: Dataset, n: int, classes_per_node: int) -> str:
    """Return the error message for too few examples of a class, with feasible settings."""
    stock = stock_of(dataset)
    fewer_nodes, fewer_classes = nearest_feasible(stock, n, classes_per_node)
    rarest = int(np.where(stock > 0, stock, stock.max()).argmin())
    name = dataset.name_of(rarest)
    return (
        "`classes_per_node` must leave an example of each class for every node that holds it, got "
        f"{classes_per_node} with n={n}, where class {name} has {stock[rarest]} training "
        f"examples; use n={fewer_nodes}"
        + (f" or classes_per_node={fewer_classes}" if fewer_classes else "")
    )


@public
def pathological_shared(
    dataset: Dataset,
    n: int,
    *,
    classes_per_node: int,
    seed: int | np.random.Generator,
    val_fraction: float = 0.0,
) -> Partition:
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
    Dai et al. (2022), DisPFL, and its code (``n_cls``); used by Liu et al. (2024), DFedPGP, section
    5.1, and PFedDST.

    Examples
    --------
    >>> from topofl import data
    >>> pathological_shared(data.digits(), n=50, classes_per_node=2, seed=0)
    Partition('pathological_shared(digits, n=50, classes_per_node=2)', n=50, \
train=29..29 and classes=2..2 per node, overlapping)
    """
    n = check_labeled_n(dataset, n)
    stock = stock_of(dataset)
    classes_per_node = check_classes_per_node(classes_per_node, stock)
    _check_room(stock, n, classes_per_node)
    rng = stream(seed, "partition")
    size = len(dataset.train) // n
    drawn = drawn_classes(stock, n, classes_per_node, rng)
    counts = np.array([drawn_counts(np.where(own, stock, 0), size, rng) for own in drawn])
    shares = deal_again(dataset, counts, rng)
    settings = {"classes_per_node": classes_per_node}
    return partition_of(
        "pathological_shared", dataset, shares, rng, val_fraction, 0.0, True, **settings
    )


def _check_room(stock: np.ndarray, n: int, classes_per_node: int) -> None:
    """Raise ValueError unless any choice of classes has enough examples to fill a node."""
    rarest = np.cumsum(np.sort(stock[stock > 0]))
    total, room = int(rarest[-1]), int(rarest[classes_per_node - 1])
    if room < total // n:
        raise ValueError(
            f"`classes_per_node` must provide {total // n} different examples per node, got "
            f"{classes_per_node} with n={n}, where the rarest such classes have {room} "
            f"examples together; use n={total // (room + 1) + 1} or "
            f"classes_per_node={np.searchsorted(rarest, total // n) + 1}"
        )


@public
def pathological_dirichlet(
    dataset: Dataset,
    n: int,
    *,
    classes_per_node: int,
    seed: int | np.random.Generator,
    alpha: float = 0.5,
    min_per_class: int = 10,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Partition:
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
    Kharrat, Canini and Horváth (2025), DPFL, where 3 classes of 10 are Patho(3), and its code.

    Examples
    --------
    >>> from topofl import data
    >>> pathological_dirichlet(data.digits(), n=30, classes_per_node=3, min_per_class=5, seed=0).n
    30
    """
    n = check_labeled_n(dataset, n)
    stock = stock_of(dataset)
    classes_per_node = check_classes_per_node(classes_per_node, stock)
    alpha = check_positive("alpha", alpha)
    least = check_int("min_per_class", min_per_class, minimum=1)
    rng = stream(seed, "partition")
    drawn = drawn_classes(stock, n, classes_per_node, rng)
    counts = np.zeros((n, len(stock)), np.int64)
    for label in np.flatnonzero(drawn.any(axis=0)):
        nodes = np.flatnonzero(drawn[:, label])
        size = int(stock[label])
        _check_min_per_class(least, dataset.name_of(int(label)), len(nodes), size)
        counts[nodes, label] = repaired(
            best_cut(len(nodes), size, alpha, least, rng)[:, None], least
        )[:, 0]
    shares = deal(dataset, counts, rng)
    settings = {"classes_per_node": classes_per_node, "alpha": alpha, "min_per_class": least}
    return partition_of(
        "pathological_dirichlet", dataset, shares, rng, val_fraction, test_fraction, **settings
    )


def _check_min_per_class(least: int, label: str, n_nodes: int, stock: int) -> None:
    if least * n_nodes > stock:
        most = stock // n_nodes
        remedy = (
            f"use min_per_class={most}, or fewer nodes"
            if most
            else "use fewer nodes or classes_per_node"
        )
        raise ValueError(
            f"`min_per_class` must leave enough examples for each of the {n_nodes} nodes that drew "
            f"class {label}, which has {stock} training examples, got {least}; {remedy}"
        )
