"""Datasets of image files in one folder per class: any such, CINIC-10 and Tiny ImageNet."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topofl._support.check import check_switch
from topofl._support.files import read_file
from topofl.data._labels import validation
from topofl.data.dataset import Dataset, reader, with_notes
from topofl.data.readers._images import (
    Classes,
    folder_with,
    folders_in,
    images_by_class,
    images_in,
    load_parts,
    name_with_differences,
    split_indices,
)

__all__ = ["cinic10", "image_folder", "tiny_imagenet"]


_CINIC10 = [
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
]
_CINIC10_MEAN = (0.47889522, 0.47227842, 0.43047404)
_CINIC10_STD = (0.24205776, 0.23828046, 0.25874835)


@reader
def image_folder(
    root: str | os.PathLike[str] | None = None,
    *,
    size: int | tuple[int, int] | None = None,
    merge_val: bool = False,
    mean: Any = 0.0,
    std: Any = 1.0,
    cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Return the images in folders ``<split>/<class>/``, decoded once and cached as pixels.

    Parameters
    ----------
    root
        Folder with ``train`` and optionally ``test`` and ``val`` or ``valid``, each with one folder
        per class of .png, .jpg and .jpeg files, whose contents must be PNG or JPEG, too. Other
        files, and names that begin with a dot, are ignored. None: the environment variable
        TOPOFL_DATA. Folders below are not searched, since nothing tells these images from others.
    size
        Height and width in pixels, one integer or two, to which other images are resized (bilinear,
        with antialiasing). None: all must have the size of the first.
    merge_val
        Whether to train on the validation images, too. None are then left for validation.
    mean, std
        Models receive ``(pixel / 255 - mean) / std``; one number each, or one for each of the three
        channels.
    cache
        Folder for the file of decoded pixels, created if it is missing; default: `root`. The file
        is rebuilt if it is damaged, or if an image was added, removed or changed according to
        names, sizes and modification times.

    Returns
    -------
    Dataset
        Inputs (N, 3, height, width), uint8: training images first, then those for validation and
        test. The classes are the folders in ``train``, numbered in the order of their names,
        which are the `class_names`; images of a class are in the order of their names. Gray images
        get three equal channels, and transparency is dropped. The dataset is named after the
        folder.

    Raises
    ------
    FileNotFoundError
        If there is no ``train`` folder.
    OSError
        If the cache cannot be written.
    TypeError
        If `size` is not made of integers.
    ValueError
        If a class has no training images, or is not in ``train``; if an image is damaged, neither
        PNG nor JPEG, not a regular file, or has 16 bits per channel, more than 64 megapixels or
        another size than the first (the message names it); if all images together do not fit into
        memory; if the path of the cache is taken by another file; for `mean` and `std` as
        :class:`Dataset`.

    See Also
    --------
    cinic10, tiny_imagenet : datasets that are published as folders of images.

    Notes
    -----
    Decoding takes the memory of all pixels plus one image.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> root = Path(tempfile.mkdtemp(), "pets")
    >>> for place in ("train/cat/a.png", "train/dog/b.jpg", "test/cat/c.png"):
    ...     (root / place).parent.mkdir(parents=True)
    ...     Image.new("L", (6, 4), 200).save(root / place)
    >>> image_folder(root)
    Dataset('pets', inputs=(3, 3, 4, 6), n_classes=2, train=2, val=0, test=1)
    """
    folder = folder_with(root, "train/<class>/", "train")
    merge_val = bool(check_switch("merge_val", merge_val, auto=False))
    names = folders_in(folder / "train")
    if not names:
        raise ValueError(
            f"`root` must hold a folder for each class in {folder / 'train'}, got none"
        )
    held = [name for name in ("val", "valid") if (folder / name).is_dir()]
    if len(held) > 1:
        raise ValueError(f"`root` must hold one of val and valid, got both in {folder}; rename one")
    splits = "train", *(held or ["val"]), "test"
    parts = [images_by_class(folder / split, names) for split in splits]
    inputs, labels = load_parts(folder, names, parts, size, cache)
    resized = "" if size is None else f"{inputs.shape[2]} x {inputs.shape[3]} pixels"
    return Dataset(
        inputs,
        labels,
        len(names),
        with_notes(folder.resolve().name or "images", resized),
        *split_indices(parts, merge_val),
        mean=mean,
        std=std,
        class_names=tuple(names),
    )


