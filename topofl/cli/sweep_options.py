"""Options of ``topofl sweep`` and ``topofl runs``."""

import argparse
from pathlib import Path
from typing import Any

from topofl.cli.shared_options import add_table_options, add_verb, path_argument

__all__ = ["add_runs", "add_sweep"]

_SWEEP_EXAMPLES = """
    topofl sweep base.toml --grid topology=ring,torus data.alpha=0.1,1 --seeds 10 --jobs 4
    topofl sweep base.toml --grid "topology=ring,(dcliques,inter=ring)" --seeds 3 --dry-run
    topofl sweep base.toml --grid "algorithm.lr=log_uniform(0.01,1)" --random 20
    topofl sweep base.toml --grid "algorithm.lr=log_uniform(0.01,1)" --search 20
    topofl sweep base.toml --points points.json --store runs/mine --shard 1/2
    topofl sweep base.toml --grid topology=ring,torus --seeds 10 --slurm timeout_min=60
"""

_RUNS_EXAMPLES = """
    topofl runs runs/sweeps
    topofl runs runs/sweeps --where topology.name=ring data.alpha=0.1
    topofl runs runs/sweeps --failed
    topofl runs runs/sweeps --where run.rounds=10 --remove
"""

_ABOUT_STORE = "folder of the store (default: runs/sweeps); its finished runs are not repeated"


def add_sweep(verbs: Any) -> None:
    """Add the command ``topofl sweep``."""
    text = "run a grid of settings and seeds, without repeating finished runs"
    verb = add_verb(verbs, "sweep", "topofl.cli.sweep:sweep", text, _SWEEP_EXAMPLES)
    _add_sweep_options(verb)
    add_table_options(verb)


_SWEEP_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "--grid": (
        {"nargs": "+", "action": "extend", "default": [], "metavar": "KEY=A,B"},
        "values of settings, in all combinations; with --random and --search also "
        "uniform(a,b), log_uniform(a,b), integers(a,b)",
    ),
    "--points": (
        {"type": path_argument, "metavar": "FILE.json"},
        'a list of points instead, as [{"data.alpha": 0.1}, ...]',
    ),
    "--random": ({"type": int, "metavar": "K"}, "draw K points from the values of --grid"),
    "--search": ({"type": int, "metavar": "K"}, "search for the best point in K trials"),
    "--column": (
        {"default": "accuracy", "metavar": "NAME"},
        "final score of --search (default: accuracy); losses and errors are minimized",
    ),
    "--draw-seed": (
        {"type": int, "default": 0, "metavar": "S"},
        "seed of --random and --search (default: 0)",
    ),
    "--set": (
        {"action": "append", "default": [], "metavar": "KEY=VALUE"},
        "change BASE.toml first, as in topofl run",
    ),
    "--seeds": (
        {"type": int, "metavar": "K"},
        "K seeds per point, of run, partition and graph alike (default: those of BASE.toml)",
    ),
    "--vary": (
        {"default": "run,data,topology", "metavar": "NAMES"},
        "what gets the seeds (default: run,data,topology)",
    ),
    "--store": (
        {"type": path_argument, "default": Path("runs/sweeps"), "metavar": "DIR"},
        _ABOUT_STORE,
    ),
    "--jobs": (
        {"type": int, "metavar": "J"},
        "processes (default: 1); on clusters, runs at a time (default: all)",
    ),
    "--shard": ({"metavar": "I/N"}, "only part I of N, for machines that share nothing"),
    "--slurm": (
        {"nargs": "+", "metavar": "KEY=VALUE"},
        "submit Slurm arrays by submitit, with these parameters",
    ),
    "--dask": ({"metavar": "ADDRESS"}, "submit to this scheduler of Dask"),
    "--ray": ({"metavar": "ADDRESS"}, "submit to this cluster of Ray; auto finds it"),
}
"""Options with a value: arguments of ``add_argument``, and help."""


def _add_sweep_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "config", type=path_argument, metavar="BASE.toml", help="settings of all runs"
    )
    for name, (how, text) in _SWEEP_OPTIONS.items():
        verb.add_argument(name, help=text, **how)
    verb.add_argument("--retry-failed", action="store_true", help="repeat runs that failed before")
    verb.add_argument(
        "--dry-run", action="store_true", help="show runs, time and memory, from probes"
    )
    help_progress = "a live table (default: on terminals)"
    verb.add_argument("--progress", action=argparse.BooleanOptionalAction, help=help_progress)


def add_runs(verbs: Any) -> None:
    """Add the command ``topofl runs``."""
    text = "list, filter and remove stored runs, and list those that are not finished"
    verb = add_verb(verbs, "runs", "topofl.cli.runs:runs", text, _RUNS_EXAMPLES)
    verb.add_argument(
        "store",
        type=path_argument,
        metavar="STORE",
        help="a store, or a folder with folders of topofl run",
    )
    verb.add_argument(
        "--where",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="only runs with these settings; key=... selects by (the start of) the key",
    )
    verb.add_argument(
        "--columns", metavar="NAMES", help="settings to show (default: those that differ)"
    )
    verb.add_argument("--failed", action="store_true", help="failed runs, with their errors")
    verb.add_argument("--traceback", action="store_true", help="with --failed: whole tracebacks")
    verb.add_argument(
        "--remove", action="store_true", help="remove these runs; needs --where or --failed"
    )
    add_table_options(verb)
