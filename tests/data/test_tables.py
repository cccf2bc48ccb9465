"""Data frames, CSV files and datasets of the package ``datasets`` become datasets.

That package takes 200 MB, so the tests do not require it: :class:`Rows` has the attributes that the
reader uses, with the same behavior. All tests pass with the package's own classes, too.
"""

import gzip
import importlib
import importlib.util
import os
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from topofl import config, data
from topofl.cli import main
from topofl.runs.identity import key_of

CSV = "a,b,k\n1,2,x\n3,4,y\n5,6,x\n7,8,y\n"
SPLIT = "a,k,s,c\n1,x,Train,7\n2,y,train,9\n3,x,test,7\n4,y,valid,9\n"


@pytest.fixture
def csv(tmp_path):
    """Return a function that writes a file and reads it."""

    def read(content=CSV, encoded="utf-8", **arguments):
        path = tmp_path / "pets.csv"
        path.write_text(content, encoded, newline="")
        return data.from_csv(path, **{"label": "k", **arguments})

    return read


def frame(**columns):
    return pd.DataFrame({"a": [1.0, 2, 3, 4], "k": ["x", "y"] * 2, **columns})


def parts(dataset):
    return [part.tolist() for part in (dataset.train, dataset.val, dataset.test)]


@pytest.mark.parametrize(
    ("content", "encoded", "arguments"),
    [
        (CSV, "utf-8", {}),
        ("\ufeff" + CSV, "utf-8", {}),
        (CSV, "utf-16", {"encoding": "utf-16"}),
        (CSV, "latin-1", {"encoding": "ISO-8859-1"}),
        (CSV.replace(",", ";"), "utf-8", {"delimiter": ";"}),
        (CSV.replace(",", "\t"), "utf-8", {"delimiter": "\t"}),
        (CSV.replace("\n", "\r\n"), "utf-8", {}),
        (CSV.replace("\n", "\n\n") + "\n", "utf-8", {}),
        ('a,b,"k"\n1,"2",x\n3,4,"y"\n5,6,x\n7,8,y', "utf-8", {}),
    ],
    ids=["plain", "mark", "16", "latin", "semicolon", "tab", "crlf", "blank lines", "quoted"],
)
def test_csv_columns_become_inputs_and_classes(csv, content, encoded, arguments):
    dataset = csv(content, encoded, **arguments)
    assert dataset.inputs.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert dataset.inputs.dtype == torch.float32
    assert dataset.labels.tolist() == [0, 1, 0, 1]
    assert (dataset.class_names, dataset.name) == (("x", "y"), "pets")


def test_compressed_csv(tmp_path):
    path = tmp_path / "pets.csv.gz"
    path.write_bytes(gzip.compress(CSV.encode()))
    assert data.from_csv(path, label="k").labels.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("cells", "labels", "names"),
    [
        (("NA", "null", "None"), [0, 2, 1], ("NA", "None", "null")),  # text, not missing
        ((2, 5), [2, 5], None),
        ((True, False), [1, 0], ("False", "True")),
    ],
)
def test_labels_of_csv_files(csv, cells, labels, names):
    dataset = csv("a,k\n" + "".join(f"{k},{cell}\n" for k, cell in enumerate(cells)))
    assert (dataset.labels.tolist(), dataset.class_names) == (labels, names)


def test_columns_by_role(csv):
    dataset = csv(SPLIT, split="s", owner="c")
    assert dataset.inputs.tolist() == [[1], [2], [3], [4]]
    assert parts(dataset) == [[0, 1], [3], [2]]
    assert (dataset.owner_names, dataset.owners.tolist()) == (("7", "9"), [0, 1, 0, 1])


@pytest.mark.parametrize("cells", [[0, 0, 1], [False, False, True], ["TRAIN", " training", "test"]])
def test_split_columns(cells):
    dataset = data.from_dataframe(frame().head(3).assign(s=cells), label="k", split="s")
    assert parts(dataset) == [[0, 1], [], [2]]


