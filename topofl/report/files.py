"""Atomic replacement of text files."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["replacing"]


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[str]]:
    """Open a text file that atomically replaces `path` when the ``with`` block is completed.

    It is opened immediately, so that a missing write permission raises before the block is
    executed. If the block raises, or the disk is full, the file at `path` is unchanged.

    Parameters
    ----------
    path
        The file; its folder must exist. Links are followed.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        If its folder does not exist or is a file.
    IsADirectoryError
        If `path` is a folder.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as file:
    ...         _ = file.write("whole")
    ...     print(Path(folder, "a.txt").read_text())
    whole
    """
    target = Path(path).resolve()
    _check_target(Path(path), target)
    partial = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        file = partial.open("x", encoding="utf-8", newline="\n")
    except OSError as error:
        raise type(error)(f"cannot write {path}: {error.strerror} in {target.parent}") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError as error:
        # The error of a failed write does not name the file.
        if error.filename is None and error.errno is not None:
            raise type(error)(f"cannot write {path}: {error.strerror}") from error
        raise
    finally:
        partial.unlink(missing_ok=True)


def _check_target(path: Path, target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder; name a file in it")
    if not target.parent.exists():
        raise FileNotFoundError(
            f"cannot write {path}: there is no folder {path.parent}; create it first"
        )
    if not target.parent.is_dir():
        raise NotADirectoryError(f"cannot write {path}: {path.parent} is not a folder")
