"""Readers of files: tiny files in the layout of each, and what is then read from them."""

import gzip
import json
import pickle
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from topofl import data
from topofl.data.readers import cifar
from topofl.data.readers import mnist as digits

# IDX files

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")
MNIST = ("train", "t10k")


def idx(array):
    """Return the bytes of an IDX file: type, dimensions, sizes, numbers."""
    code = CODES[array.dtype.str[1:]]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def save_images(folder, prefixes, labels, test_labels=None, *, side=28, pack=bytes):
    """Write images and their labels for training and test; return all images and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, ending = np.random.default_rng(0), ".gz" if pack is gzip.compress else ""
    both = labels, labels if test_labels is None else test_labels
    classes = [np.array(own, "u1") for own in both]
    images = [rng.integers(0, 256, (len(own), side, side)).astype("u1") for own in classes]
    for prefix, *arrays in zip(prefixes, images, classes, strict=True):
        for kind, array in zip(KINDS, arrays, strict=True):
            (folder / f"{prefix}-{kind}{ending}").write_bytes(pack(idx(array)))
    return np.concatenate(images)[:, None], np.concatenate(classes)


def save_mnist(folder, labels=(0, 1) * 15, test_labels=(0, 1, 1) * 4, **how):
    return save_images(folder, MNIST, labels, test_labels, **{"side": 4} | how)


def save_emnist(folder, split="letters", labels=range(1, 27), **how):
    """Write a split of EMNIST, whose images lie on their side; return upright ones."""
    prefixes = [f"emnist-{split}-{part}" for part in ("train", "test")]
    images, labels = save_images(folder, prefixes, labels, **how)
    return images.swapaxes(2, 3), labels - (split == "letters")


# CIFAR

CIFAR10 = {f"data_batch_{i}": (0, 1, 1, 0, 2, 3) for i in range(1, 6)}
CIFAR10 |= {"test_batch": (0, 1, 2, 3)}
CIFAR100 = {"train": (0, 99, 7, 7, 50, 31), "test": (99, 0, 7)}


def planes(classes, seed):
    return np.random.default_rng(seed).integers(0, 256, (len(classes), 3072)).astype(np.uint8)


def batches(files):
    """Return name, pixels, fine and coarse labels (the class modulo 20) of each file."""
    for seed, (name, classes) in enumerate(files.items()):
        yield name, planes(classes, seed), list(classes), [label % 20 for label in classes]


def in_order(files):
    """Return all pixels and labels, in the order of the files."""
    pixels = np.concatenate([own for _, own, *_ in batches(files)])
    return pixels.reshape(-1, 3, 32, 32), np.concatenate([fine for *_, fine, _ in batches(files)])


def save_pickles(folder, files=CIFAR10, protocol=4, **changes):
    """Write small files of the pickled layout; `changes` replace entries, None removes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels, fine, coarse in batches(files):
        both = {"fine_labels": fine, "coarse_labels": coarse}
        entries = {"batch_label": b"x"} | ({"labels": fine} if files is CIFAR10 else both)
        entries |= {"data": pixels, "filenames": [b"a.png"] * len(fine)}
        kept = {key.encode(): own for key, own in (entries | changes).items() if own is not None}
        (folder / name).write_bytes(pickle.dumps(kept, protocol=protocol))
    return in_order(files)


