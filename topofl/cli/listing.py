"""``topofl list``: names for specs and configurations; ``topofl completion``: scripts for shells.

Importing all functions that specs can name loads torch, which takes seconds. An index of them is
hence kept in a file, and written again when a source file of topofl has changed.
"""

import hashlib
import inspect
import json
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from topofl._support.files import replace_file
from topofl._support.plugins import EntryPoint, has_entry_points, imported, resolve_name, signature
from topofl._support.text import printable
from topofl.cli.commands import KINDS_OF_NAMES, make_parser, path_argument
from topofl.cli.one_name import example, lines_of, meanings, plain, row_of
from topofl.cli.output import print_rows

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

Row = dict[str, Any]
"""A name for JSON, and under ``call`` how it is called."""


def list_names(options: Namespace) -> None:
    """Print the names of each kind, with parameters and descriptions.

    Torch is imported only for ``--needs``, by functions of installed packages, and for the index.
    """
    kinds = [options.kind] if options.kind else KINDS_OF_NAMES
    names = index()
    if options.name is not None:
        _print_one(options, names[options.kind])
        return
    if options.json:
        print_rows(row for kind in kinds for row in _json_rows(kind, names[kind], options.needs))
        return
    for kind in kinds:
        needs = _needs(kind) if options.needs else {}
        print(f"{kind}:")
        for row in names[kind]:
            more = [
                f"needs{need.condition}: {need.name} ({need.meaning})"
                for need in needs.get(row["name"], ())
            ]
            print("\n      ".join([f"  {row['call']}", _about(row), *more]))
        own = [row["name"] for row in names[kind]]
        for offer in _offers(kind):
            print("\n      ".join(map(printable, _lines_of_offer(kind, offer, own))))


def _print_one(options: Namespace, rows: Sequence[Row]) -> None:
    """Print what is known of one name, also of one that an installed package offers."""
    kind, name = options.kind, options.name
    ours = [row["name"] for row in rows]
    offers = [offer for offer in _offers(kind) if offer.name == name and name not in ours]
    if offers:
        row = _described(name, resolve_name(kind, name, {}))
    else:
        row = dict(row_of(kind, name, [*rows, *({"name": one.name} for one in _offers(kind))]))
    if options.json:
        print_rows(one for one in _json_rows(kind, [row], options.needs) if "package" not in one)
        return
    print("\n".join(map(printable, lines_of(kind, row, _about(row)))))
    for need in _needs(kind).get(name, ()) if options.needs else ():
        print(f"\nneeds{need.condition}: {need.name} ({need.meaning})")


def _json_rows(kind: str, names: Sequence[Row], with_needs: bool) -> Iterator[Row]:
    """Yield the names of a kind for JSON; a parameter without a default has to be given."""
    needs = _needs(kind) if with_needs else {}
    for row in names:
        shown = {"kind": kind} | {key: value for key, value in row.items() if key != "call"}
        if needs:
            shown["needs"] = [
                {"if": need.condition.strip(), "needs": need.name, "meaning": need.meaning}
                for need in needs[row["name"]]
            ]
        yield shown
    for offer in _offers(kind):
        yield {"kind": kind, "name": offer.name, "package": offer.package, "target": offer.target}


def _about(row: Row) -> str:
    return f"{row['group']}: {row['description']}" if "group" in row else row["description"]


def _needs(kind: str) -> dict[str, Sequence[Any]]:
    """Return the requirements on graphs and weights, by name; metrics have none here."""
    from topofl._spec import catalogue
    from topofl.algorithms.contract.needs import needs_of

    return {name: needs_of(function) for name, function in catalogue().get(kind, {}).items()}


def _offers(kind: str) -> Iterable[EntryPoint]:
    """Return the functions that installed packages offer; the catalogue is imported for some."""
    if not has_entry_points():
        return ()
    from topofl._spec import offers

    return offers(kind)


