"""Safe reading of pickles as plain data, without importing or calling anything."""

import math
import pickletools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topofl._support.files import read_file

__all__ = ["LARGEST", "load_pickle"]

LARGEST = 2**28
"""Size in bytes of the largest file that is read; the largest of CIFAR has 155 million bytes."""

_FREE_OPCODES = 10_000
_BYTES_PER_OPCODE = 50
"""A file may have 10,000 opcodes, plus one per 50 bytes.

One-byte opcodes can create objects of a hundred bytes. An image of CIFAR has 3,072 bytes and about
five opcodes.
"""

_RECONSTRUCT = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
_NAMES = (*_RECONSTRUCT, "numpy.ndarray", "numpy.dtype")
_VALUES = (
    *(
        "BININT1",
        "BININT2",
        "BININT",
        "INT",
        "LONG",
        "LONG1",
        "LONG4",
        "SHORT_BINBYTES",
        "BINBYTES",
        "BINBYTES8",
    ),
    *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"),
)
_MARK = object()


class _ForbiddenError(Exception):
    """The pickle contains more than plain data."""


@dataclass(frozen=True)
class _Name:
    """Stand-in for a function or class of numpy in a pickle, or for the result of its call."""

    name: str
    called: bool = False


def load_pickle(path: Path) -> Any:
    """Return the plain data in a pickle: containers, text, bytes, integers, arrays of bytes.

    The pickle module is not used. The opcodes are interpreted here, and the only names allowed are
    those with which numpy writes arrays, which become inert stand-ins. Strings of Python 2 become
    bytes. Memory is at most four times the size of the file plus some megabytes; files with too
    many small objects are rejected.

    Raises
    ------
    ValueError
        If the file names anything else (the message says what; nothing is run), is damaged, is
        larger than any file of CIFAR, or has far more objects than labels and names of images.
    OSError
        If the file cannot be read.
    """
    content = read_file(path, largest=LARGEST)
    try:
        return _evaluate(content)
    except _ForbiddenError as error:
        raise ValueError(
            f"`root` must hold pickles of plain data, got {path}, which contains {error}; nothing "
            "in it was run"
        ) from error
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(
            f"`root` must hold complete pickles, got {path}, which is damaged or incomplete "
            f"({error}); copy it again"
        ) from error


