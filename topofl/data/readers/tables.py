"""Datasets from data frames, CSV files and Hugging Face ``datasets``; nothing is downloaded."""

import codecs
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topofl._support.check import check_kind, check_path, did_you_mean, shown
from topofl._support.files import check_regular
from topofl._support.public import public
from topofl._support.seeding import Seed
from topofl._support.text import is_number
from topofl.data._labels import is_missing
from topofl.data.dataset import Dataset, reader
from topofl.data.readers._table import Table, check_columns, dataset_of

__all__ = ["from_csv", "from_dataframe", "from_huggingface"]


_REMEDY = "turn it into numbers first, as in pandas.get_dummies(frame, columns=[{!r}])"


@public
def from_dataframe(
    frame: Any,
    *,
    label: str | None = None,
    target: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    owner: str | None = None,
    split: str | None = None,
    test: Any = None,
    val: Any = None,
    class_names: Sequence[str] | None = None,
    name: str = "frame",
    seed: Seed = 0,
) -> Dataset:
    """Return a dataset from the columns of a data frame.

    Parameters
    ----------
    frame
        Data frame of pandas, or another with `columns` and ``frame[column].to_numpy()``, with one
        example per row.
    label
        Column with the classes: texts, integers or booleans. Integers are class numbers and remain
        unchanged; other labels become classes in sorted order, which are the dataset's
        `class_names`.
    target
        Column with numbers to predict, or several columns; float32 `targets` of the dataset, of
        shape (N,) or (N, columns). Labels, if they are also given, are used by partitions only.
    features
        Columns of numbers and booleans, which become (N, columns) float32 inputs; or one column of
        arrays, of shape (N, ...), whose integers stay integers. None: all other columns.
    owner
        Column with the owner of each example, such as client ids, for :func:`natural`; not among
        the features unless they name it.
    split
        Column that assigns rows to sets by the texts train, val (or valid, validation, dev) and
        test, or by booleans or 0 and 1, where 1 means test.
    test, val
        Fraction of the rows to hold out, drawn in the class proportions, or another frame.
    class_names
        Names of the classes in the order of their numbers; other labels are refused. None: the
        texts of the labels.
    name
        Label of the dataset.
    seed
        Seed of the draw of fractions.

    Raises
    ------
    TypeError
        If a feature or a target is not a number, or the labels are floats or of several types.
    ValueError
        If a column is missing (the message suggests the nearest) or occurs twice; if there are no
        rows, or no label or target; if a cell is missing, NaN or infinite (the message names the
        rows, counted from 0); if there is only one class, or a class without training examples; if
        a target is constant; if `split` is given with `test` or `val`.

    Notes
    -----
    Columns are not rescaled. SGD needs features of similar size: standardize them first, as in
    ``(frame[columns] - frame[columns].mean()) / frame[columns].std()``.

    Examples
    --------
    >>> import pandas as pd
    >>> from topofl import data
    >>> frame = pd.DataFrame({"size": [1.0, 5.0, 1.5, 6.0], "age": [1, 8, 2, 9]})
    >>> frame["kind"] = ["cat", "dog", "cat", "dog"]
    >>> pets = from_dataframe(frame, label="kind")
    >>> pets, pets.class_names
    (Dataset('frame', inputs=(4, 2), n_classes=2, train=4, val=0, test=0), ('cat', 'dog'))

    One client per value of a column, and numbers to predict:

    >>> frame["home"] = ["north", "south", "south", "north"]
    >>> ages = from_dataframe(frame, target="age", features="size", owner="home")
    >>> data.natural(ages, min_size=1, seed=0).sizes.tolist(), ages.owner_names
    ([2, 2], ('north', 'south'))
    """
    roles = {"label": label, "target": target, "features": features, "owner": owner, "split": split}
    known = {"class_names": class_names, "name": name, "seed": seed}
    return dataset_of(_given("frame", frame), roles, {"test": test, "val": val}, _given, **known)


