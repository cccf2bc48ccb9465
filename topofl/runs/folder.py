"""The folder of a run: who may write to it, what it holds, and how a run in it ends.

``topofl run`` trains in the folder that it is given, and a sweep in a folder below ``.running/`` of
its store. Both follow one protocol, which lets a process be killed at any moment:

1. A process claims the folder by a lock, which the system releases when the process ends.
2. It writes ``config.toml``, and trains with checkpoints in ``checkpoints/``, from those there.
3. :func:`save_finished` writes the record, ``run.json``, under another name, then the history, and
   gives the record its own name at the end. If the process is killed in between, the next one
   completes it. In a store, all this is in a new folder, which then gets the key as its name.

A run that is to replace a finished one is in a subfolder until it has a checkpoint.
"""

import json
import os
import re
import shlex
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from topofl import config
from topofl._support.files import (
    backup_path,
    holds_only,
    remove_if_ours,
    remove_staging_folders,
    replace_file,
    sync_folder,
    write_file,
)
from topofl._support.locks import LOCK, Lock, is_in_use, locked
from topofl._support.public import warn_caller
from topofl.config.toml import names_functions
from topofl.engine.checkpoint import OURS as CHECKPOINTS
from topofl.engine.checkpoint import move_all, prune, rounds_in
from topofl.history import OURS as HISTORY
from topofl.history import History, check_replaceable, saved_in
from topofl.runs.record import RECORD, curves_of, read_record

RUNNING = ".running"
"""Subfolder of a store for unfinished runs."""

NEW = "new-"
"""Start of the names of folders with files that are not complete yet."""

PROGRESS = "progress.json"
"""The file with the latest report of a run in progress."""

FORGOTTEN = 24 * 3600.0
"""Seconds without writing after which a folder of another host is useless."""

NEXT = ".topofl-next"
"""Subfolder for a run that is to replace a finished one, until it has a checkpoint."""

PARTIAL = ".config.toml.topofl-partial"
"""Name of the configuration of a run while it is being written."""

PARTIAL_RECORD = f".{RECORD}.topofl-partial"
"""Name of a record whose history may not be saved yet."""

IN_NEXT = re.compile(
    rf"config\.toml|{re.escape(PARTIAL)}|{re.escape(RECORD)}"
    rf"|checkpoints(/({CHECKPOINTS.pattern}))?|replaced(/({HISTORY.pattern}))?"
)
"""Contents of :data:`NEXT`: the new run and, during the exchange, what it replaces."""


def write_config(out: Path, tables: Mapping[str, Any]) -> None:
    """Write the configuration of a run atomically."""
    replace_file(out / "config.toml", config.dumps(tables), out / PARTIAL)


def settle(out: Path) -> None:
    """Replace the finished run by the one in :data:`NEXT` if that has a checkpoint; else remove it.

    If a call is killed, the next one completes it: checkpoints in :data:`NEXT` identify the new run
    until all of them are moved, and only then the older history is removed. If something cannot be
    moved, nothing is lost.
    """
    coming = out / NEXT
    _complete_record(out)
    if rounds_in(coming / "checkpoints"):
        check_movable(out)
        if (out / RECORD).exists():
            os.replace(out / RECORD, coming / RECORD)
        _set_aside(out / "history", coming / "replaced")
        if (coming / "config.toml").exists():
            os.replace(coming / "config.toml", out / "config.toml")
        move_all(coming / "checkpoints", out / "checkpoints")
    # Processes that were killed while they saved a history may have left files next to it.
    remove_staging_folders((out / "history").resolve(), HISTORY)
    (out / PARTIAL).unlink(missing_ok=True)
    if not remove_if_ours(coming, IN_NEXT):
        warn_caller(f"{coming} is not removed: it holds files that topofl did not write; move them")


def _complete_record(out: Path) -> None:
    """Complete the record of a run if its process was killed after it saved the history."""
    try:
        found = read_record(out / PARTIAL_RECORD)
        curves = None if found is None else curves_of(History.load(out / "history"))
    except (ValueError, OSError):  # it is incomplete, or its history is
        found = curves = None
    saved = json.loads(json.dumps(curves))
    if found is not None and _is_record(found) and found.get("curves") == saved:
        write_config(out, found["tables"])
        commit_record(out)
    (out / PARTIAL_RECORD).unlink(missing_ok=True)


