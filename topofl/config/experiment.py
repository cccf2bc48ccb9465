"""Experiment: a run that is ready to start, built from the tables of a configuration."""

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from topofl._spec import (
    Built,
    arguments_of,
    at,
    build_topology,
    check_keys,
    find,
    first,
    is_ours,
    parameters,
    recorded,
    with_seed,
)
from topofl._support.calls import evaluate_call, named, table_of
from topofl._support.check import check_choice, check_path, check_switch, shown
from topofl._support.datasets import default_root
from topofl._support.plugins import appended_folder, check_folder, error_context, load_function
from topofl._support.public import ELSEWHERE
from topofl._support.seeding import plain_torch, seeded_torch
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import Rule
from topofl.attacks import Attack, drawn
from topofl.callbacks import Callback
from topofl.config.toml import (
    TABLES,
    Tables,
    as_table,
    is_none,
    modules_in,
    override,
    read,
    with_modules,
)
from topofl.data import (
    Dataset,
    Partition,
    augmented,
    backdoor,
    flip_labels,
    match_test,
    noisy,
    pixel_patch,
    rotated,
    tinted,
    with_validation,
)
from topofl.engine import Compute, Evaluation, Saving, run
from topofl.engine.graph_checks import why_ignored
from topofl.engine.network import copy_of_trained
from topofl.engine.requests import NotTogether, Setup
from topofl.engine.run import run_of, run_together
from topofl.engine.setup import resolve
from topofl.estimate import Estimate, estimate
from topofl.history import History
from topofl.tasks import Task
from topofl.topology import TopologyError

_RUN = ("rounds", "seed", "init", "progress")
"""Arguments of :func:`topofl.run` in the table ``[run]``."""

_WITH_DEFAULTS = ("model", "evaluation", "compute", "saving")
"""Tables that may be missing because all of their keys have defaults."""

_OF_FOLDERS = ("folder", "resume", "final")
"""Options of :class:`topofl.Saving` that belong to a run of an experiment, not to a file."""

_OPTIONS = {
    "run": _RUN,
    "evaluation": tuple(parameters(Evaluation)),
    "compute": tuple(parameters(Compute)),
    "saving": tuple(key for key in parameters(Saving) if key not in _OF_FOLDERS),
}
"""Keys of the tables that hold options of :func:`topofl.run`."""

_PARTS = ("algorithm", "model", "clients", "topology", "mixing", "task", "attackers")

_CHECKED = ("rounds", "seed", "init", "evaluation", "compute")
"""Options of :func:`topofl.run` that are checked with the parts of an experiment."""

