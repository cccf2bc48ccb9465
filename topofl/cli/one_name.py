"""``topofl list KIND NAME``: parameters of one function with what they mean, and an example."""

import ast
import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from topofl._support.plugins import suggestion

_TABLES = {
    "algorithm": "algorithm", "attack": "attackers", "dataset": "data", "mixing": "mixing",
    "model": "model", "task": "task",
}  # fmt: skip
"""Table of a configuration that names functions of a kind."""

_ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")
"""A role of Sphinx, which means nothing in a shell."""

_SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-{3,}$|\Z)", re.DOTALL | re.MULTILINE)

_ENTRY = re.compile(r"^(\w[\w, ]*)\n((?:    [^\n]*\n|\n)+)", re.MULTILINE)


def plain(text: str) -> str:
    """Return text of a docstring without roles of Sphinx.

    Examples
    --------
    >>> plain("As :func:`~topofl.run` takes it.")
    'As `topofl.run` takes it.'
    """
    return _ROLE.sub(r"`\1`", text)


def meanings(function: Callable[..., Any]) -> dict[str, str]:
    """Return the first sentence of a docstring on each parameter.

    Examples
    --------
    >>> from topofl.topologies import circulant
    >>> sorted(meanings(circulant))
    ['directed', 'n', 'offsets']
    """
    section = _SECTION.search(f"{inspect.getdoc(function) or ''}\n")
    found: dict[str, str] = {}
    for names, text in _ENTRY.findall(section[1] if section else ""):
        words = " ".join(text.split("\n\n")[0].split())
        first = re.split(r"(?<![ (][ei]\.[ge])(?<=\.)\s", words, maxsplit=1)[0]
        found |= dict.fromkeys((name.strip() for name in names.split(",")), plain(first))
    return found


def example(name: str, function: Callable[..., Any], declared: Sequence[Any] = ()) -> str | None:
    """Return a spec of a function, from what it declares or else from its docstring.

    None if neither has one that can be written as text.

    Examples
    --------
    >>> from topofl.algorithms import dsgd
    >>> example("ring", print, ["ring:12"]), example("dsgd", dsgd)
    ('ring:12', 'dsgd,lr=0.5')
    """
    texts = [one for one in declared if isinstance(one, str)]
    return next(iter([*texts, *_calls_in(name, function)]), None)


def _calls_in(name: str, function: Callable[..., Any]) -> Iterator[str]:
    """Yield specs with what a function needs, as in the examples of its docstring.

    What is None by default is kept, since some functions need one of two such parameters.
    """
    defaults = {p.name: p.default for p in inspect.signature(function).parameters.values()}
    own = [key for key in defaults if key not in _GIVEN]
    needed = [key for key in own if defaults[key] is inspect.Parameter.empty]
    for call in _calls(inspect.getdoc(function) or ""):
        if getattr(call.func, "attr", getattr(call.func, "id", "")) != name:
            continue
        places = dict(zip(defaults, call.args, strict=False))
        given = places | {one.arg: one.value for one in call.keywords if one.arg is not None}
        kept = [key for key in own if key in given and (key in needed or defaults[key] is None)]
        texts = {key: text for key in kept if (text := _as_text(given[key])) is not None}
        texts = {k: text for k, text in texts.items() if k in needed or "[" not in text}  # per node
        if texts.keys() >= {*needed}:
            yield ",".join([name, *map("=".join, texts.items())])
    if _USUAL.keys() >= {*needed}:
        yield ",".join([name, *(f"{key}={_USUAL[key]}" for key in needed)])


_USUAL = {"lr": 0.1, "gamma": 0.5}
"""Values of parameters that many methods need."""

_GIVEN = frozenset({"dataset", "topology"})
"""Parameters that a configuration gives itself."""


def _calls(text: str) -> Iterator[ast.Call]:
    """Yield the calls in the examples of a docstring, those in a line of their own first."""
    lines = re.findall(r"^>>> (.*(?:\n\.\.\. .*)*)", text, re.MULTILINE)
    for line in lines:
        try:
            tree = ast.parse(line.replace("\n... ", "\n"))
        except SyntaxError:
            continue
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _as_text(value: ast.expr) -> str | None:
    """Return an argument as specs write it; None if that needs Python."""
    if isinstance(value, ast.Call) and not value.args:
        inner = {one.arg: _as_text(one.value) for one in value.keywords}
        name = getattr(value.func, "attr", getattr(value.func, "id", None))
        if name is None or None in inner.values() or None in inner:
            return None
        return f"{name}({', '.join(f'{key}={text}' for key, text in inner.items())})"
    try:
        found = ast.literal_eval(value)
    except ValueError:
        return None
    if isinstance(found, bool):
        return str(found).lower()
    return str(found) if isinstance(found, int | float | str | list) else None


def row_of(kind: str, name: str, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the row of a name.

    Raises
    ------
    ValueError
        If there is none, with the name that was meant.
    """
    known = {row["name"]: row for row in rows}
    if name not in known:
        hint = suggestion(kind, name, known) or f"; topofl list {kind} has all"
        raise ValueError(f"there is no {kind} {name!r}{hint}")
    return known[name]


def lines_of(kind: str, row: Mapping[str, Any], about: str) -> Iterator[str]:
    """Yield the lines about a name: its call, what it is, parameters, and an example."""
    yield from (row["call"], f"    {about}")
    parameters = row.get("parameters", [])
    width = max((len(one["name"]) for one in parameters), default=0)
    if parameters:
        yield from ("", "parameters:")
    for one in parameters:
        default = f" (default: {one['default']})" if "default" in one else ""
        yield f"    {one['name']:{width}}  {one.get('meaning', '')}{default}".rstrip()
    spec = row.get("example")
    if spec is not None:
        yield from ("", "example:", f"    {_command(kind, spec)}")


def _command(kind: str, spec: str) -> str:
    """Return a command with a spec, or the text alone of what is an argument of others."""
    if kind == "topology":
        return f"topofl spectral {shlex.quote(spec)}"
    if kind == "partition":
        reader = "femnist" if spec.startswith("natural,") else "digits"  # which has owners
        kind, spec = "dataset", f"{reader},partition={spec}"
    if kind in _TABLES:
        return f"topofl run experiment.toml --set {shlex.quote(f'{_TABLES[kind]}={spec}')}"
    name, _, arguments = spec.partition(",")
    return f"{name}({arguments})" if arguments else name