def test_targets():
    table = frame(t=[1, 2, 3, 5], u=[0.5, 0, 0, 1])
    one = data.from_dataframe(table, target="t", features="a", test=0.25)
    assert (one.targets.dtype, one.targets.tolist()) == (torch.float32, [1, 2, 3, 5])
    assert one.class_names is None
    two = data.from_dataframe(table, target=["u", "t"], label="k")
    assert two.targets.tolist() == [[0.5, 1], [0, 2], [0, 3], [1, 5]]
    assert (two.inputs.tolist(), two.class_names) == ([[1], [2], [3], [4]], ("x", "y"))


def test_fractions_are_drawn_with_the_seed_in_class_proportions():
    table = pd.DataFrame({"a": np.arange(60.0), "k": ["x", "y", "y"] * 20})
    drawn = [data.from_dataframe(table, label="k", test=0.2, seed=seed) for seed in (0, 0, 1)]
    assert drawn[0].test.tolist() == drawn[1].test.tolist() != drawn[2].test.tolist()
    assert np.bincount(drawn[0].labels[torch.tensor(drawn[0].test)]).tolist() == [4, 8]


def test_tables_that_are_held_out(tmp_path, csv):
    (tmp_path / "test.csv").write_text("k,b,a\ny,9,8\n")
    dataset = csv(test=tmp_path / "test.csv", val=0.25)
    assert dataset.inputs[4].tolist() == [8, 9]
    assert (dataset.test.tolist(), len(dataset.val), len(dataset.train)) == ([4], 1, 3)
    assert dataset.labels.tolist() == [0, 1, 0, 1, 1]
    assert data.from_dataframe(frame(), label="k", test=frame().tail(1)).test.tolist() == [4]


def test_columns_of_pandas_types():
    kinds = pd.Categorical(["y", "x"], categories=["y", "x", "unused"])
    table = {"whole": pd.array([1, 2], "Int64"), "truth": [True, False], "k": kinds}
    dataset = data.from_dataframe(pd.DataFrame(table), label="k")
    assert (dataset.inputs.tolist(), dataset.class_names) == ([[1, 1], [2, 0]], ("x", "y"))
    arrays = data.from_dataframe(frame(a=[np.full((2, 3), k) for k in range(4)]), label="k")
    assert (arrays.inputs.shape, arrays.inputs.dtype) == ((4, 2, 3), torch.int64)
    numbers = data.from_dataframe(pd.DataFrame({0: [1, 2], 1: [0, 1]}), label=1)
    assert numbers.inputs.tolist() == [[1], [2]]


def test_frames_of_other_libraries_need_columns_and_to_numpy():
    class Column(list):
        def to_numpy(self):
            return np.array(self)

    class Frame(dict):
        columns = ("a", "k")

        def __len__(self):
            return 4

    table = Frame(a=Column([1.0, 2, 3, 4]), k=Column(["x", "y", "x", "y"]))
    assert data.from_dataframe(table, label="k").class_names == ("x", "y")


def test_names_of_columns_are_compared_once_per_table(csv, monkeypatch):
    compared = []
    monkeypatch.setattr(
        "topofl.data.readers._table.repeated", lambda names: compared.append(list(names))
    )
    csv()
    data.from_dataframe(frame(), label="k", test=frame(), features="a")
    assert compared == [["a", "b", "k"], ["a", "k"], ["a", "k"]]


TOML = """
topology = "ring"
algorithm = "dsgd,lr=0.5"

[data]
name = "from_csv"
path = "pets.csv"
label = "kind"
owner = "clinic"
test = "later.csv"
partition = "natural"
owners = ["west", "north", "south", "east"]
min_size = 1

[run]
rounds = 20
seed = 0
"""


