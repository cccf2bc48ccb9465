"""Digests of values and of the code of functions, which do not differ between processes."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np
from torch import Tensor, uint8


def digest_of(parts: Iterable[Any]) -> str:
    """Return a short digest of texts, arrays and tensors, copied only if not contiguous on CPU.

    Examples
    --------
    >>> digest_of(["a", "b"]) == digest_of(["ab"])
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor | np.ndarray):
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
            if isinstance(part, Tensor):
                part = part.detach().cpu().contiguous().view(-1).view(uint8).numpy()
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(f"{part}\0".encode())
    return f"#{digest.hexdigest()[:16]}"


def digest_of_code(*values: Any) -> str:
    """Return a digest of the users' functions in some values; empty if all are topofl's.

    Functions that these call by name are not included.

    Examples
    --------
    >>> import textwrap
    >>> len(digest_of_code(textwrap.dedent)), digest_of_code(plain)
    (17, '')
    """
    functions = list(_user_functions(values, set()))
    return digest_of(map(_describe_function, functions)) if functions else ""


def _user_functions(value: Any, seen: set[int]) -> Iterator[FunctionType]:
    """Yield users' functions in sequences, dataclasses and closures."""
    if id(value) in seen:
        return
    seen.add(id(value))
    inside: Iterable[Any] = ()
    if isinstance(value, FunctionType):
        if value.__module__.partition(".")[0] != "topofl":
            yield value
        inside = _closed_over(value)
    elif isinstance(value, partial):
        inside = (value.func, value.args, tuple(value.keywords.values()))
    elif isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, tuple | list):
        inside = value
    elif is_dataclass(value) and not isinstance(value, type):
        inside = [getattr(value, field.name) for field in fields(value)]
    for part in inside:
        yield from _user_functions(part, seen)


def _closed_over(function: FunctionType) -> list[Any]:
    """Return the values that a function closes over, without cells that are still empty."""
    return [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]


def _describe_function(function: FunctionType) -> str:
    """Return a user's function as text: name, code, and the constants it closes over."""
    values = (*_closed_over(function), *(function.__defaults__ or ()))
    constants = [value for value in values if isinstance(value, str | int | float | bool | None)]
    name, code = f"{function.__module__}:{function.__qualname__}", _describe_code(function.__code__)
    return f"{name} {code} {constants}"


def _describe_code(code: CodeType) -> str:
    """Return code as text: instructions, names, constants, and the functions defined in it."""
    constants = []
    for value in code.co_consts:
        if isinstance(value, frozenset):  # its order differs between processes
            value = sorted(map(repr, value))
        constants.append(_describe_code(value) if isinstance(value, CodeType) else repr(value))
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def plain(value: Any) -> str | int | float | None:
    """Return a number or text unchanged, and other values as text without memory addresses.

    Examples
    --------
    >>> plain(np.float64(0.5)), plain(("a", 1))
    (0.5, "('a', 1)")
    """
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, str | int | float | None) else without_addresses(str(value))


def without_addresses(text: str) -> str:
    """Return text without memory addresses, which differ between processes.

    Examples
    --------
    >>> without_addresses("<function f at 0x7f1c>")
    '<function f at 0x>'
    """
    return re.sub(r"0x[0-9a-fA-F]+", "0x", text)