def _set_aside(history: Path, replaced: Path) -> None:
    """Move a history, or one that a killed process set aside, to `replaced`."""
    for place in (history, backup_path(history)):
        if place == history and place.exists() and not replaced.exists():
            os.replace(place, replaced)
        elif holds_only(place, HISTORY):
            if replaced.exists():
                remove_if_ours(place, HISTORY)
            else:
                os.replace(place, replaced)


def check_movable(out: Path) -> None:
    """Raise if a run cannot be replaced by renaming folders."""
    for place in (out / "history", out / "checkpoints"):
        if place.is_symlink() or (place.exists() and place.stat().st_dev != out.stat().st_dev):
            what = "a link" if place.is_symlink() else "on another disk"
            raise ValueError(
                f"{place} must be a folder in {out} itself, so that another run can replace it, "
                f"got {what}; move its contents there, or choose another folder with --out"
            )


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Create and lock a folder; if the body fails before any checkpoint, undo this."""
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise type(error)(
                f"`--out` must be a folder that can be created, got {out}: {error.strerror}; name "
                "another"
            ) from error
        with locked(out, "--out"):
            fresh = not (out / "config.toml").exists()
            try:
                yield
            except Exception:
                stopped = rounds_in(place_of(out) / "checkpoints")
                if fresh and not stopped and not is_finished(out):
                    (out / "config.toml").unlink(missing_ok=True)
                    with suppress(OSError):
                        (out / "checkpoints").rmdir()
                raise
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()  # only if it is empty


def place_of(folder: Path) -> Path:
    """Return where the run of a folder is: in :data:`NEXT` if one there can be resumed."""
    return folder / NEXT if rounds_in(folder / NEXT / "checkpoints") else folder


def is_finished(folder: Path) -> bool:
    """Return whether a folder holds a finished run and no resumable run that is to replace it."""
    return saved_in(folder / "history") is not None and place_of(folder) == folder


def command_to_resume(folder: Path, *, started_here: bool = False) -> str:
    """Return the command that continues the run in a folder, or the one that is to replace it.

    It has ``--trust``, where the configuration names functions of modules, which are not imported
    without, only for a run that this process has trained: others may come from somebody else, and
    ``topofl resume`` itself explains the option.
    """
    try:
        tables = config.read(place_of(folder) / "config.toml")
    except (OSError, ValueError):  # the command says what is wrong with the file
        tables = {}
    trust = ["--trust"] * (started_here and names_functions(tables))
    return shlex.join(["topofl", "resume", *trust, str(folder)])


def unfinished_run(folder: Path) -> str:
    """Return a message about the unfinished run in a folder, or an empty string."""
    stopped = rounds_in(place_of(folder) / "checkpoints")
    if is_finished(folder) or not stopped:
        return ""
    return (
        f"{folder} holds a run that is not finished (round {stopped[-1]}); "
        f"continue it with {command_to_resume(folder)}"
    )


def load_finished(folder: Path) -> History:
    """Return the history in a folder, or raise ValueError for a run that is not finished."""
    if unfinished := unfinished_run(folder):
        raise ValueError(unfinished)
    return History.load(folder)


def check_history(out: Path) -> None:
    """Raise if the folder of a history that is to be replaced holds other files."""
    try:
        check_replaceable(out / "history")
    except FileExistsError as error:
        raise ValueError(
            f"{out / 'history'} must hold a history and nothing else, since it will be replaced; "
            "move the other files elsewhere"
        ) from error


def record_in(out: Path) -> dict[str, Any] | None:
    """Return the record of the run in a folder; None if there is none.

    Raises
    ------
    ValueError
        If ``run.json`` is damaged, or a file of somebody else.
    """
    path = out / RECORD
    remedy = "remove it, or move it elsewhere; its run is then compared by config.toml alone"
    found = read_record(path, remedy)
    if found is None or _is_record(found):
        return found
    raise ValueError(f"{path} must be the record of a run, with its key and tables; {remedy}")


def _is_record(found: Mapping[str, Any]) -> bool:
    """Return whether an object has the entries that are read, of the right types."""
    objects = [found.get(name, {}) for name in ("curves", "asked", "environment")]
    tables = found.get("tables")
    return (
        isinstance(found.get("key"), str)
        and isinstance(tables, dict)
        and all(isinstance(value, dict) for value in (*objects, *tables.values()))
        and isinstance(found.get("environment", {}).get("versions", {}), dict)
    )


def save_finished(
    out: Path, history: History, record: Mapping[str, Any], n_checkpoints: int = 0
) -> None:
    """Save a history and its record, and keep the last `n_checkpoints` checkpoints."""
    write_file(out / PARTIAL_RECORD, json.dumps(record, indent=1) + "\n")
    history.save(out / "history")
    write_config(out, record["tables"])
    prune(out / "checkpoints", n_checkpoints)
    commit_record(out)


def commit_record(out: Path) -> None:
    """Give the record its name: the run is finished."""
    os.replace(out / PARTIAL_RECORD, out / RECORD)
    sync_folder(out)


@contextmanager
def claimed_in(root: Path, key: str) -> Iterator[Path]:
    """Lock a folder of this host for a run in a store, with what an ended process left, if any.

    It is removed afterwards if it is empty; otherwise it is left for a later process. Other hosts
    have folders of their own, so locks need not work across hosts.

    Raises
    ------
    OSError
        If it cannot be created.
    """
    start, lock = f"{key}+{_host()}+", None
    for other in map(Lock, sorted((root / RUNNING).glob(f"{start}*"))):
        with suppress(OSError):  # its process lives, or removes it, or is of another user
            other.hold()
            lock = other
            break
    while lock is None:
        new = Lock(root / RUNNING / f"{start}{uuid.uuid4().hex}", "store")
        # another process may find it before it is locked, and may have removed it since
        with suppress(BlockingIOError, FileNotFoundError):
            new.hold()
            lock = new
    try:
        yield lock.folder
    finally:
        lock.release()
        with suppress(OSError):
            lock.folder.rmdir()


@contextmanager
def staging_folder(root: Path, key: str) -> Iterator[Path]:
    """Yield an empty folder on the file system of a store, for files that are not complete yet."""
    with claimed_in(root, f"{NEW}{key}") as folder:
        clear(folder)
        try:
            yield folder
        finally:
            clear(folder)


def clear(folder: Path) -> None:
    """Remove all that a claimed folder holds but its lock, as far as possible."""
    for path in list(folder.glob("*")):  # none if the folder is gone
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            with suppress(OSError):
                path.unlink()


def _host() -> str:
    """Return the name of this host as part of the name of a folder."""
    return quote(socket.gethostname(), "")


def _running(root: Path) -> list[tuple[str, Path]]:
    """Return the folders in a store that processes have claimed, with the keys of the runs."""
    return [
        (folder.name.removeprefix(NEW).partition("+")[0], folder)
        for folder in sorted((root / RUNNING).glob("*"))
    ]


def _may_be_used(folder: Path) -> bool:
    """Return whether a process of this host uses a folder, or one of another host may use it."""
    return folder.name.split("+")[1:2] != [_host()] or is_in_use(folder)


def content(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if it is missing or incomplete."""
    try:
        return read_record(path) or {}
    except (OSError, ValueError):
        return {}


