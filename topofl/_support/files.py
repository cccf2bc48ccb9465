"""Safe opening of files, atomic replacement of folders, and errors of disks."""

import ctypes
import errno
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

from topofl._support.processes import from_name, identity, is_dead, name_of

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of errors of a full disk, or of one on which the user may not write more."""

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
"""``AT_FDCWD`` of Linux: paths are relative to the current folder."""


_STEM_LIMIT = 200
"""Longest name, in bytes, from which other names are derived; file systems allow 255 bytes."""

_OWNER_LIMIT = 190
"""Longest identity of a process, in bytes, in the name of a staging folder."""


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors of the system about a file that was opened before, as on a full disk, name it.

    Examples
    --------
    >>> with naming("a.txt"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: 'a.txt'
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


def backup_path(place: Path) -> Path:
    """Return the temporary path of the old folder while a new one replaces it at `place`."""
    place = place.resolve()
    return place.parent / f"{_stem(place)}.topofl-older"


def make_staging_folder(place: Path) -> Path:
    """Create and return an empty folder next to `place`, for contents that will replace it.

    Its name has the identity of this process, so that others remove it if this one is killed.
    """
    owner = f"{name_of(identity())}+"
    if len(owner) > _OWNER_LIMIT:  # a host name with many special characters
        owner = ""
    return Path(tempfile.mkdtemp(prefix=f"{_staging_start(place)}{owner}", dir=place.parent))


def _staging_start(place: Path, limit: int = 40) -> str:
    """Return how the names of staging folders begin; older versions had the limit 200."""
    return f"{_stem(place, limit)}.topofl-new-"


def _stem(place: Path, limit: int = _STEM_LIMIT) -> str:
    name = os.fsencode(place.name)
    return f".{place.name if len(name) <= limit else hashlib.sha256(name).hexdigest()[:16]}"


def holds_only(folder: Path, ours: re.Pattern[str]) -> bool:
    """Return whether a folder holds only files and folders that topofl writes, and no links.

    Parameters
    ----------
    folder
        Path of the folder; the result is False if it is missing or a link.
    ours
        Pattern of the paths that topofl writes, relative to the folder and with slashes, for
        example ``"checkpoints/round-00000001/marker.json"``.
    """
    if folder.is_symlink() or not folder.is_dir():
        return False
    return all(
        ours.fullmatch(path.relative_to(folder).as_posix()) and not path.is_symlink()
        for path in folder.rglob("*")
    )


def remove_if_ours(folder: Path, ours: re.Pattern[str]) -> bool:
    """Remove a folder that :func:`holds_only` files of topofl; return whether `folder` is gone.

    Raises
    ------
    OSError
        If it cannot be removed.
    """
    if holds_only(folder, ours):
        shutil.rmtree(folder)
    return not os.path.lexists(folder)


def remove_staging_folders(
    place: Path, ours: re.Pattern[str], *, of_the_dead: bool = False
) -> None:
    """Remove folders of :func:`make_staging_folder` that killed processes left behind.

    Parameters
    ----------
    place
        As in :func:`make_staging_folder`.
    ours
        As in :func:`holds_only`; a folder with any other file is not removed.
    of_the_dead
        Remove only folders of processes that are known to be dead; leave those that cannot be
        removed. False: remove all folders, also those without a process, as older versions made
        them; the caller knows that nobody is saving.
    """
    with suppress(OSError) if of_the_dead else nullcontext():
        names = os.listdir(place.parent) if place.parent.is_dir() else []
        for start in {_staging_start(place), _staging_start(place, _STEM_LIMIT)}:
            for name in [name for name in names if name.startswith(start)]:
                if not of_the_dead or is_dead(from_name(name.removeprefix(start))):
                    remove_if_ours(place.parent / name, ours)


def replace_folder(complete: Path, place: Path, ours: re.Pattern[str]) -> None:
    """Rename the folder `complete` to `place`, and remove the folder that was there.

    Where the system can exchange two names atomically (Linux), there is a folder at `place` at
    every moment. Elsewhere the old folder is at :func:`backup_path` for the moment between two
    renames; if the process is killed in between, the next call cleans up.

    Parameters
    ----------
    complete
        A folder on the file system of `place`.
    place
        A folder, which is removed with all of its contents, or a path that does not exist.
    ours
        Pattern of the files that a folder at :func:`backup_path` may hold to be removed, as in
        :func:`holds_only`.

    Raises
    ------
    FileExistsError
        If :func:`backup_path` holds files that topofl did not write; `place` is unchanged.
    OSError
        If the folders cannot be renamed; `place` is unchanged.
    """
    older = backup_path(place)
    if place.exists() and _exchange_names(complete, place):
        shutil.rmtree(complete)
    elif place.exists():
        # A call that was killed before its last line has left a folder there.
        if not remove_if_ours(older, ours):
            raise FileExistsError(
                f"`path` cannot be replaced: {older} is needed for a moment, and holds files that "
                "topofl did not write; move it elsewhere"
            )
        os.rename(place, older)
        try:
            os.rename(complete, place)
        except OSError:
            os.rename(older, place)
            raise
        shutil.rmtree(older)
    else:
        os.rename(complete, place)
    sync_folder(place.parent)
    remove_if_ours(older, ours)


def _exchange_names(one: Path, other: Path) -> bool:
    """Exchange the names of two folders atomically; return False if this is not supported."""
    function = _renameat2()
    return function is not None and not function(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE
    )


@cache
def _renameat2() -> Any:
    """Return the ``renameat2`` function of the C library, or None if it has none."""
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None), "renameat2", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_char_p) * 2 + (ctypes.c_uint,)
        function.restype = ctypes.c_int
    return function


def write_file(path: Path, text: str) -> None:
    """Write text to a file and to disk; errors name the file."""
    with naming(path):
        path.write_text(text, encoding="utf-8")
        sync_file(path)


def replace_file(path: Path, text: str, partial: Path | None = None) -> None:
    """Write a file that appears under its name only when it is complete.

    Parameters
    ----------
    path, text
        The file, which errors name, and its contents.
    partial
        Where it is written; None: a place that no other process uses.
    """
    partial = partial or path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with naming(path):
            partial.write_text(text, encoding="utf-8")
            sync_file(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Write the contents of a file to disk, so that they survive a power failure."""
    with path.open("r+b") as stream:  # Windows syncs only what is open for writing
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Write the directory entries of a folder to disk, so that they survive a power failure."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


