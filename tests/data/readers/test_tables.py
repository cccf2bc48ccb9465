"""Data frames and CSV files become datasets, and tables that cannot are refused by name and row."""

import gzip
import os

import numpy as np
import pandas as pd
import pytest
import torch

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
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoded))
        return data.from_csv(path, **{"label": "k", **arguments})

    return read


def frame(**columns):
    return pd.DataFrame({"a": [1.0, 2, 3, 4], "k": ["x", "y"] * 2, **columns})


def test_csv_columns_become_inputs_and_classes(csv):
    dataset = csv()
    assert dataset.inputs.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert dataset.inputs.dtype == torch.float32
    assert dataset.labels.tolist() == [0, 1, 0, 1]
    assert (dataset.class_names, dataset.name) == (("x", "y"), "pets")


@pytest.mark.parametrize(
    ("content", "encoded", "arguments"),
    [
        ("\ufeff" + CSV, "utf-8", {}),
        (CSV, "utf-16", {"encoding": "utf-16"}),
        (CSV, "latin-1", {"encoding": "ISO-8859-1"}),
        (CSV.replace(",", ";"), "utf-8", {"delimiter": ";"}),
        (CSV.replace(",", "\t"), "utf-8", {"delimiter": "\t"}),
        (CSV.replace("\n", "\r\n"), "utf-8", {}),
        (CSV.replace("\n", "\n\n") + "\n", "utf-8", {}),
        ('a,b,"k"\n1,"2",x\n3,4,"y"\n5,6,x\n7,8,y', "utf-8", {}),
    ],
    ids=["mark", "utf-16", "latin", "semicolon", "tab", "crlf", "blank lines", "quoted"],
)
def test_spellings_of_the_same_csv(csv, content, encoded, arguments):
    dataset = csv(content, encoded, **arguments)
    assert torch.equal(dataset.inputs, csv().inputs)
    assert dataset.class_names == ("x", "y")


def test_compressed_csv(tmp_path):
    path = tmp_path / "pets.csv.gz"
    path.write_bytes(gzip.compress(CSV.encode()))
    assert data.from_csv(path, label="k").labels.tolist() == [0, 1, 0, 1]


def test_text_that_pandas_takes_for_missing_is_text(csv):
    assert csv("a,k\n1,NA\n2,null\n3,None\n").class_names == ("NA", "None", "null")


def test_whole_and_truth_labels(csv):
    assert csv("a,k\n1,2\n2,5\n").labels.tolist() == [2, 5]
    assert csv("a,k\n1,2\n2,5\n").class_names is None
    assert csv("a,k\n1,True\n2,False\n").class_names == ("False", "True")


def test_columns_by_role(csv):
    dataset = csv(SPLIT, split="s", owner="c")
    assert dataset.inputs.tolist() == [[1], [2], [3], [4]]
    assert [part.tolist() for part in (dataset.train, dataset.val, dataset.test)] == [
        [0, 1],
        [3],
        [2],
    ]
    assert dataset.owner_names == ("7", "9")
    assert dataset.owners.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("cells", [[0, 0, 1], [False, False, True], ["TRAIN", " training", "test"]])
def test_split_columns(cells):
    dataset = data.from_dataframe(frame().head(3).assign(s=cells), label="k", split="s")
    assert dataset.test.tolist() == [2]
    assert dataset.train.tolist() == [0, 1]


def test_targets():
    table = frame(t=[1, 2, 3, 5], u=[0.5, 0, 0, 1])
    one = data.from_dataframe(table, target="t", features="a", test=0.25)
    assert one.targets.tolist() == [1, 2, 3, 5]
    assert one.targets.dtype == torch.float32
    assert one.class_names is None
    two = data.from_dataframe(table, target=["u", "t"], label="k")
    assert two.targets.tolist() == [[0.5, 1], [0, 2], [0, 3], [1, 5]]
    assert two.inputs.tolist() == [[1], [2], [3], [4]]
    assert two.class_names == ("x", "y")


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
    other = data.from_dataframe(frame(), label="k", test=frame().tail(1))
    assert other.test.tolist() == [4]


def test_columns_of_pandas_types():
    dataset = data.from_dataframe(
        pd.DataFrame(
            {
                "whole": pd.array([1, 2], "Int64"),
                "truth": [True, False],
                "k": pd.Categorical(["y", "x"], categories=["y", "x", "unused"]),
            }
        ),
        label="k",
    )
    assert dataset.inputs.tolist() == [[1, 1], [2, 0]]
    assert dataset.class_names == ("x", "y")
    arrays = data.from_dataframe(frame(a=[np.full((2, 3), k) for k in range(4)]), label="k")
    assert arrays.inputs.shape == (4, 2, 3)
    assert arrays.inputs.dtype == torch.int64
    numbers = data.from_dataframe(pd.DataFrame({0: [1, 2], 1: [0, 1]}), label=1)
    assert numbers.inputs.tolist() == [[1], [2]]


