"""Datasets and partitions from arrays, tensors and map-style torch datasets."""

import operator
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import (
    as_array,
    check_fraction,
    check_int,
    check_sequence,
    check_switch,
    shown,
)
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.data._labels import (
    Numbered,
    as_classes,
    as_names,
    as_owners,
    rows_of,
    stratified,
)
from topofl.data.dataset import Dataset, check_finite_tensor
from topofl.data.partition import Partition
from topofl.topology.interchange import is_pyg

__all__ = ["from_arrays", "from_clients", "from_torch"]


@public
def from_arrays(
    x: Any,
    y: Any = None,
    *,
    targets: Any = None,
    n_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    owners: Any = None,
    test: Any = None,
    val: Any = None,
    name: str = "arrays",
    seed: int | np.random.Generator = 0,
    mean: Any = 0.0,
    std: Any = 1.0,
) -> Dataset:
    """Return a dataset from numpy arrays or torch tensors, which are copied.

    Parameters
    ----------
    x
        Inputs, (N, channels, height, width) or (N, features...). uint8 means pixels: they are
        stored unchanged, and models receive them divided by 255. int32 and int64, such as token
        ids, are stored unchanged; other integers become int64. So convert pixels to uint8, numbers
        for a linear layer to float32, and token ids that are stored as uint8 to int64. Floats and
        booleans (as 0 and 1) become float32. Gray images (N, height, width) need a channel axis for
        convolutions, ``x[:, None]``; for images (N, height, width, channels) pass
        ``x.transpose(0, 3, 1, 2)``.
    y
        (N,) labels of one type. Integers are class numbers and remain unchanged. Other hashable
        labels, such as text, become classes 0, 1, ... in sorted order, and their texts the
        `class_names` of the dataset. Floats are rejected, even whole numbers. Models learn the
        classes unless there are `targets`; then only partitions use them. None: all 0, which
        requires `targets`, and with which partitions by labels give all nodes the same distribution
        (with a warning).
    targets
        (N, ...) targets that models learn instead of `y`, in their own dtype: numbers, several
        labels (N, labels), token ids (N, T); see :mod:`topofl.tasks`. :func:`binned` turns numbers
        into classes for `y`.
    n_classes
        Number of classes; default: the largest label plus 1, or the number of names.
    class_names
        Name of each class, which also sets the order of classes if `y` is text.
    owners
        (N,) owner of each example, such as the id of a client: integers, texts or other hashable
        values of one type. :func:`natural` makes one node of each.
    test, val
        Held-out examples. None for none; an (N,) array of booleans, True for examples to hold out;
        a fraction in [0, 1) of the examples that no such array holds out, drawn at random in the
        class proportions as far as whole numbers allow (at least one example if above 0); or
        another pair (x, y), which is appended. With `targets`, pass a triple (x, y, targets), in
        which y is None if it is None here.
    name
        Label of the dataset.
    seed
        Seed of the draw of these fractions.
    mean, std
        If `x` is uint8, models receive ``(x / 255 - mean) / std``; one number each, or one per
        channel (axis 1).

    Raises
    ------
    TypeError
        If `x` or `targets` are not numbers or not dense, or `y` is neither integers nor hashable
        labels of one type; if neither `y` nor `targets` is given; if only one of `x` and a held-out
        pair is uint8.
    ValueError
        If lengths or shapes do not match, a number is NaN or infinite, a label is missing or not
        one of the classes, a class occurs in held-out examples only (unless there are `targets`), a
        fraction is out of range, or no examples would remain for training; if `owners` are given
        with a held-out pair;
        for `mean` and `std` as :class:`Dataset`.

    Examples
    --------
    >>> from_arrays(np.eye(8), [0, 1] * 4, test=0.25, name="toy")
    Dataset('toy', inputs=(8, 8), n_classes=2, train=6, val=0, test=2)
    >>> from_arrays(np.eye(8), ["dog", "cat"] * 4, test=0.25).class_names
    ('cat', 'dog')
    >>> from_arrays(np.eye(8), targets=np.linspace(0.0, 1.0, 8), test=0.25, name="toy")
    Dataset('toy', inputs=(8, 8), targets=(8,), n_classes=1, train=6, val=0, test=2)
    """
    return as_dataset(
        x,
        y,
        targets=targets,
        n_classes=n_classes,
        class_names=class_names,
        owners=owners,
        test=test,
        val=val,
        name=name,
        seed=seed,
        mean=mean,
        std=std,
    )