_FILE_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: Path, name: str = "root") -> os.stat_result:
    """Return the status of a regular file, following links, or raise without opening it.

    Reading a pipe may never end, and opening a device may change its state. `name` is the argument
    with the path of the file or, if it is ``"root"``, of its folder.

    Raises
    ------
    OSError
        If there is no such file, or it is not accessible.
    ValueError
        If it is a folder, a named pipe, a socket or a device.
    """
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):
        kind = _FILE_KINDS.get(stat.S_IFMT(about.st_mode), "something else")
        wanted, remedy = "be a regular file", "name another"
        if name == "root":
            wanted, remedy = "hold regular files", "remove it"
        raise ValueError(f"`{name}` must {wanted}, got {path}, which is {kind}; {remedy}")
    return about


def read_file(path: Path, *, largest: int | None = None) -> bytes:
    """Return the content of a regular file of at most `largest` bytes, or raise.

    Raises
    ------
    OSError
        If it cannot be read; the message names `root` and the file.
    ValueError
        If it is not a regular file or is larger, which is checked before it is opened.
    """
    try:
        size = check_regular(path).st_size
        if largest is not None and size > largest:
            raise ValueError(
                f"`root` must hold files of at most {largest:,} bytes, got {size:,} bytes in {path}"
            )
        return path.read_bytes()
    except MemoryError as error:
        raise ValueError(
            f"`root` must hold files that fit into memory, got {path}, which does not"
        ) from error
    except OSError as error:
        raise OSError(f"`root` must hold files that can be read, {path} cannot: {error}") from error
