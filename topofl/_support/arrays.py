"""Files of arrays and tensors, which cannot execute code when they are read; sparse tensors.

Headers of files of numpy are checked before any data is read or unpacked. Tensors are in the format
of safetensors, and written here, since the library neither computes checksums nor accepts tensors
that share memory: 8 bytes with the length of the header, the header in JSON, and the numbers.
"""

import hashlib
import itertools
import json
import math
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import scipy.sparse as sparse
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from topofl._support.machine import total_memory

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


Choose = Callable[[Mapping[str, Header]], Sequence[str]]
"""Function that takes headers by name, and returns the names of the arrays to read, or raises."""


def read_arrays(
    path: Path, wanted: Choose, *, texts: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """Return the selected arrays of an ``.npz`` file.

    All headers are read and passed to `wanted` before any array is decompressed. Pickled objects
    are never loaded.

    Parameters
    ----------
    path
        A file written by ``numpy.savez`` or ``numpy.savez_compressed``.
    wanted
        Chooses the arrays to read by their headers.
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
    if (size := info.file_size - start) != header.nbytes:
        raise ValueError(f"{info.filename} has {size} bytes of entries, not {header.nbytes}")
    return header


def _read_header(file: IO[bytes], kinds: str = "biuf") -> Header:
    npy, version = np.lib.format, np.lib.format.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
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
    if size > memory / 2:
        raise ValueError(
            f"{path} claims to hold {size} bytes, more than half of the {memory} of this machine's "
            "memory"
        )


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False, max_header_size=_HEADER_LIMIT)


BLOCK = 2**26
"""Bytes of a tensor that are copied at a time, if it is on a device or not contiguous."""

_ORDER = "__tensors__"
"""Entry of the texts of a file: the names of all tensors in their order, and whether each is
complex, and stored as pairs of real numbers."""

_NAMES = {torch.bfloat16: "BF16", torch.bool: "BOOL", torch.int8: "I8", torch.uint8: "U8"}
"""Names of dtypes in the format."""
_NAMES |= {torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"}
for _kind, _bits in itertools.product(("float", "int", "uint"), (64, 32, 16)):
    _NAMES[getattr(torch, f"{_kind}{_bits}")] = f"{_kind[0].upper()}{_bits}"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> str:
    """Write tensors and texts to a file, synced to disk, and return its SHA-256.

    Tensors on the CPU are written without a copy if they are contiguous.

    Raises
    ------
    OSError
        If it cannot be written, for example because the disk is full.
    TypeError
        If a tensor has a dtype that the format lacks.
    """
    order = {name: tensor.is_complex() for name, tensor in tensors.items()}
    real = {
        name: torch.view_as_real(x.detach().resolve_conj()) if x.is_complex() else x
        for name, x in tensors.items()
    }
    # numbers of many bytes come first, so that all tensors are aligned
    stored = sorted(real.items(), key=lambda item: -item[1].element_size())
    header: dict[str, object] = {"__metadata__": {**texts, _ORDER: json.dumps(order)}}
    end = 0
    for name, tensor in stored:
        if tensor.dtype not in _NAMES or tensor.layout != torch.strided:
            raise TypeError(f"{name} must be a dense tensor of numbers, got {tensor.dtype}")
        start, end = end, end + tensor.numel() * tensor.element_size()
        shape, offsets = list(tensor.shape), [start, end]
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with path.open("wb") as stream:
        numbers = (part for _, tensor in stored for part in _bytes_of(tensor))
        for part in itertools.chain((len(text).to_bytes(8, "little"), text), numbers):
            digest.update(part)
            stream.write(part)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


def _bytes_of(tensor: Tensor) -> Iterator[memoryview]:
    """Yield the bytes of a tensor, in blocks of rows."""
    if not tensor.numel():
        return
    rows = tensor.detach().reshape(1) if tensor.dim() == 0 else tensor.detach()
    size = rows[0].numel() * rows.element_size()
    for block in rows.split(max(1, BLOCK // size)):
        yield block.cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors and texts of a file; the tensors are memory-mapped, and read on access.

    Raises
    ------
    OSError
        If there is no such file, or the system cannot read it, as with too many open files.
    ValueError
        If it is cut off or not of this format.
    """
    path.open("rb").close()  # safetensors takes all errors of the system for a missing file
    try:
        with _raising_errors_of_maps(path), safe_open(path, "pt", device="cpu") as file:
            texts = dict(file.metadata() or {})
            order = json.loads(texts.pop(_ORDER))
            found = {name: file.get_tensor(name) for name in order}
        found |= {name: torch.view_as_complex(found[name]) for name in order if order[name]}
    except (SafetensorError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path.name} is not a file of tensors: {error}") from error
    return found, texts


def mapped(path: Path) -> Tensor:
    """Return the bytes of a file, which are read on access; no descriptor of it stays open."""
    size = path.stat().st_size
    with _raising_errors_of_maps(path):
        return torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)


