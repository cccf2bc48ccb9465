"""What ``topofl run`` prints about a finished run."""

import argparse

from topofl._support.text import node_name, printable
from topofl.cli.compare import check_column, table_of_runs
from topofl.cli.notes import print_notes
from topofl.cli.output import print_json
from topofl.history import History

__all__ = ["print_remark", "print_report"]


def print_report(name: str, history: History, options: argparse.Namespace) -> None:
    """Print the scores of a finished run, and a note if nodes diverged."""
    check_column({name: history}, history.primary, is_json=options.json)
    table = table_of_runs({name: history}, 0.8, history.primary)
    print_json(table) if options.json else print(table)
    if diverged := history.meta["diverged"]:
        first = diverged[0]
        name = node_name(history.meta.get("nodes", ()), first["node"])
        print_notes(
            [f"{len(diverged)} nodes diverged, first node {name} in round {first['round']}"]
        )


def print_remark(text: str, options: argparse.Namespace) -> None:
    """Print a sentence on what was done; with ``--json`` as a note, since stdout is for JSON."""
    print_notes([text]) if options.json else print(printable(text))