def save_binaries(folder, files=CIFAR10):
    """Write small files of the binary layout: a byte for each kind of label, then the pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels, fine, coarse in batches(files):
        table = np.column_stack([*([fine] if files is CIFAR10 else [coarse, fine]), pixels])
        (folder / f"{name}.bin").write_bytes(table.astype(np.uint8).tobytes())
    return in_order(files)


def raw_array(shape, content):
    """Return the pickle of an array whose shape need not fit its content."""
    sizes = b"".join(b"\x8a\x08" + struct.pack("<q", size) for size in shape)
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
    dtype, size = b"cnumpy\ndtype\n(C\x02u1\x89\x88tR", bytes([len(content)])
    state = b"(K\x01(" + sizes + b"t" + dtype + b"\x89C" + size + content + b"tb."
    return b"\x80\x03" + made + state


# Folders of images

CLASSES = ["airplane", "automobile", "bird", "cat", "deer"]
CLASSES += ["dog", "frog", "horse", "ship", "truck"]
PLACES = ["train/cat/10.png", "train/cat/9.PNG", "train/dog/a.png"]
PLACES += ["val/cat/v.png", "test/dog/t.png", "test/dog/u.png"]
"""Small images without loss, in the order in which they should be read."""


def pixels(seed, height=4, width=6):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def save(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(path)


def stacked(*seeds):
    return np.stack([pixels(seed).transpose(2, 0, 1) for seed in seeds])


def save_pets(folder):
    """Write classes with images, and other files that are not looked at."""
    for seed in (5, 2, 0, 1, 4, 3):
        save(folder / PLACES[seed], pixels(seed))
    others = "train/cat/notes.txt", "train/.hidden/x.png", "train/dog/.x.png", "README.png"
    for other in (*others, "extra/cat/x.png"):
        (folder / other).parent.mkdir(parents=True, exist_ok=True)
        (folder / other).write_bytes(b"not an image")
    return stacked(*range(6)), [0, 0, 1, 0, 1, 1]


def save_cinic(folder):
    """Write one image of each class in each split, but two of the first class for training."""
    for k, split in enumerate(["train", "valid", "test"]):
        for i, label in enumerate(CLASSES):
            save(folder / split / label / f"cifar10-{split}-{i}.png", pixels(10 * k + i))
    save(folder / "train" / "airplane" / "n02690373_1.png", pixels(30))
    return stacked(0, 30, *range(1, 30)), [0, *range(10), *range(10), *range(10)]


WNIDS = "n03\nn02\nn01\n"
ANNOTATED = {"v_0": "n03", "v_1": "n01", "v_2": "n03", "v_9": "n02"}
ANNOTATIONS = "".join(f"{key}.JPEG\t{name}\t0\t1\t2\t3\n" for key, name in ANNOTATED.items())


def save_tiny(folder):
    """Write three classes, one without images; one of the annotated images is missing."""
    levels = {f"train/n03/images/n03_{i}": 10 * i for i in range(4)}
    levels |= {f"train/n01/images/n01_{i}": 100 + 10 * i for i in range(3)}
    levels |= {f"val/images/v_{i}": 200 + 10 * i for i in range(3)} | {"test/images/t_0": 0}
    for name, level in levels.items():
        save(folder / f"{name}.JPEG", Image.new("L", (64, 64), level))
    (folder / "train" / "n03" / "n03_boxes.txt").write_text("")
    (folder / "wnids.txt").write_text(WNIDS)
    (folder / "val" / "val_annotations.txt").write_text(ANNOTATIONS)
    read = np.array([0, 10, 20, 30, 100, 110, 120, 200, 220, 210])
    images = np.broadcast_to(read[:, None, None, None], (10, 3, 64, 64))
    return images, [0, 0, 0, 0, 1, 1, 1, 0, 0, 1]


# LEAF


def ink(*levels):
    """Return images as LEAF writes them: a first pixel of one of these levels, then ones."""
    return [[level / 255, *[1.0] * 783] for level in levels]


def leaf(**writers):
    """Return LEAF's object: for each writer (levels, labels)."""
    of = {name: {"x": ink(*levels), "y": list(y)} for name, (levels, y) in writers.items()}
    sizes = [len(labels) for _, labels in writers.values()]
    return {"users": list(writers), "num_samples": sizes, "user_data": of}


def save_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def save_leaf(folder):
    """Write four writers; ann has no test file, dan no training file."""
    train, test = folder / "train", folder / "test"
    bob, eve = ([1, 2, 3], [0, 10, 37]), ([4], [0])
    save_json(train / "all_data_1.json", leaf(ann=([5, 6], [36, 61])))
    save_json(train / "all_data_0.json", leaf(bob=bob, eve=eve))
    tests = leaf(eve=([7, 8], [9, 45]), dan=([10], [1]), bob=([9], [1]))
    save_json(test / "all_data_0.json", tests)
    (train / "notes.txt").write_text("not JSON")
    (train / "._all_data_0.json").write_bytes(b"\0\5\x16\7")
    images = np.full((10, 1, 28, 28), 255)
    images[:, 0, 0, 0] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 9]
    return images, [0, 10, 37, 0, 36, 61, 9, 45, 1, 1]


class Reader(NamedTuple):
    """A reader, and files for it.

    `write` writes files in a folder and returns all inputs and labels. `read` is given the folder,
    and returns a dataset with this `repr`. The folder may be `below` another one, and must hold
    the files or folders `needed`.
    """

    read: Callable[..., Any]
    write: Callable[[Path], Any]
    repr: str
    below: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    scale: Any = (0.0, 1.0)
    sums: Callable[[], dict[str, str]] | None = None


def names_of(*prefixes, ending=""):
    return tuple(f"{prefix}-{kind}{ending}" for prefix in prefixes for kind in KINDS)


