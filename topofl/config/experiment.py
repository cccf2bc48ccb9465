"""Experiment: a run that is ready to start, built from the tables of a configuration."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from topofl._spec import Built, at, build_topology, check_keys
from topofl._support.ambient import plain_torch
from topofl._support.calls import named
from topofl._support.check import check_path
from topofl._support.module_folders import appended_folder, check_folder
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import Rule
from topofl.attacks import Attack
from topofl.callbacks import Callback
from topofl.config.tables import (
    RUN,
    Read,
    build_algorithm,
    build_attackers,
    build_clients,
    build_compute,
    build_evaluation,
    build_model,
    build_rule,
    build_run,
    build_saving,
    build_task,
    read_data,
)
from topofl.config.toml import TABLES, as_table, is_none, override, read, with_modules
from topofl.data import Dataset, Partition
from topofl.engine import run
from topofl.engine.requests import Setup, Trace
from topofl.engine.setup import resolve
from topofl.estimate import Estimate, estimate
from topofl.history import History
from topofl.tasks import Task
from topofl.topology import TopologyError

__all__ = ["Experiment", "Tables", "build", "load"]


Tables = dict[str, dict[str, Any]]
"""Arguments by table and key, as in the example of :class:`Experiment`."""

_WITH_DEFAULTS = ("model", "evaluation", "compute", "saving")
"""Tables that may be missing because all of their keys have defaults."""

_PARTS = ("algorithm", "model", "clients", "topology", "mixing", "task", "attackers")


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
        with self._user_modules():
            return run(**self._parts, **options)

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
        return build(with_modules(override(tables, assignments), path))


def build(tables: Mapping[str, Any], *, read: Read = read_data) -> Experiment:
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
    check_keys("an experiment", tables, TABLES)
    modules = tables.get("modules")
    folder = None if is_none(modules) else _folder_of_modules(as_table("modules", modules))
    with appended_folder(folder):
        experiment = _built({**tables, "modules": None}, read)
        if folder is None or not _is_used(folder, experiment.tables):
            return experiment
        check_folder(folder)
    return replace(experiment, tables={**experiment.tables, "modules": {"folder": folder}})


def _folder_of_modules(table: Mapping[str, Any]) -> str:
    """Return the folder in which modules of custom functions are found, or raise."""
    with at("[modules]"):
        check_keys("the table", table, ["folder"])
        return str(check_path("folder", table.get("folder")).absolute())


def _is_used(folder: str, values: Any) -> bool:
    """Return whether values name a function ``module:function`` of a module in a folder."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list | tuple):
        return any(_is_used(folder, value) for value in values)
    names = _MODULE.findall(values) if isinstance(values, str) else []
    files = [getattr(sys.modules.get(name), "__file__", None) for name in names]
    return any(file is not None and Path(file).is_relative_to(folder) for file in files)


_MODULE = re.compile(r"([A-Za-z_][\w.]*)\s*:\s*[A-Za-z_]")
"""The module in ``module:function``."""


def _built(tables: Mapping[str, Any], read: Read) -> Experiment:
    """Return the experiment of tables whose modules can be imported."""
    given = {name: as_table(name, tables[name]) for name in TABLES if not is_none(tables.get(name))}
    for name in ("data", "algorithm", "run"):
        if name not in given:
            raise ValueError(f"[{name}] is missing")
    datasets: list[Dataset] = []

    def read_and_keep(*call: Any) -> Dataset:
        datasets.append(read(*call))
        return datasets[-1]

    clients_table = _build("data", given["data"], lambda table: build_clients(table, read_and_keep))
    clients: Partition = clients_table.value
    builders: dict[str, Callable[[dict[str, Any]], Built]] = {
        "topology": lambda table: build_topology(*named(table), clients.label_counts),
        "algorithm": build_algorithm,
        "mixing": build_rule,  # if missing, the run chooses a rule and warns if it drops weights
        "model": lambda table: build_model(table, clients),
        "task": build_task,
        "attackers": lambda table: build_attackers(table, clients.n),
        "run": build_run,
        "evaluation": build_evaluation,
        "compute": build_compute,
        "saving": build_saving,
    }
    built = {"data": clients_table} | {
        name: _build(name, given.get(name, {}), function)
        for name, function in builders.items()
        if name in given or name in _WITH_DEFAULTS
    }
    parts = {name: part.value for name, part in built.items()}
    options = parts["run"] | {name: parts[name] for name in ("evaluation", "compute", "saving")}
    experiment = Experiment(
        parts["algorithm"],
        parts["model"],
        clients,
        parts.get("topology"),
        parts.get("mixing"),
        options,
        tables={name: built[name].arguments for name in TABLES if name in built},
        notes=tuple(f"[{name}] {note}" for name, part in built.items() for note in part.notes),
        task=parts.get("task"),
        attackers=parts.get("attackers"),
        dataset=datasets[-1],
    )
    trace = _check(experiment).trace
    uses_topology = trace.needs_topology or trace.chooses
    ignored = () if uses_topology or experiment.topology is None else (_ignored(experiment, trace),)
    return replace(experiment, uses_topology=uses_topology, notes=(*experiment.notes, *ignored))


def _check(experiment: Experiment) -> Setup:
    """Return the setup of the run, or raise the errors that :func:`topofl.run` would raise."""
    names = ("rounds", "seed", "init", "evaluation", "compute")
    with _naming_table(), plain_torch(experiment.options["compute"].device):
        return resolve(**experiment._parts, **{name: experiment.options[name] for name in names})


def _ignored(experiment: Experiment, trace: Trace) -> str:
    """Return the note that the algorithm does not use the topology of the experiment."""
    why = "its nodes communicate through a server only"
    if not trace.uses_server:
        why = (
            "it trains one model on all data"
            if experiment.algorithm.pooled
            else "its nodes exchange nothing"
        )
    return f"[topology] {experiment.algorithm.name} ignores {experiment.topology.name}: {why}"


@contextmanager
def _naming_table() -> Iterator[None]:
    """Prefix an error message that begins with an argument by the table of the argument."""
    try:
        yield
    except (TypeError, ValueError) as error:
        argument = re.match(r"`(\w+)", str(error))
        name = "" if argument is None else argument[1]
        table = {"clients": "data"}.get(name, "run" if name in RUN else name)
        kind = type(error)
        if kind not in (TypeError, ValueError, TopologyError) or table not in TABLES:
            raise
        raise kind(f"[{table}] {error}") from error


def _build(name: str, table: dict[str, Any], function: Callable[[dict[str, Any]], Built]) -> Built:
    with at(f"[{name}]"):
        return function(table)
