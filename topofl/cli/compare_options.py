"""Options of ``topofl compare``."""

import argparse
import csv
from typing import Any

from topofl.cli.shared_options import add_table_options, add_verb, path_argument

__all__ = ["add_compare"]

_EXAMPLES = """
    topofl compare runs/*
    topofl compare runs/ring runs/dcliques --target 0.85 --plot accuracy.png
    topofl compare runs/* --group-by topology --baseline ring --target 0.8
    topofl compare runs/* --group-by topology,alpha --latex --plot curves.pdf --kind band
    topofl compare runs/* --group-by topology --latex --columns topology,accuracy,std
"""


def add_compare(verbs: Any) -> None:
    """Add the command ``topofl compare``."""
    text = "compare saved runs in a table, or the groups of runs that differ in seeds only"
    verb = add_verb(verbs, "compare", "topofl.cli.compare:compare", text, _EXAMPLES)
    help_runs = "a folder that run (or History.save) wrote; with --group-by also a store of runs"
    verb.add_argument("runs", nargs="+", type=path_argument, metavar="RUN", help=help_runs)
    verb.add_argument(
        "--target",
        type=float,
        metavar="SCORE",
        help="score to reach, for the columns of rounds and costs (default: 0.8; none for groups)",
    )
    help_column = "which score, e.g. accuracy_fine_tuned (default: the task's)"
    verb.add_argument("--column", metavar="NAME", help=help_column)
    verb.add_argument(
        "--hardware",
        metavar="SPEC",
        help="seconds per round on this hardware, for --x seconds and for costs, such as "
        "'Hardware(compute=0.1, latency=0.02, bandwidth=1.25e6)'",
    )
    verb.add_argument(
        "--columns",
        type=_names,
        metavar="NAMES",
        help="columns of the table in this order, separated by commas, for all formats, by their "
        "names in the printed table; names with commas in double quotes (default: all)",
    )
    _add_group_options(verb)
    _add_plot_options(verb)
    form = add_table_options(verb)
    form.add_argument(
        "--latex", action="store_true", help="print a LaTeX tabular for the package booktabs"
    )


def _names(text: str) -> list[str]:
    """Return names that are separated by commas, those with commas in double quotes."""
    return [name.strip() for row in csv.reader([text], skipinitialspace=True) for name in row]


def _add_plot_options(verb: argparse.ArgumentParser) -> None:
    """Add what ``compare`` draws."""
    help_plot = "draw scores against --x, or --kind for groups (.png, .pdf, .svg)"
    verb.add_argument("--plot", type=path_argument, metavar="FILE", help=help_plot)
    verb.add_argument(
        "--x",
        choices=("rounds", "steps", "megabytes", "seconds"),
        help="horizontal axis of --plot (default: rounds; megabytes for --kind pareto); seconds "
        "are simulated, see --hardware",
    )
    verb.add_argument(
        "--kind",
        choices=("band", "violin", "nodes", "pareto", "heat_map"),
        help="with --group-by and --plot: what to draw (default: band)",
    )
    verb.add_argument(
        "--band",
        choices=("interval", "range"),
        help="with --group-by and --plot: 95 %% intervals of means, or lowest to highest run "
        "(default: intervals from five runs per group)",
    )


def _add_group_options(verb: argparse.ArgumentParser) -> None:
    """Add the options of ``compare`` on groups of runs."""
    verb.add_argument(
        "--group-by",
        metavar="NAMES",
        help="settings that make a group, separated by commas: topology, alpha, algorithm.lr; "
        "prints means over seeds with 95 %% intervals",
    )
    verb.add_argument(
        "--baseline",
        metavar="VALUE",
        help="with --group-by: paired differences to this group; a value, or setting=value",
    )
    verb.add_argument(
        "--over",
        metavar="NAMES",
        help="with --group-by: settings other than seeds to average over on purpose",
    )
