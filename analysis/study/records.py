"""What a study has computed: training runs in a store, and numbers of graphs in a file."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from topofl import History
from topofl.runs import RunStore, StoredRun
from topofl.runs.execute import InProcess, Processes
from topofl.runs.execute import execute as perform_all
from topofl.runs.live import Live
from topofl.runs.run import hash_of
from topofl.runs.work import Job, Outcome

from .cells import Cell

__all__ = ["Records", "train"]


class Records:
    """The results of a study, found by hashes of everything that determines them.

    Training runs are in the folder ``runs``, a :class:`topofl.runs.RunStore`. Numbers of graphs,
    which are no runs, are in ``predictions.jsonl``, to which each computation appends one line.
    A line that was cut off when a process was killed is dropped.

    Parameters
    ----------
    folder
        Folder of the results.
    about
        Returns what determines the results of a scenario of a name, apart from the cell, as JSON
        values: its settings and the hash of its data.
    """

    def __init__(self, folder: Path, about: Callable[[str], Any]) -> None:
        self.about = about
        self.store = RunStore(folder / "runs")
        self.path = folder / "predictions.jsonl"
        self.ran: dict[str, Mapping[str, Any]] = {}
        self.failed: set[str] = set()
        self.cells: dict[str, Cell] = {}
        self.predicted: dict[str, Any] = {}
        for failure in self.store.failures() if self.store.root.exists() else ():
            if (outcomes := _of_failure(failure.error)) is not None:
                self.ran[failure.key] = outcomes
        for line in self.path.read_text("utf-8").splitlines() if self.path.exists() else ():
            try:
                key, cell, values = json.loads(line)
            except ValueError:
                continue
            self.cells[key], self.predicted[key] = Cell(**cell), values

    def key(self, cell: Cell, lr: float | None = None) -> str:
        """Return the hash of a run, or, without learning rate, of the numbers of a graph."""
        return hash_of([asdict(cell), lr, self.about(cell.scenario)])

    def prediction(self, cell: Cell) -> Any:
        """Return what is known about a graph before training; None: not computed."""
        return self.predicted.get(self.key(cell))

    def add(self, cell: Cell, values: Any, key: str = "") -> None:
        """Keep what is known about a graph; `key` replaces its hash."""
        key = key or self.key(cell)
        self.cells[key], self.predicted[key] = cell, values
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            if file.tell() and (file.seek(-1, 2), file.read(1))[1] != b"\n":
                file.write(b"\n")  # after a line that was cut off
            file.write(f"{json.dumps([key, asdict(cell), values])}\n".encode())

    def outcomes(self, cell: Cell, lr: float) -> Mapping[str, Any] | None:
        """Return the outcomes of a run; None: not performed.

        They are ``{"diverged": True}`` or ``{"missing": reason}`` for a run that cannot exist.
        """
        key = self.key(cell, lr)
        if key not in self.ran and (run := self.store.find(key)) is not None:
            self.ran[key] = _outcomes(run)
        return self.ran.get(key)

    @property
    def failures(self) -> str:
        """How many runs failed now for another reason, and how to see why; empty if none did."""
        if not self.failed:
            return ""
        return f"{len(self.failed)} failed (topofl runs {self.store.root} --failed --traceback)"


def _of_failure(error: str) -> dict[str, Any] | None:
    """Return the outcomes of a run that cannot succeed; None: it is to be tried again."""
    kind, _, reason = error.partition(": ")
    found = {"DivergenceError": {"diverged": True}, "TopologyError": {"missing": reason}}
    return found.get(kind)


def _outcomes(run: StoredRun) -> dict[str, Any]:
    """Return the outcomes of a stored run, without reading its history."""
    curves, accuracy = run.curves, run.curves["scores"]["accuracy"]
    rounds, means = np.array(curves["round"]), np.array(accuracy["mean"], dtype=float)
    return {
        "learning phase": float(means[rounds <= rounds[-1] / 2].mean()),
        "final": float(means[rounds > 0.8 * rounds[-1]].mean()),
        "worst node": accuracy["worst"][-1],
        "all rounds": float(means.mean()),
        "spread": accuracy["std"][-1],
        "consensus": run.note["consensus"],
        "curve": [round(mean, 5) for mean in means.tolist()],
        "rounds": curves["round"],
        "bytes": [int(sent) for sent in curves["bytes"]],
    }


def _noted(experiment: Any, history: History) -> dict[str, Any]:
    """Return what outcomes need and curves lack."""
    return {"consensus": float(history["consensus_distance"].mean())}


def train(
    runs: Iterable[tuple[Cell, float]],
    records: Records,
    arguments: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    executor: InProcess | Processes | None = None,
    *,
    more: Callable[[], bool] = lambda: True,
    title: str = "",
) -> None:
    """Perform the runs, cells with learning rates, that are not in the store.

    Runs that diverge and those that cannot exist are kept with their error and not repeated; runs
    that failed for another reason, such as a killed process, are tried again the next time.

    Parameters
    ----------
    runs, records
        What is performed, and where it is kept.
    arguments
        Returns the arguments of :func:`topofl.run` for a point with ``cell`` and ``lr``.
    executor
        Processes; None: this process.
    more
        Whether another run may start.
    title
        Title of the live table, which is shown on terminals.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, when the runs in progress have ended their rounds.
    OSError
        If the store cannot be written to.
    """
    todo = {records.key(*run): run for run in runs if records.outcomes(*run) is None}
    live = Live(records.store.root, len(todo), title=title)
    live.labels.update({key: _label(cell, lr) for key, (cell, lr) in todo.items()})

    def ended(outcome: Outcome) -> None:
        live.ended(outcome)
        records.failed.discard(outcome.key)
        if outcome.state == "failed" and (found := _of_failure(outcome.error)) is not None:
            records.ran[outcome.key] = found
        elif outcome.state == "failed":
            records.failed.add(outcome.key)

    with live:
        perform_all(
            [_job(key, *run, arguments) for key, run in todo.items()],
            records.store.root,
            executor or InProcess(),
            limit=executor.jobs if isinstance(executor, Processes) else 1,
            started=live.started,
            ended=ended,
            more=more,
        )


def _job(key: str, cell: Cell, lr: float, arguments: Callable[..., Mapping[str, Any]]) -> Job:
    tables = {
        "data": {"name": cell.scenario, "partition": cell.partition},
        "algorithm": {"name": cell.method, "lr": lr},
        "topology": {"name": cell.graph},
        "run": {"seed": cell.seed},
    }
    return Job(key, tables, function=arguments, point={"cell": cell, "lr": lr}, extra=_noted)


def _label(cell: Cell, lr: float) -> str:
    return f"{cell.method}, {cell.partition}, {cell.graph}, seed {cell.seed}, lr {lr:g}"