def test_frames_of_other_libraries_need_columns_and_to_numpy():
    class Column(list):
        def to_numpy(self):
            return np.array(self)

    class Frame(dict):
        @property
        def columns(self):
            return list(self)

        def __len__(self):
            return 4

    table = Frame(a=Column([1.0, 2, 3, 4]), k=Column(["x", "y", "x", "y"]))
    assert data.from_dataframe(table, label="k").class_names == ("x", "y")


CASES = {
    "misspelled": (CSV, {"label": "kk"}, "`label` must be a column of `path`, .* mean 'k'"),
    "case": (
        CSV,
        {"label": " K"},
        "`label` must be a column of `path`, got ' K'; did you mean 'k'",
    ),
    "unknown": (CSV, {"label": "zzz"}, r"got 'zzz'; there are \['a', 'b', 'k'\]"),
    "neither": (CSV, {"label": None}, r"`label` must be the column .* the columns are \['a', 'b'"),
    "feature": (CSV, {"features": ["a", "B"]}, "`features` must be a column .* did you mean 'b'"),
    "leak": (CSV, {"features": ["a", "k"]}, "`features` must not contain what models predict"),
    "none": (CSV, {"features": []}, "`features` must be columns, each once"),
    "twice": (CSV, {"features": ["a", "a"]}, "`features` must be columns, each once"),
    "no features": ("k\nx\ny\n", {}, r"must have a column of features in addition to \['k'\]"),
    "empty file": ("", {}, "`path` must have a line of column names and lines of values"),
    "empty table": ("a,k\n", {}, "`path` must have at least one row, got none"),
    "no names": (
        "1,2\n3,4\n",
        {},
        "`path` must begin with a line of column names, got .*; add one",
    ),
    "no name": ("a,,k\n1,2,x\n", {}, "the name of column 1 .* is empty"),
    "same names": (
        "a,a,k\n1,2,x\n",
        {},
        "`path` must have columns of different names, got 'a' 2 times in .*pets.csv; rename",
    ),
    "wide": (CSV + "1,2,x,4\n", {}, "as many fields in every line .* line 6, saw 4"),
    "all wide": ("a,k\n1,x,3\n2,y,4\n", {}, "as many fields in every line"),
    "open quote": ('a,k\n1,"x\n', {}, "as many fields in every line .* EOF inside string"),
    "semicolons": (CSV.replace(",", ";"), {}, "separated by ',', .*; pass delimiter=';'"),
    "latin": (CSV.replace("y", "é").encode("latin-1"), {}, "encoding utf-8, .* 0xe9 .*'latin-1'"),
    "utf-16": (CSV.encode("utf-16"), {}, "encoding utf-8, .* 'utf-16'"),
    "codec": (CSV, {"encoding": "utf9"}, "`encoding` must be an encoding of Python"),
    "delimiter": (CSV, {"delimiter": "ab"}, "`delimiter` must be one character"),
    "words": ("a,k\n1,x\nu,x\nv,y\n", {}, r"column 'a' \(such as 'u' in row 1\); mend that cell"),
    "all words": ("a,b,k\n1,u,x\n1,v,y\n", {}, r"such as 'u' .* features=\['a'\], .*get_dummies"),
    "gap": ("a,k\n1,x\n,y\n3,x\n,y\n", {}, "column 'a' has nan in rows 1, 3; drop these rows"),
    "no label": ("a,k\n1,x\n2,\n3,y\n", {}, r"column 'k' has none \(empty or NaN\) in row 1; drop"),
    "infinite": ("a,k\n1,x\ninf,y\n", {}, "finite number .* column 'a' has inf in row 1"),
    "overflow": ("a,k\n1,x\n1e300,y\n", {}, r"column 'a' has 1e\+300 in row 1"),
    "text": (CSV, {"label": "a", "features": None}, r"str in column 'k' \(such as 'x' in row 0\)"),
    "one text": (
        "a,k\n1,x\n2,x\noh,y\n",
        {},
        r"column 'a' \(such as 'oh' in row 2\); mend that cell$",
    ),
    "floats": ("a,k\n1,1.5\n2,2\n", {}, "`label` must be a column of texts .* pass target='k'"),
    "negative": ("a,k\n1,-1\n2,1\n", {}, "`label` must be non-negative"),
    "constant": ("a,k\n1,x\n2,x\n", {}, "at least two classes, column 'k' has 'x' in all 2 rows"),
    "spaces": ("a,k\n1,x\n2,x \n", {}, "`label` must differ in more than spaces"),
    "constant target": ("a,t\n1,2\n3,2\n", {"label": None, "target": "t"}, "`target` must vary"),
    "text target": (CSV, {"label": None, "target": "k"}, "column 'k' .* text as `label`"),
    "both splits": (SPLIT, {"split": "s", "test": 0.2}, "`split` must be given without `test`"),
    "odd split": (SPLIT, {"split": "a"}, "True for test, got 2 in rows 1, 2, 3 of column 'a'"),
    "typo": (SPLIT.replace("valid", "tset"), {"split": "s"}, "'tset' in row 3 .* mean 'test'"),
    "unseen": (
        "a,k,s\n1,x,0\n2,y,0\n3,z,1\n",
        {"split": "s"},
        r"training examples of every class, got class 'z' .* \(example 2\)",
    ),
    "drawn": ("a,k\n1,x\n2,y\n", {"test": 0.5}, "`label` must have training examples of every"),
    "fraction": (CSV, {"test": 1.0}, r"`test` must be in \[0, 1\)"),
    "owners": ("a,k,c\n1,x,n\n2,y,\n", {"owner": "c"}, "column 'c' has none .* row 1"),
    "names": (CSV, {"class_names": ["x", "z"]}, "`label` must be one of the 2 classes"),
    "test file": (CSV, {"test": "nowhere.csv"}, "`test` must be a CSV file, there is none"),
}


