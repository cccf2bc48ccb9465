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

from topofl._support.check import check_path, shown
from topofl._support.datasets import MARKERS
from topofl._support.text import did_you_mean
from topofl.config.toml import as_table, read, with_modules

__all__ = ["Entry", "Task", "read_entries", "tasks"]

FREE = ("topology", "mixing", "algorithm", "modules")
"""Tables of a configuration that an entry may have."""

ABOUT = ("name", "authors", "link")
"""What an entry says about itself."""

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
        Models sent per node and round, at most, for which there is a table each.

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

    @property
    def digest(self) -> str:
        """Twelve digits that change with anything but the title and the text."""
        parts = {k: v for k, v in vars(self).items() if k not in ("title", "about")}
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
    ValueError
        If there is no task of a name.

    Examples
    --------
    >>> [task.key for task in tasks()]
    ['digits-dirichlet', 'digits-mlp', 'digits-shards', 'mnist-shards']
    >>> [task.key for task in tasks() if task.needs_files]
    ['mnist-shards']
    """
    folder = files("topofl.leaderboard").joinpath("tasks")
    found = sorted((one for one in folder.iterdir() if one.name.endswith(".toml")), key=str)
    known = {one.name.removesuffix(".toml"): one for one in found}
    for name in names or ():
        if name not in known:
            raise ValueError(
                f"`tasks` must be of {', '.join(known)}, got {shown(name)}"
                f"{did_you_mean(name, known)}"
            )
    return tuple(_task(key, known[key].read_text(encoding="utf-8")) for key in names or known)


def _task(key: str, text: str) -> Task:
    values = tomllib.loads(text)
    alone = ("title", "about", "version", "batch_size")
    several = ("rates", "tuning_seeds", "seeds", "budgets")
    own: dict[str, Any] = {name: values.pop(name) for name in alone}
    own |= {name: tuple(values.pop(name)) for name in several}
    return Task(key, tables=values, **own)


def read_entries(path: str | os.PathLike[str]) -> tuple[Entry, ...]:
    """Return the entries of a TOML file: one at its top, or several as ``[[entry]]``.

    Parameters
    ----------
    path
        The file. An entry has a ``name``, maybe ``authors`` and a ``link``, and the tables
        ``topology``, ``mixing``, ``algorithm`` and ``modules`` of a configuration.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is not TOML; if an entry has no name, or one that another has; if it states what a
        task fixes, such as data, rounds, seeds or a learning rate; if its method pools the data.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp(), "mine.toml")
    >>> _ = path.write_text('name = "mine"')
    >>> [entry.name for entry in read_entries(path)]
    ['mine']
    """
    path = check_path("path", path)
    values = read(path)
    several = values.get("entry", [values])
    found = tuple(_entry(one, path.parent) for one in several)
    names = [entry.file for entry in found]
    for entry in found:
        if names.count(entry.file) > 1:
            raise ValueError(f"`name` must differ from those of other entries, got {entry.name!r}")
    return found


def _entry(values: Mapping[str, Any], folder: Path) -> Entry:
    """Return an entry after checking it; modules are found in the folder of its file."""
    about = {name: values[name] for name in ABOUT if name in values}
    if not isinstance(about.get("name"), str) or not Entry(about["name"]).file:
        raise ValueError(
            f"an entry must have a `name` of letters or digits, got {shown(about.get('name'))}"
        )
    name = about["name"]
    if extra := [key for key in values if key not in (*FREE, *ABOUT)]:
        raise ValueError(
            f"{name}: `{extra[0]}` is fixed by the tasks; an entry has {', '.join(FREE)} and "
            f"{', '.join(ABOUT)} only"
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
