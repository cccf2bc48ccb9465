"""The record ``run.json`` of a run, its learning curves, and what is shown of it."""

import json
import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from topofl._support.callers import warn_caller
from topofl._support.check import shown
from topofl._support.files import naming, sync_file
from topofl._support.notebook import as_html, paragraph
from topofl._support.table import NotApplicable, Table
from topofl.history import SECONDS, History

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


def record_of(
    key: str, history: History, tables: Mapping[str, Any], note: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the contents of ``run.json``: key, configuration, curves and further entries."""
    return {"key": key, "tables": tables, "curves": curves_of(history), **(note or {})}


def curves_of(history: History) -> dict[str, Any]:
    """Return the curves of a run at its evaluations, as JSON values.

    Parameters
    ----------
    history
        The history of a run with E evaluations.

    Returns
    -------
    dict
        Lists of length E: ``round``; ``bytes`` and ``messages`` that all nodes sent up to the end
        of that round; ``seconds`` on the simulated clock, only if the run recorded it. ``scores``
        has an entry for every column of scores, such as ``accuracy``, with statistics over nodes:
        ``mean``, ``worst``, ``worst_tenth`` (mean of the worst tenth of the nodes, rounded down,
        but at least one), ``best`` and ``std`` (population standard deviation). Nodes without a
        score are left out. Numbers that are not finite, which JSON lacks, are None.
        ``low_is_good`` says so by column. If there are scores before an exchange,
        ``before_exchange`` has their names and the ``bytes`` sent until then.

    Examples
    --------
    >>> scores = {"round": np.array([0, 2]), "accuracy": np.array([[0.0, 0.5], [0.5, 1.0]])}
    >>> sent = {"messages": np.array([4, 4]), "bytes": np.array([80, 80])}
    >>> curves = curves_of(History({}, sent, scores, np.zeros((2, 2))))
    >>> curves["round"], curves["bytes"], curves["scores"]["accuracy"]["mean"]
    ([0, 2], [0, 160], [0.25, 0.75])
    """
    rounds = history.evaluations["round"].astype(int)
    columns: dict[str, Any] = {"round": rounds.tolist()}
    for name in ("bytes", "messages"):
        total = np.concatenate([[0], np.cumsum(history.rounds[name])])
        columns[name] = total[rounds].tolist()
    if SECONDS in history.rounds:
        times = np.concatenate([[0.0], history.rounds[SECONDS]])
        columns["seconds"] = _plain(times[rounds])
    scored = [name for name in history.score_columns if name in history.evaluations]
    early = [name for name in scored if history.score_columns[name].stage == "before_exchange"]
    if early:
        total = np.concatenate([[0], np.cumsum(history.rounds["bytes"])])
        sent = total[np.maximum(0, rounds - 1)].tolist()
        columns["before_exchange"] = {"scores": early, "bytes": sent}
    columns["low_is_good"] = {name: history.low_is_good(name) for name in scored}
    columns["scores"] = {
        name: _over_nodes(history.evaluations[name], columns["low_is_good"][name])
        for name in scored
    }
    return columns


def _over_nodes(values: np.ndarray, low_is_good: bool) -> dict[str, list[float | None]]:
    """Return statistics over nodes of scores (E, n)."""
    found: dict[str, list[float]] = {
        key: [] for key in ("mean", "worst", "worst_tenth", "best", "std")
    }
    for row in values:
        wide = row.astype(np.float64)
        known = wide[~np.isnan(wide)]
        worst_first = np.sort(known)[::-1] if low_is_good else np.sort(known)
        worst = worst_first[: max(1, len(known) // 10)]
        with np.errstate(invalid="ignore"):  # infinite losses have no deviation
            numbers = (
                (np.nanmean(wide), worst[0], worst.mean(), worst_first[-1], np.nanstd(wide))
                if len(known)
                else (np.nan,) * 5
            )
        for column, number in zip(found.values(), numbers, strict=True):
            column.append(float(number))
    return {key: _plain(column) for key, column in found.items()}


def _plain(values: Iterable[float]) -> list[float | None]:
    """Return numbers as JSON values: None for those that are not finite."""
    return [float(value) if np.isfinite(value) else None for value in values]


ROWS = 40
"""Most rows of a table of runs in a notebook."""


def cell_of(value: Any) -> Any:
    """Return the value of a setting as a cell.

    Examples
    --------
    >>> cell_of(None), cell_of(0.5), cell_of([1, 2])
    ('none', 0.5, '[1, 2]')
    """
    if value is None:
        return "none"
    return value if isinstance(value, str | int | float) else str(value)


def finals_of(
    curves: Mapping[str, Any], scores: Sequence[str], statistics: Sequence[str]
) -> Iterator[Any]:
    """Yield last round, final scores and megabytes of a run with these curves as cells."""
    yield curves["round"][-1]
    for name in scores:
        missing = f"no finite {name}" if name in curves["scores"] else f"{name} was not evaluated"
        for statistic in statistics:
            values = curves["scores"].get(name, {}).get(statistic, [None])
            yield NotApplicable(missing) if values[-1] is None else values[-1]
    yield curves["bytes"][-1] / 1e6


def heads_of(settings: Sequence[str], others: Collection[str]) -> list[str]:
    """Return the names of settings as columns, different from those of the `others`.

    Arguments of a user's function have the names that their author gave them.

    Examples
    --------
    >>> heads_of(["algorithm.lr", "round"], ["round", "accuracy"])
    ['algorithm.lr', 'setting round']
    """
    heads = list(settings)
    for k in range(len(heads)):
        while heads[k] in others or heads.count(heads[k]) > 1:
            heads[k] = f"setting {heads[k]}"
    return heads


def table_as_html(text: str, table: Table) -> str:
    """Return text and a table, of which the first rows are shown if it is long."""
    more = len(table.rows) - ROWS
    note = paragraph(f"{more} more rows are in the table") if more > 0 else ""
    return as_html(text) + Table(table.columns, table.rows[:ROWS])._repr_html_() + note


def run_as_html(text: str, curves: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the text of a run, its final scores, and its settings."""
    scores = list(curves["scores"])
    heads = [f"{name}{end}" for name in scores for end in ("", " worst tenth")]
    cells = tuple(finals_of(curves, scores, ("mean", "worst_tenth")))
    finals = Table(("round", *heads, "MB sent"), (cells,))
    return as_html(text) + finals._repr_html_() + settings_as_html(settings)


def settings_as_html(settings: Mapping[str, Any]) -> str:
    """Return a table of settings."""
    rows = tuple((name, cell_of(value)) for name, value in settings.items())
    return Table(("setting", "value"), rows)._repr_html_()


def runs_as_html(
    text: str,
    settings: Mapping[str, Mapping[str, Any]],
    curves: Mapping[str, Any],
    *,
    more: int,
    failed: int,
) -> str:
    """Return the text of a store, and a row per run.

    Parameters
    ----------
    text
        The text.
    settings, curves
        Those of each run by its key.
    more
        Number of finished runs without a row.
    failed
        Number of runs that failed.
    """
    differing = _differing(list(settings.values()))
    scores = list(dict.fromkeys(name for own in curves.values() for name in own["scores"]))
    rows = tuple(
        (
            key,
            *(cell_of(own.get(name)) for name in differing),
            *finals_of(curves[key], scores, ["mean"]),
        )
        for key, own in settings.items()
    )
    heads = heads_of(differing, ["key", "round", *scores, "MB sent"])
    table = Table(("key", *heads, "round", *scores, "MB sent"), rows)
    counts = {f"{more} more run{'' if more == 1 else 's'}": more, f"{failed} failed": failed}
    notes = (paragraph(words) for words, count in counts.items() if count)
    return as_html(text) + table._repr_html_() + "".join(notes)


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings in which runs differ, and those that are always named."""
    names = dict.fromkeys(name for own in settings for name in own)
    always = ("algorithm.name", "topology.name")
    return [
        name
        for name in names
        if name in always or len({shown(own.get(name)) for own in settings}) > 1
    ]
