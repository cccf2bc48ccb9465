"""Natural partitions: one node per owner of examples."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from topofl._support.check import check_int, check_sequence, did_you_mean, shown
from topofl._support.public import public
from topofl._support.seeding import seed_of, stream
from topofl.data._labels import repeated
from topofl.data.dataset import Dataset
from topofl.data.partition import Partition, check_dataset, labels_of

__all__ = ["natural"]


@public
def natural(
    dataset: Dataset,
    n: int | None = None,
    *,
    seed: int | np.random.Generator,
    classes_per_node: int | None = None,
    min_size: int = 10,
    owners: Sequence[Hashable] | None = None,
) -> Partition:
    """Return a partition with one node per owner of examples, such as the writers of FEMNIST.

    The owners may be a column of client ids; see :func:`from_csv` and :func:`from_arrays`.

    Parameters
    ----------
    dataset
        Dataset with `owners`, as :func:`femnist` returns.
    n
        Number of nodes, drawn at random among the owners with enough examples; None: all of these.
    seed
        Seed of all draws.
    classes_per_node
        Maximum number of classes per node, drawn at random among the classes of its owner's
        training examples; examples of other classes are left out. None: all classes.
    min_size
        Minimum number of training examples per node; owners with fewer are left out.
    owners
        The owners that become nodes, in this order: names of ``dataset.owner_names``, or numbers if
        owners have no names. With the labels of a graph, ``topology.nodes``, every owner is its
        node of the graph; these are ``()`` for a graph with labels 0..n-1, whose order is sorted.
        None: all, in sorted order, or `n` of them.

    Returns
    -------
    Partition
        Each node holds its owner's examples of ``dataset.train``, ``dataset.val`` and
        ``dataset.test``, the last two restricted to the classes that it trains on; a node may have
        no examples for validation or test.

    Raises
    ------
    TypeError
        If `dataset` is not a Dataset, or a number is not an integer.
    ValueError
        If the dataset has no `owners`, or fewer than `n` owners have `min_size` training examples
        (the message says how many do); if the given `owners` are empty, or one of them has fewer,
        is unknown, or occurs twice.

    See Also
    --------
    with_validation : holds out a share of each node's training examples.

    References
    ----------
    Caldas et al. (2018), LEAF: A Benchmark for Federated Settings; with missing classes, Kharrat,
    Canini and Horváth (2025), DPFL, appendix F.2.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from topofl import data
    >>> digits = data.digits()
    >>> written = replace(digits, owners=np.arange(1797) // 50)
    >>> natural(written, n=20, classes_per_node=5, seed=0)
    Partition('natural(digits, n=20, classes_per_node=5, min_size=10)', n=20, train=16..30, \
test=0..6 and classes=5..5 per node)

    Nodes in the order of a graph's labels:

    >>> ids = ["north", "south", "east"] * 4
    >>> shops = data.from_arrays(np.eye(12), [0, 1] * 6, owners=ids)
    >>> natural(shops, owners=["south", "north"], min_size=1, seed=0).train[0].tolist()
    [1, 4, 7, 10]
    """
    check_dataset(dataset)
    if (owner_of := dataset.owners) is None:
        raise ValueError(
            f"`dataset` must have `owners`, got none in {dataset.name}; name their column, as in "
            "data.from_csv(path, label=..., owner=...), or pass data.from_arrays(x, y, owners=ids)"
        )
    labels = labels_of(dataset)
    rng = stream(seed, "partition")
    held = np.zeros((int(owner_of.max()) + 1, dataset.n_classes), np.int64)
    np.add.at(held, (owner_of[dataset.train], labels[dataset.train]), 1)
    kept = held > 0 if classes_per_node is None else _drawn(held > 0, classes_per_node, rng)
    sizes = (held * kept).sum(axis=1)
    chosen = (
        _chosen(sizes, n, min_size, rng)
        if owners is None
        else _given(dataset, owners, sizes, n, min_size)
    )
    node_of = np.full(len(held), -1)
    node_of[chosen] = np.arange(len(chosen))
    parts = {}
    for key in ("train", "val", "test"):
        indices = np.sort(getattr(dataset, key))
        node = np.where(kept[owner_of[indices], labels[indices]], node_of[owner_of[indices]], -1)
        order = np.argsort(node, kind="stable")
        parts[key] = np.split(
            indices[order], np.searchsorted(node[order], np.arange(len(chosen) + 1))
        )[1:-1]
    classes = "" if classes_per_node is None else f"classes_per_node={classes_per_node}, "
    classes += "" if owners is None else "owners given, "
    return Partition(
        dataset,
        **parts,
        name=f"natural({dataset.name}, n={len(chosen)}, {classes}min_size={min_size})",
        seed=seed_of(rng, "partition"),
    )


def _given(
    dataset: Dataset, owners: Any, sizes: np.ndarray, n: int | None, min_size: int
) -> np.ndarray:
    """Return the numbers of the given owners; `sizes` are the examples that each would have."""
    names = dataset.owner_names or tuple(map(str, range(len(sizes))))
    place = {name: number for number, name in enumerate(names)}
    given = [str(owner) for owner in check_sequence("owners", owners, "names of owners")]
    least = check_int("min_size", min_size, minimum=1)
    n = None if n is None else check_int("n", n, minimum=1)
    if not given:  # as the nodes of a graph without labels of its own
        raise ValueError(
            "`owners` must be at least one owner, got none; leave `owners` out; labels 0..n-1 keep "
            "the sorted order"
        )
    if n not in (None, len(given)):
        raise ValueError(
            f"`owners` must be as many as `n` if it is given, got {len(given)} and n={n}; leave "
            "`n` out"
        )
    if twice := repeated(given):
        raise ValueError(f"`owners` must differ, got {twice[0]!r} twice; name every owner once")
    for owner in given:
        if owner not in place:
            hint = did_you_mean(owner, names) or f"; they are {shown(list(names))}"
            raise ValueError(
                f"`owners` must be owners of examples in {dataset.name}, got {owner!r}{hint}"
            )
        if sizes[place[owner]] < least:
            raise ValueError(
                f"`owners` must have min_size={min_size} training examples each, {owner!r} has "
                f"{sizes[place[owner]]}; leave it out, or lower `min_size`"
            )
    return np.array([place[owner] for owner in given])


def _drawn(held: np.ndarray, classes_per_node: int, rng: np.random.Generator) -> np.ndarray:
    """Return a mask with at most `classes_per_node` random entries of `held` per row."""
    most = check_int(
        "classes_per_node", classes_per_node, minimum=1, remedy="None keeps all classes"
    )
    ranks = np.where(held, rng.random(held.shape), 2.0).argsort(axis=1).argsort(axis=1)
    return held & (ranks < most)


def _chosen(
    sizes: np.ndarray, n: int | None, min_size: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the owners that become nodes, ascending; `sizes` are the examples each would have."""
    enough = np.flatnonzero(sizes >= check_int("min_size", min_size, minimum=1))
    if not len(enough):
        raise ValueError(
            f"`min_size` must leave at least one node, got {min_size} where the largest would have "
            f"{sizes.max()} training examples; lower it"
        )
    if n is None:
        return enough
    remedy = (
        f"only {len(enough)} of the {len(sizes)} owners have min_size={min_size} training "
        "examples; lower `n` or `min_size`"
    )
    n = check_int("n", n, minimum=1, maximum=len(enough), remedy=remedy)
    return np.sort(rng.choice(enough, n, replace=False))