@pytest.fixture
def pets(tmp_path, monkeypatch):
    """Write an experiment and its data to the working folder."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, size in (("pets.csv", 240), ("later.csv", 60)):
        kind = rng.integers(0, 3, size)
        centers = np.array([[0, 3], [3, 0], [-3, -3]])[kind]
        table = pd.DataFrame(rng.normal(size=(size, 2)) + centers, columns=["weight", "height"])
        table["kind"] = np.array(["bird", "cat", "dog"])[kind]
        table["clinic"] = rng.choice(["north", "south", "east", "west"], size)
        table.to_csv(tmp_path / name, index=False)
    (tmp_path / "pets.toml").write_text(TOML)
    return tmp_path


def test_experiments_name_csv_files_and_the_shell_says_what_is_wrong(pets, capsys):
    experiment = config.load("pets.toml")
    assert experiment.clients.class_names == ("bird", "cat", "dog")
    clinics = pd.read_csv("pets.csv").clinic.value_counts()
    sizes = clinics[["west", "north", "south", "east"]].tolist()
    assert experiment.clients.sizes.tolist() == sizes
    table = experiment.tables["data"]
    assert (table["path"], table["test"]) == tuple(map(os.path.abspath, ("pets.csv", "later.csv")))
    assert config.build(experiment.tables).tables == experiment.tables
    assert experiment.run(progress=False).last("accuracy").mean() > 0.9
    assert main(["run", "pets.toml", "--set", "run.rounds=2"]) == 0
    assert (pets / "runs" / "pets" / "config.toml").exists()
    capsys.readouterr()
    assert main(["run", "pets.toml", "--set", "data.label=kinds", "--out", "other"]) != 0
    wrong = "[data] `label` must be a column of `path`, got 'kinds'; did you"
    assert wrong in capsys.readouterr().err


def test_stored_runs_are_found_where_the_file_was_moved(pets):
    """The hash of the contents stands for the file; other columns make another run."""
    tables = config.load("pets.toml").tables
    changes = {}, {"path": "/elsewhere/pets.csv"}, {"features": ["weight"]}
    keys = [key_of(tables | {"data": tables["data"] | change}, "digest") for change in changes]
    assert keys[0] == keys[1] != keys[2]


# Datasets of the package

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (12, 8, 6), dtype=np.uint8)
TOKENS = RNG.integers(0, 50, (12, 5))


class Feature:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Rows:
    """Columns of cells, as ``datasets.Dataset``."""

    def __init__(self, columns, features=None, kind=None):
        self.columns, self.kind, self.column_names = columns, kind, list(columns)
        self.features = {name: Feature(dtype=None) for name in columns} | (features or {})
        self.num_rows = len(next(iter(columns.values())))

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


@pytest.fixture
def splits(rows):
    """Return a function that makes a dictionary of splits."""
    return Splits if rows is stand_in else importlib.import_module("datasets").DatasetDict


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


def test_splits(rows, splits):
    train = rows({"a": [1.0, 2, 3, 4], "label": [0, 1, 0, 1]})
    held = rows({"a": [5.0, 6], "label": [0, 1]})
    dataset = data.from_huggingface(splits(train=train, test=held, validation=held))
    assert sorted(map(len, parts(dataset))) == [2, 2, 4]
    assert dataset.inputs[torch.tensor(dataset.test)].tolist() == [[5], [6]]
    without = data.from_huggingface(splits(train=train, unsupervised=held), val=0.5)
    assert [*map(len, parts(without))] == [2, 2, 0]
    named = data.from_huggingface(splits(a=train, b=held), train="a", test="b")
    assert named.inputs.flatten().tolist() == [1, 2, 3, 4, 5, 6]
    hidden = rows({"a": [1.0, 2.0], "label": [-1, -1]})
    with pytest.raises(ValueError, match="`test` must have labels, got -1 in column 'label'"):
        data.from_huggingface(splits(train=train, test=hidden), label="label")


def test_every_column_is_read_once(monkeypatch):
    read, cells_of = [], Rows.__getitem__
    monkeypatch.setattr(
        Rows, "__getitem__", lambda self, column: read.append(column) or cells_of(self, column)
    )
    train, held = ({"a": [1.0, 2.0], "label": [0, 1]} for _ in range(2))
    data.from_huggingface(Splits(train=stand_in(train), test=stand_in(held)))
    assert sorted(read) == ["a", "a", "label", "label"]


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
    table = {"name": "from_huggingface", "dataset": "pets", "n": 2, "per_node": 1, "test": 0.5}
    tables = {"data": table, "algorithm": "local_only,lr=0.1", "run": {"rounds": 1, "seed": 0}}
    experiment = config.build(tables)
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
