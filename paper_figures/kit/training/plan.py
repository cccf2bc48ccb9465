"""The plan of a command: training runs with estimated time and memory."""

import json
from collections.abc import Sequence
from typing import Any

from topofl import Table
from topofl.runs.identity import Run
from topofl.runs.probe import probe

from ..figure import Figure
from ..figure_data import needed
from ..setting import Setting
from .keys import keyed
from .store import Store


def plan(figures: Sequence[Figure], setting: Setting, store: Store) -> Table:
    """Return one row per figure: its training runs, those to do, and their time and memory.

    Times are for a single process, estimated by :func:`probe` from one run of every kind; a run
    that figures share is counted for the first of them. The seconds that figures take in addition
    to training are not included.
    """
    seen: set[str] = set()
    kinds: dict[str, tuple[float, float]] = {}
    rows: list[tuple[Any, ...]] = []
    for figure in figures:
        runs = keyed(figure.runs(setting))
        todo = [
            run
            for key, run in needed(figure, setting, store).items()
            if key not in seen and not store.has(run)
        ]
        seen |= set(runs)
        costs = [_known_or_probed(run, kinds) for run in todo]
        minutes = sum(seconds for seconds, _ in costs) / 60
        peak = max((megabytes for _, megabytes in costs), default=0.0)
        rows.append((figure.id, len(runs), len(todo), minutes, peak))
    todo_total, minutes_total = (sum(row[k] for row in rows) for k in (2, 3))
    rows.append(
        ("all", len(seen), todo_total, minutes_total, max([0.0, *(row[4] for row in rows)]))
    )
    count = len(setting.seeds)
    title = f"scale {setting.scale}, {count} seed{'s' * (count > 1)}; estimated from probes"
    columns = ("figure", "runs", "to do", "minutes", "MiB per process")
    return Table(columns, tuple(rows), title=title)


def _known_or_probed(run: Run, kinds: dict[str, tuple[float, float]]) -> tuple[float, float]:
    kind = json.dumps(_without_seeds(run.tables), sort_keys=True, default=str)
    if kind not in kinds:
        kinds[kind] = probe(run)
    return kinds[kind]


def _without_seeds(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_seeds(entry)
            for key, entry in value.items()
            if key not in ("seed", "split_seed")
        }
    return value
