"""Catalogue of the functions that specs and configurations can name, by kind."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from types import ModuleType
from typing import Any

from torch import nn

from topofl import algorithms, attacks, clocks, data, mixing, models, tasks, topologies
from topofl._support.check import shown
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
from topofl.algorithms.contract.schedules import Schedule
from topofl.attacks import Attack
from topofl.clocks import Clock, Times
from topofl.mixing import MixingMatrix
from topofl.tasks import Task
from topofl.topology import Topology, TopologySequence, as_topology

__all__ = ["Function", "catalogue", "find", "first", "offers", "parameters"]


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


def _functions(module: ModuleType) -> dict[str, Function]:
    """Return the functions that a module exports, by name."""
    exported = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in exported.items() if inspect.isfunction(value)}


@cache  # reading the signatures of all functions takes milliseconds
def first(function: Function) -> str:
    """Return the name of a function's first parameter, or an empty string if it has none."""
    return next(iter(parameters(function)), "")


@cache
def _returns(function: Function) -> Any:
    return inspect.signature(function).return_annotation


def _words() -> dict[str, Function]:
    """Return all functions of :mod:`topofl.algorithms`, exported or not."""
    return {name: value for name, value in vars(algorithms).items() if inspect.isfunction(value)}


_CATALOGUE: dict[str, Callable[[], dict[str, Function]]] = {
    "topology": lambda: _functions(topologies),
    "algorithm": lambda: _functions(algorithms) | {"timed": algorithms.timed},
    "model": lambda: {name: f for name, f in _functions(models).items() if first(f) != "module"},
    "dataset": lambda: dict(data.READERS),
    "partition": lambda: {
        k: f
        for k, f in _functions(data).items()
        if _returns(f) is data.Partition and first(f) == "dataset"
    },
    "augmentation": lambda: {
        k: f for k, f in _functions(data).items() if _returns(f) is data.Augmentation
    },
    "mixing": lambda: {k: f for k, f in _functions(mixing).items() if first(f) == "topology"},
    "task": lambda: _functions(tasks),
    "attack": lambda: {k: f for k, f in _functions(attacks).items() if _returns(f) is Attack},
    "clock": lambda: (
        {"Clock": Clock} | {k: f for k, f in _functions(clocks).items() if _returns(f) is Times}
    ),
    "compressor": lambda: {k: f for k, f in _words().items() if _returns(f) is Compressor},
    "schedule": lambda: {k: f for k, f in _words().items() if _returns(f) is Schedule},
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
    convert = partial(_as_named_topology, name) if kind == "topology" else None
    return with_checked_result(name, function, *_RETURN_TYPES[kind], convert=convert)


def _as_named_topology(name: str, graph: Any) -> Topology | TopologySequence:
    """Return the graph of a custom function, with the name of the function."""
    return as_topology(graph, name=name.rpartition(":")[2])


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
