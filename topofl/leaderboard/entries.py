"""Tasks, which fix what entries have in common, and entries, which state the rest."""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from topofl._support.check import check_path, check_sequence, shown
from topofl._support.datasets import MARKERS
from topofl._support.text import did_you_mean
from topofl.config.toml import as_table, read, with_modules

__all__ = ["Entry", "Task", "read_entries", "tasks"]

FREE = ("topology", "mixing", "algorithm", "modules")
"""Tables of a configuration that an entry may have."""

ABOUT = ("name", "authors", "link")
"""What an entry says about itself."""

TOLD = ("title", "about", "model_bytes")
"""Fields of tasks that say what a reader should know, and change no result."""

GIVEN = {
    "topology": ("seed",),
    "mixing": ("seed",),
    "algorithm": ("lr", "batch_size", "seed"),
}
"""Arguments that tasks give, by table."""


@dataclass(frozen=True)
class Task:
    """What all entries of a table have in common.

    Parameters
    ----------
    key
        Short name, which is the name of its file.
    title, about
        What readers see.
    version
        Number that changes with anything that changes results.
    tables
        Tables of the configuration: ``data``, ``model``, ``run`` and others; entries add those of
        graph, weights and method.
    batch_size
        Minibatch of every node.
    rates
        Learning rates that are tried.
    tuning_seeds
        Seeds on which the learning rate is chosen.
    seeds
        Seeds of partition, graph and training that count.
    budgets
        Messages, and models, sent per node and round, at most, for which there is a table each.
    model_bytes
        Bytes of a model's parameters: what a model is counted with in budgets of bytes.

    Examples
    --------
    >>> (task,) = tasks(["digits-mlp"])
    >>> task.rates, task.seeds
    ((0.1, 0.3, 1.0, 3.0), (0, 1, 2, 3, 4))
    """

    key: str
    title: str
    about: str
    version: int
    tables: Mapping[str, Any]
    batch_size: int
    rates: tuple[float, ...]
    tuning_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    budgets: tuple[float, ...]
    model_bytes: int

    @property
    def digest(self) -> str:
        """Twelve digits that change with anything that changes results."""
        parts = {k: v for k, v in vars(self).items() if k not in TOLD}
        text = json.dumps(parts, sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def needs_files(self) -> bool:
        """Whether its data must be in a folder of datasets."""
        return self.tables["data"]["name"] in MARKERS


@dataclass(frozen=True)
class Entry:
    """A graph, or a sequence of graphs, with a method.

    Parameters
    ----------
    name
        Name in the tables.
    tables
        ``topology``, ``mixing``, ``algorithm`` and ``modules``, as in a configuration.
    authors, link
        Who sent it in, and where to read about it.

    Examples
    --------
    >>> entry = Entry("Ring, tracked", {"topology": "ring", "algorithm": "dsgt"})
    >>> entry.file
    'ring-tracked'
    """

    name: str
    tables: Mapping[str, Any] = field(default_factory=dict)
    authors: str = ""
    link: str = ""

    @property
    def file(self) -> str:
        """Name of the files of its results, without the task."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def configuration(self, task: Task) -> dict[str, Any]:
        """Return the tables of a run of a task, without learning rate."""
        method = as_table("algorithm", self.tables.get("algorithm", "dsgd"))
        return {
            **task.tables,
            **self.tables,
            "algorithm": {**method, "batch_size": task.batch_size},
        }


def tasks(names: Sequence[str] | None = None) -> tuple[Task, ...]:
    """Return the tasks that topofl ships.

    Parameters
    ----------
    names
        Their keys; None: all.

    Raises
    ------
    ValueError, TypeError
        If there is no task of a name, or `names` is no sequence.

    Examples
    --------
    >>> [task.key for task in tasks() if not task.needs_files]
    ['digits-dirichlet', 'digits-mlp', 'digits-own', 'digits-shards']
    >>> [task.key for task in tasks() if task.needs_files]
    ['cifar10-dcliques', 'cifar10-dfedpgp', 'cifar10-dpfl', 'cifar10-pfeddst', 'mnist-shards']
    """
    folder = files("topofl.leaderboard").joinpath("tasks")
    found = sorted((one for one in folder.iterdir() if one.name.endswith(".toml")), key=str)
    known = {one.name.removesuffix(".toml"): one for one in found}
    names = None if names is None else check_sequence("names", names, "keys of tasks")
    for name in names or ():
        if name not in known:
            raise ValueError(
                f"names of tasks must be of {', '.join(known)}, got {shown(name)}"
                f"{did_you_mean(name, known)}"
            )
    return tuple(_task(key, known[key].read_text(encoding="utf-8")) for key in names or known)


def _task(key: str, text: str) -> Task:
    values = tomllib.loads(text)
    alone = ("title", "about", "version", "batch_size", "model_bytes")
    several = ("rates", "tuning_seeds", "seeds", "budgets")
    own: dict[str, Any] = {name: values.pop(name) for name in alone}
    own |= {name: tuple(values.pop(name)) for name in several}
    return Task(key, tables=values, **own)


def read_entries(*paths: str | os.PathLike[str]) -> tuple[Entry, ...]:
    """Return the entries of TOML files: one at the top of a file, or several as ``[[entry]]``.

    Parameters
    ----------
    paths
        The files. An entry has a ``name``, maybe ``authors`` and a ``link``, and the tables
        ``topology``, ``mixing``, ``algorithm`` and ``modules`` of a configuration.

    Raises
    ------
    OSError
        If a file cannot be read.
    ValueError
        If a file is not TOML, or has entries and other keys; if an entry has no name, or one whose
        results would have the same file as those of another; if it states what a task fixes, such
        as data, rounds, seeds or a learning rate; if its method pools the data.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp(), "mine.toml")
    >>> _ = path.write_text('name = "mine"')
    >>> [entry.name for entry in read_entries(path)]
    ['mine']
    """
    files = [check_path("paths", path, "file") for path in paths]
    found = tuple(_entry(one, path.parent) for path in files for one in _tables_of(path))
    known: dict[str, str] = {}
    for entry in found:
        if entry.file in known:
            raise ValueError(
                f"`name` must differ from those of other entries, got {entry.name!r} and "
                f"{known[entry.file]!r}, whose results would both be in {entry.file}.json"
            )
        known[entry.file] = entry.name
    return found


def _tables_of(path: Path) -> list[Mapping[str, Any]]:
    """Return the table of each entry of a file."""
    values = read(path)
    if "entry" not in values:
        return [values]
    if alone := [key for key in values if key != "entry"]:
        raise ValueError(
            f"{path} must have nothing outside of its entries, got `{alone[0]}`; move it into one"
        )
    several = values["entry"]
    if not isinstance(several, list) or not all(isinstance(one, Mapping) for one in several):
        raise ValueError(f"{path}: `entry` must be tables, each of which begins with [[entry]]")
    return several


def _entry(values: Mapping[str, Any], folder: Path) -> Entry:
    """Return an entry after checking it; modules are found in the folder of its file."""
    about = {name: values[name] for name in ABOUT if name in values}
    name = about.get("name")
    if not isinstance(name, str) or not Entry(name).file:
        raise ValueError(
            f"an entry must have a `name` with a letter from a to z or a digit, got {shown(name)}"
        )
    for key, value in about.items():
        if not isinstance(value, str):
            raise ValueError(f"{name}: `{key}` must be text, got {shown(value)}")
    if extra := [key for key in values if key not in (*FREE, *ABOUT)]:
        raise ValueError(
            f"{name}: an entry must have only {', '.join((*ABOUT, *FREE))}, got `{extra[0]}`"
            f"{did_you_mean(extra[0], (*ABOUT, *FREE))}; tasks fix the rest"
        )
    tables = {key: values[key] for key in FREE if key in values}
    _check_given(name, tables)
    return Entry(tables=with_modules(tables, folder / "entry.toml"), **about)


def _check_given(name: str, tables: Mapping[str, Any]) -> None:
    """Raise an error if an entry chooses what tasks give, or exchanges data."""
    for table in GIVEN.keys() & tables.keys():
        stated = as_table(table, tables[table])
        if given := [key for key in GIVEN[table] if key in stated]:
            raise ValueError(
                f"{name}: `{table}.{given[0]}` is given by the tasks, which have several seeds and "
                "learning rates; leave it out"
            )
        if table == "algorithm" and stated.get("name") == "centralized":
            raise ValueError(
                f"{name}: `algorithm` must leave data on the nodes, got centralized, which pools "
                "them; fedavg is the method of a server"
            )
