"""What an entry reaches on a task: runs of a sweep, summed up in one JSON file."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from topofl import config
from topofl._support.check import check_int, check_path, check_positive, shown
from topofl._version import __version__
from topofl.engine import DivergenceError
from topofl.leaderboard.entries import Entry, Task
from topofl.leaderboard.own_code import own_code
from topofl.runs import Failure, StoredRun, sweep

__all__ = ["Diverged", "Result", "read_results", "run_entry"]

SCORE = "accuracy"


class Diverged(ValueError):
    """All runs of an entry on a task diverge.

    Examples
    --------
    >>> issubclass(Diverged, ValueError)
    True
    """


@dataclass(frozen=True)
class Result:
    """What an entry reached on a task; scores have one number per seed.

    Parameters
    ----------
    entry
        Name, authors and link, and tables of its configuration.
    task, version, digest
        The task, and what tells whether it is the one that topofl has.
    lr, tried
        Learning rate, and the mean accuracy over rounds of each that was tried; None: it diverged.
    seeds
        Seeds that count.
    learning
        Mean accuracy of nodes, averaged over all evaluations after the first: how fast, and how
        far; 0 for a run that diverged.
    final, worst
        Mean accuracy of nodes, and that of the worst node, at the end.
    rounds, curve
        Rounds after which models were evaluated, and the mean accuracy then over nodes and seeds
        whose runs did not diverge.
    messages, models
        Sent per node and round: messages, and their size in models.
    steps
        Local steps per node and round.
    software
        Versions that computed it.
    own_code
        SHA-256 of each file of functions that are not topofl's, by its name; empty: there are none.
    has_server
        Whether nodes send to a server; its messages are then divided among the nodes.

    Examples
    --------
    >>> import tempfile
    >>> scores = {"learning": (0.5,), "final": (0.7,), "worst": (0.6,), "rounds": (), "curve": ()}
    >>> sent = {"messages": 2.0, "models": 2.0, "steps": 1.0}
    >>> found = Result(
    ...     {"name": "ring"}, "digits-shards", 1, "0" * 12, 0.3, {"0.3": 0.5}, (0,), **scores,
    ...     **sent, software={},
    ... )
    >>> found.save(tempfile.mkdtemp()).name
    'ring.json'
    """

    entry: Mapping[str, Any]
    task: str
    version: int
    digest: str
    lr: float
    tried: Mapping[str, float | None]
    seeds: tuple[int, ...]
    learning: tuple[float, ...]
    final: tuple[float, ...]
    worst: tuple[float, ...]
    rounds: tuple[int, ...]
    curve: tuple[float, ...]
    messages: float
    models: float
    steps: float
    software: Mapping[str, str]
    own_code: Mapping[str, str] = field(default_factory=dict)
    has_server: bool = False

    @property
    def edge(self) -> str:
        """Which end of the grid of rates was best; empty: neither, or only one was tried."""
        rates = sorted(map(float, self.tried))
        ends = {rates[0]: "smallest", rates[-1]: "largest"} if len(rates) > 1 else {}
        return next((end for rate, end in ends.items() if f"{rate:g}" == f"{self.lr:g}"), "")

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``TASK/ENTRY.json`` in a folder, and return its path.

        Raises
        ------
        ValueError
            If the file has the result of another entry.
        OSError
            If it cannot be written.
        """
        path = check_path("folder", folder) / self.task / f"{Entry(self.entry['name']).file}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and _entry_in(path) != json.loads(json.dumps(self.entry)):
            raise ValueError(
                f"`name` must differ from those of other entries, got {self.entry['name']!r}, "
                f"while {path} has something else than a result of this entry; rename it"
            )
        path.write_text(f"{json.dumps(asdict(self), indent=1)}\n", encoding="utf-8")
        return path


