"""What determines the result of a run: its key, its data, and how it differs from another one."""

import contextlib
import hashlib
import inspect
import json
import os
import re
import resource
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from topofl import config, data
from topofl._support.calls import is_graph_file
from topofl._support.check import shown
from topofl._support.machine import machine, versions
from topofl._support.plugins import appended_folder, current_folder, load_function
from topofl._version import RESULTS, RESULTS_WITHOUT_ENTRY
from topofl.data import Dataset
from topofl.history import History
from topofl.runs.record import flat_settings

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
    contents of graph files and the source of modules that the tables name, on the versions of torch
    and numpy, and on the version of topofl since which runs have the same results, but not on the
    device and the number of threads, which change rounding only, nor on checkpoints and progress
    bars.

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

_ADDED = {"evaluation": {"without": []}, "compute": {"buffers": "average"}}
"""Options that runs of earlier versions lack; with these defaults, their keys stay the same."""


def determining(tables: Tables) -> dict[str, dict[str, Any]]:
    """Return the settings on which the results of a run depend, apart from rounding.

    Examples
    --------
    >>> determining({"data": {"name": "mnist", "root": "here"}, "saving": {"every": 5}})
    {'data': {'name': 'mnist'}}
    >>> determining({"evaluation": {"every": 5, "without": []}})
    {'evaluation': {'every': 5}}
    """
    others = ("saving", "modules")
    kept = {name: dict(table) for name, table in tables.items() if name not in others}
    compute = {k: value for k, value in kept.pop("compute", {}).items() if k not in _WHERE}
    kept |= {"compute": compute} if compute else {}
    kept.get("run", {}).pop("progress", None)
    for key in ("root", "cache"):
        kept.get("data", {}).pop(key, None)
    left_out = kept.get("evaluation", {}).get("without")
    if isinstance(left_out, str):
        kept["evaluation"]["without"] = [left_out]
    for name, added in _ADDED.items():
        for key, default in added.items():
            if name in kept and kept[name].get(key) == default:
                del kept[name][key]
    return kept


def hash_of(values: Any) -> str:
    """Return a hash of JSON values and of what else determines results: versions of packages.

    Of topofl, it is the version since which runs have the same results.

    Examples
    --------
    >>> hash_of({"lr": 0.1}) == hash_of({"lr": 0.1}), hash_of({"lr": 0.1}) == hash_of({"lr": 0.2})
    (True, False)
    """
    libraries = {name: version for name, version in versions().items() if name != "python"}
    libraries["topofl"] = RESULTS
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
    reader = getattr(data, name)
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
    rest = [dataset.train, dataset.val, dataset.test, dataset.owners, dataset.targets]
    rest += [] if dataset.triggered is None else [dataset.triggered]
    for array in rest if splits else ():
        digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()