def _evaluate(content: bytes) -> Any:
    """Return the object that the opcodes of a pickle build."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    most = _FREE_OPCODES + len(content) // _BYTES_PER_OPCODE
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content), start=1):
        if count > most:
            raise _ForbiddenError(f"more than {most:,} objects in {len(content):,} bytes")
        _step(opcode.name, argument, stack, memo)
    if len(stack) != 1:
        raise ValueError(f"{len(stack)} objects are left instead of one")
    return stack[0]


def _step(opcode: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    """Execute one opcode of a pickle on the stack and the memo."""
    if opcode in _VALUES:
        stack.append(argument)
        return
    match opcode:
        case "PROTO" | "FRAME" | "STOP":
            pass
        case "MEMOIZE" | "PUT" | "BINPUT" | "LONG_BINPUT":
            memo[len(memo) if opcode == "MEMOIZE" else argument] = stack[-1]
        case "GET" | "BINGET" | "LONG_BINGET":
            stack.append(memo[argument])
        case "BINSTRING" | "SHORT_BINSTRING":
            stack.append(argument.encode("latin1"))
        case "NONE" | "NEWTRUE" | "NEWFALSE":
            stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[opcode])
        case "MARK":
            stack.append(_MARK)
        case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
            stack.append({"D": dict, "L": list, "T": tuple}[opcode[6]]())
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            stack.append(tuple(_pop(stack, int(opcode[-1]))))
        case "TUPLE" | "LIST":
            stack.append({"TUPLE": tuple, "LIST": list}[opcode](_pop_to_mark(stack)))
        case "DICT":
            stack.append(_pairs(_pop_to_mark(stack)))
        case "APPEND" | "APPENDS":
            items = _pop(stack, 1) if opcode == "APPEND" else _pop_to_mark(stack)
            stack[-1].extend(items)
        case "SETITEM" | "SETITEMS":
            items = _pop(stack, 2) if opcode == "SETITEM" else _pop_to_mark(stack)
            stack[-1].update(_pairs(items))
        case "GLOBAL" | "STACK_GLOBAL":
            words = argument.split(" ", 1) if opcode == "GLOBAL" else _pop(stack, 2)
            stack.append(_named(".".join(words)))
        case "REDUCE" | "BUILD":
            apply = _called if opcode == "REDUCE" else _built
            stack.append(apply(*_pop(stack, 2)))
        case _:
            raise _ForbiddenError(
                f"the opcode {opcode}" + (f" ({argument})"[:100] if argument is not None else "")
            )


def _pop(stack: list[Any], count: int) -> list[Any]:
    """Remove and return the last `count` objects of the stack."""
    if len(stack) < count:
        raise IndexError("it takes more objects than it holds")
    items = stack[-count:]
    del stack[-count:]
    return items


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    """Remove the objects after the last mark, and the mark; return the objects."""
    place = next(i for i in range(len(stack) - 1, -2, -1) if i < 0 or stack[i] is _MARK)
    return _pop(stack, len(stack) - place)[1:]


def _pairs(items: list[Any]) -> dict[Any, Any]:
    """Return a dictionary from alternating keys and values."""
    # Hashing deeply nested tuples would overflow the stack.
    if not all(isinstance(key, str | bytes) for key in items[::2]):
        raise TypeError("a key is not text")
    return dict(zip(items[::2], items[1::2], strict=True))


def _named(name: str) -> _Name:
    """Return the stand-in of an allowed name, or raise."""
    if name not in _NAMES:
        raise _ForbiddenError(name[:100])
    return _Name(name)


def _called(function: Any, arguments: Any) -> _Name:
    """Return a stand-in for an empty array or for the dtype of bytes; other calls are forbidden."""
    match function, arguments:
        case _Name(name, called=False), (_Name("numpy.ndarray", called=False), _, _) if (
            name in _RECONSTRUCT
        ):
            return _Name("numpy.ndarray", called=True)
        case _Name("numpy.dtype", called=False), ("u1" | b"u1", *_):
            return _Name("numpy.dtype", called=True)
        case _Name("numpy.dtype", called=False), (code, *_):
            raise _ForbiddenError(f"an array of {_short(code)}, while only bytes (u1) are allowed")
    raise _ForbiddenError(f"a call of {_short(function)} with {_short(arguments)}")


def _built(target: Any, state: Any) -> Any:
    """Return the array that a state describes; byte order is irrelevant for bytes."""
    match target, state:
        case _Name("numpy.dtype", called=True), _:
            return target
        case (
            _Name("numpy.ndarray", called=True),
            (1, tuple(shape), _Name("numpy.dtype", called=True), bool(fortran), bytes(content)),
        ):
            return _array(shape, fortran, content)
    raise _ForbiddenError(f"a state of {_short(target)}")


def _array(shape: tuple[Any, ...], fortran: bool, content: bytes) -> np.ndarray:
    if not all(type(size) is int and size >= 0 for size in shape) or math.prod(shape) != len(
        content
    ):
        raise ValueError(f"an array of shape {_short(shape)} has {len(content)} bytes")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


def _short(value: Any) -> str:
    """Return a description of any value in at most 60 characters."""
    match value:
        case _Name(name):
            return name
        case tuple():
            items = ("(...)" if isinstance(item, tuple) else _short(item) for item in value[:5])
            return f"({', '.join(items)})"[:60]
        case int() | None:
            return hex(value)[:60] if isinstance(value, int) and abs(value) > 10**15 else str(value)
        case str() | bytes():
            return repr(value[:50])
    return type(value).__name__
