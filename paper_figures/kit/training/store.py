"""The store of a command's training runs, and the numbers that figures need of each run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from topofl import History, MixingMatrix, Topology, config, metrics
from topofl.runs import RunStore
from topofl.runs.identity import Run
from topofl.runs.work import Job

from .earlier_report import EarlierReport


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

    @property
    def runs(self) -> RunStore:
        """The store of the library, which finds, writes and removes the runs."""
        return RunStore(self.root)

    def folder(self, run: Run) -> Path:
        """Return the folder of a run, finished or not."""
        return self.runs.folder(run.key)

    def has(self, run: Run) -> bool:
        """Return whether a run is finished."""
        return self.runs.has(run.key)

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
        found = self.runs.find(run.key)
        if found is None:
            raise FileNotFoundError(f"{self.folder(run)} must be a finished run")
        return dict(found.note)


def job_of(run: Run) -> Job:
    """Return what a process needs to perform a run and to note the numbers of figures."""
    return Job(run.key, run.tables, extra=_numbers_for_figures)


def _numbers_for_figures(experiment: config.Experiment, history: History) -> dict[str, Any]:
    return {
        "rounds_per_epoch": _rounds_per_epoch(experiment),
        "numbers": _numbers(experiment, history),
    }


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
