"""Every reader reads what was written, wherever it lies, and refuses what is damaged by name."""

import hashlib
import json
import os
import pickle
import re
import shutil
import signal
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from tests.refusals import named, refused
from tests.rows import readers
from tests.rows.readers import ANNOTATIONS, KINDS, PLACES, ROWS, idx, leaf, raw_array, save
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
    if row.mean is not None:
        assert (dataset.mean, dataset.std) == (row.mean, row.std)
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


def put(place, content):
    """Return a function that writes a file in a folder."""
    content = content if isinstance(content, bytes) else content.encode()
    return lambda root: (root / place).write_bytes(content)


def without(*places):
    """Return a function that removes folders, or all files in one."""
    return lambda root: [shutil.rmtree(root / place) for place in places]


def lost(pattern):
    """Return a function that removes files."""
    return lambda root: [path.unlink() for path in [*root.glob(pattern)]]


def also(place, image):
    return lambda root: save(root / place, image)


def folder(place):
    return lambda root: (root / place).mkdir()


def labels_of(part, classes):
    return put(f"{part}-{KINDS[1]}", idx(np.array(classes, np.uint8)))


def pickled(**changes):
    return lambda root: readers.save_pickles(root, **changes)


def batch(content):
    return put("data_batch_3", content)


def listed(text):
    return put("val/val_annotations.txt", text)


def binary(place, value):
    """Return a function that changes a byte of a file of CIFAR-100."""

    def change(root):
        content = bytearray((root / "train.bin").read_bytes())
        content[place] = value
        (root / "train.bin").write_bytes(content)

    return change


def ann(**lists):
    """Return a function that gives a writer of LEAF, who has two images, other lists."""

    def change(content):
        content["user_data"]["ann"].update(lists)

    return json_with(change)


def json_with(change):
    def edit(root):
        content = leaf(ann=([5, 6], [36, 61]), bo=([3], [2]))
        change(content)
        readers.save_json(root / "train" / "all_data_1.json", content)

    return edit


def json_as(content):
    return put("train/all_data_1.json", content)


def nowhere(root):
    (root / "train" / "gone.json").symlink_to("nowhere")


