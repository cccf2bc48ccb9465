"""What each table of a configuration stands for."""

import functools
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from topofl._spec import (
    Built,
    arguments_of,
    at,
    check_keys,
    find,
    first,
    named,
    parameters,
    recorded,
    table_of,
    with_seed,
)
from topofl._support.check import check_choice, check_switch, shown
from topofl._support.plugins import error_context, load_function
from topofl._support.seeding import seeded_torch
from topofl.algorithms.contract.parts import Part
from topofl.algorithms.contract.phase import Algorithm
from topofl.attacks import drawn
from topofl.config.toml import is_none
from topofl.data import Partition, augmented, flip_labels, match_test, with_validation
from topofl.engine import Compute, Evaluation, Saving, run
from topofl.engine.setup import check_counts

__all__ = [
    "RUN",
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
]

RUN = ("rounds", "seed", "init", "progress")


_DTYPES = ("float16", "bfloat16", "float32", "float64")


def build_clients(table: dict[str, Any]) -> Built:
    """Return a Partition; keys go to the partitioner where it takes them, else to the dataset.

    What stands under the names of :data:`_EDITS` is given to these functions after it, with the
    partition's seed, or 0 if a user's partition has none.
    """
    name, rest = named(table)
    partition, augment = rest.pop("partition", "shards"), rest.pop("augment", None)
    after = {key: rest.pop(key, None) for key in _EDITS}
    reader, partitioner = find("dataset", name), find("partition", partition)
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
    source = arguments_of(reader, source)
    if "root" in source:
        source["root"] = _absolute("root", source["root"])
    if source.get("cache") is not None:
        source["cache"] = _absolute("cache", source["cache"])
    clients = partitioner(reader(**source), **split)
    source, split = recorded(reader, source), recorded(partitioner, split)
    for key, value in after.items():
        if not is_none(value):
            clients, split = _EDITS[key](clients, value, split.get("seed", 0)), split | {key: value}
    if not is_none(augment):
        found = _build_augmentation(augment)
        clients, split = augmented(clients, found.value), split | {"augment": found.arguments}
    said = {"split_seed" if key == "seed" else key: value for key, value in source.items()}
    return Built(clients, {"name": name, **said, "partition": partition, **split}, notes)


_EDITS: dict[str, Callable[[Partition, Any, int], Partition]] = {
    "match_test": lambda clients, rule, seed: match_test(clients, rule=rule, seed=seed),
    "with_validation": lambda clients, share, seed: with_validation(clients, share, seed=seed),
    "flip_labels": lambda clients, nodes, seed: flip_labels(clients, nodes, seed=seed),
}
"""What may follow a partition, in this order."""


def _absolute(key: str, path: Any) -> str:
    if not isinstance(path, str):
        raise TypeError(f"`{key}` must be the path of a folder, got {shown(path)}")
    return os.path.abspath(os.path.expanduser(path))


def build_rule(table: dict[str, Any]) -> Built:
    """Return a weight rule with its arguments bound."""
    name, arguments = named(table)
    rule = find("mixing", name)
    arguments = arguments_of(rule, arguments, hidden=[first(rule)])
    said = {"name": name, **recorded(rule, arguments)}
    return Built(functools.partial(rule, **arguments), said, [])


def build_algorithm(table: dict[str, Any]) -> Built:
    """Return an algorithm; arguments that are algorithms or schedules may be text or tables."""
    name, arguments = named(table)
    function = find("algorithm", name)
    arguments, notes = with_seed(function, arguments)
    arguments = arguments_of(function, arguments)
    said = {
        key: str(value) if isinstance(value, Part) else value
        for key, value in recorded(function, arguments).items()
    }
    for key, parameter in parameters(function).items():
        value = arguments.get(key)
        if parameter.annotation in (Algorithm, "Algorithm") and isinstance(value, str | Mapping):
            with at(f"`{key}`:"):
                inner = build_algorithm(table_of(value))
            arguments[key], said[key], notes = inner.value, inner.arguments, [*notes, *inner.notes]
    return Built(function(**arguments), {"name": name, **said}, notes)


