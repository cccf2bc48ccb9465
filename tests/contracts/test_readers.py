"""Every reader reads what was written, wherever it lies, and refuses what is damaged by name."""

import hashlib
import json
import os
import pickle
import re
import shutil
import signal
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from tests.refusals import named, refused
from tests.rows import readers
from tests.rows.readers import (
    ANNOTATIONS,
    KINDS,
    PLACES,
    ROWS,
    idx,
    leaf,
    raw_array,
    save,
    save_json,
)
from topofl import config, data
from topofl._spec import parameters
from topofl._support.datasets import dataset_folders

TABLES = {"topology": "ring", "algorithm": "local_only,lr=1", "run": {"rounds": 1, "seed": 0}}
WITH_ROOT = [name for name, read in data.READERS.items() if "root" in parameters(read)]
LISTS = {"wnids.txt", "val_annotations.txt", "notes.txt", "n03_boxes.txt"}
every = pytest.mark.parametrize("name", ROWS)


@pytest.fixture(autouse=True)
def variable(monkeypatch):
    monkeypatch.delenv("TOPOFL_DATA", raising=False)


@pytest.fixture
def patience():
    """Interrupt what waits for ever."""

    def stop(*_):
        raise TimeoutError("still waiting after five seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def written(name, folder):
    """Write the files of a row in a folder; return those that are read, in some order."""
    ROWS[name].write(folder)
    hidden = re.compile(r"/\.|/extra/|/README|test/images/")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in paths if not hidden.search(str(path)) and path.name not in LISTS]


def options_of(name):
    """Return the options with which the files of a row are read."""
    return getattr(ROWS[name].read, "keywords", {})


def same(one, other):
    assert repr(one) == repr(other)
    assert torch.equal(one.inputs, other.inputs)
    for key in ("labels", "train", "val", "test"):
        np.testing.assert_array_equal(getattr(one, key), getattr(other, key))


def test_every_reader_of_a_folder_has_a_row():
    rows = {name.split()[0] for name in ROWS}
    assert set(WITH_ROOT) == rows | {"text_files"}  # which has no images: test_text.py


@every
def test_reads_what_was_written(name, tmp_path):
    row, folder = ROWS[name], tmp_path / "pets"
    inputs, labels = row.write(folder)
    dataset = row.read(folder)
    assert repr(dataset) == row.repr
    assert (dataset.inputs.dtype, dataset.inputs.is_contiguous()) == (torch.uint8, True)
    lossy = 1 if name == "tiny_imagenet" else 0
    np.testing.assert_allclose(dataset.inputs, inputs, rtol=0, atol=lossy)
    np.testing.assert_array_equal(dataset.labels, labels)
    if row.scale is not None:
        assert (dataset.mean, dataset.std) == row.scale
    used = np.concatenate([dataset.train, dataset.val, dataset.test])
    np.testing.assert_array_equal(np.sort(used), np.arange(len(labels)))
    assert dataset.test.tolist() == list(range(len(labels) - len(dataset.test), len(labels)))


@every
def test_finds_its_files_in_a_folder_and_below(name, tmp_path, monkeypatch):
    row = ROWS[name]
    row.write(tmp_path / "pets")
    there = row.read(root=str(tmp_path / "pets"))
    for k, below in enumerate(row.below):
        row.write(tmp_path / f"{k}" / below)
        same(row.read(tmp_path / f"{k}"), there)
        monkeypatch.setenv("TOPOFL_DATA", str(tmp_path / f"{k}"))
        same(row.read(), there)


