"""Private folders of unfinished runs: checkpoints and progress of one process each.

A folder in ``.running/`` of a store is named by the run, the host and the process that writes to
it. If that process has ended, another one on the same host adopts the folder by renaming it, which
is atomic, and continues from its checkpoints. There are no locks to be left behind.
"""

import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topofl._support.processes import identity, is_dead
from topofl.callbacks import Event

__all__ = ["Reporter", "claimed_folder", "in_progress", "remove_abandoned", "staging_folder"]

RUNNING = ".running"
"""Subfolder of a store for unfinished runs."""

_NEW = "new-"
_OWNER = "owner.json"
_PROGRESS = "progress.json"

PAUSE = 1.0
"""Seconds between two reports of progress."""


@contextmanager
def claimed_folder(root: Path, key: str) -> Iterator[Path]:
    """Yield this process's private folder for a run, with the checkpoints of an earlier one if any.

    The folder is removed unless the body is interrupted (by any exception that is not an
    ``Exception``), so that a later process can continue.
    """
    folder = _claim(root / RUNNING, key)
    try:
        yield folder
    except Exception:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _claim(running: Path, key: str) -> Path:
    running.mkdir(parents=True, exist_ok=True)
    me = identity()
    mine = running / f"{key}-{socket.gethostname()}-{os.getpid()}"
    if mine.exists() and not _is_free(mine, me):  # another container with the name of this host
        mine = running / f"{mine.name}-{uuid.uuid4().hex[:8]}"
    elif not mine.exists():
        for other in sorted(running.glob(f"{key}-*")):
            with suppress(OSError):  # another process has adopted it first
                if _is_free(other, me):
                    os.rename(other, mine)
                    break
    mine.mkdir(exist_ok=True)
    (mine / _OWNER).write_text(json.dumps(me))
    return mine


@contextmanager
def staging_folder(root: Path, key: str) -> Iterator[Path]:
    """Yield a new folder on the file system of a store, for files that are not complete yet."""
    (root / RUNNING).mkdir(parents=True, exist_ok=True)
    folder = root / RUNNING / f"{_NEW}{key}-{uuid.uuid4().hex}"
    folder.mkdir()
    try:
        (folder / _OWNER).write_text(json.dumps(identity()))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_free(folder: Path, me: Mapping[str, Any]) -> bool:
    """Return whether the owner of a folder is this process, or has ended."""
    owner = _content(folder / _OWNER)
    try:
        return owner == me or is_dead(owner)
    except (KeyError, TypeError):  # the file is damaged
        return False


def _content(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if it is missing or incomplete."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(eq=False)
class Reporter:
    """A callback that writes round and score of a run to its private folder, once a second.

    Parameters
    ----------
    folder
        The private folder.
    rounds
        Number of rounds of the run.
    """

    folder: Path
    rounds: int
    _last: float = field(default_factory=time.monotonic)
    _score: float | None = None

    def __call__(self, event: Event) -> None:
        """Note the score of an evaluation, and write a report if one is due."""
        if event.kind == "evaluation":
            found = (value for name, value in event.values.items() if name.endswith("_mean"))
            self._score = next(found, None)
        now = time.monotonic()
        if event.kind in ("round", "evaluation") and now - self._last >= PAUSE:
            self._last = now
            report = {"round": event.round, "rounds": self.rounds, "score": self._score}
            partial = self.folder / f".{_PROGRESS}"
            with suppress(OSError):  # a report is not worth the run
                partial.write_text(json.dumps(report))
                os.replace(partial, self.folder / _PROGRESS)


def in_progress(root: Path, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the latest report of each of these runs that is in progress, by key."""
    wanted = set(keys)
    found = {}
    with suppress(OSError):
        for folder in sorted((root / RUNNING).iterdir()):
            key = folder.name.partition("-")[0]
            if key in wanted and (report := _content(folder / _PROGRESS)):
                found[key] = report
    return found


def remove_abandoned(root: Path, keys: Iterable[str]) -> None:
    """Remove the private folders of these runs whose processes have ended on this host."""
    wanted, me = set(keys), identity()
    with suppress(OSError):
        for folder in (root / RUNNING).iterdir():
            key = folder.name.removeprefix(_NEW).partition("-")[0]
            is_new = folder.name.startswith(_NEW)  # this process may be writing to it
            if key in wanted and _is_free(folder, {} if is_new else me):
                shutil.rmtree(folder, ignore_errors=True)
