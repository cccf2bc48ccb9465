"""Loading arrays from untrusted files: headers are checked before any data is read or unpacked."""

import math
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from topofl._support.machine import total_memory

__all__ = ["Header", "read_array", "read_arrays"]

_DEFLATE_LIMIT = 1032
"""Largest compression ratio of deflate."""

_HEADER_LIMIT = 10_000
"""Largest header that is parsed, in bytes."""


class Header(NamedTuple):
    """Shape and dtype of an array, read from its header."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return self.size * self.dtype.itemsize


def read_arrays(
    path: Path,
    wanted: Callable[[Mapping[str, Header]], Sequence[str]],
    *,
    texts: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """Return the selected arrays of an ``.npz`` file.

    All headers are read and passed to `wanted` before any array is decompressed. Pickled objects
    are never loaded.

    Parameters
    ----------
    path
        A file written by ``numpy.savez`` or ``numpy.savez_compressed``.
    wanted
        Function that takes the headers by name and returns the names of the arrays to read, or
        raises an error.
    texts
        Names of the arrays that may hold text; all others must hold numbers.

    Raises
    ------
    ValueError
        If the file is damaged, uses another compression, or declares arrays larger than its bytes
        can hold or than half of this machine's memory. Errors of `wanted` are passed on.
    """
    with path.open("rb") as stream:
        try:
            archive = zipfile.ZipFile(stream)
            found = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            headers = {
                name: _checked_header(archive, info, name in texts) for name, info in found.items()
            }
        except Exception as error:  # zipfile, zlib and numpy raise errors of many types
            raise _damaged(path, error) from error
        names = wanted(headers)
        _check_size(path, sum(headers[name].nbytes for name in names))
        try:
            return {name: _read_member(archive, found[name]) for name in names}
        except Exception as error:
            raise _damaged(path, error) from error


def read_array(path: Path) -> np.ndarray:
    """Return the array of numbers in an ``.npy`` file, after checking its header.

    Raises
    ------
    ValueError
        If the file is damaged, does not hold numbers, or its size does not match its header.
    """
    with path.open("rb") as stream:
        header = _read_header(stream)
        start = stream.tell()
        size = stream.seek(0, 2)
        if start + header.nbytes != size:
            raise ValueError(f"it has {size - start} bytes of entries, not {header.nbytes}")
        _check_size(path, header.nbytes)
        stream.seek(0)
        return np.lib.format.read_array(stream, allow_pickle=False, max_header_size=_HEADER_LIMIT)


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is half-written or damaged: {error}; run it again")


def _checked_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, is_text: bool) -> Header:
    with archive.open(info) as file:
        header = _read_header(file, "SU" if is_text else "biuf")
        start = file.tell()
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.file_size > (
        _DEFLATE_LIMIT * info.compress_size
    ):
        raise ValueError(f"{info.filename} is compressed more than deflate can")
    if start + header.nbytes != info.file_size:
        raise ValueError(
            f"{info.filename} has {info.file_size - start} bytes of entries, not {header.nbytes}"
        )
    return header


def _read_header(file: IO[bytes], kinds: str = "biuf") -> Header:
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"format {version} of arrays is not known")
    shape, _, dtype = readers[version](file, max_header_size=_HEADER_LIMIT)
    if dtype.kind not in kinds or any(length < 0 for length in shape):
        raise ValueError(
            f"shape {shape} and dtype {dtype} are not those of "
            f"{'text' if kinds == 'SU' else 'numbers'}"
        )
    return Header(shape, dtype)


def _check_size(path: Path, size: int) -> None:
    memory = total_memory()
    if memory and size > memory / 2:
        raise ValueError(
            f"{path} claims to hold {size} bytes, more than half of the {memory} of this machine's "
            "memory"
        )


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False, max_header_size=_HEADER_LIMIT)