def build_model(table: dict[str, Any], clients: Partition) -> Built:
    """Return a model; sizes that are not given are those of the data."""
    name, arguments = named({"name": "logistic_regression"} | table)
    function = find("model", name)
    shape = list(clients.dataset.inputs.shape[1:])
    sizes = {"in_features": math.prod(shape), "in_shape": shape, "n_classes": clients.n_classes}
    arguments = {
        key: size for key, size in sizes.items() if key in parameters(function)
    } | arguments
    arguments = arguments_of(function, arguments)
    with seeded_torch(
        0
    ):  # what a module of the user's draws when it is made is the same every time
        said = {"name": name, **recorded(function, arguments)}
        return Built(function(**arguments), said, [])


def build_task(table: dict[str, Any]) -> Built:
    """Return a task."""
    name, arguments = named(table)
    function = find("task", name)
    arguments = arguments_of(function, arguments)
    said = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in recorded(function, arguments).items()
    }
    return Built(function(**arguments), {"name": name, **said}, [])


def build_attackers(table: dict[str, Any], n: int) -> Built:
    """Return an attack, whose nodes ``attacks.drawn`` draws if a ``share`` is given."""
    name, arguments = named(table)
    function = find("attack", name)
    takes = parameters(function)
    said: dict[str, Any] = {"name": name}
    if "share" in arguments and "share" not in takes and "nodes" in takes:
        if "nodes" in arguments:
            raise ValueError(
                "`share` must be given without `nodes`, which are drawn from it, got both; leave "
                "one out"
            )
        draw = {"share": arguments.pop("share")}
        if "seed" not in takes:
            draw["seed"] = arguments.pop("seed", 0)
        arguments["nodes"] = drawn(n, **draw)
        said |= draw
    arguments = arguments_of(function, arguments)
    kept = recorded(function, arguments)
    if "share" in said:
        del kept["nodes"]
    said |= {key: list(value) if isinstance(value, tuple) else value for key, value in kept.items()}
    return Built(function(**arguments), said, [])


def build_run(table: dict[str, Any]) -> Built:
    """Return the arguments of :func:`topofl.run` in the table ``[run]``."""
    table, notes = with_seed(run, table)
    arguments = arguments_of(run, table, hidden=set(parameters(run)) - set(RUN))
    check_counts(*(arguments[name] for name in ("rounds", "seed", "init")))
    check_switch("progress", arguments["progress"])
    return Built(arguments, recorded(run, arguments), notes)


def build_evaluation(table: dict[str, Any]) -> Built:
    """Return an Evaluation, whose own stages are loaded from their modules."""
    arguments = arguments_of(Evaluation, table)
    evaluation = Evaluation(**arguments | {"also": _own_stages(arguments["also"])})
    return Built(
        evaluation,
        recorded(Evaluation, arguments)
        | {"on": evaluation.on[0] if len(evaluation.on) == 1 else evaluation.on},
        [],
    )


def _own_stages(also: Any) -> Any:
    """Return functions of evaluations for their names, ``module:function``."""
    if not isinstance(also, Mapping):
        return also
    found = {}
    for key, name in also.items():
        if not isinstance(name, str):
            raise TypeError(
                '`also` must name functions, as in {ensemble = "mymodule:mean"}, '
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
    arguments = arguments_of(Saving, table, hidden=["folder", "resume"])
    return Built(Saving(**arguments), recorded(Saving, arguments), [])


def _build_augmentation(value: Any) -> Built:
    """Return what becomes of images in training."""
    with at("`augment`:"):
        name, arguments = named(table_of(value))
        function = find("augmentation", name)
        arguments = arguments_of(function, arguments)
        return Built(function(**arguments), {"name": name, **recorded(function, arguments)}, [])
