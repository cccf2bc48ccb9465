"""CINIC-10: merged validation images, sizes, and what is refused."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.data.readers.image_files import half, in_order, pixels, save
from topofl import data
from topofl.data.readers import _images

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@pytest.fixture
def cinic(tmp_path):
    """One 6 x 4 image of each class in each split, but two of the first class for training."""
    folder = tmp_path / "CINIC-10"
    for k, split in enumerate(["train", "valid", "test"]):
        for i, label in enumerate(CLASSES):
            save(folder / split / label / f"cifar10-{split}-{i}.png", pixels(10 * k + i))
    save(folder / "train" / "airplane" / "n02690373_1.png", pixels(30))
    return folder


def test_cinic10_merges_training_and_validation_images(cinic):
    dataset = data.cinic10(cinic.parent)
    assert dataset.name == "cinic10 (4 x 6 pixels, 10 classes, 11 + 10 + 10 images)"
    assert torch.equal(dataset.inputs, in_order(0, 30, *range(1, 30)))
    assert dataset.labels.tolist() == [0, *range(10), *range(10), *range(10)]
    assert [dataset.train.tolist(), dataset.val.tolist()] == [[*range(21)], []]
    assert dataset.test.tolist() == list(range(21, 31))
    assert dataset.mean == (0.47889522, 0.47227842, 0.43047404)
    assert dataset.std == (0.24205776, 0.23828046, 0.25874835)


def test_cinic10_may_keep_validation_images_apart_and_stretch(cinic, tmp_path, decodings):
    apart = data.cinic10(cinic, merge_val=False)
    assert [len(apart.train), apart.val.tolist()] == [11, [*range(11, 21)]]
    assert torch.equal(data.cinic10(cinic).inputs, apart.inputs)
    assert len(decodings) == 1
    whole = data.cinic10(cinic, size=32, cache=tmp_path / "cache")
    assert whole.name == "cinic10 (10 classes, 11 + 10 + 10 images)"
    assert whole.inputs.shape == (31, 3, 32, 32)
    assert [path.name for path in cinic.iterdir() if "topofl" in path.name] == ["topofl.pixels"]


def test_cinic10_of_the_original_size_has_a_plain_name():
    parts, whole = [[[Path("x")] * 9000] * 10] * 3, [[9000] * 10] * 3
    assert _images.name_with_differences("cinic10", (32, 32), (32, 32), parts, whole) == "cinic10"


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (
            shutil.rmtree,
            FileNotFoundError,
            "`root` must hold the folders of CINIC-10, missing in .*: train/airplane,",
        ),
        (
            lambda root: shutil.rmtree(root / "valid"),
            FileNotFoundError,
            "missing in .*CINIC-10: valid$",
        ),
        (
            lambda root: shutil.rmtree(root / "test"),
            FileNotFoundError,
            "missing in .*CINIC-10: test$",
        ),
        (
            lambda root: shutil.rmtree(root / "train" / "cat"),
            FileNotFoundError,
            "missing in .*: train/cat$",
        ),
        (
            lambda root: (root / "valid" / "cow").mkdir(),
            ValueError,
            "classes of train only, got 'cow' in .*valid",
        ),
        (lambda root: (root / "train" / "cow").mkdir(), ValueError, "got 'cow' in .*train"),
        (
            lambda root: next((root / "train" / "cat").iterdir()).unlink(),
            ValueError,
            "images of every class.*'cat'",
        ),
        (
            lambda root: [path.unlink() for path in (root / "test").rglob("*.png")],
            ValueError,
            "`root` must hold test images, got none in .*test",
        ),
        (
            lambda root: half(next((root / "test" / "cat").iterdir())),
            ValueError,
            "complete PNG or JPEG images.*test-3.png",
        ),
        (
            lambda root: save(root / "test" / "cat" / "z.png", pixels(0, 8, 8)),
            ValueError,
            "one size.*z.png",
        ),
    ],
)
def test_cinic10_refuses(cinic, change, error, match):
    change(cinic)
    with pytest.raises(error, match=match):
        data.cinic10(cinic)


def test_cinic10_checks_its_options(cinic):
    with pytest.raises(ValueError, match="`merge_val` must be True or False"):
        data.cinic10(cinic, merge_val=1)
    with pytest.raises(ValueError, match="`size` must be at least 1"):
        data.cinic10(cinic, size=0)
