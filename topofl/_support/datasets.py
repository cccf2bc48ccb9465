"""Datasets on this machine: folders that hold the files of known ones, found by their names."""

import os
from pathlib import Path

__all__ = ["MARKERS", "dataset_folder", "dataset_folders", "dataset_places"]

MARKERS = {
    "mnist": "train-images-idx3-ubyte",
    "cifar10": "data_batch_1",
    "cifar100": "cifar-100-",
    "cinic10": "valid/airplane",
    "femnist": "train/all_data_",
}
"""Start of the name of a file that identifies each dataset's folder."""


def dataset_folder(root: Path, dataset: str) -> Path | None:
    """Return the folder with a dataset's files, at most three levels below `root`, or None.

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
        if found := sorted(root.glob(f"{depth}{marker}*")):
            return found[0].parents[marker.count("/")]
    return None


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
    option = "--data" if given else "TOPOFL_DATA"
    place = given or os.environ.get("TOPOFL_DATA")
    if place and not Path(place).is_dir():
        raise ValueError(f"{option} must be a folder, got {place}")
    return [Path(place)] if place else [Path("data"), Path("..", "shared", "data")]
