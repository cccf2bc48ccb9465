"""Files that others made: what is no regular file is not opened, for a pipe would never end and a device may act."""

import os
import stat
from pathlib import Path

__all__ = ["check_regular", "read_file"]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: Path, name: str = "root") -> os.stat_result:
    """Return what the system knows of a regular file, to which `path` may be a link, or raise.

    Raises
    ------
    OSError
        If there is no such file, or it cannot be reached.
    ValueError
        If it is a folder, a named pipe, a socket or a device.
    """
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):
        kind = _KINDS.get(stat.S_IFMT(about.st_mode), "something else")
        raise ValueError(f"`{name}` must hold regular files, got {path}, which is {kind}; remove it")
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
