"""Whatever is given works, or one message names what is wrong; users see no other error."""

import functools
import gzip
import inspect
import io
import json
import re
import shutil
import struct
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import topofl
from tests import problems
from topofl import algorithms, config, data, topologies
from topofl.cli import main

HUGE = 2**50
"""No machine has as much memory, so that what is this large is refused at once."""

numbers = st.sampled_from(
    [-1, 0, 1, 2, 3, HUGE, -HUGE, 10**30, 0.5, -0.5, 1e-300, 1e300, float("nan"), float("inf")]
)
words = st.sampled_from(
    [
        "",
        "auto",
        "test",
        "raise",
        "cpu",
        "cuda",
        "cuda:9",
        "float32",
        "`",
        "a\nb",
        "\0",
        "é",
        "ring",
    ]
)
plain = st.none() | st.booleans() | numbers | words
anything = plain | st.sampled_from(
    [
        *(
            [],
            [1],
            ["auto"],
            {},
            {"name": "ring"},
            (),
            {1},
            b"auto",
            1j,
            object(),
            range(3),
            slice(3),
        ),
        *(
            np.int64(2),
            np.float32(2),
            np.float64("nan"),
            np.bool_(True),
            np.str_("auto"),
            np.array([]),
            np.eye(2),
        ),
        *(
            torch.tensor(2),
            torch.ones(3),
            torch.float16,
            torch.int8,
            torch.float8_e4m3fn,
            torch.complex64,
        ),
        *(
            torch.device("cpu"),
            torch.device("meta"),
            torch.Size([1]),
            torch.nn.Flatten(),
            topologies.ring(5),
        ),
        *(problems.equal_clients(2), algorithms.local_only(lr=0.1), data.crop_and_flip(padding=2)),
    ]
)


def small_run():
    return {
        "algorithm": algorithms.dsgd(lr=0.1, batch_size=4),
        "model": problems.linear(),
        "clients": problems.equal_clients(),
        "topology": topologies.ring(6),
        "rounds": 2,
        "seed": 0,
        "progress": False,
    }


OPTIONS = {"evaluation": topofl.Evaluation, "compute": topofl.Compute}
OWN = {name: {field.name for field in fields(kind)} for name, kind in OPTIONS.items()}
ARGUMENTS = sorted(
    {*inspect.signature(topofl.run).parameters, *(name for own in OWN.values() for name in own)}
)


def ends(name, value):
    """Whether a run with this value ends: whoever asks for 2^50 rounds has to wait for them."""
    return name != "rounds" or not isinstance(value, int | float) or value < 10


def is_said_once(changed):
    """Whether no object is given both as a whole and by its own names."""
    return not any(name in changed and own & set(changed) for name, own in OWN.items())


changes = st.dictionaries(st.sampled_from(ARGUMENTS), anything, min_size=1, max_size=2)


@settings(max_examples=200)
@given(
    changes.filter(
        lambda changed: is_said_once(changed) and all(ends(*item) for item in changed.items())
    )
)
def test_run_runs_or_names_the_argument(tmp_path_factory, changed):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("run"))
        try:
            history = topofl.run(**problems.options(**(small_run() | changed)))
        except (ValueError, TypeError) as error:
            message = str(error)
        else:
            assert np.isfinite(history["train_loss"]).all()
            return
    assert re.search(r"`[a-z_.]+(\[.*\])?`", message), message


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize(
    "value", [object(), float("nan"), np.ones(3)], ids=["object", "nan", "array"]
)
def test_every_argument_of_run_is_checked_by_name(name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError), match=f"`{name}`"):
        topofl.run(**problems.options(**(small_run() | {name: value})))


# Configurations and specs

TABLES = {
    "data": {
        "name": "digits",
        "n": 6,
        "partition": "shards",
        "per_node": 2,
        "seed": 1,
        "split_seed": 0,
    },
    "topology": {"name": "dcliques", "clique_size": 3, "inter": "ring", "steps": 10, "seed": 2},
    "mixing": {"name": "metropolis_hastings"},
    "algorithm": {"name": "dsgd", "lr": 0.5, "batch_size": 8, "momentum": 0.5, "local_steps": 1},
    "model": {"name": "logistic_regression", "in_features": 64, "n_classes": 10},
    "run": {"rounds": 1, "seed": 3},
    "evaluation": {"every": 1},
    "compute": {"executor": "auto", "dtype": "float32", "device": "cpu"},
}
PATIENCE = ("rounds", "steps", "local_steps")
tables = st.sampled_from(list(TABLES))
keys = st.sampled_from(
    sorted(
        {key for table in TABLES.values() for key in table}
        | {"augment", "base", "spec", "chunk", "a b", ""}
    )
)
names = st.sampled_from(
    ["ring", "random_regular", "local_only", "centralized", "clique_averaging", "iid", "gn_lenet"]
)
values = st.recursive(
    plain | names,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
)


