"""Write, remove and move checkpoints."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from topofl._support.files import raising_os_errors, sync_folder
from topofl.engine.checkpoint import (
    FILE_NAME,
    FORMAT,
    FORMAT_OF_RANKS,
    checksum_of,
    rounds_in,
    rows_path,
    state_path,
)

__all__ = ["check_space", "move_all", "prune", "save"]


KEPT = 2
"""Number of checkpoints that are kept."""


def save(
    folder: Path,
    t: int,
    state: Mapping[str, Any],
    marker: Mapping[str, Any],
    rows: Mapping[str, str] | None = None,
) -> tuple[Path, int]:
    """Write the checkpoint after `t` rounds, remove old ones, and return its path and bytes.

    Tensors are written without a copy. If writing fails, earlier checkpoints stay unchanged.

    Parameters
    ----------
    folder
        The folder of checkpoints.
    t
        Number of completed rounds.
    state, marker
        Contents of the two files.
    rows
        Checksums of the files in the folder of rows, by name; None: there is none.

    Raises
    ------
    OSError
        If it cannot be written, for example because the disk is full.
    """
    path = state_path(folder, t)
    try:
        _write(path, t, state, marker, rows)
    except BaseException:
        if not path.with_suffix(".json").exists():  # else it is complete, or of an older one
            path.unlink(missing_ok=True)
            shutil.rmtree(rows_path(folder, t), ignore_errors=True)
        raise
    if rows is None:
        _remove(rows_path(folder, t))  # of a damaged checkpoint of this round
    prune(folder, KEPT, until=t)
    return path, _size(path) + (_size(rows_path(folder, t)) if rows else 0)


def _write(
    path: Path,
    t: int,
    state: Mapping[str, Any],
    marker: Mapping[str, Any],
    rows: Mapping[str, str] | None,
) -> None:
    with _replacing(path) as stream:
        hashed: Any = _Hashed(stream)
        with raising_os_errors():
            torch.save(state, hashed)
    kind = {"format": FORMAT} if rows is None else {"format": FORMAT_OF_RANKS, "rows": dict(rows)}
    written = kind | {"round": t, "sha256": hashed.digest.hexdigest()} | dict(marker)
    written = json.loads(json.dumps(written))  # the checksum is of values as they will be read
    text = json.dumps(written | {"checksum": checksum_of(written)}, indent=2)
    with _replacing(path.with_suffix(".json")) as stream:
        stream.write(text.encode() + b"\n")


def _size(path: Path) -> int:
    """Return the bytes of a file, or of the files in a folder."""
    return sum(part.stat().st_size for part in (path.iterdir() if path.is_dir() else [path]))


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class _Hashed:
    """A stream that computes the checksum of everything written to it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self.stream.write(data)

    def flush(self) -> None:
        self.stream.flush()


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only when it is complete and synced to disk."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def prune(folder: Path, kept: int, until: int | None = None) -> None:
    """Remove all but the last `kept` checkpoints up to round `until`, and partial files."""
    rounds = [t for t in rounds_in(folder) if until is None or t <= until]
    _remove_all_but(folder, rounds[max(0, len(rounds) - kept) :])


def _remove_all_but(folder: Path, rounds: Collection[int]) -> None:
    """Remove the checkpoints of all other rounds, and partial files of interrupted writes."""
    if not folder.is_dir():
        return
    # The marker of a checkpoint is removed before its state.
    for path in sorted(folder.iterdir(), key=lambda path: path.suffix != ".json"):
        match = FILE_NAME.fullmatch(path.name)
        if match and (match[3] or int(match[1]) not in rounds):
            _remove(path)


def move_all(source: Path, target: Path) -> None:
    """Move the checkpoints of one folder into another, replacing those there.

    If the process is killed in between, the next call completes the move: the marker of the newest
    checkpoint is moved last, after the checkpoints of `target` were removed, and stays in `source`
    until then. If nothing can be moved, `target` stays unchanged.
    """
    target.mkdir(parents=True, exist_ok=True)
    rounds = rounds_in(source)
    found = [
        state_path(source, t).with_suffix(suffix)
        for t in rounds
        for suffix in (".rows", ".pt", ".json")
    ]
    for path in found[:-1]:
        if path.is_dir():
            _remove(target / path.name)
        if path.exists():
            os.replace(path, target / path.name)
    _remove_all_but(target, rounds)
    for marker in found[2::3]:
        if _has_no_rows(marker if marker.exists() else target / marker.name):
            _remove(target / marker.with_suffix(".rows").name)  # of what was there
    for path in found[-1:]:
        os.replace(path, target / path.name)
    sync_folder(target)


def _has_no_rows(marker: Path) -> bool:
    """Return whether a marker is of a checkpoint without a folder of rows; damaged ones are not."""
    try:
        return json.loads(marker.read_bytes())["format"] != FORMAT_OF_RANKS
    except (OSError, ValueError, KeyError, TypeError):
        return False


def check_space(folder: Path, size: int) -> None:
    """Raise unless the disk has space for all kept checkpoints and the one being written.

    Raises
    ------
    OSError
        If it does not, with the number ``ENOSPC``; the space of existing checkpoints counts as
        free.
    """
    used = sum(_size(path) for path in folder.iterdir() if FILE_NAME.fullmatch(path.name))
    needed = (KEPT + 1) * size
    free = shutil.disk_usage(folder).free + used
    if needed > free:
        error = OSError(
            f"`saving` must have space for {KEPT + 1} checkpoints, {needed} bytes, {folder} has "
            f"{free} bytes free; free some space, or use a folder on another disk"
        )
        error.errno = errno.ENOSPC  # sweeps stop at a full disk
        raise error