Read = Callable[[str, Callable[..., Dataset], Mapping[str, Any]], Dataset]
"""Returns a dataset, given the name of a reader, the reader itself and its arguments."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """A run that is ready to start.

    Parameters
    ----------
    algorithm, model, clients, topology, mixing, task, attackers
        As in :func:`topofl.run`.
    options
        Other arguments of :func:`topofl.run`; `saving` has no folder yet.
    tables
        The configuration with all defaults filled in; :func:`build` builds the same experiment from
        it.
    notes
        Assumptions to report to the user.
    dataset
        The dataset as it was read, before it was partitioned and edited.
    uses_topology
        Whether nodes exchange with neighbors, or choose among them.
    checked
        Arguments of the run, and the setup that was made of them, from which the run starts unless
        an argument was replaced. None: the run checks its arguments itself, as it does if it uses
        values of `model`, which may have changed since.

    Examples
    --------
    >>> tables: Tables = {
    ...     "data": {"name": "digits", "partition": "iid", "n": 4, "seed": 0},
    ...     "topology": {"name": "ring"},
    ...     "algorithm": {"name": "dsgd", "lr": 0.1},
    ...     "run": {"rounds": 2, "seed": 0},
    ... }
    >>> experiment = build(tables)
    >>> experiment.topology
    Topology('ring(n=4)', n=4, edges=4, undirected)
    >>> experiment.run(progress=False).n_rounds
    2
    """

    algorithm: Algorithm
    model: nn.Module
    clients: Partition
    topology: Any
    mixing: Rule | None
    options: Mapping[str, Any]
    tables: Tables
    dataset: Dataset
    notes: tuple[str, ...] = ()
    task: Task | None = None
    attackers: Attack | None = None
    uses_topology: bool = True
    checked: tuple[Mapping[str, Any], Setup] | None = field(default=None, repr=False)

    @property
    def _parts(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in _PARTS}

    @contextmanager
    def _user_modules(self) -> Iterator[None]:
        """Let functions of the experiment import modules of its folder when they are called."""
        folder = self.tables.get("modules", {}).get("folder")
        with appended_folder(folder):
            if folder is not None:
                check_folder(folder)
            yield

    def run(
        self,
        *,
        progress: bool | None = None,
        folder: str | os.PathLike[str] | None = None,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> History:
        """Train, and return the history of the run.

        Parameters
        ----------
        progress
            Whether to show a progress bar; None: as configured.
        folder, resume
            As in :class:`topofl.Saving`.
        callbacks
            As in :func:`topofl.run`.

        Raises
        ------
        DivergenceError, Interrupted, OSError
            As :func:`topofl.run`.
        """
        saving = replace(self.options["saving"], folder=folder, resume=resume)
        options = dict(self.options) | {"saving": saving, "callbacks": callbacks}
        if progress is not None:
            options["progress"] = progress
        arguments = self._parts | options
        with self._user_modules():
            given, setup = self.checked or ({}, None)
            if setup is None or any(arguments[key] is not given[key] for key in given):
                return run(**arguments)
            with plain_torch(setup.compute.device):
                return run_of(_apart(setup), saving, callbacks, options["progress"])

    def estimate(self, *, probe: bool = False) -> Estimate:
        """Return memory, messages and, with `probe`, times; see :func:`topofl.estimate`."""
        options = {key: self.options[key] for key in ("rounds", "evaluation", "compute")}
        with self._user_modules():
            return estimate(**self._parts, **options, probe=probe)

    def tables_of(self, history: History) -> Tables:
        """Return the tables that repeat a run exactly, with its choice of executor and chunk."""
        chosen = {"executor": history.meta["executor"]}
        if chosen["executor"] == "batched":
            chosen["chunk"] = history.meta["chunk"]
        return self.tables | {"compute": self.tables["compute"] | chosen}


def _apart(setup: Setup) -> Setup:
    """Return a setup with a network of its own, since runs put parameters into theirs."""
    return replace(setup, network=setup.network._replace(module=copy_of_trained(setup.module)))


def trained_together(
    experiments: Sequence[Experiment], callbacks: Sequence[Callback] = ()
) -> list[History]:
    """Train experiments of one dataset, algorithm and model as one run; return their histories.

    Each is the history of :meth:`Experiment.run`, to the last bit. The experiments must share one
    dataset object: pass :func:`build` a function `read` that returns it.

    Raises
    ------
    NotTogether
        If they cannot be trained together.
    Exception
        What one of them meets alone ends all of them.

    Examples
    --------
    >>> from topofl.data import digits
    >>> dataset = digits()
    >>> data = {"name": "digits", "partition": "iid", "n": 4}
    >>> tables = {"data": data, "topology": "ring", "algorithm": "dsgd,lr=0.1"}
    >>> runs = [
    ...     build({**tables, "run": {"rounds": 2, "seed": seed}}, read=lambda *call: dataset)
    ...     for seed in range(3)
    ... ]
    >>> [history.n_rounds for history in trained_together(runs)]
    [2, 2, 2]
    """
    setups = [experiment.checked[1] for experiment in experiments if experiment.checked]
    if len(setups) < len(experiments):
        raise NotTogether("they use values of their models")
    with ExitStack() as contexts:
        for experiment in experiments:
            contexts.enter_context(experiment._user_modules())
        contexts.enter_context(plain_torch(setups[0].compute.device))
        return run_together([_apart(setup) for setup in setups], callbacks)


def load(path: str | os.PathLike[str], assignments: Sequence[str] = ()) -> Experiment:
    """Return the experiment in a TOML file, after assignments such as ``"run.rounds=10"``.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError, TypeError
        If the file is not TOML, a table or key is unknown, or a function rejects its arguments; the
        message names the file and the table.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp(), "ring.toml")
    >>> _ = path.write_text('''
    ... topology = "ring"
    ... algorithm = "dsgd,lr=0.1"
    ... [data]
    ... name = "digits"
    ... n = 10
    ... seed = 0
    ... [run]
    ... rounds = 100
    ... seed = 0
    ... ''')
    >>> load(path, ["run.rounds=10"]).options["rounds"]
    10
    """
    tables = read(path)
    with at(f"{path}:"):
        _check_place(
            "an experiment", [text.partition("=")[0].strip() for text in assignments], TABLES
        )
        return build(with_modules(override(tables, assignments), path))


def _read_data(name: str, reader: Callable[..., Dataset], arguments: Mapping[str, Any]) -> Dataset:
    """Return a dataset by calling its reader."""
    del name
    return reader(**arguments)


def build(tables: Mapping[str, Any], *, read: Read = _read_data) -> Experiment:
    """Return the experiment that the tables of a configuration describe.

    Parameters
    ----------
    tables
        Arguments by table and key, or text, as in a file.
    read
        Returns a dataset, given the name of a reader, the reader and its arguments: a function that
        keeps datasets saves time where many experiments have the same data.

    Raises
    ------
    ValueError, TypeError
        As :func:`load`.

    Examples
    --------
    >>> data = {"name": "digits", "n": 10, "seed": 0}
    >>> tables = {"data": data, "topology": "ring", "algorithm": {"name": "dsgd", "lr": 0.1}}
    >>> build({**tables, "run": {"rounds": 2, "seed": 0}}).clients.n
    10
    """
    _check_place("an experiment", tables, TABLES)
    check_keys("an experiment", tables, TABLES)
    folder = None
    if not is_none(modules := tables.get("modules")):
        table = as_table("modules", modules)
        with at("[modules]"):
            check_keys("the table", table, ["folder"])
            folder = str(check_path("folder", table.get("folder")).absolute())
    with appended_folder(folder):
        experiment = _built({**tables, "modules": None}, read)
        used = map(sys.modules.get, modules_in(experiment.tables))
        files = [getattr(module, "__file__", None) for module in used]
        if folder is None or not any(file and Path(file).is_relative_to(folder) for file in files):
            return experiment
        check_folder(folder)
    return replace(experiment, tables={**experiment.tables, "modules": {"folder": folder}})


def _built(tables: Mapping[str, Any], read: Read) -> Experiment:
    """Return the experiment of tables whose modules can be imported."""
    given = {name: as_table(name, tables[name]) for name in TABLES if not is_none(tables.get(name))}
    for name in ("data", "algorithm", "run"):
        if name not in given:
            raise ValueError(f"[{name}] is missing")
    for name, keys in _OPTIONS.items():
        _check_place(f"[{name}]", given.get(name, {}), keys)
    datasets: list[Dataset] = []

    def read_and_keep(*call: Any) -> Dataset:
        datasets.append(read(*call))
        return datasets[-1]

    with at("[data]"):
        built = {"data": build_clients(given["data"], read_and_keep)}
    clients: Partition = built["data"].value
    given = {name: {} for name in _WITH_DEFAULTS} | given
    for name, build_part in _BUILDERS.items():
        if name in given:
            with at(f"[{name}]"):
                built[name] = build_part(given[name], clients)
    parts = {name: part.value for name, part in built.items()}
    options = parts["run"] | {name: parts[name] for name in ("evaluation", "compute", "saving")}
    experiment = Experiment(
        parts["algorithm"],
        parts["model"],
        clients,
        parts.get("topology"),
        parts.get("mixing"),  # if missing, the run chooses a rule and warns if it drops weights
        options,
        tables={name: built[name].arguments for name in TABLES if name in built},
        notes=tuple(f"[{name}] {note}" for name, part in built.items() for note in part.notes),
        task=parts.get("task"),
        attackers=parts.get("attackers"),
        dataset=datasets[-1],
    )
    asked = experiment._parts | {name: options[name] for name in _CHECKED}
    with _naming_table(), plain_torch(options["compute"].device):  # raises errors of the run
        setup = resolve(**asked)
    notes, why = list(experiment.notes), why_ignored(setup.trace)
    if why and experiment.topology is not None:
        what = f"{experiment.algorithm.name} ignores {experiment.topology.name}"
        notes.append(f"[topology] {what}: {why}")
    known = {"uses_topology": not why, "notes": tuple(notes)}
    kept = options["init"] == "given" or _keeps_values(experiment.model)
    return replace(experiment, **known, checked=None if kept else (asked, setup))


def _keeps_values(model: nn.Module) -> bool:
    """Return whether runs use values of a model although they draw its initial parameters."""
    return next(model.buffers(), None) is not None or any(
        not p.requires_grad or not callable(getattr(module, "reset_parameters", None))
        for module in model.modules()
        for p in module.parameters(recurse=False)
    )


def _check_place(what: str, keys: Iterable[str], known: Sequence[str]) -> None:
    """Raise ``ValueError`` for an option of a run that belongs to another table, or is one."""
    for key in keys:
        if key in TABLES and key not in known:
            raise ValueError(
                f"{what} takes {', '.join(known)}, not {key!r}; write it in a table of its own, "
                f"[{key}]"
            )
        places = [f"[{name}]" for name, own in _OPTIONS.items() if key in own]
        if places and key not in known:
            raise ValueError(
                f"{what} takes {', '.join(known)}, not {key!r}; write it in {' or '.join(places)}"
            )


@contextmanager
def _naming_table() -> Iterator[None]:
    """Prefix an error message that begins with an argument by the table of the argument."""
    try:
        yield
    except (TypeError, ValueError) as error:
        argument = re.match(r"`(\w+)", str(error))
        name = "" if argument is None else argument[1]
        table = {"clients": "data"}.get(name, "run" if name in _RUN else name)
        kind = type(error)
        if kind not in (TypeError, ValueError, TopologyError) or table not in TABLES:
            raise
        raise kind(f"[{table}] {error}") from error


def build_clients(table: dict[str, Any], read: Read = _read_data) -> Built:
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
        if (place := default_root()) is None:
            raise ValueError(
                "`root` must be given unless the environment variable TOPOFL_DATA names a folder "
                f'of datasets, got neither; write root = "FOLDER" (as text: {name},root=FOLDER), '
                "or set TOPOFL_DATA"
            )
        source["root"] = str(place)
    source |= dict(_absolute_paths(reader, source))
    clients = partitioner(read(name, reader, source), **split)
    source = recorded(reader, source)
    split = recorded(partitioner, split)
    for key, value in edits.items():
        if not is_none(value):
            clients = _EDITS[key](clients, value, split.get("seed", 0))
            split |= {key: value}
    if not is_none(augment):
        with at("`augment`:"):
            augmentation = _call("augmentation", table_of(augment))
        clients = augmented(clients, augmentation.value)
        split |= {"augment": augmentation.arguments}
    source = {"split_seed" if key == "seed" else key: value for key, value in source.items()}
    return Built(clients, {"name": name, **source, "partition": partition, **split}, notes)


_EDITS: dict[str, Callable[[Partition, Any, int], Partition]] = {
    "match_test": lambda clients, rule, seed: match_test(clients, rule=rule, seed=seed),
    "with_validation": lambda clients, share, seed: with_validation(clients, share, seed=seed),
    "flip_labels": lambda clients, nodes, seed: flip_labels(clients, nodes, seed=seed),
    "rotated": lambda clients, angles, seed: rotated(clients, angles),
    "tinted": lambda clients, colors, seed: tinted(clients, colors),
    "noisy": lambda clients, variance, seed: noisy(clients, variance, seed=seed),
    "backdoor": lambda clients, options, seed: _with_backdoor(clients, options, seed),
}
"""Edits of a partition, by key, in the order in which they are applied."""


def _with_backdoor(clients: Partition, options: Any, seed: int) -> Partition:
    """Return a partition with triggered images, by a table of the arguments of ``backdoor``."""
    with at("`backdoor`:"):
        if not isinstance(options, Mapping):
            raise TypeError(
                f"must be a table such as {{ target = 0, nodes = [3] }}, got {shown(options)}"
            )
        given = arguments_of(backdoor, {"seed": seed, **options}, hidden=["clients"])
        if isinstance(trigger := given["trigger"], str):
            known = {pixel_patch.__name__: pixel_patch}
            given["trigger"] = evaluate_call("trigger", trigger, known, "pixel_patch(size=3)")
        return backdoor(clients, **given)


def _absolute_paths(
    reader: Callable[..., Dataset], source: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the arguments of a reader that are paths; those of custom readers are unknown."""
    for key, parameter in parameters(reader).items():
        value = source.get(key)
        is_folder = key in ("root", "cache") and value is not None
        if is_folder and not isinstance(value, str):
            raise TypeError(f"`{key}` must be the path of a folder, got {shown(value)}")
        takes_paths = is_ours(reader) and "PathLike" in str(parameter.annotation)
        if isinstance(value, str) and (is_folder or takes_paths):
            yield key, os.path.abspath(os.path.expanduser(value))