def in_progress(root: Path, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the latest report of each of these runs that is in progress, by key."""
    wanted = set(keys)
    found = {key: content(folder / PROGRESS) for key, folder in _running(root) if key in wanted}
    return {key: report for key, report in found.items() if report}


def begun_in(root: Path) -> Iterator[tuple[str, Path, dict[str, Any], bool]]:
    """Yield key, folder and settings of unfinished runs, and whether a process may perform it.

    The settings are empty if they are not known.
    """
    for key, folder in _running(root):
        if not folder.name.startswith(NEW):
            tables = content(folder / RECORD).get("tables")
            yield key, folder, tables if isinstance(tables, dict) else {}, _may_be_used(folder)


def remove_abandoned(root: Path, keys: Iterable[str], stored: Iterable[str]) -> None:
    """Remove the folders of these runs that nobody will use again.

    Those are folders of stored runs and incomplete files, if no process of this host uses them, or
    if nothing was written to them for a day, as on hosts that are gone. Checkpoints of runs that
    are not stored are kept.
    """
    wanted, done = set(keys), set(stored)
    for key, folder in _running(root):
        is_needless = key in done or folder.name.startswith(NEW)
        if key in wanted and is_needless and (not _may_be_used(folder) or _is_forgotten(folder)):
            with suppress(OSError):  # another process has claimed or removed it first
                with locked(folder):
                    clear(folder)
                folder.rmdir()


def _is_forgotten(folder: Path) -> bool:
    """Return whether nothing in a folder was written for a day."""
    try:
        latest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:  # it is being changed or removed
        return False
    return time.time() - latest > FORGOTTEN
