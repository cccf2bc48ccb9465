"""Checks of arguments, with errors that state argument, requirement, value and remedy."""

import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from topofl._support.text import did_you_mean, shown

T = TypeVar("T")

TOLERANCE = 1e-9
"""Largest rounding error in sums of weights, and between the two directions of an edge."""

CLASSES_LIMIT = 1_000_000
"""Largest number of classes; counts of a million classes take 8 MB per node."""

NODES_LIMIT = 10_000_000
"""Largest number of nodes of a graph; generating a ring of this size takes about a gigabyte."""


EDGES_LIMIT = 50_000_000
"""Largest number of edges of a generated graph; a complete graph with 10,000 nodes takes GBs."""

_INT64_MAX = 2**63 - 1
"""Largest integer in an int64 array."""


_SEED_MAX = 2**256 - 1
"""Largest seed; numpy's own seeds have 128 bits."""


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
    """Return `value` as an int in ``[minimum, maximum]``, or raise.

    `kind` names the required type in messages. If `maximum` is None, it is the largest int64, or
    for seeds ``2**256 - 1``.

    Raises
    ------
    TypeError
        If `value` is not an integer, or is a boolean.
    ValueError
        If it is out of range.

    Examples
    --------
    >>> check_int("n", 3, minimum=1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be {kind}, got {shown(value)} ({type(value).__name__})")
    number = int(value)
    largest = _SEED_MAX if "seed" in name else _INT64_MAX
    if maximum is None and number > largest:
        maximum = largest
    if number < minimum or (maximum is not None and number > maximum):
        limit = f"{maximum_name}={maximum}" if maximum_name else shown(maximum)
        wanted = f"at least {minimum}" if maximum is None else f"between {minimum} and {limit}"
        text = f"`{name}` must be {wanted}, got {shown(number)}"
        raise ValueError(f"{text}; {remedy}" if remedy else text)
    return number


def check_nodes(n: object, *, minimum: int = 1, name: str = "n") -> int:
    """Return `n` as a number of nodes from `minimum` to :data:`NODES_LIMIT`, or raise."""
    if isinstance(n, Integral) and not isinstance(n, bool) and int(n) > NODES_LIMIT:
        must = f"`{name}` must be at most {NODES_LIMIT:,}, since larger graphs take gigabytes"
        raise ValueError(f"{must}, got {shown(int(n))}")
    return check_int(name, n, minimum=minimum)


def check_edges(count: float, *arguments: str, per: str = "") -> None:
    """Raise ``ValueError`` if a graph has more edges than :data:`EDGES_LIMIT`.

    Parameters
    ----------
    count
        Number of edges, exact or estimated.
    arguments
        Names of the arguments that determine it; the last is the one to lower.
    per
        For graphs that change, what `count` refers to: ``"round"`` or ``"period"``.
    """
    if count > EDGES_LIMIT:
        listed = " and ".join(f"`{name}`" for name in arguments)
        raise ValueError(
            f"{listed} must give at most {EDGES_LIMIT:,} edges{per and f' per {per}'}, since more "
            f"take gigabytes, got about {count:.3g}; lower `{arguments[-1]}`"
        )


def check_int_or_auto(name: str, value: object, *, minimum: int) -> int | str:
    """Return `value` if it is ``"auto"`` or an integer of at least `minimum`, or raise."""
    if isinstance(value, str) and value == "auto":
        return value
    return check_int(name, value, minimum=minimum, kind='an integer or "auto"')


def _check_real(
    name: str, value: object, fits: Callable[[float], bool], wanted: str, remedy: str = ""
) -> float:
    """Return `value` as a float that fits, or raise."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, got {shown(value)} ({type(value).__name__})")
    try:
        number = float(value)
    except OverflowError:  # integers beyond 1e308
        number = math.inf if value > 0 else -math.inf  # pyright: ignore[reportOperatorIssue]
    if not fits(number):
        text = f"`{name}` must be {wanted}, got {number:g}"
        raise ValueError(f"{text}; {remedy}" if remedy else text)
    return number


def check_number(name: str, value: object) -> float:
    """Return `value` as a finite float, or raise ``TypeError`` or ``ValueError``."""
    return _check_real(name, value, math.isfinite, "finite")


def check_positive(name: str, value: object, *, remedy: str = "") -> float:
    """Return `value` as a finite float above 0, or raise ``TypeError`` or ``ValueError``."""
    wanted = "a finite number above 0"
    return _check_real(name, value, lambda number: 0 < number < math.inf, wanted, remedy)


