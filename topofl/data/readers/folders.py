"""Datasets of image files in one folder per class, such as CINIC-10."""

import os
from pathlib import Path
from typing import Any

from topofl._support.check import check_path, check_switch
from topofl.data.dataset import Dataset
from topofl.data.readers._class_folders import (
    check_train,
    folder_with,
    folders_in,
    height_and_width,
    images_by_class,
    load_parts,
    name_with_differences,
    split_indices,
)
from topofl.data.readers._reader import reader

__all__ = ["cinic10", "image_folder"]


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
    sides = height_and_width(size)
    merge_val = bool(check_switch("merge_val", merge_val, auto=False))
    names = folders_in(folder / "train")
    if not names:
        raise ValueError(
            f"`root` must hold a folder for each class in {folder / 'train'}, got none"
        )
    parts = [
        images_by_class(split, names)
        for split in (folder / "train", _val_folder(folder), folder / "test")
    ]
    check_train(folder / "train", names, parts[0])
    inputs, labels = load_parts(folder, parts, sides, cache)
    train, val, test = split_indices(parts, merge_val)
    name = folder.resolve().name or "images"
    name = name if sides is None else f"{name} ({sides[0]} x {sides[1]} pixels)"
    return Dataset(
        inputs,
        labels,
        len(names),
        name,
        train,
        val,
        test,
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
    place = check_path("root", root)
    nested = place / "CINIC-10"
    inside = [f"train/{name}" for name in _CINIC10]
    folder = folder_with(
        nested if nested.is_dir() else place, "the folders of CINIC-10", *inside, "valid", "test"
    )
    sides = height_and_width(size)
    merge_val = bool(check_switch("merge_val", merge_val, auto=False))
    parts = [images_by_class(folder / split, _CINIC10) for split in ("train", "valid", "test")]
    check_train(folder / "train", _CINIC10, parts[0])
    if not any(parts[2]):
        raise ValueError(f"`root` must hold test images, got none in {folder / 'test'}")
    inputs, labels = load_parts(folder, parts, sides, cache)
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


def _val_folder(folder: Path) -> Path:
    """Return the folder of validation images, ``valid`` or ``val``, which may be missing."""
    both = folder / "val", folder / "valid"
    if all(path.is_dir() for path in both):
        raise ValueError(f"`root` must hold one of val and valid, got both in {folder}; rename one")
    return both[1] if both[1].is_dir() else both[0]
