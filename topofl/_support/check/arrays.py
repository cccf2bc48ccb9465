"""Checks of arrays: class labels, label counts and shares, indices."""

from typing import Any

import numpy as np

__all__ = [
    "CLASSES_LIMIT",
    "as_array",
    "check_finite",
    "check_indices",
    "check_label_counts",
    "check_labels",
    "check_shares",
    "check_unmasked",
]

CLASSES_LIMIT = 1_000_000
"""Largest number of classes; counts of a million classes take 8 MB per node."""


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
    masked = sum(
        int(np.ma.count_masked(part)) for part in parts if isinstance(part, np.ma.MaskedArray)
    )
    if masked:
        raise ValueError(
            f"`{name}` must have no masked entries, got {masked}; replace them first, as in "
            "array.filled(0)"
        )


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
        got = str(error).partition("\n")[0]
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(
            f"`{name}` must be an array of numbers, got {type(values).__name__}: {got}"
        ) from error


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
        raise ValueError(
            f"`label_counts` must be non-negative, got {counts.min()} for node {node}, class "
            f"{label}"
        )
    return counts.astype(np.int64)


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
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(
            f"`{name}` must be integers, got dtype {array.dtype}; {_to_classes(array.dtype)}"
        )
    if array.min() < 0:
        raise ValueError(
            f"`{name}` must be non-negative, got {array.min()} at index {int(array.argmin())}"
        )
    if array.max() >= CLASSES_LIMIT:
        raise ValueError(
            f"`{name}` must be below {CLASSES_LIMIT:,}, since counts of so many classes take "
            f"gigabytes, got {array.max()} at index {int(array.argmax())}; number the classes by "
            "np.unique(labels, return_inverse=True)[1]"
        )
    return array.astype(np.int64)


def _to_classes(dtype: np.dtype) -> str:
    """Return advice on how to convert labels of a dtype to class numbers."""
    if dtype.kind in "bf":
        return "if they are whole, convert them with .astype(int)"
    return "number the classes by np.unique(labels, return_inverse=True)[1]"


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
        raise TypeError(
            f"`{name}` must be integer indices, got dtype {array.dtype}; for a mask use "
            "np.flatnonzero(mask)"
        )
    bad = np.flatnonzero((array < 0) | (array >= size))
    if len(bad):
        raise ValueError(
            f"`{name}` must be in 0..{size - 1}, got {array[bad[0]]} at position {bad[0]}"
        )
    frozen = array.astype(np.int64)
    frozen.setflags(write=False)
    return frozen