@reader
def from_csv(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    target: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    owner: str | None = None,
    split: str | None = None,
    test: float | str | os.PathLike[str] | None = None,
    val: float | str | os.PathLike[str] | None = None,
    class_names: Sequence[str] | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8",
    name: str | None = None,
    seed: Seed = 0,
) -> Dataset:
    r"""Return a dataset from the columns of a CSV file.

    Parameters
    ----------
    path
        File whose first line names the columns, with one example per further line; it may be
        compressed (.gz, .bz2, .xz, .zip).
    label, target, features, owner, split, class_names, seed
        As in :func:`from_dataframe`. Texts such as NA are texts; only empty fields are missing.
    test, val
        Fraction of the rows to hold out, drawn in the class proportions, or the path of another
        file with the same columns.
    delimiter
        Character between fields.
    encoding
        Encoding of the text, as Python names it.
    name
        Label of the dataset; default: the name of the file without its ending.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    OSError
        If the file cannot be read.
    TypeError
        As :func:`from_dataframe`.
    ValueError
        If the file is empty, is not text in this encoding, has no line of names, or has a line with
        more fields than names; as :func:`from_dataframe`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "pets.csv")
    >>> _ = path.write_text("size,age,kind\n1.0,1,cat\n5.0,8,dog\n1.5,2,cat\n6.0,9,dog\n")
    >>> from_csv(path, label="kind", test=0.5)
    Dataset('pets', inputs=(4, 2), n_classes=2, train=2, val=0, test=2)
    """
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in "\n\r\"'":
        raise ValueError(
            f"`delimiter` must be one character other than a quotation mark, got {shown(delimiter)}"
        )
    codec = _codec(encoding)

    def of_file(key: str, value: Any) -> Table:
        return _of_frame(key, _read(key, value, delimiter, codec))

    table = of_file("path", path)
    name = Path(path).name.split(".")[0] if name is None else name
    roles = {"label": label, "target": target, "features": features, "owner": owner, "split": split}
    known = {"class_names": class_names, "name": name, "seed": seed}
    return dataset_of(table, roles, {"test": test, "val": val}, of_file, **known)


def _given(argument: str, frame: Any) -> Table:
    """Return a data frame of the caller as a table, or raise."""
    if not all(hasattr(frame, key) for key in ("columns", "__getitem__", "__len__")):
        raise TypeError(
            f"`{argument}` must be a data frame, got {shown(frame)} ({type(frame).__name__}); use "
            "data.from_arrays for arrays, or data.from_csv for a file"
        )
    check_columns(argument, frame.columns)
    return _of_frame(argument, frame)


def _of_frame(argument: str, frame: Any) -> Table:
    """Return a data frame with different columns as a table."""

    def read(column: Any) -> np.ndarray:
        values = frame[column].to_numpy()
        if values.dtype.kind != "M":
            return values
        return np.array([None if is_missing(value) else str(value) for value in values], object)

    return Table(argument, tuple(frame.columns), len(frame), read, _REMEDY)


def _codec(encoding: Any) -> str:
    """Return the name of an encoding; UTF-8 may begin with a byte order mark."""
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"`encoding` must be an encoding of Python, such as 'utf-8', 'latin-1' or 'utf-16', "
            f"got {shown(encoding)}"
        ) from error
    return "utf-8-sig" if name == "utf-8" else name


