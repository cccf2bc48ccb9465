"""Readers of CIFAR-10 and CIFAR-100 from local files, without unpickling."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from topofl._support.check import check_choice, check_int, check_path
from topofl._support.files import read_file
from topofl._support.seeding import stream
from topofl.data._split import validation
from topofl.data.dataset import Dataset
from topofl.data.readers._pickle import LARGEST, load_pickle
from topofl.data.readers._reader import reader

__all__ = ["cifar10", "cifar100"]

_PIXELS = 3 * 32 * 32


class _Kind(NamedTuple):
    """Files of a dataset by folder, test images last, with checksums (None: unknown)."""

    name: str
    folders: dict[str, dict[str, str | None]]
    labels: dict[str, int]
    """Number of classes by kind of label, in the order of the binary layout."""


_CIFAR10 = _Kind(
    "cifar10",
    {
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
    {"labels": 10},
)
_CIFAR100 = _Kind(
    "cifar100",
    {
        "cifar-100-python": {
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
        "cifar-100-binary": dict.fromkeys(["train.bin", "test.bin"]),
    },
    {"coarse_labels": 20, "fine_labels": 100},
)


@reader
def cifar10(
    root: str | os.PathLike[str] | None = None,
    *,
    val: int = 0,
    seed: int | np.random.Generator = 0,
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
    Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images. Bellet, Kermarrec and
    Lavoie (2022), D-Cliques, section IV-A.

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
    return _dataset(_CIFAR10, root, "labels", val, seed, verify, downscale)


@reader
def cifar100(
    root: str | os.PathLike[str] | None = None,
    *,
    val: int = 0,
    seed: int | np.random.Generator = 0,
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
    Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images.

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
    return _dataset(_CIFAR100, root, key, val, seed, verify, downscale)


def _dataset(
    kind: _Kind,
    root: object,
    key: str,
    val: int,
    seed: int | np.random.Generator,
    verify: bool,
    downscale: int,
) -> Dataset:
    """Return a dataset with the labels `key`, read from the first layout found in `root`."""
    side = _side(downscale)
    folder, md5 = _find_folder(check_path("root", root), kind)
    batches = [_read(folder / name, kind, md5[name] if verify else None) for name in md5]
    labels = np.concatenate([classes[key] for _, classes in batches])
    train_size = len(labels) - len(batches[-1][0])
    is_original_size = _has_original_size(labels, train_size, kind.labels[key])
    is_verified = verify and None not in md5.values()
    if verify and not is_verified and not is_original_size:
        raise ValueError(
            f"`root` must hold 50,000 + 10,000 images, equally many per class, got {train_size} + "
            f"{len(labels) - train_size} in {folder}; verify=False reads other files of this "
            "layout, such as a subset"
        )
    val_indices, train = validation(labels, train_size, val, stream(seed, "split"))
    inputs = torch.cat([_images(pixels, side) for pixels, _ in batches])
    notes = [
        "coarse labels" if key.startswith("coarse") else "",
        "" if side == 32 else f"{side} x {side} pixels",
        "" if is_verified else "unverified",
        "" if is_original_size else f"{train_size} + {len(labels) - train_size} images",
    ]
    note = ", ".join(filter(None, notes))
    name = f"{kind.name} ({note})" if note else kind.name
    test = np.arange(train_size, len(labels))
    return Dataset(
        inputs, torch.from_numpy(labels), kind.labels[key], name, train, val_indices, test
    )


def _images(pixels: np.ndarray, side: int) -> torch.Tensor:
    """Return (N, 3072) bytes as uint8 images, or as float32 means over blocks / 255."""
    dtype = np.uint8 if side == 32 else np.float32
    images = torch.from_numpy(pixels.astype(dtype)).view(-1, 3, 32, 32)
    return images if side == 32 else functional.avg_pool2d(images.div_(255), 32 // side)


def _side(downscale: int) -> int:
    """Return the height and width of downscaled images."""
    downscale = check_int("downscale", downscale, minimum=1, maximum=32)
    if 32 % downscale:
        raise ValueError(
            f"`downscale` must divide 32, got {downscale}; choose 1, 2, 4, 8, 16 or 32"
        )
    return 32 // downscale


def _has_original_size(labels: np.ndarray, train_size: int, n_classes: int) -> bool:
    """Return whether every class has as many images as in the original files."""
    train, test = (
        np.bincount(part, minlength=n_classes)
        for part in (labels[:train_size], labels[train_size:])
    )
    return bool((train == 50_000 // n_classes).all() and (test == 10_000 // n_classes).all())


def _find_folder(root: Path, kind: _Kind) -> tuple[Path, dict[str, str | None]]:
    """Return the first folder with all files of a layout, and the checksums of these files."""
    places = [
        (root / inside, files) for name, files in kind.folders.items() for inside in (".", name)
    ]
    for folder, files in places:
        if not _missing(folder, files):
            return folder, files
    best, files = min(places, key=lambda place: len(_missing(*place)) - len(place[1]))
    layouts = " or ".join(
        f"{', '.join(files)} (as in {name})" for name, files in kind.folders.items()
    )
    looked = ", ".join(dict.fromkeys(str(folder) for folder, _ in places))
    raise FileNotFoundError(
        f"`root` must hold the files {layouts}; looked in {looked}; missing in {best}: "
        f"{', '.join(_missing(best, files))}"
    )


def _missing(folder: Path, files: Mapping[str, Any]) -> list[str]:
    """Return the names of files that are not in a folder."""
    return [name for name in files if not (folder / name).is_file()]


def _read(path: Path, kind: _Kind, md5: str | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the pixels, (N, 3072), and the labels, (N,) per kind, in a file of either layout."""
    pixels, labels = (_read_binary if path.suffix == ".bin" else _read_pickled)(path, kind)
    for key, n_classes in kind.labels.items():
        bad = np.flatnonzero((labels[key] < 0) | (labels[key] >= n_classes))
        if len(bad):
            raise ValueError(
                f"`root` must hold {key} in 0..{n_classes - 1}, got {labels[key][bad[0]]} for "
                f"image {bad[0]} of {path}"
            )
    if md5 is not None:
        _check_md5(path, md5)
    return pixels, labels


