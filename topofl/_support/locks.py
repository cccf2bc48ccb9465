"""Locks on folders, so that one process at a time writes to each."""

import os
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from topofl._support.text import printable

LOCK = ".topofl.lock"
"""Name of the file by which a process locks a folder."""

PATIENCE = 0.2
"""Seconds in which a lock is tried, since another process may only look whether it is held."""

_MOST_BYTES = 4096
_OURS = re.compile(rb"\0{0,%d}|\d+\n.*|\{\"pid\": \d+, .*\}" % _MOST_BYTES, re.DOTALL)
"""Contents of the file of a lock: nothing or, after a power failure, zeros; process and host; what
earlier versions wrote."""


@dataclass(eq=False)
class Lock:
    """The lock on a folder, held by this process, but not by processes that it forks.

    The system locks the file ``.topofl.lock``, also for machines that share the folder by NFS or
    another file system whose ``flock`` excludes other machines. A process that ends in any way
    leaves the folder free. The file names its process only for the messages of others.

    Parameters
    ----------
    folder
        The folder.
    argument
        Name of the argument in errors.
    """

    folder: Path
    argument: str = "saving"
    _lock: BaseFileLock | None = field(default=None, init=False)
    _file: os.stat_result | None = field(default=None, init=False)

    def hold(self) -> None:
        """Take the lock unless this process holds it; a missing folder is created.

        Raises
        ------
        BlockingIOError
            If another process holds it, naming that process and its host.
        FileExistsError
            If topofl did not write the file of this name.
        """
        if self._is_held():
            return
        self.release()  # of a file that is gone
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / LOCK
        if _is_foreign(path):
            raise FileExistsError(
                f"{path} must be free, since it names the run that uses the folder, but topofl did "
                "not write it; move it elsewhere, or use another folder"
            )
        self._lock = FileLock(path, PATIENCE, thread_local=False, poll_interval=PATIENCE / 10)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise BlockingIOError(
                f"`{self.argument}` must be a folder that no other run is using, {self.folder} is "
                f"in use by {_holder(path)}; wait until it ends, or use another folder"
            ) from error
        if not isinstance(self._lock, SoftFileLock):  # which writes the same
            with suppress(OSError):  # on a full disk, and for locked files of Windows
                path.write_text(f"{os.getpid()}\n{socket.gethostname()}\n")
        self._file = path.lstat()

    def _is_held(self) -> bool:
        """Return whether this process holds the lock, and its file is still there."""
        if self._lock is None or self._file is None or not self._lock.is_locked:
            return False
        with suppress(OSError):
            return os.path.samestat(self._file, (self.folder / LOCK).lstat())
        return False

    def release(self) -> None:
        """Release the lock and remove its file, except in a forked process, which never held it."""
        if self._is_held():
            with suppress(OSError):  # Windows cannot remove open files
                (self.folder / LOCK).unlink()
        if self._lock is not None:
            self._lock.release()


def _is_foreign(path: Path) -> bool:
    """Return whether a file, link or folder with the name of a lock is not one of topofl."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return True
        with path.open("rb") as stream:
            return not _OURS.fullmatch(stream.read(_MOST_BYTES + 1))
    except (FileNotFoundError, PermissionError):  # Windows lets nobody read a locked file
        return False


def _holder(path: Path) -> str:
    """Return the process and the host that the file of a lock names, as text."""
    with suppress(OSError, ValueError):
        pid, host = path.read_text().splitlines()[:2]
        return f"process {int(pid)} on {printable(host)}"
    return "another process"


@contextmanager
def locked(folder: Path, argument: str = "saving") -> Iterator[Lock]:
    """Hold the lock on a folder, which is created if it is missing; see :meth:`Lock.hold`."""
    lock = Lock(folder, argument)
    lock.hold()
    try:
        yield lock
    finally:
        lock.release()


def is_in_use(folder: Path) -> bool:
    """Return whether another process holds the lock on a folder, or may hold it."""
    path = folder / LOCK
    if _is_foreign(path) or not path.exists():
        return False
    try:
        with FileLock(path, blocking=False, thread_local=False):
            return False
    except OSError:  # also of another user
        return True
