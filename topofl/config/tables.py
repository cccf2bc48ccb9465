"""Builders of the objects that the tables of a configuration describe."""

import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from topofl._spec import (
    Built,
    arguments_of,
    at,
    check_keys,
    find,
    first,
    is_ours,
    parameters,
    recorded,
    with_seed,
)
from topofl._support.calls import named, table_of
from topofl._support.check import check_choice, check_switch, shown
from topofl._support.datasets import default_root
from topofl._support.plugins import error_context, load_function
from topofl._support.public import ELSEWHERE
from topofl._support.seeding import seeded_torch
from topofl.algorithms.contract.parts import Part
from topofl.algorithms.contract.phase import Algorithm
from topofl.attacks import drawn
from topofl.config.toml import is_none
from topofl.data import Dataset, Partition, augmented, flip_labels, match_test, with_validation
from topofl.engine import Compute, Evaluation, Saving, run

__all__ = [
    "RUN",
    "Read",
    "build_algorithm",
    "build_attackers",
    "build_clients",
    "build_compute",
    "build_evaluation",
    "build_model",
    "build_rule",
    "build_run",
    "build_saving",
    "build_task",
    "read_data",
]

RUN = ("rounds", "seed", "init", "progress")


_DTYPES = ("float16", "bfloat16", "float32", "float64")


Read = Callable[[str, Callable[..., Dataset], Mapping[str, Any]], Dataset]
"""Returns a dataset, given the name of a reader, the reader itself and its arguments."""


def read_data(name: str, reader: Callable[..., Dataset], arguments: Mapping[str, Any]) -> Dataset:
    """Return a dataset by calling its reader."""
    del name
    return reader(**arguments)


def build_clients(table: dict[str, Any], read: Read = read_data) -> Built:
    """Return a Partition; keys are passed to the partitioner if it takes them, else to the reader.

    The functions in :data:`_EDITS` are then applied to it if their keys are given, with the seed of
    the partition, or 0 if a custom partitioner has none.
    """
    name, rest = named(table)
    partition = rest.pop("partition", "shards")
    augment = rest.pop("augment", None)
    edits = {key: rest.pop(key, None) for key in _EDITS}
    reader = find("dataset", name)
    partitioner = find("partition", partition)
    of_reader = ["split_seed" if key == "seed" else key for key in parameters(reader)]
    of_partitioner = [key for key in parameters(partitioner) if key != first(partitioner)]
    check_keys(
        f"`{name}` with `{partition}`",
        rest,
        [*of_reader, "partition", *of_partitioner, *_EDITS, "augment"],
    )
    split, notes = with_seed(partitioner, {key: rest[key] for key in rest if key in of_partitioner})
    split = arguments_of(partitioner, split, hidden=[first(partitioner)])
    source = {key.removeprefix("split_"): rest[key] for key in rest if key not in of_partitioner}
    source = arguments_of(reader, source, hidden=["name"])  # in a file, the name of the reader
    if is_ours(reader) and source.get("root", "") is None:
        source["root"] = None if (place := default_root()) is None else str(place)
    source |= {key: _absolute(key, source[key]) for key in _path_keys(reader, source)}
    clients = partitioner(read(name, reader, source), **split)
    source = recorded(reader, source)
    split = recorded(partitioner, split)
    for key, value in edits.items():
        if not is_none(value):
            clients = _EDITS[key](clients, value, split.get("seed", 0))
            split |= {key: value}
    if not is_none(augment):
        augmentation = _build_augmentation(augment)
        clients = augmented(clients, augmentation.value)
        split |= {"augment": augmentation.arguments}
    source = {"split_seed" if key == "seed" else key: value for key, value in source.items()}
    return Built(clients, {"name": name, **source, "partition": partition, **split}, notes)


_EDITS: dict[str, Callable[[Partition, Any, int], Partition]] = {
    "match_test": lambda clients, rule, seed: match_test(clients, rule=rule, seed=seed),
    "with_validation": lambda clients, share, seed: with_validation(clients, share, seed=seed),
    "flip_labels": lambda clients, nodes, seed: flip_labels(clients, nodes, seed=seed),
}
"""Edits of a partition, by key, in the order in which they are applied."""


