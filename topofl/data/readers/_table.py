"""Datasets from the columns of a table: a CSV file, a data frame, a Hugging Face dataset."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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


def _columns_of(
    table: Table, *, label: Any, target: Any, features: Any, owner: Any, split: Any
) -> tuple[list[Any], list[Any]]:
    """Return the columns of targets and of features of a table that has all of these columns."""
    if label is None and target is None:
        raise ValueError(
            "`label` must be the column with the classes, or `target` the one with numbers to "
            f"predict, got neither; the columns are {shown([*map(str, table.columns)], 200)}"
        )
    targets = [] if target is None else _listed("target", target)
    single = {"label": label, "owner": owner, "split": split}
    used = [(key, column) for key, column in single.items() if column is not None]
    used += [("target", column) for column in targets]
    for key, column in used:
        table.check_has(key, column)
    taken = [column for _, column in used]
    found = [column for column in table.columns if column not in taken]
    if features is not None:
        found = _listed("features", features)
    if not found:
        raise ValueError(
            f"`{table.argument}` must have a column of features in addition to "
            f"{shown([*map(str, taken)])}, got none"
        )
    for column in found:
        table.check_has("features", column)
        if column in (label, split, *targets):
            raise ValueError(
                f"`features` must not contain what models predict, nor the split, got "
                f"{column!r}; leave it out"
            )
    return targets, found


def _listed(key: str, columns: Any) -> list[Any]:
    """Return the name of a column, or a sequence of different names, as a list."""
    found = [columns] if isinstance(columns, str) else check_sequence(key, columns, "columns")
    if not found or len(set(map(str, found))) < len(found):
        raise ValueError(f"`{key}` must be columns, each once, got {shown(found)}")
    return found


def dataset_of(
    table: Table,
    roles: Mapping[str, Any],
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
        The columns by what they are for: label, target, features, owner and split.
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
    every = list(tables.values())
    targets, features = _columns_of(table, **roles)
    for other in every[1:]:
        _columns_of(other, **{**roles, "features": features})
    parts = np.repeat(np.array(list(tables)), [own.size for own in every])
    if roles["split"] is not None:
        parts = _parts_by_column(tables, roles["split"], fractions)
    masks = {key: parts == key for key in ("val", "test") if (parts == key).any()}
    names = None if class_names is None else as_names("class_names", class_names)
    labels = None
    if roles["label"] is not None:
        labels, names = _classes(every, roles["label"], names)
    found = as_dataset(
        _features(every, features),
        labels,
        targets=_targets(every, targets) if targets else None,
        n_classes=None if names is None else len(names),
        spare_names=names,
        owners=None if roles["owner"] is None else _cells(every, roles["owner"]),
        **(fractions | masks),
        **settings,
    )
    check_trained("label", found)
    return found


def _cells(tables: Iterable[Table], column: Any) -> list[Any]:
    """Return the cells of a column in all tables; none may be missing."""
    return [cell for table in tables for cell in _present(table, column, table.read(column))]


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
    arrays = [column for column in columns if _is_array(first[column])]
    if arrays and len(columns) > 1:
        raise ValueError(
            f"`features` must be a single column of images or arrays, or columns of numbers, got "
            f"{shown([*map(str, columns)], 200)}; pass features={str(arrays[0])!r}"
        )
    if arrays:
        return _as_examples(table, columns[0], cells[columns[0]])
    others = [column for column in columns if not isinstance(first[column], str)]
    advice = f"name the columns to use, as in features={shown(others, 60)}, or " if others else ""
    numbers = [
        _as_numbers(table, name, own, advice + table.remedy.format(name))
        for name, own in cells.items()
    ]
    return np.stack(numbers, axis=1)


def _targets(tables: Sequence[Table], columns: Sequence[Any]) -> np.ndarray:
    """Return numbers to predict, (N,) float32, or (N, columns) for several columns."""
    remedy = "pass a column of text as `label`"
    found = []
    for column in columns:
        parts = [_as_numbers(table, column, table.read(column), remedy) for table in tables]
        found.append(values := np.concatenate(parts))
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
    cells = _cells(tables.values(), column)
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


def _present(table: Table, column: Any, cells: Cells) -> list[Any]:
    """Return the cells of a column as a list, or raise ``ValueError`` if some are missing."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biu":
        return cells.tolist()
    values = list(cells)
    missing = [row for row, cell in enumerate(values) if is_missing(cell)]
    if missing:
        raise ValueError(
            f"`{table.argument}` must have a value in every row (counted from 0), column "
            f"{column!r} has none (empty or NaN) in {rows_of(missing)}; drop or fill these"
        )
    return values


