"""Image files in one folder per class: listing, checking and loading them."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from topofl._support.check import check_int, check_path
from topofl.data.readers._images import SUFFIXES, load_pixels

__all__ = [
    "Classes",
    "check_train",
    "folder_with",
    "folders_in",
    "height_and_width",
    "images_by_class",
    "images_in",
    "load_parts",
    "name_with_differences",
    "split_indices",
]


Classes = list[list[Path]]
"""Paths of the images of each class, in the order of the classes."""


def name_with_differences(
    name: str,
    sides: tuple[int, ...],
    original_sides: tuple[int, int],
    parts: Sequence[Classes],
    original_sizes: list[list[int]],
) -> str:
    """Return a name that lists differences from the original sides and numbers of images."""
    sizes = [[len(images) for images in part] for part in parts]
    notes = [
        "" if sides == original_sides else f"{sides[0]} x {sides[1]} pixels",
        ""
        if sizes == original_sizes
        else f"{len(sizes[0])} classes, {' + '.join(str(sum(own)) for own in sizes)} images",
    ]
    note = ", ".join(filter(None, notes))
    return f"{name} ({note})" if note else name


def split_indices(parts: Sequence[Classes], merge_val: bool) -> list[np.ndarray]:
    """Return the indices of images for training, validation and test, loaded in this order."""
    n_train, n_val, n_test = (sum(map(len, part)) for part in parts)
    return np.split(
        np.arange(n_train + n_val + n_test), [n_train + n_val * merge_val, n_train + n_val]
    )


def height_and_width(size: int | Sequence[int] | None) -> tuple[int, int] | None:
    """Return (height, width) from an integer or a pair, or None for None."""
    if size is None:
        return None
    sides = list(size) if isinstance(size, list | tuple) else [size, size]
    if len(sides) != 2:
        raise ValueError(
            f"`size` must be an integer, or height and width, got {len(sides)} numbers"
        )
    return check_int("size", sides[0], minimum=1), check_int("size", sides[1], minimum=1)


def folder_with(root: object, what: str, *inside: str) -> Path:
    """Return `root` as a path, or raise ``FileNotFoundError`` if something in it is missing."""
    folder = check_path("root", root)
    missing = [name for name in inside if not (folder / name).exists()]
    if missing:
        raise FileNotFoundError(
            f"`root` must hold {what}, missing in {folder}: {', '.join(missing)}"
        )
    return folder


def folders_in(folder: Path) -> list[str]:
    """Return the sorted names of the visible folders in a folder."""
    return sorted(
        path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def images_in(folder: Path) -> list[Path]:
    """Return the sorted paths of the visible image files in a folder, if it exists."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".")]
    return [
        folder / name for name in sorted(names) if os.path.splitext(name)[1].lower() in SUFFIXES
    ]


def images_by_class(split: Path, names: Sequence[str], inside: str = "") -> Classes:
    """Return the images of each class in a split, or none if the split is missing."""
    unknown = sorted(set(folders_in(split)) - set(names)) if split.is_dir() and not inside else []
    if unknown:
        raise ValueError(
            f"`root` must hold the classes of train only, got {unknown[0]!r} in {split} "
            f"({len(unknown)} such folders)"
        )
    return [images_in(split / name / inside) for name in names]


def check_train(split: Path, names: Sequence[str], images: Classes) -> None:
    """Raise ``ValueError`` unless every class has training images."""
    empty = [name for name, own in zip(names, images, strict=True) if not own]
    if empty:
        raise ValueError(
            f"`root` must hold images of every class, got none ({', '.join(sorted(SUFFIXES))}) of "
            f"{empty[0]!r} in {split} ({len(empty)} such classes); remove its folder, or fill it"
        )


def load_parts(
    folder: Path,
    parts: Sequence[Classes],
    sides: tuple[int, int] | None,
    cache: str | os.PathLike[str] | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pixels and labels of all parts in order, each sorted by class."""
    paths = [path for part in parts for images in part for path in images]
    labels = [label for part in parts for label, images in enumerate(part) for _ in images]
    return load_pixels(folder, paths, sides, cache), torch.tensor(labels, device="cpu")
