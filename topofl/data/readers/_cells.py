"""Columns of a table as arrays: numbers, arrays per row, and images."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from torch import Tensor

from topofl._support.check import shown
from topofl.data._labels import is_missing, rows_of

__all__ = ["as_examples", "as_numbers", "is_array", "is_image", "present"]

_MODES = {"1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "YCbCr"}
"""Modes of images with 8 bits per channel or fewer."""


def present(argument: str, column: str, cells: Sequence[Any] | np.ndarray) -> list[Any]:
    """Return the cells of a column as a list, or raise ``ValueError`` if some are missing."""
    if getattr(cells, "dtype", None) is not None and np.asarray(cells).dtype.kind in "biu":
        return np.asarray(cells).tolist()
    values = list(cells)
    missing = [row for row, cell in enumerate(values) if is_missing(cell)]
    if missing:
        raise ValueError(
            f"`{argument}` must have a value in every row (counted from 0), column {column!r} has "
            f"none (empty or NaN) in {rows_of(missing)}; drop these rows, or fill them in"
        )
    return values


def as_numbers(
    argument: str, column: str, cells: Sequence[Any] | np.ndarray, remedy: str
) -> np.ndarray:
    """Return a column of finite numbers or booleans as (N,) float32, or raise.

    Raises
    ------
    TypeError
        If a cell is not a number; the message ends with the `remedy`.
    ValueError
        If a cell is missing or infinite, in float32 (the message names the rows).
    """
    array = np.asarray(cells)
    if array.dtype.kind not in "biuf" or array.ndim != 1:
        values = present(argument, column, cells)
        others = [k for k, cell in enumerate(values) if not isinstance(cell, Real)]
        if others:
            odd = next((k for k in others if not _is_number(values[k])), others[0])
            numeric = any(_is_number(cell) for cell in values)
            remedy = "mend that cell" if numeric and not _is_number(values[odd]) else remedy
            raise TypeError(
                f"`{argument}` must have columns of numbers, got {type(values[odd]).__name__} in "
                f"column {column!r} (such as {shown(values[odd], 40)} in row {odd}); {remedy}"
            )
        array = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise ValueError(
            f"`{argument}` must have a finite number in every row (counted from 0), column "
            f"{column!r} has {array[bad[0]]} in {rows_of(bad)}; drop these rows, or fill them in"
        )
    return numbers


def _is_number(cell: Any) -> bool:
    """Return whether a cell is a finite number, or the text of one."""
    try:
        return bool(np.isfinite(float(cell)))
    except (TypeError, ValueError):
        return False


def as_examples(argument: str, column: str, cells: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Return a column of images or of arrays as (N, ...), or raise.

    Gray images become (N, 1, height, width) and all others (N, 3, height, width), uint8. Arrays and
    nested lists keep their shape and dtype.

    Raises
    ------
    TypeError
        If cells are not images or arrays of numbers.
    ValueError
        If cells are missing or differ in shape (the message names a row).
    """
    values = present(argument, column, cells)
    if is_image(values[0]):
        modes = {image.mode for image in values if is_image(image)}
        arrays = [_pixels(argument, column, row, cell, modes) for row, cell in enumerate(values)]
    else:
        arrays = [_array(argument, column, row, cell) for row, cell in enumerate(values)]
    odd = next((k for k, array in enumerate(arrays) if array.shape != arrays[0].shape), None)
    if odd is not None:
        what = "resize the images" if is_image(values[0]) else "pad or cut them"
        raise ValueError(
            f"`{argument}` must have examples of one shape in column {column!r}, got "
            f"{arrays[0].shape} in row 0 and {arrays[odd].shape} in row {odd}; {what} first"
        )
    return np.stack(arrays)


def is_image(cell: Any) -> bool:
    """Return whether a cell is an image of Pillow."""
    return all(hasattr(cell, key) for key in ("mode", "size", "convert"))


def is_array(cell: Any) -> bool:
    """Return whether a cell holds an array instead of a single value."""
    is_filled = isinstance(cell, np.ndarray | Tensor) and cell.ndim > 0
    return is_image(cell) or is_filled or isinstance(cell, list | tuple)


def _pixels(argument: str, column: str, row: int, image: Any, modes: set[str]) -> np.ndarray:
    """Return the pixels of an image, (channels, height, width) uint8."""
    if not is_image(image) or image.mode not in _MODES:
        got = f"mode {image.mode}" if is_image(image) else type(image).__name__
        raise TypeError(
            f"`{argument}` must have images of 8 bits per channel in column {column!r}, got {got} "
            f"in row {row}; convert them, as in image.convert('RGB')"
        )
    if modes <= {"1", "L"}:
        return np.asarray(image.convert("L"), np.uint8)[None]
    return np.asarray(image.convert("RGB"), np.uint8).transpose(2, 0, 1)


def _array(argument: str, column: str, row: int, cell: Any) -> np.ndarray:
    """Return a cell as an array of numbers."""
    try:
        array = np.asarray(cell.detach().cpu() if isinstance(cell, Tensor) else cell)
    except ValueError:  # a ragged list
        array = np.array(None)
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise TypeError(
            f"`{argument}` must have arrays of numbers in column {column!r}, got "
            f"{shown(cell, 40)} ({type(cell).__name__}) in row {row}; convert it"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(
            f"`{argument}` must have finite numbers in column {column!r}, row {row} has NaN or "
            "infinity; drop this row, or replace them"
        )
    return array
