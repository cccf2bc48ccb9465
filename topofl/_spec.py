"""Specs: calls of named functions, with arguments checked against their signatures.

The command line and configuration files share this module. Names refer to the exports of topofl,
to custom functions as ``module:function``, and to entry points of installed packages.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_origin

import numpy as np
from torch import nn

from topofl import algorithms, attacks, clocks, data, mixing, models, tasks, topologies
from topofl._support.calls import GRAPH_SUFFIXES, NONE, is_graph_file, named, table_of
from topofl._support.check import did_you_mean, shown
from topofl._support.plugins import (
    GROUPS,
    EntryPoint,
    entry_points,
    load_function,
    resolve_name,
    signature,
    with_checked_result,
)
from topofl.algorithms import Algorithm, Compressor
from topofl.algorithms.contract.descent import Schedule
from topofl.algorithms.contract.round import Part
from topofl.attacks import Attack
from topofl.clocks import Clock, Times
from topofl.mixing import MixingMatrix
from topofl.tasks import Task
from topofl.topology import Topology, TopologySequence, as_topology
from topofl.topology.files import read_graph

Function = Callable[..., Any]


_RETURN_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "topology": (
        "a Topology or another graph that topofl.as_topology accepts",
        (Topology, TopologySequence),
    ),
    "algorithm": ("an Algorithm", (Algorithm,)),
    "model": ("a torch.nn.Module", (nn.Module,)),
    "dataset": ("a Dataset", (data.Dataset,)),
    "partition": ("a Partition", (data.Partition,)),
    "augmentation": ("an Augmentation", (data.Augmentation,)),
    "mixing": ("a MixingMatrix", (MixingMatrix,)),
    "task": ("a Task", (Task,)),
    "attack": ("an Attack", (Attack,)),
}
"""Required return type of custom functions, by kind: description and classes."""

_FIRST_ARGUMENTS = {"partition": "the dataset", "mixing": "the topology"}
"""Kinds of functions that receive a first argument, and what this is."""


def catalogue() -> dict[str, dict[str, Function]]:
    """Return all functions of topofl that can be named, by kind and name."""
    return {kind: functions() for kind, functions in _CATALOGUE.items()}


def _functions(
    exported: Mapping[str, Any], returns: Any = None, takes: str | None = None
) -> dict[str, Function]:
    """Return the functions by name, if given only those of this result and first parameter."""
    return {
        name: f
        for name, f in exported.items()
        if inspect.isfunction(f)
        and (returns is None or _returns(f) is returns)
        and (takes is None or first(f) == takes)
    }


def _exports(module: ModuleType) -> dict[str, Any]:
    return {name: getattr(module, name) for name in module.__all__}


@cache  # reading the signatures of all functions takes milliseconds
def first(function: Function) -> str:
    """Return the name of a function's first parameter, or an empty string if it has none."""
    return next(iter(parameters(function)), "")


@cache
def _returns(function: Function) -> Any:
    return inspect.signature(function).return_annotation


_CATALOGUE: dict[str, Callable[[], dict[str, Function]]] = {
    "topology": lambda: _functions(_exports(topologies)),
    "algorithm": lambda: _functions(_exports(algorithms)) | {"timed": algorithms.timed},
    "model": lambda: {
        name: f
        for name, f in _functions(_exports(models)).items()
        if first(f) not in ("module", "networks")
    },
    "dataset": lambda: dict(data.READERS),
    "partition": lambda: _functions(_exports(data), data.Partition, "dataset"),
    "augmentation": lambda: _functions(_exports(data), data.Augmentation),
    "mixing": lambda: _functions(_exports(mixing), takes="topology"),
    "task": lambda: _functions(_exports(tasks)),
    "attack": lambda: _functions(_exports(attacks), Attack),
    "clock": lambda: {"Clock": Clock, **_functions(_exports(clocks), Times)},
    "compressor": lambda: _functions(vars(algorithms), Compressor),
    "schedule": lambda: _functions(vars(algorithms), Schedule),
}
"""Functions of each kind; signatures are read only for the kind that is requested."""