def check_nonnegative(name: str, value: object) -> float:
    """Return `value` as a finite float of at least 0, or raise ``TypeError`` or ``ValueError``."""
    wanted = "a finite number of at least 0"
    return _check_real(name, value, lambda number: 0 <= number < math.inf, wanted)


def check_fraction(name: str, value: object) -> float:
    """Return `value` as a float in ``[0, 1)``, or raise ``TypeError`` or ``ValueError``."""
    return _check_real(name, value, lambda number: 0 <= number < 1, "in [0, 1)")


def check_probability(name: str, value: object) -> float:
    """Return `value` as a float in ``[0, 1]``, or raise ``TypeError`` or ``ValueError``."""
    return _check_real(name, value, lambda number: 0 <= number <= 1, "between 0 and 1")


def check_share(name: str, value: object, *, remedy: str = "") -> float:
    """Return `value` as a float in ``(0, 1]``, or raise ``TypeError`` or ``ValueError``."""
    wanted = "above 0 and at most 1"
    return _check_real(name, value, lambda number: 0 < number <= 1, wanted, remedy)


def check_switch(name: str, value: object, *, auto: bool = True) -> bool | str:
    """Return `value` if it is a boolean or, with `auto`, ``"auto"``; else raise ``ValueError``."""
    if isinstance(value, bool) or (auto and isinstance(value, str) and value == "auto"):
        return value
    known = "True, False or 'auto'" if auto else "True or False"
    raise ValueError(f"`{name}` must be {known}, got {shown(value)}")