@reader
def cinic10(
    root: str | os.PathLike[str] | None = None,
    *,
    merge_val: bool = True,
    size: int | tuple[int, int] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Return CINIC-10 from its image files, normalized per channel, as in DPFL.

    Parameters
    ----------
    root
        Folder with ``train``, ``valid`` and ``test``, each with one folder for each of the ten
        classes, in it or at most three levels below; None: the environment variable TOPOFL_DATA. A
        subset of the images of every class will do. Nothing is downloaded.
    merge_val
        Whether to train on the validation images, too, as DPFL does. None are then left for
        validation.
    size, cache
        As in :func:`image_folder`.

    Returns
    -------
    Dataset
        Inputs (270000, 3, 32, 32), uint8: training images first, then those for validation and
        test. The classes are those of CIFAR-10, in the same order. If the size of the images, or
        their numbers for training, validation and test, are not the original ones, the name states
        them.

    Raises
    ------
    FileNotFoundError
        If one of the folders is missing.
    OSError
        If the cache cannot be written.
    TypeError
        If `size` is not made of integers.
    ValueError
        If there are other classes or one has no training images; if there are no test images; if an
        image is damaged or has another size than the first (the message names it); if the path of
        the cache is taken by another file.

    References
    ----------
    Darlow et al. (2018), CINIC-10 Is Not ImageNet or CIFAR-10. Kharrat, Canini and Horváth (2025),
    DPFL, and its code, for the mean and the standard deviation.

    Examples
    --------
    A subset with one image per class and split:

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for split in ("train", "valid", "test"):
    ...         for name in _CINIC10:  # airplane, automobile, ...
    ...             Path(folder, split, name).mkdir(parents=True)
    ...             Image.new("RGB", (32, 32)).save(Path(folder, split, name, "a.png"))
    ...     dataset = cinic10(folder)
    >>> dataset.name
    'cinic10 (10 classes, 10 + 10 + 10 images)'
    """
    inside = *(f"train/{name}" for name in _CINIC10), "valid", "test"
    folder = folder_with(root, "the folders of CINIC-10", *inside, nested="CINIC-10")
    merge_val = bool(check_switch("merge_val", merge_val, auto=False))
    parts = [images_by_class(folder / split, _CINIC10) for split in ("train", "valid", "test")]
    if not any(parts[2]):
        raise ValueError(f"`root` must hold test images, got none in {folder / 'test'}")
    inputs, labels = load_parts(folder, _CINIC10, parts, size, cache)
    name = name_with_differences(
        "cinic10", tuple(inputs.shape[2:]), (32, 32), parts, [[9000] * 10] * 3
    )
    return Dataset(
        inputs,
        labels,
        10,
        name,
        *split_indices(parts, merge_val),
        mean=_CINIC10_MEAN,
        std=_CINIC10_STD,
        class_names=tuple(_CINIC10),
    )


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
    folder = folder_with(root, "the files of Tiny ImageNet", *inside, nested="tiny-imagenet-200")
    names = _wnids(folder)
    parts = [images_by_class(folder / "train", names, "images"), _annotated(folder / "val", names)]
    inputs, labels = load_parts(folder, names, parts, size, cache)
    splits = validation(labels.numpy(), sum(map(len, parts[0])), val, seed)
    name = name_with_differences(
        "tiny_imagenet", tuple(inputs.shape[2:]), (64, 64), parts, [[500] * 200, [50] * 200]
    )
    return Dataset(inputs, labels, len(names), name, *splits, mean=0.5, std=0.5)


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
