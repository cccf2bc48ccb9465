"""One run of a sweep, from its settings to its folder in the store, in any process."""

import errno
import json
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import topofl
from topofl import config
from topofl._support.files import FULL
from topofl._support.machine import available_cores
from topofl._support.processes import identity
from topofl.callbacks import Event
from topofl.engine.checkpoint import ResumeError
from topofl.engine.options import Saving, as_options
from topofl.history import History
from topofl.runs.cost import reset_peak_memory, versions
from topofl.runs.datasets import cache_of_process
from topofl.runs.private import Reporter, claimed_folder, note_settings
from topofl.runs.recorded import note_of
from topofl.runs.records import Failure
from topofl.runs.run import key_of
from topofl.runs.stored import RunStore

__all__ = ["Extra", "Job", "Outcome", "perform", "perform_elsewhere", "settings_of_call"]

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
        ``"unwritable"`` if the store cannot be written to or a disk is full.
    error
        Type and message of the error; empty if there is none.
    """

    key: str
    state: str
    error: str = ""


def perform(job: Job, root: str) -> Outcome:
    """Train a run unless it is stored, store it, and return how it ended.

    Errors are kept in the store with their traceback, except those of writing to it. Then and after
    an interruption, the private folder keeps the checkpoints.
    """
    store = RunStore(Path(root))
    try:
        if store.has(job.key):
            return Outcome(job.key, "found")
        folder = claimed_folder(store.root, job.key)
        try:
            with _sigterm_noted() as is_stopped:
                outcome = _train(job, store, folder, is_stopped)
        except Exception as error:
            if isinstance(error, OSError) and _is_of_writing(error, store.root):
                raise
            outcome = _failed(job, store, error)
        shutil.rmtree(folder, ignore_errors=True)
        return outcome
    except KeyboardInterrupt as error:  # also Interrupted
        return Outcome(job.key, "interrupted", _line(error))
    except OSError as error:
        return Outcome(job.key, "unwritable", _line(error))


def perform_elsewhere(job: Job, root: str, submitter: Mapping[str, Any]) -> Outcome:
    """Perform a run in a process of a cluster, with the threads that were reserved for it."""
    if identity() != submitter:
        reserved = (os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"))
        given = next((int(text) for text in reserved if text.isdigit() and int(text)), 0)
        torch.set_num_threads(given or available_cores())
    return perform(job, root)


@contextmanager
def _sigterm_noted() -> Iterator[Callable[[], bool]]:
    """Note SIGTERM, which would end the process, instead; yield whether it has arrived.

    Training replaces this by a stop after the round. A run that is built stops before its first
    round, and one that is stored is finished.
    """
    arrived = []
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield lambda: False
        return
    signal.signal(signal.SIGTERM, lambda *_: arrived.append(True))
    try:
        yield lambda: bool(arrived)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _train(job: Job, store: RunStore, folder: Path, is_stopped: Callable[[], bool]) -> Outcome:
    reset_peak_memory()
    start = time.perf_counter()
    # runs of functions, and those with a key of another kind, are not found by a configuration
    note_settings(folder, job.tables, has_config=job.function is None and bool(job.digest))
    experiment = _built(job)
    checkpoints = folder / "checkpoints"
    try:
        history = _run(experiment, folder, checkpoints, is_stopped)
    except ResumeError:
        shutil.rmtree(checkpoints)  # of another version, or damaged
        history = _run(experiment, folder, checkpoints, is_stopped)
    seconds = time.perf_counter() - start
    tables = job.tables
    if isinstance(experiment, config.Experiment):
        tables = experiment.tables_of(history)
    extra = {} if job.extra is None else job.extra(experiment, history)
    note = {**note_of(history, seconds, job.digest), **extra}
    store.add(job.key, history, tables, note)
    return Outcome(job.key, "done")


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


def _run(
    experiment: Any, folder: Path, checkpoints: Path, is_stopped: Callable[[], bool]
) -> History:
    """Train, with checkpoints in a folder and continuing from those in it."""

    def stop(event: Event) -> None:
        if event.kind == "start" and is_stopped():
            raise KeyboardInterrupt

    if isinstance(experiment, config.Experiment):
        rounds = experiment.options["rounds"]
        saving = replace(experiment.options["saving"], models=False, final=False)
        experiment = replace(experiment, options={**experiment.options, "saving": saving})
        how = {"progress": False, "folder": checkpoints, "resume": True}
        return experiment.run(**how, callbacks=[stop, Reporter(folder, rounds)])
    saving = as_options(Saving, experiment.get("saving"))
    own = [stop, Reporter(folder, experiment["rounds"])]
    changed = {
        "saving": replace(saving, folder=checkpoints, resume=True, models=False, final=False),
        "callbacks": [*experiment.get("callbacks", ()), *own],
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


def _is_of_writing(error: OSError, root: Path) -> bool:
    """Return whether a disk is full, or that of the store broken, which is no fault of the run.

    A full disk is the fault of no run wherever it is, as that of a cache or of `compute.scratch`.
    """
    if error.errno in FULL:
        return True
    if not isinstance(error.filename, str | bytes):
        return False  # errors name no file if it was open already
    numbers = (errno.EROFS, errno.EIO, errno.ESTALE, errno.EACCES, errno.EPERM)
    place = Path(os.fsdecode(error.filename)).resolve()
    return error.errno in numbers and place.is_relative_to(root.resolve())


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
