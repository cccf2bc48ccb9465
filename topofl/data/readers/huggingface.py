"""Datasets from Hugging Face ``datasets``, in memory or in a folder; nothing is downloaded."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from topofl._support.check import check_path, did_you_mean, shown
from topofl.data.dataset import Dataset
from topofl.data.readers._reader import reader
from topofl.data.readers._table import Roles, Table, check_columns, dataset_of, held_out

__all__ = ["from_huggingface"]

_SETS = {"test": ("test",), "val": ("validation", "valid", "val", "dev")}
"""Names of the splits that are held out, by set of examples."""

_REMEDY = "turn it into numbers first by dataset.map, such as token ids by a tokenizer"


@reader
def from_huggingface(
    dataset: Any | str | os.PathLike[str],
    *,
    label: str | None = None,
    target: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    owner: str | None = None,
    split: str | None = None,
    train: str = "train",
    test: float | str | None = None,
    val: float | str | None = None,
    class_names: Sequence[str] | None = None,
    name: str | None = None,
    seed: int | np.random.Generator = 0,
    mean: Any = 0.0,
    std: Any = 1.0,
) -> Dataset:
    """Return a dataset from a ``Dataset`` or ``DatasetDict`` of the package ``datasets``.

    Nothing is downloaded: load the dataset first, as in ``datasets.load_dataset("mnist")``, or
    save it by ``save_to_disk`` and pass the folder.

    Parameters
    ----------
    dataset
        A ``Dataset``, a ``DatasetDict``, or the path of a folder that ``save_to_disk`` made, which
        takes the package ``datasets`` to read. Streamed datasets are refused.
    label
        Column with the classes. The names of a ``ClassLabel`` are the `class_names` of the result;
        otherwise as in :func:`from_dataframe`. None: the column ``label``, unless there is a
        `target`.
    target, owner, split
        As in :func:`from_dataframe`.
    features
        One column of images, which become (N, 1, height, width) uint8 if all are gray, else
        (N, 3, height, width); one column of arrays, such as token ids, (N, ...), whose integers
        stay integers (uint8 are pixels, as in :func:`from_arrays`); or columns of numbers,
        (N, columns) float32. None: all other columns.
    train
        Split to train on, in a ``DatasetDict``.
    test, val
        Name of a split, or a fraction of the training examples to hold out. None: the splits
        ``test`` and ``validation``, if there are any. Other splits are not used.
    class_names
        As in :func:`from_dataframe`; default: those of the ``ClassLabel``.
    name
        Label of the result; default: the name of the folder, or "huggingface".
    seed, mean, std
        As in :func:`from_arrays`.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    ImportError
        If `dataset` is a folder, and the package ``datasets`` is not installed.
    TypeError
        If `dataset` is none of these; as :func:`from_dataframe`.
    ValueError
        If a split is missing; if examples have no label (-1); if images or arrays differ in shape;
        as :func:`from_dataframe`.

    Examples
    --------
    ::

        import datasets
        from topofl import data

        digits = datasets.load_dataset("mnist")  # downloads, or reads its cache
        clients = data.shards(data.from_huggingface(digits, mean=0.1307, std=0.3081), n=10, seed=0)

    Anything with the same attributes is read alike:

    >>> class Rows(dict):
    ...     features = {"x": None, "label": type("ClassLabel", (), {"names": ["cat", "dog"]})()}
    ...     column_names = ["x", "label"]
    ...     num_rows = 4
    ...     def with_format(self, kind):
    ...         return self
    >>> from_huggingface(Rows(x=[[1, 2], [3, 4], [5, 6], [7, 8]], label=[0, 1, 0, 1]))
    Dataset('huggingface', inputs=(4, 2), n_classes=2, train=4, val=0, test=0)
    """
    if isinstance(dataset, str | os.PathLike):
        path = check_path("dataset", dataset)
        dataset, name = _from_disk(path), path.resolve().name if name is None else name
    splits: dict[str, Any] = _splits(dataset, train)
    chosen = {key: _chosen(key, value, splits) for key, value in (("test", test), ("val", val))}
    source = _split_of("train", train, splits)
    classes = "label" if label is None and target is None else label
    table = _table("dataset", source, classes)
    tables, fractions = held_out(
        table, chosen, lambda key, value: _table(key, _split_of(key, value, splits), classes)
    )
    if label is None and classes in table.columns:
        label = classes
    if label is not None:
        table.check_has("label", label)
        if class_names is None:
            class_names = getattr(source.features[label], "names", None)
    return dataset_of(
        tables,
        Roles(label, target, features, owner, split),
        fractions,
        class_names=class_names,
        name="huggingface" if name is None else name,
        seed=seed,
        mean=mean,
        std=std,
    )


def _from_disk(path: os.PathLike[str]) -> Any:
    """Return the dataset in a local folder."""
    if not os.path.isdir(path):
        raise FileNotFoundError(
            f"`dataset` must be a dataset, or a folder that save_to_disk made, there is none at "
            f"{path}; load a dataset of the Hub first, as in datasets.load_dataset(name)"
        )
    try:
        import datasets  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            "`dataset` must be in memory if the package datasets is not installed, got a folder; "
            "pip install datasets"
        ) from error
    try:
        return datasets.load_from_disk(os.fspath(path))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"`dataset` must be a folder that save_to_disk made, {path} is another: {error}"
        ) from error


def _splits(dataset: Any, train: str) -> dict[str, Any]:
    """Return the splits of a mapping of splits, or a dataset, which maps columns, as the only one.

    The ``num_rows`` of a dataset is a number, that of a ``DatasetDict`` is a mapping.
    """
    if not isinstance(train, str):
        raise TypeError(f"`train` must be the name of a split, got {shown(train)}; e.g. 'train'")
    is_dataset = isinstance(getattr(dataset, "num_rows", None), int)
    return dict(dataset) if isinstance(dataset, Mapping) and not is_dataset else {train: dataset}


def _chosen(key: str, value: Any, splits: Mapping[str, Any]) -> Any:
    """Return a fraction, or the name of a split: the one that is there if none is given."""
    if value is not None:
        return value
    return next((name for name in _SETS[key] if name in splits), None) if len(splits) > 1 else None


def _split_of(key: str, name: Any, splits: Mapping[str, Any]) -> Any:
    if not isinstance(name, str) or name not in splits:
        raise ValueError(
            f"`{key}` must be one of the splits {shown(list(splits))}"
            f"{'' if key == 'train' else ', or a fraction'}, got {shown(name)}"
            f"{did_you_mean(name, splits)}"
        )
    return splits[name]


def _table(argument: str, dataset: Any, label: str | None) -> Table:
    """Return a Hugging Face dataset as a table; arrays keep their dtype, and images are decoded.

    The column `label` is checked as it is read.
    """
    wanted = ("column_names", "features", "with_format", "num_rows")
    lacking = [key for key in wanted if getattr(dataset, key, None) is None]
    if lacking:
        streamed = lacking == ["num_rows"] or "Iterable" in type(dataset).__name__
        remedy = (
            "load it without streaming=True"
            if streamed
            else "use data.from_arrays or data.from_torch for other data"
        )
        raise TypeError(
            f"`{argument}` must be a Dataset or DatasetDict of the package datasets, got "
            f"{type(dataset).__name__}; {remedy}"
        )
    check_columns(argument, dataset.column_names)
    plain, numeric = dataset.with_format(None), dataset.with_format("numpy")

    def read(column: str) -> Sequence[Any]:
        cells = plain[column]
        first = next(iter(cells), None)
        if isinstance(first, dict) and {"bytes", "path"} <= set(first):
            raise TypeError(
                f"`{argument}` must have decoded images in column {column!r}, got files; pass "
                f"dataset.cast_column({column!r}, datasets.Image())"
            )
        if not isinstance(first, list):
            cells = list(cells)
            if column == label:
                _check_labeled(argument, column, cells)
            return cells
        # The format "numpy" turns all integers into int64, pixels too.
        is_bytes = _dtype(dataset.features[column]) == "uint8"
        return [np.asarray(cell, np.uint8 if is_bytes else None) for cell in numeric[column]]

    return Table(argument, tuple(dataset.column_names), dataset.num_rows, read, _REMEDY)


def _dtype(feature: Any) -> Any:
    """Return the declared type of the entries of arrays, such as "uint8"."""
    while getattr(feature, "feature", None) is not None:
        feature = feature.feature
    return getattr(feature, "dtype", None)


def _check_labeled(argument: str, label: str, cells: Sequence[Any]) -> None:
    """Raise ``ValueError`` if labels are -1, which stands for hidden labels on the Hub."""
    if any(cell == -1 for cell in cells if isinstance(cell, int)):
        raise ValueError(
            f"`{argument}` must have labels, got -1 in column {label!r}, which means that "
            "they are hidden; use another split, or a fraction such as test=0.2"
        )
