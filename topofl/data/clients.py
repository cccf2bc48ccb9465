"""Partitions from the examples of each client."""

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int, check_sequence, shown
from topofl._support.public import public
from topofl.data._labels import as_classes, as_names
from topofl.data.arrays import as_inputs, check_trained, collected
from topofl.data.dataset import Dataset, check_finite_tensor
from topofl.data.partition import Partition

__all__ = ["from_clients"]


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
    train = [
        _as_part(f"clients[{i}]", client, known)
        for i, client in enumerate(check_sequence("clients", clients, "pairs (x, y)"))
    ]
    if not train:
        raise ValueError("`clients` must have at least one client, got none")
    own = _own_parts(own_test, len(train), known)
    held = [part for part in own if part is not None]
    if isinstance(test, Real | np.ndarray | Tensor):
        raise TypeError(
            "`test` must be a pair (x, y) or a map-style torch dataset, got "
            f"{shown(test)}; split the examples of each client, and pass test=(x, y) or own_test="
        )
    shared = [] if test is None else [_as_part("test", test, known)]
    parts = [*train, *held, *shared]
    labels, names = _numbered(parts, known)
    size = _class_count(parts, labels, names, n_classes)
    ends = np.cumsum([len(own) for own in labels])
    places = np.split(np.arange(ends[-1]), ends[:-1])
    own_places = iter(places[len(train) :])
    nothing = np.zeros(0, np.int64)
    own_tests = [nothing if part is None else next(own_places) for part in own]
    dataset = Dataset(
        torch.cat(_alike(parts)),
        torch.from_numpy(np.concatenate(labels)),
        size,
        name,
        np.concatenate(places[: len(train)]),
        nothing,
        places[-1] if shared else np.concatenate([nothing, *own_tests]),
        class_names=names,
        mean=mean,
        std=std,
    )
    check_trained("clients", dataset)
    return Partition(dataset, places[: len(train)], (), own_tests, name=name)


class _Part(NamedTuple):
    """Examples of a client, and the argument that they come from."""

    argument: str
    inputs: Tensor
    labels: np.ndarray
    names: tuple[str, ...] | None


def _as_part(argument: str, given: Any, known: tuple[str, ...] | None) -> _Part:
    """Return the checked examples of a pair (x, y) or a torch dataset."""
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise TypeError(
                f"`{argument}` must be a pair (x, y) or a map-style torch dataset, got a "
                f"{type(given).__name__} of {len(given)} items"
            )
        x, y = given
        x_name, y_name = f"{argument}[0]", f"{argument}[1]"
    else:
        x, y, _ = collected(argument, given, targets=False)
        x_name = y_name = argument
    if hasattr(x, "__len__") and np.ndim(x) and not len(x):
        remedy = "pass None" if argument.startswith("own_test") else "leave it out"
        raise ValueError(f"`{argument}` must have at least one example, got none; {remedy}")
    inputs = as_inputs(x_name, x)
    check_finite_tensor(x_name, inputs)
    labels, names = as_classes(y_name, y, known)
    if len(labels) != len(inputs):
        raise ValueError(
            f"`{y_name}` must have one label for each of the {len(inputs)} inputs, got "
            f"{len(labels)}"
        )
    return _Part(argument, inputs, labels, names)


def _own_parts(own_test: Any, n: int, known: tuple[str, ...] | None) -> Sequence[_Part | None]:
    """Return the own test examples of each of n clients, None for a client without any."""
    if own_test is None:
        return [None] * n
    given = check_sequence("own_test", own_test, "pairs (x, y), one for each client")
    if len(given) != n:
        raise ValueError(
            f"`own_test` must have one pair (x, y) or None for each of the {n} clients, got "
            f"{len(given)}; pass examples that all clients share as test=(x, y)"
        )
    return [
        None if own is None else _as_part(f"own_test[{i}]", own, known)
        for i, own in enumerate(given)
    ]


def _alike(parts: Sequence[_Part]) -> list[Tensor]:
    """Return the inputs of all parts, which must be of the shape and dtype of the first."""
    first = parts[0].inputs
    for argument, inputs, *_ in parts[1:]:
        if inputs.shape[1:] != first.shape[1:]:
            raise ValueError(
                f"`{argument}` must have inputs of shape {tuple(first.shape[1:])}, as clients[0] "
                f"has, got {tuple(inputs.shape[1:])}"
            )
        if inputs.dtype != first.dtype:
            raise TypeError(
                f"`{argument}` must have inputs of {first.dtype}, as clients[0] has, got "
                f"{inputs.dtype}; convert one"
            )
    return [part.inputs for part in parts]


def _numbered(
    parts: Sequence[_Part], known: tuple[str, ...] | None
) -> tuple[list[np.ndarray], tuple[str, ...] | None]:
    """Return the class numbers of all parts, and the names of classes if labels are names."""
    first = parts[0].names
    odd = next((part.argument for part in parts if (part.names is None) != (first is None)), None)
    if odd is not None:
        kinds = ("class numbers", "names") if first is None else ("names", "class numbers")
        raise TypeError(
            f"`{odd}` must have {kinds[0]} as labels, as clients[0] has, got {kinds[1]}; convert "
            "one"
        )
    if known is not None or first is None:
        return [part.labels for part in parts], known
    names = as_classes("clients", [name for part in parts for name in part.names or ()]).names
    place = {name: number for number, name in enumerate(names or ())}
    labels = [
        np.array([place[name] for name in part.names or ()], np.int64)[part.labels]
        for part in parts
    ]
    return labels, names


def _class_count(
    parts: Sequence[_Part],
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
