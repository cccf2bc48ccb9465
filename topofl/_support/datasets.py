"""Datasets on this machine: folders that hold the files of known ones, found by their names."""

import os
from pathlib import Path

MARKERS = {
    "mnist": "train-images-idx3-ubyte",
    "fashion_mnist": "train-images-idx3-ubyte",
    "emnist": "emnist-",
    "cifar10": "data_batch_1",
    "cifar100": "cifar-100-",
    "cinic10": "valid/airplane",
    "tiny_imagenet": "wnids.txt",
    "femnist": "train/all_data_",
}
"""Start of the name of a file that identifies each dataset's folder."""

INSIDE = {
    "mnist": ("raw", "MNIST/raw"),
    "fashion_mnist": ("raw", "FashionMNIST/raw"),
    "emnist": ("gzip", "raw", "EMNIST/raw"),
    "cifar10": ("cifar-10-batches-py", "cifar-10-batches-bin"),
    "cinic10": ("CINIC-10",),
    "tiny_imagenet": ("tiny-imagenet-200",),
    "femnist": ("data",),
}
"""Folders inside of a folder in which the readers look themselves, as torchvision and LEAF do."""


_ALIKE = ("mnist", "fashion_mnist")
"""Datasets whose files have the same names."""


def dataset_root(root: Path, dataset: str) -> Path:
    """Return the folder from which a dataset is read if `root` is given.

    This is `root` if the files are in it or in a folder :data:`INSIDE` of it; else the folder below
    that :func:`dataset_folder` finds; else `root`, whose reader says what is missing.
    """
    marker = MARKERS.get(dataset)
    inside = ("", *(f"{place}/" for place in INSIDE.get(dataset, ())))
    if marker is None or any(any(root.glob(f"{place}{marker}*")) for place in inside):
        return root
    return dataset_folder(root, dataset) or root


def dataset_folder(root: Path, dataset: str) -> Path | None:
    """Return the folder with a dataset's files, at most three levels below `root`, or None.

    MNIST and Fashion-MNIST have files of the same names: a folder is of Fashion-MNIST if its name,
    or that of its parent if it is called raw, contains "fashion".

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder, "mnist")
    ...     place.mkdir()
    ...     (place / "train-images-idx3-ubyte.gz").touch()
    ...     dataset_folder(Path(folder), "mnist") == place, dataset_folder(place, "cifar10")
    (True, None)
    """
    marker = MARKERS[dataset]
    for depth in ("", "*/", "*/*/", "*/*/*/"):
        for found in sorted(root.glob(f"{depth}{marker}*")):
            folder = found.parents[marker.count("/")]
            if dataset not in _ALIKE or dataset == _ALIKE[_is_fashion(folder)]:
                return folder
    return None


def _is_fashion(folder: Path) -> bool:
    """Return whether the name of a folder says that its files are those of Fashion-MNIST."""
    place = folder.absolute()
    return "fashion" in (place.parent if place.name == "raw" else place).name.lower()


def dataset_folders(root: Path) -> dict[str, Path]:
    """Return the folders of the datasets in or below `root`, by name.

    Examples
    --------
    >>> dataset_folders(Path("nowhere"))
    {}
    """
    folders = {name: dataset_folder(root, name) for name in MARKERS}
    return {name: folder for name, folder in folders.items() if folder is not None}


def dataset_places(given: Path | None = None) -> list[Path]:
    """Return where datasets are looked for: `given`, else $TOPOFL_DATA, else the usual folders.

    Raises
    ------
    ValueError
        If `given` (the option ``--data``) or $TOPOFL_DATA is not a folder.
    """
    if given and not given.is_dir():
        raise ValueError(f"--data must be a folder, got {given}")
    place = given or default_root()
    return [place] if place else [Path("data"), Path("..", "shared", "data")]


def default_root() -> Path | None:
    """Return the folder $TOPOFL_DATA, where readers look without `root`; None if it is not set.

    Raises
    ------
    ValueError
        If it is not a folder.

    Examples
    --------
    >>> import tempfile
    >>> from unittest.mock import patch
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, TOPOFL_DATA=folder):
    ...     default_root() == Path(folder)
    True
    """
    place = os.environ.get("TOPOFL_DATA")
    if place and not Path(place).is_dir():
        raise ValueError(f"TOPOFL_DATA must be a folder, got {place}")
    return Path(place) if place else None
