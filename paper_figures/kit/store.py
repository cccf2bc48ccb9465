"""Training runs on disk: those of a command, and numbers of an earlier report in place of some.

A figure's JSON file contains the keys of its runs, hashes of everything that determines them.
Numbers of runs with the same keys are read from the file; all other runs are trained.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from topofl import History, MixingMatrix, Topology, config, metrics
from topofl.runs import RunStore
from topofl.runs.execute import as_executor, execute
from topofl.runs.identity import Run
from topofl.runs.work import Job, Outcome


@dataclass(frozen=True)
class EarlierReport:
    """Contents of the JSON files of figures.

    Parameters
    ----------
    figures
        Contents of whole files by the figure's key, a hash of everything that determines its data.
    arms
        Curves of an arm as the figure stored them, by the keys of its runs, one per seed.
    notes
        Cost and environment of runs by key: ``seconds``, ``megabytes`` and, if recorded, ``made``.
    """

    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    arms: Mapping[tuple[str, ...], Mapping[str, Any]] = field(default_factory=dict)
    notes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load_earlier_report(folder: str | Path | None) -> EarlierReport:
    """Return the contents of the figures' JSON files in a folder; empty if it is None.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist or contains no such file.
    ValueError
        If a file is damaged.
    """
    if folder is None:
        return EarlierReport()
    files = []
    for path in sorted(Path(folder).glob("*.json")):
        try:
            files.append(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(
                f"{path} is damaged: {error}; create it again, or choose another folder"
            ) from error
    figures = [file for file in files if isinstance(file, dict) and {"key", "data"} <= set(file)]
    if not figures:
        raise FileNotFoundError(
            "`kept` must be a folder with the JSON files of an earlier report, found none in "
            f"{folder}"
        )
    arms = {keys: entry for file in figures for keys, entry in _arms(file)}
    notes = {}
    for keys, entry in arms.items():
        numbers = _curves_of(entry)[0]["numbers"]
        known = [name for name in ("seconds", "megabytes") if name in numbers]
        notes |= {key: {name: numbers[name][k] for name in known} for k, key in enumerate(keys)}
    for file in figures:
        notes |= file.get("notes", {})
    return EarlierReport({file["key"]: file for file in figures}, arms, notes)


def _arms(file: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield the keys of each arm's runs and its curves, in the order of the file.

    Runs are in the order of the arms, seed by seed. Nothing is yielded for files whose arms share
    runs, because their runs cannot be assigned.
    """
    data = file["data"].get("panels", file["data"])
    panels = [panel for panel in data.values() if isinstance(panel, dict)]
    entries = [entry for panel in panels for entry in panel.values()]
    runs, seeds = file.get("runs", {}), list(file["seeds"])
    if not entries or not all(map(_curves_of, entries)) or len(runs) != len(entries) * len(seeds):
        return
    keys = iter(runs)
    for entry in entries:
        own = tuple(next(keys) for _ in seeds)
        if any(
            [runs[key]["run"]["seed"] for key in own] != curve["seeds"]
            for curve in _curves_of(entry)
        ):
            raise ValueError(
                f"the file of {file['figure']} is damaged: the seeds of its runs and curves differ"
            )
        yield own, entry


def _curves_of(entry: Any) -> Sequence[Mapping[str, Any]]:
    """Return the curves of an arm, one in all or one per stage; empty for other contents."""
    if not isinstance(entry, dict):
        return []
    found = [entry] if "epochs" in entry else list(entry.values())
    return found if all(isinstance(curve, dict) and "epochs" in curve for curve in found) else []


@dataclass(frozen=True)
class Store:
    """A folder of finished runs, one folder each: ``history/``, ``config.toml`` and ``run.json``.

    Parameters
    ----------
    root
        The folder.
    earlier
        Numbers of an earlier report, for figures that do not need the runs themselves.
    instead
        Runs that stand in for others, by the key of these.
    loaded
        Histories and notes that were read before, by key, to which others are added; None keeps
        nothing.
    """

    root: Path
    earlier: EarlierReport = field(default_factory=EarlierReport)
    instead: Mapping[str, Run] = field(default_factory=dict)
    loaded: dict[str, tuple[History, dict[str, Any]]] | None = None

    @property
    def runs(self) -> RunStore:
        """The store of the library, which finds, writes and removes the runs."""
        return RunStore(self.root)

    def folder(self, run: Run) -> Path:
        """Return the folder of a run, finished or not."""
        return self.runs.folder(self.instead.get(run.key, run).key)

    def has(self, run: Run) -> bool:
        """Return whether a run is finished."""
        return self.runs.has(self.instead.get(run.key, run).key)

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
        loaded, key = self.loaded, self.folder(run).name
        if loaded is not None and key in loaded:
            return loaded[key]
        try:
            found = History.load(self.folder(run) / "history"), self.load_note(run)
        except (FileNotFoundError, ValueError) as error:
            raise type(error)(
                f"{error}; remove {self.folder(run)} to train the run again"
            ) from error
        if loaded is not None:
            loaded[key] = found
        return found

    def load_arm(self, runs: Sequence[Run]) -> tuple[list[History], list[dict[str, float]], float]:
        """Return the histories of an arm's runs, their numbers, and the rounds per epoch."""
        loaded = [self.load(run) for run in runs]
        costs = ("seconds", "megabytes")
        numbers = [note["numbers"] | {name: note[name] for name in costs} for _, note in loaded]
        return [history for history, _ in loaded], numbers, loaded[0][1]["rounds_per_epoch"]

    def load_note(self, run: Run) -> dict[str, Any]:
        """Return the note of a finished run; raises as :meth:`load`."""
        found = self.runs.find(self.instead.get(run.key, run).key)
        if found is None:
            raise FileNotFoundError(f"{self.folder(run)} must be a finished run")
        return dict(found.note)


