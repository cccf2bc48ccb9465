"""A lock on a folder: held by one process, and released when that process ends.

It is a lock of the operating system (``flock``; on Windows a locked byte) on the file
``.topofl.lock`` in the folder. SIGKILL therefore leaves nothing to clean up: the next process finds
the file, but no lock. The file identifies the holder by process number, host, and start time, which
differs from that of a later process with the same number. It decides where the lock alone cannot (a
child that inherited the lock, a file system without locks). A lock from another host, and without
locks of the system one from before a restart of this host, is never taken over: its file must be
removed manually. A file of this name that topofl did not write is neither
followed, nor changed, nor removed.
"""

import errno
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topofl._support.files import naming
from topofl._support.processes import identity, is_dead, is_of_this_boot
from topofl._support.text import printable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["NAME", "Lock", "is_in_use", "locked"]

NAME = ".topofl.lock"
"""Name of the file in the locked folder."""

_BYTE = 2**30
"""Offset of the locked byte on Windows: beyond the text, which others must be able to read."""

_MOST_BYTES = 4096
"""Maximum number of bytes that are read from the file."""

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags for opening the file: do not follow links, and do not block on pipes."""


@dataclass(eq=False)
class Lock:
    """The lock on a folder, held by this process, but not by processes that it forks.

    Parameters
    ----------
    folder
        The folder.
    argument
        Name of the argument in errors.
    """

    folder: Path
    argument: str
    _descriptor: int | None = field(default=None, init=False)
    _holder: int | None = field(default=None, init=False)

    @property
    def path(self) -> Path:
        """The file that identifies the holder of the lock."""
        return self.folder / NAME

    def hold(self) -> None:
        """Take the lock unless this process holds it; a missing folder is created.

        Raises
        ------
        BlockingIOError
            If another process holds it, naming that process and its host, or if this process was
            forked by the holder.
        FileExistsError
            If topofl did not write the file of this name.
        """
        if self._descriptor is not None and self._holder != os.getpid():
            raise BlockingIOError(
                f"`{self.argument}` must be a folder that no other run is using, {self.folder} is "
                f"in use by process {self._holder}, which forked this one; wait until it ends, or "
                "use another folder"
            )
        if self._descriptor is not None and _is_file(self._descriptor, self.path):
            return
        self.release()
        self.folder.mkdir(parents=True, exist_ok=True)
        with _folder_mutex(self.folder):
            self._descriptor = _acquire(self.path, self.argument)
            self._holder = os.getpid()

    def release(self) -> None:
        """Release the lock and remove its file, except in a forked process, which never held it."""
        if self._descriptor is None:
            return
        if self._holder == os.getpid():
            self._remove_file(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = None

    def _remove_file(self, descriptor: int) -> None:
        with suppress(OSError), _folder_mutex(self.folder):
            if _is_file(descriptor, self.path):
                if fcntl is None:  # Windows cannot remove open files
                    os.ftruncate(descriptor, 0)
                else:
                    self.path.unlink()


@contextmanager
def locked(folder: Path, argument: str = "saving") -> Iterator[Lock]:
    """Hold the lock on a folder, which is created if it is missing.

    Raises
    ------
    BlockingIOError
        If another process holds it.
    FileExistsError
        If topofl did not write the file of this name.
    """
    lock = Lock(folder, argument)
    lock.hold()
    try:
        yield lock
    finally:
        lock.release()


def is_in_use(folder: Path) -> bool:
    """Return whether a process that may be alive has named itself in the lock of a folder."""
    try:
        descriptor = os.open(folder / NAME, _FLAGS & ~os.O_CREAT & ~os.O_RDWR)
    except OSError:  # there is none
        return False
    try:
        holder = _read_holder(descriptor, folder / NAME)
    except OSError:  # it is not a lock
        return False
    finally:
        os.close(descriptor)
    return bool(holder) and not is_dead(holder)


@contextmanager
def _folder_mutex(folder: Path) -> Iterator[None]:
    """Serialize taking and releasing the lock, on systems that can lock folders."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _acquire(path: Path, argument: str) -> int:
    """Return the descriptor of the locked file, which now names this process, or raise."""
    descriptor, free = _open_and_lock(path)
    try:
        holder = _read_holder(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    if free is None:  # no locks on this file system
        free = not holder or is_dead(holder)
    elif not free and is_dead(holder):  # its child has inherited the lock
        os.close(descriptor)
        path.unlink(missing_ok=True)
        descriptor, free = _open_and_lock(path)
    same_host = holder.get("host") in (None, socket.gethostname())
    if not (free and same_host):
        os.close(descriptor)
        is_here = same_host and (not holder or is_of_this_boot(holder))
        raise BlockingIOError(_in_use_by(path, argument, holder, is_here))
    try:
        with naming(path):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, json.dumps(identity()).encode())
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _open_and_lock(path: Path) -> tuple[int, bool | None]:
    """Return an open file and whether it was locked; None: its file system has no locks.

    Raises
    ------
    FileExistsError
        If it is a link, a folder, a pipe or the like.
    """
    if path.is_symlink():
        raise FileExistsError(_foreign_file(path))
    try:
        descriptor = os.open(path, _FLAGS, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO) or path.is_dir():
            raise FileExistsError(_foreign_file(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(_foreign_file(path))
    try:
        if fcntl is None:
            _lock_byte(descriptor)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        taken = error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
        return descriptor, False if taken else None
    return descriptor, True


def _lock_byte(descriptor: int) -> None:
    import msvcrt  # on Windows only

    os.lseek(descriptor, _BYTE, os.SEEK_SET)
    msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]


def _read_holder(descriptor: int, path: Path) -> dict[str, Any]:
    """Return the identity of the holder from the file; empty if the file is.

    Zeros, which a power failure may leave, count as empty.

    Raises
    ------
    FileExistsError
        If the file contains anything else.
    """
    os.lseek(descriptor, 0, os.SEEK_SET)
    text = os.read(descriptor, _MOST_BYTES)
    if not text.strip(b"\0"):
        if os.fstat(descriptor).st_size <= _MOST_BYTES:
            return {}
        raise FileExistsError(_foreign_file(path))
    holder: dict[str, Any] = {}
    try:
        holder = json.loads(text)
        kinds = {"pid": int, "host": str, "started": str | None, "space": str | None}
        fits = isinstance(holder, dict) and all(
            isinstance(holder[name], kind) for name, kind in kinds.items()
        )
    except (ValueError, KeyError, RecursionError):
        fits = False
    if not fits:
        raise FileExistsError(_foreign_file(path))
    return holder


def _is_file(descriptor: int, path: Path) -> bool:
    """Return whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _foreign_file(path: Path) -> str:
    """Return the message for a file with the name of the lock that topofl did not write."""
    return (
        f"{path} must be free, since it names the run that uses the folder, but topofl did not "
        "write it; move it elsewhere, or use another folder"
    )


def _in_use_by(path: Path, argument: str, holder: dict[str, Any], is_here: bool) -> str:
    """Return the message for a folder that another process uses, or may still use."""
    user = (
        f"process {holder['pid']} on {printable(holder['host'])}" if holder else "another process"
    )
    if is_here:
        return (
            f"`{argument}` must be a folder that no other run is using, {path.parent} is in use by "
            f"{user}; wait until it ends, or use another folder"
        )
    return (
        f"`{argument}` must be a folder that no other run is using, {path.parent} was locked by "
        f"{user}, and this host, {printable(socket.gethostname())}, cannot see whether it is still "
        f"running; if it is not, remove {path}"
    )
