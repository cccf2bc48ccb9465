"""Datasets of the package ``datasets``, by a stand-in for it, and by the package if it is there.

The package takes 200 MB, so the tests do not require it: :class:`Rows` has the attributes that the
reader uses, with the same behavior. All tests pass with the package's own classes, too.
"""

import importlib.util
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from topofl import config, data

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (12, 8, 6), dtype=np.uint8)
TOKENS = RNG.integers(0, 50, (12, 5))


class Feature:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Rows:
    """Columns of cells, as ``datasets.Dataset``."""

    def __init__(self, columns, features=None, kind=None):
        self.columns, self.kind = columns, kind
        self.features = {name: Feature(dtype=None) for name in columns} | (features or {})

    @property
    def column_names(self):
        return list(self.columns)

    @property
    def num_rows(self):
        return len(next(iter(self.columns.values())))

    def __len__(self):
        return self.num_rows

    def with_format(self, kind):
        return Rows(self.columns, self.features, kind)

    def __getitem__(self, column):
        cells = self.columns[column]
        if self.kind == "numpy":  # as the formatter: integers become int64
            return [
                np.asarray(cell).astype(np.int64)
                if isinstance(cell, list) and np.asarray(cell).dtype.kind in "iu"
                else np.asarray(cell)
                for cell in cells
            ]
        return list(cells)


class Splits(dict):
    """``datasets.DatasetDict``, whose attributes are dictionaries."""

    @property
    def num_rows(self):
        return {name: rows.num_rows for name, rows in self.items()}

    @property
    def column_names(self):
        return {name: rows.column_names for name, rows in self.items()}


def stand_in(columns, names=None, kinds=None):
    features = {} if names is None else {"label": Feature(names=names, dtype="int64")}
    features |= {key: Feature(dtype=kind) for key, kind in (kinds or {}).items()}
    return Rows(columns, features)


def genuine(columns, names=None, kinds=None):
    import datasets

    rows = datasets.Dataset.from_dict(columns)
    if names is not None:
        rows = rows.cast_column("label", datasets.ClassLabel(names=names))
    for key, kind in (kinds or {}).items():
        rows = rows.cast_column(key, datasets.Array2D((2, 3), kind))
    return rows


HAS = importlib.util.find_spec("datasets") is not None


@pytest.fixture(params=["stand-in", *["datasets"] * HAS])
def rows(request):
    """Return a function that makes a dataset of columns."""
    return stand_in if request.param == "stand-in" else genuine


@pytest.fixture(params=["stand-in", *["datasets"] * HAS])
def both(request):
    """Return functions that make a dataset and a dictionary of splits."""
    if request.param == "stand-in":
        return stand_in, Splits
    import datasets

    return genuine, datasets.DatasetDict


def gray(size=12):
    return [Image.fromarray(pixels) for pixels in PIXELS[:size]]


def test_images_and_names_of_classes(rows):
    found = rows({"image": gray(), "label": [0, 1, 2] * 4}, names=["cat", "dog", "owl"])
    dataset = data.from_huggingface(found, test=0.25, mean=0.5, std=0.5)
    assert dataset.inputs.dtype == torch.uint8
    assert np.array_equal(dataset.inputs, PIXELS[:, None])
    assert dataset.class_names == ("cat", "dog", "owl")
    assert (len(dataset.test), dataset.mean) == (3, 0.5)


def test_colors_and_gray_images_together_have_three_channels(rows):
    colors = RNG.integers(0, 256, (8, 6, 3), dtype=np.uint8)
    images = [gray(1)[0], Image.fromarray(colors), gray(2)[1].convert("RGBA")]
    dataset = data.from_huggingface(rows({"image": images, "label": [0, 1, 1]}))
    assert dataset.inputs.shape == (3, 3, 8, 6)
    assert np.array_equal(dataset.inputs[1], colors.transpose(2, 0, 1))
    assert np.array_equal(dataset.inputs[2], np.stack([PIXELS[1]] * 3))


def test_token_ids_stay_integers_and_pixels_bytes(rows):
    columns = {"ids": TOKENS.tolist(), "label": ["b", "a"] * 6, "who": ["u", "v", "w"] * 4}
    dataset = data.from_huggingface(rows(columns), owner="who")
    assert dataset.inputs.dtype == torch.int64
    assert np.array_equal(dataset.inputs, TOKENS)
    assert (dataset.class_names, dataset.owner_names) == (("a", "b"), ("u", "v", "w"))
    values = PIXELS[:, :2, :3]
    arrays = rows({"x": values.tolist(), "label": [0, 1] * 6}, kinds={"x": "uint8"})
    pixels = data.from_huggingface(arrays)
    assert pixels.inputs.dtype == torch.uint8
    assert np.array_equal(pixels.inputs, values)


def test_columns_of_numbers_and_targets(rows):
    columns = {"a": [1.0, 2.0, 3.0, 4.0], "b": [1, 2, 3, 4], "y": [0.5, 1.0, 0.0, -1.0]}
    dataset = data.from_huggingface(rows(columns), target="y", test=0.25, name="four")
    assert dataset.inputs.tolist() == [[1, 1], [2, 2], [3, 3], [4, 4]]
    assert dataset.targets.tolist() == [0.5, 1, 0, -1]
    assert dataset.name == "four"