def _path_keys(reader: Callable[..., Dataset], source: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments of a reader that are paths; those of custom readers are unknown."""
    for key, parameter in parameters(reader).items():
        value = source.get(key)
        takes = is_ours(reader) and "PathLike" in str(parameter.annotation)
        is_other = key not in ("root", "cache") and takes and isinstance(value, str)
        if is_other or (key in ("root", "cache") and value is not None):
            yield key


def _absolute(key: str, path: Any) -> str:
    """Return the absolute path of a file or folder."""
    if not isinstance(path, str):
        raise TypeError(f"`{key}` must be the path of a folder, got {shown(path)}")
    return os.path.abspath(os.path.expanduser(path))


def build_rule(table: dict[str, Any]) -> Built:
    """Return a weight rule with its arguments bound."""
    name, arguments = named(table)
    rule = find("mixing", name)
    arguments = arguments_of(rule, arguments, hidden=[first(rule)])
    record = {"name": name, **recorded(rule, arguments)}
    return Built(functools.partial(rule, **arguments), record, [])


def build_algorithm(table: dict[str, Any]) -> Built:
    """Return an algorithm; arguments that are algorithms or schedules may be text or tables."""
    name, arguments = named(table)
    function = find("algorithm", name)
    _check_optimizer(name, arguments, function)
    arguments, notes = with_seed(function, arguments)
    arguments = arguments_of(function, arguments)
    record = {
        key: str(value) if isinstance(value, Part) else value
        for key, value in recorded(function, arguments).items()
    }
    for key, parameter in parameters(function).items():
        value = arguments.get(key)
        if parameter.annotation in (Algorithm, "Algorithm") and isinstance(value, str | Mapping):
            with at(f"`{key}`:"):
                inner = build_algorithm(table_of(value))
            arguments[key], record[key], notes = (
                inner.value,
                inner.arguments,
                [*notes, *inner.notes],
            )
    return Built(function(**arguments), {"name": name, **record}, notes)


def _check_optimizer(name: str, arguments: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Raise ``ValueError`` for the key of an optimizer, which is a part of a method here."""
    keys = [key for key in ("optimizer", "optim") if key in arguments]
    if keys and is_ours(function) and keys[0] not in parameters(function):
        raise ValueError(
            f"`{name}` takes no {keys[0]!r}, got {shown(arguments[keys[0]])}; {ELSEWHERE[keys[0]]}"
        )


def build_model(table: dict[str, Any], clients: Partition) -> Built:
    """Return a model; missing sizes are those of the data."""
    name, arguments = named({"name": "logistic_regression"} | table)
    function = find("model", name)
    shape = list(clients.dataset.inputs.shape[1:])
    sizes = {"in_features": math.prod(shape), "in_shape": shape, "n_classes": clients.n_classes}
    arguments = {
        key: size for key, size in sizes.items() if key in parameters(function)
    } | arguments
    arguments = arguments_of(function, arguments)
    with seeded_torch(0):  # custom modules draw the same numbers each time they are created
        return Built(function(**arguments), {"name": name, **recorded(function, arguments)}, [])


def build_task(table: dict[str, Any]) -> Built:
    """Return a task."""
    name, arguments = named(table)
    function = find("task", name)
    arguments = arguments_of(function, arguments)
    record = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in recorded(function, arguments).items()
    }
    return Built(function(**arguments), {"name": name, **record}, [])


def build_attackers(table: dict[str, Any], n: int) -> Built:
    """Return an attack; if ``share`` is given, ``attacks.drawn`` draws its nodes."""
    name, arguments = named(table)
    function = find("attack", name)
    takes = parameters(function)
    record: dict[str, Any] = {"name": name}
    if "share" in arguments and "share" not in takes and "nodes" in takes:
        if "nodes" in arguments:
            raise ValueError(
                "`share` must be given without `nodes`, since it draws them, got both; leave one "
                "out"
            )
        draw = {"share": arguments.pop("share")}
        if "seed" not in takes:
            draw["seed"] = arguments.pop("seed", 0)
        arguments["nodes"] = drawn(n, **draw)
        record |= draw
    arguments = arguments_of(function, arguments)
    values = recorded(function, arguments)
    if "share" in record:
        del values["nodes"]
    record |= {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
    }
    return Built(function(**arguments), record, [])


def build_run(table: dict[str, Any]) -> Built:
    """Return the arguments of :func:`topofl.run` in the table ``[run]``."""
    table, notes = with_seed(run, table)
    arguments = arguments_of(run, table, hidden=set(parameters(run)) - set(RUN))
    check_switch("progress", arguments["progress"])
    return Built(arguments, recorded(run, arguments), notes)


def build_evaluation(table: dict[str, Any]) -> Built:
    """Return an Evaluation; functions of stages and columns are imported from their modules."""
    arguments = arguments_of(Evaluation, table)
    functions = {name: _load_functions(name, arguments[name]) for name in ("also", "per_node")}
    evaluation = Evaluation(**arguments | functions)
    return Built(
        evaluation,
        recorded(Evaluation, arguments)
        | {"on": evaluation.on[0] if len(evaluation.on) == 1 else evaluation.on},
        [],
    )


def _load_functions(argument: str, names: Any) -> Any:
    """Return the functions of custom stages or columns, given as ``module:function``."""
    if not isinstance(names, Mapping):
        return names
    found = {}
    for key, name in names.items():
        if not isinstance(name, str):
            raise TypeError(
                f'`{argument}` must name functions, as in {{ensemble = "mymodule:mean"}}, '
                f"got {shown(name)}"
            )
        with error_context(f"there is no evaluation {name!r}:"):
            found[key] = load_function(name)
    return found


def build_compute(table: dict[str, Any]) -> Built:
    """Return a Compute."""
    arguments = arguments_of(Compute, table)
    dtype = check_choice("dtype", str(arguments["dtype"]).removeprefix("torch."), _DTYPES)
    compute = Compute(**arguments | {"dtype": getattr(torch, dtype)})
    return Built(compute, recorded(Compute, arguments) | {"dtype": dtype}, [])


def build_saving(table: dict[str, Any]) -> Built:
    """Return a Saving without a folder."""
    arguments = arguments_of(Saving, table, hidden=["folder", "resume", "final"])
    return Built(Saving(**arguments), recorded(Saving, arguments), [])


def _build_augmentation(value: Any) -> Built:
    """Return the augmentation of training images."""
    with at("`augment`:"):
        name, arguments = named(table_of(value))
        function = find("augmentation", name)
        arguments = arguments_of(function, arguments)
        return Built(function(**arguments), {"name": name, **recorded(function, arguments)}, [])
