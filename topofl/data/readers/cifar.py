"""Readers of CIFAR-10 and CIFAR-100 from local files, whose pickles are read as plain data."""

import hashlib
import math
import os
import pickletools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from topofl._support.check import check_choice, check_int, check_path
from topofl._support.files import read_file
from topofl._support.seeding import Seed
from topofl.data._labels import validation
from topofl.data.dataset import Dataset, first_complete, reader, with_notes

__all__ = ["cifar10", "cifar100"]


_PIXELS = 3 * 32 * 32


_FILES: dict[str, dict[str, dict[str, str | None]]] = {
    "cifar10": {
        "cifar-10-batches-py": {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
        "cifar-10-batches-bin": dict.fromkeys(
            [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
        ),
    },
    "cifar100": {
        "cifar-100-python": {
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
        "cifar-100-binary": dict.fromkeys(["train.bin", "test.bin"]),
    },
}
"""Files of the datasets by folder, test images last, with checksums (None: unknown)."""

_CLASSES = {"cifar10": {"labels": 10}, "cifar100": {"coarse_labels": 20, "fine_labels": 100}}
"""Number of classes by kind of label, in the order of the binary layout."""


@reader
def cifar10(
    root: str | os.PathLike[str] | None = None,
    *,
    val: int = 0,
    seed: Seed = 0,
    verify: bool = True,
    downscale: int = 1,
) -> Dataset:
    """Return CIFAR-10 from its files, with pixels in [0, 1], as in D-Cliques.

    Pixels are not normalized by the mean and the standard deviation of each channel, unlike in the
    code of DFedPGP, Dis-PFL and DPFL.

    Parameters
    ----------
    root
        Folder with the six batches, pickled (as in cifar-10-batches-py) or binary (as in
        cifar-10-batches-bin, with .bin), in it or at most three levels below; pickled files take
        precedence. None: the environment variable TOPOFL_DATA. Nothing is downloaded, and code in a
        pickle is never run.
    val
        Number of the 50,000 training images held out for validation, chosen at random with class
        counts proportional to those of the test set. D-Cliques uses 5,000 for tuning, and 0 for its
        results, to train on all images.
    seed
        Seed of their choice.
    verify
        Whether to compare the checksums of pickled files with those of the original files. There
        are no checksums for binary files: their sizes and numbers of images per class must be the
        original ones, and the name contains "unverified". False also reads other files of the same
        layout, such as a subset; the name then contains "unverified", and the numbers of training
        and test images if they are not the original ones.
    downscale
        Average blocks of `downscale` x `downscale` pixels, for smaller and faster models. 2 makes
        images of 16 x 16 pixels, the smallest that :func:`topofl.models.gn_lenet` takes. The name
        then states the size, and inputs are float32.

    Returns
    -------
    Dataset
        Inputs (60000, 3, 32, 32), uint8; models receive pixel / 255. With `downscale`, inputs are
        float32 means of pixel / 255, 32 / downscale high and wide. The training images come first,
        in the order of the files; the test images are the last 10,000.

    Raises
    ------
    FileNotFoundError
        If files are missing; the message lists them and the folders searched.
    ValueError
        If a file is damaged, is not the original one or contains code, if `val` needs more images
        than a class has, or if `downscale` does not divide 32.

    References
    ----------
    Krizhevsky, "Learning multiple layers of features from tiny images" (2009). Bellet, Kermarrec
    and Lavoie, "D-Cliques" (2022), section IV-A.

    Examples
    --------
    Other files of the same layout, here with one black image each:

    >>> import tempfile
    >>> batches = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in batches:
    ...         _ = Path(folder, name).write_bytes(bytes(1 + 3 * 32 * 32))  # label, pixels
    ...     print(cifar10(folder, verify=False).inputs.shape)
    torch.Size([6, 3, 32, 32])
    """
    return _dataset("cifar10", root, "labels", val, seed, verify, downscale)


@reader
def cifar100(
    root: str | os.PathLike[str] | None = None,
    *,
    val: int = 0,
    seed: Seed = 0,
    verify: bool = True,
    labels: str = "fine",
    downscale: int = 1,
) -> Dataset:
    """Return CIFAR-100 from its files, with pixels in [0, 1].

    As in :func:`cifar10`, pixels are not normalized by the mean and the standard deviation of each
    channel.

    Parameters
    ----------
    root
        Folder with the two files, pickled (as in cifar-100-python) or binary (as in
        cifar-100-binary, with .bin); or a folder with such a folder, of one of these names, at
        most three levels below. None: the environment variable TOPOFL_DATA.
    val, seed, verify
        As in :func:`cifar10`.
    labels
        "fine" for 100 classes, "coarse" for the 20 superclasses.
    downscale
        As in :func:`cifar10`.

    Returns
    -------
    Dataset
        As in :func:`cifar10`.

    Raises
    ------
    FileNotFoundError, ValueError
        As :func:`cifar10`; also if `labels` is neither of the two.

    References
    ----------
    Krizhevsky, "Learning multiple layers of features from tiny images" (2009).

    Examples
    --------
    Other files of the same layout, here with one black image each:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("train.bin", "test.bin"):
    ...         _ = Path(folder, name).write_bytes(bytes(2 + 3 * 32 * 32))  # labels, pixels
    ...     dataset = cifar100(folder, verify=False, labels="coarse")
    >>> dataset.n_classes, len(dataset.train), len(dataset.test)
    (20, 1, 1)
    """
    key = f"{check_choice('labels', labels, ['fine', 'coarse'])}_labels"
    return _dataset("cifar100", root, key, val, seed, verify, downscale)


def _dataset(
    dataset: str, root: object, key: str, val: int, seed: Seed, verify: bool, downscale: int
) -> Dataset:
    """Return a dataset with the labels `key`, read from the first layout found in `root`."""
    if 32 % check_int("downscale", downscale, minimum=1, maximum=32):
        raise ValueError(
            f"`downscale` must divide 32, got {downscale}; choose 1, 2, 4, 8, 16 or 32"
        )
    side, root, n_classes = 32 // downscale, check_path("root", root), _CLASSES[dataset]
    files = _FILES[dataset]
    layouts = " or ".join(f"{', '.join(own)} (as in {name})" for name, own in files.items())
    folder, md5 = first_complete(
        f"the files {layouts}",
        [(root / inside, own) for name, own in files.items() for inside in (".", name)],
    )
    batches = [_read(folder / name, n_classes, md5[name] if verify else None) for name in md5]
    labels = np.concatenate([classes[key] for _, classes in batches])
    n_test = len(batches[-1][0])
    train_size = len(labels) - n_test
    is_original_size = all(
        (np.bincount(part, minlength=n_classes[key]) == size // n_classes[key]).all()
        for part, size in ((labels[:train_size], 50_000), (labels[train_size:], 10_000))
    )
    is_verified = verify and None not in md5.values()
    if verify and not is_verified and not is_original_size:
        raise ValueError(
            f"`root` must hold 50,000 + 10,000 images, equally many per class, got {train_size} + "
            f"{n_test} in {folder}; verify=False reads other files of this layout, such as a subset"
        )
    splits = validation(labels, train_size, val, seed)
    inputs = torch.cat([_images(pixels, side) for pixels, _ in batches])
    name = with_notes(
        dataset,
        "coarse labels" if key.startswith("coarse") else "",
        "" if side == 32 else f"{side} x {side} pixels",
        "" if is_verified else "unverified",
        "" if is_original_size else f"{train_size} + {n_test} images",
    )
    return Dataset(inputs, torch.from_numpy(labels), n_classes[key], name, *splits)


def _images(pixels: np.ndarray, side: int) -> torch.Tensor:
    """Return (N, 3072) bytes as uint8 images, or as float32 means over blocks / 255."""
    dtype = np.uint8 if side == 32 else np.float32
    images = torch.from_numpy(pixels.astype(dtype)).view(-1, 3, 32, 32)
    return images if side == 32 else functional.avg_pool2d(images.div_(255), 32 // side)


def _read(
    path: Path, n_classes: dict[str, int], md5: str | None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the pixels, (N, 3072), and the labels, (N,) per kind, in a file of either layout."""
    pixels, labels = (_read_binary if path.suffix == ".bin" else _read_pickled)(path, n_classes)
    for key, size in n_classes.items():
        bad = [k for k, label in enumerate(labels[key]) if not 0 <= label < size]
        if bad:
            raise ValueError(
                f"`root` must hold {key} in 0..{size - 1}, got {_short(int(labels[key][bad[0]]))} "
                f"for image {bad[0]} of {path}"
            )
    if md5 is not None:
        found = hashlib.md5(read_file(path, largest=LARGEST), usedforsecurity=False).hexdigest()
        if found != md5:
            raise ValueError(
                f"`root` must hold the original files, got {path} with the checksum (`md5`) "
                f"{found} instead of {md5}; verify=False reads other files of this layout"
            )
    return pixels, {key: np.array(values, np.int64) for key, values in labels.items()}


def _read_binary(path: Path, keys: Collection[str]) -> tuple[np.ndarray, dict[str, Any]]:
    content = read_file(path, largest=LARGEST)
    width = len(keys) + _PIXELS
    if not content or len(content) % width:
        raise ValueError(
            f"`root` must hold complete records of {width} bytes ({', '.join(keys)}, pixels), at "
            f"least one, got {len(content)} bytes in {path}, which is damaged; copy it again"
        )
    table = np.frombuffer(content, np.uint8).reshape(-1, width)
    return table[:, len(keys) :], dict(zip(keys, table.T, strict=False))


def _read_pickled(path: Path, keys: Collection[str]) -> tuple[np.ndarray, dict[str, Any]]:
    batch, wanted = load_pickle(path), ["data", *keys]
    got = type(batch).__name__
    if isinstance(batch, dict):
        batch = {
            key.decode("latin1") if isinstance(key, bytes) else key: value
            for key, value in batch.items()
        }
        got = f"the keys {', '.join(batch)[:200]}"
    if not isinstance(batch, dict) or not set(wanted) <= set(batch):
        raise ValueError(
            f"`root` must hold dictionaries with {', '.join(wanted)}, got {got} in {path}"
        )
    pixels = batch["data"]
    shape = getattr(pixels, "shape", None)
    if shape is None or len(shape) != 2 or shape[1] != _PIXELS or not shape[0]:
        got = type(pixels).__name__ if shape is None else f"shape {shape}"
        raise ValueError(
            f"`root` must hold data of shape (N, {_PIXELS}) with N >= 1, got {got} in {path}"
        )
    for key in keys:
        value = batch[key]
        if not isinstance(value, list) or not all(type(label) is int for label in value):
            raise ValueError(
                f"`root` must hold {key} as a list of integers, got something else in {path}"
            )
        if len(value) != len(pixels):
            raise ValueError(
                f"`root` must hold as many {key} as images, got {len(value)} for {len(pixels)} "
                f"images in {path}"
            )
    return pixels, {key: batch[key] for key in keys}


LARGEST = 2**28
"""Size in bytes of the largest file that is read; the largest of CIFAR has 155 million bytes."""

_FREE_OPCODES = 10_000
_BYTES_PER_OPCODE = 50
"""A file may have 10,000 opcodes, plus one per 50 bytes.

One-byte opcodes can create objects of a hundred bytes. An image of CIFAR has 3,072 bytes and about
five opcodes.
"""

_RECONSTRUCT = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
_NAMES = (*_RECONSTRUCT, "numpy.ndarray", "numpy.dtype")
_VALUES = (
    *("BININT1", "BININT2", "BININT", "INT", "LONG", "LONG1", "LONG4"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"),
)
_MARK = object()


@dataclass(frozen=True)
class _Name:
    """Stand-in for a function or class of numpy in a pickle, or for the result of its call."""

    name: str
    called: bool = False


def load_pickle(path: Path) -> Any:
    """Return the plain data in a pickle: containers, text, bytes, integers, arrays of bytes.

    The pickle module is not used. The opcodes are interpreted here, and the only names allowed are
    those with which numpy writes arrays, which become inert stand-ins. Strings of Python 2 become
    bytes. Memory is at most four times the size of the file plus some megabytes; files with too
    many small objects are rejected.

    Raises
    ------
    ValueError
        If the file names anything else (the message says what; nothing is run), is damaged, is
        larger than any file of CIFAR, or has far more objects than labels and names of images.
    OSError
        If the file cannot be read.
    """
    content = read_file(path, largest=LARGEST)
    try:
        return _evaluate(content)
    except UnpicklingError as error:
        raise ValueError(
            f"`root` must hold pickles of plain data, got {path}, which contains {error}; nothing "
            "in it was run"
        ) from error
    except Exception as error:  # damage can cause many
        raise ValueError(
            f"`root` must hold complete pickles, got {path}, which is damaged or incomplete "
            f"({error}); copy it again"
        ) from error


def _evaluate(content: bytes) -> Any:
    """Return the object that the opcodes of a pickle build."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    most = _FREE_OPCODES + len(content) // _BYTES_PER_OPCODE
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content), start=1):
        if count > most:
            raise UnpicklingError(f"more than {most:,} objects in {len(content):,} bytes")
        _step(opcode.name, argument, stack, memo)
    if len(stack) != 1:
        raise ValueError(f"{len(stack)} objects are left instead of one")
    return stack[0]


def _step(opcode: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    """Execute one opcode of a pickle on the stack and the memo."""
    if opcode in _VALUES:
        stack.append(argument)
        return
    match opcode:
        case "PROTO" | "FRAME" | "STOP":
            pass
        case "MEMOIZE" | "PUT" | "BINPUT" | "LONG_BINPUT":
            memo[len(memo) if opcode == "MEMOIZE" else argument] = stack[-1]
        case "GET" | "BINGET" | "LONG_BINGET":
            stack.append(memo[argument])
        case "BINSTRING" | "SHORT_BINSTRING":
            stack.append(argument.encode("latin1"))
        case "NONE" | "NEWTRUE" | "NEWFALSE":
            stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[opcode])
        case "MARK":
            stack.append(_MARK)
        case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
            stack.append({"D": dict, "L": list, "T": tuple}[opcode[6]]())
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            stack.append(tuple(_pop(stack, int(opcode[-1]))))
        case "TUPLE" | "LIST":
            stack.append({"TUPLE": tuple, "LIST": list}[opcode](_pop_to_mark(stack)))
        case "DICT":
            stack.append(_pairs(_pop_to_mark(stack)))
        case "APPEND" | "APPENDS":
            items = _pop(stack, 1) if opcode == "APPEND" else _pop_to_mark(stack)
            stack[-1].extend(items)
        case "SETITEM" | "SETITEMS":
            items = _pop(stack, 2) if opcode == "SETITEM" else _pop_to_mark(stack)
            stack[-1].update(_pairs(items))
        case "GLOBAL" | "STACK_GLOBAL":
            words = argument.split(" ", 1) if opcode == "GLOBAL" else _pop(stack, 2)
            stack.append(_named(".".join(words)))
        case "REDUCE" | "BUILD":
            apply = _called if opcode == "REDUCE" else _built
            stack.append(apply(*_pop(stack, 2)))
        case _:
            raise UnpicklingError(
                f"the opcode {opcode}" + (f" ({argument})"[:100] if argument is not None else "")
            )


def _pop(stack: list[Any], count: int) -> list[Any]:
    """Remove and return the last `count` objects of the stack."""
    if len(stack) < count:
        raise IndexError("it takes more objects than it holds")
    items = stack[-count:]
    del stack[-count:]
    return items


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    """Remove the objects after the last mark, and the mark; return the objects."""
    place = next(i for i in range(len(stack) - 1, -2, -1) if i < 0 or stack[i] is _MARK)
    return _pop(stack, len(stack) - place)[1:]


def _pairs(items: list[Any]) -> dict[Any, Any]:
    """Return a dictionary from alternating keys and values."""
    # Hashing deeply nested tuples would overflow the stack.
    if not all(isinstance(key, str | bytes) for key in items[::2]):
        raise TypeError("a key is not text")
    return dict(zip(items[::2], items[1::2], strict=True))


def _named(name: str) -> _Name:
    """Return the stand-in of an allowed name, or raise."""
    if name not in _NAMES:
        raise UnpicklingError(name[:100])
    return _Name(name)


def _called(function: Any, arguments: Any) -> _Name:
    """Return a stand-in for an empty array or for the dtype of bytes; other calls are forbidden."""
    match function, arguments:
        case _Name(name, called=False), (_Name("numpy.ndarray", called=False), _, _) if (
            name in _RECONSTRUCT
        ):
            return _Name("numpy.ndarray", called=True)
        case _Name("numpy.dtype", called=False), ("u1" | b"u1", *_):
            return _Name("numpy.dtype", called=True)
        case _Name("numpy.dtype", called=False), (code, *_):
            raise UnpicklingError(f"an array of {_short(code)}, while only bytes (u1) are allowed")
    raise UnpicklingError(f"a call of {_short(function)} with {_short(arguments)}")


def _built(target: Any, state: Any) -> Any:
    """Return the array that a state describes; byte order is irrelevant for bytes."""
    match target, state:
        case _Name("numpy.dtype", called=True), _:
            return target
        case (
            _Name("numpy.ndarray", called=True),
            (1, tuple(shape), _Name("numpy.dtype", called=True), bool(fortran), bytes(content)),
        ):
            return _array(shape, fortran, content)
    raise UnpicklingError(f"a state of {_short(target)}")


def _array(shape: tuple[Any, ...], fortran: bool, content: bytes) -> np.ndarray:
    if not all(type(size) is int and size >= 0 for size in shape) or math.prod(shape) != len(
        content
    ):
        raise ValueError(f"an array of shape {_short(shape)} has {len(content)} bytes")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


def _short(value: Any) -> str:
    """Return a description of any value in at most 60 characters."""
    match value:
        case _Name(name):
            return name
        case tuple():
            items = ("(...)" if isinstance(item, tuple) else _short(item) for item in value[:5])
            return f"({', '.join(items)})"[:60]
        case int() | None:
            return hex(value)[:60] if isinstance(value, int) and abs(value) > 10**15 else str(value)
        case str() | bytes():
            return repr(value[:50])
    return type(value).__name__
