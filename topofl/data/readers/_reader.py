"""Registry of dataset readers, for listings, specs, TOML files and tests."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from topofl._support.check import check_path
from topofl._support.datasets import dataset_root, default_root
from topofl._support.public import public
from topofl.data.dataset import Dataset

__all__ = ["READERS", "reader"]

P = ParamSpec("P")

READERS: dict[str, Callable[..., Dataset]] = {}
"""All readers by name, in the import order of :mod:`topofl.data`."""


def reader(function: Callable[P, Dataset]) -> Callable[P, Dataset]:
    """Register a public function that returns a Dataset in ``READERS``, and return it.

    Specs, TOML files, ``topofl list dataset`` and the tests of bad paths and random calls find
    readers in this registry. A reader whose first parameter is `root` reads files in or below that
    folder; it receives the folder that :func:`~topofl._support.datasets.dataset_root` finds for
    `root`, which is $TOPOFL_DATA if it is None.
    """
    if next(iter(inspect.signature(function).parameters), "") == "root":
        function = _finding(function)
    function = public(function)
    READERS[function.__name__] = function
    return function


def _finding(function: Callable[P, Dataset]) -> Callable[P, Dataset]:
    """Return a reader that is called with the folder in or below `root` that has the files."""
    takes = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Dataset:
        takes.bind(*args, **kwargs)  # unknown arguments are refused before files are looked for
        given, *rest = args or [kwargs.pop("root", None)]
        return function(_found(given, function.__name__), *rest, **kwargs)  # type: ignore[call-arg]

    return call


def _found(root: Any, dataset: str) -> Any:
    root = default_root() if root is None else check_path("root", root)
    if root is None:
        raise ValueError(
            "`root` must be given unless the environment variable TOPOFL_DATA names a folder of "
            f"datasets, got neither; write data.{dataset}(folder), or set TOPOFL_DATA"
        )
    return dataset_root(root, dataset)
