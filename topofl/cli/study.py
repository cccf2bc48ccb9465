"""``topofl study``: which numbers of graphs predict how well nodes learn."""

import argparse
from importlib import import_module

__all__ = ["study"]


def study(options: argparse.Namespace) -> None:
    """Train over many graphs, and correlate their numbers with the outcomes."""
    if not options.scenarios:
        raise ValueError(
            "CONFIG.toml must be given, or scenarios of our study, or 'all' for the whole study, "
            "which trains thousands of models; --dry-run shows how many"
        )
    if options.scenarios == ["all"]:
        options.scenarios = []
    # Imported here, since it depends on all of topofl and loads torch-geometric.
    import_module("topofl.analysis.study.command").study(options)
