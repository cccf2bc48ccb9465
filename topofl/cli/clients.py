"""Clients that options describe."""

import argparse
from pathlib import Path

from topofl import data
from topofl.data import Partition

__all__ = ["shards_of"]


def shards_of(options: argparse.Namespace, n: int) -> Partition:
    """Return the n clients of ``--data`` (digits, or a folder with MNIST) and ``--per-node``."""
    dataset = (
        data.digits() if options.data == "digits" else data.mnist(Path(options.data).expanduser())
    )
    return data.shards(dataset, n, options.per_node, seed=options.seed)