@st.composite
def configurations(draw):
    """Draw a valid configuration and edit it."""
    edited = {name: dict(table) for name, table in TABLES.items()}
    for _ in range(draw(st.integers(1, 2))):
        name, key, value = draw(tables), draw(keys), draw(values)
        match draw(
            st.sampled_from(["drop a table", "drop", "rename", "replace", "replace a table"])
        ):
            case "drop a table":
                edited.pop(name, None)
            case "replace a table":
                edited[name] = value
            case _ if not isinstance(edited.get(name), dict):
                pass
            case "drop":
                edited[name].pop(key, None)
            case "rename" if edited[name]:
                edited[name][key] = edited[name].pop(next(iter(edited[name])))
            case "replace":
                edited[name][draw(st.sampled_from([*TABLES[name], key]))] = value
    return edited


def quick(edited):
    return all(
        not isinstance(value, int | float) or value < 10
        for table in edited.values()
        if isinstance(table, dict)
        for key, value in table.items()
        if key in PATIENCE
    )


def toml(value):
    """Return a value as TOML, all keys in quotes."""
    if isinstance(value, dict):
        pairs = ", ".join(
            f"{json.dumps(key)} = {toml(entry)}"
            for key, entry in value.items()
            if entry is not None
        )
        return "{" + pairs + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(entry) for entry in value if entry is not None) + "]"
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)


