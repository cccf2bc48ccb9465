"""Reader of FEMNIST from local JSON files of LEAF, one file at a time."""

import json
import os
import re
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from topofl._support.check import check_fraction, check_path, shown
from topofl._support.files import read_file
from topofl._support.seeding import Seed, stream
from topofl.data.dataset import Dataset, reader

__all__ = ["femnist"]

_SIDE = 28
_CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""LEAF's labels 0 to 61 are indices into this text."""

_REMEDY = "make the file again with LEAF's preprocess.sh"


_Writer = tuple[np.ndarray, np.ndarray]
"""Examples of a writer: (k, 784) uint8 or float32 pixels, and labels."""


@reader
def femnist(
    root: str | os.PathLike[str] | None = None,
    *,
    classes: str = "0-9A-Za-z",
    test: float | None = None,
    seed: Seed = 0,
) -> Dataset:
    """Return FEMNIST, handwritten characters with known writers, from the JSON files of LEAF.

    Nothing is downloaded. In ``data/femnist`` of LEAF, ``./preprocess.sh -s niid --sf 1.0 -k 0 -t
    sample`` makes the files of all 3,550 writers, with 90 % of the examples of each writer for
    training; ``--sf 0.05`` makes those of a twentieth of the writers.

    Parameters
    ----------
    root
        Folder with ``train/*.json`` and optionally ``test/*.json``; or with ``mytrain.json`` and
        optionally ``mytest.json``, the names in other projects; or with ``*.json``, which are not
        split. Examples are LEAF's ``data/femnist``, ``data`` and ``data/all_data``. If none is
        there, a folder at most three levels below with LEAF's ``train/all_data_*.json`` is read.
        None: the environment variable TOPOFL_DATA.
    classes
        Characters to use, single ones and ranges: ``"0-9"`` for digits, ``"a-j"`` for ten letters.
        They become classes 0, 1, ... in this order. If the labels in the files mean something else,
        pass the characters that LEAF gives these labels: ``"0-9"`` for the ten letters in the files
        of FedProx, which have the labels 0 to 9.
    test
        Share of each writer's examples to use as test examples if there are no test files, drawn at
        random; at least one if above 0, and at least one remains for training. None: 0.1, as in
        LEAF.
    seed
        Seed of this draw.

    Returns
    -------
    Dataset
        Inputs (N, 1, 28, 28), training examples first: dark ink on white, as in LEAF. If all
        numbers in the files are multiples of 1 / 255, as those of LEAF, inputs are uint8 and models
        receive pixel / 255; otherwise inputs are float32 in [0, 1]. `owners` are the writers, for
        :func:`natural`, numbered in the order of the files.

    Raises
    ------
    FileNotFoundError
        If there are no such files.
    OSError
        If a file cannot be read.
    TypeError
        If `classes` is not text, or `test` not a number.
    ValueError
        If a file is not JSON, for example because it is truncated, or not in the layout of LEAF: if
        it has no examples of a user, or not as many as it states, an image that is not 784 numbers
        in [0, 1], or a label that is not in 0..61 (the message names the writer). If a writer is in
        two files of a split; if there are no training examples of `classes`, or these are not
        characters; if `test` is given although there are test files.

    Notes
    -----
    Files are read one at a time. Reading a file takes the memory of twice its text, its images as
    bytes, and the lists of one writer.

    References
    ----------
    Caldas et al., "LEAF: a benchmark for federated settings" (2018), and its code. Also used by
    Kharrat, Canini and Horváth (2025), DPFL, whose network for it has 10 classes (62 in its code),
    presumably the letters a to j of Li et al. (2020), FedProx, with five classes per node:
    ``natural(femnist(root, classes="a-j"), n=100, classes_per_node=5, seed=0)``.

    Examples
    --------
    One writer with an image of a 7 and one of an A:

    >>> import tempfile
    >>> writer = {"x": [[1.0] * 784, [1.0] * 784], "y": [7, 10]}
    >>> content = {"users": ["ann"], "num_samples": [2], "user_data": {"ann": writer}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "all_data.json").write_text(json.dumps(content))
    ...     femnist(folder)
    Dataset('femnist', inputs=(2, 1, 28, 28), n_classes=62, train=1, val=0, test=1)
    """
    used_labels = _labels_of(classes)
    train_files, test_files = _files(check_path("root", root))
    if test_files and test is not None:
        raise ValueError(
            f"`test` must be None if there are test files, such as {test_files[0]}, got {test}"
        )
    share = 0.0 if test_files else check_fraction("test", 0.1 if test is None else test)
    new_labels = np.full(len(_CHARACTERS), -1)
    new_labels[used_labels] = np.arange(len(used_labels))
    numbers: dict[str, int] = {}
    parts = list(_parts(train_files, new_labels, numbers))
    sizes = [len(labels) for _, labels, _ in parts]
    if not parts:
        raise ValueError(
            f"`classes` must have training examples, got {shown(classes)}, of which {root} has none"
        )
    parts += _parts(test_files, new_labels, numbers)
    pixels, labels, owners = zip(*parts, strict=True)
    labels = np.concatenate(labels)
    is_test = np.arange(len(labels)) >= sum(sizes)
    is_test[: sum(sizes)] = _held_out(sizes, share, stream(seed, "split"))
    name = "femnist" if len(used_labels) == len(_CHARACTERS) else f"femnist ({classes})"
    splits = np.flatnonzero(~is_test), np.zeros(0, np.int64), np.flatnonzero(is_test)
    return Dataset(
        _inputs(pixels),
        torch.from_numpy(labels),
        len(used_labels),
        name,
        *splits,
        owners=np.repeat(owners, list(map(len, pixels))),
        class_names=tuple(_CHARACTERS[label] for label in used_labels),
        owner_names=tuple(numbers),
    )