def check_kind(name: str, value: Any, kind: type[T], wanted: str, remedy: str = "") -> T:
    """Return `value` if it is of a type, or raise ``TypeError`` that says what is `wanted`."""
    if not isinstance(value, kind):
        text = f"`{name}` must be {wanted}, got {shown(value)}"
        raise TypeError(f"{text}; {remedy}" if remedy else text)
    return value


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`, else raise ``ValueError`` with a suggestion.

    Examples
    --------
    >>> check_choice("init", "commn", ["common", "given"])
    Traceback (most recent call last):
        ...
    ValueError: `init` must be one of 'common', 'given', got 'commn'; did you mean 'common'?
    """
    options = list(choices)
    if not isinstance(value, str) or value not in options:
        listed, hint = ", ".join(map(repr, options)), did_you_mean(value, options)
        raise ValueError(f"`{name}` must be one of {listed}, got {shown(value)}{hint}")
    return value


def check_takes(what: str, function: object, *names: str) -> None:
    """Raise ``TypeError`` unless `function` is one that accepts these positional arguments."""
    wanted = f"{what} must be a function of ({', '.join(names)}), got"
    if not callable(function):
        raise TypeError(f"{wanted} {shown(function)}")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # some functions written in C have no signature
        return
    try:
        signature.bind(*names)
    except TypeError:
        raise TypeError(f"{wanted} one of {str(signature).partition(' ->')[0]}") from None


def check_path(name: str, value: object, kind: str = "folder") -> Path:
    """Return `value` as the path of a file or folder (`kind`), or raise.

    Raises
    ------
    TypeError
        If it is neither a string nor a path.
    ValueError
        If it is empty, contains a null character or one that the file system cannot encode, or has
        a part of more than 255 bytes.
    """
    wanted = f"`{name}` must be the path of a {kind}"
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        got = f"{shown(value)} ({type(value).__name__})"
        raise TypeError(f"{wanted}, as text or a pathlib.Path, got {got}")
    if not text:
        raise ValueError(f"{wanted}, got an empty text; the current folder is '.'")
    if "\0" in text:
        raise ValueError(f"{wanted}, got {text!r:.80} with a null character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{wanted}, got {shown(text)}, with a character that names of files cannot have here "
            f"({error.encoding}); leave it out"
        ) from None
    if any(len(part.encode("utf-8", "replace")) > 255 for part in Path(text).parts):
        raise ValueError(f"{wanted}, got {shown(text)}, a name of more than 255 bytes")
    return Path(text)


def check_sequence(name: str, value: Any, of: str = "") -> list[Any]:
    """Return the items of a sequence as a list, or raise ``TypeError``; text is not a sequence."""
    try:
        if not isinstance(value, str | bytes | Mapping):
            return list(value)
    except (TypeError, RuntimeError, NotImplementedError):  # 0-dimensional arrays and tensors
        pass
    wanted = f"a sequence of {of}" if of else "a sequence"
    raise TypeError(f"`{name}` must be {wanted}, got {shown(value)} ({type(value).__name__})")


def check_finite(name: str, array: np.ndarray) -> np.ndarray:
    """Return `array`, or raise ``ValueError`` naming the first entry that is not finite."""
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        place = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"`{name}` must be finite, got {array[place]} at {place} ({len(bad)} such entries)"
        )
    return array


def check_unmasked(name: str, values: Any) -> None:
    """Raise ``ValueError`` if an array, or an array in a list, has masked entries."""
    parts = values if isinstance(values, list | tuple) else [values]
    masked = sum(int(np.ma.count_masked(x)) for x in parts if isinstance(x, np.ma.MaskedArray))
    if masked:
        must = f"`{name}` must have no masked entries"
        raise ValueError(f"{must}, got {masked}; replace them first, as in array.filled(0)")


def as_array(name: str, values: Any, dtype: Any = None) -> np.ndarray:
    """Return ``numpy.asarray(values, dtype)``, including of tensors on any device, or raise.

    Raises
    ------
    TypeError, ValueError
        If the values cannot be converted to an array of this dtype; as :func:`check_unmasked`.
    """
    check_unmasked(name, values)
    try:
        # Torch is not imported here, since this module does not need it otherwise.
        if hasattr(values, "detach") and hasattr(values, "cpu"):
            values = values.detach().cpu()
            values = values.double() if values.is_floating_point() else values
        return np.asarray(values, dtype=dtype)
    except (TypeError, ValueError, RuntimeError, NotImplementedError, OverflowError) as error:
        got = f"{type(values).__name__}: {str(error).partition(chr(10))[0]}"
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"`{name}` must be an array of numbers, got {got}") from error


def check_label_counts(label_counts: Any) -> np.ndarray:
    """Return (n, classes) int64 counts of labels, from an array or a Partition, or raise.

    Rows may be all 0; callers check whether nodes without data are allowed.

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
        must = "`label_counts` must be non-negative"
        raise ValueError(f"{must}, got {counts.min()} for node {node}, class {label}")
    return counts.astype(np.int64)


def check_nonempty(counts: np.ndarray, of: str) -> None:
    """Raise unless each row of (k, classes) label counts, such as that of a node, has examples."""
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if len(empty):
        more = f" and {len(empty) - 5} more" if len(empty) > 5 else ""
        raise ValueError(
            f"`label_counts` must have at least one example per {of}, {of}s "
            f"{', '.join(map(str, empty[:5]))}{more} have none; leave them out"
        )


def check_nonempty_label_counts(label_counts: Any) -> np.ndarray:
    """Return the counts of :func:`check_label_counts`, or raise unless every node has data."""
    counts = check_label_counts(label_counts)
    check_nonempty(counts, "node")
    return counts


def check_shares(label_shares: Any) -> np.ndarray:
    """Return (n, classes) float64 label shares, which may be negative after added noise, or raise.

    Raises
    ------
    TypeError
        If they are not real numbers.
    ValueError
        If the shape is not (n, classes) or an entry is not finite.
    """
    shares = _as_matrix("label_shares", label_shares)
    if not np.issubdtype(shares.dtype, np.floating) and not np.issubdtype(shares.dtype, np.integer):
        raise TypeError(f"`label_shares` must be real numbers, got dtype {shares.dtype}")
    return check_finite("label_shares", shares.astype(np.float64))


def _as_matrix(name: str, values: Any) -> np.ndarray:
    matrix = as_array(name, values)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"`{name}` must have shape (n, classes), got {matrix.shape}")
    return matrix


def check_labels(name: str, labels: object) -> np.ndarray:
    """Return class `labels` as an int64 vector of non-negative integers, or raise.

    Raises
    ------
    TypeError
        If they are not integers (even whole floats are refused, since they may be a mistake).
    ValueError
        If they are not one-dimensional, empty, masked, negative, or not below
        :data:`CLASSES_LIMIT`.
    """
    array = as_array(name, labels)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"`{name}` must be a non-empty vector of class labels, got shape {array.shape}"
            f"{'; give several numbers per example as targets' if array.ndim > 1 else ''}"
        )
    if not np.issubdtype(array.dtype, np.integer):
        remedy = "number the classes by np.unique(labels, return_inverse=True)[1]"
        if array.dtype.kind in "bf":
            remedy = "if they are whole, convert them with .astype(int)"
        raise TypeError(f"`{name}` must be integers, got dtype {array.dtype}; {remedy}")
    if array[k := int(array.argmin())] < 0:
        raise ValueError(f"`{name}` must be non-negative, got {array[k]} at index {k}")
    if array[k := int(array.argmax())] >= CLASSES_LIMIT:
        raise ValueError(
            f"`{name}` must be below {CLASSES_LIMIT:,}, since counts of so many classes take "
            f"gigabytes, got {array[k]} at index {k}; number the classes by "
            "np.unique(labels, return_inverse=True)[1]"
        )
    return array.astype(np.int64)


def check_indices(name: str, indices: object, size: int) -> np.ndarray:
    """Return `indices` as a read-only int64 vector with values in ``0..size - 1``, or raise.

    Raises
    ------
    TypeError
        If they are not integers (for a mask, use ``numpy.flatnonzero``).
    ValueError
        If they are not one-dimensional or are out of range.
    """
    array = as_array(name, indices)
    if array.ndim != 1:
        raise ValueError(f"`{name}` must be a vector of indices, got shape {array.shape}")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        must = f"`{name}` must be integer indices"
        raise TypeError(f"{must}, got dtype {array.dtype}; for a mask use np.flatnonzero(mask)")
    bad = np.flatnonzero((array < 0) | (array >= size))
    if len(bad):
        k = bad[0]
        raise ValueError(f"`{name}` must be in 0..{size - 1}, got {array[k]} at position {k}")
    frozen = array.astype(np.int64)
    frozen.setflags(write=False)
    return frozen


def as_table(argument: str, value: Any) -> np.ndarray:
    """Return a number or table as a read-only array, or raise an error that names the argument."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        if not isinstance(value, float):
            value = check_number(argument, value)
        array = np.array(value, dtype=np.float64)
    else:
        array = as_array(argument, value, np.float64).copy()
    array.setflags(write=False)
    return array


def as_trace(name: str, value: Any, n: int | None = None) -> np.ndarray:
    """Return who is there when, (rounds, n) booleans, from 0 and 1 or a CSV file of them.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError, TypeError
        If there are other numbers than 0 and 1, no rounds, or another number of nodes than `n`.
    """
    if isinstance(value, str | os.PathLike):
        value = _read_trace(name, check_path(name, value, "file"))
    array = as_array(name, value)
    if array.ndim != 2 or not array.size or (n is not None and array.shape[1] != n):
        nodes = "n" if n is None else n
        raise ValueError(f"`{name}` must have shape (rounds, {nodes}), got {array.shape}")
    if len(others := array[~np.isin(array, (0, 1))]):
        raise ValueError(f"`{name}` must hold 0 and 1 only, got {shown(others[0].item())}")
    return array.astype(bool)


def _read_trace(name: str, path: Path) -> list[list[int]]:
    """Return the rows of a CSV file of 0 and 1."""
    if path.suffix != ".csv":  # stores of runs hash the contents of these
        raise ValueError(f"`{name}` must be the path of a CSV file, got {path}")
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OSError(f"`{name}` must be a file that can be read, got {path} ({reason})") from error
    rows = [line.split(",") for line in text.splitlines() if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]) or {cell.strip() for cell in row} - {"0", "1"}:
            raise ValueError(
                f"`{name}` must have a line per round with 0 or 1 for each node, separated by "
                f"commas, line {number} of {path} has {shown(','.join(row))}"
            )
    return [list(map(int, row)) for row in rows]


def check_amounts(
    argument: str,
    table: np.ndarray,
    *,
    positive: bool,
    what: str = "seconds",
    place: str = "node",
    has_diagonal: bool = True,
    finite: bool = True,
    remedy: str = "",
) -> None:
    """Raise ``ValueError`` unless all numbers are above 0 or at least 0, and finite if asked for.

    Parameters
    ----------
    argument, table
        Name of the argument, and its number or table.
    positive
        Whether 0 is refused.
    what, place
        What the numbers are, and what the rows of a table are, for error messages.
    has_diagonal
        Whether the diagonal of a table of pairs counts.
    finite
        Whether infinity is refused.
    remedy
        What to change, for error messages.
    """
    bad = ~np.isfinite(table) if finite else np.isnan(table)
    bad |= table <= 0 if positive else table < 0
    if table.ndim == 2 and not has_diagonal:
        np.fill_diagonal(bad, False)
    places = np.argwhere(bad)
    if len(places) == 0:
        return
    first = tuple(int(i) for i in places[0])
    where = {0: "", 1: f" for {place} {first[0] if first else ''}", 2: f" at {first}"}[table.ndim]
    bound = "above 0" if positive else "of at least 0"
    must = f"`{argument}` must be {'finite ' * finite}{what} {bound}"
    raise ValueError(f"{must}, got {table[first]:g}{where}{'; ' if remedy else ''}{remedy}")
