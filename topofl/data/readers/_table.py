"""Datasets from the columns of a table: a CSV file, a data frame, a Hugging Face dataset."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from torch import Tensor

from topofl._support.check import check_sequence, did_you_mean, shown
from topofl.data._labels import as_classes, as_names, is_missing, repeated, rows_of
from topofl.data.arrays import as_dataset, check_trained
from topofl.data.dataset import Dataset

_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Set of examples by the text in a split column, in lower case."""


Cells = Sequence[Any] | np.ndarray
"""The cells of a column."""


@dataclass(frozen=True)
class Table:
    """Columns that are read when they are needed.

    Parameters
    ----------
    argument
        Name of the argument that the table comes from, for error messages.
    columns
        Names of the columns, which differ; see :func:`check_columns`.
    size
        Number of rows.
    read
        Returns the cells of a column, in order.
    remedy
        How to turn a column of text into numbers.
    """

    argument: str
    columns: tuple[Any, ...]
    size: int
    read: Callable[[Any], Cells]
    remedy: str

    def __post_init__(self) -> None:
        if not self.size or not self.columns:
            raise ValueError(f"`{self.argument}` must have at least one row, got none")

    def check_has(self, role: str, column: Any) -> None:
        """Raise ``ValueError`` unless there is such a column, ``TypeError`` if it is no name."""
        try:
            hash(column)
        except TypeError as error:
            raise TypeError(
                f"`{role}` must be the name of a column, got {shown(column)} "
                f"({type(column).__name__})"
            ) from error
        if is_missing(column) or column not in self.columns:
            names = [str(name) for name in self.columns]
            alike = [n for n in names if n.strip().lower() == str(column).strip().lower()]
            hint = f"; did you mean {alike[0]!r}?" if alike else did_you_mean(column, names)
            hint = hint or f"; there are {shown(names, 200)}"
            raise ValueError(
                f"`{role}` must be a column of `{self.argument}`, got {shown(column)}{hint}"
            )


def check_columns(argument: str, columns: Iterable[Any], place: str = "") -> None:
    """Raise ``ValueError`` if two columns have the same name; `place` says where they are."""
    if twice := repeated(columns):
        raise ValueError(
            f"`{argument}` must have columns of different names, got {twice[0]!r} {twice[1]} times"
            f"{place}; rename them"
        )


@dataclass(frozen=True)
class Roles:
    """The columns of a table by what they are for, as in :func:`from_dataframe`."""

    label: Any = None
    target: Any = None
    features: Any = None
    owner: Any = None
    split: Any = None

    def checked(self, table: Table) -> "Roles":
        """Return these roles with lists of features and of targets, all of them columns."""
        if self.label is None and self.target is None:
            raise ValueError(
                "`label` must be the column with the classes, or `target` the one with numbers to "
                f"predict, got neither; the columns are {shown([*map(str, table.columns)], 200)}"
            )
        targets = None if self.target is None else _listed("target", self.target)
        single = {"label": self.label, "owner": self.owner, "split": self.split}
        used = {key: column for key, column in single.items() if column is not None}
        for key, column in [*used.items(), *(("target", column) for column in targets or ())]:
            table.check_has(key, column)
        taken = [*used.values(), *(targets or ())]
        features = (
            [column for column in table.columns if column not in taken]
            if self.features is None
            else _listed("features", self.features)
        )
        if not features:
            raise ValueError(
                f"`{table.argument}` must have a column of features in addition to "
                f"{shown([*map(str, taken)])}, got none"
            )
        for column in features:
            table.check_has("features", column)
            if column in (self.label, self.split, *(targets or ())):
                raise ValueError(
                    f"`features` must not contain what models predict, nor the split, got "
                    f"{column!r}; leave it out"
                )
        return Roles(self.label, targets, features, self.owner, self.split)


def _listed(key: str, columns: Any) -> list[Any]:
    """Return the name of a column, or a sequence of different names, as a list."""
    found = [columns] if isinstance(columns, str) else check_sequence(key, columns, "columns")
    if not found or len(set(map(str, found))) < len(found):
        raise ValueError(f"`{key}` must be columns, each once, got {shown(found)}")
    return found


def dataset_of(
    table: Table,
    roles: Roles,
    held_out: Mapping[str, Any],
    as_table: Callable[[str, Any], Table],
    *,
    class_names: Any = None,
    **settings: Any,
) -> Dataset:
    """Return the dataset of a table for training, and of others that are held out.

    Parameters
    ----------
    table
        The rows for training.
    roles
        What the columns are for.
    held_out
        For ``test`` and ``val``, None, the share of rows to hold out, or what `as_table` makes
        another table of.
    class_names
        Names of the classes; None: the texts of the labels.
    settings
        Name, seed and normalization, as in :func:`from_arrays`.
    """
    tables, fractions = {"train": table}, {}
    for key, value in held_out.items():
        if value is None or isinstance(value, int | float | np.number):
            fractions[key] = value
        else:
            tables[key] = as_table(key, value)
    roles = roles.checked(table)
    every = list(tables.values())
    for table in every[1:]:
        roles.checked(table)
    parts = np.repeat(np.array(list(tables)), [table.size for table in every])
    if roles.split is not None:
        parts = _parts_by_column(tables, roles.split, fractions)
    masks = {key: parts == key for key in ("val", "test") if (parts == key).any()}
    names = None if class_names is None else as_names("class_names", class_names)
    labels = None
    if roles.label is not None:
        labels, names = _classes(every, roles.label, names)
    found = as_dataset(
        _features(every, roles.features),
        labels,
        targets=None if roles.target is None else _targets(every, roles.target),
        n_classes=None if names is None else len(names),
        spare_names=names,
        owners=None if roles.owner is None else _cells(every, roles.owner),
        **(fractions | masks),
        **settings,
    )
    check_trained("label", found)
    return found


