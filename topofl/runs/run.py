"""A training run, identified by a hash of everything that determines its result."""

import hashlib
import inspect
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import topofl
from topofl._support.module_folders import appended_folder, current_folder
from topofl._support.plugins import load_function
from topofl._support.suffixes import is_graph_file
from topofl.data import Dataset

__all__ = ["Run", "content", "determining", "digest_of", "hash_of", "key_of", "with_options"]


Tables = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Run:
    """One training run.

    Parameters
    ----------
    tables
        Configuration tables of :mod:`topofl.config`, with every seed.

    Examples
    --------
    >>> tables = {"data": {"name": "digits"}, "run": {"rounds": 3, "seed": 0}}
    >>> Run(tables).seed, len(Run(tables).key)
    (0, 16)
    """

    tables: Tables

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.tables["run"]["seed"]

    @cached_property
    def key(self) -> str:
        """Hash of everything that determines the run's result; see :func:`key_of`.

        The cached key is sent to other processes with the run, so that they do not read the data
        for it.

        Raises
        ------
        FileNotFoundError, ValueError
            If data files are missing, damaged or not the original ones.
        """
        root = self.tables["data"].get("root")
        name, verify = (self.tables["data"].get(key) for key in ("name", "verify"))
        return key_of(self.tables, content(name, None if root is None else os.fspath(root), verify))


def key_of(tables: Tables, digest: str) -> str:
    """Return the hash of everything that determines a run's result, 16 hexadecimal digits.

    It depends on the tables, on the contents of the data files (not on their location), on the
    contents of graph files and the source of modules that the tables name, and on the versions of
    topofl, torch and numpy, but not on the device and the number of threads, which
    change rounding only, nor on checkpoints and progress bars.

    Parameters
    ----------
    tables
        Configuration tables, with every seed.
    digest
        The hash of the dataset; see :func:`digest_of`.

    Examples
    --------
    >>> tables = {"data": {"name": "mnist", "root": "here"}, "run": {"rounds": 3}}
    >>> elsewhere = {"data": {"name": "mnist", "root": "there"}, "run": {"rounds": 3}}
    >>> key_of(tables, "0") == key_of(elsewhere, "0"), key_of(tables, "0") == key_of(tables, "1")
    (True, False)
    """
    kept = determining(tables)
    for key in ("path", "dataset"):  # the hash stands for the file, wherever it is
        kept["data"].pop(key, None)
    kept["data"]["content"] = digest
    with appended_folder(tables.get("modules", {}).get("folder")):
        named = {name: table for name, table in kept.items() if name != "compute"}
        files = contents_of(named)  # a Compute, part of which records may choose, names no files
    if files:
        kept["files"] = files
    return hash_of(kept)


def contents_of(tables: Any) -> dict[str, str]:
    """Return the hashes of graph files and of modules of custom functions that tables name.

    Examples
    --------
    >>> sorted(contents_of({"model": {"name": "textwrap:fill"}, "topology": {"name": "ring"}}))
    ['textwrap:fill']
    """
    if isinstance(tables, Mapping):
        tables = tables.values()
    found: dict[str, str] = {}
    for value in tables:
        if isinstance(value, str) and (path := _file_named(value)) is not None:
            found[value] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif isinstance(value, Mapping | list | tuple):
            found |= contents_of(value)
    return found


def _file_named(text: str) -> Path | None:
    """Return the file that a setting refers to: a graph, or the module of ``module:function``."""
    if is_graph_file(text):
        path = Path(text)
    elif re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text):
        with current_folder():
            source = inspect.getsourcefile(inspect.unwrap(load_function(text)))
        path = Path(source or "")
    else:
        return None
    return path if path.is_file() else None


_WHERE = ("device", "scratch", "distributed", "placement", "rank_timeout")
"""Options of a Compute that say where a run is computed."""


def determining(tables: Tables) -> dict[str, dict[str, Any]]:
    """Return the settings on which the results of a run depend, apart from rounding.

    Examples
    --------
    >>> determining({"data": {"name": "mnist", "root": "here"}, "saving": {"every": 5}})
    {'data': {'name': 'mnist'}}
    """
    others = ("saving", "modules")
    kept = {name: dict(table) for name, table in tables.items() if name not in others}
    compute = {k: value for k, value in kept.pop("compute", {}).items() if k not in _WHERE}
    kept |= {"compute": compute} if compute else {}
    kept.get("run", {}).pop("progress", None)
    for key in ("root", "cache"):
        kept.get("data", {}).pop(key, None)
    return kept


def hash_of(values: Any) -> str:
    """Return a hash of JSON values and of the versions of topofl, torch and numpy.

    Examples
    --------
    >>> hash_of({"lr": 0.1}) == hash_of({"lr": 0.1}), hash_of({"lr": 0.1}) == hash_of({"lr": 0.2})
    (True, False)
    """
    libraries = {library.__name__: library.__version__ for library in (topofl, torch, np)}
    text = json.dumps([values, libraries], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def with_options(tables: Tables, options: Tables) -> dict[str, dict[str, Any]]:
    """Return configuration tables updated with the keys of other tables.

    Examples
    --------
    >>> with_options({"run": {"rounds": 3}}, {"run": {"seed": 0}, "model": {"name": "gn_lenet"}})
    {'run': {'rounds': 3, 'seed': 0}, 'model': {'name': 'gn_lenet'}}
    """
    return {
        name: {**tables.get(name, {}), **options.get(name, {})} for name in {**tables, **options}
    }


@lru_cache(maxsize=16)
def content(name: str, root: str | None, verify: bool | None = None) -> str:
    """Return a hash of a dataset of :mod:`topofl.data`, read from the folder `root`.

    Examples
    --------
    >>> len(content("digits", None))
    64
    """
    reader = getattr(topofl.data, name)
    known = inspect.signature(reader).parameters
    given = {"root": root, "verify": verify, "val": 0 if "val" in known else None}
    given = {key: value for key, value in given.items() if value is not None and key in known}
    return digest_of(reader(**given), splits=False)


def digest_of(dataset: Dataset, *, splits: bool = True) -> str:
    """Return a hash of a dataset's labels, inputs, normalization and, with `splits`, the rest.

    Examples
    --------
    >>> from topofl import data
    >>> digest_of(data.digits()) == digest_of(data.digits(enlarge=2))
    False
    """
    digest = hashlib.sha256(dataset.labels.numpy().tobytes())
    digest.update(repr((dataset.inputs.dtype, dataset.mean, dataset.std)).encode())
    digest.update(np.ascontiguousarray(dataset.inputs.numpy()).data)
    if splits:
        digest.update(repr((tuple(dataset.inputs.shape), dataset.n_classes)).encode())
    rest = (dataset.train, dataset.val, dataset.test, dataset.owners, dataset.targets)
    for array in rest if splits else ():
        digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()