WHOLE = json.dumps(leaf(ann=([1, 2], [0, 1]))).encode()
ONES, HUGE, NAN = [1.0] * 783, 10**400, float("nan")
FEW, OTHER_SIZE = ann(x=[ONES, [1.0] * 784]), idx(np.zeros((12, 5, 4), np.uint8))
OTHER_SIZE = put(f"t10k-{KINDS[0]}", OTHER_SIZE)
DEEP = Image.fromarray(np.full((4, 6), 40_000, np.uint16))
COMPLETE = "complete PNG or JPEG images"
NUMBERS = "an image with entries other than numbers for 'ann'"
DAMAGED, LAYOUT = "all_data_1.json is damaged or incomplete", "got something else in"
WRONG = {
    "mnist": [
        ("(30, 4, 4) and (29,)", labels_of("train", [0] * 29)),
        ("labels in 0..9, got 11 for image 1", labels_of("train", [0, 11] * 15)),
        ("training and test images of one size, got (4, 4) and (5, 4)", OTHER_SIZE),
        ("`val` must be between 0 and 29, got 30; one image", {"val": 30}),
        ("needs 16 training images of class 1, which has 15", {"val": 24}),
        (TypeError, "`val` must be an integer", {"val": 0.5}),
        ("`seed` must be at least 0", {"seed": -1}),
    ],
    "fashion_mnist": [
        ("60,000 and 10,000 images of 28 x 28", {"verify": True}),
        ("`verify` must be True or False", {"verify": 1}),
    ],
    "emnist": [
        ("124,800 and 20,800 or 88,800 and 14,800", {"verify": True}),
        ("`split` must be one of 'balanced', ", {"split": "all"}),
        ("`verify` must be True or False, got 1", {"verify": 1}),
        ("in 1..26, got 0 for", labels_of("emnist-letters-train", [0] * 26)),
        ("in 1..26, got 27 for", labels_of("emnist-letters-test", [27] * 26)),
    ],
    "cifar10": [
        ("`downscale` must divide 32, got 3", {"downscale": 3}),
        ("`downscale` must be between 1 and 32", {"downscale": 64}),
        ("data, labels, got list in", batch(pickle.dumps([1, 2]))),
        ("got the keys batch_label, labels, filenames", pickled(data=None)),
        ("data, labels, got the keys", pickled(labels=None)),
        ("with N >= 1, got list", pickled(data=[1, 2])),
        ("(6, 3071)", pickled(data=np.zeros((6, 3071), "u1"))),
        ("(6, 3, 1024)", pickled(data=np.zeros((6, 3, 1024), "u1"))),
        ("(0, 3072)", pickled(data=np.zeros((0, 3072), "u1"))),
        ("an array of 'f4'", pickled(data=np.zeros((6, 3072), "f4"))),
        ("as many labels as images, got 5 for 6", pickled(labels=[0] * 5)),
        ("0..9, got 10 for image 5", pickled(labels=[0] * 5 + [10])),
        ("labels in 0..255", pickled(labels=[0] * 5 + [-1])),
        ("labels in 0..255", pickled(labels=[0] * 5 + [HUGE])),
        ("list of integers", pickled(labels=[0] * 5 + [True])),
        ("list of integers", pickled(labels=b"abcdef")),
        ("BINFLOAT", pickled(labels=[0.5] * 6)),
        ("contains _codecs.encode", pickled(protocol=2)),
        ("0 objects", batch(b".")),
        ("2 objects", batch(b"K\x01K\x02.")),
        ("incomplete", batch(raw_array((2, 3), b"abcdef")[:-1])),
        ("shape (2, 3) has 5 bytes", batch(raw_array((2, 3), b"abcde"))),
        ("has 5 bytes", batch(raw_array((2**62, 2**62), b"abcde"))),
        ("has 6 bytes", batch(raw_array((-2, -3), b"abcdef"))),
        ("incomplete", batch(b"\x8e" + struct.pack("<Q", 2**40) + b"abc.")),
        ("opcode POP", batch(b"\x80\x04]r\xff\xff\xff\x7f0.")),
        ("incomplete", batch(b"(" * 100 + b"e.")),
        ("incomplete", batch(b"h\x07.")),
        ("not text", batch(b"}]K\x01s.")),
        ("extend", batch(b"}K\x01a.")),
        ("incomplete", batch(b"u.")),
        ("incomplete", batch(b"\x85.")),
        ("incomplete", batch(b"\xff\xd8\xff")),
    ],
    "cifar100": [
        ("did you mean 'coarse'", {"labels": "corse"}),
        ("`val` must be between 0 and 5", {"val": 6}),
        ("2 training images of class 0, which has 1", {"val": 5}),
    ],
    "cifar10 in binary files": [("50,000 + 10,000 images, equally", {"verify": True})],
    "cifar100 in binary files": [
        (("coarse_labels in 0..19, got 20 for image 1 of", "train.bin"), binary(3074, 20))
    ],
    "image_folder": [
        ("train, got none", without("train/cat", "train/dog")),
        ("(.jpeg, .jpg, .png) of 'bird' in", folder("train/bird")),
        ("train only, got 'cow' in", folder("test/cow")),
        ("must hold one of val and valid", folder("valid")),
        ("`size` must be at least 1", {"size": 0}),
        (TypeError, "`size` must be an integer", {"size": 2.5}),
        ("height and width, got 3 numbers", {"size": (1, 2, 3)}),
        ("`merge_val` must be True or False", {"merge_val": 1}),
        ("`std` must be a finite number above 0", {"std": 0}),
        ("3 channels", {"mean": [1, 2]}),
        (TypeError, "`cache` must be the path of a folder", {"cache": 3}),
        (("fit into memory", "smaller `size`"), {"size": 2**40}),
        ("`size` must be between 1 and", {"size": 10**30}),
        ((COMPLETE, "10.png ("), put(PLACES[0], b"")),
        ("10.png (neither PNG nor JPEG by its", put(PLACES[0], "hello")),
        (("mode I;16 has more than 8 bits", "copy it again"), also(PLACES[0], DEEP)),
        (
            ("`size` is given, got 4 x 2 pixels in", "u.png and 4 x 6 in", "10.png; pass size"),
            also("test/dog/u.png", readers.pixels(0, 4, 2)),
        ),
    ],
    "cinic10": [
        (("of train only, got 'cow' in", "valid"), folder("valid/cow")),
        (("got 'cow' in", "train"), folder("train/cow")),
        (("images of every class", "of 'cat'"), lost("train/cat/cifar10-train-3.png")),
        (("`root` must hold test images, got none in", "test"), lost("test/**/*.png")),
        (("one size", "z.png"), also("test/cat/z.png", readers.pixels(0, 8, 8))),
        ("`merge_val` must be True or False", {"merge_val": 1}),
    ],
    "tiny_imagenet": [
        ("`val` must be between 0 and 6", {"val": 7}),
        ("got n03 twice", put("wnids.txt", "n03\nn01\nn03\n")),
        ("a folder in train, got none", put("wnids.txt", "")),
        ("got none", put("wnids.txt", "x" * 5000 + " \0")),
        ("got 'v_2.JP' in line 3", listed(ANNOTATIONS[:-36])),
        ("again in line 4", listed(ANNOTATIONS.replace("v_9", "v_1"))),
        ("v_1.JPEG (2 such images)", listed("v_0.JPEG\tn03\n")),
        ("validation images of its classes, got none", listed(ANNOTATIONS.replace("n0", "n1"))),
        ("got 'hello' in line 1 of", listed("hello\n" + ANNOTATIONS)),
        ("of 'n01'", without("train/n01/images")),
    ],
    "femnist": [
        (("784 numbers in [0, 1]", "an image of 783 numbers for 'ann' in", "; make the"), FEW),
        ("got the image 1.0 for 'ann'", ann(x=[1.0, 2.0])),
        (NUMBERS, ann(x=[[[1.0]] * 784] * 2)),
        (NUMBERS, ann(x=[[[1.0], *ONES]] * 2)),
        (NUMBERS, ann(x=[["1", *ONES]] * 2)),
        (NUMBERS, ann(x=[[None, *ONES]] * 2)),
        (NUMBERS, ann(x=[[HUGE, *ONES]] * 2)),
        (NUMBERS, ann(x=[[True] * 784] * 2)),
        ("got a pixel of 255 for 'ann'", ann(x=[[255, *ONES]] * 2)),
        ("got a pixel of -1e-09 for 'ann'", ann(x=[[-1e-9, *ONES]] * 2)),
        ("got a pixel of nan for 'ann'", ann(x=[[NAN, *ONES]] * 2)),
        ("1 images and 2 labels of 'ann', and num_samples 2", ann(x=readers.ink(1))),
        ("2 images and 1 labels of 'ann', and num_samples 2", ann(y=[0])),
        ("0..61, got the label 62 for 'ann'", ann(y=[0, 62])),
        ("got the label -1 for 'ann'", ann(y=[0, -1])),
        ("got the label 1.5 for 'ann'", ann(y=[0, 1.5])),
        ("got the label 1000", ann(y=[0, HUGE])),
        ("got the label nan for 'ann'", ann(y=[0, NAN])),
        ("got the label True for 'ann'", ann(y=[0, True])),
        ("got the label '1' for 'ann'", ann(y=[0, "1"])),
        ("got the label [0] for 'ann'", ann(y=[[0], [1]])),
        (("got none of 'ann' in", "; remove the name"), ann(y=3)),
        ("got no images for 'ann'", ann(x=[], y=[])),
        ("got none of 'ann'", json_with(lambda c: c["user_data"].pop("ann"))),
        ("num_samples 3 in", json_with(lambda c: c.update(num_samples=[3, 1]))),
        ("num_samples '2'", json_with(lambda c: c.update(num_samples=["2", 1]))),
        ("and 1 numbers in", json_with(lambda c: c["num_samples"].pop())),
        ("got 3 users, 2 of them different, and 2", json_with(lambda c: c["users"].append("ann"))),
        (LAYOUT, json_with(lambda c: c["users"].append(3))),
        (LAYOUT, json_with(lambda c: c["users"].append([]))),
        (LAYOUT, json_with(lambda c: c.pop("users"))),
        (LAYOUT, json_with(lambda c: c.pop("num_samples"))),
        (LAYOUT, json_with(lambda c: c.update(user_data=[]))),
        (DAMAGED, json_as(WHOLE[:-1])),
        (DAMAGED, json_as(b"")),
        (DAMAGED, json_as(b"\xff\xfe\xfa")),
        (DAMAGED, json_as(b"[" * 100_000)),
        (DAMAGED, json_as(b"9" * 5000)),
        (DAMAGED, json_as(WHOLE + b"x")),
        *(
            ((LAYOUT, "all_data_1.json; move other files"), json_as(content))
            for content in ("[]", "{}", "null", '{"x": [], "y": []}')
        ),
        (OSError, ("files that can be read,", "gone.json cannot"), nowhere),
        (
            ("each writer in one file", "got 'eve' in", "all_data_0.json and in", "copy.json"),
            lambda root: readers.save_json(root / "train" / "copy.json", leaf(eve=([4], [0]))),
        ),
        (FileNotFoundError, "make them in LEAF's data/femnist", without("train")),
        ("got 'B', of which", {"classes": "B"}),
        (("None if there are test files", "got 0.1"), {"test": 0.1}),
        (TypeError, "text, such as 'a-j', got 10 (int)", {"classes": 10}),
        *(
            ("`classes` must be characters and ranges", {"classes": text})
            for text in ("", "-", "a-", "-a", "j-a", "aa", "a-ca", "0 1", "é", "a-j-k", "\n")
        ),
    ],
}
"""By row: parts of the message, and a change or options, after the error if it is no ValueError."""

EVERY = [(name, row) for name, rows in WRONG.items() for row in rows]
EVERY = [(name, row if isinstance(row[0], type) else (ValueError, *row)) for name, row in EVERY]
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
