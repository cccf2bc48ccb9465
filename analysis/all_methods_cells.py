"""Settings and outcomes of all methods on the tasks: what :mod:`analysis.all_methods` computes."""

import inspect
import json
import math
import re
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from topofl import algorithms, config
from topofl.leaderboard import Diverged, Entry, Result, Task, run_entry, tasks

from .program import completed, torch_threads

GRAPHLESS = {
    "server": "server",
    "own": "peers of its own",
    "none": "none",
}
"""What takes the place of a graph -> in the table."""

COMMITTED = Path(__file__).with_name("results") / "all_methods"

POINT = 0.01
"""Mean accuracy by which a repeated cell may differ, as on another processor."""


@dataclass(frozen=True)
class Row:
    """What is particular to a method; see ``all_methods.toml``.

    Parameters
    ----------
    name, family
        In ``topofl.algorithms``, and the group in which it is shown.
    exchanges, graph, arguments, pooled, personal, validation, model, score, note, on
        As in the file.
    """

    name: str
    family: str
    exchanges: str
    graph: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    pooled: bool = False
    personal: bool = False
    validation: float = 0.0
    model: str = ""
    score: str = "accuracy"
    note: str = ""
    on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def has_graph(self) -> bool:
        """Whether it runs over a graph that is given."""
        return self.graph not in GRAPHLESS

    def for_task(self, task: Task) -> "Row":
        """Return the row with what differs on a task, and what the study gives to all methods."""
        row = replace(self, **self.on.get(task.key, {}))
        given = dict.fromkeys(("epochs", "personal_epochs"), STUDY["epochs"])
        given |= {"rounds": task.tables["run"]["rounds"]}
        known = inspect.signature(getattr(algorithms, self.name)).parameters
        given = {name: value for name, value in given.items() if name in known}
        if self.name == "local_only":  # which takes one step per round by default
            given = {}
        return replace(row, arguments={**given, **row.arguments})