def _check_md5(path: Path, md5: str) -> None:
    found = hashlib.md5(read_file(path, largest=LARGEST), usedforsecurity=False).hexdigest()
    if found != md5:
        raise ValueError(
            f"`root` must hold the original files, got {path} with the checksum (`md5`) {found} "
            f"instead of {md5}; verify=False reads other files of this layout, such as a subset"
        )


def _read_binary(path: Path, kind: _Kind) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    content = read_file(path, largest=LARGEST)
    width = len(kind.labels) + _PIXELS
    if not content or len(content) % width:
        raise ValueError(
            f"`root` must hold complete records of {width} bytes ({', '.join(kind.labels)}, "
            f"pixels), at least one, got {len(content)} bytes in {path}, which is damaged or "
            "incomplete; copy it again"
        )
    table = np.frombuffer(content, np.uint8).reshape(-1, width)
    labels = {key: table[:, i].astype(np.int64) for i, key in enumerate(kind.labels)}
    return table[:, len(kind.labels) :], labels


def _read_pickled(path: Path, kind: _Kind) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    batch = load_pickle(path)
    if isinstance(batch, dict):
        batch = {
            key.decode("latin1") if isinstance(key, bytes) else key: value
            for key, value in batch.items()
        }
    wanted = ["data", *kind.labels]
    if not isinstance(batch, dict) or not set(wanted) <= set(batch):
        got = (
            f"the keys {', '.join(map(str, batch))[:200]}"
            if isinstance(batch, dict)
            else type(batch).__name__
        )
        raise ValueError(
            f"`root` must hold dictionaries with {', '.join(wanted)}, got {got} in {path}"
        )
    pixels = batch["data"]
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.ndim != 2
        or pixels.shape[1] != _PIXELS
        or not len(pixels)
    ):
        got = f"shape {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise ValueError(
            f"`root` must hold data of shape (N, {_PIXELS}) with N >= 1, got {got} in {path}"
        )
    return pixels, {key: _labels(path, key, batch[key], len(pixels)) for key in kind.labels}


def _labels(path: Path, key: str, value: Any, size: int) -> np.ndarray:
    """Return a list of `size` labels as an array, or raise."""
    if not isinstance(value, list) or not all(type(label) is int for label in value):
        raise ValueError(
            f"`root` must hold {key} as a list of integers, got something else in {path}"
        )
    if len(value) != size:
        raise ValueError(
            f"`root` must hold as many {key} as images, got {len(value)} for {size} images in "
            f"{path}"
        )
    if min(value) < 0 or max(value) > 255:
        raise ValueError(f"`root` must hold {key} in 0..255, got a label out of range in {path}")
    return np.array(value, np.int64)