def as_dataset(
    x: Any,
    y: Any,
    *,
    targets: Any = None,
    n_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    spare_names: tuple[str, ...] | None = None,
    owners: Any = None,
    test: Any = None,
    val: Any = None,
    seed: int | np.random.Generator = 0,
    **settings: Any,
) -> Dataset:
    """Return the dataset of :func:`from_arrays`.

    Classes without names have the `spare_names` if there is one for each, and may then occur in
    held-out examples only, as classes may where models learn `targets`.
    """
    n_classes = None if n_classes is None else check_int("n_classes", n_classes, minimum=1)
    known = None if class_names is None else as_names("class_names", class_names, n_classes)
    parts = [_as_part("x", ("x", "y", "targets"), x, y, targets, known)]
    held_out = {"test": test, "val": val}
    pairs = {key: value for key, value in held_out.items() if isinstance(value, tuple | list)}
    if owners is not None:
        owners = _as_owners(owners, len(parts[0].labels), pairs)
    places = {}
    for key, value in pairs.items():
        start = sum(len(part.labels) for part in parts)
        parts.append(_as_held_part(key, value, x, y, parts[0]))
        places[key] = np.arange(start, start + len(parts[-1].labels))
    drawn = {key: value for key, value in held_out.items() if key not in pairs}
    train, places = _split(drawn, parts[0].labels, stream(seed, "split"), places)
    labels = np.concatenate([part.labels for part in parts])
    learned = [part.targets for part in parts if part.targets is not None]
    names = parts[0].names
    size = len(names) if names else int(labels.max()) + 1 if n_classes is None else n_classes
    dataset = Dataset(
        torch.cat([part.inputs for part in parts]) if len(parts) > 1 else parts[0].inputs,
        torch.from_numpy(labels),
        size,
        train=train,
        **places,
        targets=torch.cat(learned) if learned else None,
        class_names=names or (spare_names if len(spare_names or ()) == size else None),
        owners=owners and owners.numbers,
        owner_names=owners and owners.names,
        **settings,
    )
    if names or not (learned or dataset.class_names):
        check_trained("y", dataset)
    return dataset


def check_trained(argument: str, dataset: Dataset) -> None:
    """Raise ``ValueError`` if a class occurs in validation or test examples only."""
    labels = dataset.labels.numpy()
    held = np.concatenate([dataset.val, dataset.test])
    unseen = held[~np.isin(labels[held], labels[dataset.train])]
    if len(unseen):
        name = dataset.name_of(int(labels[unseen[0]]))
        own = unseen[labels[unseen] == labels[unseen[0]]]
        raise ValueError(
            f"`{argument}` must have training examples of every class, got class {name!r} in "
            f"held-out examples only ({rows_of(own, 'example')}); hold out less, train on some of "
            "them, or leave them out"
        )


def _as_owners(owners: Any, size: int, pairs: Mapping[str, Any]) -> Numbered:
    """Return the owners of `size` examples, or raise; held-out pairs have no owners."""
    if pairs:
        key = next(iter(pairs))
        raise ValueError(
            f"`{key}` must be a fraction or an array of booleans if there are `owners`, got a "
            f"{type(pairs[key]).__name__}; append these examples to `x`, `y` and `owners`, and "
            "mark them by True"
        )
    found = as_owners("owners", owners)
    if len(found.numbers) != size:
        raise ValueError(
            f"`owners` must have one owner for each of the {size} inputs, got {len(found.numbers)}"
        )
    return found


