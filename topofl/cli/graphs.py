"""``topofl graphs``: the graphs of a saved run, round by round."""

import argparse
import shlex
from pathlib import Path

from topofl import config, metrics
from topofl._support.check import check_int
from topofl.cli.folders import load_finished
from topofl.cli.output import print_table
from topofl.data import Partition

__all__ = ["graphs"]


def graphs(options: argparse.Namespace) -> None:
    """Print a table of the graphs of a saved run; with ``--html``, also write a page."""
    history = load_finished(options.folder)
    clients = _clients_of(options.folder) if options.labels else None
    about = (
        ["structure", "averaging", "data"] if options.about is None else options.about.split(",")
    )
    every = check_int("--every", options.every, minimum=1)
    last = history.n_rounds - 1
    rounds = sorted({*range(0, last, every), last})
    table = metrics.over_rounds(history, rounds=rounds, label_counts=clients, about=about)
    if options.html is not None:
        from topofl import report  # it loads matplotlib

        flipped = () if clients is None else clients.flipped
        words = [
            "topofl",
            "graphs",
            str(options.folder),
            *["--labels"] * options.labels,
            "--every",
            str(every),
        ]
        command = shlex.join([*words, "--about", ",".join(about), "--html", str(options.html)])
        page = report.rounds_report(
            history, table, label_counts=clients, marked=flipped if len(flipped) else None,
            marked_name="mislabelled" if len(flipped) else "", command=command,
        )  # fmt: skip
        with report.replacing(options.html) as file:
            file.write(page)
    print_table(table, options)


def _clients_of(folder: Path) -> Partition:
    """Return the partition of a run, from the configuration saved next to its history."""
    if not (path := folder / "config.toml").is_file():
        raise ValueError(
            f"`--labels` needs the configuration of the run, {path} is missing; leave it out"
        )
    return config.load(path).clients
