"""Graphs from specs and from files."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_origin

import numpy as np

from topofl._spec.arguments import Built, arguments_of, at, is_ours, recorded, with_seed
from topofl._spec.names import Function, catalogue, find, offers, parameters
from topofl._spec.parse import named, table_of
from topofl._support.suffixes import KINDS, is_graph_file
from topofl.topology import Topology, TopologySequence
from topofl.topology.files import read_graph

__all__ = ["build_topology"]


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
        _check_same_n(arguments, len(label_counts))
        if "label_counts" in takes:
            given["label_counts"] = label_counts
            arguments.pop("n", None)
        elif "n" in takes:
            arguments.setdefault("n", len(label_counts))
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
    if not is_graph_file(name):
        _check_kind_of_file(name)
        return find("topology", name)
    path = Path(str(name)).expanduser()
    function = partial(read_graph, path)
    function.__name__ = path.name  # type: ignore[attr-defined]  # for messages
    return function


def _check_kind_of_file(name: object) -> None:
    """Raise ``ValueError`` if a name is that of a file of a kind that is not read."""
    if not isinstance(name, str) or ":" in name:
        return
    if not (Path(name).suffix or "/" in name or Path(name).expanduser().is_file()):
        return
    if name not in {*catalogue()["topology"], *(offer.name for offer in offers("topology"))}:
        raise ValueError(
            f"a graph file must be of one of the kinds {', '.join(KINDS)}, got {name}; save the "
            "graph as one of these, or name a topology of topofl list topology"
        )


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


def _check_same_n(arguments: Mapping[str, Any], n: int) -> None:
    if "n" in arguments and arguments["n"] != n:
        raise ValueError(
            f"`n` must be the number of nodes with data, {n}, or left out, got {arguments['n']!r}"
        )