def run_entry(
    entry: Entry,
    task: Task,
    *,
    store: str | os.PathLike[str] = Path("runs/leaderboard"),
    data: str | os.PathLike[str] | None = None,
    lr: float | None = None,
    beyond: int = 0,
    score: str = SCORE,
    jobs: int = 1,
    progress: bool | str = "auto",
) -> Result:
    """Train an entry on a task by the task's rules, and return what it reached.

    Each learning rate is tried on the tuning seeds. The one with the highest mean accuracy over
    rounds is trained on the seeds that count.

    Parameters
    ----------
    entry, task
        What is trained.
    store
        Folder of the runs, of which finished ones are not repeated.
    data
        Folder of datasets, for a task that needs files; None: the environment variable TOPOFL_DATA.
    lr
        Learning rate that was chosen before, so that none is tried; None: it is chosen.
    beyond
        Number of further learning rates, at most, that are tried one after the other while the best
        is at an end of those tried, or lower ones if all diverge: a tenth of the second lowest or
        ten times the second highest, or of the lowest or the highest if that is not beyond. The
        leaderboard has 0.
    score
        Column of the history that counts, such as ``"accuracy_fine_tuned"``.
    jobs, progress
        As for :func:`topofl.sweep`.

    Raises
    ------
    ValueError, TypeError
        If the runs cannot be built or have no column `score`, all of them diverge, or one fails for
        another reason; if `lr` or `beyond` is below its minimum or of another type.
    OSError
        If the store cannot be written to.

    Examples
    --------
    >>> import tempfile
    >>> from dataclasses import replace
    >>> from topofl.leaderboard import Entry, tasks
    >>> (task,) = tasks(["digits-shards"])
    >>> short = replace(task, tables={**task.tables, "run": {"rounds": 4}}, rates=(0.5,))
    >>> found = run_entry(Entry("ring", {"topology": "ring"}), short, store=tempfile.mkdtemp())
    >>> len(found.final), found.messages
    (5, 2.0)
    """
    base = entry.configuration(task)
    if data is not None and task.needs_files:
        base["data"] = {**base["data"], "root": str(check_path("data", data))}
    how: dict[str, Any] = {"store": store, "jobs": jobs, "progress": progress}
    beyond = check_int("beyond", beyond, minimum=0)
    means: dict[float, float | None] = {}
    if lr is None:
        means = _tried(entry, task, base, beyond, score, how)
        lr = _best(means)
    else:
        lr = check_positive("lr", lr)
    found = sweep(base, [{"algorithm.lr": lr}], seeds=task.seeds, **how)
    _check_that_diverged(found.failures, entry, task)
    runs = {run.settings["run.seed"]: run for run in found.runs}
    if not runs:
        raise Diverged(f"{entry.name} diverges on {task.key}: {found.failures[0].error}")
    return _result(entry, task, lr, means, [runs.get(seed) for seed in task.seeds], score)


def _tried(
    entry: Entry,
    task: Task,
    base: Mapping[str, Any],
    beyond: int,
    score: str,
    how: Mapping[str, Any],
) -> dict[float, float | None]:
    """Return the mean accuracy over rounds of each learning rate, in order; None: it diverged."""
    means: dict[float, float | None] = {}
    rates, first = task.rates, None
    while rates:
        points = [{"algorithm.lr": lr} for lr in rates]
        tried = sweep(base, points, seeds=task.tuning_seeds, **how)
        _check_that_diverged(tried.failures, entry, task)
        first = first or next((failure.error for failure in tried.failures), None)
        means |= {lr: _mean([r for r in tried.runs if _rate(r) == lr], task, score) for lr in rates}
        further = _further(means) if beyond and len(means) > 1 else None
        rates, beyond = () if further is None else (further,), beyond - 1
    if all(mean is None for mean in means.values()):
        raise Diverged(
            f"{entry.name} diverges on {task.key} with each of its learning rates; the first "
            f"failed with {first}"
        )
    return dict(sorted(means.items()))


def _best(means: Mapping[float, float | None]) -> float:
    """Return the learning rate of the highest mean, the first of equal ones."""
    known = {lr: mean for lr, mean in means.items() if mean is not None}
    return max(known, key=known.__getitem__)


def _further(means: Mapping[float, float | None]) -> float | None:
    """Return the learning rate beyond the end at which the best is; None if it is at no end."""
    rates = sorted(means)
    best = rates[0] if all(mean is None for mean in means.values()) else _best(means)
    if best not in (rates[0], rates[-1]):
        return None
    if best == rates[0]:
        further = rates[1] / 10 if rates[1] / 10 < best else best / 10
    else:
        further = rates[-2] * 10 if rates[-2] * 10 > best else best * 10
    return float(f"{further:.6g}")


def _check_that_diverged(failures: Sequence[Failure], entry: Entry, task: Task) -> None:
    """Raise ``ValueError`` if a run failed for another reason, which says nothing of its rate."""
    for failure in failures:
        if not failure.error.startswith(DivergenceError.__name__):
            raise ValueError(
                f"{entry.name} cannot be trained on {task.key}: {failure.error}; the store keeps "
                "the failure, so mend its cause and name another `store`"
            )


def _rate(run: StoredRun) -> float:
    return run.settings["algorithm.lr"]


def _mean(runs: list[StoredRun], task: Task, score: str) -> float | None:
    """Return the mean accuracy of tuning runs; None if one of them failed."""
    if len(runs) < len(task.tuning_seeds):
        return None
    return float(np.mean([_learning(run, score) for run in runs]))


def _learning(run: StoredRun, score: str) -> float:
    """Return the mean accuracy over all evaluations but that of the untrained model."""
    return float(np.mean(_scores(run, score)["mean"][1:]))


