"""Image files in folders: listing and checking them, and decoding them once into a cache file."""

import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int, check_path
from topofl._support.files import check_regular
from topofl._support.machine import total_memory
from topofl.data.dataset import with_notes

if TYPE_CHECKING:
    from PIL.Image import Image


Classes = list[list[Path]]
"""Paths of the images of each class, in the order of the classes."""


def name_with_differences(
    name: str,
    sides: tuple[int, ...],
    original_sides: tuple[int, int],
    parts: Sequence[Classes],
    original_sizes: list[list[int]],
) -> str:
    """Return a name that lists differences from the original sides and numbers of images."""
    sizes = [[len(images) for images in part] for part in parts]
    total = " + ".join(str(sum(own)) for own in sizes)
    return with_notes(
        name,
        "" if sides == original_sides else f"{sides[0]} x {sides[1]} pixels",
        "" if sizes == original_sizes else f"{len(sizes[0])} classes, {total} images",
    )


def split_indices(parts: Sequence[Classes], merge_val: bool) -> list[np.ndarray]:
    """Return the indices of images for training, validation and test, loaded in this order."""
    n_train, n_val, n_test = (sum(map(len, part)) for part in parts)
    return np.split(
        np.arange(n_train + n_val + n_test), [n_train + n_val * merge_val, n_train + n_val]
    )


def _height_and_width(size: int | Sequence[int] | None) -> tuple[int, int] | None:
    """Return (height, width) from an integer or a pair, or None for None."""
    if size is None:
        return None
    sides = list(size) if isinstance(size, list | tuple) else [size, size]
    if len(sides) != 2:
        raise ValueError(
            f"`size` must be an integer, or height and width, got {len(sides)} numbers"
        )
    return check_int("size", sides[0], minimum=1), check_int("size", sides[1], minimum=1)


def folder_with(root: object, what: str, *inside: str, nested: str = "") -> Path:
    """Return `root`, or its folder `nested` if there is one, or raise if something is missing."""
    folder = check_path("root", root)
    if nested and (folder / nested).is_dir():
        folder /= nested
    missing = [name for name in inside if not (folder / name).exists()]
    if missing:
        raise FileNotFoundError(
            f"`root` must hold {what}, missing in {folder}: {', '.join(missing)}"
        )
    return folder


def folders_in(folder: Path) -> list[str]:
    """Return the sorted names of the visible folders in a folder."""
    return sorted(
        path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def images_in(folder: Path) -> list[Path]:
    """Return the sorted paths of the visible image files in a folder, if it exists."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".")]
    return [
        folder / name for name in sorted(names) if os.path.splitext(name)[1].lower() in SUFFIXES
    ]


def images_by_class(split: Path, names: Sequence[str], inside: str = "") -> Classes:
    """Return the images of each class in a split, or none if the split is missing."""
    unknown = sorted(set(folders_in(split)) - set(names)) if split.is_dir() and not inside else []
    if unknown:
        raise ValueError(
            f"`root` must hold the classes of train only, got {unknown[0]!r} in {split} "
            f"({len(unknown)} such folders)"
        )
    return [images_in(split / name / inside) for name in names]


SUFFIXES = {".png", ".jpg", ".jpeg"}

_FORMATS = ("PNG", "JPEG")
"""Formats that are decoded. For others, such as EPS, Pillow may start external programs."""

_MAX_PIXELS = 2**26
"""Largest image that is decoded; 64 megapixels take 192 MiB. Small files can declare more."""

_MAGIC = b"topofl pixels\n"
_FORMAT = 1


def load_parts(
    folder: Path,
    names: Sequence[str],
    parts: Sequence[Classes],
    size: int | Sequence[int] | None,
    cache: str | os.PathLike[str] | None,
) -> tuple[Tensor, Tensor]:
    """Return the pixels of images, (N, 3, height, width) uint8, and their labels.

    Parameters
    ----------
    folder
        Folder that contains all image files.
    names
        Folders of the classes in ``train``, of which each must have an image.
    parts
        Image files for training, then for other sets. They are returned in this order, each set
        sorted by class.
    size
        Side, or height and width, to resize images to; None: all must have the same size.
    cache
        Folder of the cache, which is read if it matches the files; None: `folder`.

    Raises
    ------
    OSError
        If the cache cannot be written.
    ValueError
        If a class has no training images; if an image cannot be read, is neither PNG nor JPEG, has
        more than 64 megapixels or another size than the first; if all images together do not fit
        into memory; if the path of the cache is taken by another file.
    """
    sides = _height_and_width(size)
    empty = [name for name, own in zip(names, parts[0], strict=True) if not own]
    if empty:
        raise ValueError(
            f"`root` must hold images of every class, got none ({', '.join(sorted(SUFFIXES))}) of "
            f"{empty[0]!r} in {folder / 'train'} ({len(empty)} such classes); remove its folder, "
            "or fill it"
        )
    paths = [path for part in parts for images in part for path in images]
    labels = [label for part in parts for label, images in enumerate(part) for _ in images]
    listing = _listing_digest(folder, paths, sides)
    place = _cache_path(folder, sides, cache)
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


def _cache_path(
    root: Path, size: tuple[int, int] | None, cache: str | os.PathLike[str] | None
) -> Path:
    """Return the path of the cache file, in `root` or in the folder `cache`."""
    note = "" if size is None else f"-{size[0]}x{size[1]}"
    if cache is None:
        return root / f"topofl{note}.pixels"
    root = root.resolve()
    return (
        check_path("cache", cache)
        / f"{root.name}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:8]}{note}.pixels"
    )


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

    height, width = size or _sides_of(paths[0])
    pixels = _allocate(len(paths), height, width, "root" if size is None else "size")
    for place, path in zip(pixels, paths, strict=True):
        image = _rgb(path, None if size else (height, width))
        if image is None:
            other = " x ".join(map(str, _sides_of(path)))
            raise ValueError(
                f"`root` must hold images of one size unless `size` is given, got {other} pixels "
                f"in {path} and {height} x {width} in {paths[0]}; pass size=({height}, {width}), "
                "for example"
            )
        if image.size != (width, height):
            image = image.resize((width, height), Resampling.BILINEAR)
        place[:] = np.asarray(image).transpose(2, 0, 1)
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
            f"{height} x {width} pixels, {needed / 2**30:.3g} GiB ({error}); pass a smaller "
            "`size`, or fewer images"
        ) from error


def _sides_of(path: Path) -> tuple[int, int]:
    """Return the height and width of an image from its header."""
    with _opened(path) as image:
        return image.height, image.width


def _rgb(path: Path, sides: tuple[int, int] | None) -> "Image | None":
    """Return an image as RGB, without transparency, or None if it does not have these `sides`.

    `sides` are (height, width); nothing is decoded if they differ.
    """
    with _opened(path) as image:
        if sides is not None and sides != (image.height, image.width):
            return None
        if image.mode == "P":  # converting directly would warn about per-color transparency
            return image.convert("RGBA").convert("RGB")
        return image.convert("RGB")


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
        why = (
            "neither PNG nor JPEG by its contents"
            if isinstance(error, UnidentifiedImageError)
            else error
        )
        raise ValueError(
            f"`root` must hold complete PNG or JPEG images with 8 bits per channel, cannot "
            f"read {path} ({why}); copy it again, convert it, or remove it"
        ) from error
