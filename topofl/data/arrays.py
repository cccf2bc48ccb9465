"""Datasets from arrays, tensors and map-style torch datasets."""

import operator
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import as_array, check_fraction, check_int, check_switch, shown
from topofl._support.public import public
from topofl._support.seeding import Seed, stream
from topofl.data._labels import as_classes, as_names, as_owners, rows_of, stratified
from topofl.data.dataset import Dataset, check_dense, check_shape
from topofl.topology.interchange import is_pyg

__all__ = ["from_arrays", "from_torch"]


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
    seed: Seed = 0,
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
    return as_dataset(**locals())


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
    seed: Seed = 0,
    **settings: Any,
) -> Dataset:
    """Return the dataset of :func:`from_arrays`.

    Classes without names have the `spare_names` if there is one for each, and may then occur in
    held-out examples only, as classes may where models learn `targets`.
    """
    n_classes = None if n_classes is None else check_int("n_classes", n_classes, minimum=1)
    known = None if class_names is None else as_names("class_names", class_names, n_classes)
    parts = [as_part("x", ("x", "y", "targets"), x, y, targets, known)]
    held_out = {"test": test, "val": val}
    pairs = {key: value for key, value in held_out.items() if isinstance(value, tuple | list)}
    owned = (None, None)
    if owners is not None:
        owned = _as_owners(owners, len(parts[0].labels), pairs)
    drawn = {key: value for key, value in held_out.items() if key not in pairs}
    train, places = _split(drawn, parts[0].labels, stream(seed, "split"))
    parts += [_as_held_part(key, value, y, parts[0]) for key, value in pairs.items()]
    places |= zip(pairs, places_of(parts)[1:], strict=True)
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
        owners=owned[0],
        owner_names=owned[1],
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
            f"held-out examples only ({rows_of(own, 'example')}); hold out less, or train on some"
        )


def _as_owners(
    owners: Any, size: int, pairs: Mapping[str, Any]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return numbers and names of the owners of `size` examples; held-out pairs have none."""
    if pairs:
        key = next(iter(pairs))
        raise ValueError(
            f"`{key}` must be a fraction or an array of booleans if there are `owners`, got a "
            f"{type(pairs[key]).__name__}; append it to `x`, `y` and `owners`, and mark it by True"
        )
    numbers, names = as_owners("owners", owners)
    if len(numbers) != size:
        raise ValueError(
            f"`owners` must have one owner for each of the {size} inputs, got {len(numbers)}"
        )
    return numbers, names


def _split(
    wanted: Mapping[str, Any], labels: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the indices of training examples, and those of masks and of random fractions."""
    masks = {
        key: _marked(key, value, len(labels))
        for key, value in wanted.items()
        if getattr(value, "ndim", 0)
    }
    held = np.concatenate([*masks.values(), np.zeros(0, np.int64)])
    train = np.setdiff1d(np.arange(len(labels)), held)
    total = len(train)
    if not total:
        raise ValueError(
            f"`{next(iter(masks))}` must leave an example for training, got True for all of the "
            "others; hold out less"
        )
    places = dict(masks)
    for key in [key for key in wanted if key not in masks]:
        fraction = check_fraction(key, 0.0 if wanted[key] is None else wanted[key])
        size = max(1, round(fraction * total)) if fraction else 0
        if size >= len(train):
            raise ValueError(
                f"`{key}` must leave an example for training, got {fraction:g} of {total} examples "
                f"with {len(train)} left; hold out less"
            )
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


class Part(NamedTuple):
    """Examples of an argument: inputs, labels, names of classes, and targets if there are any."""

    argument: str
    inputs: Tensor
    labels: np.ndarray
    names: tuple[str, ...] | None
    targets: Tensor | None


def as_part(
    argument: str,
    names: tuple[str, str, str],
    x: Any,
    y: Any,
    targets: Any,
    known: tuple[str, ...] | None,
) -> Part:
    """Return checked examples of the `known` classes, if there are names for them.

    `names` are those of the arrays in error messages.
    """
    x_name, y_name, t_name = names
    if y is None and targets is None:
        raise TypeError(
            f"`{y_name}` must be given, the class of each example, or `{t_name}`, got neither"
        )
    inputs = _as_tensor(x_name, x, is_input=True)
    check_shape(x_name, inputs)
    labels, classes = np.zeros(len(inputs), np.int64), known
    if y is not None:
        labels, classes = as_classes(y_name, y, known)
    each, learned = f"for each of the {len(inputs)} inputs", None
    if len(labels) != len(inputs):
        raise ValueError(f"`{y_name}` must have one label {each}, got {len(labels)}")
    if targets is not None:
        learned = _as_tensor(t_name, targets)
        if learned.shape[:1] != (len(inputs),):
            got = tuple(learned.shape)
            raise ValueError(f"`{t_name}` must have one target {each}, got shape {got}")
    return Part(argument, inputs, labels, classes, learned)


def places_of(parts: Sequence[Part]) -> list[np.ndarray]:
    """Return the indices of the examples of each part, in their concatenation."""
    ends = np.cumsum([len(part.labels) for part in parts])
    return np.split(np.arange(ends[-1]), ends[:-1])


def _as_tensor(name: str, values: Any, *, is_input: bool = False) -> Tensor:
    """Return a contiguous copy of real numbers; inputs become uint8, int32, int64 or float32.

    Targets keep their dtype, except that unsigned integers other than uint8 become int64.
    """
    if isinstance(values, Tensor):
        check_dense(name, values)
        dtype = values.dtype
        if is_input and dtype not in (torch.uint8, torch.int32):
            is_real = dtype.is_floating_point or dtype == torch.bool
            dtype = torch.float32 if is_real else torch.int64
        return values.detach().to("cpu", dtype, copy=True, memory_format=torch.contiguous_format)
    array = as_array(name, values)
    kind, dtype = array.dtype.kind, array.dtype.newbyteorder("=")
    if kind not in "buif" or (dtype.itemsize > 8 and not is_input):
        raise TypeError(f"`{name}` must be real numbers, got dtype {array.dtype}")
    if dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"`{name}` must fit into int64, got {array.max()}; renumber them")
    if dtype != np.uint8 and (kind == "u" or (is_input and kind == "i" and dtype != np.int32)):
        dtype = np.int64
    elif is_input and kind in "bf":
        dtype = np.float32
    with np.errstate(over="ignore"):  # overflow becomes infinite, which Dataset rejects
        return torch.from_numpy(array.astype(dtype, order="C"))