def _read(key: str, value: Any, delimiter: str, codec: str) -> Any:
    """Return a CSV file as a pandas data frame; the first line has the names of the columns."""
    import pandas as pd

    path = check_path(key, value, "file")
    if not path.exists():
        raise FileNotFoundError(f"`{key}` must be a CSV file, there is none at {path}")
    check_regular(path, key)
    plain = {"sep": delimiter, "encoding": codec, "keep_default_na": False}
    try:
        names = pd.read_csv(path, header=None, nrows=1, dtype=str, **plain).iloc[0].tolist()
        _check_names(key, path, names, delimiter)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                path,
                names=names,
                header=0,
                index_col=False,
                na_values=[""],
                low_memory=False,
                **plain,
            )
    except UnicodeError as error:
        raise ValueError(
            f"`{key}` must be text in the encoding {codec.removesuffix('-sig')}, got other bytes "
            f"in {path} ({error}); pass its encoding, such as encoding='latin-1' or 'utf-16'"
        ) from error
    except pd.errors.EmptyDataError as error:
        raise ValueError(
            f"`{key}` must have a line of column names and lines of values, got none in {path}"
        ) from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise ValueError(
            f"`{key}` must have as many fields in every line as there are column names in the "
            f"first, got {path} ({' '.join(str(error).split())}); mend that line, or pass delimiter"
        ) from error


def _check_names(key: str, path: Path, names: list[str], delimiter: str) -> None:
    """Raise ``ValueError`` unless the first line names columns, each once."""
    if all(is_number(name) for name in names):
        raise ValueError(
            f"`{key}` must begin with a line of column names, got {shown(names)} in {path}; add one"
        )
    empty = [place for place, name in enumerate(names) if not name.strip()]
    if empty:
        raise ValueError(
            f"`{key}` must name every column in its first line, the name of column {empty[0]} "
            f"(counted from 0) is empty in {path}; name it, or remove the column"
        )
    check_columns(key, names, f" in {path}")
    others = [other for other in ";\t|," if other != delimiter and other in names[0]]
    if len(names) == 1 and others:
        raise ValueError(
            f"`{key}` must have fields separated by {delimiter!r}, got the first line {names[0]!r} "
            f"in {path}; pass delimiter={others[0]!r}"
        )


_HUB_REMEDY = "turn it into numbers first by dataset.map, such as token ids by a tokenizer"


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
    seed: Seed = 0,
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
    splits = _splits(dataset, train)
    held_out = {"test": test, "val": val}
    if len(splits) > 1:
        for key, known in (("test", ["test"]), ("val", ["validation", "valid", "val", "dev"])):
            there = next((split for split in known if split in splits), None)
            held_out[key] = there if held_out[key] is None else held_out[key]
    source = _split_of("train", train, splits)
    classes = "label" if label is None and target is None else label
    table = _table("dataset", source, classes)
    if label is None and classes in table.columns:
        label = classes
    if label is not None:
        table.check_has("label", label)
        if class_names is None:
            class_names = getattr(source.features[label], "names", None)
    roles = {"label": label, "target": target, "features": features, "owner": owner, "split": split}
    return dataset_of(
        table,
        roles,
        held_out,
        lambda key, value: _table(key, _split_of(key, value, splits), classes),
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
    check_kind("train", train, str, "the name of a split", "e.g. 'train'")
    is_dataset = isinstance(getattr(dataset, "num_rows", None), int)
    return dict(dataset) if isinstance(dataset, Mapping) and not is_dataset else {train: dataset}


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
        remedy = "use data.from_arrays or data.from_torch for other data"
        if lacking == ["num_rows"] or "Iterable" in type(dataset).__name__:
            remedy = "load it without streaming=True"
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
            if column == label and any(cell == -1 for cell in cells if isinstance(cell, int)):
                raise ValueError(
                    f"`{argument}` must have labels, got -1 in column {label!r}, which means that "
                    "they are hidden; use another split, or a fraction such as test=0.2"
                )
            return cells
        feature = dataset.features[column]
        while getattr(feature, "feature", None) is not None:
            feature = feature.feature
        # The format "numpy" turns all integers into int64, pixels too.
        dtype = np.uint8 if getattr(feature, "dtype", None) == "uint8" else None
        return [np.asarray(cell, dtype) for cell in numeric[column]]

    return Table(argument, tuple(dataset.column_names), dataset.num_rows, read, _HUB_REMEDY)
