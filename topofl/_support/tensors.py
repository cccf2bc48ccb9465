"""Files of tensors in the format of safetensors, which cannot execute code when they are read.

They are written here, since the library neither computes checksums nor accepts tensors that share
memory: 8 bytes with the length of the header, the header in JSON, and the numbers.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

BLOCK = 2**26
"""Bytes of a tensor that are copied at a time, if it is on a device or not contiguous."""

_ORDER = "__tensors__"
"""Entry of the texts of a file: the names of all tensors in their order, and whether each is
complex, and stored as pairs of real numbers."""

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Names of dtypes in the format."""


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
    pairs = {
        name: torch.view_as_real(tensors[name].detach().resolve_conj())
        for name in order
        if order[name]
    }
    # numbers of many bytes come first, so that all tensors are aligned
    stored = sorted({**tensors, **pairs}.items(), key=lambda item: -item[1].element_size())
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
        for part in chain((len(text).to_bytes(8, "little"), text), numbers):
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
        for name in (name for name in order if order[name]):
            found[name] = torch.view_as_complex(found[name])
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