def test_splits(both):
    rows, splits = both
    train = rows({"a": [1.0, 2, 3, 4], "label": [0, 1, 0, 1]})
    held = rows({"a": [5.0, 6], "label": [0, 1]})
    dataset = data.from_huggingface(splits(train=train, test=held, validation=held))
    parts = (dataset.train, dataset.val, dataset.test)
    assert sorted(len(part) for part in parts) == [2, 2, 4]
    assert dataset.inputs[torch.tensor(dataset.test)].tolist() == [[5], [6]]
    without = data.from_huggingface(splits(train=train, unsupervised=held), val=0.5)
    assert [len(part) for part in (without.train, without.val, without.test)] == [2, 2, 0]
    named = data.from_huggingface(splits(a=train, b=held), train="a", test="b")
    assert named.inputs.flatten().tolist() == [1, 2, 3, 4, 5, 6]
    for arguments, match in [
        ({"test": "tset"}, "`test` must be one of the splits .*, or a fraction, .* mean 'test'"),
        ({"train": "all"}, r"`train` must be one of the splits \['train', 'test'\], got 'all'"),
    ]:
        with pytest.raises(ValueError, match=match):
            data.from_huggingface(splits(train=train, test=held), **arguments)


def test_every_column_is_read_once(monkeypatch):
    read, cells_of = [], Rows.__getitem__
    monkeypatch.setattr(
        Rows, "__getitem__", lambda self, column: read.append(column) or cells_of(self, column)
    )
    train, held = ({"a": [1.0, 2.0], "label": [0, 1]} for _ in range(2))
    data.from_huggingface(Splits(train=stand_in(train), test=stand_in(held)))
    assert sorted(read) == ["a", "a", "label", "label"]


def test_hidden_labels_of_held_out_examples_are_refused(both):
    rows, splits = both
    train, held = ({"a": [1.0, 2.0], "y": labels} for labels in ([0, 1], [-1, -1]))
    with pytest.raises(ValueError, match="`test` must have labels, got -1 in column 'y'"):
        data.from_huggingface(splits(train=rows(train), test=rows(held)), label="y")


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"text": ["hi", "yo"], "label": [0, 1]}, "str in column 'text' .* by a tokenizer"),
        ({"a": [1.0, None], "label": [0, 1]}, "column 'a' has .* row 1"),
        ({"a": [1.0, 2.0], "label": [0, -1]}, "-1 in column 'label', which means .* hidden"),
        ({"a": [1.0, 2.0], "kind": [0, 1]}, "`label` must be the column with the classes"),
        ({"a": [1.0, 2.0], "label": ["x", None]}, "column 'label' has none .* row 1"),
        ({"a": [[1, 2], [1]], "label": [0, 1]}, r"one shape in column 'a', .* row 1; pad or cut"),
        ({"a": [1.0, 2.0], "label": [0, 0]}, "`label` must have at least two classes"),
        (
            {"image": [gray()[0], gray()[1].resize((3, 3))], "label": [0, 1]},
            r"one shape in column 'image', .*\(1, 3, 3\) in row 1; resize",
        ),
        ({"image": gray(2), "id": [1, 2], "label": [0, 1]}, "pass features='image'"),
    ],
)
def test_refuses(rows, columns, match):
    with pytest.raises((ValueError, TypeError), match=match):
        data.from_huggingface(rows(columns))


def test_refuses_what_is_no_dataset(tmp_path):
    class IterableDataset:
        column_names = features = with_format = "there"

    for value, error, match in [
        (IterableDataset(), TypeError, "got IterableDataset; load it without streaming=True"),
        (
            np.eye(2),
            TypeError,
            "must be a Dataset or DatasetDict .* got ndarray; use data.from_arr",
        ),
        ("mnist", FileNotFoundError, "there is none at mnist; load a dataset of the Hub first"),
        ({}, ValueError, "`train` must be one of the splits"),
    ]:
        with pytest.raises(error, match=match):
            data.from_huggingface(value)
    undecoded = stand_in({"image": [{"bytes": b"", "path": None}] * 2, "label": [0, 1]})
    with pytest.raises(TypeError, match="decoded images in column 'image', got files; pass"):
        data.from_huggingface(undecoded)


def test_folders_are_read_by_the_package(tmp_path, monkeypatch):
    """The package reads folders; without it, the error says what to install."""
    saved = stand_in({"a": [1.0, 2, 3, 4], "label": [0, 1, 0, 1]}, names=["cat", "dog"])
    folder = tmp_path / "pets"
    folder.mkdir()
    read = []
    module = Feature(load_from_disk=lambda path: read.append(path) or saved)
    monkeypatch.setitem(sys.modules, "datasets", module)
    dataset = data.from_huggingface(folder, test=0.5)
    assert (dataset.name, dataset.class_names) == ("pets", ("cat", "dog"))
    assert read == [str(folder)]
    monkeypatch.chdir(tmp_path)
    tables = {
        "data": {"name": "from_huggingface", "dataset": "pets", "n": 2, "per_node": 1, "test": 0.5},
        "topology": "ring",
        "algorithm": {"name": "dsgd", "lr": 0.1},
        "run": {"rounds": 1, "seed": 0},
    }
    experiment = config.build(tables | {"topology": "fully_connected"})
    assert experiment.tables["data"]["dataset"] == str(folder)
    assert experiment.clients.class_names == ("cat", "dog")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match="pip install datasets"):
        data.from_huggingface(folder)


@pytest.mark.skipif(not HAS, reason="the package datasets is not installed")
def test_folders_of_the_package(tmp_path):
    found = genuine({"image": gray(), "label": [0, 1] * 6}, names=["cat", "dog"])
    found.save_to_disk(tmp_path / "pets")
    dataset = data.from_huggingface(tmp_path / "pets", test=0.25)
    assert np.array_equal(dataset.inputs, PIXELS[:, None])
    assert dataset.class_names == ("cat", "dog")
    with pytest.raises(FileNotFoundError, match="must be a folder that save_to_disk made"):
        data.from_huggingface(tmp_path)
