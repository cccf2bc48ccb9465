"""Conversion of map-style torch datasets."""

import operator
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import (
    check_switch,
    shown,
)
from topofl._support.public import public
from topofl.data.arrays import as_dataset, as_targets
from topofl.data.dataset import Dataset
from topofl.topology.interchange import is_pyg

__all__ = ["collected", "from_torch"]


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
    x, y, learned = collected("dataset", dataset, targets)
    held: dict[str, Any] = {
        key: value
        if value is None or isinstance(value, Real | np.ndarray)
        else collected(key, value, targets)[: 2 + targets]
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


def collected(name: str, dataset: Any, targets: bool) -> tuple[Tensor, Any, Tensor | None]:
    """Return the inputs, the labels if items have them, and the targets if `targets` is true."""
    _check_no_graph(name, dataset, targets)
    if isinstance(dataset, Mapping) or hasattr(dataset, "columns"):
        raise TypeError(
            f"`{name}` must be a map-style dataset with a length, got {type(dataset).__name__}; "
            "use data.from_dataframe or data.from_huggingface for tables"
        )
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise TypeError(
            f"`{name}` must be a map-style dataset with a length, got {type(dataset).__name__}"
        )
    try:
        size = len(dataset)
    except TypeError as error:  # for example for a zero-dimensional array
        raise TypeError(
            f"`{name}` must be a map-style dataset with a length, got {shown(dataset)}"
        ) from error
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
    return inputs, _as_labels(labels) if labels else None, learned


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


def _as_labels(labels: list[int | str]) -> Any:
    """Return class numbers as an array, and other labels as a list, whose types are checked."""
    return np.array(labels) if all(isinstance(y, int) for y in labels) else labels


def _stacked(name: str, what: str, values: list[Tensor]) -> Tensor:
    """Return tensors stacked along a new first axis, or raise if shapes or dtypes differ."""
    _check_equal(name, what, [x.shape for x in values], lambda shape: tuple(shape), values[0].shape)
    _check_equal(name, what, [x.dtype for x in values], str, values[0].dtype)
    return torch.stack(values)


def _check_equal(
    name: str, what: str, found: list[Any], show: Callable[[Any], object], wanted: Any
) -> None:
    odd = next((i for i, value in enumerate(found) if value != wanted), None)
    if odd is not None:
        raise ValueError(
            f"`{name}` must have {what} of one shape and dtype, got {show(wanted)} in item 0 and "
            f"{show(found[odd])} in item {odd}"
        )


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
    target = as_targets(f"{name}[{place}][{len(item) - 1}]", item[-1]) if targets else None
    return x if isinstance(x, Tensor) else torch.as_tensor(x, device="cpu"), label, target
