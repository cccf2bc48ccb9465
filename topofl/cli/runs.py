"""``topofl runs``: lists, filters and removes stored runs, and lists folders of ``topofl run``.

Runs that are not finished are listed too, with what finishes them.
"""

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from topofl._support.calls import parse_value, table_of
from topofl._support.check import did_you_mean, plain_text, shown
from topofl._support.table import NotApplicable, Table
from topofl._support.text import printable
from topofl.cli.as_json import print_rows
from topofl.cli.notes import print_notes, runs_text
from topofl.cli.output import print_table
from topofl.cli.unfinished import (
    Unfinished,
    unfinished_in,
    unfinished_in_folders,
    unfinished_in_store,
)
from topofl.runs import Failure, RunStore, StoredRun
from topofl.runs.records import ABOUT, RECORD, in_folder_of_run
from topofl.runs.shown import heads_of
from topofl.runs.stored import run_of_folder, runs_of_folders
from topofl.summary.settings import Settings, is_seed, levels_text

__all__ = ["runs"]

Entry = StoredRun | Failure | Unfinished


FINISHED_BY = "finished by"
"""Column with what finishes a run, in lists with runs that are not finished."""

NOT_FINISHED = NotApplicable("the run is not finished")


def runs(options: argparse.Namespace) -> None:
    """Print or remove the runs of a store, or those that failed."""
    store = RunStore(options.store)
    starts = [text.partition("=")[2] for text in options.where if text.startswith("key=")]
    if options.remove and not options.failed and starts and len(starts) == len(options.where):
        _remove_by_key(store, starts, options)
        return
    every = _entries(store, options)
    settings = {entry.key: entry.settings for entry in every}
    matching = _selected(every, settings, options.where)
    listed = StoredRun if options.remove else StoredRun | Unfinished
    kind = Failure if options.failed else listed
    found = [entry for entry in matching if isinstance(entry, kind)]
    if options.remove:
        if not options.where and not options.failed:
            raise ValueError(
                "`--remove` must be given with --where or --failed, which say what to remove; to "
                f"remove all runs, remove the folder {options.store}"
            )
        among = sum(isinstance(entry, kind) for entry in every)
        _remove(store, [entry.key for entry in found], among, options)
        return
    if options.failed and options.traceback:
        if options.json:
            print_rows(_traceback_row(entry) for entry in found if isinstance(entry, Failure))
            return
        for entry in found:
            if isinstance(entry, Failure):
                print(f"{entry.key}: {printable(entry.error)}\n{entry.traceback}")
        return
    columns = _columns(matching, settings, options.columns)
    if (store.root / ABOUT).exists():  # otherwise folders are in the order of their names
        order = sorted(_columns(matching, settings, None), key=is_seed)  # seeds come last
        found.sort(key=lambda entry: [_place(settings[entry.key].get(name)) for name in order])
    print_table(_table(found, settings, columns), options)
    if not options.failed and (failed := sum(isinstance(one, Failure) for one in matching)):
        print_notes([f"{failed} failed, see --failed"])
    done = [entry for entry in found if isinstance(entry, StoredRun)]
    if unscored := sum(not entry.curves["scores"] for entry in done):
        print_notes(
            [f"{unscored} of {runs_text(len(done))} evaluated nothing: evaluation.on is []"]
        )


def _remove_by_key(store: RunStore, starts: Sequence[str], options: argparse.Namespace) -> None:
    """Remove runs by the start of their keys without reading them, since they may be damaged."""
    if _in_folders(store):
        _entries(store, options)  # raises
    every = store.keys()
    found = [key for key in every if all(start and key.startswith(start) for start in starts)]
    _remove(store, found, len(every), options)


def _remove(store: RunStore, keys: Sequence[str], among: int, options: argparse.Namespace) -> None:
    for key in keys:
        store.remove(key)
    print_notes([f"removed {len(keys)} of {runs_text(among)}"])
    if options.json:
        print_rows({"removed": key} for key in keys)


def _traceback_row(failure: Failure) -> dict[str, Any]:
    return {"key": failure.key, "error": failure.error, "traceback": failure.traceback}


def _entries(store: RunStore, options: argparse.Namespace) -> Sequence[Entry]:
    """Return all runs of a store, also those that failed, or those in folders of topofl run."""
    if found := _in_folders(store):
        given = next((name for name in ("remove", "failed") if getattr(options, name)), None)
        if given is not None:
            raise ValueError(
                f"`--{given}` must be given for a store, {store.root} holds folders of topofl run, "
                f"such as {found[0].key}; remove folders without topofl"
            )
        return found
    if _holds_records(store.root):
        return []  # all of them are damaged, of which warnings tell
    return [*store.runs(), *store.failures(), *unfinished_in_store(store)]


def _holds_records(root: Path) -> bool:
    """Return whether a folder without a store holds folders of topofl run, readable or not."""
    if (root / ABOUT).exists() or not root.is_dir():
        return False
    return any(in_folder_of_run(path) for path in (root / RECORD, *root.glob(f"*/{RECORD}")))


def _in_folders(store: RunStore) -> list[StoredRun | Unfinished]:
    """Return the runs in folders of topofl run, finished or not, by the names of the folders.

    The folder may also be that of one run.
    """
    if (store.root / ABOUT).exists():
        return []
    own = run_of_folder(store.root)
    if single := [*([] if own is None else [own]), *unfinished_in(store.root)]:
        return single
    found = [*runs_of_folders(store.root), *unfinished_in_folders(store.root)]
    return sorted(found, key=lambda entry: entry.key)