def _as_held_part(key: str, given: Any, y: Any, train: Part) -> Part:
    """Return held-out examples whose inputs and targets match those for training, or raise."""
    wanted = "a pair (x, y)" if train.targets is None else "a triple (x, y, targets)"
    if len(given) != (2 if train.targets is None else 3):
        raise ValueError(f"`{key}` must be a fraction or {wanted}, got {len(given)} items")
    part = as_part(key, names_in(key), *given, *[None] * (3 - len(given)), known=train.names)
    if (part.targets is None) != (train.targets is None) or (given[1] is None) != (y is None):
        raise TypeError(
            f"`{key}` must have labels and targets if and only if they are trained on: {wanted}"
        )
    if y is not None and _is_text(given[1]) != _is_text(y):
        raise TypeError(
            f"`{key}` must have labels like `y`, either integers or names, got "
            f"{shown(part.labels.tolist() if not _is_text(given[1]) else given[1])}; convert one"
        )
    check_alike(part, train, "`x`")
    return part


def names_in(argument: str) -> tuple[str, str, str]:
    """Return how messages name the entries of a tuple (x, y, targets)."""
    return f"{argument}[0]", f"{argument}[1]", f"{argument}[2]"


def _is_text(labels: Any) -> bool:
    """Return whether labels are names instead of class numbers."""
    return not (hasattr(labels, "detach") or np.asarray(labels).dtype.kind in "iu")


def check_alike(part: Part, first: Part, other: str) -> None:
    """Raise unless examples are of the shape and dtype of the `first` ones; `other` names these."""
    for what, given, wanted, has in (
        ("inputs", part.inputs, first.inputs, f"{other} has"),
        ("targets", part.targets, first.targets, "`targets` have"),
    ):
        if given is not None and wanted is not None and given.shape[1:] != wanted.shape[1:]:
            raise ValueError(
                f"`{part.argument}` must have {what} of shape {tuple(wanted.shape[1:])}, as {has}, "
                f"got {tuple(given.shape[1:])}"
            )
    if part.inputs.dtype != first.inputs.dtype:
        raise TypeError(
            f"`{part.argument}` must have inputs of {first.inputs.dtype}, as {other} has, got "
            f"{part.inputs.dtype}; convert one"
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
    seed: Seed = 0,
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
    x, y, learned = collected("dataset", dataset, targets)
    held: dict[str, Any] = {
        key: value
        if value is None or isinstance(value, Real | np.ndarray)
        else collected(key, value, targets)[: 2 + targets]
        for key, value in (("test", test), ("val", val))
    }
    held |= {"n_classes": n_classes, "class_names": class_names, "owners": owners}
    settings = {"seed": seed, "mean": mean, "std": std}
    settings["name"] = type(dataset).__name__ if name is None else name
    spare_names = None if targets else _names(dataset)
    return as_dataset(x, y, targets=learned, spare_names=spare_names, **held, **settings)


def _names(dataset: Any) -> tuple[str, ...] | None:
    """Return the attribute ``classes`` of a torch dataset if it has different texts, or None."""
    names = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names) if len(set(names)) == len(names) else None


def collected(name: str, dataset: Any, targets: bool) -> tuple[Tensor, Any, Tensor | None]:
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
    inputs, labels, learned = (
        [part for part in parts if part is not None] for parts in zip(*items, strict=True)
    )
    if len(labels) not in (0, size):
        raise TypeError(
            f"`{name}` must have a class in all items or in none, got {len(labels)} of {size}"
        )
    numbered = labels and all(isinstance(y, int) for y in labels)  # the types of others are checked
    return (
        _stacked(name, "inputs", inputs),
        np.array(labels) if numbered else labels or None,
        _stacked(name, "targets", learned) if targets else None,
    )


def _check_no_graph(name: str, value: Any, targets: bool, where: str = "") -> None:
    """Raise ``TypeError`` if a value is a graph of PyG or networkx."""
    if hasattr(value, "adjacency") and hasattr(value, "nodes"):
        raise TypeError(
            f"`{name}` must give {_wanted(targets)}, got a networkx graph "
            f"({type(value).__name__}){where}; pass it, as a topology, to topofl.as_topology(graph)"
        )
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
        for i, value in enumerate(found):
            if value != found[0]:
                raise ValueError(
                    f"`{name}` must have {what} of one shape and dtype, got {found[0]} in item 0 "
                    f"and {value} in item {i}"
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
        got = f"{shown(y)} in item {place}{remedy}"
        raise TypeError(f"`{name}` must give integers or texts as labels, got {got}") from error
    target = _as_tensor(f"{name}[{place}][{len(item) - 1}]", item[-1]) if targets else None
    return x if isinstance(x, Tensor) else torch.as_tensor(x, device="cpu"), label, target
