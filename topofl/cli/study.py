"""``topofl study``: which numbers of graphs predict how well nodes learn."""

import argparse
from importlib import import_module

__all__ = ["study"]


def study(options: argparse.Namespace) -> None:
    """Train over many graphs, and correlate their numbers with the outcomes."""
    # Imported here, since it depends on all of topofl and loads torch-geometric.
    import_module("topofl.analysis.study.command").study(options)