def _selected(
    entries: Sequence[Entry], settings: Mapping[str, Mapping[str, Any]], where: Sequence[str]
) -> list[Entry]:
    """Return the entries that meet all conditions ``key=value``."""
    found = list(entries)
    for text in where:
        name, equals, value = (word.strip() for word in text.partition("="))
        if not name or not equals:
            raise ValueError(f"`--where` must be key=value, as in data.alpha=0.1, got {text!r}")
        if name == "key":
            found = [entry for entry in found if entry.key.startswith(value)]
            continue
        wanted = _wanted(name, value, settings.values())
        meeting = [entry for entry in found if _meets(settings[entry.key], wanted)]
        if not any(_meets(own, wanted) for own in settings.values()):
            print_notes(list(_existing(wanted, settings.values())))
        found = meeting
    return found


Wanted = dict[str, tuple[Any, ...]]
"""Values that meet a condition, by the full name of a setting."""


def _wanted(name: str, value: str, own: Collection[Mapping[str, Any]]) -> Wanted:
    """Return the condition ``name=value``; a table such as ``topology`` may have arguments."""
    full = _resolved("--where", name, own)
    if any(full in one for one in own) or not own:
        return {full: (parse_value(value), value)}
    table = table_of(value)
    return {f"{full}.{key}": (entry,) for key, entry in table.items()}


def _resolved(option: str, name: str, own: Collection[Mapping[str, Any]]) -> str:
    """Return the full name of a setting or table, from a short one as in topofl.summarize."""
    own = [one for one in own if one]  # stores of earlier versions have none of runs begun
    if not own or any(name in one for one in own):
        return name
    return Settings.of(list(own)).resolve(option, name)


def _meets(own: Mapping[str, Any], wanted: Wanted) -> bool:
    return all(name in own and own[name] in values for name, values in wanted.items())


def _existing(wanted: Wanted, own: Collection[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a note about each setting that has a wanted value in no run."""
    for name, values in wanted.items():
        known = sorted({plain_text(one[name]) for one in own if name in one})
        if known and not any(_meets(one, {name: values}) for one in own):
            yield (
                f"no run has {name}={values[-1]}, its values are {levels_text(known)}"
                f"{did_you_mean(str(values[-1]), known)}"
            )


def _place(value: Any) -> tuple[bool, bool, float, str]:
    """Return a key by which settings are sorted: numbers, then text, then none."""
    number = isinstance(value, int | float)
    return value is None, not number, float(value) if number else 0.0, str(value)


def _columns(
    entries: Sequence[Entry], settings: Mapping[str, Mapping[str, Any]], names: str | None
) -> list[str]:
    """Return the settings to show: those given, or those in which the runs differ."""
    own = [settings[entry.key] for entry in entries if settings[entry.key]]
    compared = Settings.of(own)
    known = list(compared.levels)
    differing = [name for name in known if len({shown(one.get(name)) for one in own}) > 1]
    if names is not None:
        chosen = [
            _resolved("--columns", name.strip(), settings.values()) for name in names.split(",")
        ]
        return list(
            dict.fromkeys(
                member for name in chosen for member in _members(name, compared, differing)
            )
        )
    always = [name for name in ("algorithm.name", "topology.name") if name in known]
    return list(dict.fromkeys([*always, *differing]))


def _members(name: str, compared: Settings, differing: Sequence[str]) -> list[str]:
    """Return a setting, or the function of a table with those arguments in which runs differ."""
    if name not in compared.tables:
        return [name]
    inside = [one for one in differing if one.startswith(f"{name}.") and not is_seed(one)]
    return [f"{name}.name", *inside]


def _table(
    entries: Sequence[Entry], settings: Mapping[str, Mapping[str, Any]], columns: Sequence[str]
) -> Table:
    """Return one row per run with its final scores, or per failure with its error."""
    is_failed = any(isinstance(entry, Failure) for entry in entries)
    scores = list(
        dict.fromkeys(
            name
            for entry in entries
            if isinstance(entry, StoredRun)
            for name in entry.curves["scores"]
        )
    )
    begun = [entry for entry in entries if isinstance(entry, Unfinished)]
    rows = tuple(
        (
            entry.key,
            *_settings_cells(settings[entry.key], columns),
            *_last_cells(entry, scores),
            *([entry.remedy if isinstance(entry, Unfinished) else ""] if begun else []),
        )
        for entry in entries
    )
    last = ("error",) if is_failed else ("round", *scores, "seconds")
    last = (*last, FINISHED_BY) if begun else last
    heads = heads_of(columns, ["key", *last])
    title = runs_text(len(entries)) + (f", {len(begun)} not finished" if begun else "")
    return Table(("key", *heads, *last), rows, title=title)


def _settings_cells(own: Mapping[str, Any], columns: Sequence[str]) -> list[Any]:
    """Return the settings of a run, which stores of earlier versions have not of one begun."""
    if not own:
        return [NOT_FINISHED] * len(columns)
    return [_cell(own.get(name)) for name in columns]


def _last_cells(entry: Entry, scores: Sequence[str]) -> tuple[Any, ...]:
    """Return how far a run came: its final scores, its error, or its newest checkpoint."""
    if isinstance(entry, StoredRun):
        return _finals(entry, scores)
    if isinstance(entry, Failure):
        return (" ".join(entry.error.split()),)
    return entry.round, *([NOT_FINISHED] * (len(scores) + 1))


def _finals(run: StoredRun, scores: Sequence[str]) -> tuple[Any, ...]:
    """Return last round, final scores and seconds of a run."""
    curves = run.curves
    finals = [curves["scores"].get(name, {}).get("mean", [None])[-1] for name in scores]
    cells = [NotApplicable("none recorded") if value is None else value for value in finals]
    seconds = run.note.get("seconds", NotApplicable("none recorded"))
    return curves["round"][-1], *cells, seconds


def _cell(value: Any) -> Any:
    if value is None:
        return "none"
    return value if isinstance(value, str | int | float) else shown(value)
