"""Docstrings of public functions and classes have examples, which pytest runs as doctests."""

import importlib
import inspect
import pkgutil

import pytest

import topofl
from topofl import algorithms

MODULES = [
    topofl,
    *(
        importlib.import_module(f"topofl.{found.name}")
        for found in pkgutil.iter_modules(topofl.__path__)
        if not found.name.startswith("_")
    ),
]
"""The package and its public modules."""

NAMES = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in getattr(module, "__all__", ())
} | {
    # Its `__all__` lists methods only, but their parts are public, too.
    f"{algorithms.__name__}.{name}": value
    for name, value in vars(algorithms).items()
    if not name.startswith("_")
}

DOCUMENTED = sorted(
    name
    for name, value in NAMES.items()
    if inspect.isclass(value) or inspect.isfunction(value)  # not constants and aliases of types
)


def test_public_names_are_found():
    assert {"topofl.run", "topofl.data.mnist", "topofl.algorithms.Round"} <= set(DOCUMENTED)
    assert len(DOCUMENTED) > 200


@pytest.mark.parametrize("name", DOCUMENTED)
def test_has_an_example(name):
    assert "\n>>> " in inspect.getdoc(NAMES[name]), f"add an Examples section to {name}"
