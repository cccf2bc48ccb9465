"""Settings of a reproduction: scale, seeds, data and device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from topofl.engine.options import check_device
from topofl.toolkit import MARKERS, dataset_folder, dataset_folders, default_root

from .arguments import check_choice, check_positive_int

SCALES = ("smoke", "quick", "paper")
"""``smoke``: a test of every part; ``quick``: for a 2-core CPU; ``paper``: the paper's setting."""


@dataclass(frozen=True)
class Setting:
    """Scale, seeds, data and device of a reproduction.

    Parameters
    ----------
    scale
        One of :data:`SCALES`.
    seeds
        Seeds of every arm's runs.
    root
        Folder that contains the datasets' files, possibly in subfolders; None without files.
    device
        As for :func:`topofl.run`.
    datasets
        Datasets to use; figures and panels of others are left out.
    """

    scale: str
    seeds: tuple[int, ...]
    root: Path | None = None
    device: str | None = None
    datasets: tuple[str, ...] = ("mnist", "cifar10")

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"`seeds` must be one or more different integers, got {self.seeds}")

    def root_of(self, dataset: str) -> str:
        """Return the folder with a dataset's files, at most three levels below `root`.

        Raises
        ------
        FileNotFoundError
            If there is no such folder.
        """
        if self.root is not None and (found := dataset_folder(self.root, dataset)):
            return str(found)
        where = (
            "no folder was given, and TOPOFL_DATA is not set"
            if self.root is None
            else f"nothing named {MARKERS[dataset]} is in or below {self.root}"
        )
        raise FileNotFoundError(
            f"the files of {dataset} are needed: {where}; give the folder that contains them with "
            "--data"
        )


SEEDS = {"smoke": 2, "quick": 3, "paper": 5}
"""Default number of seeds by scale."""


DIGITS_FOR = ("mnist", "cifar10", "cifar100")
"""Datasets that the embedded digits replace at scale ``"smoke"``."""


def available(root: Path | None) -> tuple[str, ...]:
    """Return the datasets whose files are in a folder or its subfolders."""
    return () if root is None else tuple(dataset_folders(root))


def make_setting(
    scale: str = "quick",
    *,
    seeds: int | None = None,
    root: str | Path | None = None,
    device: str | None = None,
    datasets: Sequence[str] | None = None,
) -> Setting:
    """Return the setting of a command after checking its arguments.

    Parameters
    ----------
    scale
        ``"smoke"``, ``"quick"`` or ``"paper"``.
    seeds
        Number of seeds, counted from 0; by default 2, 3 and 5 at these scales.
    root
        Folder that contains the datasets' files, possibly in subfolders; None: the environment
        variable TOPOFL_DATA, if it is set. Not needed at scale ``"smoke"``.
    device
        As for :func:`topofl.run`.
    datasets
        Datasets to use; by default all that are available.

    Raises
    ------
    ValueError
        If an argument has an invalid value.
    FileNotFoundError
        If the folder or a requested dataset does not exist.
    """
    check_device(device)
    place = default_root() if root is None else Path(root)
    setting = Setting(check_choice("scale", scale, SEEDS), (0,), place, device)
    if setting.root is not None and not setting.root.is_dir():
        raise FileNotFoundError(
            f"there is no folder {setting.root}; give the folder that contains the datasets' files "
            "with --data"
        )
    count = SEEDS[scale] if seeds is None else check_positive_int("seeds", seeds)
    found = DIGITS_FOR if scale == "smoke" else available(setting.root)
    for name in datasets or ():
        check_choice("datasets", name, MARKERS)
        if name not in found:
            setting.root_of(name)
    chosen = tuple(name for name in found if datasets is None or name in datasets)
    return replace(setting, seeds=tuple(range(count)), datasets=chosen)


class Split(NamedTuple):
    """A column of a paper's tables: a dataset and its partition among the clients."""

    dataset: str
    partition: Mapping[str, Any]