def _cells(tables: Sequence[Table], column: Any) -> list[Any]:
    """Return the cells of a column in all tables; none may be missing."""
    return [
        cell for table in tables for cell in present(table.argument, column, table.read(column))
    ]


def _classes(
    tables: Sequence[Table], column: Any, names: tuple[str, ...] | None
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Return the classes in a column and their names; there must be at least two."""
    cells = _cells(tables, column)
    odd = next((k for k, cell in enumerate(cells) if isinstance(cell, float | np.floating)), None)
    if odd is not None and not any(isinstance(cell, str) for cell in cells):
        raise TypeError(
            f"`label` must be a column of texts or integers, got {cells[odd]} in {column!r}; to "
            f"predict numbers pass target={column!r}, or convert whole numbers to integers"
        )
    labels, names = as_classes("label", cells, names)
    first = labels[: tables[0].size]
    if (first == first[0]).all():
        raise ValueError(
            f"`label` must have at least two classes, column {column!r} has {cells[0]!r} in all "
            f"{len(first)} rows; choose another column"
        )
    return labels, names


def _features(tables: Sequence[Table], columns: Sequence[Any]) -> np.ndarray:
    """Return a column of images or arrays, or columns of numbers as (N, columns) float32."""
    parts = [_features_of(table, columns) for table in tables]
    for table, part in zip(tables, parts, strict=True):
        if part.shape[1:] != parts[0].shape[1:]:
            raise ValueError(
                f"`{table.argument}` must have features of the shape in `{tables[0].argument}`, "
                f"{parts[0].shape[1:]}, got {part.shape[1:]}; convert them"
            )
    return np.concatenate(parts)


def _features_of(table: Table, columns: Sequence[Any]) -> np.ndarray:
    cells = {column: table.read(column) for column in columns}
    first = {
        column: next((cell for cell in own if not is_missing(cell)), None)
        for column, own in cells.items()
    }
    arrays = [column for column in columns if is_array(first[column])]
    if arrays and len(columns) > 1:
        raise ValueError(
            f"`features` must be a single column of images or arrays, or columns of numbers, got "
            f"{shown([*map(str, columns)], 200)}, of which {str(arrays[0])!r} holds arrays; pass "
            f"features={str(arrays[0])!r}"
        )
    if arrays:
        return as_examples(table.argument, columns[0], cells[columns[0]])
    others = [column for column in columns if not isinstance(first[column], str)]
    advice = f"name the columns to use, as in features={shown(others, 60)}, or " if others else ""
    return np.stack(
        [
            as_numbers(table.argument, column, cells[column], advice + table.remedy.format(column))
            for column in columns
        ],
        axis=1,
    )


def _targets(tables: Sequence[Table], columns: Sequence[Any]) -> np.ndarray:
    """Return numbers to predict, (N,) float32, or (N, columns) for several columns."""
    remedy = "pass a column of text as `label`"
    found = [
        np.concatenate(
            [as_numbers(table.argument, column, table.read(column), remedy) for table in tables]
        )
        for column in columns
    ]
    for column, values in zip(columns, found, strict=True):
        if (values == values[0]).all():
            raise ValueError(
                f"`target` must vary, column {str(column)!r} is {values[0]:g} in all "
                f"{len(values)} rows; choose another column"
            )
    return found[0] if len(found) == 1 else np.stack(found, axis=1)


def _parts_by_column(
    tables: Mapping[str, Table], column: Any, fractions: Mapping[str, Any]
) -> np.ndarray:
    """Return the set of each row, "train", "val" or "test", by a column of texts or booleans."""
    if len(tables) > 1 or any(value is not None for value in fractions.values()):
        raise ValueError(
            f"`split` must be given without `test` and `val`, since its column {str(column)!r} "
            "assigns every row, got both; leave one out"
        )
    cells = _cells(list(tables.values()), column)
    words = [
        ("test" if cell else "train")
        if cell in (0, 1) and not isinstance(cell, str)
        else _SPLITS.get(str(cell).strip().lower())
        for cell in cells
    ]
    unknown = [row for row, word in enumerate(words) if word is None]
    if unknown:
        cell = cells[unknown[0]]
        raise ValueError(
            f"`split` must be a column of train, val and test, or of booleans that are True for "
            f"test, got {shown(cell)} in {rows_of(unknown)} of column {str(column)!r}"
            f"{did_you_mean(str(cell), _SPLITS) or '; rename these'}"
        )
    return np.array(words)


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
