"""``topofl sweep``: many runs over points and seeds."""

import argparse
from importlib import import_module

from topofl._support.forking import prepare_fork

__all__ = ["sweep"]


def sweep(options: argparse.Namespace) -> None:
    """Perform the runs of a sweep and print their table."""
    if (options.jobs or 1) > 1 and not options.dry_run:
        prepare_fork()  # it imports torch while this process does
    import_module("topofl.cli.sweeping").sweep(options)
