"""Dataset: examples in memory with a split, their normalization and augmentation; all readers."""

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import (
    CLASSES_LIMIT,
    as_array,
    check_finite,
    check_indices,
    check_int,
    check_kind,
    check_number,
    check_path,
    check_positive,
    check_switch,
    shown,
)
from topofl._support.datasets import dataset_root, default_root
from topofl._support.public import public
from topofl.data._labels import as_names

__all__ = ["Augmentation", "Dataset", "crop_and_flip"]

Channels = float | tuple[float, ...]
"""One number for all channels, or one per channel."""


@public
@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Examples with labels or targets, split into training, validation and test sets.

    Parameters
    ----------
    inputs
        Tensor, (N, channels, height, width) for images, (N, features...) otherwise. Float32 inputs
        are passed to models in the dtype of the run, and int32 or int64 inputs, such as token ids,
        unchanged. Uint8 pixels take a quarter of the memory of float32; models receive them
        normalized, as :meth:`examples` returns them.
    labels
        (N,) int64 tensor of classes ``0..n_classes - 1``. Partitions distribute examples by them,
        and models learn them unless there are `targets`.
    n_classes
        Number of classes; some may have no examples.
    name
        Short label, used in the names of partitions.
    train, val, test
        Indices into `inputs`, pairwise disjoint and without repetition; `val` and `test` may be
        empty. Examples in none of them are unused. Stored as read-only int64 arrays; torch warns
        when a tensor is indexed with a read-only array, so write ``inputs[torch.tensor(train)]`` or
        ``examples(train)``.
    mean, std
        Normalization of uint8 pixels: models receive ``(inputs / 255 - mean) / std``. Each is one
        number, or one per channel (axis 1 of `inputs`). Stored as float or tuple of floats.
    owners
        (N,) integers in 0..N - 1: the owner that each example comes from, if known, for
        :func:`natural`. Stored as a read-only int64 array.
    class_names, owner_names
        Distinct texts: the name of each class, and of owners 0, 1, ..., for plots and messages.
        Stored as tuples. None: the numbers are the names.
    targets
        (N, ...) tensor that models learn, in the shape and dtype that the task takes, for example
        numbers to predict or token ids. None: they learn the labels.
    triggered
        Indices of examples with a backdoor's trigger and its label, as :func:`backdoor` makes them,
        disjoint from `train`, `val` and `test`, for ``run(evaluation="triggered")``. None: there
        are none.

    Raises
    ------
    TypeError
        If `inputs`, `labels` or `targets` are not tensors of these dtypes, indices or `owners` are
        not integers, or `mean` or `std` not numbers.
    ValueError
        If there are no examples, if lengths differ, if an input or a target is NaN or infinite, if
        a label is not in ``0..n_classes - 1``, or if an index is out of range or used twice; if
        `mean` and `std` are not finite, do not match the channels, or are not 0 and 1 for inputs
        other than pixels; if a `std` is not above 0; if there is not one name for each class or
        owner.

    See Also
    --------
    from_arrays : converts other dtypes and splits the examples.

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
    targets: Tensor | None = field(default=None, kw_only=True)
    class_names: tuple[str, ...] | None = field(default=None, kw_only=True)
    owner_names: tuple[str, ...] | None = field(default=None, kw_only=True)
    triggered: np.ndarray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_tensor("inputs", self.inputs, torch.float32, torch.uint8, torch.int32, torch.int64)
        _check_tensor("labels", self.labels, torch.int64)
        n_classes = check_int("n_classes", self.n_classes, minimum=1, maximum=CLASSES_LIMIT)
        _check_examples(self.inputs, self.labels, n_classes)
        if self.targets is not None:
            _check_targets(self.targets, len(self.inputs))
        for key, check in (("mean", check_number), ("std", check_positive)):
            self._set(key, _as_channels(key, getattr(self, key), self.inputs.shape, check))
        self._check_normalization()
        size, n_owners = len(self.inputs), None
        for key in ("train", "val", "test"):
            self._set(key, check_indices(key, getattr(self, key), size))
        if self.triggered is not None:
            self._set("triggered", check_indices("triggered", self.triggered, size))
        more = [] if self.triggered is None else [self.triggered]
        _check_splits(self.train, np.concatenate([self.train, self.val, self.test, *more]), size)
        if self.owners is not None:
            self._set("owners", check_indices("owners", self.owners, size))
            if len(self.owners) != size:
                raise ValueError(
                    f"`owners` must have shape ({size},), one per label, got {self.owners.shape}"
                )
            n_owners = int(self.owners.max()) + 1
        for key, count in (("class_names", n_classes), ("owner_names", n_owners)):
            if getattr(self, key) is not None:
                self._set(key, as_names(key, getattr(self, key), count))

    def _set(self, key: str, value: Any) -> None:
        object.__setattr__(self, key, value)

    def _check_normalization(self) -> None:
        """Raise ``ValueError`` unless models can be passed normalized inputs."""
        affine, dtype = self.affine(), str(self.inputs.dtype).removeprefix("torch.")
        if affine is None and (self.mean, self.std) != (0.0, 1.0):
            raise ValueError(
                f"`mean` and `std` must be 0 and 1 for {dtype} inputs, which models get unchanged, "
                f"got mean={self.mean} and std={self.std}; normalize them, or pass pixels as uint8"
            )
        if affine is not None and not bool(torch.isfinite(255 * affine[0] + affine[1]).all()):
            raise ValueError(  # for the darkest or the brightest pixel
                f"`std` must keep (pixel / 255 - mean) / std finite in float32, got {self.std} "
                f"with mean={self.mean}"
            )

    def name_of(self, label: int) -> str:
        """Return the name of a class, which is its number if classes have no names.

        Raises
        ------
        TypeError, ValueError
            If `label` is not a class.

        Examples
        --------
        >>> from topofl import data
        >>> dataset = data.from_arrays(np.eye(4), ["dog", "cat", "dog", "cat"])
        >>> dataset.labels.tolist(), dataset.name_of(1)
        ([1, 0, 1, 0], 'dog')
        """
        label = check_int("label", label, minimum=0, maximum=self.n_classes - 1)
        return str(label) if self.class_names is None else self.class_names[label]

    def affine(self, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor] | None:
        """Return the `scale` and `shift` by which :meth:`examples` normalizes uint8 pixels.

        Returns
        -------
        tuple of torch.Tensor, or None
            ``1 / (255 * std)`` and ``-mean / std``, computed in float64 and rounded to `dtype`, of
            shape (channels, 1, 1) or (1, 1, 1) for images, which broadcasts to examples. None if
            `inputs` are not uint8.

        Raises
        ------
        TypeError
            If `dtype` is not a floating-point dtype.
        """
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise TypeError(
                f"`dtype` must be a floating-point dtype, got {shown(dtype)}; e.g. torch.float32"
            )
        if self.inputs.dtype != torch.uint8:
            return None
        center, spread = np.atleast_1d(self.mean), np.atleast_1d(self.std)
        with np.errstate(over="ignore", under="ignore"):
            both = 1 / (255 * spread), (0.0 - center) / spread
        shape = (-1, *[1] * (self.inputs.ndim - 2))
        scale, shift = (torch.from_numpy(values).to(dtype).reshape(shape) for values in both)
        return scale.to(self.inputs.device), shift.to(self.inputs.device)

    def learned(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return what models learn, (N, ...): the targets, or the labels if there are none.

        Parameters
        ----------
        dtype
            Dtype of floating-point targets; other targets are returned unchanged.

        Examples
        --------
        >>> from topofl import data
        >>> data.from_arrays(np.eye(2), targets=[0.25, -1.5]).learned()
        tensor([ 0.2500, -1.5000])
        """
        values = self.labels if self.targets is None else self.targets
        return values.to(dtype) if values.is_floating_point() else values

    def examples(self, indices: Any = None, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return examples as models receive them, with uint8 pixels divided by 255 and normalized.

        Pixels become ``pixels.to(dtype).mul_(scale).add_(shift)`` with the numbers of
        :meth:`affine`; any code that computes the same expression gets the same bits.

        Parameters
        ----------
        indices
            Vector of indices into `inputs`, such as `train`; None for all examples in order.
        dtype
            Floating-point dtype of the result; int32 and int64 inputs are returned unchanged.

        Returns
        -------
        torch.Tensor
            (len(indices), ...). If all examples are returned unchanged, this is `inputs` itself,
            otherwise a copy.

        Raises
        ------
        TypeError
            If the indices are not integers, or `dtype` is not a floating-point dtype.
        ValueError
            If an index is out of range.

        Examples
        --------
        >>> from topofl import data
        >>> pixels = np.array([[[[0, 51]]], [[[102, 255]]]], np.uint8)
        >>> data.from_arrays(pixels, [0, 1], mean=0.5, std=0.5).examples([1])
        tensor([[[[-0.2000,  1.0000]]]])
        """
        affine = self.affine(dtype)
        chosen = self.inputs
        if indices is not None:
            chosen = chosen[
                torch.tensor(check_indices("indices", indices, len(chosen)), device=chosen.device)
            ]
        if affine is None:
            return chosen.to(dtype) if chosen.is_floating_point() else chosen
        scale, shift = affine
        return chosen.to(dtype).mul_(scale).add_(shift)

    def __repr__(self) -> str:
        targets = "" if self.targets is None else f"targets={tuple(self.targets.shape)}, "
        triggered = "" if self.triggered is None else f", triggered={len(self.triggered)}"
        return (
            f"Dataset({self.name!r}, inputs={tuple(self.inputs.shape)}, "
            f"{targets}n_classes={self.n_classes}, train={len(self.train)}, val={len(self.val)}, "
            f"test={len(self.test)}{triggered})"
        )


def _check_tensor(name: str, value: Any, *dtypes: torch.dtype) -> None:
    if not isinstance(value, Tensor) or value.dtype not in dtypes:
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        wanted = " or ".join(map(str, dtypes))
        raise TypeError(
            f"`{name}` must be a tensor of {wanted}, got {kind}; data.from_arrays converts arrays"
        )


def check_shape(name: str, inputs: Tensor) -> None:
    """Raise ``ValueError`` unless inputs are (N, features...), and not empty."""
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise ValueError(
            f"`{name}` must have shape (N, features...) with N >= 1, got {tuple(inputs.shape)}"
        )


def check_dense(name: str, values: Any) -> None:
    """Raise ``TypeError`` unless values are a dense tensor of real numbers."""
    if not isinstance(values, Tensor):
        got = type(values).__name__
    elif values.is_complex() or values.layout != torch.strided or values.is_meta:
        got = "no values (device meta)" if values.is_meta else f"{values.dtype} in {values.layout}"
    else:
        return
    raise TypeError(
        f"`{name}` must be a dense tensor of real numbers, got {got}; convert it with torch.tensor"
    )


def check_finite_tensor(name: str, values: Tensor) -> None:
    """Raise ``ValueError`` if a number is NaN or infinite."""
    if values.is_floating_point() and not bool(torch.isfinite(values).all()):
        check_finite(name, values.detach().cpu().numpy())


def _check_examples(inputs: Tensor, labels: Tensor, n_classes: int) -> None:
    check_shape("inputs", inputs)
    if labels.shape != inputs.shape[:1]:
        raise ValueError(
            f"`labels` must have shape ({len(inputs)},), one per input, got {tuple(labels.shape)}"
        )
    check_finite_tensor("inputs", inputs)
    bad = torch.nonzero((labels < 0) | (labels >= n_classes)).flatten()
    if len(bad):
        raise ValueError(
            f"`labels` must be in 0..{n_classes - 1}, got {int(labels[bad[0]])} at index "
            f"{int(bad[0])} ({len(bad)} such labels); set `n_classes`, or relabel the examples"
        )


def _check_targets(targets: Any, size: int) -> None:
    check_dense("targets", targets)
    if targets.shape[:1] != (size,) or not targets.numel():
        raise ValueError(
            f"`targets` must have shape (N, ...) with N={size}, one per input, got "
            f"{tuple(targets.shape)}; pass one target per example"
        )
    check_finite_tensor("targets", targets)


def _check_splits(train: np.ndarray, every: np.ndarray, size: int) -> None:
    if not len(train):
        raise ValueError(
            "`train` must hold at least one example, got none; hold out fewer for `val` and `test`"
        )
    uses = np.bincount(every, minlength=size)
    if uses.max() > 1:
        raise ValueError(
            f"`train`, `val`, `test` and `triggered` must be disjoint, got example {uses.argmax()} "
            f"{uses.max()} times ({(uses > 1).sum()} such examples)"
        )


def _as_channels(
    name: str, value: Any, shape: Sequence[int], check: Callable[[str, Any], float]
) -> Channels:
    """Return `value` as one finite number, or one per channel (``shape[1]`` of them), or raise."""
    if not isinstance(value, Sequence) and hasattr(value, "tolist"):
        value = as_array(name, value).tolist()
    if not isinstance(value, list | tuple):
        return check(name, value)
    if len(value) != shape[1]:
        raise ValueError(
            f"`{name}` must be one number, or one for each of the {shape[1]} channels of `inputs` "
            f"{tuple(shape)}, got {len(value)}; images are (N, channels, height, width)"
        )
    return tuple(check(f"{name}[{channel}]", number) for channel, number in enumerate(value))


_BITS = 32
"""Number of random bits per choice."""

_MAX_PADDING = 2**10
"""Largest padding in pixels; it keeps the number of choices far below 2**_BITS."""


@dataclass(frozen=True)
class Augmentation:
    """Random crops and flips of training images; see :func:`crop_and_flip`.

    Raises
    ------
    ValueError, TypeError
        As :func:`crop_and_flip`.

    Examples
    --------
    >>> augment = crop_and_flip(padding=4)
    >>> augment
    Augmentation(padding=4, flip=True)
    >>> augment.n_choices  # 9 x 9 crops, each with and without a flip
    162
    """

    padding: int
    flip: bool

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "padding", check_int("padding", self.padding, minimum=0, maximum=_MAX_PADDING)
        )
        check_switch("flip", self.flip, auto=False)
        if self.n_choices == 1:
            raise ValueError(
                "`flip` must be True with padding=0, got False, which changes nothing; omit both"
            )

    @property
    def name(self) -> str:
        """Call that makes this augmentation."""
        return f"crop_and_flip(padding={self.padding}, flip={self.flip})"

    @property
    def n_choices(self) -> int:
        """Number of different results for one image."""
        return (2 * self.padding + 1) ** 2 * (1 + self.flip)

    def check_on(self, inputs: Tensor) -> None:
        """Raise ``ValueError`` if inputs are not images, (N, ...), or too small for the padding."""
        if inputs.ndim != 4:
            raise ValueError(
                "`augment` must be None for data other than images, (N, channels, height, width), "
                f"got inputs of {tuple(inputs.shape)}; leave it out, or reshape the inputs"
            )
        side = min(inputs.shape[2:])
        if self.padding >= side:
            raise ValueError(
                f"`augment` must have a padding below the shorter side of the images, {side}, got "
                f"{self.name}; lower the padding"
            )

    def choose(self, keys: np.ndarray) -> np.ndarray:
        """Return uniform choices, int64 in 0..n_choices - 1, from 64 random bits each."""
        return ((keys >> np.uint64(_BITS)) * np.uint64(self.n_choices) >> np.uint64(_BITS)).astype(
            np.int64
        )

    def moves(self, choices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the crops and flips that (k,) choices stand for.

        Returns
        -------
        tuple of torch.Tensor
            (k,) int64 each: the top and the left of the crop in the padded image, both in
            0..2 * padding, and whether it is then mirrored left to right (1) or not (0).
        """
        side = 2 * self.padding + 1
        crops = choices // (1 + self.flip)
        return crops // side, crops % side, choices % (1 + self.flip)


def check_augmentation(augment: Any) -> Augmentation:
    """Return `augment` unchanged, or raise ``TypeError`` if it is not an Augmentation."""
    wanted = "an Augmentation, such as data.crop_and_flip()"
    return check_kind("augment", augment, Augmentation, wanted)


@public
def crop_and_flip(padding: int = 4, flip: bool = True) -> Augmentation:
    """Return random crops and horizontal flips, for :func:`topofl.data.augmented`.

    Each time a node trains on an image, the image is padded on all four sides, cropped to its
    original size at one of (2 * padding + 1)^2 equally likely positions, and then mirrored left to
    right with probability 1/2. Uint8 images are padded with 0 before they are normalized, so the
    padding is black; float32 images are padded with 0 as stored, which is black only if they were
    not normalized before.

    Parameters
    ----------
    padding
        Pixels on each side, below the height and the width of the images; 0: no crops.
    flip
        Whether images are mirrored.

    Raises
    ------
    ValueError, TypeError
        If `padding` is not a non-negative integer, `flip` is not True or False, or both together
        change nothing.

    References
    ----------
    He et al., "Deep residual learning for image recognition" (2016), section 4.2, with padding 4.

    Examples
    --------
    >>> crop_and_flip(padding=4).n_choices  # 9 x 9 positions, mirrored or not
    162
    """
    return Augmentation(padding, flip)


_Given = ParamSpec("_Given")

READERS: dict[str, Callable[..., Dataset]] = {}
"""All readers by name, in the import order of :mod:`topofl.data`."""


Files = TypeVar("Files", bound=Collection[str])


def first_complete(
    what: str,
    places: Sequence[tuple[Path, Files]],
    is_there: Callable[[Path, str], bool] = lambda folder, name: (folder / name).exists(),
) -> tuple[Path, Files]:
    """Return the first folder that has all of its files, and these, or raise ``FileNotFoundError``.

    The message says `what` must be there, and what is missing in the folder with the most files.
    """
    missing = [[name for name in files if not is_there(folder, name)] for folder, files in places]
    best = min(range(len(places)), key=lambda k: len(missing[k]))
    if not missing[best]:
        return places[best]
    looked = ", ".join(dict.fromkeys(str(folder) for folder, _ in places))
    raise FileNotFoundError(
        f"`root` must hold {what}; looked in {looked}; missing in {places[best][0]}: "
        f"{', '.join(missing[best])}"
    )


def with_notes(name: str, *notes: str) -> str:
    """Return a name with the notes that are not empty, as in ``"cifar10 (unverified)"``."""
    note = ", ".join(filter(None, notes))
    return f"{name} ({note})" if note else name


def reader(function: Callable[_Given, Dataset]) -> Callable[_Given, Dataset]:
    """Register a public function that returns a Dataset in ``READERS``, and return it.

    Specs, TOML files, ``topofl list dataset`` and the tests of bad paths and random calls find
    readers in this registry. A reader whose first parameter is `root` reads files in or below that
    folder; it receives the folder that :func:`~topofl._support.datasets.dataset_root` finds for
    `root`, which is $TOPOFL_DATA if it is None.
    """
    takes = inspect.signature(function)

    @functools.wraps(function)
    def find(*args: Any, **kwargs: Any) -> Dataset:
        takes.bind(*args, **kwargs)  # unknown arguments are refused before files are looked for
        given, *rest = args or [kwargs.pop("root", None)]
        root = default_root() if given is None else check_path("root", given)
        if root is None:
            raise ValueError(
                "`root` must be given unless the environment variable TOPOFL_DATA names a folder, "
                f"got neither; write data.{function.__name__}(folder), or set TOPOFL_DATA"
            )
        root = dataset_root(root, function.__name__)
        return function(root, *rest, **kwargs)  # type: ignore[call-arg]

    made = public(find if "root" in takes.parameters else function)
    READERS[function.__name__] = made
    return made
