"""Folders in which users' modules are found: the current one, and that of an experiment's file.

A stored run may have been written by somebody else, and names in it may refer to any function. In
the context :func:`installed_only`, nothing is imported but topofl and installed packages.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = [
    "UntrustedError",
    "appended_folder",
    "check_folder",
    "check_origin",
    "check_trusted",
    "current_folder",
    "installed_only",
    "searched",
]

_REMEDY: ContextVar[str | None] = ContextVar("remedy", default=None)
"""In the context :func:`installed_only`, how to allow other imports; None outside of it."""


class UntrustedError(ValueError):
    """A stored run names a function of a module, which only ``--trust`` imports."""


@contextmanager
def installed_only(remedy: str) -> Iterator[None]:
    """Import only topofl and installed packages in this context, no modules named ``m:f``.

    The current folder and those of experiments are not searched, since files in them that look
    like an installed package could offer names, too.

    Parameters
    ----------
    remedy
        End of the error message: what to do to import others.
    """
    path, token = list(sys.path), _REMEDY.set(remedy)
    here = os.path.realpath(os.curdir)
    first, *others = sys.path
    by_python = [] if first == "" or os.path.realpath(first) == here else [first]  # of python -m
    is_appended = others[-1:] == [_current()]
    sys.path[:] = [*by_python, *others[: len(others) - is_appended]]
    try:
        yield
    finally:
        _REMEDY.reset(token)
        sys.path[:] = path


def check_trusted(target: str) -> None:
    """Raise ``UntrustedError`` in the context :func:`installed_only`.

    Parameters
    ----------
    target
        The function that would be imported, for the message.
    """
    if (remedy := _REMEDY.get()) is not None:
        raise UntrustedError(
            f"the run names the function {target}, and importing it would execute code that the "
            f"author of the folder chose; {remedy}"
        )


@contextmanager
def appended_folder(folder: str | None) -> Iterator[None]:
    """Append a folder to ``sys.path`` in this context, after all others; None: nothing is done.

    Neither is anything done in the context :func:`installed_only`.

    A module in it hence never takes the place of an installed one. Only the folder that
    :func:`current_folder` appended stays behind it, since a module next to the file of an
    experiment takes precedence over one in the folder where a command happens to be started.
    """
    if folder is None or folder in sys.path or _REMEDY.get() is not None:
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
