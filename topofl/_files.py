"""Files: which ones may be opened, and how one takes the place of another without a moment at which neither exists."""

import ctypes
import os
import shutil
import stat
import sys
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["aside", "check_regular", "read_file", "replace_folder", "sync_file", "sync_folder"]

_RENAME_EXCHANGE = 2
_HERE = -100
"""``AT_FDCWD`` of Linux: paths are relative to the current folder."""


def aside(place: Path) -> Path:
    """Return where the folder that has the name `place` lies for the moment in which another one takes the name."""
    place = place.resolve()
    return place.parent / f".{place.name}.older"


def replace_folder(complete: Path, place: Path) -> None:
    """Give the folder `complete` the name `place`, and remove the folder that had it.

    Where the system can exchange two names at once (Linux), one of both folders has the name at every moment. Elsewhere
    there is a moment between two renames, in which the older folder is found at :func:`aside`; the next call makes good
    for one that was killed there.

    Parameters
    ----------
    complete
        A folder on the file system of `place`.
    place
        A folder, or nothing.

    Raises
    ------
    OSError
        If the names cannot be changed; then `place` is as it was.
    """
    older = aside(place)
    if place.exists() and _exchange(complete, place):
        shutil.rmtree(complete, ignore_errors=True)
    elif place.exists():
        shutil.rmtree(older, ignore_errors=True)  # of a call that was killed before it had removed this
        _replace_by_renaming(complete, place, older)
    else:
        os.rename(complete, place)
    sync_folder(place.parent)
    shutil.rmtree(older, ignore_errors=True)


def _replace_by_renaming(complete: Path, place: Path, older: Path) -> None:
    os.rename(place, older)
    try:
        os.rename(complete, place)
    except OSError:
        os.rename(older, place)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders at once; return False where the system or the file system cannot."""
    function = _renameat2()
    return function is not None and not function(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _RENAME_EXCHANGE)


@cache
def _renameat2() -> Any:
    """Return the function of the C library, None where there is none."""
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None), "renameat2", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        function.restype = ctypes.c_int
    return function


def sync_file(path: Path) -> None:
    """Let the contents of a file survive a loss of power."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Let the names in a folder survive a loss of power."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


_KINDS_OF_FILES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: Path, name: str = "root") -> os.stat_result:
    """Return the status of a regular file, to which `path` may be a link, or raise without opening it.

    A pipe would never end, and opening a device may act on it. `name` is the argument that named the file or, where it
    is ``"root"``, its folder.

    Raises
    ------
    OSError
        If there is no such file, or it cannot be reached.
    ValueError
        If it is a folder, a named pipe, a socket or a device.
    """
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):
        kind = _KINDS_OF_FILES.get(stat.S_IFMT(about.st_mode), "something else")
        wanted, remedy = (
            ("hold regular files", "remove it") if name == "root" else ("be a regular file", "name another")
        )
        raise ValueError(f"`{name}` must {wanted}, got {path}, which is {kind}; {remedy}")
    return about


def read_file(path: Path, name: str = "root", *, largest: int | None = None) -> bytes:
    """Return the content of a regular file of at most `largest` bytes, or raise as :func:`check_regular`.

    Raises
    ------
    OSError
        If it cannot be read; the message names `name` and the file.
    ValueError
        If it is not a regular file, or larger; it is not opened then.
    """
    try:
        size = check_regular(path, name).st_size
        if largest is not None and size > largest:
            raise ValueError(f"`{name}` must hold files of at most {largest:,} bytes, got {size:,} bytes in {path}")
        return path.read_bytes()
    except MemoryError as error:
        raise ValueError(f"`{name}` must hold files that fit into memory, got {path}, which does not") from error
    except OSError as error:
        raise OSError(f"`{name}` must hold files that can be read, {path} cannot: {error}") from error
