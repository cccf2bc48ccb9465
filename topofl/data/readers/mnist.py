"""Digits of scikit-learn, and IDX files, whose headers are not trusted: MNIST and its like."""

import gzip
import hashlib
import math
import os
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch

from topofl._support.check import check_choice, check_int, check_path, check_switch
from topofl._support.datasets import INSIDE
from topofl._support.machine import total_memory
from topofl._support.public import public
from topofl._support.seeding import Seed, stream
from topofl.data._labels import stratified, validation
from topofl.data.dataset import Dataset, first_complete, reader, with_notes

__all__ = ["digits", "emnist", "fashion_mnist", "mnist", "read_idx"]


_MNIST_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""MD5 checksums of the uncompressed files of MNIST."""


_EMNIST = {
    "balanced": (47, 0, ((112_800, 18_800),)),
    "byclass": (62, 0, ((697_932, 116_323),)),
    "bymerge": (47, 0, ((697_932, 116_323),)),
    "digits": (10, 0, ((240_000, 40_000),)),
    "letters": (26, 1, ((124_800, 20_800), (88_800, 14_800))),
    "mnist": (10, 0, ((60_000, 10_000),)),
}
"""Classes, first label, and accepted numbers of (training, test) images of the splits of EMNIST.

The letters are published in two sizes: 145,600 images, the size that NIST states, and 103,600
images, the size in TensorFlow Datasets.
"""


@reader
def digits(*, test: int = 300, val: int = 0, seed: Seed = 0, enlarge: int = 1) -> Dataset:
    """Return the 1,797 handwritten digits of scikit-learn, a real dataset that needs no files.

    Parameters
    ----------
    test, val
        Numbers of examples held out at random, in the class proportions as far as whole numbers
        allow.
    seed
        Seed of their choice.
    enlarge
        Each pixel is repeated `enlarge` x `enlarge` times. With 2, images are large enough for
        ``models.gn_lenet((1, 16, 16))``. The name of the dataset then states the size.

    Returns
    -------
    Dataset
        Inputs (1797, 1, 8, 8), or (1797, 1, 8 * enlarge, 8 * enlarge): float32 pixels / 16, in [0,
        1].

    Raises
    ------
    ValueError
        If no examples would remain for training, or the images do not fit into memory.

    References
    ----------
    Alpaydin and Kaynak, "Optical recognition of handwritten digits" (UCI Machine Learning
    Repository, 1998).

    Examples
    --------
    >>> digits(test=200, val=100)
    Dataset('digits', inputs=(1797, 1, 8, 8), n_classes=10, train=1497, val=100, test=200)
    >>> digits(enlarge=2)
    Dataset('digits (16 x 16 pixels)', inputs=(1797, 1, 16, 16), n_classes=10, train=1497, \
val=0, test=300)
    """
    # The file is read without scikit-learn, whose import takes about a second.
    sklearn = Path(find_spec("sklearn").origin).parent  # pyright: ignore
    table = np.loadtxt(sklearn / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    pixels, labels = table[:, :-1], table[:, -1].astype(np.int64)
    test = check_int("test", test, minimum=0, maximum=len(labels) - 1)
    most, remedy = len(labels) - 1 - test, "one example must remain for training"
    val = check_int("val", val, minimum=0, maximum=most, remedy=remedy)
    enlarge = check_int("enlarge", enlarge, minimum=1)
    if (needed := 4 * pixels.size * enlarge**2) > (total_memory() or math.inf):
        raise ValueError(
            f"`enlarge` must be small enough for images to fit into memory, got {enlarge}: "
            f"{needed / 2**30:.3g} GiB"
        )
    rng = stream(seed, "split")
    test_indices, rest = stratified(np.arange(len(labels)), labels, test, rng)
    val_indices, train = stratified(rest, labels, val, rng)
    inputs = torch.from_numpy((pixels / 16).astype(np.float32)).reshape(-1, 1, 8, 8)
    inputs = inputs.repeat_interleave(enlarge, 2).repeat_interleave(enlarge, 3)
    name = with_notes("digits", f"{8 * enlarge} x {8 * enlarge} pixels" if enlarge > 1 else "")
    return Dataset(inputs, torch.from_numpy(labels), 10, name, train, val_indices, test_indices)


@reader
def mnist(
    root: str | os.PathLike[str] | None = None,
    *,
    val: int = 10_000,
    seed: Seed = 0,
    verify: bool = True,
    train: int | None = None,
    downscale: int = 1,
) -> Dataset:
    """Return MNIST from its four IDX files, with the validation split of D-Cliques.

    Parameters
    ----------
    root
        Folder with the files, gzipped or not, in it or at most three levels below, outside of
        folders named after Fashion-MNIST; None: the environment variable TOPOFL_DATA. Nothing is
        downloaded.
    val
        Number of the 60,000 training images held out for validation, chosen at random with class
        counts proportional to those of the test set (equal to them for 10,000). With 0, all images
        are for training.
    seed
        Seed of their choice.
    verify
        Whether to compare the checksums of the files with those of the original files. False also
        reads other files of the same layout, and adds "unverified" to the name.
    train
        Number of the other training images to use, chosen at random in their class proportions;
        None: all.
    downscale
        Average blocks of `downscale` x `downscale` pixels, for smaller and faster models: 2 makes
        images of 14 x 14 pixels. The name of the dataset then states the size.

    Returns
    -------
    Dataset
        Inputs (70000, 1, 28, 28), uint8; models receive (pixel / 255 - 0.1307) / 0.3081. With
        `downscale`, means are rounded to whole levels, halves up. The test images are the last
        10,000.

    Raises
    ------
    FileNotFoundError
        If files are missing; the message lists them and the folders searched.
    ValueError
        If a file is damaged or not the original one, if `val` needs more images than a class has,
        if fewer than `train` are left, if `downscale` does not divide the sides of images, or if
        `root` is None and TOPOFL_DATA is not set.

    References
    ----------
    LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document recognition"
    (1998), for the images; Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section IV-A.

    Examples
    --------
    Other files of the same layout, here with ten black images each:

    >>> import tempfile
    >>> def idx(array):  # bytes of an IDX file
    ...     sizes = np.array(array.shape, ">u4").tobytes()
    ...     return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in ("train", "t10k"):
    ...         images = Path(folder, f"{part}-images-idx3-ubyte")
    ...         labels = Path(folder, f"{part}-labels-idx1-ubyte")
    ...         _ = images.write_bytes(idx(np.zeros((10, 28, 28), np.uint8)))
    ...         _ = labels.write_bytes(idx(np.arange(10, dtype=np.uint8)))
    ...     mnist(folder, val=0, verify=False)
    Dataset('mnist (unverified)', inputs=(20, 1, 28, 28), n_classes=10, train=10, val=0, test=10)
    """
    check_switch("verify", verify, auto=False)
    downscale = check_int("downscale", downscale, minimum=1)
    _, (images, labels, size) = _read_files(
        root, "mnist", _MNIST_MD5, 10, md5=_MNIST_MD5 if verify else {}
    )
    images = _averaged(images, downscale)
    pixels = f"{images.shape[1]} x {images.shape[2]} pixels" if downscale > 1 else ""
    name = with_notes("mnist", pixels, "" if verify else "unverified")
    whole = _dataset((images, labels, size), 10, name, val, seed, mean=0.1307, std=0.3081)
    if train is None:
        return whole
    most, why = len(whole.train), "this many images are left for training"
    count = check_int("train", train, minimum=1, maximum=most, remedy=why)
    return replace(whole, train=stratified(whole.train, labels, count, stream(seed, "train"))[0])


def _averaged(images: np.ndarray, side: int) -> np.ndarray:
    """Return means over blocks of `side` x `side` bytes, rounded to bytes, halves up."""
    n, height, width = images.shape
    if height % side or width % side:
        raise ValueError(
            f"`downscale` must divide the sides of images, {height} x {width} pixels, got {side}; "
            "2 halves those of MNIST"
        )
    blocks = images.reshape(n, height // side, side, width // side, side)
    sums = blocks.sum(axis=(2, 4), dtype=np.uint32)
    return ((2 * sums + side**2) // (2 * side**2)).astype(np.uint8)


@reader
def fashion_mnist(
    root: str | os.PathLike[str] | None = None, *, val: int = 0, seed: Seed = 0, verify: bool = True
) -> Dataset:
    """Return Fashion-MNIST from its four IDX files: 70,000 images of clothing in 10 classes.

    Parameters
    ----------
    root
        Folder with the files, which have the same names as those of MNIST, gzipped or not, in it or
        at most three levels below, there in a folder with "fashion" in its name (or in raw of one);
        None: the environment variable TOPOFL_DATA. Nothing is downloaded.
    val
        Number of the 60,000 training images held out for validation, as in :func:`mnist`.
    seed
        Seed of their choice.
    verify
        Whether to check that every class has 6,000 training and 1,000 test images of 28 x 28
        pixels, which rejects the files of MNIST. False reads any files of the same layout, and adds
        "unverified" to the name.

    Returns
    -------
    Dataset
        Inputs (70000, 1, 28, 28), uint8; models receive (pixel / 255 - 0.2860) / 0.3530, the mean
        and the standard deviation of the training pixels. The test images are the last 10,000.

    Raises
    ------
    FileNotFoundError
        If files are missing; the message lists them and the folders searched.
    ValueError
        If a file is damaged, if the files hold other images, or if `val` needs more images than a
        class has.

    References
    ----------
    Xiao, Rasul and Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine
    learning algorithms" (2017).

    Examples
    --------
    Other files of the same layout, here with ten black images each:

    >>> import tempfile
    >>> def idx(array):  # bytes of an IDX file
    ...     sizes = np.array(array.shape, ">u4").tobytes()
    ...     return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in ("train", "t10k"):
    ...         images = Path(folder, f"{part}-images-idx3-ubyte")
    ...         labels = Path(folder, f"{part}-labels-idx1-ubyte")
    ...         _ = images.write_bytes(idx(np.zeros((10, 28, 28), np.uint8)))
    ...         _ = labels.write_bytes(idx(np.arange(10, dtype=np.uint8)))
    ...     dataset = fashion_mnist(folder, verify=False)
    >>> dataset.name, len(dataset.train), len(dataset.test)
    ('fashion_mnist (unverified)', 10, 10)
    """
    check_switch("verify", verify, auto=False)
    sizes = ((60_000, 10_000),) if verify else None
    folder, found = _read_files(root, "fashion_mnist", _MNIST_MD5, 10, sizes=sizes)
    if verify:
        train, test = np.split(found[1], [60_000])
        for part, size in ((train, 6_000), (test, 1_000)):
            counts = np.bincount(part, minlength=10)
            if (counts != size).any():
                raise ValueError(
                    f"`root` must hold {size} images of each class of Fashion-MNIST, got "
                    f"{counts.tolist()} in {folder}; read the files of MNIST, which have the same "
                    "names, with data.mnist, and others with verify=False"
                )
    name = with_notes("fashion_mnist", "" if verify else "unverified")
    return _dataset(found, 10, name, val, seed, mean=0.2860, std=0.3530)


@reader
def emnist(
    root: str | os.PathLike[str] | None = None,
    *,
    split: str = "balanced",
    val: int = 0,
    seed: Seed = 0,
    verify: bool = True,
) -> Dataset:
    """Return a split of EMNIST from its four IDX files: handwritten digits and letters, upright.

    Parameters
    ----------
    root
        Folder with the files, such as ``emnist-letters-train-images-idx3-ubyte``, gzipped or not,
        in it or at most three levels below; None: the environment variable TOPOFL_DATA. Nothing
        is downloaded.
    split
        ``"balanced"`` (47 classes: digits and letters, merged where upper and lower case look
        alike), ``"byclass"`` (62: digits, upper and lower case), ``"bymerge"`` (47), ``"digits"``
        (10), ``"letters"`` (26, upper and lower case merged) or ``"mnist"`` (10).
    val
        Number of training images held out for validation, as in :func:`mnist`.
    seed
        Seed of their choice.
    verify
        Whether to check that the files hold as many images of 28 x 28 pixels as the published ones.
        False reads any files of the same layout, and adds "unverified" to the name.

    Returns
    -------
    Dataset
        Inputs (N, 1, 28, 28), uint8, transposed, since the files store images with rows and columns
        exchanged. Models receive (pixel / 255 - mean) / std with the mean and the standard
        deviation of all training pixels, rounded to four decimals. Labels start at 0; those of
        letters start at 1 in the files. The test images come last.

    Raises
    ------
    FileNotFoundError
        If files are missing; the message lists them and the folders searched.
    ValueError
        If `split` is unknown, if a file is damaged, if the files hold another number of images or
        labels of other classes, or if `val` needs more images than a class has.

    References
    ----------
    Cohen, Afshar, Tapson and van Schaik, "EMNIST: extending MNIST to handwritten letters"
    (2017).

    Examples
    --------
    Other files of the same layout, here with ten images each:

    >>> import tempfile
    >>> def idx(array):  # bytes of an IDX file
    ...     sizes = np.array(array.shape, ">u4").tobytes()
    ...     return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in ("train", "test"):
    ...         images = Path(folder, f"emnist-digits-{part}-images-idx3-ubyte")
    ...         labels = Path(folder, f"emnist-digits-{part}-labels-idx1-ubyte")
    ...         _ = images.write_bytes(idx(np.arange(7840, dtype=np.uint8).reshape(10, 28, 28)))
    ...         _ = labels.write_bytes(idx(np.arange(10, dtype=np.uint8)))
    ...     dataset = emnist(folder, split="digits", verify=False)
    >>> dataset.name, dataset.n_classes, dataset.inputs.shape
    ('emnist digits (unverified)', 10, torch.Size([20, 1, 28, 28]))
    """
    classes, first_label, sizes = _EMNIST[check_choice("split", split, _EMNIST)]
    check_switch("verify", verify, auto=False)
    names = [
        f"emnist-{split}-{part}-{what}"
        for part in ("train", "test")
        for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ]
    _, (images, labels, train_size) = _read_files(
        root, "emnist", names, classes, first_label=first_label, sizes=sizes if verify else None
    )
    upright = np.ascontiguousarray(images.transpose(0, 2, 1))
    mean, std = _mean_and_std(upright[:train_size])
    name = with_notes(f"emnist {split}", "" if verify else "unverified")
    return _dataset((upright, labels, train_size), classes, name, val, seed, mean=mean, std=std)


_Found = tuple[np.ndarray, np.ndarray, int]
"""Images and labels, those for training first, and how many these are."""


def _read_files(
    root: object,
    dataset: str,
    names: Collection[str],
    n_classes: int,
    *,
    first_label: int = 0,
    md5: Mapping[str, str] | None = None,
    sizes: Sequence[tuple[int, int]] | None = None,
) -> tuple[Path, _Found]:
    """Return the folder that holds four files, and what is in them.

    The files are training images, their labels, and those for test. Numbers of images must be one
    of the `sizes`, if these are given.
    """
    place = check_path("root", root)
    folder, _ = first_complete(
        f"the four files {', '.join(names)} (each raw or with .gz)",
        [(place / inside, names) for inside in ("", *INSIDE[dataset])],
        lambda folder, name: _find_file(folder, name).is_file(),
    )
    arrays = [read_idx(_find_file(folder, name), md5=(md5 or {}).get(name)) for name in names]
    last_label = first_label + n_classes - 1
    for images, labels in (arrays[:2], arrays[2:]):
        if images.ndim != 3 or images.dtype != np.uint8 or labels.shape != images.shape[:1]:
            raise ValueError(
                "`root` must hold images (N, height, width) of bytes and N labels, got shapes "
                f"{images.shape} and {labels.shape} in {folder}"
            )
        bad = np.flatnonzero((labels < first_label) | (labels > last_label))
        if len(bad):
            raise ValueError(
                f"`root` must hold labels in {first_label}..{last_label}, got {labels[bad[0]]} for "
                f"image {bad[0]} in {folder}"
            )
    _check_sizes(folder, arrays[0].shape, arrays[2].shape, sizes)
    labels = np.concatenate([arrays[1], arrays[3]]).astype(np.int64) - first_label
    return folder, (np.concatenate([arrays[0], arrays[2]]), labels, len(arrays[0]))


def _check_sizes(
    folder: Path,
    train: tuple[int, ...],
    test: tuple[int, ...],
    sizes: Sequence[tuple[int, int]] | None,
) -> None:
    """Raise ``ValueError`` unless images have one size, and are as many as `sizes` says."""
    if train[1:] != test[1:]:
        raise ValueError(
            f"`root` must hold training and test images of one size, got {train[1:]} and "
            f"{test[1:]} in {folder}"
        )
    if sizes and ((train[0], test[0]) not in sizes or train[1:] != (28, 28)):
        wanted = " or ".join(f"{many:,} and {few:,}" for many, few in sizes)
        raise ValueError(
            f"`root` must hold {wanted} images of 28 x 28 pixels for training and test, got "
            f"{train[0]:,} and {test[0]:,} of {train[1]} x {train[2]} in {folder}; read other "
            "files with verify=False"
        )


def _mean_and_std(images: np.ndarray) -> tuple[float, float]:
    """Return the mean and the standard deviation of pixels / 255, rounded to four decimals."""
    counts = np.zeros(256, np.int64)
    for start in range(0, len(images), 1000):  # bincount converts its input to int64
        counts += np.bincount(images[start : start + 1000].ravel(), minlength=256)
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum()
    variance = counts @ (values - mean) ** 2 / counts.sum()
    return round(float(mean), 4), max(round(float(np.sqrt(variance)), 4), 1e-4)


def _dataset(found: _Found, classes: int, name: str, val: int, seed: Seed, **scale: Any) -> Dataset:
    """Return a dataset with `val` training images held out for validation."""
    images, labels, train_size = found
    splits = validation(labels, train_size, val, seed)
    pixels = torch.from_numpy(images)[:, None]
    return Dataset(pixels, torch.from_numpy(labels), classes, name, *splits, **scale)


def _find_file(folder: Path, name: str) -> Path:
    """Return the path of a raw file if it exists, else that of its gzipped version."""
    raw = folder / name
    return raw if raw.is_file() else folder / f"{name}.gz"


_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


_CHUNK_SIZE = 2**20
"""Bytes read at once, so that a header with a size that is too large costs no memory."""


@public
def read_idx(path: str | os.PathLike[str], *, md5: str | None = None) -> np.ndarray:
    """Return the array in an IDX file, the format of MNIST.

    Parameters
    ----------
    path
        The file, raw or gzipped; detected from its contents, not its name.
    md5
        Expected MD5 checksum of the uncompressed contents, in hexadecimal digits.

    Returns
    -------
    numpy.ndarray
        Array with the shape and dtype (uint8, int8, int16, int32, float32 or float64) of the file,
        in native byte order.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged or incomplete, is not IDX, holds no numbers, has surplus bytes, does
        not fit into memory, or has another checksum.

    Notes
    -----
    An IDX file has two zero bytes, a byte for the type, a byte for the number of dimensions, the
    dimensions as big-endian unsigned 32-bit integers, and the numbers in C order, big-endian
    (LeCun, Cortes and Burges, The MNIST database). Decompression stops one byte after the size in
    the header.

    Examples
    --------
    >>> import tempfile
    >>> header = bytes([0, 0, 0x08, 2, 0, 0, 0, 2, 0, 0, 0, 3])  # uint8, 2 axes: 2 x 3
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "numbers").write_bytes(header + bytes(range(6)))
    ...     read_idx(Path(folder, "numbers"))
    array([[0, 1, 2],
           [3, 4, 5]], dtype=uint8)
    """
    path = check_path("path", path, "file")
    if not path.is_file():
        raise FileNotFoundError(f"`path` must be an IDX file, got {path}, which is not a file")
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            with cast(BinaryIO, gzip.GzipFile(fileobj=file) if is_packed else file) as content:
                return _read_array(path, content, md5)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"`path` must be a whole gzip file, got {path}, which is damaged or incomplete "
                f"({error}); copy it again"
            ) from error
        except MemoryError as error:
            raise ValueError(f"`path` must fit into memory, got {path}, which does not") from error


def _read_array(path: Path, content: BinaryIO, md5: str | None) -> np.ndarray:
    """Return the array in an open file, reading at most one byte past the size in its header."""
    start = content.read(4)
    if len(start) < 4 or any(start[:2]) or start[2] not in _IDX_TYPES or not 1 <= start[3] <= 32:
        got = f"{path}, which starts with the bytes {start.hex(' ')!r}"
        raise ValueError(f"`path` must be an IDX file, got {got}")
    dtype = np.dtype(_IDX_TYPES[start[2]])
    sizes = content.read(4 * start[3])
    header = start + sizes
    if len(sizes) < 4 * start[3]:
        raise ValueError(
            f"`path` must have a header of {4 + 4 * start[3]} bytes, got {len(header)} bytes in "
            f"{path}; copy it again"
        )
    shape = tuple(np.frombuffer(sizes, ">u4").tolist())
    if 0 in shape:
        raise ValueError(f"`path` must hold at least one number, got shape {shape} in {path}")
    if (n_bytes := dtype.itemsize * math.prod(shape)) > (total_memory() or math.inf):
        raise ValueError(
            f"`path` must fit into memory, got shape {shape} of {dtype}, {n_bytes / 2**30:.3g} "
            f"GiB, in {path}"
        )
    numbers = _read_numbers(path, content, shape, n_bytes, len(header))
    if md5 is not None:
        digest = hashlib.md5(header, usedforsecurity=False)
        digest.update(numbers)
        if digest.hexdigest() != md5.lower():
            raise ValueError(
                f"`path` must have the checksum (`md5`) {md5}, got {digest.hexdigest()} for "
                f"{path}; this is another file"
            )
    return np.frombuffer(numbers, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _read_numbers(
    path: Path, content: BinaryIO, shape: tuple[int, ...], n_bytes: int, header_size: int
) -> bytes:
    """Return the `n_bytes` after the header, or raise if there are fewer or more."""
    chunks = []
    left = n_bytes
    while left and (chunk := content.read(min(left, _CHUNK_SIZE))):
        chunks.append(chunk)
        left -= len(chunk)
    if not left and not content.read(1):
        return b"".join(chunks)
    got = f"{header_size + n_bytes - left} bytes" if left else "more"
    raise ValueError(
        f"`path` must have {header_size + n_bytes} bytes for shape {shape}, got {got}: {path} "
        f"{'is incomplete' if left else 'has surplus bytes'}; copy it again"
    )
