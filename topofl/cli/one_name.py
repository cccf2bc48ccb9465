"""``topofl list KIND NAME``: parameters of one function with what they mean, and an example."""

import ast
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from topofl._support.plugins import also_called, suggestion

_TABLES = {
    "algorithm": "algorithm", "attack": "attackers", "mixing": "mixing", "model": "model",
    "task": "task",
}  # fmt: skip
"""Table of a configuration that names functions of a kind."""

_ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")
"""A role of Sphinx, which means nothing in a shell."""

_SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-{3,}$|\Z)", re.DOTALL | re.MULTILINE)

_AS_IN = re.compile(r"As in `+([\w.]+)`+")

_ENTRY = re.compile(r"^(\w[\w, ]*(?:,\n\w[\w, ]*)*)\n((?:    [^\n]*\n|\n)+)", re.MULTILINE)


def plain(text: str) -> str:
    """Return text of a docstring without roles of Sphinx.

    Examples
    --------
    >>> plain("As :func:`~topofl.run` takes it.")
    'As `topofl.run` takes it.'
    """
    return _ROLE.sub(r"`\1`", text)


def meanings(function: Callable[..., Any]) -> dict[str, str]:
    """Return what a docstring says of each parameter: a sentence, and what None means by default.

    What is "as in" another function is in the words of that one.

    Examples
    --------
    >>> from topofl.algorithms import d2
    >>> meanings(d2)["batch_size"]
    'Examples per minibatch, one number or one per node.'
    """
    takes, found = inspect.signature(function).parameters, {}
    for name in _entries(function):
        first, *others = _sentences(function, name)
        of_none = name in takes and takes[name].default is None
        kept = [one for one in others if of_none and re.search(r"\bNone\b", one)]
        found[name] = " ".join([first, *kept])
    return found


@cache
def _entries(function: Callable[..., Any]) -> dict[str, str]:
    """Return the first paragraph of a docstring on each parameter."""
    section = _SECTION.search(f"{inspect.getdoc(function) or ''}\n")
    found: dict[str, str] = {}
    for names, text in _ENTRY.findall(section[1] if section else ""):
        words = plain(" ".join(text.split("\n\n")[0].split()))
        found |= dict.fromkeys((name.strip() for name in names.split(",")), words)
    return found


def _sentences(function: Callable[..., Any], name: str, seen: tuple[Any, ...] = ()) -> list[str]:
    """Return the sentences on a parameter; "As in `f`" is replaced by those of `f` on it."""
    own = re.split(r"(?<![ (][ei]\.[ge])(?<=\.)\s", _entries(function)[name])
    reference = _AS_IN.match(own[0])
    other = _named_from(function, reference[1]) if reference else None
    if not reference or other in (None, *seen) or name not in _entries(other):
        return own
    first, *others = _sentences(other, name, (*seen, function))
    return [first.removesuffix(".") + own[0][reference.end() :], *others, *own[1:]]


def _named_from(function: Callable[..., Any], name: str) -> Any:
    """Return the function that a docstring calls `name`, in full or as in its own package."""
    package = ".".join(function.__module__.split(".")[:2])
    path, _, own = name.rpartition(".")
    return getattr(sys.modules.get(path or package), own, None)


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
    if others := also_called(kind, row["name"]):
        yield f"    elsewhere: {', '.join(others)}"
    parameters = row.get("parameters", [])
    width = max((len(one["name"]) for one in parameters), default=0)
    if parameters:
        yield from ("", "parameters:")
    for one in parameters:
        default = f" (default: {one['default']})" if "default" in one else ""
        yield f"    {one['name']:{width}}  {one.get('meaning', '')}{default}".rstrip()
    spec = row.get("example")
    if spec is not None:
        yield from ("", "example:", *(f"    {one}" for one in _commands(kind, spec)))


def _commands(kind: str, spec: str) -> Iterator[str]:
    """Yield commands with a spec, or the text alone of what is an argument of others.

    Those that run an experiment do so with the one of ``topofl new``.
    """
    name, _, arguments = spec.partition(",")
    if kind == "topology":
        yield f"topofl spectral {shlex.quote(spec)}"
        n = re.search(r":(\d+)", spec)
        if n and name.partition(":")[0] not in _NO_EXPERIMENT:  # n is the one of the data
            yield _run(f"data.n={n[1]}", f"topology={_N.sub('', spec)}", "mixing=none")
    elif kind == "partition":
        reader = "femnist" if name == "natural" else "digits"  # which has owners
        yield _run(f"data={reader},partition={spec}")
    elif kind == "dataset":
        yield _run(f"data={spec},partition=iid,n=20,seed=0")
    elif kind in _TABLES:
        yield _run(f"{_TABLES[kind]}={spec}", *_OF_EXPERIMENTS.get(name, ()))
    else:
        yield f"{name}({arguments})" if arguments else name


def _run(*settings: str) -> str:
    """Return the command that runs an experiment with other settings."""
    return " ".join(["topofl run experiment.toml", *(f"--set {shlex.quote(s)}" for s in settings)])


_N = re.compile(r"(?<=\w):\d+")
"""The number of nodes in a spec of a graph."""

_NO_EXPERIMENT = {"decentralized_greedy_swap", "greedy_swap", "ideal_cliques", "random_cliques"}
"""Graphs whose cliques are not joined, or need nodes of one class each."""

_BODY, _MANY = ("model=mlp",), ("topology=fully_connected",)
_CLIQUES = ("topology=dcliques,clique_size=10,seed=0",)

_OF_EXPERIMENTS = {
    **dict.fromkeys(("dfedavgm_p", "dfedpgp", "fedbabu", "feddecorr", "fedper", "fedrep"), _BODY),
    **dict.fromkeys(("moon", "pfeddst"), _BODY),
    **dict.fromkeys(("bulyan", "krum", "trimmed_mean"), _MANY),
    **dict.fromkeys(("clique_averaging", "within_groups"), _CLIQUES),
    **dict.fromkeys(
        ("dpfl_cnn", "dpfl_femnist_cnn", "fedavg_cnn", "gn_lenet"), ("data.enlarge=2",)
    ),
    "dpfl": ("data.val_fraction=0.1",),
}
"""What names need of an experiment that the one of ``topofl new`` does not have."""
