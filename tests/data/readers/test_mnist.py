"""Fashion-MNIST and EMNIST: their files, splits and labels, and images that stand upright."""

import gzip
import struct

import numpy as np
import pytest
import torch

from topofl import config, data
from topofl.data.readers import mnist as readers

NAMES = ("images-idx3-ubyte", "labels-idx1-ubyte")
SIZES = {"balanced": 47, "byclass": 62, "bymerge": 47, "digits": 10, "letters": 26, "mnist": 10}


def save(path, array, pack=bytes):
    """Write an array of bytes as an IDX file, spelled out: type, dimensions, sizes, numbers."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(pack(header + array.astype(np.uint8).tobytes()))


def save_images(folder, prefixes, labels, side=28, pack=bytes):
    """Write training images and, with the same labels, test images; return both."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (2, len(labels), side, side))
    for prefix, part in zip(prefixes, images, strict=True):
        ending = ".gz" if pack is gzip.compress else ""
        save(folder / f"{prefix}-{NAMES[0]}{ending}", part, pack)
        save(folder / f"{prefix}-{NAMES[1]}{ending}", np.array(labels), pack)
    return images


def save_emnist(folder, split, labels, **how):
    return save_images(folder, (f"emnist-{split}-train", f"emnist-{split}-test"), labels, **how)


@pytest.mark.parametrize("split", SIZES)
@pytest.mark.parametrize(("folder", "pack"), [("", bytes), ("gzip", gzip.compress)])
def test_emnist_is_upright_and_its_labels_count_from_0(tmp_path, split, folder, pack):
    first = 1 if split == "letters" else 0
    labels = np.arange(first, first + SIZES[split])
    images = save_emnist(tmp_path / folder, split, labels, pack=pack)
    dataset = data.emnist(tmp_path, split=split, verify=False)
    assert dataset.name == f"emnist {split} (unverified)"
    assert dataset.n_classes == SIZES[split]
    assert dataset.labels.tolist() == [*range(SIZES[split])] * 2
    for k, upright in enumerate(dataset.inputs[:, 0].numpy()):
        np.testing.assert_array_equal(upright, images.reshape(-1, 28, 28)[k].T)
    assert dataset.test.tolist() == [*range(SIZES[split], 2 * SIZES[split])]
    pixels = images[0] / 255
    assert dataset.mean == pytest.approx(pixels.mean(), abs=5e-5)
    assert dataset.std == pytest.approx(pixels.std(), abs=5e-5)
    seen = dataset.examples(dataset.train)
    assert abs(float(seen.mean())) < 1e-3
    assert float(seen.std()) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("split", "label", "message"),
    [
        ("letters", 0, r"labels in 1\.\.26, got 0 for image 1"),
        ("letters", 27, r"labels in 1\.\.26, got 27 for image 1"),
        ("digits", 10, r"labels in 0\.\.9, got 10 for image 1"),
    ],
)
def test_labels_of_other_classes_are_refused(tmp_path, split, label, message):
    save_emnist(tmp_path, split, [1, label])
    with pytest.raises(ValueError, match=message):
        data.emnist(tmp_path, split=split, verify=False)


def test_sizes_are_verified(tmp_path, monkeypatch):
    save_emnist(tmp_path, "letters", [1, 2, 3])
    with pytest.raises(
        ValueError, match=r"124,800 and 20,800 or 88,800 and .* got 3 and 3 of 28 x"
    ):
        data.emnist(tmp_path, split="letters")
    small = {"letters": readers._EMNIST["letters"]._replace(sizes=((3, 3),))}
    monkeypatch.setattr(readers, "_EMNIST", small)
    assert data.emnist(tmp_path, split="letters", val=1).name == "emnist letters"
    save_emnist(tmp_path, "letters", [1, 2, 3], side=4)
    with pytest.raises(ValueError, match=r"28 x 28 pixels .* of 4 x 4"):
        data.emnist(tmp_path, split="letters")


def test_mistakes_of_emnist_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"`split` must be one of 'balanced', .* got 'all'"):
        data.emnist(tmp_path, split="all")
    save_emnist(tmp_path / "EMNIST" / "raw", "digits", [0, 1])
    assert len(data.emnist(tmp_path, split="digits", verify=False).labels) == 4
    (tmp_path / "EMNIST" / "raw" / f"emnist-digits-test-{NAMES[1]}").unlink()
    with pytest.raises(FileNotFoundError, match=r"missing in .*raw: emnist-digits-test-labels"):
        data.emnist(tmp_path, split="digits", verify=False)
    with pytest.raises(ValueError, match="`verify` must be True or False, got 1"):
        data.emnist(tmp_path, verify=1)


def test_fashion_mnist_is_known_by_its_balanced_classes(tmp_path):
    save_images(tmp_path / "FashionMNIST" / "raw", ("train", "t10k"), [0, 1, 9] * 4)
    dataset = data.fashion_mnist(tmp_path, val=3, verify=False)
    assert dataset.name == "fashion_mnist (unverified)"
    assert (dataset.mean, dataset.std) == (0.2860, 0.3530)
    assert (len(dataset.train), len(dataset.val), len(dataset.test)) == (9, 3, 12)
    assert torch.bincount(dataset.labels[torch.tensor(dataset.val)]).tolist()[::9] == [1, 1]
    with pytest.raises(ValueError, match=r"60,000 and 10,000 images of 28 x 28 .* got 12 and 12"):
        data.fashion_mnist(tmp_path)


@pytest.mark.parametrize("balanced", [True, False])
def test_mnist_is_not_taken_for_fashion_mnist(tmp_path, balanced):
    for prefix, size in (("train", 6000), ("t10k", 1000)):
        labels = np.repeat(np.arange(10), size)
        labels[0] = 0 if balanced else 1
        save(tmp_path / f"{prefix}-{NAMES[0]}", np.zeros((10 * size, 28, 28)))
        save(tmp_path / f"{prefix}-{NAMES[1]}", labels)
    if balanced:
        assert data.fashion_mnist(tmp_path).name == "fashion_mnist"
        return
    with pytest.raises(
        ValueError, match=r"6000 images of each class .* \[5999, 6001, .*data.mnist"
    ):
        data.fashion_mnist(tmp_path)


def test_new_readers_are_named_in_configurations(tmp_path):
    save_emnist(tmp_path, "digits", [*range(10)] * 3)
    tables = {
        "data": f"emnist,root={tmp_path},split=digits,verify=false,n=3,partition=iid",
        "algorithm": "local_only,lr=1",
        "run": {"rounds": 1},
    }
    experiment = config.build(tables)
    assert experiment.clients.n_classes == 10
    assert experiment.tables["data"]["split"] == "digits"