@pytest.mark.parametrize("name", WITH_ROOT)
def test_without_a_root_the_variable_names_it(name, tmp_path, monkeypatch):
    read = data.READERS[name]
    with pytest.raises(ValueError, match=rf"`root` must be given.*TOPOFL_DATA.*data.{name}\("):
        read()
    monkeypatch.setenv("TOPOFL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"TOPOFL_DATA must be a folder, got .*nowhere"):
        read()
    monkeypatch.setenv("TOPOFL_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="`root` must hold"):
        read()


@every
def test_what_is_missing_is_named(name, tmp_path):
    row, folder = ROWS[name], tmp_path / "pets"
    for needed in row.needed:
        row.write(folder)
        shutil.move(folder / needed, tmp_path / "elsewhere")
        with pytest.raises(FileNotFoundError, match="`root` must hold") as caught:
            row.read(folder)
        wanted = f"missing in {folder}: {needed.removesuffix('.gz')}"
        assert wanted in str(caught.value)
        assert f"looked in {folder}" in str(caught.value)
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)
        (tmp_path / "elsewhere").unlink(missing_ok=True)


def test_mnist_and_fashion_mnist_are_told_apart_by_their_folders(tmp_path):
    ROWS["fashion_mnist"].write(tmp_path / "FashionMNIST" / "raw")
    with pytest.raises(FileNotFoundError, match="`root` must hold the four files"):
        ROWS["mnist"].read(tmp_path)
    assert dataset_folders(tmp_path) == {"fashion_mnist": tmp_path / "FashionMNIST" / "raw"}
    ROWS["mnist"].write(tmp_path / "MNIST" / "raw")
    for name in ("mnist", "fashion_mnist"):
        assert repr(ROWS[name].read(tmp_path)) == ROWS[name].repr


@every
def test_is_named_in_configurations(name, tmp_path, monkeypatch):
    row, reader = ROWS[name], name.split()[0]
    row.write(tmp_path / "pets")
    monkeypatch.chdir(tmp_path)
    table = {"name": reader, "root": "pets", "n": 2, "partition": "iid"}
    experiment = config.build(TABLES | {"data": table | options_of(name)})
    assert repr(experiment.clients.dataset) == row.repr
    assert experiment.tables["data"]["root"] == str(tmp_path / "pets")
    again = config.build(experiment.tables).clients
    np.testing.assert_array_equal(again.label_counts, experiment.clients.label_counts)


def test_a_configuration_without_a_root_records_the_folder_of_the_variable(tmp_path, monkeypatch):
    ROWS["mnist"].write(tmp_path / "sets" / "mnist")
    table = {"name": "mnist", "n": 2, "partition": "iid", "seed": 0, "val": 0, "verify": False}
    with pytest.raises(ValueError, match=r"\[data\] `root` must be given.*TOPOFL_DATA"):
        config.build(TABLES | {"data": table})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOPOFL_DATA", "sets")
    experiment = config.build(TABLES | {"data": table})
    monkeypatch.delenv("TOPOFL_DATA")
    assert experiment.tables["data"]["root"] == str(tmp_path / "sets")
    assert config.build(experiment.tables).clients.n == 2


@pytest.mark.parametrize("name", [name for name in ROWS if "val" in options_of(name)])
def test_validation_has_the_proportions_of_the_tests_and_a_seed(name, tmp_path):
    row = ROWS[name]
    row.write(tmp_path)
    first, again, other = (row.read(tmp_path, seed=seed) for seed in (0, 0, 1))
    assert first.val.tolist() == again.val.tolist() != other.val.tolist()
    labels = first.labels.numpy()
    held, tests = (np.bincount(labels[part], minlength=10) for part in (first.val, first.test))
    np.testing.assert_array_equal(held, len(first.val) * tests / tests.sum())
    assert len(row.read(tmp_path, val=0).val) == 0


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name].sums])
def test_checksums_are_compared(name, tmp_path, monkeypatch):
    row = ROWS[name]
    paths = written(name, tmp_path)
    with pytest.raises(ValueError, match=r"`md5`") as caught:
        row.read(tmp_path, verify=True)
    assert any(str(path) in str(caught.value) for path in paths)
    for path in paths:
        digest = hashlib.md5(path.read_bytes()).hexdigest()
        monkeypatch.setitem(row.sums(), path.name, digest)
    assert "unverified" not in row.read(tmp_path, verify=True).name
    content = bytearray(paths[-1].read_bytes())
    content[len(content) // 2] ^= 1
    paths[-1].write_bytes(content)
    with pytest.raises(ValueError, match=rf"`md5`.*{paths[-1]}|{paths[-1]}.*`md5`"):
        row.read(tmp_path, verify=True)
    assert "unverified" in row.read(tmp_path).name


IMAGES = ("image_folder", "cinic10", "tiny_imagenet")
CUTS = [(name, part) for name in ROWS for part in (0.0, 0.1, 0.45)]
CUTS += [(name, 0.99) for name in ROWS if name not in IMAGES]  # the pixels are all there


@pytest.mark.parametrize(("name", "part"), CUTS)
def test_truncated_files_are_named(name, tmp_path, part):
    victim = written(name, tmp_path)[-1]
    content = victim.read_bytes()
    victim.write_bytes(content[: int(part * len(content))])
    with pytest.raises(ValueError, match=r"`(root|path)`") as caught:
        ROWS[name].read(tmp_path)
    assert str(victim) in str(caught.value)
    assert "copy it again" in str(caught.value) or "must be an IDX file" in str(caught.value)


def fifo(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


@pytest.mark.usefixtures("patience")
@every
@pytest.mark.parametrize("make", [fifo, endless, os.mkdir])
def test_what_is_no_regular_file_is_not_opened(name, make, tmp_path):
    paths = [written(name, tmp_path)[-1]]
    paths += [tmp_path / own for own in ROWS[name].needed if own.endswith(".txt")]
    for victim in paths:
        os.rename(victim, tmp_path / "aside")
        make(victim)
        with pytest.raises((ValueError, FileNotFoundError), match="`root` must hold") as caught:
            ROWS[name].read(tmp_path)
        assert victim.name.removesuffix(".gz") in str(caught.value)
        shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
        os.rename(tmp_path / "aside", victim)


# Each returns a function that changes the files of a folder.


def put(place, content):
    content = content if isinstance(content, bytes) else content.encode()
    return lambda root: (root / place).write_bytes(content)


def without(*places):
    return lambda root: [shutil.rmtree(root / place) for place in places]


def emptied(place):
    return lambda root: [path.unlink() for path in (root / place).rglob("*.png")]


def also(place, image):
    return lambda root: save(root / place, image)


def folder(place):
    return lambda root: (root / place).mkdir()


def labels_of(part, classes):
    return put(f"{part}-{KINDS[1]}", idx(np.array(classes, np.uint8)))


def pickled(**changes):
    return lambda root: readers.save_pickles(root, **changes)


batch, listed = partial(put, "data_batch_3"), partial(put, "val/val_annotations.txt")


def wrong_byte(root):
    content = bytearray((root / "train.bin").read_bytes())
    content[3074] = 20
    (root / "train.bin").write_bytes(content)


def ann(**lists):
    return json_with(lambda content: content["user_data"]["ann"].update(lists))


def json_with(change):
    def edit(root):
        content = leaf(ann=([5, 6], [36, 61]), bo=([3], [2]))
        change(content)
        save_json(root / "train" / "all_data_1.json", content)

    return edit


json_as = partial(put, "train/all_data_1.json")


def nowhere(root):
    (root / "train" / "gone.json").symlink_to("nowhere")


WHOLE = json.dumps(leaf(ann=([1, 2], [0, 1]))).encode()
ONES, HUGE, NAN = [1.0] * 783, 10**400, float("nan")
COMPLETE = "complete PNG or JPEG images"
NUMBERS = "an image with entries other than numbers for 'ann'"
TWICE = "each writer in one file", "got 'eve' in", "all_data_0.json and in", "copy.json"
DAMAGED, LAYOUT = "all_data_1.json is damaged or incomplete", "got something else in"
WRONG = {
    "mnist": {
        "(30, 4, 4) and (29,)": labels_of("train", [0] * 29),
        "labels in 0..9, got 11 for image 1": labels_of("train", [0, 11] * 15),
        "training and test images of one size, got (4, 4) and (5, 4)": put(
            f"t10k-{KINDS[0]}", idx(np.zeros((12, 5, 4), np.uint8))
        ),
        "`val` must be between 0 and 29, got 30; one image": {"val": 30},
        "needs 16 training images of class 1, which has 15": {"val": 24},
        "`downscale` must divide the sides of images, 4 x 4 pixels, got 3; 2": {"downscale": 3},
        "`downscale` must be at least 1": {"downscale": 0},
        "`train` must be between 1 and 24, got 25; this many": {"train": 25},
    },
    "fashion_mnist": {
        "60,000 and 10,000 images of 28 x 28": {"verify": True},
        "`verify` must be True or False": {"verify": 1},
    },
    "emnist": {
        "124,800 and 20,800 or 88,800 and 14,800": {"verify": True},
        "`split` must be one of 'balanced', ": {"split": "all"},
        "in 1..26, got 0 for": labels_of("emnist-letters-train", [0] * 26),
        "in 1..26, got 27 for": labels_of("emnist-letters-test", [27] * 26),
    },
    "cifar10": {
        "`downscale` must divide 32, got 3": {"downscale": 3},
        "`downscale` must be between 1 and 32": {"downscale": 64},
        "data, labels, got list in": batch(pickle.dumps([1, 2])),
        "got the keys batch_label, labels, filenames": pickled(data=None),
        "data, labels, got the keys": pickled(labels=None),
        "with N >= 1, got list": pickled(data=[1, 2]),
        "(6, 3071)": pickled(data=np.zeros((6, 3071), "u1")),
        "(6, 3, 1024)": pickled(data=np.zeros((6, 3, 1024), "u1")),
        "(0, 3072)": pickled(data=np.zeros((0, 3072), "u1")),
        "an array of 'f4'": pickled(data=np.zeros((6, 3072), "f4")),
        "as many labels as images, got 5 for 6": pickled(labels=[0] * 5),
        "0..9, got 10 for image 5": pickled(labels=[0] * 5 + [10]),
        "labels in 0..9, got -1 for image 5": pickled(labels=[0] * 5 + [-1]),
        "labels in 0..9, got 0x": pickled(labels=[0] * 5 + [HUGE]),
        "list of integers": [pickled(labels=[0] * 5 + [True]), pickled(labels=b"abcdef")],
        "BINFLOAT": pickled(labels=[0.5] * 6),
        "contains _codecs.encode": pickled(protocol=2),
        "0 objects": batch(b"."),
        "2 objects": batch(b"K\x01K\x02."),
        "incomplete": [
            *map(batch, (b"(" * 100 + b"e.", b"h\x07.", b"u.", b"\x85.", b"\xff\xd8\xff")),
            *map(batch, (raw_array((2, 3), b"abcdef")[:-1], b"\x8e\0\0\0\0\0\1\0\0abc.")),
        ],
        "shape (2, 3) has 5 bytes": batch(raw_array((2, 3), b"abcde")),
        "has 5 bytes": batch(raw_array((2**62, 2**62), b"abcde")),
        "has 6 bytes": batch(raw_array((-2, -3), b"abcdef")),
        "opcode POP": batch(b"\x80\x04]r\xff\xff\xff\x7f0."),
        "not text": batch(b"}]K\x01s."),
        "extend": batch(b"}K\x01a."),
    },
    "cifar100": {
        "did you mean 'coarse'": {"labels": "corse"},
        "2 training images of class 0, which has 1": {"val": 5},
    },
    "cifar10 in binary files": {"50,000 + 10,000 images, equally": {"verify": True}},
    "cifar100 in binary files": {
        ("coarse_labels in 0..19, got 20 for image 1 of", "train.bin"): wrong_byte,
    },
    "image_folder": {
        "train, got none": without("train/cat", "train/dog"),
        "(.jpeg, .jpg, .png) of 'bird' in": folder("train/bird"),
        "train only, got 'cow' in": folder("test/cow"),
        "must hold one of val and valid": folder("valid"),
        "`size` must be at least 1": {"size": 0},
        "height and width, got 3 numbers": {"size": (1, 2, 3)},
        "`merge_val` must be True or False": {"merge_val": 1},
        ("fit into memory", "smaller `size`"): {"size": 2**40},
        (COMPLETE, "10.png ("): put(PLACES[0], b""),
        "10.png (neither PNG nor JPEG by its": put(PLACES[0], "hello"),
        ("mode I;16 has more than 8 bits", "copy it again"): also(
            PLACES[0], Image.fromarray(np.full((4, 6), 40_000, np.uint16))
        ),
        ("`size` is given, got 4 x 2 pixels in", "u.png and 4 x 6 in", "10.png; pass size"): also(
            "test/dog/u.png", readers.pixels(0, 4, 2)
        ),
    },
    "cinic10": {
        ("of train only, got 'cow' in", "valid"): folder("valid/cow"),
        ("images of every class", "of 'cat'"): emptied("train/cat"),
        ("`root` must hold test images, got none in", "test"): emptied("test"),
        ("one size", "z.png"): also("test/cat/z.png", readers.pixels(0, 8, 8)),
    },
    "tiny_imagenet": {
        "`val` must be between 0 and 6": {"val": 7},
        "got n03 twice": put("wnids.txt", "n03\nn01\nn03\n"),
        "a folder in train, got none": put("wnids.txt", ""),
        "got none": put("wnids.txt", "x" * 5000 + " \0"),
        "got 'v_2.JP' in line 3": listed(ANNOTATIONS[:-36]),
        "again in line 4": listed(ANNOTATIONS.replace("v_9", "v_1")),
        "v_1.JPEG (2 such images)": listed("v_0.JPEG\tn03\n"),
        "validation images of its classes, got none": listed(ANNOTATIONS.replace("n0", "n1")),
        "got 'hello' in line 1 of": listed("hello\n" + ANNOTATIONS),
        "of 'n01'": without("train/n01/images"),
    },
    "femnist": {
        ("784 numbers in [0, 1]", "of 783 numbers for 'ann' in", "; make the"): ann(x=[ONES, ONES]),
        "got the image 1.0 for 'ann'": ann(x=[1.0, 2.0]),
        NUMBERS: [
            *(ann(x=[image] * 2) for image in ([[1.0]] * 784, [True] * 784)),
            *(ann(x=[[pixel, *ONES]] * 2) for pixel in ([1.0], "1", None, HUGE)),
        ],
        **{f"got a pixel of {p} for 'ann'": ann(x=[[p, *ONES]] * 2) for p in (255, -1e-09, NAN)},
        "1 images and 2 labels of 'ann', and num_samples 2": ann(x=readers.ink(1)),
        "2 images and 1 labels of 'ann', and num_samples 2": ann(y=[0]),
        "0..61, got the label 62 for 'ann'": ann(y=[0, 62]),
        "got the label 1000": ann(y=[0, HUGE]),
        **{
            f"got the label {label!r} for 'ann'": ann(y=[label, 0])
            for label in (-1, 1.5, NAN, True, "1", [0])
        },
        ("got none of 'ann' in", "; remove the name"): ann(y=3),
        "got no images for 'ann'": ann(x=[], y=[]),
        "got none of 'ann'": json_with(lambda c: c["user_data"].pop("ann")),
        "num_samples 3 in": json_with(lambda c: c.update(num_samples=[3, 1])),
        "num_samples '2'": json_with(lambda c: c.update(num_samples=["2", 1])),
        "and 1 numbers in": json_with(lambda c: c["num_samples"].pop()),
        "got 3 users, 2 of them different, and 2 numbers": json_with(
            lambda c: c["users"].append("ann")
        ),
        LAYOUT: [
            *(json_with(lambda c, user=user: c["users"].append(user)) for user in (3, [])),
            *(json_with(lambda c, key=key: c.pop(key)) for key in ("users", "num_samples")),
            json_with(lambda c: c.update(user_data=[])),
        ],
        (LAYOUT, "all_data_1.json; move other files"): [
            *map(json_as, ("[]", "{}", "null", '{"x": [], "y": []}'))
        ],
        DAMAGED: [
            *map(json_as, (WHOLE[:-1], b"", b"\xff\xfe\xfa", WHOLE + b"x")),
            *map(json_as, (b"[" * 100_000, b"9" * 5000)),
        ],
        TWICE: lambda root: save_json(root / "train" / "copy.json", leaf(eve=([4], [0]))),
        "got 'B', of which": {"classes": "B"},
        ("None if there are test files", "got 0.1"): {"test": 0.1},
    },
}
RANGES = ("", "-", "a-", "-a", "j-a", "aa", "a-ca", "0 1", "é", "a-j-k", "\n")
WRONG["femnist"]["`classes` must be characters and ranges"] = [{"classes": text} for text in RANGES]
EVERY = [
    (name, (ValueError, message, change))
    for name, rows in WRONG.items()
    for message, changes in rows.items()
    for change in (changes if isinstance(changes, list) else [changes])
]
EVERY += [
    ("mnist", (TypeError, "`val` must be an integer", {"val": 0.5})),
    ("image_folder", (TypeError, "`size` must be an integer", {"size": 2.5})),
    ("image_folder", (TypeError, "`cache` must be the path of a folder", {"cache": 3})),
    ("femnist", (OSError, ("files that can be read,", "gone.json cannot"), nowhere)),
    ("femnist", (FileNotFoundError, "make them in LEAF's data/femnist", without("train"))),
    ("femnist", (TypeError, "text, such as 'a-j', got 10 (int)", {"classes": 10})),
]
NAMED = [f"{name} {named(row)}" for name, row in EVERY]


@pytest.mark.parametrize(("name", "row"), EVERY, ids=NAMED)
def test_wrong_files_and_options_are_refused(name, row, tmp_path):
    error, message, change = row
    options = change if isinstance(change, dict) else {}
    ROWS[name].write(tmp_path / "pets")
    if not options:
        change(tmp_path / "pets")
    parts = (message,) if isinstance(message, str) else message
    named_file = "`" if options else str(tmp_path)
    refused(error, (*parts, named_file), lambda: ROWS[name].read(tmp_path / "pets", **options))
