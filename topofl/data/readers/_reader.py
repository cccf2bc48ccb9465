"""Registry of dataset readers, for listings, specs, TOML files and tests."""

from collections.abc import Callable
from typing import ParamSpec

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
    folder.
    """
    function = public(function)
    READERS[function.__name__] = function
    return function
