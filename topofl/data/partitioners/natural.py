"""Natural partitions: one node per owner of examples, or per client with its own examples."""

from collections.abc import Hashable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int, check_sequence, did_you_mean, shown
from topofl._support.public import public
from topofl._support.seeding import Seed, seed_of, stream
from topofl.data._labels import as_classes, as_names, repeated
from topofl.data.arrays import (
    Part,
    as_part,
    check_alike,
    check_trained,
    collected,
    names_in,
    places_of,
)
from topofl.data.dataset import Dataset, check_finite_tensor
from topofl.data.partition import Partition, check_dataset, labels_of

__all__ = ["from_clients", "natural"]


@public
def natural(
    dataset: Dataset,
    n: int | None = None,
    *,
    seed: Seed,
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
    Caldas et al., "LEAF: a benchmark for federated settings" (2018); with missing classes, Kharrat,
    Canini and Horváth, "DPFL" (2025), appendix F.2.

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
    labels, least = labels_of(dataset), check_int("min_size", min_size, minimum=1)
    rng = stream(seed, "partition")
    held = np.zeros((int(owner_of.max()) + 1, dataset.n_classes), np.int64)
    np.add.at(held, (owner_of[dataset.train], labels[dataset.train]), 1)
    kept = held > 0 if classes_per_node is None else _drawn(held > 0, classes_per_node, rng)
    sizes = (held * kept).sum(axis=1)
    if owners is None:
        chosen = _chosen(sizes, n, least, rng)
    else:
        chosen = _given(dataset, owners, sizes, n, least)
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
    dataset: Dataset, owners: Any, sizes: np.ndarray, n: int | None, least: int
) -> np.ndarray:
    """Return the numbers of the given owners; `sizes` are the examples that each would have."""
    names = dataset.owner_names or tuple(map(str, range(len(sizes))))
    place = {name: number for number, name in enumerate(names)}
    given = [str(owner) for owner in check_sequence("owners", owners, "names of owners")]
    n = None if n is None else check_int("n", n, minimum=1)
    if not given:  # as the nodes of a graph without labels of its own
        raise ValueError(
            "`owners` must name an owner, got none; leave `owners` out; labels 0..n-1 are sorted"
        )
    if n not in (None, len(given)):
        raise ValueError(
            f"`owners` must be as many as `n` if it is given, got {len(given)} and n={n}; omit `n`"
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
                f"`owners` must have min_size={least} training examples each, {owner!r} has "
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


def _chosen(sizes: np.ndarray, n: int | None, least: int, rng: np.random.Generator) -> np.ndarray:
    """Return the owners that become nodes, ascending; `sizes` are the examples each would have."""
    enough = np.flatnonzero(sizes >= least)
    if not len(enough):
        raise ValueError(
            f"`min_size` must leave at least one node, got {least} where the largest would have "
            f"{sizes.max()} training examples; lower it"
        )
    if n is None:
        return enough
    remedy = (
        f"only {len(enough)} of the {len(sizes)} owners have min_size={least} training "
        "examples; lower `n` or `min_size`"
    )
    n = check_int("n", n, minimum=1, maximum=len(enough), remedy=remedy)
    return np.sort(rng.choice(enough, n, replace=False))


@public
def from_clients(
    clients: Sequence[Any],
    *,
    own_test: Sequence[Any] | None = None,
    test: Any = None,
    n_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    name: str = "clients",
    mean: Any = 0.0,
    std: Any = 1.0,
) -> Partition:
    """Return the partition whose node i holds the examples of client i.

    Parameters
    ----------
    clients
        For each client a pair (x, y) of arrays or tensors, or a map-style torch dataset, as in
        :func:`from_arrays` and :func:`from_torch`. Inputs of all clients have one shape and one
        dtype after the conversions of :func:`from_arrays`. Labels are class numbers, or names,
        which are numbered in sorted order over all clients.
    own_test
        For each client, its own test examples in the same form, or None for a client without any;
        for ``run(evaluation="own_test")``.
    test
        Test examples for all clients, in the same form. None: the own test examples of all clients
        together.
    n_classes
        Number of classes; default: the largest label of all examples plus 1, or the number of
        names.
    class_names
        Name of each class, which also sets the order of classes if labels are names.
    name
        Label of the partition and of its dataset.
    mean, std
        Normalization of uint8 pixels, as in :func:`from_arrays`.

    Raises
    ------
    TypeError
        If a client is neither a pair nor a map-style dataset; if inputs differ in dtype, or only
        some labels are class numbers; as :func:`from_arrays` and :func:`from_torch`. Messages name
        the client, as in ``clients[3][1]``.
    ValueError
        If there are no clients, or one has no examples; if inputs differ in shape; if `own_test` is
        of another number of clients; if a label is not one of the classes, or a class occurs in
        held-out examples only; as :func:`from_arrays` and :func:`from_torch`.

    See Also
    --------
    with_validation : holds out a share of the examples of each client.
    natural : makes a node of each owner in one dataset.

    Examples
    --------
    >>> x, y = np.eye(4), [0, 1, 0, 1]
    >>> from_clients([(x, y), (x[:2], y[:2])], test=(x, y))
    Partition('clients', n=2, train=2..4 and classes=2..2 per node)
    """
    known = None if class_names is None else as_names("class_names", class_names, n_classes)
    given = check_sequence("clients", clients, "pairs (x, y)")
    train = [_part_of(f"clients[{i}]", client, known) for i, client in enumerate(given)]
    if not train:
        raise ValueError("`clients` must have at least one client, got none")
    own = _own_parts(own_test, len(train), known)
    if isinstance(test, Real | np.ndarray | Tensor):
        raise TypeError(
            "`test` must be a pair (x, y) or a map-style torch dataset, got "
            f"{shown(test)}; split the examples of each client, and pass test=(x, y) or own_test="
        )
    shared = [] if test is None else [_part_of("test", test, known)]
    parts = [*train, *own.values(), *shared]
    for part in parts[1:]:
        check_alike(part, parts[0], "clients[0]")
    labels, names = _numbered(parts, known)
    size = _class_count(parts, labels, names, n_classes)
    places = places_of(parts)
    nothing = np.zeros(0, np.int64)
    own_places = dict(zip(own, places[len(train) :], strict=False))
    dataset = Dataset(
        torch.cat([part.inputs for part in parts]),
        torch.from_numpy(np.concatenate(labels)),
        size,
        name,
        np.concatenate(places[: len(train)]),
        nothing,
        places[-1] if shared else np.concatenate([nothing, *own_places.values()]),
        class_names=names,
        mean=mean,
        std=std,
    )
    check_trained("clients", dataset)
    own_tests = [own_places.get(i, nothing) for i in range(len(train))]
    return Partition(dataset, places[: len(train)], (), own_tests, name=name)


def _part_of(argument: str, given: Any, known: tuple[str, ...] | None) -> Part:
    """Return the checked examples of a pair (x, y) or a torch dataset."""
    names = names_in(argument)
    if not isinstance(given, tuple | list):
        given, names = collected(argument, given, False)[:2], (argument, argument, argument)
    if len(given) != 2:
        raise TypeError(
            f"`{argument}` must be a pair (x, y) or a map-style torch dataset, got a "
            f"{type(given).__name__} of {len(given)} items"
        )
    x, y = given
    if hasattr(x, "__len__") and np.ndim(x) and not len(x):
        remedy = "pass None" if argument.startswith("own_test") else "leave it out"
        raise ValueError(f"`{argument}` must have at least one example, got none; {remedy}")
    part = as_part(argument, names, x, y, None, known)
    check_finite_tensor(names[0], part.inputs)
    return part


def _own_parts(own_test: Any, n: int, known: tuple[str, ...] | None) -> dict[int, Part]:
    """Return the own test examples of those of n clients that have some."""
    if own_test is None:
        return {}
    given = check_sequence("own_test", own_test, "pairs (x, y), one for each client")
    if len(given) != n:
        raise ValueError(
            f"`own_test` must have one pair (x, y) or None for each of the {n} clients, got "
            f"{len(given)}; pass examples that all clients share as test=(x, y)"
        )
    return {
        i: _part_of(f"own_test[{i}]", own, known) for i, own in enumerate(given) if own is not None
    }


def _numbered(
    parts: Sequence[Part], known: tuple[str, ...] | None
) -> tuple[list[np.ndarray], tuple[str, ...] | None]:
    """Return the class numbers of all parts, and the names of classes if labels are names."""
    are_numbers = parts[0].names is None
    odd = next((part.argument for part in parts if (part.names is None) != are_numbers), None)
    if odd is not None:
        wanted, got = ("class numbers", "names") if are_numbers else ("names", "class numbers")
        raise TypeError(
            f"`{odd}` must have {wanted} as labels, as clients[0] has, got {got}; convert one"
        )
    if known is not None or are_numbers:
        return [part.labels for part in parts], known
    of_part = [part.names or () for part in parts]
    numbers, names = as_classes("clients", [name for own in of_part for name in own])
    new = np.split(numbers, np.cumsum([len(own) for own in of_part])[:-1])
    return [own[part.labels] for own, part in zip(new, parts, strict=True)], names


def _class_count(
    parts: Sequence[Part],
    labels: Sequence[np.ndarray],
    names: tuple[str, ...] | None,
    n_classes: int | None,
) -> int:
    """Return the number of classes, or raise if a label is too large."""
    wanted = None if n_classes is None else check_int("n_classes", n_classes, minimum=1)
    if names is not None and wanted not in (None, len(names)):
        raise ValueError(
            f"`n_classes` must be the number of names, {len(names)}, got {wanted}; leave it out, "
            "or name all classes by class_names"
        )
    largest = [int(own.max()) for own in labels]
    size = len(names) if names else max(largest) + 1 if wanted is None else wanted
    odd = next((k for k, label in enumerate(largest) if label >= size), None)
    if odd is not None:
        raise ValueError(
            f"`{parts[odd].argument}` must have labels in 0..{size - 1}, got {largest[odd]}"
        )
    return size
