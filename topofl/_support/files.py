"""Files: safe opening, and atomic replacement of files and folders."""

import ctypes
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

__all__ = [
    "aside",
    "check_regular",
    "holds_only",
    "new_sibling",
    "read_file",
    "remove_if_ours",
    "remove_new_siblings",
    "replace_folder",
    "sync_file",
    "sync_folder",
]

_RENAME_EXCHANGE = 2
_HERE = -100
"""``AT_FDCWD`` of Linux: paths are relative to the current folder."""


_LONGEST = 200
"""Bytes of a name that others are derived from; a name may have 255."""


def aside(place: Path) -> Path:
    """Return where the older folder is kept while a new one takes the name `place`."""
    place = place.resolve()
    return place.parent / f"{_stem(place)}.topofl-older"


def new_sibling(place: Path) -> Path:
    """Make and return an empty folder for new contents that will replace `place`."""
    return Path(tempfile.mkdtemp(prefix=f"{_stem(place)}.topofl-new-", dir=place.parent))


def _stem(place: Path) -> str:
    name = os.fsencode(place.name)
    return f".{place.name if len(name) <= _LONGEST else hashlib.sha256(name).hexdigest()[:16]}"


def holds_only(folder: Path, ours: re.Pattern[str]) -> bool:
    """Return whether a folder, itself no link, holds only names that topofl gives, and no links.

    Parameters
    ----------
    folder
        It may be missing; then it is not.
    ours
        Matches the paths in the folder of what we write, with slashes, such as
        ``"checkpoints/state-00000001.pt"``.
    """
    if folder.is_symlink() or not folder.is_dir():
        return False
    found = [
        Path(where, name)
        for where, folders, files in os.walk(folder)
        for name in (*folders, *files)
    ]
    return all(
        ours.fullmatch(path.relative_to(folder).as_posix()) and not path.is_symlink()
        for path in found
    )


def remove_if_ours(folder: Path, ours: re.Pattern[str]) -> bool:
    """Remove a folder if it :func:`holds_only` what topofl writes; return whether it is gone.

    Raises
    ------
    OSError
        If it cannot be removed.
    """
    if holds_only(folder, ours):
        shutil.rmtree(folder)
    return not os.path.lexists(folder)


def remove_new_siblings(place: Path, ours: re.Pattern[str]) -> None:
    """Remove folders of :func:`new_beside` that killed processes left behind.

    Parameters
    ----------
    place
        As there.
    ours
        As of :func:`holds_only`; a folder with anything else stays.
    """
    start = f"{_stem(place)}.topofl-new-"
    there = place.parent.iterdir() if place.parent.is_dir() else ()
    for folder in [path for path in there if path.name.startswith(start)]:
        remove_if_ours(folder, ours)


def replace_folder(complete: Path, place: Path, ours: re.Pattern[str]) -> None:
    """Give the folder `complete` the name `place`, and remove the folder that had it.

    Where the system can exchange two names at once (Linux), one of both folders has the name at
    every moment. Elsewhere there is a moment between two renames, in which the older folder is
    found at :func:`aside`; the next call cleans up after one that was killed in between.

    Parameters
    ----------
    complete
        A folder on the file system of `place`.
    place
        A folder, whose contents are removed, whatever they are; or nothing.
    ours
        What a folder at :func:`aside` may hold to be removed, as of :func:`holds_only`.

    Raises
    ------
    FileExistsError
        If something that is not ours is in the way at :func:`aside`; then `place` is as it was.
    OSError
        If the names cannot be changed; then `place` is as it was.
    """
    older = aside(place)
    if place.exists() and _exchange(complete, place):
        shutil.rmtree(complete)
    elif place.exists():
        if not remove_if_ours(
            older, ours
        ):  # else of a call that was killed before it had removed this
            raise FileExistsError(
                f"`path` cannot be replaced: {older} is needed for a moment, and holds what topofl "
                "did not write; move that elsewhere"
            )
        _replace_by_renaming(complete, place, older)
        shutil.rmtree(older)
    else:
        os.rename(complete, place)
    sync_folder(place.parent)
    remove_if_ours(older, ours)


def _replace_by_renaming(complete: Path, place: Path, older: Path) -> None:
    os.rename(place, older)
    try:
        os.rename(complete, place)
    except OSError:
        os.rename(older, place)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders atomically; return False where this is not supported."""
    function = _renameat2()
    return function is not None and not function(
        _HERE, os.fsencode(one), _HERE, os.fsencode(other), _RENAME_EXCHANGE
    )


@cache
def _renameat2() -> Any:
    """Return the function of the C library, None where there is none."""
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None), "renameat2", None)
    if function is not None:
        function.argtypes = (
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_uint,
        )
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
    """Return the status of a regular file, links followed, or raise without opening it.

    A pipe would never end, and opening a device may act on it. `name` is the argument that named
    the file or, where it is ``"root"``, its folder.

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
            ("hold regular files", "remove it")
            if name == "root"
            else ("be a regular file", "name another")
        )
        raise ValueError(f"`{name}` must {wanted}, got {path}, which is {kind}; {remedy}")
    return about


def read_file(path: Path, name: str = "root", *, largest: int | None = None) -> bytes:
    """Return the content of a regular file of at most `largest` bytes, or raise.

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
            raise ValueError(
                f"`{name}` must hold files of at most {largest:,} bytes, got {size:,} bytes in "
                f"{path}"
            )
        return path.read_bytes()
    except MemoryError as error:
        raise ValueError(
            f"`{name}` must hold files that fit into memory, got {path}, which does not"
        ) from error
    except OSError as error:
        raise OSError(
            f"`{name}` must hold files that can be read, {path} cannot: {error}"
        ) from error