def _lines_of_offer(kind: str, offer: EntryPoint, own: Sequence[str]) -> tuple[str, str]:
    """Return two lines about a function of a package, or why it cannot be loaded."""
    name = f"  {offer.name}"
    if offer.name in own:
        about = f"not used, since topofl has its own {offer.name}; write {offer.target}"
        return name, f"{about} (package {offer.package})"
    try:
        row = _described(offer.name, resolve_name(kind, offer.name, {}))
    except (ValueError, TypeError) as error:
        return name, str(error)
    return f"  {row['call']}", f"{row['description']} (package {offer.package})"


def index() -> dict[str, list[Row]]:
    """Return the names of topofl by kind, from the file of the index if it is not older than them.

    It is in the cache of the user, which may be removed. If it cannot be written, it is made again
    each time.
    """
    root = Path(__file__).resolve().parents[1]
    state = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found = path.stat()
        state.update(os.fsencode(f"{path} {found.st_size} {found.st_mtime_ns}\n"))
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "topofl")
    file = folder / f"names-{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["state"] == state.hexdigest():
            return kept["names"]
    text = json.dumps({"state": state.hexdigest(), "names": _names()}, default=str)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(file, text)
    return json.loads(text)["names"]


def _names() -> dict[str, list[Row]]:
    """Return the functions that specs can name, and the columns of metrics, by kind."""
    from topofl._spec import catalogue
    from topofl.metrics.compare import all_columns
    from topofl.topologies import GENERATORS

    declared = {name: one.examples for name, one in GENERATORS.items()}
    functions = {
        kind: [
            _described(name, function, declared.get(name, ()) if kind == "topology" else ())
            for name, function in found.items()
        ]
        for kind, found in catalogue().items()
    }
    columns = [
        {"name": one.name, "group": one.group, "description": one.meaning, "call": one.name}
        for one in all_columns()
    ]
    return functions | {"metric": columns}


def _described(name: str, function: Callable[..., Any], declared: Sequence[Any] = ()) -> Row:
    """Return a function with its parameters as in configurations, and what it is for."""
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    parameters: list[Row] = []
    words: list[str] = []
    meant = meanings(function)
    for p in signature(name, function).values():
        if p.kind is p.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        default = {} if p.default is p.empty else {"default": _as_in_configuration(p.default)}
        about = {"meaning": meant[p.name]} if p.name in meant else {}
        parameters.append({"name": p.name, **default, **about})
        words.append(p.name if p.default is p.empty else f"{p.name}={default['default']!r}")
    return {
        "name": name,
        "parameters": parameters,
        "description": plain(summary),
        "call": f"{name}({', '.join(words)})",
        "example": example(name, function, declared),
    }


def _as_in_configuration(default: Any) -> Any:
    """Return a default as a configuration would hold it, if possible."""
    from topofl.algorithms import Part

    if isinstance(default, Part) and len(default.patterns) == 1 and not default.complement:
        return default.patterns[0]
    return list(default) if isinstance(default, tuple) else default


def completion(options: Namespace) -> None:
    """Print the script of a shell. It is static: completing a word starts no Python."""
    shtab = imported("shtab", "completion", "`topofl completion`")
    parser: Any = make_parser()  # argparse does not say what its commands are
    (verbs,) = parser._subparsers._group_actions
    for action in [action for verb in verbs.choices.values() for action in verb._actions]:
        if action.dest == "specs":
            action.complete = dict.fromkeys(_SPECS, "_topofl_specs")
        elif action.type is path_argument:
            is_folder = action.metavar in ("DIR", "STORE", "RUN")
            action.complete = shtab.DIRECTORY if is_folder else shtab.FILE
    names = " ".join(row["name"] for row in index()["topology"])
    preamble = {shell: text.format(names=names) for shell, text in _SPECS.items()}
    print(shtab.complete(parser, shell=options.shell, preamble=preamble))