@contextmanager
def _raising_errors_of_maps(path: Path) -> Iterator[None]:
    """Raise the ``OSError`` of a file that torch could not open or map, of which it has the text.

    Examples
    --------
    >>> with _raising_errors_of_maps(Path("a.bin")):
    ...     raise RuntimeError("unable to open file <a.bin> in read-only mode: No memory (12)")
    Traceback (most recent call last):
    OSError: [Errno 12] Cannot allocate memory: 'a.bin'
    """
    try:
        yield
    except RuntimeError as error:
        if found := re.match(r"unable to .* \((\d+)\)$", str(error).partition("\n")[0]):
            number = int(found[1])
            raise OSError(number, os.strerror(number), str(path)) from error
        raise


def flattened(state: Mapping[str, Any], path: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of nested dictionaries by their paths, and the rest as JSON values.

    Examples
    --------
    >>> flattened({"a": {"x": torch.ones(1), "y": 2}})
    ({'a/x': tensor([1.])}, {'a': {'y': 2}})
    """
    tensors, values = dict[str, Tensor](), dict[str, Any]()
    for key, value in state.items():
        name = f"{path}{quote(key, safe='')}"
        if isinstance(value, Tensor):
            tensors[name] = value
        elif isinstance(value, Mapping):
            own, values[key] = flattened(value, f"{name}/")
            tensors |= own
        else:
            values[key] = value
    return tensors, values


def nested(values: dict[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested dictionaries, to which tensors are added by the paths of :func:`flattened`.

    Examples
    --------
    >>> nested({"a": {"y": 2}}, {"a/x": torch.ones(1)})
    {'a': {'y': 2, 'x': tensor([1.])}}
    """
    for name, tensor in tensors.items():
        *above, last = map(unquote, name.split("/"))
        place = values
        for key in above:
            place = place[key]
        place[last] = tensor
    return values


def sparse_tensor(matrix: sparse.csr_array, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a sparse matrix as a tensor on a device.

    Examples
    --------
    >>> identity = sparse_tensor(sparse.eye_array(2).tocsr(), torch.device("cpu"), torch.float32)
    >>> identity @ torch.ones(2)
    tensor([1., 1.])
    """
    parts = (torch.from_numpy(part.copy()) for part in (matrix.indptr, matrix.indices, matrix.data))
    with _CREATION_LOCK:
        _drop_csr_warning()
        csr = torch.sparse_csr_tensor(
            *parts, size=matrix.shape, dtype=dtype, device="cpu", check_invariants=True
        )
    return csr.to(device)  # checked on the CPU, since a check on a GPU would wait for it


_CREATION_LOCK = Lock()
"""Held while torch checks the invariants of a sparse tensor, a setting of the whole process."""


@cache
def _drop_csr_warning() -> None:
    """Trigger and ignore torch's warning that CSR tensors are in beta, given once per process.

    Done only once, since ``warnings.catch_warnings`` is not thread-safe.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        torch.zeros(1, 1, dtype=torch.float32, device="cpu").to_sparse_csr()
