"""Reader of IDX files, the format of MNIST, that does not trust their headers."""

import gzip
import hashlib
import math
import os
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from topofl._support.check import check_path
from topofl._support.machine import total_memory
from topofl._support.public import public

__all__ = ["read_idx"]


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
    with path.open("rb") as file, _uncompressed(file) as content:
        try:
            return _read_array(path, content, md5)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"`path` must be a whole gzip file, got {path}, which is damaged or incomplete "
                f"({error}); copy it again"
            ) from error
        except MemoryError as error:
            raise ValueError(f"`path` must fit into memory, got {path}, which does not") from error


def _uncompressed(file: BinaryIO) -> BinaryIO:
    """Return a stream of the uncompressed contents."""
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_packed else file


def _read_array(path: Path, content: BinaryIO, md5: str | None) -> np.ndarray:
    """Return the array in an open file, reading at most one byte past the size in its header."""
    start = content.read(4)
    if (
        len(start) < 4
        or start[:2] != b"\0\0"
        or start[2] not in _IDX_TYPES
        or not 1 <= start[3] <= 32
    ):
        raise ValueError(
            f"`path` must be an IDX file, got {path}, which starts with the bytes "
            f"{start.hex(' ')!r}"
        )
    dtype = np.dtype(_IDX_TYPES[start[2]])
    sizes = content.read(4 * start[3])
    header = start + sizes
    if len(sizes) < 4 * start[3]:
        raise ValueError(
            f"`path` must have a header of {4 + 4 * start[3]} bytes, got {len(header)} bytes in "
            f"{path}; copy it again"
        )
    shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
    if 0 in shape:
        raise ValueError(f"`path` must hold at least one number, got shape {shape} in {path}")
    if (n_bytes := dtype.itemsize * math.prod(shape)) > (total_memory() or math.inf):
        raise ValueError(
            f"`path` must fit into memory, got shape {shape} of {dtype}, {n_bytes / 2**30:.3g} "
            f"GiB, in {path}"
        )
    numbers = _read_numbers(path, content, shape, n_bytes, len(header))
    _check_md5(path, md5, header, numbers)
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


def _check_md5(path: Path, md5: str | None, *parts: bytes) -> None:
    if md5 is None:
        return
    digest = hashlib.md5(usedforsecurity=False)
    for part in parts:
        digest.update(part)
    if digest.hexdigest() != md5.lower():
        raise ValueError(
            f"`path` must have the checksum (`md5`) {md5}, got {digest.hexdigest()} for {path}; "
            "this is another file"
        )