def _split(
    wanted: Mapping[str, Any],
    labels: np.ndarray,
    rng: np.random.Generator,
    places: Mapping[str, np.ndarray],
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return training indices, and `places` with those of masks and of random fractions."""
    places = dict(places)
    masks = {key: value for key, value in wanted.items() if getattr(value, "ndim", 0)}
    for key, value in masks.items():
        places[key] = _marked(key, value, len(labels))
    marked = [places[key] for key in masks]
    train = np.setdiff1d(np.arange(len(labels)), np.concatenate([*marked, np.zeros(0, np.int64)]))
    total = len(train)
    if not total:
        raise ValueError(
            f"`{next(iter(masks))}` must leave an example for training, got True for all of the "
            "others; hold out less"
        )
    for key, value in wanted.items():
        if key not in masks:
            size = _held_size(key, value, total, len(train))
            places[key], train = stratified(train, labels, size, rng)
    return train, places


def _marked(key: str, mask: Any, size: int) -> np.ndarray:
    """Return the indices at which an array of booleans is True."""
    array = as_array(key, mask)
    if array.dtype != bool:
        raise TypeError(
            f"`{key}` must be a fraction, an array of booleans or a pair (x, y), got an array of "
            f"{array.dtype}; compare it, as in column == 1"
        )
    if array.shape != (size,):
        raise ValueError(
            f"`{key}` must have one boolean for each of the {size} inputs, got shape {array.shape}"
        )
    return np.flatnonzero(array)


def _held_size(key: str, fraction: float | None, total: int, available: int) -> int:
    """Return how many of `total` examples to hold out, or raise if none would remain."""
    fraction = check_fraction(key, 0.0 if fraction is None else fraction)
    size = max(1, round(fraction * total)) if fraction else 0
    if size >= available:
        raise ValueError(
            f"`{key}` must leave an example for training, got {fraction:g} of {total} examples "
            f"with {available} left; hold out less"
        )
    return size


class _Part(NamedTuple):
    """Examples of an argument: inputs, labels, names of classes, and targets if there are any."""

    argument: str
    inputs: Tensor
    labels: np.ndarray
    names: tuple[str, ...] | None
    targets: Tensor | None


def _as_part(
    argument: str,
    names: tuple[str, str, str],
    x: Any,
    y: Any,
    targets: Any,
    known: tuple[str, ...] | None,
) -> _Part:
    """Return checked examples of the `known` classes, if there are names for them.

    `names` are those of the arrays in error messages.
    """
    x_name, y_name, t_name = names
    if y is None and targets is None:
        raise TypeError(
            f"`{y_name}` must be given, the class of each example, or `{t_name}`, got neither"
        )
    inputs = _as_inputs(x_name, x)
    blank = Numbered(np.zeros(len(inputs), np.int64), known)
    labels, classes = blank if y is None else as_classes(y_name, y, known)
    if len(labels) != len(inputs):
        raise ValueError(
            f"`{y_name}` must have one label for each of the {len(inputs)} inputs, got "
            f"{len(labels)}"
        )
    learned = None if targets is None else _as_targets(t_name, targets)
    if learned is not None and learned.shape[:1] != (len(inputs),):
        got = tuple(learned.shape)
        raise ValueError(
            f"`{t_name}` must have one target for each of the {len(inputs)} inputs, got shape {got}"
        )
    return _Part(argument, inputs, labels, classes, learned)


def _as_targets(name: str, values: Any) -> Tensor:
    """Return a copy of numeric targets as a C-contiguous tensor of the same dtype."""
    values = _real(name, values)
    if isinstance(values, Tensor):
        return values.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    if values.dtype.itemsize > 8:
        raise TypeError(f"`{name}` must be real numbers, got dtype {values.dtype}")
    return torch.from_numpy(values.astype(_torch_dtype(name, values), order="C", copy=True))


def _torch_dtype(name: str, values: np.ndarray) -> Any:
    """Return the dtype of an array in torch: int64 for unsigned integers other than uint8."""
    if values.dtype.kind == "u" and values.dtype != np.uint8:
        if values.size and values.max() > np.iinfo(np.int64).max:
            raise ValueError(f"`{name}` must fit into int64, got {values.max()}; renumber them")
        return np.int64
    return values.dtype.newbyteorder("=")


def _as_inputs(name: str, x: Any) -> Tensor:
    """Return a contiguous copy: uint8 and int32 unchanged, other integers int64, else float32."""
    x = _real(name, x)
    inputs = _from_tensor(x) if isinstance(x, Tensor) else _from_numpy(name, x)
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise ValueError(
            f"`{name}` must have shape (N, features...) with N >= 1, got {tuple(inputs.shape)}"
        )
    return inputs


def _real(name: str, values: Any) -> Tensor | np.ndarray:
    """Return a dense tensor, or other values as an array, of real numbers, or raise."""
    if not isinstance(values, Tensor):
        array = as_array(name, values)
        if array.dtype.kind not in "buif":
            raise TypeError(f"`{name}` must be real numbers, got dtype {array.dtype}")
        return array
    if values.is_complex() or values.layout != torch.strided or values.is_meta:
        got = "no values (device meta)" if values.is_meta else f"{values.dtype} in {values.layout}"
        raise TypeError(f"`{name}` must be real numbers in a dense tensor, got {got}")
    return values


def _from_tensor(x: Tensor) -> Tensor:
    is_integer = not x.is_floating_point() and x.dtype != torch.bool
    integer_dtype = x.dtype if x.dtype in (torch.uint8, torch.int32) else torch.int64
    dtype = integer_dtype if is_integer else torch.float32
    return x.detach().to("cpu", dtype, copy=True, memory_format=torch.contiguous_format)


def _from_numpy(name: str, array: np.ndarray) -> Tensor:
    if array.dtype.kind in "ui":
        dtype = _torch_dtype(name, array)
        return torch.from_numpy(
            array.astype(dtype if dtype in (np.uint8, np.int32) else np.int64, order="C")
        )
    with np.errstate(over="ignore"):  # overflow becomes infinite, which Dataset rejects
        return torch.from_numpy(array.astype(np.float32, order="C"))


def _as_held_part(key: str, given: Any, x: Any, y: Any, train: _Part) -> _Part:
    """Return held-out examples whose inputs and targets match those for training, or raise."""
    wanted = "a pair (x, y)" if train.targets is None else "a triple (x, y, targets)"
    if len(given) != (2 if train.targets is None else 3):
        raise ValueError(f"`{key}` must be a fraction or {wanted}, got {len(given)} items")
    part = _as_part(key, _names_in(key), *given, *[None] * (3 - len(given)), known=train.names)
    if (part.targets is None) != (train.targets is None) or (given[1] is None) != (y is None):
        raise TypeError(
            f"`{key}` must have labels and targets if and only if they are given for training, as "
            f"{wanted}"
        )
    if y is not None and _is_text(given[1]) != _is_text(y):
        raise TypeError(
            f"`{key}` must have labels like `y`, either integers or names, got "
            f"{shown(part.labels.tolist() if not _is_text(given[1]) else given[1])}; convert one"
        )
    _check_alike(part, train, "`x`")
    if part.targets is not None and train.targets is not None:
        _check_same_shape(key, "targets", part.targets, train.targets, "`targets` have")
    return part


def _names_in(argument: str) -> tuple[str, str, str]:
    """Return how messages name the entries of a tuple (x, y, targets)."""
    return f"{argument}[0]", f"{argument}[1]", f"{argument}[2]"


def _is_text(labels: Any) -> bool:
    """Return whether labels are names instead of class numbers."""
    return not (hasattr(labels, "detach") or np.asarray(labels).dtype.kind in "iu")


def _check_alike(part: _Part, first: _Part, other: str) -> None:
    """Raise unless inputs are of the shape and dtype of the `first` ones; `other` names these."""
    _check_same_shape(part.argument, "inputs", part.inputs, first.inputs, f"{other} has")
    if part.inputs.dtype != first.inputs.dtype:
        raise TypeError(
            f"`{part.argument}` must have inputs of {first.inputs.dtype}, as {other} has, got "
            f"{part.inputs.dtype}; convert one"
        )


def _check_same_shape(argument: str, what: str, given: Tensor, expected: Tensor, has: str) -> None:
    if given.shape[1:] != expected.shape[1:]:
        raise ValueError(
            f"`{argument}` must have {what} of shape {tuple(expected.shape[1:])}, as {has}, got "
            f"{tuple(given.shape[1:])}"
        )


@public
def from_torch(
    dataset: torch.utils.data.Dataset,
    *,
    test: Any = None,
    val: Any = None,
    n_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    owners: Any = None,
    name: str | None = None,
    seed: int | np.random.Generator = 0,
    mean: Any = 0.0,
    std: Any = 1.0,
    targets: bool = False,
) -> Dataset:
    """Return a dataset from a map-style torch dataset, whose items are read once, in order.

    Parameters
    ----------
    dataset
        Dataset with a length, whose items are pairs (tensor or array, class), all of one shape and
        dtype. Classes are integers (of Python, numpy or torch) or texts, as in :func:`from_arrays`.
        With `targets`, its items are pairs (input, target) or triples (input,
        class, target), whose targets are numbers, tensors or arrays of one shape and dtype.
        Random transforms are applied once, since each item is read once.
    test, val
        A fraction, an array of booleans or another such dataset, as in :func:`from_arrays`.
    n_classes, owners, seed, mean, std
        As in :func:`from_arrays`.
    class_names
        Name of each class; default: the texts, or ``dataset.classes`` if it names all classes, as
        in many datasets of torchvision.
    name
        Label; default: the class name of `dataset`.
    targets
        Whether the last entry of each item is a target instead of a class; see :func:`from_arrays`.

    Raises
    ------
    TypeError
        If a dataset is not map-style, or an item has another form (the message names it), such as
        a PyG graph, which is a topology: see :func:`topofl.as_topology`.
    ValueError
        If items differ in shape or dtype, and as :func:`from_arrays`.

    Examples
    --------
    >>> pairs = torch.utils.data.TensorDataset(torch.eye(8), torch.arange(8) % 2)
    >>> from_torch(pairs, test=0.25)
    Dataset('TensorDataset', inputs=(8, 8), n_classes=2, train=6, val=0, test=2)
    """
    check_switch("targets", targets, auto=False)
    x, y, learned = _collected("dataset", dataset, targets)
    held: dict[str, Any] = {
        key: value
        if value is None or isinstance(value, Real | np.ndarray)
        else _collected(key, value, targets)[: 2 + targets]
        for key, value in (("test", test), ("val", val))
    }
    name = type(dataset).__name__ if name is None else name
    known = {"n_classes": n_classes, "class_names": class_names, "owners": owners}
    return as_dataset(
        x,
        y,
        targets=learned,
        spare_names=None if targets else _names(dataset),
        name=name,
        seed=seed,
        mean=mean,
        std=std,
        **known,
        **held,
    )


def _names(dataset: Any) -> tuple[str, ...] | None:
    """Return the attribute ``classes`` of a torch dataset if it has different texts, or None."""
    names = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names) if len(set(names)) == len(names) else None


def _collected(name: str, dataset: Any, targets: bool) -> tuple[Tensor, Any, Tensor | None]:
    """Return the inputs, the labels if items have them, and the targets if `targets` is true."""
    _check_no_graph(name, dataset, targets)
    wanted = f"`{name}` must be a map-style dataset with a length, got"
    if isinstance(dataset, Mapping) or hasattr(dataset, "columns"):
        remedy = "use data.from_dataframe or data.from_huggingface for tables"
        raise TypeError(f"{wanted} {type(dataset).__name__}; {remedy}")
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise TypeError(f"{wanted} {type(dataset).__name__}")
    try:
        size = len(dataset)
    except TypeError as error:  # for example for a zero-dimensional array
        raise TypeError(f"{wanted} {shown(dataset)}") from error
    if size == 0:
        raise ValueError(f"`{name}` must have at least one item, got none")
    items = [_as_item(name, i, dataset[i], targets) for i in range(size)]
    labels = [y for _, y, _ in items if y is not None]
    if len(labels) not in (0, size):
        raise TypeError(
            f"`{name}` must have a class in all items or in none, got {len(labels)} of {size}"
        )
    inputs = _stacked(name, "inputs", [x for x, _, _ in items])
    learned = (
        _stacked(name, "targets", [target for *_, target in items if target is not None])
        if targets
        else None
    )
    if labels and all(isinstance(y, int) for y in labels):  # the types of others are checked
        return inputs, np.array(labels), learned
    return inputs, labels or None, learned


def _check_no_graph(name: str, value: Any, targets: bool, where: str = "") -> None:
    """Raise ``TypeError`` if a value is a PyG graph."""
    if is_pyg(value):
        raise TypeError(
            f"`{name}` must give {_wanted(targets)}, got a PyG graph ({type(value).__name__})"
            f"{where}; pass the examples of its nodes to data.from_arrays(graph.x, graph.y), and "
            "the graph itself, as a topology, to topofl.as_topology(graph)"
        )


def _wanted(targets: bool) -> str:
    """Return what the items of a dataset must be, for error messages."""
    if targets:
        return "pairs (input, target) or triples (input, label, target)"
    return "pairs (input, label)"


def _stacked(name: str, what: str, values: list[Tensor]) -> Tensor:
    """Return tensors stacked along a new first axis, or raise if shapes or dtypes differ."""
    for found in [tuple(x.shape) for x in values], [x.dtype for x in values]:
        odd = next((i for i, value in enumerate(found) if value != found[0]), None)
        if odd is not None:
            raise ValueError(
                f"`{name}` must have {what} of one shape and dtype, got {found[0]} in item 0 and "
                f"{found[odd]} in item {odd}"
            )
    return torch.stack(values)


def _as_item(
    name: str, place: int, item: Any, targets: bool
) -> tuple[Tensor, int | str | None, Tensor | None]:
    """Return the input, the class if the item has one, and the target if `targets` is true."""
    _check_no_graph(name, item, targets, f" in item {place}")
    if not isinstance(item, tuple | list) or len(item) not in ((2, 3) if targets else (2,)):
        got = type(item).__name__
        raise TypeError(f"`{name}` must give {_wanted(targets)}, got {got} in item {place}")
    x = item[0]
    _check_no_graph(name, x, targets, f" as input of item {place}")
    y = None if targets and len(item) == 2 else item[1]
    if not isinstance(x, Tensor | np.ndarray):
        raise TypeError(
            f"`{name}` must give inputs that are tensors or arrays, got {type(x).__name__} in item "
            f"{place}; add a transform such as torchvision's ToTensor"
        )
    try:
        label = y if y is None or isinstance(y, str) else operator.index(y)
    except TypeError as error:
        remedy = "" if targets else "; pass targets=True if these are targets and not classes"
        raise TypeError(
            f"`{name}` must give integers or texts as labels, got {shown(y)} in item {place}"
            f"{remedy}"
        ) from error
    target = _as_targets(f"{name}[{place}][{len(item) - 1}]", item[-1]) if targets else None
    return x if isinstance(x, Tensor) else torch.as_tensor(x, device="cpu"), label, target


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
        _part_of(f"clients[{i}]", client, known)
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
    shared = [] if test is None else [_part_of("test", test, known)]
    parts = [*train, *held, *shared]
    for part in parts[1:]:
        _check_alike(part, parts[0], "clients[0]")
    labels, names = _numbered(parts, known)
    size = _class_count(parts, labels, names, n_classes)
    ends = np.cumsum([len(own) for own in labels])
    places = np.split(np.arange(ends[-1]), ends[:-1])
    own_places = iter(places[len(train) :])
    nothing = np.zeros(0, np.int64)
    own_tests = [nothing if part is None else next(own_places) for part in own]
    dataset = Dataset(
        torch.cat([part.inputs for part in parts]),
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


def _part_of(argument: str, given: Any, known: tuple[str, ...] | None) -> _Part:
    """Return the checked examples of a pair (x, y) or a torch dataset."""
    names = _names_in(argument)
    if not isinstance(given, tuple | list):
        given, names = (
            _collected(argument, given, targets=False)[:2],
            (argument, argument, argument),
        )
    if len(given) != 2:
        raise TypeError(
            f"`{argument}` must be a pair (x, y) or a map-style torch dataset, got a "
            f"{type(given).__name__} of {len(given)} items"
        )
    x, y = given
    if hasattr(x, "__len__") and np.ndim(x) and not len(x):
        remedy = "pass None" if argument.startswith("own_test") else "leave it out"
        raise ValueError(f"`{argument}` must have at least one example, got none; {remedy}")
    part = _as_part(argument, names, x, y, None, known)
    check_finite_tensor(names[0], part.inputs)
    return part


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
        None if own is None else _part_of(f"own_test[{i}]", own, known)
        for i, own in enumerate(given)
    ]


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