def _labels_of(classes: str) -> list[int]:
    """Return the LEAF labels of characters and ranges of characters."""
    if not isinstance(classes, str):
        raise TypeError(
            f"`classes` must be text, such as 'a-j', got {shown(classes)} "
            f"({type(classes).__name__})"
        )
    ends = re.findall(r"(.)(?:-(.))?", classes, re.DOTALL)
    places = [(_CHARACTERS.find(first), _CHARACTERS.find(last or first)) for first, last in ends]
    labels = [label for first, last in places for label in range(first, last + 1)]
    is_known = all(0 <= first <= last for first, last in places)
    if not labels or not is_known or len(set(labels)) < len(labels):
        raise ValueError(
            "`classes` must be characters and ranges of 0-9, A-Z and a-z, each once, such as "
            f"'a-j', got {shown(classes)}"
        )
    return labels


def _files(root: Path) -> tuple[list[Path], list[Path]]:
    """Return the files for training and for test, the latter empty if files are not split."""
    pairs = [(f"{folder}train/*.json", f"{folder}test/*.json") for folder in ("", "data/")]
    pairs.append(("mytrain.json", "mytest.json"))
    pairs += [(f"{folder}*.json", "") for folder in ("", "all_data/", "data/all_data/")]
    for train, test in pairs:
        if files := _visible(root, train):
            return files, _visible(root, test) if test else []
    raise FileNotFoundError(
        f"`root` must hold train/*.json and test/*.json, mytrain.json and mytest.json, or *.json, "
        f"got none in {root}; make them in LEAF's data/femnist with ./preprocess.sh -s niid"
    )


def _visible(root: Path, pattern: str) -> list[Path]:
    return sorted(path for path in root.glob(pattern) if not path.name.startswith("."))


