"""A folder of finished runs, each in a folder of its own that is complete or not there."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from topofl import config
from topofl._support.check import check_path, shown
from topofl._support.files import replace_file, sync_folder
from topofl._support.notebook import as_html, paragraph
from topofl._support.table import Table
from topofl.history import History
from topofl.runs.folder import save_finished, staging_folder
from topofl.runs.record import (
    ABOUT,
    RECORD,
    cell_of,
    curves_of,
    flat_settings,
    heads_of,
    read_record,
    readable,
    record_of,
    results_of,
    settings_as_html,
)

ROWS = 40
"""Most rows of a table of runs in a notebook."""

FORMAT = 1
"""Version of the layout of a store."""

_FAILED = "failed"


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
        """The configuration as one new flat dictionary, as :attr:`StoredRun.settings`."""
        return flat_settings(self.tables)

    def _repr_html_(self) -> str:
        text = f"Failure({self.key!r}): {' '.join(self.error.split())}"
        return as_html(text) + settings_as_html(self.settings)


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A finished run in a store.

    Parameters
    ----------
    folder
        Its folder, with ``config.toml``, ``history/`` and ``run.json``.
    key
        Hash of all that determines its results.
    tables
        Its configuration with all defaults filled in.
    note
        What else ``run.json`` has: ``curves``, ``seconds``, ``megabytes``, ``environment``.

    Examples
    --------
    >>> import tempfile, topofl
    >>> base = {"data": {"name": "digits", "n": 4}, "topology": "ring", "run": {"rounds": 1}}
    >>> found = topofl.sweep({**base, "algorithm": "dsgd,lr=0.1"}, store=tempfile.mkdtemp())
    >>> run = found.runs[0]
    >>> run.settings["algorithm.lr"], run.history.n_rounds, sorted(run.curves["scores"])
    (0.1, 1, ['accuracy', 'loss'])
    """

    folder: Path
    key: str
    tables: Mapping[str, Any]
    note: Mapping[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration as one new flat dictionary, with keys such as ``"data.alpha"``.

        Entries of a table ``point``, the arguments of a user's function, have no prefix.
        """
        return flat_settings(self.tables)

    @cached_property
    def curves(self) -> Mapping[str, Any]:
        """The curves of the run; see :func:`topofl.runs.curves_of`."""
        found = self.note.get("curves")
        return curves_of(self.history) if found is None else found

    @cached_property
    def history(self) -> History:
        """The history of the run, read on first access.

        Raises
        ------
        OSError, ValueError
            If its files are missing or damaged.
        """
        return History.load(self.folder / "history")

    def __repr__(self) -> str:
        return f"StoredRun({self.key!r})"

    def _repr_html_(self) -> str:
        heads, rows = results_of([self.curves])
        finals = Table(tuple(heads), tuple(rows))._repr_html_()
        return as_html(repr(self)) + finals + settings_as_html(self.settings)


@dataclass(frozen=True)
class RunStore:
    """A folder of finished runs, found by their keys.

    A run appears under its key by one atomic renaming of a complete folder, also on network file
    systems, so several processes and machines can write to one store. Only processes of one machine
    exclude each other by locks, from the folders of unfinished runs.

    Parameters
    ----------
    root
        The folder; it is created when the first run is added.

    Examples
    --------
    >>> import tempfile, topofl
    >>> tables = {"data": {"name": "digits", "n": 4, "seed": 0}, "topology": "ring"}
    >>> tables |= {"algorithm": "dsgd,lr=0.1", "run": {"rounds": 1, "seed": 0}}
    >>> experiment = config.build(tables)
    >>> store = RunStore(Path(tempfile.mkdtemp()))
    >>> run = store.add("0123456789abcdef", experiment.run(), experiment.tables)
    >>> run.settings["topology.name"], run.curves["round"]
    ('ring', [0, 1])
    >>> len(store.runs()), store.find("0000000000000000") is None
    (1, True)
    """

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", check_path("root", self.root))

    def _repr_html_(self) -> str:
        try:
            unread = filter(self.has, self.keys())
            runs = list(islice(filter(None, map(self.find, unread)), ROWS))
            more, failed = len(list(unread)), len(self._failed())
        except (OSError, ValueError) as error:  # no such folder, or one of another version
            return as_html(repr(self)) + paragraph(str(error))
        settings = [run.settings for run in runs]
        always = ("algorithm.name", "topology.name")
        differing = [
            name
            for name in dict.fromkeys(name for own in settings for name in own)
            if name in always or len({shown(own.get(name)) for own in settings}) > 1
        ]
        results, finals = results_of([run.curves for run in runs], {"": "mean"})
        rows = tuple(
            (run.key, *(cell_of(own.get(name)) for name in differing), *cells)
            for run, own, cells in zip(runs, settings, finals, strict=True)
        )
        table = Table(("key", *heads_of(differing, ["key", *results]), *results), rows)
        counts = {f"{more} more run{'' if more == 1 else 's'}": more, f"{failed} failed": failed}
        notes = (paragraph(words) for words, count in counts.items() if count)
        return as_html(repr(self)) + table._repr_html_() + "".join(notes)

    def folder(self, key: str) -> Path:
        """Return the folder of a run, finished or not.

        Raises
        ------
        ValueError
            If `key` is not made of hexadecimal digits.
        """
        if not is_key(key):
            raise ValueError(
                "`key` must be hexadecimal digits, as in 0123456789abcdef, got "
                f"{shown(key)}; topofl runs STORE lists the keys"
            )
        return self.root / key

    def has(self, key: str) -> bool:
        """Return whether a run is finished."""
        return (self.folder(key) / RECORD).is_file()

    def find(self, key: str) -> StoredRun | None:
        """Return a finished run; None if there is none with this key.

        A damaged record counts as none, with a warning that says how to remove it.

        Raises
        ------
        ValueError
            If the store has another version.
        """
        self.check()
        return run_of_folder(self.folder(key))

    def runs(self) -> tuple[StoredRun, ...]:
        """Return all finished runs in the order of their keys, without opening their histories.

        Raises
        ------
        FileNotFoundError
            If there is no such folder.
        ValueError
            As :meth:`find`.
        """
        self.check(exists=True)
        found = (
            run_of_folder(self.root / key) for key in sorted(filter(is_key, os.listdir(self.root)))
        )
        return tuple(run for run in found if run is not None)

    def keys(self) -> list[str]:
        """Return the keys of all runs, finished, damaged or failed, from names of files only."""
        self.check(exists=True)
        return sorted({*filter(is_key, os.listdir(self.root)), *self._failed()})

    def add(
        self,
        key: str,
        history: History,
        tables: Mapping[str, Any],
        note: Mapping[str, Any] | None = None,
    ) -> StoredRun:
        """Store a finished run, unless another process has stored it meanwhile; return it.

        Parameters
        ----------
        key
            Hash of all that determines its results.
        history
            Its history. Its models are not stored.
        tables
            Its configuration.
        note
            More entries of ``run.json``, as JSON values.

        Raises
        ------
        OSError
            If it cannot be written, for example because the disk is full; the store is unchanged.
        """
        folder = self.folder(key)
        self.create()
        record = record_of(key, history, tables, note)
        with staging_folder(self.root, key) as staging:
            complete = staging / key
            complete.mkdir()
            save_finished(complete, history, record)
            self._move(complete, folder)
        (self.root / _FAILED / f"{key}.json").unlink(missing_ok=True)
        found = self.find(key)
        if found is None:
            raise FileNotFoundError(f"{folder} was removed while it was stored; run it again")
        return found

    def remove(self, key: str) -> bool:
        """Remove a run and its failure; return whether there was one.

        Raises
        ------
        OSError
            If it cannot be removed.
        """
        self.check()
        folder, failed = self.folder(key), self.root / _FAILED / f"{key}.json"
        found = os.path.lexists(folder) or failed.exists()
        failed.unlink(missing_ok=True)
        if os.path.lexists(folder):  # its name goes first, so that no half of it is ever found
            with staging_folder(self.root, key) as trash, suppress(FileNotFoundError):
                os.rename(folder, trash / key)
        return found

    def fail(self, failure: Failure) -> None:
        """Keep the error of a run that failed, in place of an earlier one.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        self.folder(failure.key)
        self.create()
        (self.root / _FAILED).mkdir(exist_ok=True)
        record = {**failure.note, "key": failure.key, "tables": failure.tables}
        record |= {"error": failure.error, "traceback": failure.traceback}
        replace_file(
            self.root / _FAILED / f"{failure.key}.json", json.dumps(record, indent=1) + "\n"
        )

    def failures(self) -> tuple[Failure, ...]:
        """Return the runs that failed and were not finished since, in the order of their keys.

        Raises
        ------
        FileNotFoundError, ValueError
            As :meth:`runs`.
        """
        self.check(exists=True)
        found = []
        for key in self._failed():
            if (record := readable(self.root / _FAILED / f"{key}.json")) is not None:
                tables = record.pop("tables", {})
                own = {name: record.pop(name, "") for name in ("key", "error", "traceback")}
                found.append(Failure(tables=tables, note=record, **own))
        return tuple(found)

    def create(self) -> None:
        """Create the folder and the file with the version of its layout, if they are missing.

        Raises
        ------
        ValueError
            If the folder holds other files, or a store of another version.
        OSError
            If the folder cannot be written to.
        """
        self.check()
        about = self.root / ABOUT
        if not about.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            replace_file(about, json.dumps({"format": FORMAT}) + "\n")

    def check(self, *, exists: bool = False) -> None:
        """Raise ``ValueError`` unless the folder is missing, empty, or a store of this version.

        With `exists`, a missing one raises ``FileNotFoundError``.
        """
        if exists and not self.root.exists():
            raise FileNotFoundError(f"{self.root} must be a store of runs, but it does not exist")
        about = self.root / ABOUT
        if about.is_file():
            version = (read_record(about) or {"format": FORMAT}).get("format")
            if version != FORMAT:
                raise ValueError(
                    f"{self.root} must be a store of format {FORMAT}, got format {shown(version)}; "
                    "use the version of topofl that wrote it, or another folder"
                )
            return
        if self.root.exists() and not self.root.is_dir():
            raise ValueError(f"{self.root} must be a folder, got a file; name another path")
        for name in sorted(os.listdir(self.root)) if self.root.is_dir() else ():
            # another process may have made it a store meanwhile
            if not (is_key(name) or name.startswith(".") or name in (_FAILED, ABOUT)):
                raise ValueError(
                    f"{self.root} must be a store of runs or an empty folder, it holds {name}; "
                    "name another folder"
                )

    def _failed(self) -> list[str]:
        """Return the keys of runs that failed and were not finished since."""
        failed = sorted(path.stem for path in (self.root / _FAILED).glob("*.json"))
        return [key for key in failed if is_key(key) and not self.has(key)]

    def _move(self, complete: Path, folder: Path) -> None:
        """Give the complete files of a run their name, unless it is taken by the same run."""
        if folder.is_dir() and not self.has(folder.name):  # left by something else
            shutil.rmtree(folder, ignore_errors=True)
        try:
            os.rename(complete, folder)
            sync_folder(self.root)
        except OSError:
            if not self.has(folder.name):  # otherwise another process has just stored it
                raise


def run_of_folder(folder: Path) -> StoredRun | None:
    """Return the finished run in a folder, under the name of the folder; None if it has none.

    A damaged record is left out, with a warning.
    """
    record = readable(folder / RECORD)
    if record is None:
        return None
    tables = record.pop("tables", None)
    record.pop("key", None)
    if tables is None:  # runs of paper_figures had their settings in config.toml only
        tables = config.read(folder / "config.toml")
    return StoredRun(folder, folder.absolute().name, tables, record)


def is_key(name: object) -> bool:
    """Return whether a name is a key: hexadecimal digits."""
    return isinstance(name, str) and bool(name) and not set(name) - set("0123456789abcdef")
