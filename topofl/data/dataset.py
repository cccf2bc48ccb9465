"""One labelled dataset in memory, and how to make one from arrays or from a torch dataset."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._check import (
    CLASSES_LIMIT,
    as_array,
    check_finite,
    check_fraction,
    check_indices,
    check_int,
    check_labels,
    shown,
)
from topofl._seeding import stream
from topofl.data._pixels import Channels, check_channels, check_no_hidden_pixels, check_range, scale_and_shift
from topofl.data._split import apportion, draw

__all__ = ["Dataset", "from_arrays", "from_torch"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Examples with class labels, and which of them are for training, validation and test.

    Parameters
    ----------
    inputs
        Tensor, (N, channels, height, width) for images, (N, features...) otherwise. Float32 numbers, which models see
        as they are, or uint8 pixels, a quarter of the memory, of which models see what :meth:`examples` returns.
    labels
        (N,) int64 tensor of classes ``0..n_classes - 1``.
    n_classes
        Number of classes; some may have no example.
    name
        Short label, used in the names of partitions.
    train, val, test
        Indices into `inputs`, pairwise disjoint and without repetition; `val` and `test` may be empty. Examples in none
        of them are unused. Stored as read-only int64 arrays; torch warns when a tensor is indexed with one, so write
        ``inputs[torch.tensor(train)]``, or ``examples(train)``.
    mean, std
        Of uint8 pixels, models see ``(inputs / 255 - mean) / std``: a number each, or one for each channel (axis 1 of
        `inputs`). Stored as float or tuple of floats.
    owners
        (N,) integers in 0..N - 1: whom each example is from, where that is known, for :func:`natural`. Stored as a
        read-only int64 array.

    Raises
    ------
    TypeError
        If `inputs` or `labels` are not tensors of these dtypes, indices or `owners` are not integers, or `mean` or
        `std` not numbers.
    ValueError
        If there is no example, if lengths differ, if an input is NaN or infinite, if a label is not in
        ``0..n_classes - 1``, or if an index is out of range or used twice; if `mean` and `std` are not finite, do not
        fit the channels, or are not 0 and 1 for float32 inputs; if a `std` is not above 0.

    See Also
    --------
    from_arrays : converts other dtypes and makes the split.

    Examples
    --------
    >>> from topofl import data
    >>> data.digits()
    Dataset('digits', inputs=(1797, 1, 8, 8), n_classes=10, train=1497, val=0, test=300)
    """

    inputs: Tensor
    labels: Tensor
    n_classes: int
    name: str
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    mean: Channels = field(default=0.0, kw_only=True)
    std: Channels = field(default=1.0, kw_only=True)
    owners: np.ndarray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_tensor("inputs", self.inputs, torch.float32, torch.uint8)
        _check_tensor("labels", self.labels, torch.int64)
        n_classes = check_int("n_classes", self.n_classes, minimum=1, maximum=CLASSES_LIMIT)
        _check_examples(self.inputs, self.labels, n_classes)
        object.__setattr__(self, "mean", check_channels("mean", self.mean, self.inputs.shape))
        object.__setattr__(self, "std", check_channels("std", self.std, self.inputs.shape, positive=True))
        _check_normalization(self.inputs, self.mean, self.std)
        splits = {key: check_indices(key, getattr(self, key), len(self.inputs)) for key in ("train", "val", "test")}
        for key, indices in splits.items():
            object.__setattr__(self, key, indices)
        if not len(self.train):
            raise ValueError("`train` must hold at least one example, got none; hold out fewer for `val` and `test`")
        uses = np.bincount(np.concatenate(list(splits.values())), minlength=len(self.inputs))
        if uses.max() > 1:
            raise ValueError(
                f"`train`, `val` and `test` must be disjoint, got example {uses.argmax()} {uses.max()} times "
                f"({(uses > 1).sum()} such examples)"
            )
        if self.owners is not None:
            object.__setattr__(self, "owners", _check_owners(self.owners, len(self.inputs)))

    def affine(self, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor] | None:
        """Return the numbers `scale` and `shift` with which :meth:`examples` turns pixels into what models see.

        Returns
        -------
        tuple of torch.Tensor, or None
            ``1 / (255 * std)`` and ``-mean / std``, computed in float64 and rounded to `dtype`, of shape (channels, 1,
            1) or (1, 1, 1) for images, which broadcasts to examples. None if `inputs` are float32.

        Raises
        ------
        TypeError
            If `dtype` is not a floating-point one.
        """
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise TypeError(f"`dtype` must be a floating-point dtype, got {shown(dtype)}; e.g. torch.float32")
        if self.inputs.dtype != torch.uint8:
            return None
        scale, shift = scale_and_shift(self.mean, self.std, self.inputs.ndim, dtype)
        return scale.to(self.inputs.device), shift.to(self.inputs.device)

    def examples(self, indices: Any = None, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return examples as models see them: float32 inputs as they are, uint8 pixels divided by 255 and normalized.

        Of pixels it is ``pixels.to(dtype).mul_(scale).add_(shift)`` with the numbers of :meth:`affine`, hence the same
        to the last bit wherever it is computed so.

        Parameters
        ----------
        indices
            Vector of indices into `inputs`, such as `train`; None for all examples in their order.
        dtype
            Floating-point dtype of the result.

        Returns
        -------
        torch.Tensor
            (len(indices), ...). All of float32 inputs as float32 are `inputs` themselves; anything else is a copy.

        Raises
        ------
        TypeError
            If the indices are not integers, or `dtype` is not a floating-point one.
        ValueError
            If an index is out of range.

        Examples
        --------
        >>> pixels = np.array([[[[0, 51]]], [[[102, 255]]]], np.uint8)
        >>> from_arrays(pixels, [0, 1], mean=0.5, std=0.5).examples([1])
        tensor([[[[-0.2000,  1.0000]]]])
        """
        affine = self.affine(dtype)
        chosen = self.inputs
        if indices is not None:
            chosen = chosen[torch.tensor(check_indices("indices", indices, len(chosen)), device=chosen.device)]
        if affine is None:
            return chosen.to(dtype)
        scale, shift = affine
        return chosen.to(dtype).mul_(scale).add_(shift)

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, inputs={tuple(self.inputs.shape)}, n_classes={self.n_classes}, "
            f"train={len(self.train)}, val={len(self.val)}, test={len(self.test)})"
        )


def _check_tensor(name: str, value: Any, *dtypes: torch.dtype) -> None:
    if not isinstance(value, Tensor) or value.dtype not in dtypes:
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        wanted = " or ".join(map(str, dtypes))
        raise TypeError(f"`{name}` must be a tensor of {wanted}, got {kind}; data.from_arrays converts what it can")


def _check_examples(inputs: Tensor, labels: Tensor, n_classes: int) -> None:
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise ValueError(f"`inputs` must have shape (N, features...) with N >= 1, got {tuple(inputs.shape)}")
    if labels.shape != inputs.shape[:1]:
        raise ValueError(f"`labels` must have shape ({len(inputs)},) as `inputs` have, got {tuple(labels.shape)}")
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        check_finite("inputs", inputs.detach().cpu().numpy())
    bad = torch.nonzero((labels < 0) | (labels >= n_classes)).flatten()
    if len(bad):
        raise ValueError(
            f"`labels` must be in 0..{n_classes - 1}, got {int(labels[bad[0]])} at index {int(bad[0])} "
            f"({len(bad)} such labels); set `n_classes`, or relabel"
        )


def _check_owners(owners: Any, size: int) -> np.ndarray:
    owners = check_indices("owners", owners, size)
    if len(owners) != size:
        raise ValueError(f"`owners` must have shape ({size},) as `labels` have, got {owners.shape}")
    return owners


def _check_normalization(inputs: Tensor, mean: Channels, std: Channels) -> None:
    if inputs.dtype == torch.uint8:
        check_range(mean, std)
    elif (mean, std) != (0.0, 1.0):
        raise ValueError(
            f"`mean` and `std` must be 0 and 1 for float32 inputs, which models see as they are, got mean={mean} and "
            f"std={std}; normalize them yourself, or give pixels as uint8"
        )


def from_arrays(
    x: Any,
    y: Any,
    *,
    n_classes: int | None = None,
    test: float | tuple[Any, Any] | None = None,
    val: float | tuple[Any, Any] | None = None,
    name: str = "arrays",
    seed: int | np.random.Generator = 0,
    mean: Any = 0.0,
    std: Any = 1.0,
) -> Dataset:
    """Return a dataset made of numpy arrays or torch tensors, which are copied.

    Parameters
    ----------
    x
        Inputs, (N, channels, height, width) or (N, features...). uint8 is taken for pixels: it is stored as it is, and
        models see it divided by 255. Other numbers (and booleans, as 0 and 1) become float32 as they are. Integers that
        only look like pixels, with the largest in 128..255 and none below 0, are refused: say which they are by
        converting them to uint8 or to float32. Grey images (N, height, width) need a channel for convolutions:
        ``x[:, None]``; images (N, height, width, channels) become ``x.transpose(0, 3, 1, 2)``.
    y
        (N,) integer classes; floats are refused even when whole.
    n_classes
        Number of classes; default: the largest label plus 1.
    test, val
        None for none; a fraction in [0, 1) of the N examples, held out at random with the class proportions kept as
        far as whole numbers allow (at least one example if above 0); or another pair (x, y), which is appended.
    name
        Label of the dataset.
    seed
        For the fractions.
    mean, std
        If `x` is uint8, models see ``(x / 255 - mean) / std``: a number each, or one for each channel (axis 1).

    Raises
    ------
    TypeError
        If `x` are not numbers or not dense, or `y` not integers; if only one of `x` and a held-out pair is uint8.
    ValueError
        If lengths or shapes do not fit, a number is NaN or infinite, a fraction is out of range, or nothing would be
        left to train on; if integers look like pixels but are not uint8; `mean` and `std` as of :class:`Dataset`.

    Examples
    --------
    >>> from_arrays(np.eye(8), [0, 1] * 4, test=0.25, name="toy")
    Dataset('toy', inputs=(8, 8), n_classes=2, train=6, val=0, test=2)
    """
    rng = stream(seed, "split")
    pairs = [_as_pair("x", "y", x, y)]
    labels = pairs[0][1]
    train, held = np.arange(len(labels)), {}
    for key, value in (("test", test), ("val", val)):
        if isinstance(value, tuple | list):
            start = sum(len(pair[1]) for pair in pairs)
            pairs.append(_as_held_pair(key, value, x, pairs[0][0]))
            held[key] = np.arange(start, start + len(pairs[-1][1]))
        else:
            size = _held_size(key, value, len(labels), len(train))
            held[key], train = draw(train, labels, apportion(np.bincount(labels[train]), size), rng)
    inputs = torch.cat([pair[0] for pair in pairs]) if len(pairs) > 1 else pairs[0][0]
    labels = np.concatenate([pair[1] for pair in pairs])
    n_classes = int(labels.max()) + 1 if n_classes is None else n_classes
    parts = train, held["val"], held["test"]
    return Dataset(inputs, torch.from_numpy(labels), n_classes, name, *parts, mean=mean, std=std)


def _held_size(key: str, fraction: float | None, total: int, available: int) -> int:
    """How many of `total` examples a fraction holds out; at least one must stay of those `available`."""
    fraction = check_fraction(key, 0.0 if fraction is None else fraction)
    size = max(1, round(fraction * total)) if fraction else 0
    if size >= available:
        raise ValueError(
            f"`{key}` must leave an example to train on, got {fraction:g} of {total} examples with {available} left; "
            "hold out less"
        )
    return size


def _as_pair(x_name: str, y_name: str, x: Any, y: Any) -> tuple[Tensor, np.ndarray]:
    inputs = _as_inputs(x_name, x)
    labels = check_labels(y_name, y)
    if len(labels) != len(inputs):
        raise ValueError(f"`{y_name}` must have one label for each of the {len(inputs)} inputs, got {len(labels)}")
    return inputs, labels


def _as_inputs(name: str, x: Any) -> Tensor:
    """Return a copy in C order: of uint8 as it is, of other numbers as float32."""
    x = x if isinstance(x, Tensor) else as_array(name, x)
    inputs = _from_tensor(name, x) if isinstance(x, Tensor) else _from_numpy(name, x)
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise ValueError(f"`{name}` must have shape (N, features...) with N >= 1, got {tuple(inputs.shape)}")
    if "int" in str(x.dtype) and inputs.dtype != torch.uint8:
        check_no_hidden_pixels(name, inputs, x.dtype)
    return inputs


def _from_tensor(name: str, x: Tensor) -> Tensor:
    if x.is_complex() or x.layout != torch.strided or x.is_meta:
        got = "no values (device meta)" if x.is_meta else f"{x.dtype} in {x.layout}"
        raise TypeError(f"`{name}` must be real numbers in a dense tensor, got {got}")
    dtype = torch.uint8 if _is_uint8(x) else torch.float32
    return x.detach().to("cpu", dtype, copy=True, memory_format=torch.contiguous_format)


def _from_numpy(name: str, array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "buif":
        raise TypeError(f"`{name}` must be real numbers, got dtype {array.dtype}")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        return torch.from_numpy(array.astype(np.uint8 if _is_uint8(array) else np.float32, order="C"))


def _is_uint8(x: Any) -> bool:
    return getattr(x, "dtype", None) in (torch.uint8, np.dtype(np.uint8))


def _as_held_pair(key: str, pair: Any, x: Any, like: Tensor) -> tuple[Tensor, np.ndarray]:
    """Return a held-out pair with inputs of the same kind and shape as the training inputs `x`."""
    if len(pair) != 2:
        raise ValueError(f"`{key}` must be a fraction or a pair (x, y), got {len(pair)} things")
    inputs, labels = _as_pair(f"{key}[0]", f"{key}[1]", *pair)
    if inputs.shape[1:] != like.shape[1:]:
        raise ValueError(
            f"`{key}` must have inputs of shape {tuple(like.shape[1:])} each, as `x`, got {tuple(inputs.shape[1:])}"
        )
    if _is_uint8(pair[0]) != _is_uint8(x):
        raise TypeError(
            f"`{key}` must have uint8 inputs (which are divided by 255) if and only if `x` has; convert one"
        )
    return inputs, labels


def from_torch(
    dataset: torch.utils.data.Dataset,
    *,
    test: float | torch.utils.data.Dataset | None = None,
    val: float | torch.utils.data.Dataset | None = None,
    n_classes: int | None = None,
    name: str | None = None,
    seed: int | np.random.Generator = 0,
    mean: Any = 0.0,
    std: Any = 1.0,
) -> Dataset:
    """Return a dataset made of a map-style torch dataset, read once from its first item to its last.

    Parameters
    ----------
    dataset
        Has ``len`` and gives pairs (tensor or array, integer class), all of one shape and dtype. Transforms that draw
        random numbers are therefore drawn once.
    test, val
        A fraction or another such dataset, as in :func:`from_arrays`.
    n_classes, seed, mean, std
        As in :func:`from_arrays`.
    name
        Label; default: the name of the class of `dataset`.

    Raises
    ------
    TypeError
        If a dataset is not map-style, or an item is not such a pair (it is named).
    ValueError
        If items differ in shape or dtype, and as in :func:`from_arrays`.

    Examples
    --------
    >>> pairs = torch.utils.data.TensorDataset(torch.eye(8), torch.arange(8) % 2)
    >>> from_torch(pairs, test=0.25)
    Dataset('TensorDataset', inputs=(8, 8), n_classes=2, train=6, val=0, test=2)
    """
    x, y = _collect("dataset", dataset)
    held: dict[str, Any] = {
        key: value if value is None or isinstance(value, Real) else _collect(key, value)
        for key, value in (("test", test), ("val", val))
    }
    name = type(dataset).__name__ if name is None else name
    return from_arrays(x, y, n_classes=n_classes, name=name, seed=seed, mean=mean, std=std, **held)


def _collect(name: str, dataset: Any) -> tuple[Tensor, np.ndarray]:
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise TypeError(f"`{name}` must be a map-style dataset with a length, got {type(dataset).__name__}")
    try:
        size = len(dataset)
    except TypeError as error:  # of an array without dimensions, for example
        raise TypeError(f"`{name}` must be a map-style dataset with a length, got {shown(dataset)}") from error
    if size == 0:
        raise ValueError(f"`{name}` must have at least one item, got none")
    items = [_as_item(name, i, dataset[i]) for i in range(size)]
    first = items[0][0]
    _check_all(name, [x.shape for x, _ in items], lambda shape: tuple(shape), first.shape)
    _check_all(name, [x.dtype for x, _ in items], str, first.dtype)
    return torch.stack([x for x, _ in items]), np.array([y for _, y in items])


def _check_all(name: str, found: list[Any], show: Callable[[Any], object], wanted: Any) -> None:
    odd = next((i for i, value in enumerate(found) if value != wanted), None)
    if odd is not None:
        raise ValueError(
            f"`{name}` must have inputs of one shape and dtype, got {show(wanted)} in item 0 and {show(found[odd])} "
            f"in item {odd}"
        )


def _as_item(name: str, place: int, item: Any) -> tuple[Tensor, int]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise TypeError(f"`{name}` must give pairs (input, label), got {type(item).__name__} in item {place}")
    x, y = item
    if not isinstance(x, Tensor | np.ndarray):
        raise TypeError(
            f"`{name}` must give inputs that are tensors or arrays, got {type(x).__name__} in item {place}; add a "
            "transform such as torchvision's ToTensor"
        )
    try:
        return x if isinstance(x, Tensor) else torch.as_tensor(x, device="cpu"), operator.index(y)
    except TypeError as error:
        raise TypeError(f"`{name}` must give integer labels, got {shown(y)} in item {place}") from error
