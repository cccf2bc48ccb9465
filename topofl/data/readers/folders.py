"""Datasets of image files in one folder per class: any such, CINIC-10 and Tiny ImageNet.

Images are decoded once, into a file of pixels that is read from then on.
"""

import hashlib
import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int, check_path, check_switch
from topofl._support.files import check_regular, read_file
from topofl._support.machine import total_memory
from topofl._support.seeding import Seed
from topofl.data._labels import validation
from topofl.data.dataset import Dataset, first_complete, reader, with_notes

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["cinic10", "image_folder", "tiny_imagenet"]


_CINIC10 = ["airplane", "automobile", "bird", "cat", "deer"]
_CINIC10 += ["dog", "frog", "horse", "ship", "truck"]

_Classes = list[list[Path]]
"""Paths of the images of each class, in the order of the classes."""


@reader
def image_folder(
    root: str | os.PathLike[str] | None = None,
    *,
    size: int | tuple[int, int] | None = None,
    merge_val: bool = False,
    mean: Any = 0.0,
    std: Any = 1.0,
    cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Return the images in folders ``<split>/<class>/``, decoded once and cached as pixels.

    Parameters
    ----------
    root
        Folder with ``train`` and optionally ``test`` and ``val`` or ``valid``, each with one folder
        per class of .png, .jpg and .jpeg files, whose contents must be PNG or JPEG, too. Other
        files, and names that begin with a dot, are ignored. None: the environment variable
        TOPOFL_DATA. Folders below are not searched, since nothing tells these images from others.
    size
        Height and width in pixels, one integer or two, to which other images are resized (bilinear,
        with antialiasing). None: all must have the size of the first.
    merge_val
        Whether to train on the validation images, too. None are then left for validation.
    mean, std
        Models receive ``(pixel / 255 - mean) / std``; one number each, or one for each of the three
        channels.
    cache
        Folder for the file of decoded pixels, created if it is missing; default: `root`. The file
        is rebuilt if it is damaged, or if an image was added, removed or changed according to
        names, sizes and modification times.

    Returns
    -------
    Dataset
        Inputs (N, 3, height, width), uint8: training images first, then those for validation and
        test. The classes are the folders in ``train``, numbered in the order of their names,
        which are the `class_names`; images of a class are in the order of their names. Gray images
        get three equal channels, and transparency is dropped. The dataset is named after the
        folder.

    Raises
    ------
    FileNotFoundError
        If there is no ``train`` folder.
    OSError
        If the cache cannot be written.
    TypeError
        If `size` is not made of integers.
    ValueError
        If a class has no training images, or is not in ``train``; if an image is damaged, neither
        PNG nor JPEG, not a regular file, or has 16 bits per channel, more than 64 megapixels or
        another size than the first (the message names it); if all images together do not fit into
        memory; if the path of the cache is taken by another file; for `mean` and `std` as
        :class:`Dataset`.

    See Also
    --------
    cinic10, tiny_imagenet : datasets that are published as folders of images.

    Notes
    -----
    Decoding takes the memory of all pixels plus one image.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> root = Path(tempfile.mkdtemp(), "pets")
    >>> for place in ("train/cat/a.png", "train/dog/b.jpg", "test/cat/c.png"):
    ...     (root / place).parent.mkdir(parents=True)
    ...     Image.new("L", (6, 4), 200).save(root / place)
    >>> image_folder(root)
    Dataset('pets', inputs=(3, 3, 4, 6), n_classes=2, train=2, val=0, test=1)
    """
    folder, _ = first_complete("train/<class>/", [(check_path("root", root), ["train"])])
    names = _folders_in(folder / "train")
    if not names:
        raise ValueError(
            f"`root` must hold a folder for each class in {folder / 'train'}, got none"
        )
    held = [name for name in ("val", "valid") if (folder / name).is_dir()]
    if len(held) > 1:
        raise ValueError(f"`root` must hold one of val and valid, got both in {folder}; rename one")
    parts = [
        _images_by_class(folder / split, names) for split in ("train", *(held or ["val"]), "test")
    ]
    splits = _split_indices(parts, merge_val)
    inputs, labels = _load_parts(folder, names, parts, size, cache)
    resized = "" if size is None else f"{inputs.shape[2]} x {inputs.shape[3]} pixels"
    name = with_notes(folder.resolve().name or "images", resized)
    return Dataset(
        inputs, labels, len(names), name, *splits, mean=mean, std=std, class_names=tuple(names)
    )


@reader
def cinic10(
    root: str | os.PathLike[str] | None = None,
    *,
    merge_val: bool = True,
    size: int | tuple[int, int] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Return CINIC-10 from its image files, normalized per channel, as in DPFL.

    Parameters
    ----------
    root
        Folder with ``train``, ``valid`` and ``test``, each with one folder for each of the ten
        classes, in it or at most three levels below; None: the environment variable TOPOFL_DATA. A
        subset of the images of every class will do. Nothing is downloaded.
    merge_val
        Whether to train on the validation images, too, as DPFL does. None are then left for
        validation.
    size, cache
        As in :func:`image_folder`.

    Returns
    -------
    Dataset
        Inputs (270000, 3, 32, 32), uint8: training images first, then those for validation and
        test. The classes are those of CIFAR-10, in the same order. If the size of the images, or
        their numbers for training, validation and test, are not the original ones, the name states
        them.

    Raises
    ------
    FileNotFoundError
        If one of the folders is missing.
    OSError
        If the cache cannot be written.
    TypeError
        If `size` is not made of integers.
    ValueError
        If there are other classes or one has no training images; if there are no test images; if an
        image is damaged or has another size than the first (the message names it); if the path of
        the cache is taken by another file.

    References
    ----------
    Darlow et al., "CINIC-10 is not ImageNet or CIFAR-10" (2018). The mean and the standard
    deviation are those of Kharrat, Canini and Horváth (2025), DPFL, and its code.

    Examples
    --------
    A subset with one image per class and split:

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for split in ("train", "valid", "test"):
    ...         for name in _CINIC10:  # airplane, automobile, ...
    ...             Path(folder, split, name).mkdir(parents=True)
    ...             Image.new("RGB", (32, 32)).save(Path(folder, split, name, "a.png"))
    ...     dataset = cinic10(folder)
    >>> dataset.name
    'cinic10 (10 classes, 10 + 10 + 10 images)'
    """
    inside = *(f"train/{name}" for name in _CINIC10), "valid", "test"
    places = [(check_path("root", root) / name, inside) for name in ("", "CINIC-10")]
    folder, _ = first_complete("the folders of CINIC-10", places)
    parts = [_images_by_class(folder / split, _CINIC10) for split in ("train", "valid", "test")]
    splits = _split_indices(parts, merge_val)
    if not len(splits[2]):
        raise ValueError(f"`root` must hold test images, got none in {folder / 'test'}")
    inputs, labels = _load_parts(folder, _CINIC10, parts, size, cache)
    name = _name_with_differences("cinic10", inputs, (32, 32), parts, [[9000] * 10] * 3)
    mean, std = (0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835)
    return Dataset(
        inputs, labels, 10, name, *splits, mean=mean, std=std, class_names=tuple(_CINIC10)
    )


@reader
def tiny_imagenet(
    root: str | os.PathLike[str] | None = None,
    *,
    val: int = 0,
    seed: Seed = 0,
    size: int | tuple[int, int] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    r"""Return Tiny ImageNet from its image files, with its validation set for tests, as in Dis-PFL.

    The published test images have no labels. Models receive (pixel / 255 - 0.5) / 0.5.

    Parameters
    ----------
    root
        Folder with ``wnids.txt``, ``train/<class>/images/``, ``val/images/`` and
        ``val/val_annotations.txt``, in it or at most three levels below; None: the environment
        variable TOPOFL_DATA. In a subset, classes without a folder in ``train`` and annotations
        without an image are ignored. Nothing is downloaded.
    val
        Number of training images held out for validation, chosen at random with class counts
        proportional to those of the test set.
    seed
        Seed of their choice.
    size, cache
        As in :func:`image_folder`.

    Returns
    -------
    Dataset
        Inputs (110000, 3, 64, 64), uint8; the training images come first. Classes are numbered in
        the order of ``wnids.txt``. If the size of the images, or the numbers of classes, training
        or test images, are not the original ones, the name states them.

    Raises
    ------
    FileNotFoundError
        If one of the files and folders is missing.
    OSError
        If the cache cannot be written.
    TypeError
        If `size` is not made of integers.
    ValueError
        If a class has no training images, or no class has a test image; if an image is damaged or
        has another size than the first (the message names it); if annotations are damaged, or an
        image has none; if the path of the cache is taken by another file; if `val` needs more
        images than a class has.

    References
    ----------
    Le and Yang, "Tiny ImageNet visual recognition challenge" (2015). Dai et al. (2022), DisPFL, and
    its code; also used by Liu et al. (2024), DFedPGP, in the appendix.

    Examples
    --------
    A subset with one class, with one image for training and one for testing:

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for inside in ("train/n01443537/images", "val/images"):
    ...         Path(folder, inside).mkdir(parents=True)
    ...         Image.new("RGB", (64, 64)).save(Path(folder, inside, "a.png"))
    ...     _ = Path(folder, "wnids.txt").write_text("n01443537")
    ...     _ = Path(folder, "val/val_annotations.txt").write_text("a.png\tn01443537")
    ...     dataset = tiny_imagenet(folder)
    >>> dataset.name, dataset.inputs.shape
    ('tiny_imagenet (1 classes, 1 + 1 images)', torch.Size([2, 3, 64, 64]))
    """
    inside = "wnids.txt", "train", "val/images", "val/val_annotations.txt"
    places = [(check_path("root", root) / name, inside) for name in ("", "tiny-imagenet-200")]
    folder, _ = first_complete("the files of Tiny ImageNet", places)
    names = _wnids(folder)
    parts = [_images_by_class(folder / "train", names, "images"), _annotated(folder / "val", names)]
    inputs, labels = _load_parts(folder, names, parts, size, cache)
    splits = validation(labels.numpy(), sum(map(len, parts[0])), val, seed)
    original = [[500] * 200, [50] * 200]
    name = _name_with_differences("tiny_imagenet", inputs, (64, 64), parts, original)
    return Dataset(inputs, labels, len(names), name, *splits, mean=0.5, std=0.5)


def _wnids(folder: Path) -> list[str]:
    """Return the classes in ``wnids.txt`` that have a training folder, in its order."""
    names = _text(folder / "wnids.txt").split()
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"`root` must list each class once in wnids.txt, got {twice[0]} twice in {folder}"
        )
    names = [name for name in names if os.path.isdir(folder / "train" / name)]
    if not names:
        raise ValueError(
            f"`root` must list classes in wnids.txt that have a folder in train, got none: {folder}"
        )
    return names


def _annotated(folder: Path, names: Sequence[str]) -> _Classes:
    """Return the validation images of each class."""
    place = folder / "val_annotations.txt"
    found = _images_in(folder / "images")
    classes = _annotations(place)
    unknown = [path for path in found if path.name not in classes]
    if unknown:
        raise ValueError(
            f"`root` must hold the class of every validation image, got none for {unknown[0]} "
            f"({len(unknown)} such images); copy {place} again, or remove the images"
        )
    images = [[path for path in found if classes[path.name] == name] for name in names]
    if not any(images):
        raise ValueError(
            f"`root` must hold validation images of its classes, got none in {folder / 'images'}"
        )
    return images


def _annotations(place: Path) -> dict[str, str]:
    """Return the class of each image in a tab-separated file of images and classes."""
    classes: dict[str, str] = {}
    for number, line in enumerate(_text(place).splitlines(), 1):
        image, *rest = line.split("\t")
        if not rest and line.strip():
            raise ValueError(
                f"`root` must hold one image and its class per line, got {line[:40]!r} in line "
                f"{number} of {place}"
            )
        if image in classes:
            raise ValueError(
                f"`root` must hold each image once, got {image} again in line {number} of {place}"
            )
        if rest:
            classes[image] = rest[0].strip()
    return classes


def _text(path: Path) -> str:
    return read_file(path).decode("utf-8", errors="replace")


def _name_with_differences(
    name: str,
    inputs: Tensor,
    original_sides: tuple[int, int],
    parts: Sequence[_Classes],
    original_sizes: list[list[int]],
) -> str:
    """Return a name that lists differences from the original sides and numbers of images."""
    sides = tuple(inputs.shape[2:])
    sizes = [[len(images) for images in part] for part in parts]
    total = " + ".join(str(sum(own)) for own in sizes)
    return with_notes(
        name,
        "" if sides == original_sides else f"{sides[0]} x {sides[1]} pixels",
        "" if sizes == original_sizes else f"{len(sizes[0])} classes, {total} images",
    )


def _split_indices(parts: Sequence[_Classes], merge_val: bool) -> list[np.ndarray]:
    """Return the indices of images for training, validation and test, loaded in this order."""
    n_train, n_val, n_test = (sum(map(len, part)) for part in parts)
    n_merged = n_val if check_switch("merge_val", merge_val, auto=False) else 0
    return np.split(np.arange(n_train + n_val + n_test), [n_train + n_merged, n_train + n_val])


def _height_and_width(size: int | Sequence[int] | None) -> tuple[int, int] | None:
    """Return (height, width) from an integer or a pair, or None for None."""
    if size is None:
        return None
    sides = size if isinstance(size, list | tuple) else (size, size)
    if len(sides) != 2:
        raise ValueError(
            f"`size` must be an integer, or height and width, got {len(sides)} numbers"
        )
    return check_int("size", sides[0], minimum=1), check_int("size", sides[1], minimum=1)


def _folders_in(folder: Path) -> list[str]:
    """Return the sorted names of the visible folders in a folder."""
    return sorted(
        path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def _images_in(folder: Path) -> list[Path]:
    """Return the sorted paths of the visible image files in a folder, if it exists."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(
        path for path in found if path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")
    )


def _images_by_class(split: Path, names: Sequence[str], inside: str = "") -> _Classes:
    """Return the images of each class in a split, or none if the split is missing."""
    unknown = sorted(set(_folders_in(split)) - set(names)) if split.is_dir() and not inside else []
    if unknown:
        raise ValueError(
            f"`root` must hold the classes of train only, got {unknown[0]!r} in {split} "
            f"({len(unknown)} such folders)"
        )
    return [_images_in(split / name / inside) for name in names]


_SUFFIXES = {".png", ".jpg", ".jpeg"}

_FORMATS = ("PNG", "JPEG")
"""Formats that are decoded. For others, such as EPS, Pillow may start external programs."""

_MAX_PIXELS = 2**26
"""Largest image that is decoded; 64 megapixels take 192 MiB. Small files can declare more."""

_MAGIC = b"topofl pixels\n"
_FORMAT = 1


def _load_parts(
    folder: Path,
    names: Sequence[str],
    parts: Sequence[_Classes],
    size: int | Sequence[int] | None,
    cache: str | os.PathLike[str] | None,
) -> tuple[Tensor, Tensor]:
    """Return the pixels of images, (N, 3, height, width) uint8, and their labels, part by part.

    Each class, a folder of `names`, must have an image in the first part, for training.
    """
    sides = _height_and_width(size)
    empty = [name for name, own in zip(names, parts[0], strict=True) if not own]
    if empty:
        raise ValueError(
            f"`root` must hold images of every class, got none ({', '.join(sorted(_SUFFIXES))}) of "
            f"{empty[0]!r} in {folder / 'train'} ({len(empty)} such classes); fill or remove it"
        )
    paths = [path for part in parts for images in part for path in images]
    labels = [label for part in parts for label, images in enumerate(part) for _ in images]
    listing = _listing_digest(folder, paths, sides)
    note = "" if sides is None else f"-{sides[0]}x{sides[1]}"
    place = folder / f"topofl{note}.pixels"
    if cache is not None:
        whole = folder.resolve()
        digest = hashlib.sha256(os.fsencode(whole)).hexdigest()[:8]
        place = check_path("cache", cache) / f"{whole.name}-{digest}{note}.pixels"
    pixels = _read_cache(place, len(paths), listing)
    if pixels is None:
        with _replacing(place) as stream:  # fails before hours of decoding, not after
            pixels = _decode(paths, sides)
            crc32 = _checksum(pixels, listing)
            header = {"listing": listing, "shape": list(pixels.shape), "crc32": crc32}
            stream.write(_MAGIC + json.dumps(header).encode() + b"\n")
            stream.write(pixels.data.cast("B"))
    return torch.from_numpy(pixels), torch.tensor(labels, device="cpu")


def _listing_digest(root: Path, paths: Sequence[Path], size: tuple[int, int] | None) -> str:
    """Return a digest of the names, sizes and modification times of files, and of `size`."""
    digest = hashlib.sha256(f"{_FORMAT} {size}\n".encode())
    depth = len(root.parts)
    for path in paths:
        with _naming(path):
            about = check_regular(path)
        name = os.fsencode("/".join(path.parts[depth:]))
        digest.update(name + f"\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _read_cache(place: Path, count: int, listing: str) -> np.ndarray | None:
    """Return the pixels in a cache, or None if it is missing, damaged or of other files."""
    if not place.exists():
        return None
    is_cache = place.is_file()
    if is_cache:
        with place.open("rb") as stream:
            is_cache = _MAGIC.startswith(stream.read(len(_MAGIC)))
    if not is_cache:
        raise ValueError(
            f"`cache` must be a folder in which {place.name} is free or a cache, got another file "
            f"of that name, {place}; move it away, or choose another folder"
        )
    with place.open("rb") as stream:
        stream.seek(len(_MAGIC))
        try:
            header = json.loads(stream.readline(1000))
            left = place.stat().st_size - stream.tell()
            shape = header["shape"]
            is_same = header["listing"] == listing and shape[:2] == [count, 3]
            if not is_same or math.prod(shape) != left:
                return None
            pixels = np.empty(shape, np.uint8)
            is_complete = stream.readinto(pixels.data.cast("B")) == left
            return pixels if is_complete and _checksum(pixels, listing) == header["crc32"] else None
        except (LookupError, RecursionError, TypeError, ValueError):  # the header is damaged
            return None


def _checksum(pixels: np.ndarray, listing: str) -> int:
    return zlib.crc32(pixels.data, zlib.crc32(f"{listing} {pixels.shape}".encode()))


@contextmanager
def _replacing(place: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `place` only once it is complete."""
    partial = place.with_name(f"{place.name}.{os.getpid()}.partial")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            yield stream
        os.replace(partial, place)
    except OSError as error:
        raise OSError(
            f"`cache` must be a writable folder with free space, cannot write {place}: "
            f"{error}; choose another folder"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()


def _decode(paths: Sequence[Path], size: tuple[int, int] | None) -> np.ndarray:
    """Return the decoded images, (N, 3, height, width)."""
    from PIL.Image import Resampling

    with _opened(paths[0]) as image:
        height, width = size or (image.height, image.width)
    pixels = _allocate(len(paths), height, width, "root" if size is None else "size")
    for place, path in zip(pixels, paths, strict=True):
        with _opened(path) as image:
            if size is None and (image.height, image.width) != (height, width):
                raise ValueError(
                    f"`root` must hold images of one size unless `size` is given, got "
                    f"{image.height} x {image.width} pixels in {path} and {height} x {width} in "
                    f"{paths[0]}; pass size=({height}, {width}), for example"
                )
            # converting a palette directly would warn about per-color transparency
            picture = (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")
        if picture.size != (width, height):
            picture = picture.resize((width, height), Resampling.BILINEAR)
        place[:] = np.asarray(picture).transpose(2, 0, 1)
    return pixels


def _allocate(count: int, height: int, width: int, name: str) -> np.ndarray:
    """Return an empty array for all images, or raise ``ValueError`` if memory is too small."""
    needed = count * 3 * height * width
    try:
        if needed > (total_memory() or math.inf):
            raise MemoryError("more than this machine has")
        return np.empty((count, 3, height, width), np.uint8)
    except (MemoryError, ValueError) as error:
        raise ValueError(
            f"`{name}` must allow all images to fit into memory, got {count:,} images of "
            f"{height} x {width} pixels, {needed / 2**30:.3g} GiB ({error}); pass a smaller `size`"
        ) from error


@contextmanager
def _opened(path: Path) -> Iterator["Image"]:
    """Open an image without decoding it, and check its header."""
    from PIL import Image

    with _naming(path), Image.open(path, formats=_FORMATS) as image:
        if image.mode == "F" or image.mode.startswith("I"):
            raise ValueError(f"mode {image.mode} has more than 8 bits per channel")
        if image.width * image.height > _MAX_PIXELS:
            raise ValueError(f"{image.height} x {image.width} pixels are more than {_MAX_PIXELS:,}")
        yield image


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Re-raise any error about an image as ``ValueError`` that names the file."""
    from PIL import UnidentifiedImageError

    try:
        yield
    except Exception as error:  # every format raises its own errors
        if str(error).startswith("`root` must"):  # it names the file already
            raise
        why = error
        if isinstance(error, UnidentifiedImageError):
            why = "neither PNG nor JPEG by its contents"
        raise ValueError(
            f"`root` must hold complete PNG or JPEG images with 8 bits per channel, cannot "
            f"read {path} ({why}); copy it again, convert it, or remove it"
        ) from error