def _parts(
    files: Sequence[Path], new_labels: np.ndarray, numbers: dict[str, int]
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield pixels, labels and number of the writers of used classes; adds them to `numbers`."""
    seen: dict[str, Path] = {}
    for path in files:
        for name, (pixels, labels) in _writers(path):
            if name in seen:
                raise ValueError(
                    "`root` must hold each writer in one file for training and one for test, got "
                    f"{name!r} in {seen[name]} and in {path}; remove copies, and other splits"
                )
            seen[name] = path
            is_used = new_labels[labels] >= 0
            if is_used.any():
                number = numbers.setdefault(name, len(numbers))
                yield pixels[is_used], new_labels[labels[is_used]], number


def _writers(path: Path) -> list[tuple[str, _Writer]]:
    """Return the names and examples of the writers in a file."""
    content = _content(path)
    users, counts, found = (content[key] for key in ("users", "num_samples", "user_data"))
    if len(set(users)) < len(users) or len(counts) != len(users):
        raise ValueError(
            "`root` must hold each user once and a number for each in num_samples, got "
            f"{len(users)} users, {len(set(users))} of them different, and {len(counts)} numbers "
            f"in {path}; {_REMEDY}"
        )
    return [
        (name, _checked(path, name, count, found.get(name)))
        for name, count in zip(users, counts, strict=True)
    ]


def _content(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, with writers as arrays; it must have LEAF's three keys."""
    text = read_file(path)
    try:
        content = json.loads(text, object_hook=_packed)
    except (MemoryError, RecursionError, ValueError) as error:
        raise ValueError(
            f"`root` must hold complete JSON files, {path} is damaged or incomplete ({error}); "
            f"copy it again, or {_REMEDY}"
        ) from error
    kinds = {"users": list, "num_samples": list, "user_data": dict}
    is_leaf = isinstance(content, dict) and all(
        isinstance(content.get(key), kind) for key, kind in kinds.items()
    )
    if not is_leaf or not all(isinstance(name, str) for name in content["users"]):
        raise ValueError(
            "`root` must hold JSON objects with a list of names users, a list num_samples and an "
            f"object user_data, got something else in {path}; move other files away"
        )
    return content


def _packed(found: dict[str, Any]) -> Any:
    """Return a writer's lists as arrays, with a thirtieth of the memory, other objects unchanged.

    An error is returned, and raised where the name of the writer is known.
    """
    if not isinstance(found.get("x"), list) or not isinstance(found.get("y"), list):
        return found
    try:
        return _pixels(found["x"]), _labels(found["y"])
    except ValueError as error:
        return error


def _pixels(images: list[Any]) -> np.ndarray:
    """Return (k, 784) bytes if all numbers are multiples of 1 / 255 in float32, else float32."""
    if not images:
        raise ValueError("no images")
    for image in images:
        if not isinstance(image, list):
            raise ValueError(f"the image {image!r:.40}")
        if len(image) != _SIDE**2:
            raise ValueError(f"an image of {len(image)} numbers")
    try:
        values = np.array(images)
    except (ValueError, OverflowError):
        values = np.array(None)
    if values.dtype.kind not in "iuf" or values.ndim != 2:
        raise ValueError("an image with entries other than numbers")
    outside = values[~((values >= 0) & (values <= 1))]
    if len(outside):
        raise ValueError(f"a pixel of {outside[0]:g}")
    levels = np.rint(values * 255).astype(np.uint8)
    values = values.astype(np.float32)
    return levels if (_numbers(levels) == values).all() else values


def _numbers(pixels: np.ndarray) -> np.ndarray:
    """Return pixels as float32 in [0, 1]: bytes divided by 255, other numbers unchanged."""
    return (pixels / 255).astype(np.float32) if pixels.dtype == np.uint8 else pixels


def _labels(classes: list[Any]) -> np.ndarray:
    """Return labels as an array; FedProx writes them as floats."""
    known = range(len(_CHARACTERS))  # which contains 3.0, too
    for label in classes:
        if type(label) not in (int, float) or label not in known:
            raise ValueError(f"the label {label!r:.40}")
    return np.array(classes, np.int64)


def _checked(path: Path, name: str, count: Any, writer: Any) -> _Writer:
    """Return the examples of a writer, or raise unless there are `count` valid ones."""
    if isinstance(writer, ValueError):
        raise ValueError(
            f"`root` must hold images of {_SIDE**2} numbers in [0, 1] (divide pixels by 255) and "
            f"labels in 0..61, got {writer} for {name!r} in {path}; {_REMEDY}"
        ) from writer
    if not isinstance(writer, tuple):
        raise ValueError(
            "`root` must hold examples of every user, as lists x and y in user_data, got none of "
            f"{name!r} in {path}; "
            "remove the name from users and the number from num_samples, or " + _REMEDY
        )
    pixels, labels = writer
    if not len(pixels) == len(labels) == count:
        raise ValueError(
            "`root` must hold as many images and labels as num_samples says, got "
            f"{len(pixels)} images and {len(labels)} labels of {name!r}, and num_samples "
            f"{count!r:.40} in {path}; {_REMEDY}"
        )
    return writer


def _held_out(sizes: Sequence[int], share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a mask of test examples over the concatenated examples of all writers."""
    if share == 0:
        return np.zeros(sum(sizes), bool)
    held = [min(max(1, round(share * size)), size - 1) for size in sizes]
    return np.concatenate(
        [rng.permutation(size) < own for size, own in zip(sizes, held, strict=True)]
    )


def _inputs(pixels: Sequence[np.ndarray]) -> torch.Tensor:
    """Return (N, 1, 28, 28) images, uint8 if all parts are, else float32."""
    if any(own.dtype != np.uint8 for own in pixels):
        pixels = [_numbers(own) for own in pixels]
    return torch.from_numpy(np.concatenate(pixels)).view(-1, 1, _SIDE, _SIDE)