def parameters(function: Function) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function by name."""
    return inspect.signature(function).parameters


def find(kind: str, name: object) -> Function:
    """Return the function of a name; `kind` is a key of :func:`catalogue`.

    Names are those of topofl, entry points of installed packages, and ``module:function``. The
    return values of custom functions are checked when they are called.

    Raises
    ------
    TypeError
        If `name` is not text, or its function takes no arguments by name.
    ValueError
        If the name is unknown (the message suggests the nearest), or cannot be imported.
    """
    ours = _CATALOGUE[kind]()
    if not isinstance(name, str):
        raise TypeError(
            f"the name of a {kind} must be text, got {shown(name)} ({type(name).__name__})"
        )
    function = resolve_name(kind, name, ours)
    if function in ours.values():
        return function
    _check_signature(kind, name, function)
    convert = partial(as_topology, name=name.rpartition(":")[2]) if kind == "topology" else None
    return with_checked_result(name, function, *_RETURN_TYPES[kind], convert=convert)


def offers(kind: str) -> Iterator[EntryPoint]:
    """Yield the functions of a kind that installed packages offer."""
    kinds = {
        types[0].__name__: key
        for key, (_, types) in _RETURN_TYPES.items()
        if key in GROUPS and GROUPS[key] == GROUPS.get(kind)
    }
    for offer in entry_points(kind):
        annotation = _annotation(offer) if len(kinds) > 1 else ""
        if kinds.get(annotation, kind) == kind:
            yield offer


def _annotation(offer: EntryPoint) -> str:
    """Return the name of the class that an offered function returns, or an empty string."""
    try:
        annotation = _returns(load_function(offer.target))
    except (TypeError, ValueError):  # reported when the name is used
        return ""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.rpartition(".")[2]


def _check_signature(kind: str, name: str, function: Function) -> None:
    """Raise ``TypeError`` if arguments cannot be passed to a custom function by name."""
    takes = list(signature(name, function).values())
    positional = [p for p in takes if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
    if kind in _FIRST_ARGUMENTS and not positional:
        raise TypeError(
            f"`{name}` must take {_FIRST_ARGUMENTS[kind]} as its first argument, got "
            f"{shown(function)}"
        )
    positional_only = [
        p.name
        for p in takes[kind in _FIRST_ARGUMENTS :]
        if p.kind is inspect.Parameter.POSITIONAL_ONLY
    ]
    if positional_only:
        raise TypeError(
            f"`{name}` must take its arguments by name, got `{positional_only[0]}` before the / "
            "in its signature"
        )


class Built(NamedTuple):
    """The result of a call, its arguments as a saved configuration holds them, and notes."""

    value: Any
    arguments: dict[str, Any]
    notes: list[str]


@contextmanager
def at(place: str) -> Iterator[None]:
    """Prefix error messages by a place, such as the name of a table."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{place} {error}") from error
    except RuntimeError as error:  # from torch, for sizes too large for it or for memory
        raise ValueError(
            f"{place} cannot be built: {str(error).partition(chr(10))[0]}; lower its sizes"
        ) from error
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{place} {error}") from error


