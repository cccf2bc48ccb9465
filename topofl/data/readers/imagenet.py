"""Tiny ImageNet from its image files, offline."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from topofl._support.check import check_path
from topofl._support.files import read_file
from topofl._support.seeding import stream
from topofl.data._split import validation
from topofl.data.dataset import Dataset
from topofl.data.readers._class_folders import (
    Classes,
    check_train,
    folder_with,
    height_and_width,
    images_by_class,
    images_in,
    load_parts,
    name_with_differences,
)
from topofl.data.readers._reader import reader

__all__ = ["tiny_imagenet"]


@reader
def tiny_imagenet(
    root: str | os.PathLike[str] | None = None,
    *,
    val: int = 0,
    seed: int | np.random.Generator = 0,
    size: int | tuple[int, int] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    r"""Return Tiny ImageNet from its image files, with its validation set for tests, as in Dis-PFL.

    The published test images have no labels. Models receive (pixel / 255 - 0.5) / 0.5.

    Parameters
    ----------
    root
        Folder with ``wnids.txt``, ``train/<class>/images/``, ``val/images/`` and
        ``val/val_annotations.txt``, in it or at most three levels below; None: the environment
        variable TOPOFL_DATA. In a subset, classes without a folder in ``train`` and annotations
        without an image are ignored. Nothing is downloaded.
    val
        Number of training images held out for validation, chosen at random with class counts
        proportional to those of the test set.
    seed
        Seed of their choice.
    size, cache
        As in :func:`image_folder`.

    Returns
    -------
    Dataset
        Inputs (110000, 3, 64, 64), uint8; the training images come first. Classes are numbered in
        the order of ``wnids.txt``. If the size of the images, or the numbers of classes, training
        or test images, are not the original ones, the name states them.

    Raises
    ------
    FileNotFoundError
        If one of the files and folders is missing.
    OSError
        If the cache cannot be written.
    TypeError
        If `size` is not made of integers.
    ValueError
        If a class has no training images, or no class has a test image; if an image is damaged or
        has another size than the first (the message names it); if annotations are damaged, or an
        image has none; if the path of the cache is taken by another file; if `val` needs more
        images than a class has.

    References
    ----------
    Le and Yang (2015), Tiny ImageNet Visual Recognition Challenge. Dai et al. (2022), DisPFL, and
    its code; also used by Liu et al. (2024), DFedPGP, in the appendix.

    Examples
    --------
    A subset with one class, with one image for training and one for testing:

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for inside in ("train/n01443537/images", "val/images"):
    ...         Path(folder, inside).mkdir(parents=True)
    ...         Image.new("RGB", (64, 64)).save(Path(folder, inside, "a.png"))
    ...     _ = Path(folder, "wnids.txt").write_text("n01443537")
    ...     _ = Path(folder, "val/val_annotations.txt").write_text("a.png\tn01443537")
    ...     dataset = tiny_imagenet(folder)
    >>> dataset.name, dataset.inputs.shape
    ('tiny_imagenet (1 classes, 1 + 1 images)', torch.Size([2, 3, 64, 64]))
    """
    inside = "wnids.txt", "train", "val/images", "val/val_annotations.txt"
    place = check_path("root", root)
    nested = place / "tiny-imagenet-200"
    folder = folder_with(
        nested if nested.is_dir() else place, "the files of Tiny ImageNet", *inside
    )
    sides = height_and_width(size)
    names = _wnids(folder)
    parts = [images_by_class(folder / "train", names, "images"), _annotated(folder / "val", names)]
    check_train(folder / "train", names, parts[0])
    inputs, labels = load_parts(folder, parts, sides, cache)
    train_size = sum(map(len, parts[0]))
    val_indices, train = validation(labels.numpy(), train_size, val, stream(seed, "split"))
    test = np.arange(train_size, len(labels))
    name = name_with_differences(
        "tiny_imagenet", tuple(inputs.shape[2:]), (64, 64), parts, [[500] * 200, [50] * 200]
    )
    return Dataset(inputs, labels, len(names), name, train, val_indices, test, mean=0.5, std=0.5)


def _wnids(folder: Path) -> list[str]:
    """Return the classes in ``wnids.txt`` that have a training folder, in its order."""
    names = _text(folder / "wnids.txt").split()
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"`root` must list each class once in wnids.txt, got {twice[0]} twice in {folder}"
        )
    names = [name for name in names if os.path.isdir(folder / "train" / name)]
    if not names:
        raise ValueError(
            "`root` must list classes in wnids.txt that have a folder in train, got none in "
            f"{folder}"
        )
    return names


def _annotated(folder: Path, names: Sequence[str]) -> Classes:
    """Return the validation images of each class."""
    place = folder / "val_annotations.txt"
    found = images_in(folder / "images")
    classes = _annotations(place)
    unknown = [path for path in found if path.name not in classes]
    if unknown:
        raise ValueError(
            f"`root` must hold the class of every validation image, got none for {unknown[0]} "
            f"({len(unknown)} such images); copy {place} again, or remove the images"
        )
    images = [[path for path in found if classes[path.name] == name] for name in names]
    if not any(images):
        raise ValueError(
            f"`root` must hold validation images of its classes, got none in {folder / 'images'}"
        )
    return images


def _annotations(place: Path) -> dict[str, str]:
    """Return the class of each image in a tab-separated file of images and classes."""
    classes: dict[str, str] = {}
    for number, line in enumerate(_text(place).splitlines(), 1):
        image, *rest = line.split("\t")
        if not rest and line.strip():
            raise ValueError(
                f"`root` must hold one image and its class per line, got {line[:40]!r} in line "
                f"{number} of {place}"
            )
        if image in classes:
            raise ValueError(
                f"`root` must hold each image once, got {image} again in line {number} of {place}"
            )
        if rest:
            classes[image] = rest[0].strip()
    return classes


def _text(path: Path) -> str:
    return read_file(path).decode("utf-8", errors="replace")
