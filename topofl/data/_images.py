"""Image files to pixels: decoded once, straight into one array, which is kept in a file."""

import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["SUFFIXES", "load_pixels"]

SUFFIXES = {".png", ".jpg", ".jpeg"}

_MAGIC = b"topofl pixels\n"
_FORMAT = 1


class _Header(NamedTuple):
    """What stands in the second line of a cache, before the pixels."""

    listing: str
    shape: list[int]
    crc32: int


def load_pixels(
    root: Path, paths: Sequence[Path], size: tuple[int, int] | None, cache: str | os.PathLike[str] | None
) -> Tensor:
    """Return (N, 3, height, width) bytes of the images at `paths`, from a cache if it is of just these files.

    Parameters
    ----------
    root
        Folder in which all of them lie.
    paths
        At least one.
    size
        (height, width) to stretch them to; None: all must have one size.
    cache
        Folder of the cache; None: `root`.

    Raises
    ------
    OSError
        If the cache cannot be written.
    ValueError
        If an image cannot be read, or has another size than the first; if another file lies where the cache should.
    """
    listing, place = _listing(root, paths, size), _place(root, size, cache)
    pixels = _read(place, len(paths), listing)
    if pixels is None:
        with _replacing(place) as stream:  # opened before hours of decoding, not after
            pixels = _decoded(paths, size)
            _write(stream, pixels, listing)
    return torch.from_numpy(pixels)


def _listing(root: Path, paths: Sequence[Path], size: tuple[int, int] | None) -> str:
    """Return a digest of the names, sizes and times of change of files, and of what is made of them."""
    digest = hashlib.sha256(f"{_FORMAT} {size}\n".encode())
    depth = len(root.parts)
    for path in paths:
        with _named(path):
            about = os.stat(path)
        name = os.fsencode("/".join(path.parts[depth:]))
        digest.update(name + f"\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _place(root: Path, size: tuple[int, int] | None, cache: str | os.PathLike[str] | None) -> Path:
    note = "" if size is None else f"-{size[0]}x{size[1]}"
    if cache is None:
        return root / f"topofl{note}.pixels"
    root = root.resolve()
    return Path(cache) / f"{root.name}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:8]}{note}.pixels"


def _read(place: Path, count: int, listing: str) -> np.ndarray | None:
    """Return the pixels in a cache; None if there is none, or one that is of other files, cut off or damaged."""
    if not place.exists():
        return None
    with place.open("rb") as stream:
        if not _MAGIC.startswith(stream.read(len(_MAGIC))):
            raise ValueError(
                f"`cache` must leave the name {place.name} to the pixels, got another file of that name, {place}; "
                "move it away, or choose another folder"
            )
        header = _parsed(stream.readline(1000))
        left = place.stat().st_size - stream.tell()
        if header is None or header.listing != listing or header.shape[:2] != [count, 3]:
            return None
        if math.prod(header.shape) != left:
            return None
        pixels = np.empty(header.shape, np.uint8)
        whole = stream.readinto(pixels.data.cast("B")) == left
    return pixels if whole and _checksum(pixels, listing) == header.crc32 else None


def _parsed(line: bytes) -> _Header | None:
    try:
        header = _Header(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    shape = header.shape
    is_shape = isinstance(shape, list) and len(shape) == 4 and all(type(side) is int and side > 0 for side in shape)
    return header if is_shape else None


def _checksum(pixels: np.ndarray, listing: str) -> int:
    return zlib.crc32(pixels.data, zlib.crc32(f"{listing} {pixels.shape}".encode()))


def _write(stream: IO[bytes], pixels: np.ndarray, listing: str) -> None:
    header = _Header(listing, list(pixels.shape), _checksum(pixels, listing))
    stream.write(_MAGIC + json.dumps(header._asdict()).encode() + b"\n")
    stream.write(pixels.data.cast("B"))


@contextmanager
def _replacing(place: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only when it is complete."""
    partial = place.with_name(f"{place.name}.{os.getpid()}.partial")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            yield stream
        os.replace(partial, place)
    except OSError as error:
        raise OSError(
            f"`cache` must be a folder with room that can be written to, cannot write {place}: {error}; choose another "
            "folder"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()


def _decoded(paths: Sequence[Path], size: tuple[int, int] | None) -> np.ndarray:
    """Return (N, 3, height, width): each image goes to its place in the array as soon as it is decoded."""
    first = _rgb(paths[0])
    height, width = size or (first.height, first.width)
    pixels = np.empty((len(paths), 3, height, width), np.uint8)
    for place, path in zip(pixels, paths, strict=True):
        image = _rgb(path)
        if image.size != (width, height):
            if size is None:
                raise ValueError(
                    f"`root` must hold images of one size unless `size` is given, got {image.height} x {image.width} "
                    f"pixels in {path} and {height} x {width} in {paths[0]}; pass size=({height}, {width}), for example"
                )
            image = _stretched(image, height, width)
        place[:] = np.asarray(image).transpose(2, 0, 1)
    return pixels


def _stretched(image: "Image", height: int, width: int) -> "Image":
    from PIL.Image import Resampling

    return image.resize((width, height), Resampling.BILINEAR)


def _rgb(path: Path) -> "Image":
    """Return an image in three channels: grey is repeated, palettes are looked up, transparency is dropped."""
    from PIL import Image

    with _named(path), Image.open(path) as image:
        if image.mode == "F" or image.mode.startswith("I"):
            raise ValueError(f"mode {image.mode} has more than 8 bits a channel")
        if image.mode == "P":  # which else warns of a transparency for each of its colors
            return image.convert("RGBA").convert("RGB")
        return image.convert("RGB")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn what goes wrong with an image into one kind of error, which names it."""
    try:
        yield
    except Exception as error:  # every format has its own
        raise ValueError(
            f"`root` must hold whole images with 8 bits a channel, cannot read {path} ({error}); copy it again, "
            "convert it, or remove it"
        ) from error
