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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from topofl import config
from topofl._support.files import FULL, replace_file
from topofl._support.machine import available_cores
from topofl._support.processes import identity
from topofl._support.text import notes_of
from topofl.callbacks import Callback, Event
from topofl.engine import run
from topofl.engine.checkpoint import ResumeError
from topofl.engine.options import Saving, as_options
from topofl.history import History
from topofl.runs.folder import PROGRESS, claimed_in, clear, write_config
from topofl.runs.identity import cache_of_process, key_of, note_of, reset_peak_memory, versions
from topofl.runs.record import RECORD
from topofl.runs.store import Failure, RunStore

PAUSE = 1.0
"""Seconds between two reports of progress."""


def reporter(folder: Path, rounds: int) -> Callback:
    """Return a callback that writes round and score to the folder of a run, once a second."""
    last, score = time.monotonic(), None

    def report(event: Event) -> None:
        nonlocal last, score
        if event.kind == "evaluation":
            found = (value for name, value in event.values.items() if name.endswith("_mean"))
            score = next(found, None)
        now = time.monotonic()
        if event.kind in ("round", "evaluation") and now - last >= PAUSE:
            last = now
            partial = folder / f".{PROGRESS}"
            with suppress(OSError):  # a report is not worth the run
                partial.write_text(
                    json.dumps({"round": event.round, "rounds": rounds, "score": score})
                )
                os.replace(partial, folder / PROGRESS)

    return report


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
    extra: Callable[[Any, History], Mapping[str, Any]] | None = None

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
    an interruption, the folder of the run keeps the checkpoints.
    """
    store = RunStore(Path(root))
    try:
        if store.has(job.key):
            return Outcome(job.key, "found")
        with claimed_in(store.root, job.key) as folder:
            if store.has(job.key):  # by the process that had claimed the folder
                clear(folder)
                return Outcome(job.key, "found")
            try:
                with _sigterm_noted() as is_stopped:
                    outcome = _train(job, store, folder, is_stopped)
            except Exception as error:
                if isinstance(error, OSError) and _is_of_writing(error, store.root):
                    raise
                text = "".join(traceback.format_exception(error))
                note = {"environment": {"versions": versions()}}
                store.fail(Failure(job.key, job.tables, _line(error), text, note))
                outcome = Outcome(job.key, "failed", _line(error))
            clear(folder)
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
    replace_file(folder / RECORD, json.dumps({"tables": job.tables}) + "\n")
    # runs of functions, and those with a key of another kind, are not found by a configuration
    if job.function is None and job.digest:
        write_config(folder, job.tables)
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
    cache = cache_of_process()
    if job.function is None:
        return config.build(job.tables, read=partial(cache.read, expected=job.digest))
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

    is_built = isinstance(experiment, config.Experiment)
    options: Mapping[str, Any] = experiment.options if is_built else experiment
    saving = as_options(Saving, options.get("saving"))
    saving = replace(saving, folder=checkpoints, resume=True, models=False, final=False)
    options = {**options, "saving": saving}
    own = [stop, reporter(folder, options["rounds"])]
    if is_built:
        how = {"progress": False, "folder": checkpoints, "resume": True, "callbacks": own}
        return replace(experiment, options=options).run(**how)
    return run(**{**options, "callbacks": [*options.get("callbacks", ()), *own], "progress": False})


def _line(error: BaseException) -> str:
    """Return type, message and notes of an error in one line."""
    text = " ".join("; ".join([str(error), *notes_of(error)]).split())
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
