"""Folders in which users' modules are found: the current one, and that of an experiment's file."""

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["appended_folder", "check_folder", "check_origin", "current_folder", "searched"]


@contextmanager
def appended_folder(folder: str | None) -> Iterator[None]:
    """Append a folder to ``sys.path`` in this context, after all others; None: nothing is done.

    A module in it hence never takes the place of an installed one. Only the folder that
    :func:`current_folder` appended stays behind it, since a module next to the file of an
    experiment takes precedence over one in the folder where a command happens to be started.
    """
    if folder is None or folder in sys.path:
        yield
        return
    is_current_last = sys.path[-1:] == [_current()]
    sys.path.insert(len(sys.path) - is_current_last, folder)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(folder)


@contextmanager
def current_folder() -> Iterator[None]:
    """Append the current folder to ``sys.path`` in this context, to find the user's modules."""
    with appended_folder(None if "" in sys.path else _current()):
        yield


def _current() -> str:
    """Return the current folder, or an empty string if it was removed meanwhile."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


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


def check_folder(folder: str) -> None:
    """Raise ``ValueError`` if a module in a folder of ``sys.path`` is hidden by an imported one.

    That happens if two experiments in one process have files of the same name in their folders,
    even where only their modules import these.
    """
    place = Path(folder)
    names = {path.stem for path in place.glob("*.py")}
    names |= {path.parent.name for path in place.glob("*/__init__.py")}
    for name in sorted(names & sys.modules.keys()):
        check_origin(name)


def check_origin(name: str) -> None:
    """Raise ``ValueError`` if Python would now find an imported module in another file.

    The packages that hold the module are checked in the same way.
    """
    path = None
    words = name.split(".")
    for full in (".".join(words[:length]) for length in range(1, len(words) + 1)):
        module = sys.modules.get(full)
        if module is None:
            return
        spec = PathFinder.find_spec(full, path)
        _check_same_file(full, getattr(module, "__file__", None), spec and spec.origin)
        path = getattr(module, "__path__", None)


def _check_same_file(name: str, loaded: str | None, found: str | None) -> None:
    """Raise ``ValueError`` if a module was imported from another file than is now found."""
    if not (loaded and found) or os.path.realpath(loaded) == os.path.realpath(found):
        return
    if os.path.exists(loaded) and os.path.exists(found):
        raise ValueError(
            f"module {name} must be one file in a process, got {loaded}, which is imported, and "
            f"{found}; rename one of them"
        )
