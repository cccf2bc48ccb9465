"""A folder of finished training runs, each with its history, settings and cost."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from topofl import History, MixingMatrix, Topology, config, metrics
from topofl.runs.cost import environment, peak_memory_megabytes, reset_peak_memory
from topofl.runs.run import Run

from .earlier_report import EarlierReport

__all__ = ["Store", "graph_numbers"]


@dataclass(frozen=True)
class Store:
    """A folder of finished runs, one folder each: ``history/``, ``config.toml`` and ``run.json``.

    Parameters
    ----------
    root
        The folder.
    earlier
        Numbers of an earlier report, for figures that do not need the runs themselves.
    """

    root: Path
    earlier: EarlierReport = field(default_factory=EarlierReport)

    def folder(self, run: Run) -> Path:
        """Return the folder of a run, finished or not."""
        return self.root / run.key

    def has(self, run: Run) -> bool:
        """Return whether a run is finished."""
        return (self.folder(run) / "run.json").is_file()

    def earlier_curves(self, runs: Sequence[Run]) -> Mapping[str, Any] | None:
        """Return an arm's curves from an earlier report; None if missing or all runs are stored."""
        if not self.earlier.arms or all(self.has(run) for run in runs):
            return None
        return self.earlier.arms.get(tuple(run.key for run in runs))

    def load(self, run: Run) -> tuple[History, dict[str, Any]]:
        """Return the history of a finished run and its note: numbers, time, memory, environment.

        Raises
        ------
        FileNotFoundError
            If the run is not finished.
        ValueError
            If its files are damaged.
        """
        try:
            return History.load(self.folder(run) / "history"), self.load_note(run)
        except (FileNotFoundError, ValueError) as error:
            raise type(error)(
                f"{error}; remove {self.folder(run)} to train the run again"
            ) from error

    def load_note(self, run: Run) -> dict[str, Any]:
        """Return the note of a finished run; raises as :meth:`load`."""
        path = self.folder(run) / "run.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is damaged: {error}") from error

    def perform(self, run: Run) -> None:
        """Train a run and store it atomically, unless another process has stored it meanwhile."""
        reset_peak_memory()
        start = time.perf_counter()
        experiment = config.build(run.tables)
        history = experiment.run(progress=False)
        seconds = time.perf_counter() - start
        note = {
            "seconds": seconds,
            "megabytes": peak_memory_megabytes(),
            "rounds_per_epoch": _rounds_per_epoch(experiment),
        }
        note |= {"numbers": _numbers(experiment, history), "made": environment(history)}
        with tempfile.TemporaryDirectory(
            prefix=".", dir=self.root, ignore_cleanup_errors=True
        ) as temporary:
            complete = Path(temporary, "run")
            history.save(complete / "history")
            (complete / "config.toml").write_text(
                config.dumps(experiment.tables_of(history)), encoding="utf-8"
            )
            (complete / "run.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
            self._move(run, complete)

    def _move(self, run: Run, complete: Path) -> None:
        """Move the complete files of a run to its folder."""
        folder = self.folder(run)
        if self.has(run):
            return
        shutil.rmtree(folder, ignore_errors=True)  # an incomplete run
        try:
            os.replace(complete, folder)
        except OSError:
            if not self.has(run):  # otherwise another process has just stored it
                raise


def _rounds_per_epoch(experiment: config.Experiment) -> int:
    """Return the number of minibatches in a pass over the largest node's data."""
    return -(-int(experiment.clients.sizes.max()) // experiment.tables["algorithm"]["batch_size"])


def _numbers(experiment: config.Experiment, history: History) -> dict[str, float]:
    """Return numbers of the graph and of the messages for the tables next to the figures.

    For time-varying graphs, servers and isolated nodes only the numbers of messages are known.
    """
    n, counts = experiment.clients.n, experiment.clients.label_counts
    numbers = {
        name: float(history[name].mean()) / n for name in ("messages", "messages_paper", "bytes")
    }
    numbers["busiest_bytes"] = float(history["busiest_bytes"].mean())
    graph = experiment.topology
    if not isinstance(graph, Topology) or not history.matrices:
        return numbers
    weights = history.mixing(0)
    numbers |= graph_numbers(graph, weights)
    numbers["heterogeneity"] = metrics.neighborhood_heterogeneity(weights, counts)
    if graph.groups:
        numbers["skew"] = float(np.mean(metrics.clique_skew(graph.groups, counts)))
    return numbers


def graph_numbers(graph: Topology, weights: MixingMatrix) -> dict[str, float]:
    """Return the mean degree (out-degree of directed graphs) and the spectral gap."""
    return {"degree": float(graph.out_degrees.mean()), "gap": weights.spectral_gap}