def shown(name, inputs, n_classes, *sizes):
    train, val, test = sizes
    return f"Dataset({name!r}, {inputs=}, {n_classes=}, {train=}, {val=}, {test=})"


OTHERS = {"verify": False}
mnist = partial(data.mnist, val=6, **OTHERS)
MNIST_SHOWN = shown("mnist (unverified)", (42, 1, 4, 4), 10, 24, 6, 12)
CIFAR10_SHOWN = shown("cifar10 (unverified, 30 + 4 images)", (34, 3, 32, 32), 10, 22, 8, 4)
CIFAR100_SHOWN = shown("cifar100 (unverified, 6 + 3 images)", (9, 3, 32, 32), 100, 6, 0, 3)
LEAF_SHOWN = shown("femnist", (10, 1, 28, 28), 62, 6, 0, 4)
BINARY10 = tuple(f"{name}.bin" for name in CIFAR10)
CINIC = "10 classes, 11 + 10 + 10 images"
cifar10 = partial(data.cifar10, val=8, **OTHERS)
cifar100 = partial(data.cifar100, **OTHERS)

ROWS = {
    "mnist": Reader(
        mnist,
        save_mnist,
        MNIST_SHOWN,
        ("raw", "MNIST/raw", "mnist", "a/b/mnist"),
        names_of(*MNIST),
        (0.1307, 0.3081),
        lambda: digits._MNIST_MD5,
    ),
    "mnist gzipped": Reader(
        mnist,
        partial(save_mnist, pack=gzip.compress),
        MNIST_SHOWN,
        ("mnist/raw",),
        names_of(*MNIST, ending=".gz"),
        (0.1307, 0.3081),
    ),
    "fashion_mnist": Reader(
        partial(data.fashion_mnist, val=3, **OTHERS),
        partial(save_mnist, labels=[0, 1, 9] * 4, test_labels=[0, 1, 9] * 4, side=28),
        shown("fashion_mnist (unverified)", (24, 1, 28, 28), 10, 9, 3, 12),
        ("FashionMNIST/raw", "sets/fashion-mnist"),
        names_of(*MNIST),
        (0.2860, 0.3530),
    ),
    "emnist": Reader(
        partial(data.emnist, split="letters", **OTHERS),
        save_emnist,
        shown("emnist letters (unverified)", (52, 1, 28, 28), 26, 26, 0, 26),
        ("gzip", "EMNIST/raw", "letters"),
        names_of("emnist-letters-train", "emnist-letters-test"),
        None,
    ),
    "cifar10": Reader(
        cifar10,
        save_pickles,
        CIFAR10_SHOWN,
        ("cifar-10-batches-py", "cifar/cifar-10-batches-py", "a/b/c"),
        tuple(CIFAR10),
        sums=lambda: cifar._FILES["cifar10"]["cifar-10-batches-py"],
    ),
    "cifar10 in binary files": Reader(
        cifar10, save_binaries, CIFAR10_SHOWN, ("cifar-10-batches-bin",), BINARY10
    ),
    "cifar100": Reader(
        cifar100,
        partial(save_pickles, files=CIFAR100),
        CIFAR100_SHOWN,
        ("cifar-100-python", "a/cifar-100-python"),
        tuple(CIFAR100),
        sums=lambda: cifar._FILES["cifar100"]["cifar-100-python"],
    ),
    "cifar100 in binary files": Reader(
        cifar100,
        partial(save_binaries, files=CIFAR100),
        CIFAR100_SHOWN,
        ("cifar-100-binary", "a/cifar-100-binary"),
        ("train.bin", "test.bin"),
    ),
    "image_folder": Reader(
        data.image_folder, save_pets, shown("pets", (6, 3, 4, 6), 2, 3, 1, 2), needed=("train",)
    ),
    "cinic10": Reader(
        data.cinic10,
        save_cinic,
        shown(f"cinic10 (4 x 6 pixels, {CINIC})", (31, 3, 4, 6), 10, 21, 0, 10),
        ("CINIC-10", "images/cinic"),
        (*(f"train/{name}" for name in CLASSES), "valid", "test"),
        ((0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835)),
    ),
    "tiny_imagenet": Reader(
        partial(data.tiny_imagenet, val=3),
        save_tiny,
        shown("tiny_imagenet (2 classes, 7 + 3 images)", (10, 3, 64, 64), 2, 4, 3, 3),
        ("tiny-imagenet-200", "images/tiny"),
        ("wnids.txt", "train", "val/images", "val/val_annotations.txt"),
        (0.5, 0.5),
    ),
    "femnist": Reader(data.femnist, save_leaf, LEAF_SHOWN, ("data", "sets/leaf")),
}