def _call(kind: str, table: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Built:
    """Return what the function that a table names returns for the other entries of the table.

    Of the defaults, those are given that it takes.
    """
    name, arguments = named(table)
    function = find(kind, name)
    takes = parameters(function)
    own = {key: value for key, value in (defaults or {}).items() if key in takes}
    arguments = arguments_of(function, own | arguments)
    return Built(function(**arguments), {"name": name, **recorded(function, arguments)}, [])


def build_rule(table: Mapping[str, Any]) -> Built:
    """Return a weight rule with its arguments bound."""
    name, arguments = named(table)
    rule = find("mixing", name)
    arguments = arguments_of(rule, arguments, hidden=[first(rule)])
    return Built(partial(rule, **arguments), {"name": name, **recorded(rule, arguments)}, [])


def _build_algorithm(table: Mapping[str, Any]) -> Built:
    """Return an algorithm; arguments that are algorithms may be text or tables."""
    name, arguments = named(table)
    function = find("algorithm", name)
    takes = parameters(function)
    for key in ("optimizer", "optim"):  # a part of a method here
        if key in arguments and is_ours(function) and key not in takes:
            raise ValueError(
                f"`{name}` takes no {key!r}, got {shown(arguments[key])}; {ELSEWHERE[key]}"
            )
    arguments, notes = with_seed(function, arguments)
    arguments = arguments_of(function, arguments)
    record = recorded(function, arguments)
    for key, parameter in takes.items():
        value = arguments.get(key)
        if parameter.annotation in (Algorithm, "Algorithm") and isinstance(value, str | Mapping):
            with at(f"`{key}`:"):
                inner = _build_algorithm(table_of(value))
            arguments[key], record[key] = inner.value, inner.arguments
            notes += inner.notes
    return Built(function(**arguments), {"name": name, **record}, notes)


def _build_model(table: Mapping[str, Any], clients: Partition) -> Built:
    """Return a model; missing sizes are those of the data."""
    shape = list(clients.dataset.inputs.shape[1:])
    sizes = {"in_features": math.prod(shape), "in_shape": shape, "n_classes": clients.n_classes}
    with seeded_torch(0):  # custom modules draw the same numbers each time they are created
        return _call("model", {"name": "logistic_regression", **table}, sizes)


def _build_attackers(table: Mapping[str, Any], n: int) -> Built:
    """Return an attack; if ``share`` is given, ``attacks.drawn`` draws its nodes."""
    name, arguments = named(table)
    takes = parameters(find("attack", name))
    if "share" not in arguments or "share" in takes or "nodes" not in takes:
        return _call("attack", table)
    if "nodes" in arguments:
        raise ValueError(
            "`share` must be given without `nodes`, since it draws them, got both; leave one out"
        )
    draw = {"share": arguments.pop("share")}
    if "seed" not in takes:
        draw["seed"] = arguments.pop("seed", 0)
    built = _call("attack", {"name": name, **arguments, "nodes": drawn(n, **draw)})
    values = {key: value for key, value in built.arguments.items() if key != "nodes"}
    return built._replace(arguments={"name": name, **draw, **values})


def _build_run(table: Mapping[str, Any]) -> Built:
    """Return the arguments of :func:`topofl.run` in the table ``[run]``."""
    table, notes = with_seed(run, table)
    arguments = arguments_of(run, table, hidden=set(parameters(run)) - set(_RUN))
    check_switch("progress", arguments["progress"])
    return Built(arguments, recorded(run, arguments), notes)


def _build_evaluation(table: Mapping[str, Any]) -> Built:
    """Return an Evaluation; functions of stages and columns are imported from their modules."""
    arguments = arguments_of(Evaluation, table)
    functions = {name: _load_functions(name, arguments[name]) for name in ("also", "per_node")}
    evaluation = Evaluation(**arguments | functions)
    on = evaluation.on[0] if len(evaluation.on) == 1 else evaluation.on
    return Built(evaluation, recorded(Evaluation, arguments) | {"on": on}, [])


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


def _build_compute(table: Mapping[str, Any]) -> Built:
    """Return a Compute."""
    arguments = arguments_of(Compute, table)
    dtype = str(arguments["dtype"]).removeprefix("torch.")
    check_choice("dtype", dtype, ("float16", "bfloat16", "float32", "float64"))
    compute = Compute(**arguments | {"dtype": getattr(torch, dtype)})
    return Built(compute, recorded(Compute, arguments) | {"dtype": dtype}, [])


def _build_saving(table: Mapping[str, Any]) -> Built:
    """Return a Saving without a folder."""
    arguments = arguments_of(Saving, table, hidden=_OF_FOLDERS)
    return Built(Saving(**arguments), recorded(Saving, arguments), [])


_BUILDERS: dict[str, Callable[[dict[str, Any], Partition], Built]] = {
    "topology": lambda table, clients: build_topology(*named(table), clients.label_counts),
    "algorithm": lambda table, _: _build_algorithm(table),
    "mixing": lambda table, _: build_rule(table),
    "model": _build_model,
    "task": lambda table, _: _call("task", table),
    "attackers": lambda table, clients: _build_attackers(table, clients.n),
    "run": lambda table, _: _build_run(table),
    "evaluation": lambda table, _: _build_evaluation(table),
    "compute": lambda table, _: _build_compute(table),
    "saving": lambda table, _: _build_saving(table),
}
"""Functions that build the parts of an experiment from their tables and the clients."""
