"""Private folders of unfinished runs: checkpoints and progress of one process each.

The name of a folder in ``.running/`` of a store has the run and the identity of the process that
writes to it. If that process has ended, another one on the same host adopts the folder by renaming
it, which is atomic, and continues from its checkpoints. There are no locks to be left behind.
"""

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topofl._support.processes import from_name, identity, is_dead, name_of
from topofl.callbacks import Event
from topofl.config.toml import dumps
from topofl.runs.records import RECORD, replace_file

__all__ = [
    "RUNNING",
    "Reporter",
    "claimed_folder",
    "in_progress",
    "note_settings",
    "noted_settings",
    "private_folders",
    "remove_abandoned",
    "staging_folder",
]

RUNNING = ".running"
"""Subfolder of a store for unfinished runs."""

_NEW = "new-"
_PROGRESS = "progress.json"

PAUSE = 1.0
"""Seconds between two reports of progress."""


FORGOTTEN = 24 * 3600.0
"""Seconds without writing after which a folder is useless, whatever became of its process."""


def claimed_folder(root: Path, key: str) -> Path:
    """Return this process's private folder for a run, with checkpoints of an ended process if any.

    The process removes the folder when the run has ended. If it cannot end the run, it leaves the
    folder for a later process, which continues.

    Raises
    ------
    OSError
        If it cannot be created.
    """
    running = root / RUNNING
    running.mkdir(parents=True, exist_ok=True)
    mine = running / _name(key)
    if not mine.exists():
        for other in sorted(running.glob(f"{key}+*")):
            if is_dead(_owner(other)):
                with suppress(OSError):  # another process has adopted it first
                    os.rename(other, mine)
                    break
    mine.mkdir(exist_ok=True)
    return mine


@contextmanager
def staging_folder(root: Path, key: str) -> Iterator[Path]:
    """Yield a new folder on the file system of a store, for files that are not complete yet."""
    (root / RUNNING).mkdir(parents=True, exist_ok=True)
    folder = root / RUNNING / f"{_NEW}{_name(key)}+{uuid.uuid4().hex}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _name(key: str) -> str:
    """Return the name of this process's folder: the run and all that identifies the process."""
    return f"{key}+{name_of(identity())}"


def _key(folder: Path) -> str:
    return folder.name.removeprefix(_NEW).partition("+")[0]


def _owner(folder: Path) -> dict[str, Any]:
    """Return the identity of the process that a folder belongs to; empty if its name has none."""
    return from_name(folder.name.partition("+")[2])


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


def note_settings(folder: Path, tables: Mapping[str, Any], *, has_config: bool) -> None:
    """Write the settings of a run to its private folder.

    If `has_config`, ``config.toml`` is written, too: the run is the one of this configuration.
    """
    replace_file(folder / RECORD, json.dumps({"tables": tables}) + "\n")
    if has_config:
        replace_file(folder / "config.toml", dumps(tables))


def noted_settings(folder: Path) -> dict[str, Any]:
    """Return the settings that a private folder has of its run; empty if it has none."""
    tables = _content(folder / RECORD).get("tables")
    return tables if isinstance(tables, dict) else {}


def in_progress(root: Path, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the latest report of each of these runs that is in progress, by key."""
    wanted = set(keys)
    found = {}
    with suppress(OSError):
        for folder in sorted((root / RUNNING).iterdir()):
            key = _key(folder)
            if key in wanted and (report := _content(folder / _PROGRESS)):
                found[key] = report
    return found


def private_folders(root: Path) -> list[tuple[str, Path, bool]]:
    """Return the private folders in a store: key, folder, and whether its process may be alive."""
    with suppress(OSError):
        return [
            (_key(folder), folder, not is_dead(_owner(folder)))
            for folder in sorted((root / RUNNING).iterdir())
            if not folder.name.startswith(_NEW)
        ]
    return []


def remove_abandoned(root: Path, keys: Iterable[str], stored: Iterable[str]) -> None:
    """Remove the folders of these runs that nobody will use again.

    Those are folders of stored runs and incomplete files, if their processes have ended on this
    host, or if nothing was written to them for a day, as on hosts that are gone. Checkpoints of
    runs that are not stored are kept.
    """
    wanted, done = set(keys), set(stored)
    with suppress(OSError):
        for folder in list((root / RUNNING).iterdir()):
            key = _key(folder)
            is_needless = key in done or folder.name.startswith(_NEW)
            if key in wanted and is_needless and (is_dead(_owner(folder)) or _is_forgotten(folder)):
                # renamed first, so that no process adopts what is being removed
                with suppress(OSError), staging_folder(root, key) as trash:
                    os.rename(folder, trash / "old")


def _is_forgotten(folder: Path) -> bool:
    """Return whether nothing in a folder was written for a day."""
    try:
        latest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:  # it is being changed or removed
        return False
    return time.time() - latest > FORGOTTEN