def _declared() -> dict[str, Any]:
    path = Path(__file__).with_name("all_methods.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


STUDY = _declared()["study"]

ROWS = {
    name: Row(name, family, **{"graph": STUDY["graph"], **row})
    for family, rows in _declared()["methods"].items()
    for name, row in rows.items()
}
"""The rows by the names of methods, in the order of the table."""


@dataclass(frozen=True)
class Preset:
    """How much is run.

    Parameters
    ----------
    tasks
        The tasks, with the seeds that count.
    beyond
        Further learning rates, if the best is at an end of the grid.
    """

    tasks: tuple[Task, ...]
    beyond: int


def _presets() -> dict[str, Preset]:
    full = [replace(task, seeds=tuple(STUDY["seeds"])) for task in tasks(STUDY["tasks"])]
    short = {"run": {"rounds": 4}, "evaluation": {"every": 2}}
    small = [
        replace(task, tables=_with(task.tables, short), rates=task.rates[:2], seeds=(0,))
        for task in full
    ]
    return {"full": Preset(tuple(full), STUDY["beyond"]), "small": Preset(tuple(small), 0)}


def _with(tables: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return tables with other values of some keys."""
    return {**tables, **{name: {**tables[name], **new} for name, new in changes.items()}}


PRESETS = _presets()


@dataclass(frozen=True)
class Cell:
    """What a method reached on a task.

    Parameters
    ----------
    method, task
        Their names.
    settings
        The tables of graph and method, without learning rate.
    digest
        Of these, of the task and of the rules: a cell with another digest is run again.
    refused
        Why there is no result; empty if there is one.
    tuning
        As `digest`, without the seeds that count: of a cell that differs only in these, the
        learning rate is kept, as the tuning seeds that choose it are others.
    lr, tried
        The learning rate that was chosen, and the mean accuracy over rounds of each that was tried
        on the tuning seeds; None where it diverged.
    learning, final, worst
        One number per seed, as in :class:`topofl.leaderboard.Result`.
    rounds, curve
        Evaluated rounds, and the mean accuracy then over nodes and seeds.
    messages, bytes, steps
        Messages and bytes that a node sends, and steps that it takes, per round on average.
    state
        What a node stores between rounds in addition to its model, in models.
    """

    method: str
    task: str
    settings: Mapping[str, Any]
    digest: str
    refused: str = ""
    tuning: str = ""
    lr: float = math.nan
    tried: Mapping[str, float | None] = field(default_factory=dict)
    learning: Sequence[float] = ()
    final: Sequence[float] = ()
    worst: Sequence[float] = ()
    rounds: Sequence[int] = ()
    curve: Sequence[float] = ()
    messages: float = 0.0
    bytes: float = 0.0
    steps: float = 0.0
    state: float = 0.0


Key = tuple[str, str]
"""Method and task."""

Cells = Mapping[Key, Cell]
"""Cells by method and task."""


class Plan(NamedTuple):
    """What is run of a method on a task: the entry, the task as the method runs it, and digests."""

    entry: Entry
    task: Task
    digest: str
    tuning: str


def plan(row: Row, task: Task, beyond: int) -> Plan:
    """Return what is run of a method on a task."""
    row = row.for_task(task)
    tables: dict[str, Any] = {"algorithm": {"name": row.name, **row.arguments}}
    if row.has_graph:
        tables["topology"] = row.graph
    data = dict(task.tables["data"])
    if row.validation:
        data["with_validation"] = row.validation
    seen = dict(task.tables["evaluation"])
    if row.score.endswith("fine_tuned"):
        seen["fine_tune_every"] = seen["every"]
    task = replace(task, tables={**task.tables, "data": data, "evaluation": seen})
    if row.pooled:
        task = replace(task, batch_size=task.batch_size * data["n"])
    if row.model:
        task = replace(task, tables={**task.tables, "model": row.model})
    digests = [
        _digest([tables, one.digest, row.score, beyond]) for one in (task, replace(task, seeds=()))
    ]
    return Plan(Entry(row.name, tables), task, *digests)


def _digest(parts: Sequence[Any]) -> str:
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def run_cell(row: Row, task: Task, beyond: int, store: str | Path, lr: float | None = None) -> Cell:
    """Return what a method reaches on a task; with `lr`, without choosing the rate."""
    entry, own, digest, tuning = plan(row, task, beyond)
    cell = Cell(row.name, task.key, dict(entry.tables), digest, tuning=tuning)
    how: dict[str, Any] = {"store": store, "score": row.score, "progress": False}
    try:
        with torch_threads(1):
            found = run_entry(entry, own, lr=lr, beyond=beyond, **how)
    except Diverged as error:
        return replace(cell, refused=str(error))
    except ValueError as error:
        return replace(cell, refused=_reason(str(error)))
    return _filled(cell, found, state_of(entry, own, found.lr))


def _reason(text: str) -> str:
    """Return the requirement in the message of a sweep or a run, without what it says of points."""
    found = re.search(r"`[^`]+` must .*", text)
    return found[0] if found else text


def _filled(cell: Cell, found: Result, size_and_state: tuple[int, float]) -> Cell:
    size, state = size_and_state
    return replace(
        cell,
        lr=found.lr,
        tried={lr: None if mean is None else round(mean, 5) for lr, mean in found.tried.items()},
        learning=_short(found.learning),
        final=_short(found.final),
        worst=_short(found.worst),
        rounds=list(found.rounds),
        curve=_short(found.curve),
        messages=round(found.messages, 4),
        bytes=round(found.models * size, 1),
        steps=round(found.steps, 4),
        state=state,
    )


def _short(values: Iterable[float]) -> list[float]:
    return [round(float(value), 5) for value in values]


def state_of(entry: Entry, task: Task, lr: float) -> tuple[int, float]:
    """Return the bytes of a model, and what a node stores between rounds beside it, in models."""
    tables = entry.configuration(task)
    tables["algorithm"] = {**tables["algorithm"], "lr": lr}
    found = config.build({**tables, "compute": "cpu"}).estimate()
    return 4 * found.d, round(found.state / (4 * found.d * found.n), 3)


def read_cells(folder: Path) -> dict[Key, Cell]:
    """Return the cells of a folder's ``results.json``; none if there is no such file."""
    path = folder / "results.json"
    if not path.exists():
        return {}
    values = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {(one["method"], one["task"]): Cell(**{"lr": math.nan, **one}) for one in values}


def write_cells(folder: Path, cells: Cells, preset: Preset) -> None:
    """Write ``results.json``: the rules and grids of the tasks, and one cell per line, sorted."""
    about = {
        task.key: {
            "version": task.version,
            "digest": replace(task, seeds=_frozen(task)).digest,
            "rates": task.rates,
            "tuning_seeds": task.tuning_seeds,
            "seeds": task.seeds,
            "batch_size": task.batch_size,
            "tables": task.tables,
        }
        for task in preset.tasks
    }
    lines = [json.dumps(_without_empty(cells[key])) for key in sorted(cells)]
    text = f'{{"beyond": {preset.beyond},\n "tasks": {json.dumps(about)},\n "cells": [\n'
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    path.write_text(text + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


def _frozen(task: Task) -> tuple[int, ...]:
    return next(one.seeds for one in tasks([task.key]))


def _without_empty(cell: Cell) -> dict[str, Any]:
    """Return the fields of a cell, of one without a result only the first."""
    names = ("method", "task", "settings", "digest", "refused") if cell.refused else asdict(cell)
    values = {name: getattr(cell, name) for name in names}
    return {name: value for name, value in values.items() if name != "refused" or value}


def missing(cells: Cells, preset: Preset, methods: Sequence[str]) -> list[Key]:
    """Return method and task of the cells that are not there, or are those of other settings."""
    found = {key: cell.digest for key, cell in cells.items()}
    wanted = [(ROWS[name], task) for task in preset.tasks for name in methods]
    return [
        (row.name, task.key)
        for row, task in wanted
        if found.get((row.name, task.key)) != plan(row, task, preset.beyond).digest
    ]


def tuned(cells: Cells, preset: Preset, keys: Sequence[Key]) -> dict[Key, float]:
    """Return the learning rates of cells that differ at most in the seeds that count."""
    known = {task.key: task for task in preset.tasks}
    wanted = {key: plan(ROWS[key[0]], known[key[1]], preset.beyond).tuning for key in keys}
    return {
        key: cells[key].lr
        for key in keys
        if key in cells and not cells[key].refused and cells[key].tuning == wanted[key]
    }


def with_tuning(cell: Cell, cells: Cells, rates: Mapping[Key, float]) -> Cell:
    """Return a cell that ran with a rate that was kept, with the scores that chose the rate."""
    key = (cell.method, cell.task)
    return replace(cell, tried=cells[key].tried) if key in rates and not cell.refused else cell


def compute(
    keys: Sequence[Key],
    preset: Preset,
    store: str | Path,
    processes: int,
    rates: Mapping[Key, float] | None = None,
) -> Iterable[Cell]:
    """Yield the cells of methods and tasks as they end; with `rates`, without choosing these."""
    known = {task.key: task for task in preset.tasks}
    given = rates or {}

    def arguments(key: Key) -> tuple[Any, ...]:
        return ROWS[key[0]], known[key[1]], preset.beyond, str(store), given.get(key)

    if processes == 1:
        yield from (run_cell(*arguments(key)) for key in keys)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:

        def submit(key: Key) -> Future[Cell]:
            return pool.submit(run_cell, *arguments(key))

        yield from (cell for _, cell in completed(submit, keys, processes, lambda: True))


def agreement(before: Cell, again: Cell) -> str:
    """Return how a cell that was run again agrees: ``"equal"``, ``"close"`` or what differs."""
    if again.refused:
        return f"now without a result: {again.refused}"
    pairs = [(before.learning, again.learning), (before.final, again.final)]
    apart = max(float(np.abs(np.subtract(*pair)).max()) for pair in pairs)
    if apart <= 2e-5:  # the rounding of the file
        return "equal"
    means = np.mean(before.learning), np.mean(again.learning)
    if abs(means[0] - means[1]) <= POINT:
        return "close"
    return f"accuracy over rounds {100 * means[1]:.1f} % instead of {100 * means[0]:.1f} %"


def check(cells: Cells, preset: Preset, keys: Sequence[Key], processes: int) -> int:
    """Run the tuned settings again, print how they agree, and return the exit code."""
    began, counts = time.monotonic(), {"equal": 0, "close": 0}
    tuned = [key for key in keys if key in cells and not cells[key].refused]
    rates, differ = {key: cells[key].lr for key in tuned}, []
    with tempfile.TemporaryDirectory() as store:
        found = compute(tuned, preset, store, processes, rates)
        for again in tqdm(found, total=len(tuned), desc="cells", unit="cell", disable=None):
            said = agreement(cells[again.method, again.task], again)
            if said in counts:
                counts[said] += 1
            else:
                differ.append(f"{again.method} on {again.task}: {said}")
    print(*differ, sep="\n")
    minutes = (time.monotonic() - began) / 60
    print(
        f"{counts['equal']} cells are equal to the file, {counts['close']} differ by at most "
        f"{100 * POINT:g} point of mean accuracy over rounds, {len(differ)} by more; took "
        f"{minutes:.1f} minutes"
    )
    return 1 if differ else 0
