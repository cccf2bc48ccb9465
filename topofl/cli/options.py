"""Options that several commands share, and the parser that is made from functions of options."""

import argparse
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

import topofl
from topofl._support.text import did_you_mean

Function = Callable[..., None]

EXIT_CODES = "exit codes: 0 success; 1 the run failed; 2 wrong usage or configuration"
"""Last line of ``topofl --help``; ``docs/command-line.md`` has the details."""

EXCLUSIVE = {
    ("force", "skip_done"): False,
    ("about", "all"): False,
    ("latex", "markdown", "json"): False,
    ("max_degree", "max_messages", "max_bytes"): True,
}
"""Options of which at most one can be given, and whether one has to be."""


def check_alone(options: argparse.Namespace, *names: str) -> None:
    """Raise ``ValueError`` if the first option and another one are given, which exclude it."""
    if given := [name for name in names[1:] if getattr(options, name)]:
        raise ValueError(
            f"`--{names[0]}` must be given without `--{given[0].replace('_', '-')}`; leave one out"
        )


def json_options(json: bool = False) -> None:
    """Options of commands whose result is no table.

    Parameters
    ----------
    json
        print a JSON list with one object per row
    """


def table_options(markdown: bool = False, json: bool = False, csv: Path | None = None) -> None:
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


def data_options(
    data: str | None = None, partition: str | None = None, per_node: int | None = None
) -> None:
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


def training_options(
    set: Annotated[Sequence[str], {"action": "append", "nargs": None}] = (),
    log: Path | None = None,
    tensorboard: Path | None = None,
    progress: bool | None = None,
) -> None:
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


def trust_options(trust: bool = False) -> None:
    """Options of commands that build something from a stored run, which imports no module without.

    Parameters
    ----------
    trust
        import the functions that the run names as module:function, which runs their code
    """


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


def parser_of(commands: Mapping[str, tuple[str, *tuple[Function, ...]]]) -> Parser:
    """Return the parser of commands, which sets ``command`` to the name of what performs it.

    For each command, there are this name and the functions whose parameters are its options:
    those without a default, and those with ``nargs``, are positional. The first one describes it.
    """
    parser = Parser(
        prog="topofl",
        description="Decentralized federated learning over graphs: "
        "compare topologies, train, report.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"topofl {topofl.__version__}")
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (target, *functions) in commands.items():
        about, _, examples = _sections(functions[0])
        first, *more = about.split("\n\n", 1)
        text = f"{first[:1].lower()}{first[1:].removesuffix('.')}"
        verb = verbs.add_parser(
            name,
            help=text,
            description="\n\n".join([text, *more]),
            epilog=f"{EXIT_CODES}\n\nexamples:\n{textwrap.indent(examples, '  ')}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verb.set_defaults(command=target)
        _add_options(verb, functions)
    return parser


def _add_options(verb: argparse.ArgumentParser, functions: Sequence[Function]) -> None:
    described = {name: words for one in reversed(functions) for name, *words in _sections(one)[1]}
    groups: dict[tuple[str, ...], Any] = {}
    for option in [one for each in functions for one in signature(each).parameters.values()]:
        name, is_required = option.name, option.default is Parameter.empty
        given = _argument(option.annotation, None if is_required else option.default)
        metavar, given["help"] = described.get(name, ("", None))  # python -OO has no docstrings
        if metavar:
            given["metavar"] = metavar
        if is_required or given.get("nargs") in ("?", "*"):
            verb.add_argument(name, **given)
            continue
        together = next((names for names in EXCLUSIVE if name in names), ())
        if together and together not in groups:
            groups[together] = verb.add_mutually_exclusive_group(required=EXCLUSIVE[together])
        groups.get(together, verb).add_argument(f"--{name.replace('_', '-')}", **given)


def _sections(command: Function) -> tuple[str, list[tuple[str, str, str]], str]:
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