def _as_numbers(table: Table, column: Any, cells: Cells, remedy: str) -> np.ndarray:
    """Return a column of finite numbers or booleans as (N,) float32, or raise.

    The message about a cell that is not a number ends with the `remedy`.
    """
    array = np.asarray(cells)
    if array.dtype.kind not in "biuf" or array.ndim != 1:
        values = _present(table, column, cells)
        others = [k for k, cell in enumerate(values) if not isinstance(cell, Real)]
        if others:
            odd = next((k for k in others if not _is_number(values[k])), others[0])
            if not _is_number(values[odd]) and any(map(_is_number, values)):
                remedy = "mend that cell"
            raise TypeError(
                f"`{table.argument}` must have columns of numbers, got "
                f"{type(values[odd]).__name__} in column {column!r} (such as "
                f"{shown(values[odd], 40)} in row {odd}); {remedy}"
            )
        array = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise ValueError(
            f"`{table.argument}` must have a finite number in every row (counted from 0), column "
            f"{column!r} has {array[bad[0]]} in {rows_of(bad)}; drop these rows, or fill them in"
        )
    return numbers


def _is_number(cell: Any) -> bool:
    """Return whether a cell is a finite number, or the text of one."""
    try:
        return bool(np.isfinite(float(cell)))
    except (TypeError, ValueError):
        return False


def _as_examples(table: Table, column: Any, cells: Cells) -> np.ndarray:
    """Return a column of images or of arrays as (N, ...), or raise.

    Gray images become (N, 1, height, width) and all others (N, 3, height, width), uint8. Arrays and
    nested lists keep their shape and dtype.
    """
    values = _present(table, column, cells)
    as_array, remedy = _array, "pad or cut them"
    if _is_image(values[0]):
        modes = {image.mode for image in values if _is_image(image)}
        as_array, remedy = partial(_pixels, is_gray=modes <= {"1", "L"}), "resize the images"
    where = f"in column {column!r}"
    arrays = [as_array(table.argument, where, row, cell) for row, cell in enumerate(values)]
    odd = next((k for k, array in enumerate(arrays) if array.shape != arrays[0].shape), None)
    if odd is not None:
        raise ValueError(
            f"`{table.argument}` must have examples of one shape {where}, got {arrays[0].shape} in "
            f"row 0 and {arrays[odd].shape} in row {odd}; {remedy} first"
        )
    return np.stack(arrays)


def _is_image(cell: Any) -> bool:
    """Return whether a cell is an image of Pillow."""
    return all(hasattr(cell, key) for key in ("mode", "size", "convert"))


def _is_array(cell: Any) -> bool:
    """Return whether a cell holds an array instead of a single value."""
    is_filled = isinstance(cell, np.ndarray | Tensor) and cell.ndim > 0
    return _is_image(cell) or is_filled or isinstance(cell, list | tuple)


def _pixels(argument: str, where: str, row: int, image: Any, *, is_gray: bool) -> np.ndarray:
    """Return the pixels of an image, (channels, height, width) uint8."""
    if not _is_image(image) or image.mode not in _MODES:
        got = f"mode {image.mode}" if _is_image(image) else type(image).__name__
        raise TypeError(
            f"`{argument}` must have images of 8 bits per channel {where}, got {got} in row {row}; "
            "convert them, as in image.convert('RGB')"
        )
    if is_gray:
        return np.asarray(image.convert("L"), np.uint8)[None]
    return np.asarray(image.convert("RGB"), np.uint8).transpose(2, 0, 1)


def _array(argument: str, where: str, row: int, cell: Any) -> np.ndarray:
    """Return a cell as an array of numbers."""
    try:
        array = np.asarray(cell.detach().cpu() if isinstance(cell, Tensor) else cell)
    except ValueError:  # a ragged list
        array = np.array(None)
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise TypeError(
            f"`{argument}` must have arrays of numbers {where}, got {shown(cell, 40)} "
            f"({type(cell).__name__}) in row {row}; convert it"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(
            f"`{argument}` must have finite numbers {where}, row {row} has NaN or infinity; drop it"
        )
    return array