def _numbers_for_figures(experiment: config.Experiment, history: History) -> dict[str, Any]:
    """Return the minibatches in a pass over the largest node's data, and numbers for tables.

    These are of the graph and of the messages. For time-varying graphs, servers and isolated nodes
    only the numbers of messages are known.
    """
    clients, graph = experiment.clients, experiment.topology
    counts, batch_size = clients.label_counts, experiment.tables["algorithm"]["batch_size"]
    numbers = {
        name: float(history[name].mean()) / clients.n
        for name in ("messages", "messages_paper", "bytes")
    }
    numbers["busiest_bytes"] = float(history["busiest_bytes"].mean())
    if isinstance(graph, Topology) and history.matrices:
        weights = history.mixing(0)
        numbers |= graph_numbers(graph, weights)
        numbers["heterogeneity"] = metrics.neighborhood_heterogeneity(weights, counts)
        if graph.groups:
            numbers["skew"] = float(np.mean(metrics.clique_skew(graph.groups, counts)))
    return {"rounds_per_epoch": -(-int(clients.sizes.max()) // batch_size), "numbers": numbers}


def graph_numbers(graph: Topology, weights: MixingMatrix) -> dict[str, float]:
    """Return the mean degree (out-degree of directed graphs) and the spectral gap."""
    return {"degree": float(graph.out_degrees.mean()), "gap": weights.spectral_gap}


def keyed(runs: Iterable[Run]) -> dict[str, Run]:
    """Return runs by key, without duplicates.

    Raises
    ------
    FileNotFoundError, ValueError
        As :attr:`Run.key`; the message suggests how to run without the data.
    """
    try:
        return {run.key: run for run in runs}
    except ValueError as error:
        raise ValueError(
            f"{error}; --scale quick also accepts a subset of CIFAR-10, and --datasets mnist "
            "leaves CIFAR-10 out"
        ) from error


class Failed(RuntimeError):
    """Raised if runs failed; finished runs are stored. ``errors`` has the reasons by run key."""

    def __init__(self, message: str, errors: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.errors = dict(errors or {})


def compute_missing(
    runs: Iterable[Run],
    store: Store,
    *,
    jobs: int = 1,
    progress: bool | str = "auto",
    failed: Mapping[str, str] | None = None,
    title: str = "runs",
) -> None:
    """Train all runs that are not finished yet.

    Parameters
    ----------
    runs
        Runs in the order of training; duplicates are trained once.
    store
        Where the runs are stored.
    jobs
        Number of processes, which share the CPU cores evenly; 1 uses this process.
    progress
        True or False; ``"auto"``: a table on terminals only.
    failed
        Reasons of runs that are known to fail, by key; these are not tried again.
    title
        Title of the table.

    Raises
    ------
    Failed
        If runs raised errors, after all others are finished; the message names each with its error.
    OSError
        If a run cannot be saved.
    """
    missing = {key: run for key, run in keyed(runs).items() if not store.has(run)}
    errors = {key: text for key, text in (failed or {}).items() if key in missing}
    store.root.mkdir(parents=True, exist_ok=True)
    todo = [run for key, run in missing.items() if key not in errors]
    labels = {run.key: _shown(run) for run in todo}

    def ended(outcome: Outcome) -> None:
        if outcome.error:
            errors[outcome.key] = f"{labels[outcome.key]}: {outcome.error}"

    executor = as_executor(None, min(jobs, max(len(todo), 1)))
    how: dict[str, Any] = {"limit": jobs, "progress": progress, "labels": labels, "title": title}
    jobs_to_do = (Job(run.key, run.tables, extra=_numbers_for_figures) for run in todo)
    execute(jobs_to_do, store.root, executor, ended=ended, **how)
    if errors:
        reasons = "; ".join(errors.values())
        raise Failed(
            f"{len(errors)} of {len(missing)} runs failed, the others are stored: {reasons}", errors
        )


def _shown(run: Run) -> str:
    graph = run.tables.get("topology", {"name": "no graph"})["name"]
    return f"{run.tables['algorithm']['name']} on {graph}, seed {run.seed}"
