"""``run.json`` in a folder of ``topofl run``: the record of its finished run, written last.

It is written under another name before the history is saved and gets its own name at the end. If
the process is killed in between, the next command completes it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topofl import config
from topofl._support.files import sync_folder
from topofl.cli.notes import print_notes
from topofl.config.toml import as_table
from topofl.history import History
from topofl.runs.identity import differences, other_settings
from topofl.runs.record import RECORD, curves_of, read_record, write_file
from topofl.runs.work import Job

__all__ = [
    "PARTIAL_RECORD",
    "check_same",
    "commit_record",
    "discard_record",
    "is_pending",
    "pending_record",
    "record_in",
    "settings_in",
    "write_pending",
]

PARTIAL_RECORD = f".{RECORD}.topofl-partial"
"""Name of a record whose history may not be saved yet."""

_SHOWN = 6
"""Largest number of differences that an error names."""


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


def write_pending(out: Path, record: Mapping[str, Any]) -> None:
    """Write a record under a temporary name, before its history is saved."""
    write_file(out / PARTIAL_RECORD, json.dumps(record, indent=1) + "\n")


def commit_record(out: Path) -> None:
    """Give the record its name: the run is finished."""
    os.replace(out / PARTIAL_RECORD, out / RECORD)
    sync_folder(out)


def discard_record(out: Path) -> None:
    """Remove a record that belongs to no saved history."""
    (out / PARTIAL_RECORD).unlink(missing_ok=True)


def is_pending(out: Path) -> bool:
    """Return whether a process is saving a run in this folder, or was killed meanwhile."""
    return (out / PARTIAL_RECORD).is_file()


def pending_record(out: Path) -> dict[str, Any] | None:
    """Return a record that has no name yet although its history is saved, or None."""
    try:
        found = read_record(out / PARTIAL_RECORD)
        if found is None or not _is_record(found):
            return None
        curves = curves_of(History.load(out / "history"))
    except (ValueError, OSError):  # incomplete, or its history is
        return None
    return found if found.get("curves") == json.loads(json.dumps(curves)) else None


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
