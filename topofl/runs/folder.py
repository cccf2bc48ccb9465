"""Folders of runs: their contents, and replacement of finished runs without loss of either.

``run.json``, the record of a finished run, is written last: under another name before the history
is saved, and it gets its own name at the end. If the process is killed in between, the next command
completes it.
"""

import json
import os
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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
from topofl._support.locks import LOCK, locked
from topofl.cli.output import print_notes
from topofl.config.toml import as_table, names_functions
from topofl.engine.checkpoint import OURS as CHECKPOINTS
from topofl.engine.checkpoint import move_all, prune, rounds_in
from topofl.history import OURS as HISTORY
from topofl.history import History, check_replaceable, saved_in
from topofl.runs.identity import differences, other_settings
from topofl.runs.record import RECORD, curves_of, read_record
from topofl.runs.work import Job

NEXT = ".topofl-next"
"""Subfolder for a run that is to replace a finished one, until it has a checkpoint."""

PARTIAL = ".config.toml.topofl-partial"
"""Name of the configuration of a run while it is being written."""

PARTIAL_RECORD = f".{RECORD}.topofl-partial"
"""Name of a record whose history may not be saved yet."""

_SHOWN = 6
"""Largest number of differences that an error names."""

_IN_NEXT = re.compile(
    rf"config\.toml|{re.escape(PARTIAL)}|{re.escape(RECORD)}"
    rf"|checkpoints(/({CHECKPOINTS.pattern}))?|replaced(/({HISTORY.pattern}))?"
)
"""Contents of :data:`NEXT`: the new run and, during the exchange, what it replaces."""


def write_config(out: Path, tables: config.Tables) -> None:
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
        _check_movable(out)
        if (out / RECORD).exists():
            os.replace(out / RECORD, coming / RECORD)
        _set_aside(out / "history", coming / "replaced")
        if (coming / "config.toml").exists():
            os.replace(coming / "config.toml", out / "config.toml")
        move_all(coming / "checkpoints", out / "checkpoints")
    # Processes that were killed while they saved a history may have left files next to it.
    remove_staging_folders((out / "history").resolve(), HISTORY)
    (out / PARTIAL).unlink(missing_ok=True)
    if not remove_if_ours(coming, _IN_NEXT):
        print_notes(
            [f"{coming} is not removed: it holds files that topofl did not write; move them"]
        )


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


def _check_movable(out: Path) -> None:
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


def check_place(out: Path, options: Namespace) -> None:
    """Raise if a folder for results cannot be used, or holds anything that would be lost."""
    if unfinished := unfinished_run(out):
        raise ValueError(f"{unfinished}, or choose another folder with --out")
    if (out / "config.toml").exists() and (out / "config.toml").samefile(options.config):
        raise ValueError(
            f"{out} holds {options.config} itself, which would be overwritten; choose another "
            "folder with --out"
        )
    if out.is_dir() and not is_finished(out) and not _holds_only_a_start(out):
        raise ValueError(
            f"{out} holds files other than a run; choose a new or empty folder with --out"
        )
    if os.path.lexists(out / NEXT) and not holds_only(out / NEXT, _IN_NEXT):
        raise ValueError(
            f"{out / NEXT} must be free, got files that topofl did not write; move them elsewhere, "
            "or choose another folder with --out"
        )
    if is_finished(out) and not options.force:
        raise ValueError(
            f"{out} holds a finished run; choose another folder with --out, replace it with "
            "--force, or skip it with --skip-done"
        )
    if is_finished(out):
        _check_movable(out)
    check_history(out)
    record_in(out)  # raises for a file of this name that would be lost
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise PermissionError(
            f"`--out` must be a folder that can be written to, {there} is not, got {out}; name "
            "another"
        )


def _holds_only_a_start(out: Path) -> bool:
    """Return whether a folder is empty or holds only a run without checkpoints."""
    found = {path.name for path in out.iterdir()}
    if found - {"config.toml", "checkpoints", RECORD, PARTIAL, PARTIAL_RECORD, NEXT, LOCK}:
        return False
    if "checkpoints" in found:
        return holds_only((out / "checkpoints").resolve(), CHECKPOINTS)
    return not found & {"config.toml", RECORD}  # alone, they may be files of the user


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
    out: Path, history: History, record: Mapping[str, Any], n_checkpoints: int
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


def settings_in(out: Path) -> config.Tables:
    """Return the tables of ``config.toml`` in a folder, without building anything."""
    tables = config.read(out / "config.toml")
    return {name: as_table(name, table) for name, table in tables.items()}


def check_same(out: Path, job: Job) -> None:
    """Raise ``ValueError`` unless the finished run in a folder is this one, naming what differs.

    Runs of earlier versions, which have no record, are compared by their settings.
    """
    record = record_in(out)
    if record is not None:
        other = differences(record, job.tables, job.digest)
    elif (out / "config.toml").is_file():
        other = other_settings(settings_in(out), job.tables)
    else:
        other = ["it has neither run.json nor config.toml"]
    if other:
        more = [f"{len(other) - _SHOWN} more differences"] if len(other) > _SHOWN else []
        raise ValueError(
            f"{out} holds another finished run: {'; '.join([*other[:_SHOWN], *more])}; choose "
            "another folder with --out, or replace the run with --force instead of --skip-done"
        )
    if record is None:
        print_notes(
            [f"{out} has no run.json, so only its settings are compared, not data and versions"]
        )
