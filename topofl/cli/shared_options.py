"""Options that several commands share, and how a command is added to the parser."""

import argparse
from pathlib import Path
from typing import Any

__all__ = [
    "EXIT_CODES",
    "add_data_options",
    "add_json_option",
    "add_report_options",
    "add_table_options",
    "add_trust_option",
    "add_verb",
    "path_argument",
]

EXIT_CODES = "exit codes: 0 success; 1 the run failed; 2 wrong usage or configuration"
"""Last line of ``topofl --help``; ``docs/command-line.md`` has the details."""


def path_argument(text: str) -> Path:
    """Return a path; an empty argument, as from an unset shell variable, is rejected."""
    if not text:
        raise argparse.ArgumentTypeError(
            "must be a path, got empty text; the current folder is '.'"
        )
    return Path(text)


def add_verb(
    verbs: Any,
    name: str,
    command: str,
    text: str,
    examples: str,
    more: str = "",
) -> argparse.ArgumentParser:
    """Add a command to the parser and return its own parser."""
    indented = "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
    verb: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=text,
        description=f"{text}{more}",
        epilog=f"{EXIT_CODES}\n\nexamples:\n{indented}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.set_defaults(command=command)
    return verb


def add_data_options(verb: argparse.ArgumentParser) -> None:
    """Add the options that say which clients ``spectral`` and ``recommend`` are about."""
    verb.add_argument(
        "--data",
        metavar="DATA",
        help="a dataset with its arguments, as digits or cifar10,root=DIR,verify=false, or a "
        "folder with MNIST in it or below; arguments are the keys of [data]",
    )
    verb.add_argument(
        "--partition",
        metavar="PARTITION",
        help="how --data is divided, as dirichlet_per_client,alpha=0.1; see topofl list partition "
        "(default: shards)",
    )
    verb.add_argument(
        "--per-node", type=int, metavar="K", help="shards of sorted data per node (default: 2)"
    )


def add_report_options(verb: argparse.ArgumentParser, contents: str, default: str) -> Any:
    """Add the options that ``spectral`` and ``graphs`` share; return the group of their columns."""
    verb.add_argument(
        "--html", type=path_argument, metavar="FILE", help=f"also write a page: {contents}"
    )
    groups = "structure, paths, averaging, rounds, push-sum, data, cost"
    which = verb.add_mutually_exclusive_group()
    which.add_argument(
        "--about",
        metavar="GROUPS",
        help=f"which columns, separated by commas: {groups} (default: {default})",
    )
    return which


def add_table_options(verb: argparse.ArgumentParser) -> Any:
    """Add the options of commands that print a table; return the group of their formats."""
    verb.add_argument(
        "--csv",
        type=path_argument,
        metavar="FILE",
        help="also write the table there, in full precision",
    )
    form = verb.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    add_json_option(form)
    return form


def add_json_option(verb: Any) -> None:
    """Add ``--json``, with which a command prints only JSON on stdout."""
    verb.add_argument(
        "--json", action="store_true", help="print a JSON list with one object per row"
    )


def add_trust_option(verb: Any) -> None:
    """Add ``--trust``, without which names in a stored run import no module, as in ``main``."""
    verb.add_argument(
        "--trust",
        action="store_true",
        help="import the functions that the run names as module:function, which runs their code",
    )