def check_keys(what: str, keys: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``ValueError`` for the first unknown key, suggesting the nearest known one."""
    known = list(known)
    for key in keys:
        if key not in known:
            takes = ", ".join(known) or "no arguments"
            hint = did_you_mean(key, known) or (
                "; a number after a colon is `n`, as in ring:100" if key == "n" else ""
            )
            raise ValueError(f"{what} takes {takes}, not {key!r}{hint}")


def arguments_of(
    function: Function, arguments: Mapping[str, Any], *, hidden: Iterable[str] = ()
) -> dict[str, Any]:
    """Return all arguments of a call, given or default, except the `hidden` ones.

    Defaults of custom functions that no configuration can hold, such as functions, are left out.

    Raises
    ------
    ValueError
        If a key is unknown (the message suggests the nearest), a key without a default is missing,
        or a value whose default is a boolean is not a boolean.
    """
    takes = {key: p for key, p in parameters(function).items() if key not in set(hidden)}
    own = {
        key: p.default
        for key, p in takes.items()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    if all(p.kind is not p.VAR_KEYWORD for p in takes.values()):
        check_keys(f"`{function.__name__}`", arguments, own)
    missing = [
        key
        for key, default in own.items()
        if default is inspect.Parameter.empty and key not in arguments
    ]
    if missing:
        raise ValueError(
            f"`{function.__name__}` needs {' and '.join(f'`{key}`' for key in missing)}; add "
            f"{', '.join(f'{key}=...' for key in missing)}"
        )
    for key, value in arguments.items():
        if isinstance(own.get(key), bool) and not isinstance(value, bool):
            raise ValueError(f"`{key}` must be true or false, got {shown(value)}")
    defaults = {key: value for key, value in own.items() if is_ours(function) or _is_plain(value)}
    given = {key: _read_none(takes.get(key), value) for key, value in arguments.items()}
    return defaults | given


def _read_none(parameter: inspect.Parameter | None, value: Any) -> Any:
    """Return None for ``"none"``, unless the parameter takes text."""
    if parameter is not None and parameter.annotation in (str, "str"):
        return NONE if value is None else value
    if isinstance(value, list):
        return [_read_none(None, item) for item in value]
    return None if isinstance(value, str) and value == NONE else value


def recorded(function: Function, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as a saved configuration holds them.

    Tuples become lists, and parts of models patterns. None becomes the text ``"none"``, which
    :func:`arguments_of` reads back, unless it is the default of its parameter; other entries that
    are None may be left out.

    Examples
    --------
    >>> recorded(lambda steps=5, seed=None: None, {"steps": None, "seed": None})
    {'steps': 'none', 'seed': None}
    """
    takes = parameters(function)

    def plain(key: str, value: Any) -> Any:
        if value is None:
            return None if key in takes and takes[key].default is None else NONE
        if isinstance(value, Part):
            return str(value)
        return list(value) if isinstance(value, tuple) else value

    return {key: plain(key, value) for key, value in arguments.items()}


def is_ours(function: Function) -> bool:
    """Return whether a function is part of topofl."""
    return (getattr(function, "__module__", "") or "").partition(".")[0] == "topofl"


def _is_plain(value: Any) -> bool:
    """Return whether a configuration can hold a value."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def with_seed(function: Function, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments, with ``seed=0`` and a note if a required seed is missing."""
    seed = parameters(function).get("seed")
    if seed is None or seed.default is not inspect.Parameter.empty or "seed" in arguments:
        return dict(arguments), []
    return {**arguments, "seed": 0}, ["no `seed` given; 0 is used"]


def build_topology(
    name: object, arguments: Mapping[str, Any], label_counts: np.ndarray | None = None
) -> Built:
    """Return the graph of a named generator or of a file.

    Parameters
    ----------
    name, arguments
        Name and arguments of a function in :mod:`topofl.topologies`, or the path of a graph file
        and arguments of ``topofl.topology.files.read_graph``, such as ``own_weights``. If a
        function takes another graph as `base`, this is a spec, with or without parentheses, or a
        table with a name, and is built in the same way.
    label_counts
        (n, classes) label counts of the nodes. Passed to the function if it takes them, otherwise
        only n is passed. Without data, such a function uses its own ``n``, and a note says so.

    Raises
    ------
    ValueError, TypeError
        As the function; if the name or a key is unknown; if `arguments` has another n than the
        data; if a required argument of the function is itself a function.

    Examples
    --------
    >>> build_topology("ring", {"n": 5}).value
    Topology('ring(n=5)', n=5, edges=5, undirected)
    """
    function = _maker(name)
    takes = parameters(function)
    _check_plain_arguments(function)
    arguments, notes = with_seed(function, arguments)
    given: dict[str, Any] = {}
    if label_counts is not None:
        if arguments.get("n", 0) is None:  # in tables with all defaults
            del arguments["n"]
        n = len(label_counts)
        if arguments.get("n", n) != n:
            raise ValueError(
                f"`n` must be the number of nodes with data, {n}, or left out, got "
                f"{arguments['n']!r}"
            )
        if "label_counts" in takes:
            given["label_counts"] = label_counts
            arguments.pop("n", None)
        elif "n" in takes:
            arguments.setdefault("n", n)
    elif "label_counts" in takes:
        notes.append("no data given; one class per node is used")
    arguments = arguments_of(function, arguments, hidden=["label_counts"])
    record = {
        "name": str(Path(str(name)).expanduser().absolute()) if is_graph_file(name) else name,
        **recorded(function, arguments),
    }
    if "base" in takes and not _is_degree(takes["base"], arguments.get("base")):
        base = _build_base(arguments["base"], label_counts, arguments.get("n"))
        arguments["base"] = base.value
        record["base"] = base.arguments
        notes += [f"`base`: {note}" for note in base.notes]
    graph: Topology | TopologySequence = function(**given, **arguments)
    return Built(graph, record, notes)


def _maker(name: object) -> Function:
    """Return the generator of a name, or a function that reads a graph file."""
    if is_graph_file(name):
        path = Path(str(name)).expanduser()
        function = partial(read_graph, path)
        function.__name__ = path.name  # type: ignore[attr-defined]  # for messages
        return function
    if isinstance(name, str) and ":" not in name:
        is_file = Path(name).suffix or "/" in name or Path(name).expanduser().is_file()
        ours = _CATALOGUE["topology"]
        if is_file and name not in {*ours(), *(offer.name for offer in offers("topology"))}:
            raise ValueError(
                f"a graph file must be of one of the kinds {', '.join(GRAPH_SUFFIXES)}, got {name};"
                " save the graph as one of these, or name a topology of topofl list topology"
            )
    return find("topology", name)


def _is_degree(parameter: inspect.Parameter, value: Any) -> bool:
    """Return whether `value` is a degree, or None by default, instead of a graph."""
    return (
        isinstance(parameter.default, int) and isinstance(value, int)
    ) or value is parameter.default is None


def _build_base(value: Any, label_counts: np.ndarray | None, n: int | None) -> Built:
    """Return the graph that another one is built from, with the same n by default."""
    with at("`base`:"):
        name, arguments = named(table_of(value))
        if n is not None and "n" in parameters(_maker(name)):
            arguments = {"n": n, **arguments}
        return build_topology(name, arguments, label_counts)


def _check_plain_arguments(function: Function) -> None:
    """Raise ``ValueError`` if a required argument is itself a function."""
    for key, parameter in parameters(function).items():
        if (
            get_origin(parameter.annotation) is Callable
            and parameter.default is inspect.Parameter.empty
        ):
            call = (
                f"topologies.{function.__name__}({key}, ...)"
                if is_ours(function)
                else "call it in a script"
            )
            raise ValueError(
                f"`{function.__name__}` can be built only in Python, since its `{key}` is a "
                f"function: {call}"
            )
