"""A training run, identified by a hash of everything that determines its result."""

import hashlib
import inspect
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

import topofl

__all__ = ["Run", "content", "with_options"]


Tables = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Run:
    """One training run.

    Parameters
    ----------
    tables
        Configuration tables of :mod:`topofl.config`, with every seed.
    """

    tables: Tables

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.tables["run"]["seed"]

    @cached_property
    def key(self) -> str:
        """Hash of everything that determines the run's result, 16 hexadecimal digits.

        It depends on the tables, on the contents of the data files (not on their location), and on
        the versions of topofl, torch and numpy, but not on the device and the number of threads,
        which change rounding only. The cached key is sent to other processes with the run, so that
        they do not read the data for it.

        Raises
        ------
        FileNotFoundError, ValueError
            If data files are missing, damaged or not the original ones.
        """
        tables = {name: dict(table) for name, table in self.tables.items()}
        compute = {
            name: value for name, value in tables.pop("compute", {}).items() if name != "device"
        }
        tables |= {"compute": compute} if compute else {}
        root = tables["data"].pop("root", None)
        source = {key: tables["data"].get(key) for key in ("name", "verify")}
        tables["data"]["content"] = content(
            source["name"], None if root is None else os.fspath(root), source["verify"]
        )
        libraries = {library.__name__: library.__version__ for library in (topofl, torch, np)}
        text = json.dumps([tables, libraries], sort_keys=True)
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
    """Return a hash of a dataset's labels, inputs and normalization."""
    reader = getattr(topofl.data, name)
    known = inspect.signature(reader).parameters
    given = {"root": root, "verify": verify, "val": 0 if "val" in known else None}
    dataset = reader(
        **{key: value for key, value in given.items() if value is not None and key in known}
    )
    digest = hashlib.sha256(dataset.labels.numpy().tobytes())
    digest.update(repr((dataset.inputs.dtype, dataset.mean, dataset.std)).encode())
    digest.update(np.ascontiguousarray(dataset.inputs.numpy()).data)
    return digest.hexdigest()