def _scores(run: StoredRun, score: str) -> Mapping[str, list[float]]:
    """Return the curves of a column, by name of the summary over nodes.

    The score of the untrained models is their accuracy, if they are not fine-tuned.
    """
    scores = run.curves["scores"]
    if score not in scores or None in scores[score]["mean"][1:]:
        raise ValueError(
            "`score` must be a column of the runs that each of their evaluations has, of "
            f"{', '.join(scores)}, got {shown(score)}; the task's `evaluation.fine_tune_every` "
            "says when models are fine-tuned"
        )
    (first, *mean), worst = scores[score]["mean"], scores[score]["worst"]
    return {"mean": [scores[SCORE]["mean"][0] if first is None else first, *mean], "worst": worst}


def _result(
    entry: Entry,
    task: Task,
    lr: float,
    means: Mapping[float, float | None],
    runs: list[StoredRun | None],
    score: str,
) -> Result:
    """Return the result of runs, one per seed, of which those that diverged are None."""
    done = [run for run in runs if run is not None]
    curves = [run.curves for run in done]
    experiment = config.build({**done[0].tables, "compute": "cpu"})
    size = sum(p.numel() * p.element_size() for p in experiment.model.parameters())
    per_node = experiment.clients.n * curves[0]["round"][-1]

    def ends(name: str) -> tuple[float, ...]:
        return tuple(_scores(run, score)[name][-1] if run else 0.0 for run in runs)

    return Result(
        {
            "name": entry.name,
            "authors": entry.authors,
            "link": entry.link,
            "tables": {k: v for k, v in entry.tables.items() if k != "modules"},
        },
        *(task.key, task.version, task.digest),
        lr=lr,
        tried={f"{rate:g}": mean for rate, mean in means.items()},
        seeds=task.seeds,
        learning=tuple(_learning(run, score) if run else 0.0 for run in runs),
        final=ends("mean"),
        worst=ends("worst"),
        rounds=tuple(curves[0]["round"]),
        curve=tuple(np.mean([_scores(run, score)["mean"] for run in done], axis=0).tolist()),
        messages=float(np.mean([one["messages"][-1] for one in curves])) / per_node,
        models=float(np.mean([one["bytes"][-1] for one in curves])) / per_node / size,
        steps=float(np.mean([run.history.rounds["steps"].sum() for run in done])) / per_node,
        software={
            "topofl": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        own_code=own_code(entry.tables),  # its modules were imported for the experiment above
        has_server=bool(done[0].history.meta.get("server", False)),
    )


def read_results(folder: str | os.PathLike[str], task: Task) -> list[Result]:
    """Return the results of a task in a folder, by the names of entries.

    Parameters
    ----------
    folder
        Folder with ``TASK/ENTRY.json``.
    task
        The task.

    Raises
    ------
    ValueError
        If a file is not a result, has not the name of its entry, or is of another version or other
        seeds of the task.
    OSError
        If a file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from topofl.leaderboard import tasks
    >>> read_results(tempfile.mkdtemp(), tasks()[0])
    []
    """
    folder = check_path("folder", folder) / task.key
    return [_read(path, task) for path in sorted(folder.glob("*.json"))]


def _entry_in(path: Path) -> Any:
    """Return the entry of a file of a result; None if it is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["entry"]
    except (ValueError, TypeError, KeyError):
        return None


def _read(path: Path, task: Task) -> Result:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        floats = ("learning", "final", "worst", "curve")
        scores = {k: tuple(map(float, values[k])) for k in floats}
        numbers = {k: float(values[k]) for k in ("lr", "messages", "models", "steps")}
        whole = {k: tuple(map(int, values[k])) for k in ("seeds", "rounds")}
        tried = {f"{float(rate):g}": score for rate, score in values["tried"].items()}
        texts = {"tried": tried, "own_code": dict(values.get("own_code", {}))}
        texts |= {"has_server": bool(values.get("has_server", False))}
        found = Result(**{**values, **scores, **numbers, **whole, **texts})
        file = Entry(found.entry["name"]).file
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} must be a result that topofl leaderboard run wrote") from error
    if not np.isfinite([*found.learning, *found.final, *found.worst, found.models]).all():
        raise ValueError(f"{path} must have finite scores; run the entry again")
    if (found.version, found.digest) != (task.version, task.digest):
        raise ValueError(
            f"{path} must be of version {task.version} of {task.key} ({task.digest}), got version "
            f"{found.version} ({found.digest}); run the entry again"
        )
    if path.stem != file:
        raise ValueError(f"{path} must have the name of its entry, {file}.json; rename it")
    lengths = {len(one) for one in (found.learning, found.final, found.worst)}
    if found.seeds != task.seeds or lengths != {len(task.seeds)}:
        raise ValueError(
            f"{path} must have one score for each of the seeds {', '.join(map(str, task.seeds))}; "
            "run the entry again"
        )
    return found
