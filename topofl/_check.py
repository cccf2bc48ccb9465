"""Checks of arguments: the only home of the wording of our errors (argument, requirement, value, remedy)."""

import difflib
import math
import os
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sparse

__all__ = [
    "array_of",
    "check_choice",
    "check_counts",
    "check_entries",
    "check_finite",
    "check_fraction",
    "check_indices",
    "check_int",
    "check_int_or_auto",
    "check_labels",
    "check_nonnegative",
    "check_number",
    "check_path",
    "check_positive",
    "check_probability",
    "check_sequence",
    "check_shares",
    "check_switch",
    "did_you_mean",
    "shown",
]


def check_int(
    name: str,
    value: object,
    *,
    minimum: int,
    maximum: int | None = None,
    maximum_name: str = "",
    remedy: str = "",
    kind: str = "an integer",
) -> int:
    """Return `value` as an int in ``[minimum, maximum]``, or raise; with a `maximum_name` it reads "and n=100".

    `kind` is what it is asked to be.

    Raises
    ------
    TypeError
        If `value` is not an integer (booleans are not).
    ValueError
        If it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be {kind}, got {shown(value)} ({type(value).__name__})")
    number = int(value)
    if number < minimum or (maximum is not None and number > maximum):
        limit = f"{maximum_name}={maximum}" if maximum_name else f"{maximum}"
        wanted = f"at least {minimum}" if maximum is None else f"between {minimum} and {limit}"
        raise ValueError(f"`{name}` must be {wanted}, got {shown(number)}" + (f"; {remedy}" if remedy else ""))
    return number


def check_int_or_auto(name: str, value: object, *, minimum: int) -> int | str:
    """Return `value` if it is ``"auto"`` or an integer of at least `minimum`, or raise."""
    if isinstance(value, str) and value == "auto":
        return value
    return check_int(name, value, minimum=minimum, kind='an integer or "auto"')


def check_switch(name: str, value: object, *, auto: bool = True) -> bool | str:
    """Return `value` if it is True, False or, where there is one, ``"auto"``, or raise ``ValueError``."""
    if isinstance(value, bool) or (auto and isinstance(value, str) and value == "auto"):
        return value
    known = "True, False or 'auto'" if auto else "True or False"
    raise ValueError(f"`{name}` must be {known}, got {shown(value)}")


def _check_real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, got {shown(value)} ({type(value).__name__})")
    try:
        return float(value)
    except OverflowError:  # of integers beyond 1e308
        return float("inf") if value > 0 else float("-inf")


def check_number(name: str, value: object) -> float:
    """Return `value` as a finite float, or raise ``TypeError`` or ``ValueError``."""
    number = _check_real(name, value)
    if not np.isfinite(number):
        raise ValueError(f"`{name}` must be finite, got {number:g}")
    return number


def check_positive(name: str, value: object, *, remedy: str = "") -> float:
    """Return `value` as a finite float above 0, or raise ``TypeError`` or ``ValueError``."""
    number = _check_real(name, value)
    if not (np.isfinite(number) and number > 0):
        raise ValueError(
            f"`{name}` must be a finite number above 0, got {number:g}" + (f"; {remedy}" if remedy else "")
        )
    return number


def check_nonnegative(name: str, value: object) -> float:
    """Return `value` as a finite float of at least 0, or raise ``TypeError`` or ``ValueError``."""
    number = _check_real(name, value)
    if not (np.isfinite(number) and number >= 0):
        raise ValueError(f"`{name}` must be a finite number of at least 0, got {number:g}")
    return number


def check_fraction(name: str, value: object) -> float:
    """Return `value` as a float in ``[0, 1)``, or raise ``TypeError`` or ``ValueError``."""
    number = _check_real(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"`{name}` must be in [0, 1), got {number:g}")
    return number


def check_probability(name: str, value: object) -> float:
    """Return `value` as a float in ``[0, 1]``, or raise ``TypeError`` or ``ValueError``."""
    number = _check_real(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"`{name}` must be between 0 and 1, got {number:g}")
    return number


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`, or raise ``ValueError`` with the nearest one."""
    options = list(choices)
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(f"`{name}` must be one of {listed}, got {shown(value)}{did_you_mean(value, options)}")
    return value


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known word nearest to `word`, or an empty string."""
    if not isinstance(word, str):
        return ""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_finite(name: str, array: np.ndarray) -> np.ndarray:
    """Return `array` if all its entries are finite, or raise ``ValueError`` with the place of the first bad one."""
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        place = tuple(int(i) for i in bad[0])
        raise ValueError(f"`{name}` must be finite, got {array[place]} at {place} ({len(bad)} such entries)")
    return array


def check_entries(name: str, matrix: sparse.csr_array) -> None:
    """Raise ``ValueError``, with the place of the first bad one, unless all stored entries are finite and >= 0."""
    for bad, wanted in ((~np.isfinite(matrix.data), "be finite"), (matrix.data < 0, "have no negative entry")):
        places = np.flatnonzero(bad)
        if len(places):
            row = int(np.searchsorted(matrix.indptr, places[0], side="right")) - 1
            raise ValueError(
                f"`{name}` must {wanted}, got {matrix.data[places[0]]:g} at ({row}, {matrix.indices[places[0]]}) "
                f"({len(places)} such entries)"
            )


def check_counts(label_counts: Any) -> np.ndarray:
    """Return (n, classes) int64 counts, from an array or from the ``label_counts`` of a Partition, or raise.

    Rows may be all 0: whether a node may be without data is for the caller to say.

    Raises
    ------
    TypeError
        If the counts are not integers.
    ValueError
        If the shape is not (n, classes), or a count is negative or not finite.
    """
    counts = _as_matrix("label_counts", getattr(label_counts, "label_counts", label_counts))
    if np.issubdtype(counts.dtype, np.floating):
        check_finite("label_counts", counts)
    if not np.issubdtype(counts.dtype, np.integer):
        remedy = "; convert them with .astype(int)" if counts.dtype.kind in "bf" else ""
        raise TypeError(f"`label_counts` must be integers, got dtype {counts.dtype}{remedy}")
    if counts.min() < 0:
        node, label = np.unravel_index(counts.argmin(), counts.shape)
        raise ValueError(f"`label_counts` must be non-negative, got {counts.min()} for node {node}, class {label}")
    return counts.astype(np.int64)


def check_shares(label_shares: Any) -> np.ndarray:
    """Return (n, classes) finite float64 shares of classes, which noise may have made negative, or raise.

    Raises
    ------
    TypeError
        If they are not numbers.
    ValueError
        If the shape is not (n, classes) or an entry is not finite.
    """
    shares = _as_matrix("label_shares", label_shares)
    if not np.issubdtype(shares.dtype, np.floating) and not np.issubdtype(shares.dtype, np.integer):
        raise TypeError(f"`label_shares` must be real numbers, got dtype {shares.dtype}")
    return check_finite("label_shares", shares.astype(np.float64))


def _as_matrix(name: str, values: Any) -> np.ndarray:
    matrix = array_of(name, values)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"`{name}` must have shape (n, classes), got {matrix.shape}")
    return matrix


def check_labels(name: str, labels: object) -> np.ndarray:
    """Return class `labels` as an int64 vector of non-negative integers, or raise.

    Raises
    ------
    TypeError
        If they are not integers (floats are refused even when whole, since that hides mistakes).
    ValueError
        If they are not one-dimensional, empty, or negative.
    """
    array = array_of(name, labels)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"`{name}` must be a non-empty vector of class labels, got shape {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"`{name}` must be integers, got dtype {array.dtype}; {_to_classes(array.dtype)}")
    if array.min() < 0:
        raise ValueError(f"`{name}` must be non-negative, got {array.min()} at index {int(array.argmin())}")
    return array.astype(np.int64)


def _to_classes(dtype: np.dtype) -> str:
    """Return how labels of a dtype become classes: text, for example, has no numbers to convert."""
    if dtype.kind in "bf":
        return "if they are whole, convert them with .astype(int)"
    return "number the classes by np.unique(labels, return_inverse=True)[1]"


def check_indices(name: str, indices: object, size: int) -> np.ndarray:
    """Return `indices` as a read-only int64 vector of places ``0..size - 1`` (a copy; it may be empty), or raise.

    Raises
    ------
    TypeError
        If they are not integers (a mask is not: use ``numpy.flatnonzero``).
    ValueError
        If they are not one-dimensional or leave the range.
    """
    array = array_of(name, indices)
    if array.ndim != 1:
        raise ValueError(f"`{name}` must be a vector of indices, got shape {array.shape}")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise TypeError(
            f"`{name}` must be integer indices, got dtype {array.dtype}; for a mask use np.flatnonzero(mask)"
        )
    bad = np.flatnonzero((array < 0) | (array >= size))
    if len(bad):
        raise ValueError(f"`{name}` must be in 0..{size - 1}, got {array[bad[0]]} at position {bad[0]}")
    frozen = array.astype(np.int64)
    frozen.setflags(write=False)
    return frozen


def check_path(name: str, value: object, kind: str = "folder") -> Path:
    """Return `value` as the path of a file or folder (`kind`), or raise.

    Raises
    ------
    TypeError
        If it is neither text nor a path.
    ValueError
        If it is empty, or has a null character, which no path can have.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        got = f"{shown(value)} ({type(value).__name__})"
        raise TypeError(f"`{name}` must be the path of a {kind}, as text or a pathlib.Path, got {got}")
    if not text or "\0" in text:
        got = "an empty text; the current folder is '.'" if not text else f"{text!r:.80} with a null character"
        raise ValueError(f"`{name}` must be the path of a {kind}, got {got}")
    return Path(text)