def says_what_is_wrong(*argv):
    """Return a command's exit code and error, after checking that it has one line if it fails."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as err:
        code = main([str(word) for word in argv])
    errors = [line for line in err.getvalue().splitlines() if not line.startswith("topofl: note: ")]
    assert code in (0, 1, 2)
    assert len(errors) == (code != 0), err.getvalue()
    assert all(re.match("topofl: error: .{10}", line) for line in errors), errors
    return code, "".join(errors)


@settings(max_examples=80)
@given(configurations().filter(quick), st.booleans())
def test_configurations_run_or_say_what_is_wrong(tmp_path_factory, edited, dry):
    folder = tmp_path_factory.mktemp("config")
    lines = [f"{name} = {toml(table)}" for name, table in edited.items() if table is not None]
    (folder / "small.toml").write_text("\n".join(lines), encoding="utf-8")
    words = ["--dry-run"] if dry else ["--out", folder / "out", "--no-progress"]
    code, line = says_what_is_wrong("run", folder / "small.toml", *words)
    assert (folder / "out").exists() == (code == 0 and not dry)
    assert code != 2 or "small.toml" in line


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        (
            "model",
            {"n_classes": HUGE},
            "other sizes must give a model that fits into memory, but creating it failed: ",
        ),
        (
            "model",
            {"in_features": HUGE},
            "[model] `in_features`, `in_shape`, `n_classes` and other sizes must give",
        ),
        (
            "data",
            {"enlarge": HUGE},
            f"[data] `enlarge` must be small enough for images to fit into memory, got {HUGE}: ",
        ),
        ("data", {"name": "mnist", "root": 5}, "[data] `root` must be the path of a folder, got 5"),
        ("algorithm", {"lr": 1e300}, "small.toml: `lr` must be at most 3.4"),
        ("algorithm", {"lr": float("inf")}, "[algorithm] `lr` must be a finite number above 0"),
        ("compute", {"device": "meta"}, "[compute] `device` must be such as 'cpu'"),
        ("compute", {"device": "mps:7"}, "[compute] `device` must be"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_values_that_no_machine_can_use(tmp_path, monkeypatch, table, change, message, dry):
    monkeypatch.chdir(tmp_path)
    changed = TABLES | {table: TABLES[table] | change}
    (tmp_path / "small.toml").write_text(config.dumps(changed))
    code, line = says_what_is_wrong("run", "small.toml", *dry)
    assert code == 2
    assert message in line


TEXT = config.dumps(TABLES)


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(TEXT)), st.integers(0, 3), st.sampled_from(list('[]{}"=,.#-0a\n\0é'))
        ),
        max_size=3,
    )
)
def test_damaged_text_says_what_is_wrong(tmp_path_factory, edits):
    text = TEXT
    for place, cut, letter in edits:
        text = text[:place] + letter + text[place + cut :]
    if re.search(r"(rounds|steps) = \d{3}", text):
        return
    path = tmp_path_factory.mktemp("text") / "small.toml"
    path.write_text(text, encoding="utf-8")
    code, line = says_what_is_wrong("run", path, "--dry-run")
    assert code != 2 or "small.toml" in line


SPECS = (
    *(
        "ring:8",
        "torus:9,rows=3",
        "tree:7,branching=2",
        "random_regular:8,k=3,seed=0",
        "dcliques:6,clique_size=3,seed=0",
    ),
    *(
        "exponential:8",
        "one_peer_exponential:8",
        "small_world:8,k=4,p=0.1,seed=0",
        "star:[5]",
        "ring:8,n=true",
    ),
    *(
        "link_failures,base=(torus:9),fail=0.1,recover=0.5,seed=0",
        "participation,base=ring:8,fraction=0.5,seed=0",
    ),
)
edits = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 2), st.sampled_from(list(":,=()[]-0.e n"))),
    max_size=3,
)


@settings(max_examples=60)
@given(
    st.sampled_from(SPECS),
    edits,
    st.sampled_from([[], ["--about", "structure"], ["--rounds", "0"], ["--seed", "-1"]]),
)
def test_specs_are_compared_or_say_what_is_wrong(spec, edits, words):
    for place, cut, letter in edits:
        spec = spec[:place] + letter + spec[place + cut :]
    if not re.search(r"\d{3}|e\d", spec):
        says_what_is_wrong("spectral", *words, "--rounds=5", "--", spec)


# Files


@st.composite
def damages(draw, places=2000):
    """Draw a change of a file: cut off, changed in places, replaced, or no file any more."""
    kind = draw(
        st.sampled_from(
            ["cut", "patch", "patch", "patch", "replace", "append", "folder", "link", "zeros"]
        )
    )
    place, patch = draw(st.integers(0, places)), draw(st.binary(min_size=1, max_size=4))
    odd = draw(
        st.sampled_from(
            [
                b"",
                b"\0",
                b"\x1f\x8b",
                b"\x1f\x8b\x08" + bytes(30),
                b"PK\x03\x04",
                b"{}",
                b"\x80\x04.",
            ]
        )
    )

    def change(path):
        content = path.read_bytes()
        if kind in ("folder", "link"):
            path.unlink()
            path.mkdir() if kind == "folder" else path.symlink_to(path.name)
            return
        path.write_bytes(
            {
                "cut": content[: place % (len(content) + 1)],
                "patch": content[: place % len(content)]
                + patch
                + content[place % len(content) + len(patch) :],
                "replace": odd,
                "append": content + patch,
                "zeros": bytes(len(content)),
            }[kind]
        )

    return change


def idx(array):
    return b"\0\0\x08" + struct.pack(f">B{array.ndim}I", array.ndim, *array.shape) + array.tobytes()


def save_mnist(folder, pack):
    rng = np.random.default_rng(0)
    for part, size in (("train", 20), ("t10k", 10)):
        labels = (np.arange(size) % 10).astype(np.uint8)
        images = rng.integers(0, 256, (size, 4, 4)).astype(np.uint8)
        for array, kind in ((images, "images-idx3"), (labels, "labels-idx1")):
            (folder / f"{part}-{kind}-ubyte{'.gz' if pack is gzip.compress else ''}").write_bytes(
                pack(idx(array))
            )
    return lambda: data.mnist(folder, val=0, verify=False)


def save_cifar(kind, width):
    def save(folder, pack):
        rng = np.random.default_rng(0)
        count, names = (
            (10, [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"])
            if kind == "10"
            else (100, ["train", "test"])
        )
        for name in names:
            records = rng.integers(0, 10, (count, width + 3072)).astype(np.uint8)
            records[:, width - 1] = np.arange(count)
            (folder / f"{name}.bin").write_bytes(records.tobytes())
        return lambda: {"10": data.cifar10, "100": data.cifar100}[kind](folder, verify=False)

    return save


def save_images(folder, pack):
    del pack
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for label in "ab":
            (folder / split / label).mkdir(parents=True)
            for name in ("0.png", "1.jpg"):
                pixels = rng.integers(0, 256, (5, 4, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / split / label / name)
    return lambda: data.image_folder(folder)


def save_tiny(folder, pack):
    del pack
    for place in (
        "train/a/images/a_0.JPEG",
        "train/b/images/b_0.JPEG",
        "val/images/0.JPEG",
        "val/images/1.JPEG",
    ):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (200, 100, 0)).save(folder / place)
    (folder / "wnids.txt").write_text("b\na\n")
    (folder / "val" / "val_annotations.txt").write_text(
        "0.JPEG\ta\t0\t0\t9\t9\n1.JPEG\tb\t0\t0\t9\t9\n"
    )
    return lambda: data.tiny_imagenet(folder)


def save_cinic(folder, pack):
    del pack
    names = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
    for split in ("train", "valid", "test"):
        for label in names:
            (folder / split / label).mkdir(parents=True)
            Image.new("RGB", (3, 2), (200, 100, 0)).save(folder / split / label / "0.png")
    return lambda: data.cinic10(folder)


def save_femnist(folder, pack):
    del pack
    for split in ("train", "test"):
        (folder / split).mkdir()
        writers = {
            "ann": {"x": [[1.0] * 784, [0.2] * 784], "y": [0, 61]},
            "bob": {"x": [[0] * 784], "y": [9]},
        }
        content = {"users": list(writers), "num_samples": [2, 1], "user_data": writers}
        (folder / split / "all_data_0.json").write_text(json.dumps(content))
    return lambda: data.femnist(folder)


READERS = {
    "mnist": (save_mnist, bytes),
    "mnist gzipped": (save_mnist, gzip.compress),
    "cifar10": (save_cifar("10", 1), bytes),
    "cifar100": (save_cifar("100", 2), bytes),
    "cinic10": (save_cinic, bytes),
    "femnist": (save_femnist, bytes),
    "image_folder": (save_images, bytes),
    "tiny_imagenet": (save_tiny, bytes),
}


@settings(max_examples=40)
@given(st.data())
@pytest.mark.parametrize("reader", READERS)
def test_damaged_datasets_are_read_or_refused_by_file(tmp_path_factory, reader, data):
    save, pack = READERS[reader]
    folder = tmp_path_factory.mktemp("data")
    read = save(folder, pack)
    victim, other = data.draw(
        st.permutations(sorted(path for path in folder.rglob("*") if path.is_file()))
    )[:2]
    if data.draw(st.integers(0, 3)) == 0:
        shutil.copy(other, victim)
    else:
        data.draw(damages(100))(victim)
    try:
        dataset = read()
    except (ValueError, OSError) as error:
        message = str(error)
    else:
        assert torch.isfinite(dataset.inputs).all()
        return
    assert "`root`" in message or "`path`" in message, message
    assert str(folder) in message, message


# Histories


@functools.cache
def history_to_damage():
    clients = problems.equal_clients(3)
    return topofl.run(
        **problems.options(
            **(small_run() | {"clients": clients, "topology": topologies.ring(3), "every": 1})
        )
    )


def saved_history(folder):
    return history_to_damage().save(folder / "run")


@settings(max_examples=50)
@given(st.sampled_from(["meta.json", "rounds.jsonl", "arrays.npz"]), damages())
def test_damaged_histories_are_refused_by_file(tmp_path_factory, name, damage):
    folder = tmp_path_factory.mktemp("history")
    damage(saved_history(folder) / name)
    code, line = says_what_is_wrong("compare", folder / "run")
    assert code == 0 or str(folder / "run") in line


@settings(max_examples=50)
@given(st.data())
def test_histories_with_other_values_are_refused_by_file(tmp_path_factory, data):
    path = saved_history(tmp_path_factory.mktemp("history")) / data.draw(
        st.sampled_from(["meta.json", "rounds.jsonl"])
    )
    lines = [
        json.loads(line)
        for line in (
            [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
        )
    ]
    record = data.draw(st.sampled_from(lines))
    key = data.draw(st.sampled_from(sorted(record)))
    record[key] = data.draw(values.map(lambda value: value if value == value else None))
    path.write_text("\n".join(map(json.dumps, lines)))
    code, line = says_what_is_wrong("compare", path.parent)
    assert code == 0 or str(path.parent) in line