class DatasetCache:
    """The datasets that a process has read, by name and arguments of their readers."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Dataset, str]] = {}

    def read(
        self,
        name: str,
        reader: Callable[..., Dataset],
        arguments: Mapping[str, Any],
        expected: str = "",
    ) -> Dataset:
        """Return the dataset of a reader, from memory if this process has read it before.

        Raises
        ------
        ValueError
            If its contents do not have the `expected` hash; empty: any.
        OSError, ValueError, TypeError
            As the reader.
        """
        key = (name, json.dumps(arguments, sort_keys=True, default=str))
        dataset, digest = self._known.get(key, (None, ""))
        if dataset is None or (expected and digest != expected):
            dataset = reader(**arguments)
            digest = digest_of(dataset)
            self._known[key] = dataset, digest
        if expected and digest != expected:
            raise ValueError(
                f"the dataset {name} must have the contents that the sweep was planned with, this "
                "process reads others; give every machine the same files, or start the sweep again"
            )
        return dataset

    def digest(self, dataset: Dataset) -> str:
        """Return the hash of a dataset, computed once for those that were read here."""
        known = (digest for one, digest in self._known.values() if one is dataset)
        return next(known, None) or digest_of(dataset)


@cache
def cache_of_process() -> DatasetCache:
    """Return the datasets of this process; ``cache_of_process.cache_clear()`` frees them."""
    return DatasetCache()


def reset_peak_memory() -> None:
    """Reset the peak memory of this process where the system supports it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_megabytes() -> float:
    """Return the peak memory in MiB since :func:`reset_peak_memory` or the process's start."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def note_of(history: History, seconds: float, digest: str = "") -> dict[str, Any]:
    """Return what a record says about the cost and the circumstances of a run.

    Parameters
    ----------
    history
        The history of the run.
    seconds
        Its time, without saving; of a run that was continued, that of its last part.
    digest
        The hash of its dataset; empty: not recorded.
    """
    return {
        "seconds": seconds,
        "megabytes": peak_memory_megabytes(),
        "environment": {
            "versions": versions(),
            "results": RESULTS,
            "device": history.meta["device"],
            "executor": history.meta["executor"],
            "machine": machine(),
            "threads": torch.get_num_threads(),
            "finished": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        },
        "asked": dict(history.meta["asked"]),
        **({"data": digest} if digest else {}),
    }


def asked_for(tables: Tables, record: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return tables in which choices of an earlier run are replaced by what it was asked for.

    ``config.toml`` of a finished run names the executor that the run chose. A run with this
    executor, or with ``"auto"``, is the same run.

    Examples
    --------
    >>> record = {"tables": {"compute": {"executor": "batched"}}, "asked": {"executor": "auto"}}
    >>> asked_for({"compute": {"executor": "batched"}}, record)
    {'compute': {'executor': 'auto'}}
    >>> asked_for({"compute": {"executor": "looped"}}, record)
    {'compute': {'executor': 'looped'}}
    """
    found = {name: dict(table) for name, table in tables.items()}
    own = found.get("compute", {})
    if record is not None:
        chosen = record.get("tables", {}).get("compute", {})
        for name, value in record.get("asked", {}).items():
            if name in own and own[name] in ("auto", chosen.get(name)):
                own[name] = value
    return found


def differences(record: Mapping[str, Any], tables: Tables, digest: str) -> list[str]:
    """Return what distinguishes the run of a record from another one; empty if it is the same.

    Parameters
    ----------
    record
        The contents of ``run.json``.
    tables
        The configuration of the other run, with all defaults, as JSON values.
    digest
        The hash of its dataset.

    Returns
    -------
    list of str
        Phrases such as ``"algorithm.lr was 0.5, is 0.1"``: settings, then data, then versions.
    """
    asked = asked_for(tables, record)
    if record["key"] == key_of(asked, digest):
        return []
    found = other_settings(record["tables"], asked, record.get("asked", {}))
    if record.get("data", digest) != digest:
        found.append("the contents of the data files are others")
    environment = record.get("environment", {})
    recorded = environment.get("versions", {})
    results = environment.get("results", RESULTS_WITHOUT_ENTRY)
    same = {"python", *(["topofl"] if results == RESULTS else [])}
    found += [
        f"the version of {name} was {recorded.get(name)}, is {now}"
        for name, now in versions().items()
        if name not in same and recorded.get(name) != now
    ]
    return found or [f"its key is {record['key']}, not {key_of(tables, digest)}"]


def other_settings(own: Tables, other: Tables, asked: Mapping[str, Any] | None = None) -> list[str]:
    """Return the settings in which two runs differ, among those that determine results.

    Parameters
    ----------
    own, other
        Their configurations.
    asked
        What the first was asked for where its configuration names what it chose; None: unknown, and
        executor and chunk are not compared.

    Examples
    --------
    >>> other_settings({"run": {"rounds": 3, "seed": 0}}, {"run": {"rounds": 5, "seed": 0}}, {})
    ['run.rounds was 3, is 5']
    """
    one, two = (
        # as a file has them: without those of None
        flat_settings(tomllib.loads(config.dumps(determining(tables))))
        for tables in (own, other)
    )
    for name in ("executor", "chunk"):  # what a run can be asked to choose
        if asked is None:
            one.pop(f"compute.{name}", None)
            two.pop(f"compute.{name}", None)
        elif name in asked:
            one[f"compute.{name}"] = asked[name]
    words = [{name: shown(value) for name, value in settings.items()} for settings in (one, two)]
    return [
        f"{name} was {words[0].get(name, 'none')}, is {words[1].get(name, 'none')}"
        for name in sorted({*one, *two})
        if json.dumps(one.get(name)) != json.dumps(two.get(name))
    ]
