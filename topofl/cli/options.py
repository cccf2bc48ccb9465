"""Classes of options, those that several commands share, and the parser that is made from them."""

import argparse
import re
import textwrap
from collections.abc import Iterable, Sequence
from inspect import cleandoc, get_annotations
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

import topofl
from topofl._support.text import did_you_mean

EXIT_CODES = "exit codes: 0 success; 1 the run failed; 2 wrong usage or configuration"
"""Last line of ``topofl --help``; ``docs/command-line.md`` has the details."""

EXCLUSIVE = {
    ("force", "skip_done"): False,
    ("about", "all"): False,
    ("latex", "markdown", "json"): False,
    ("max_degree", "max_messages", "max_bytes"): True,
}
"""Options of which at most one can be given, and whether one has to be."""


class Options(argparse.Namespace):
    """Options of a command; those without a default, and those with ``nargs``, are positional."""


def check_alone(options: Options, *names: str) -> None:
    """Raise ``ValueError`` if the first option and another one are given, which exclude it."""
    if given := [name for name in names[1:] if getattr(options, name)]:
        raise ValueError(
            f"`--{names[0]}` must be given without `--{given[0].replace('_', '-')}`; leave one out"
        )


class JsonOptions(Options):
    """Options of commands whose result is no table.

    Parameters
    ----------
    json
        print a JSON list with one object per row
    """

    json: bool = False


class TableOptions(Options):
    """Options of commands that print a table.

    Parameters
    ----------
    markdown
        print a Markdown table
    json
        print a JSON list with one object per row
    csv : FILE
        also write the table there, in full precision
    """

    markdown: bool = False
    json: bool = False
    csv: Path | None = None


class DataOptions(Options):
    """Options that say which clients a command is about.

    Parameters
    ----------
    data : DATA
        a dataset with its arguments, as digits or cifar10,root=DIR,verify=false, or a folder with
        MNIST in it or below; arguments are the keys of [data]
    partition : PARTITION
        how --data is divided, as dirichlet_per_client,alpha=0.1; see topofl list partition
        (default: shards)
    per_node : K
        shards of sorted data per node (default: 2)
    """

    data: str | None = None
    partition: str | None = None
    per_node: int | None = None


class TrainingOptions(JsonOptions):
    """Options of commands that train one run.

    Parameters
    ----------
    set : KEY=VALUE
        table.key=value, or table=spec for a whole table; may be repeated
    log : FILE.jsonl
        append one JSON object per event to this file
    tensorboard : DIR
        write scalars for TensorBoard here
    progress
        a bar (default: on terminals)
    """

    set: Annotated[Sequence[str], {"action": "append", "nargs": None}] = ()
    log: Path | None = None
    tensorboard: Path | None = None
    progress: bool | None = None


class TrustOptions(Options):
    """The option without which names in a stored run import no module.

    Parameters
    ----------
    trust
        import the functions that the run names as module:function, which runs their code
    """

    trust: bool = False


class Parser(argparse.ArgumentParser):
    """A parser that raises its errors as ``ValueError`` instead of exiting."""

    def parse_known_args(  # type: ignore[override]  # the overloads of argparse
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse arguments; unknown ones are an error of the command that they were given to."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown)}")
        return options, unknown

    def _nearest(self, unknown: Iterable[str]) -> str:
        """Return a suggestion for the first unknown option that resembles a known one."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        given = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        return next(filter(None, (did_you_mean(word, known) for word in given)), "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise if `value` is not one of the choices, suggesting the nearest one."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            wanted = (
                f"must be one of {', '.join(known)}, got {value!r}{did_you_mean(str(value), known)}"
            )
            raise argparse.ArgumentError(action, wanted)

    def error(self, message: str) -> NoReturn:
        """Raise ``ValueError``, with the command whose help describes the arguments."""
        raise ValueError(f"{message} (see {self.prog} --help)")


def path_argument(text: str) -> Path:
    """Return a path; an empty argument, as from an unset shell variable, is rejected."""
    if not text:
        raise argparse.ArgumentTypeError(
            "must be a path, got empty text; the current folder is '.'"
        )
    return Path(text)


def parser_of(commands: Iterable[type[Options]]) -> Parser:
    """Return the parser of commands, which sets ``command`` to the class of its options."""
    parser = Parser(
        prog="topofl",
        description="Decentralized federated learning over graphs: "
        "compare topologies, train, report.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"topofl {topofl.__version__}")
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        _add(verbs, command)
    return parser


def _add(verbs: Any, command: type[Options]) -> None:
    """Add the parser of a command, as its class and docstring describe it."""
    about, _, examples = _sections(command)
    first, *more = about.split("\n\n", 1)
    text = f"{first[:1].lower()}{first[1:].removesuffix('.')}"
    verb = verbs.add_parser(
        command.__name__.lower(),
        help=text,
        description="\n\n".join([text, *more]),
        epilog=f"{EXIT_CODES}\n\nexamples:\n{textwrap.indent(examples, '  ')}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.set_defaults(command=command)
    bases = command.__mro__[: command.__mro__.index(Options)]
    described = {name: words for base in reversed(bases) for name, *words in _sections(base)[1]}
    groups: dict[tuple[str, ...], Any] = {}
    for name, annotation in [one for base in bases for one in get_annotations(base).items()]:
        given = _argument(annotation, getattr(command, name, None))
        metavar, given["help"] = described.get(name, ("", None))  # python -OO has no docstrings
        if metavar:
            given["metavar"] = metavar
        if not hasattr(command, name) or given.get("nargs") in ("?", "*"):
            verb.add_argument(name, **given)
            continue
        together = next((names for names in EXCLUSIVE if name in names), ())
        if together and together not in groups:
            groups[together] = verb.add_mutually_exclusive_group(required=EXCLUSIVE[together])
        groups.get(together, verb).add_argument(f"--{name.replace('_', '-')}", **given)


def _sections(command: type[Options]) -> tuple[str, list[tuple[str, str, str]], str]:
    """Return description, parameters (name, metavar and help) and examples of a docstring."""
    text = cleandoc(command.__doc__ or "")
    about, _, rest = text.partition("\n\nParameters\n----------\n")
    parameters, _, examples = rest.partition("\n\nExamples\n--------\n")
    found = re.findall(r"^(\w+)(?: : (.+))?\n((?:    .+\n?)+)", parameters, re.MULTILINE)
    helps = [
        (name, word, " ".join(help.split()).replace("% ", "%% ")) for name, word, help in found
    ]
    return about, helps, examples


def _argument(annotation: Any, default: Any) -> dict[str, Any]:
    """Return the arguments of ``add_argument`` for the type and the default of an option."""
    more: dict[str, Any] = {}
    if get_origin(annotation) is Annotated:
        annotation, more = get_args(annotation)
    alternatives = get_args(annotation) if NoneType in get_args(annotation) else [annotation]
    kind = alternatives[0]
    given: dict[str, Any] = {"default": default}
    if get_origin(kind) is Sequence:
        (kind,) = get_args(kind)
        own = None if default is None else list(default)
        given = {"nargs": "+", "action": "extend", "default": own}
    if kind is bool:
        is_open = NoneType in alternatives
        given["action"] = argparse.BooleanOptionalAction if is_open else "store_true"
    elif get_origin(kind) is Literal:
        given["choices"] = get_args(kind)
    elif kind is not str:
        given["type"] = path_argument if kind is Path else kind
    return given | more
