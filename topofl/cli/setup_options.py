"""Options of ``topofl new``, ``doctor``, ``completion`` and ``explore``."""

from pathlib import Path
from typing import Any

from topofl.cli.shared_options import add_json_option, add_verb, path_argument

__all__ = ["add_completion", "add_doctor", "add_explore", "add_new"]

SHELLS = ("bash", "zsh")
"""Shells with a completion script that is tested."""

_ABOUT_COMPLETION = """

For bash, with the package bash-completion:
  topofl completion bash > ~/.local/share/bash-completion/completions/topofl
For zsh, with a folder of fpath, before compinit in ~/.zshrc:
  topofl completion zsh > ~/.zsh/completions/_topofl"""

_ABOUT_DOCTOR = """

The checks: versions of Python, topofl and the packages it needs; devices; datasets in --data, or in
$TOPOFL_DATA, or in data/ and ../shared/data; whether runs can be saved; and two seconds of training
on embedded data, compared with numpy. If something is wrong, the exit code is 1."""

_ABOUT_EXPLORE = """

The page shows both graphs, label energy in their spectra, costs and predicted rounds, trains on
both, and has the Python code that does the same. It offers the embedded digits and the datasets in
--data, or in $TOPOFL_DATA, or in data/ and ../shared/data; nothing is downloaded. It is served on
127.0.0.1 only, until Ctrl-C."""


def add_new(verbs: Any) -> None:
    """Add the command ``topofl new``."""
    examples = """
        topofl new
        topofl new ring.toml
        topofl new experiment.toml --force
    """
    text = "write a commented experiment.toml that topofl run accepts as it is"
    verb = add_verb(verbs, "new", "topofl.cli.new:new", text, examples)
    verb.add_argument(
        "file",
        nargs="?",
        type=path_argument,
        default=Path("experiment.toml"),
        metavar="FILE",
        help="the file to write (default: experiment.toml)",
    )
    verb.add_argument("--force", action="store_true", help="overwrite an existing file")


def _add_folder_of_datasets(verb: Any) -> None:
    verb.add_argument(
        "--data",
        type=path_argument,
        metavar="DIR",
        help="folder that contains datasets, directly or in subfolders",
    )


def add_doctor(verbs: Any) -> None:
    """Add the command ``topofl doctor``."""
    examples = """
        topofl doctor
        topofl doctor --data path/to/data
        topofl doctor --json
    """
    text = "check the installation, and report what a bug report needs"
    verb = add_verb(verbs, "doctor", "topofl.cli.doctor:doctor", text, examples, _ABOUT_DOCTOR)
    _add_folder_of_datasets(verb)
    verb.add_argument(
        "--out",
        type=path_argument,
        default=Path("runs"),
        metavar="DIR",
        help="folder in which runs are to be saved (default: runs)",
    )
    add_json_option(verb)


def add_completion(verbs: Any) -> None:
    """Add the command ``topofl completion``."""
    examples = """
        topofl completion bash
        topofl completion zsh
    """
    text = "print a script that completes commands, options, names and paths in a shell"
    command = "topofl.cli.completion:completion"
    verb = add_verb(verbs, "completion", command, text, examples, _ABOUT_COMPLETION)
    verb.add_argument("shell", choices=SHELLS, help="the shell that reads the script")


def add_explore(verbs: Any) -> None:
    """Add the command ``topofl explore``."""
    examples = """
        topofl explore
        topofl explore --data path/to/data
        topofl explore --port 8700 --no-browser
    """
    text = "compare two topologies in a browser, with widgets (extra: explore)"
    verb = add_verb(verbs, "explore", "topofl.cli.explore:explore", text, examples, _ABOUT_EXPLORE)
    _add_folder_of_datasets(verb)
    help_port = "port on 127.0.0.1 (default: a free one)"
    verb.add_argument("--port", type=int, default=0, metavar="P", help=help_port)
    help_browser = "only print the address; do not open a browser"
    verb.add_argument("--no-browser", action="store_true", help=help_browser)
