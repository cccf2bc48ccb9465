"""``topofl runs``: lists, filters and removes stored runs, and lists folders of ``topofl run``."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from topofl._spec import parse_value
from topofl._support.check import did_you_mean, shown
from topofl._support.table import NotApplicable, Table
from topofl._support.text import printable
from topofl.cli.as_json import print_rows
from topofl.cli.notes import print_notes
from topofl.cli.output import print_table
from topofl.runs import Failure, RunStore, StoredRun
from topofl.runs.stored import runs_of_folders

__all__ = ["runs"]

Entry = StoredRun | Failure


def runs(options: argparse.Namespace) -> None:
    """Print or remove the runs of a store, or those that failed."""
    store = RunStore(options.store)
    starts = [text.partition("=")[2] for text in options.where if text.startswith("key=")]
    if options.remove and not options.failed and starts and len(starts) == len(options.where):
        _remove_by_key(store, starts, options)
        return
    every = _entries(store, options)
    settings = {entry.key: entry.settings for entry in every}
    found = _selected(every, settings, options.where)
    if options.remove:
        if not options.where and not options.failed:
            raise ValueError(
                "`--remove` must be given with --where or --failed, which say what to remove; to "
                f"remove all runs, remove the folder {options.store}"
            )
        for entry in found:
            store.remove(entry.key)
        print_notes([f"removed {len(found)} runs of {len(every)}"])
        if options.json:
            print_rows({"removed": entry.key} for entry in found)
        return
    if options.failed and options.traceback:
        if options.json:
            print_rows(_traceback_row(entry) for entry in found if isinstance(entry, Failure))
            return
        for entry in found:
            if isinstance(entry, Failure):
                print(f"{entry.key}: {printable(entry.error)}\n{entry.traceback}")
        return
    columns = _columns(found, settings, options.columns)
    print_table(_table(found, settings, columns), options)


def _remove_by_key(store: RunStore, starts: Sequence[str], options: argparse.Namespace) -> None:
    """Remove runs by the start of their keys without reading them, since they may be damaged."""
    if runs_of_folders(store.root):
        _entries(store, options)  # raises
    every = store.keys()
    found = [key for key in every if all(start and key.startswith(start) for start in starts)]
    for key in found:
        store.remove(key)
    print_notes([f"removed {len(found)} runs of {len(every)}"])


def _traceback_row(failure: Failure) -> dict[str, Any]:
    return {"key": failure.key, "error": failure.error, "traceback": failure.traceback}


def _entries(store: RunStore, options: argparse.Namespace) -> Sequence[Entry]:
    """Return the runs of a store or those that failed, or the runs in folders of topofl run."""
    if found := runs_of_folders(store.root):
        given = next((name for name in ("remove", "failed") if getattr(options, name)), None)
        if given is not None:
            raise ValueError(
                f"`--{given}` must be given for a store, {store.root} holds folders of topofl run, "
                f"such as {found[0].key}; remove folders without topofl"
            )
        return found
    return store.failures() if options.failed else store.runs()


def _selected(
    entries: Sequence[Entry], settings: Mapping[str, Mapping[str, Any]], where: Sequence[str]
) -> list[Entry]:
    """Return the entries that meet all conditions ``key=value``."""
    found = list(entries)
    known = {name for own in settings.values() for name in own}
    for text in where:
        name, equals, value = (word.strip() for word in text.partition("="))
        if not name or not equals:
            raise ValueError(f"`--where` must be key=value, as in data.alpha=0.1, got {text!r}")
        if name == "key":
            found = [entry for entry in found if entry.key.startswith(value)]
            continue
        _check_setting("--where", name, known)
        wanted = parse_value(value)
        found = [
            entry
            for entry in found
            if name in settings[entry.key] and settings[entry.key][name] in (wanted, value)
        ]
    return found


def _check_setting(option: str, name: str, known: set[str]) -> None:
    if known and name not in known:
        raise ValueError(
            f"`{option}` must name a setting of the runs, got {shown(name)}"
            f"{did_you_mean(name, known) or '; as in topology.name=ring'}"
        )


def _columns(
    entries: Sequence[Entry], settings: Mapping[str, Mapping[str, Any]], names: str | None
) -> list[str]:
    """Return the settings to show: those given, or those in which the runs differ."""
    own = [settings[entry.key] for entry in entries]
    known = list(dict.fromkeys(name for one in own for name in one))
    if names is not None:
        chosen = [name.strip() for name in names.split(",")]
        for name in chosen:
            _check_setting("--columns", name, set(known))
        return list(dict.fromkeys(chosen))
    always = [name for name in ("algorithm.name", "topology.name") if name in known]
    differing = [name for name in known if len({shown(one.get(name)) for one in own}) > 1]
    return list(dict.fromkeys([*always, *differing]))


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
    rows = tuple(
        (
            entry.key,
            *(_cell(settings[entry.key].get(name)) for name in columns),
            *(_finals(entry, scores) if isinstance(entry, StoredRun) else (entry.error,)),
        )
        for entry in entries
    )
    last = ("error",) if is_failed else ("round", *scores, "seconds")
    return Table(("key", *columns, *last), rows, title=f"{len(entries)} runs")


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