@pytest.mark.parametrize("case", list(CASES))
def test_csv_refuses(csv, case):
    content, arguments, match = CASES[case]
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=match):
        csv(content, **arguments)


def test_names_of_columns_are_compared_once_per_table(csv, monkeypatch):
    compared = []
    monkeypatch.setattr(
        "topofl.data.readers._table.repeated", lambda names: compared.append(list(names))
    )
    csv()
    data.from_dataframe(frame(), label="k", test=frame(), features="a")
    assert compared == [["a", "b", "k"], ["a", "k"], ["a", "k"]]


@pytest.mark.parametrize(
    ("table", "arguments", "match"),
    [
        (np.eye(2), {}, "`frame` must be a data frame, got array.* data.from_arrays"),
        ({"a": [1]}, {}, "`frame` must be a data frame, got"),
        (pd.DataFrame([[1, 2, "x"]], columns=["a", "a", "k"]), {}, "different names, got 'a' 2"),
        (frame(k=["x", 1, "x", 1]), {}, r"`label` must be of one type, .* row 0 and int \(1\) in"),
        (frame(k=[["x"]] * 4), {}, "`label` must be integers or hashable"),
        (frame(a=["1", "2", "3", "4"]), {}, r"str in column 'a' \(such as '1' in row 0\); turn"),
        (frame(a=pd.to_datetime(["2020"] * 4)), {}, "str in column 'a' .*such as '2020-01-01"),
        (frame(a=pd.array([1, None, 2, 3], "Int64")), {}, "column 'a' has .* in row 1"),
        (frame(a=[[1], [1, 2], [1], [1]]), {}, r"one shape in column 'a', got \(1,\) in row 0 and"),
        (frame(a=[[1], [float("nan")], [1], [1]]), {}, "finite numbers in column 'a', row 1"),
        (frame(a=[["u"]] * 4), {}, "arrays of numbers in column 'a'"),
        (frame(b=[[1]] * 4), {}, "`features` must be a single column of images or arrays"),
        (frame().assign(k=["x", "y", "x", None]), {}, "column 'k' has none .* in row 3"),
        (frame(), {"test": frame(k=["z"] * 4)}, "got class 'z' in held-out examples only"),
        (frame(), {"test": frame().drop(columns="a")}, "`features` must be a column of `test`"),
        (frame(), {"test": "pets.csv"}, "`test` must be a data frame, got 'pets.csv'"),
    ],
)
def test_frames_are_refused(table, arguments, match):
    with pytest.raises((ValueError, TypeError), match=match):
        data.from_dataframe(table, label="k", **arguments)


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


def test_experiments_name_csv_files(pets):
    experiment = config.load("pets.toml")
    clients = experiment.clients
    assert clients.class_names == ("bird", "cat", "dog")
    table = pd.read_csv("pets.csv")
    assert clients.sizes.tolist() == [
        (table.clinic == name).sum() for name in ("west", "north", "south", "east")
    ]
    assert experiment.tables["data"]["path"] == os.path.abspath("pets.csv")
    assert experiment.tables["data"]["test"] == os.path.abspath("later.csv")
    again = config.build(experiment.tables)
    assert again.tables == experiment.tables
    assert experiment.run(progress=False).last("accuracy").mean() > 0.9


def test_stored_runs_are_found_where_the_file_was_moved(pets):
    """The hash of the contents stands for the file; other columns make another run."""
    tables = config.load("pets.toml").tables
    elsewhere = {**tables, "data": {**tables["data"], "path": "/elsewhere/pets.csv"}}
    other = {**tables, "data": {**tables["data"], "features": ["weight"]}}
    keys = [key_of(found, "digest") for found in (tables, elsewhere, other)]
    assert keys[0] == keys[1] != keys[2]


def test_topofl_run_reads_csv_files_and_names_what_is_wrong(pets, capsys):
    assert main(["run", "pets.toml", "--set", "run.rounds=2"]) == 0
    assert (pets / "runs" / "pets" / "config.toml").exists()
    capsys.readouterr()
    assert main(["run", "pets.toml", "--set", "data.label=kinds", "--out", "other"]) != 0
    assert "[data] `label` must be a column of `path`, got 'kinds'; did you" in (
        capsys.readouterr().err
    )