def shown(value: object, length: int = 100) -> str:
    """Return a value as one line of text for a message: arrays are cut, long integers told by their magnitude.

    Examples
    --------
    >>> shown(np.eye(2)), shown(10**50), shown("ring")
    ('array([[1., 0.], [0., 1.]])', 'about 10^50', "'ring'")
    """
    if isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) >= 10**40:
        return f"about {'-' if value < 0 else ''}10^{int(math.log10(abs(int(value))))}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of classes that are not ours, or that hold such integers
        return f"something of type {type(value).__name__}"
    return text if len(text) <= length else f"{text[: length - 3]}..."


def check_sequence(name: str, value: Any, of: str = "") -> list[Any]:
    """Return the items of a sequence, or raise ``TypeError``; text is no sequence, `of` says what it should hold."""
    try:
        if not isinstance(value, str | bytes | Mapping):
            return list(value)
    except (TypeError, RuntimeError, NotImplementedError):  # of arrays and tensors without dimensions
        pass
    wanted = f"a sequence of {of}" if of else "a sequence"
    raise TypeError(f"`{name}` must be {wanted}, got {shown(value)} ({type(value).__name__})")


def array_of(name: str, values: Any) -> np.ndarray:
    """Return ``numpy.asarray(values)``, also of tensors that numpy does not know, or raise ``TypeError``."""
    try:
        if hasattr(values, "detach"):  # a tensor of torch, which this module does not need
            values = values.detach().cpu()
            values = values.double() if values.is_floating_point() else values
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError, NotImplementedError, OverflowError) as error:
        got = str(error).partition("\n")[0]
        raise TypeError(f"`{name}` must be an array of numbers, got {type(values).__name__}: {got}") from error
