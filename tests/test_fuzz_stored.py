"""Damaged datasets and histories are read, or refused in one message that names the file."""

import functools
import gzip
import json
import shutil
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import topofl
from tests import problems
from tests.fuzz_values import says_what_is_wrong, small_run, values
from topofl import data, topologies


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
