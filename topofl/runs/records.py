"""JSON files of a store, and the record of a run that failed."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from topofl._support.callers import warn_caller
from topofl._support.files import naming, sync_file
from topofl._support.notebook import as_html
from topofl.runs.shown import settings_as_html

__all__ = [
    "ABOUT",
    "RECORD",
    "Failure",
    "flat_settings",
    "in_folder_of_run",
    "read_record",
    "readable",
    "replace_file",
    "write_file",
]

ABOUT = "store.json"
"""The file of a store with the version of its layout."""

RECORD = "run.json"
"""The file of a finished run with its settings, curves, cost and environment."""


@dataclass(frozen=True, eq=False)
class Failure:
    """A run that failed, with its error.

    Parameters
    ----------
    key
        Hash of all that determines its results.
    tables
        Its configuration.
    error
        Type and message of the error, in one line.
    traceback
        The traceback as text; empty if the process of the run was killed.
    note
        Other entries of its file, such as ``environment``.

    Examples
    --------
    >>> failure = Failure("0123456789abcdef", {"algorithm": {"lr": 9.0}}, "DivergenceError: ...")
    >>> failure.settings
    {'algorithm.lr': 9.0}
    """

    key: str
    tables: Mapping[str, Any]
    error: str
    traceback: str = ""
    note: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration as one flat dictionary, as :attr:`StoredRun.settings`."""
        return flat_settings(self.tables)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Failure":
        """Return a failure from the contents of its file."""
        own = {name: record.get(name, "") for name in ("key", "error", "traceback")}
        note = {name: value for name, value in record.items() if name not in {*own, "tables"}}
        return cls(tables=record.get("tables", {}), note=note, **own)

    def _repr_html_(self) -> str:
        text = f"Failure({self.key!r}): {' '.join(self.error.split())}"
        return as_html(text) + settings_as_html(self.settings)


def flat_settings(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of nested tables by dotted names, those of ``point`` by their own.

    Examples
    --------
    >>> flat_settings({"data": {"alpha": 0.1}, "point": {"lr": 1}})
    {'data.alpha': 0.1, 'lr': 1}
    """
    return dict(_flat(tables))


def _flat(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the entries of nested tables by their dotted names."""
    for name, value in tables.items():
        if prefix == "" and name == "point" and isinstance(value, Mapping):
            yield from value.items()
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def read_record(path: Path, remedy: str = "") -> dict[str, Any] | None:
    """Return the object in a JSON file, None if there is no file, or raise ``ValueError``."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}; {remedy or _remedy(path)}") from error
    if not isinstance(found, dict):
        raise ValueError(
            f"{path} is damaged: it must hold a JSON object; {remedy or _remedy(path)}"
        )
    return found


def in_folder_of_run(path: Path) -> bool:
    """Return whether there is this record, in a folder of ``topofl run`` and not in a store."""
    is_key = not set(path.absolute().parent.name) - set("0123456789abcdef")
    is_run = (path.parent / "config.toml").is_file()
    return is_run and path.is_file() and not (is_key or (path.parents[1] / ABOUT).exists())


def _remedy(path: Path) -> str:
    if path.name == RECORD and in_folder_of_run(path.absolute()):
        place = quote(str(path.parent))
        return (
            f"to train the run again, move {place}/config.toml elsewhere, remove the folder "
            f"{place}, and run the configuration: topofl run config.toml --out {place}"
        )
    if path.name == RECORD:
        store, key = quote(str(path.parents[1])), path.parent.name
        return f"to train the run again: topofl runs {store} --where key={key} --remove"
    return "remove it"


def readable(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None with a warning if it is damaged, as if not there."""
    try:
        return read_record(path)
    except ValueError as error:
        warn_caller(f"{error}; it is left out")
        return None


def write_file(path: Path, text: str) -> None:
    """Write a file to disk."""
    with naming(path):
        path.write_text(text, encoding="utf-8")
        sync_file(path)


def replace_file(path: Path, text: str) -> None:
    """Write a file that appears under its name only when it is complete."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write_file(partial, text)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
