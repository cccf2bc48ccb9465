"""``topofl completion``: scripts that complete commands, options, names and paths in a shell."""

import argparse
from collections.abc import Iterator
from typing import Any

from topofl._support.optional import imported
from topofl.cli.declared import declarations
from topofl.cli.parser import make_parser
from topofl.cli.shared_options import path_argument
from topofl.cli.sources import reading

__all__ = ["completion"]

_SPECS = {
    "bash": """
_topofl_specs() {{
  compgen -W "{names}" -- "$1"
  compgen -f -- "$1"
}}
""",
    "zsh": """
_topofl_specs() {{
  _alternative 'topologies:topology:({names})' 'files:file:_files'
}}
""",
}
"""Functions of shells that complete specs of graphs: names of topologies, and files."""


def completion(options: argparse.Namespace) -> None:
    """Print the script of a shell. It is static: completing a word starts no Python."""
    shtab = imported("shtab", "completion", "`topofl completion`")
    parser = make_parser()
    for action in _actions(parser):
        if action.dest == "specs":
            action.complete = dict.fromkeys(_SPECS, "_topofl_specs")
        elif action.type is path_argument:
            is_folder = action.metavar in ("DIR", "STORE", "RUN")
            action.complete = shtab.DIRECTORY if is_folder else shtab.FILE
    with reading():
        names = " ".join(declarations("topology"))
    preamble = {shell: text.format(names=names) for shell, text in _SPECS.items()}
    print(shtab.complete(parser, shell=options.shell, preamble=preamble))


def _actions(parser: argparse.ArgumentParser) -> Iterator[Any]:
    """Yield the arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _actions(verb)
