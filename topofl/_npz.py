"""Archives of numpy arrays: nothing is unpacked before what all their headers promise together is known."""

import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from topofl._machine import total_memory

__all__ = ["read_arrays"]


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays in an .npz file; pickled objects are refused, and nothing in the file is run.

    Raises
    ------
    ValueError
        If a member is no array of plain numbers, if its header does not promise as many bytes as the archive has for
        it, or if all of them together are larger than the memory of this machine.
    Exception
        Whatever zipfile and zlib raise for damaged archives.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        promised = sum(_checked_size(archive, member) for member in members)
        if promised > (total_memory() or math.inf):
            raise ValueError(f"its arrays take {promised / 2**30:.3g} GiB, more than this machine has")
        return {member.filename.removesuffix(".npy"): _read(archive, member) for member in members}


def _checked_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Return the bytes of an array, of which only the header is unpacked."""
    with archive.open(member) as stream:
        shape, dtype = _header(stream)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or stream.tell() + size != member.file_size:
            raise ValueError(
                f"{member.filename} must be an array of plain numbers, shape {shape} of {dtype} does not fit its "
                f"{member.file_size} bytes"
            )
    return size


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of numpy's format holds more than numbers")
    shape, _, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(stream)
    return shape, dtype


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as stream:
        return npy.read_array(stream, allow_pickle=False)
