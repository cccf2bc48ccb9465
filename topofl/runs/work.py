"""One run of a sweep, from its settings to its folder in the store, in any process."""

import errno
import json
import shutil
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import topofl
from topofl import config
from topofl.engine.options import Saving
from topofl.engine.shorthands import as_saving
from topofl.engine.store.checkpoint import rounds_in
from topofl.history import History
from topofl.runs.cost import reset_peak_memory, versions
from topofl.runs.datasets import cache_of_process
from topofl.runs.private import Reporter, claimed_folder
from topofl.runs.recorded import note_of
from topofl.runs.records import Failure
from topofl.runs.run import key_of
from topofl.runs.stored import RunStore

__all__ = ["Extra", "Job", "Outcome", "perform", "settings_of_call"]

Extra = Callable[[Any, History], Mapping[str, Any]]
"""Returns more entries of a run's note, from its experiment and its history."""


@dataclass(frozen=True, eq=False)
class Job:
    """What a process needs to perform a run.

    Parameters
    ----------
    key
        Hash of all that determines its results.
    tables
        Its configuration; of a user's function, its point and seed.
    digest
        Hash of the dataset; empty: not checked.
    function
        A user's function that returns the arguments of :func:`topofl.run`; None: the tables are
        built.
    point
        The argument of `function`.
    extra
        Returns more entries of the note; a function of the experiment and the history.
    """

    key: str
    tables: Mapping[str, Any]
    digest: str = ""
    function: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    point: Mapping[str, Any] | None = None
    extra: Extra | None = None

    @classmethod
    def of(cls, tables: Mapping[str, Any], digest: str) -> "Job":
        """Return the run with these configuration tables and the dataset with this hash."""
        plain = json.loads(json.dumps(tables))
        return cls(key_of(plain, digest), plain, digest)


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Parameters
    ----------
    key
        Its key.
    state
        ``"done"``, ``"found"`` (another process had stored it), ``"failed"``, ``"interrupted"``, or
        ``"unwritable"`` if the store cannot be written to.
    error
        Type and message of the error; empty if there is none.
    seconds
        Time of the run, without saving.
    score
        The final mean score of the task.
    """

    key: str
    state: str
    error: str = ""
    seconds: float = 0.0
    score: float | None = None


def perform(job: Job, root: str) -> Outcome:
    """Train a run unless it is stored, store it, and return how it ended.

    Errors are kept in the store with their traceback, except those of writing to it.
    """
    store = RunStore(Path(root))
    try:
        if store.has(job.key):
            return Outcome(job.key, "found")
        with claimed_folder(store.root, job.key) as folder:
            try:
                return _train(job, store, folder)
            except OSError as error:
                if _is_of_writing(error):
                    return Outcome(job.key, "unwritable", _line(error))
                return _failed(job, store, error)
            except Exception as error:
                return _failed(job, store, error)
    except KeyboardInterrupt as error:  # also Interrupted
        return Outcome(job.key, "interrupted", _line(error))
    except OSError as error:
        return Outcome(job.key, "unwritable", _line(error))


def _train(job: Job, store: RunStore, folder: Path) -> Outcome:
    reset_peak_memory()
    start = time.perf_counter()
    experiment = _built(job)
    checkpoints = folder / "checkpoints"
    try:
        history = _run(experiment, folder, checkpoints)
    except ValueError:
        if not rounds_in(checkpoints):
            raise
        shutil.rmtree(checkpoints)  # of another version, or damaged
        history = _run(experiment, folder, checkpoints)
    seconds = time.perf_counter() - start
    tables = job.tables
    if isinstance(experiment, config.Experiment):
        tables = experiment.tables_of(history)
    extra = {} if job.extra is None else job.extra(experiment, history)
    note = {**note_of(history, seconds, job.digest), **extra}
    stored = store.add(job.key, history, tables, note)
    scores = stored.curves["scores"].get(history.primary, {"mean": [None]})
    return Outcome(job.key, "done", seconds=seconds, score=scores["mean"][-1])


def _built(job: Job) -> config.Experiment | Mapping[str, Any]:
    """Return the experiment of a run, or the arguments of :func:`topofl.run`."""
    cache = cache_of_process().expecting(job.digest)
    if job.function is None:
        return config.build(job.tables, read=cache.read)
    arguments = job.function(dict(job.point or {}))
    if job.digest and cache.digest(arguments["clients"].dataset) != job.digest:
        raise ValueError(
            "`base` must return the same data for the same point, got others than when the sweep "
            "was planned; give its random parts a seed"
        )
    return arguments


def _run(experiment: Any, folder: Path, checkpoints: Path) -> History:
    """Train, with checkpoints in a folder and continuing from those in it."""
    if isinstance(experiment, config.Experiment):
        rounds = experiment.options["rounds"]
        saving = replace(experiment.options["saving"], models=False, final=False)
        experiment = replace(experiment, options={**experiment.options, "saving": saving})
        how = {"progress": False, "folder": checkpoints, "resume": True}
        return experiment.run(**how, callbacks=[Reporter(folder, rounds)])
    saving: Saving = as_saving(experiment.get("saving"))
    changed = {
        "saving": replace(saving, folder=checkpoints, resume=True, models=False, final=False),
        "callbacks": [*experiment.get("callbacks", ()), Reporter(folder, experiment["rounds"])],
        "progress": False,
    }
    return topofl.run(**{**experiment, **changed})


def _failed(job: Job, store: RunStore, error: Exception) -> Outcome:
    text = "".join(traceback.format_exception(error))
    note = {"environment": {"versions": versions()}}
    store.fail(Failure(job.key, job.tables, _line(error), text, note))
    return Outcome(job.key, "failed", _line(error))


def _line(error: BaseException) -> str:
    """Return type and message of an error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' * bool(text)}{text}"


def _is_of_writing(error: OSError) -> bool:
    """Return whether a disk is full or cannot be written to, which is no fault of the run."""
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)
    return error.errno in numbers or isinstance(error, PermissionError)


def settings_of_call(arguments: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a call of :func:`topofl.run` and of its point, as configuration tables."""
    graph = arguments.get("topology")
    tables: dict[str, Any] = {
        "data": {"name": arguments["clients"].name},
        "algorithm": {"name": arguments["algorithm"].name},
        "run": {"rounds": arguments["rounds"], "seed": arguments["seed"]},
    }
    if graph is not None:
        tables["topology"] = {"name": str(getattr(graph, "name", type(graph).__name__))}
    return {**tables, "point": json.loads(json.dumps(dict(point)))}
