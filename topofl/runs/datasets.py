"""Datasets that are read once per process and checked to be those of the sweep."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from topofl.data import Dataset
from topofl.runs.run import digest_of

__all__ = ["DatasetCache", "cache_of_process"]

_Key = tuple[str, str]


@dataclass(frozen=True, eq=False)
class DatasetCache:
    """The datasets that a process has read, by name and arguments of their readers.

    Parameters
    ----------
    expected
        Hash of the contents that a dataset must have; empty: any.
    """

    expected: str = ""
    _known: dict[_Key, tuple[Dataset, str]] = field(default_factory=dict)

    def read(
        self, name: str, reader: Callable[..., Dataset], arguments: Mapping[str, Any]
    ) -> Dataset:
        """Return the dataset of a reader, from memory if this process has read it before.

        Raises
        ------
        ValueError
            If its contents are not those that are expected.
        OSError, ValueError, TypeError
            As the reader.
        """
        key = (name, json.dumps(arguments, sort_keys=True, default=str))
        dataset, digest = self._known.get(key, (None, ""))
        if dataset is None or (self.expected and digest != self.expected):
            dataset = reader(**arguments)
            digest = digest_of(dataset)
            self._known[key] = dataset, digest
        if self.expected and digest != self.expected:
            raise ValueError(
                f"the dataset {name} must have the contents that the sweep was planned with, this "
                "process reads others; give every machine the same files, or start the sweep again"
            )
        return dataset

    def digest(self, dataset: Dataset) -> str:
        """Return the hash of a dataset, computed once for those that were read here."""
        known = (digest for one, digest in self._known.values() if one is dataset)
        return next(known, None) or digest_of(dataset)

    def expecting(self, digest: str) -> "DatasetCache":
        """Return a view of these datasets that refuses other contents."""
        return replace(self, expected=digest)


@cache
def cache_of_process() -> DatasetCache:
    """Return the datasets of this process; ``cache_of_process.cache_clear()`` frees them."""
    return DatasetCache()
