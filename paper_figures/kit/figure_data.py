"""The data of a figure on disk: computed once, or read from an earlier report."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import topofl
from topofl.report import replacing
from topofl.runs.identity import Run, content, peak_memory_megabytes, reset_peak_memory, versions

from .figure import Figure
from .setting import Setting
from .training.keys import keyed
from .training.store import Store


def needed(figure: Figure, setting: Setting, store: Store) -> dict[str, Run]:
    """Return the runs of a figure that are missing from an earlier report, by key."""
    runs = keyed(figure.runs(setting))
    if _is_in_earlier_report(figure, setting, store, runs):
        return {}
    if figure.arms is None:
        return runs
    arms = [arm for panel in figure.arms(setting).values() for arm in panel.values()]
    return keyed(run for arm in arms if store.earlier_curves(arm) is None for run in arm)


def computed(
    figure: Figure, setting: Setting, store: Store, path: Path, runs: Mapping[str, Run]
) -> dict[str, Any]:
    """Return the record of a figure's data and cost; computed unless stored with the same key.

    A page with a slider over rounds is written only where the figure's runs are stored.
    """
    key = _key(figure, setting, list(runs))
    stored = _stored(path)
    page = None if figure.page is None else path.with_name(figure.page_name)
    is_complete = page is None or page.exists() or not all(map(store.has, runs.values()))
    if stored.get("key") == key and is_complete:
        return stored
    if _is_in_earlier_report(figure, setting, store, runs):
        if page is not None:
            page.unlink(missing_ok=True)  # it would show other runs
        _write_record(path, store.earlier.figures[key])
        return _stored(path)
    reset_peak_memory()
    start = time.perf_counter()
    data = figure.compute(setting, store)
    if page is not None and figure.page is not None:
        write_text(page, figure.page(setting, store))
    record = {
        "figure": figure.id,
        "scale": setting.scale,
        "seeds": setting.seeds,
        "versions": versions(),
        "key": key,
        "seconds": time.perf_counter() - start,
        "megabytes": peak_memory_megabytes(),
        "runs": _tables(runs),
        "data": data,
        "notes": {name: note_of(store, run) for name, run in runs.items()},
    }
    _write_record(path, record)
    return _stored(path)  # with the rounding of JSON, as it is read the next time


def _write_record(path: Path, record: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(record, separators=(",", ":")))


def _key(figure: Figure, setting: Setting, keys: Sequence[str]) -> str:
    """Return a hash of everything that determines a figure's data, 16 hexadecimal digits."""
    determined = [
        figure.id,
        setting.scale,
        setting.seeds,
        setting.datasets,
        list(keys),
        topofl.__version__,
    ]
    determined += [] if keys or setting.scale == "smoke" else [_contents(figure, setting)]
    return hashlib.sha256(json.dumps(determined).encode()).hexdigest()[:16]


def _is_in_earlier_report(
    figure: Figure, setting: Setting, store: Store, runs: Mapping[str, Run]
) -> bool:
    """Return whether an earlier report has the figure, and some of its runs are not stored."""
    if not store.earlier.figures or all(map(store.has, runs.values())):
        return False
    return _key(figure, setting, list(runs)) in store.earlier.figures


def note_of(store: Store, run: Run) -> dict[str, Any]:
    """Return a run's time, memory and environment; an earlier report may lack some of them."""
    note = store.load_note(run) if store.has(run) else store.earlier.notes.get(run.key, {})
    made = note.get("environment", note.get("made"))  # its name in earlier versions
    costs = {name: note[name] for name in ("seconds", "megabytes") if name in note}
    return costs if made is None else {**costs, "made": made}


def _contents(figure: Figure, setting: Setting) -> list[str]:
    """Return hashes of the datasets of a figure without runs, whose keys would include them."""
    shown = [name for name in (*figure.datasets, *figure.optional) if name in setting.datasets]
    return [content(name, setting.root_of(name), False) for name in shown]


def _tables(runs: Mapping[str, Run]) -> dict[str, Any]:
    """Return the configuration tables of runs by key, without the data folder."""
    tables = {}
    for key, run in runs.items():
        data = {name: value for name, value in run.tables["data"].items() if name != "root"}
        tables[key] = {**run.tables, "data": data}
    return tables


def _stored(path: Path) -> dict[str, Any]:
    """Return the record in a figure's JSON file; empty if the file is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as file:
        file.write(text)
