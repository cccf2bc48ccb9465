"""Folders in which users' modules are found: the current one, and that of an experiment's file."""

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

__all__ = ["appended_folder", "check_origin", "current_folder", "searched"]


@contextmanager
def appended_folder(folder: str | None) -> Iterator[None]:
    """Append a folder to ``sys.path`` in this context, after all others; None: nothing is done.

    A module in it hence never takes the place of an installed one.
    """
    if folder is None or folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(folder)


@contextmanager
def current_folder() -> Iterator[None]:
    """Append the current folder to ``sys.path`` in this context, to find the user's modules."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was removed meanwhile
        here = ""
    with appended_folder(None if "" in sys.path else here):
        yield


def searched() -> str:
    """Return the folders of ``sys.path`` as text, without those of Python and of packages."""
    installed = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
    own = []
    for folder in sys.path:
        path = Path(folder or os.curdir).absolute()
        real = Path(os.path.realpath(path))
        is_library = {str(real), *map(str, real.parents)} & installed
        if not (is_library or path.suffix == ".zip" or real.name == "site-packages"):
            own.append(str(path) if path.is_dir() else f"{path} (which does not exist)")
    return ", ".join([*dict.fromkeys(own), "installed packages"])


def check_origin(name: str, module: ModuleType) -> None:
    """Raise ``ValueError`` if Python would now find a module in another file than it was imported.

    That happens if two experiments in one process have modules of the same name in their folders.
    """
    spec = PathFinder.find_spec(name) if "." not in name else None
    loaded, found = getattr(module, "__file__", None), None if spec is None else spec.origin
    if not (loaded and found) or os.path.realpath(loaded) == os.path.realpath(found):
        return
    if os.path.exists(loaded) and os.path.exists(found):
        raise ValueError(
            f"module {name} must be one file in a process, got {loaded}, which is imported, and "
            f"{found}; rename one of them"
        )
