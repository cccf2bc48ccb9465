"""Tiny ImageNet: subsets, sizes, and what is refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.readers.image_files import save
from topofl import data
from topofl.data.readers import _images

ANNOTATIONS = (
    "v_0.JPEG\tn03\t0\t1\t2\t3\n"
    "v_1.JPEG\tn01\t0\t1\t2\t3\n"
    "v_2.JPEG\tn03\t0\t1\t2\t3\n"
    "v_9.JPEG\tn02\t0\t1\t2\t3\n"
)


def grey_level(level, side=64):
    return Image.new("L", (side, side), level)


@pytest.fixture
def tiny(tmp_path):
    """Three classes, one of them without images; one of the annotated images is missing."""
    folder = tmp_path / "tiny-imagenet-200"
    for k, name in enumerate(["n03", "n01"]):
        for i in range(4 - k):
            save(
                folder / "train" / name / "images" / f"{name}_{i}.JPEG",
                grey_level(100 * k + 10 * i),
            )
        (folder / "train" / name / f"{name}_boxes.txt").write_text("")
    for i in range(3):
        save(folder / "val" / "images" / f"v_{i}.JPEG", grey_level(200 + 10 * i))
    save(folder / "test" / "images" / "t_0.JPEG", grey_level(0))
    (folder / "wnids.txt").write_text("n03\nn02\nn01\n")
    (folder / "val" / "val_annotations.txt").write_text(ANNOTATIONS)
    return folder


def test_tiny_imagenet_of_a_subset(tiny):
    dataset = data.tiny_imagenet(tiny.parent)
    assert dataset.name == "tiny_imagenet (2 classes, 7 + 3 images)"
    assert dataset.inputs.shape == (10, 3, 64, 64)
    levels = dataset.inputs.float().mean((1, 2, 3)).round().tolist()
    np.testing.assert_allclose(levels, [0, 10, 20, 30, 100, 110, 120, 200, 220, 210], atol=1)
    assert dataset.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 1]
    assert [len(dataset.train), len(dataset.val), dataset.test.tolist()] == [7, 0, [7, 8, 9]]
    assert (dataset.mean, dataset.std, dataset.n_classes) == (0.5, 0.5, 2)
    assert torch.equal(data.tiny_imagenet(tiny).inputs, dataset.inputs)


def test_tiny_imagenet_holds_out_and_stretches(tiny):
    dataset = data.tiny_imagenet(tiny, val=3, seed=1, size=32)
    assert dataset.name == "tiny_imagenet (32 x 32 pixels, 2 classes, 7 + 3 images)"
    assert np.bincount(dataset.labels.numpy()[dataset.val]).tolist() == [2, 1]
    assert sorted([*dataset.train, *dataset.val]) == list(range(7))
    with pytest.raises(ValueError, match="`val` must be between 0 and 6"):
        data.tiny_imagenet(tiny, val=7)


def test_tiny_imagenet_of_the_original_size_has_a_plain_name():
    def parts(train, test):
        return [[[Path("x")] * size] * 200 for size in (train, test)]

    def name(sizes, sides):
        return _images.name_with_differences(
            "tiny_imagenet", sides, (64, 64), parts(*sizes), [[500] * 200, [50] * 200]
        )

    assert name((500, 50), (64, 64)) == "tiny_imagenet"
    assert name((500, 50), (32, 32)) == "tiny_imagenet (32 x 32 pixels)"
    assert name((500, 49), (64, 64)) == "tiny_imagenet (200 classes, 100000 + 9800 images)"


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        (
            "wnids.txt",
            "n03\nn01\nn03\n",
            "`root` must list each class once in wnids.txt, got n03 twice",
        ),
        ("wnids.txt", "", "`root` must list classes in wnids.txt .* got none"),
        ("wnids.txt", "x" * 5000 + " \0", "`root` must list classes in wnids.txt .* got none"),
        (
            "val/val_annotations.txt",
            ANNOTATIONS[:-36],
            "`root` must hold one image and its class per line, got 'v_2.JP' in line 3",
        ),
        (
            "val/val_annotations.txt",
            ANNOTATIONS.replace("v_9", "v_1"),
            "each image once, got v_1.JPEG again in line 4",
        ),
        (
            "val/val_annotations.txt",
            "v_0.JPEG\tn03\n",
            r"class of every .* none for .*v_1.JPEG \(2 such images\)",
        ),
        (
            "val/val_annotations.txt",
            ANNOTATIONS.replace("n0", "n1"),
            "validation images of its classes, got none",
        ),
        ("val/val_annotations.txt", "hello\n" + ANNOTATIONS, "got 'hello' in line 1 of"),
    ],
)
def test_tiny_imagenet_refuses_damaged_lists(tiny, name, text, match):
    (tiny / name).write_text(text)
    with pytest.raises(ValueError, match=match):
        data.tiny_imagenet(tiny)


@pytest.mark.parametrize("name", ["wnids.txt", "val/val_annotations.txt", "train", "val/images"])
def test_tiny_imagenet_says_what_is_missing(tiny, name):
    (tiny / name).rename(tiny / "elsewhere")
    with pytest.raises(
        FileNotFoundError,
        match=f"`root` must hold the files of Tiny ImageNet, missing in .*: {name}",
    ):
        data.tiny_imagenet(tiny)


def test_tiny_imagenet_names_classes_without_images(tiny):
    shutil.rmtree(tiny / "train" / "n01" / "images")
    with pytest.raises(
        ValueError, match=r"`root` must hold images of every class, got none .* of 'n01'"
    ):
        data.tiny_imagenet(tiny)
