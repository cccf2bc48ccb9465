"""Clients that options describe."""

import argparse
from pathlib import Path

from topofl import data
from topofl._support.datasets import MARKERS, dataset_folder
from topofl._support.words import did_you_mean
from topofl.data import Partition

__all__ = ["shards_of"]


def shards_of(options: argparse.Namespace, n: int) -> Partition:
    """Return the n clients of ``--data`` (digits, or MNIST in a folder) and ``--per-node``."""
    return data.shards(_dataset(options.data), n, options.per_node, seed=options.seed)


def _dataset(name: str) -> data.Dataset:
    if name == "digits":
        return data.digits()
    folder = Path(name).expanduser()
    if not folder.exists():
        raise ValueError(
            f"`--data` must be 'digits' or a folder with MNIST, got {name}, which does not exist"
            f"{did_you_mean(name, ['digits'])}"
        )
    found = dataset_folder(folder, "mnist")
    if found is None:
        raise ValueError(
            f"`--data` must be 'digits' or a folder with MNIST, got {name}, where no "
            f"{MARKERS['mnist']} is found, up to three folders below"
        )
    try:
        return data.mnist(found)
    except (ValueError, FileNotFoundError) as error:
        kind = ValueError if isinstance(error, ValueError) else FileNotFoundError
        raise kind(str(error).replace("`root`", "`--data`", 1)) from error
