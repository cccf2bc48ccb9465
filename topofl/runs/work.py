"""One run of a sweep, from its settings to its folder in the store, in any process."""

import errno
import json
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
from topofl.config.toml import names_functions
from topofl.engine import run
from topofl.engine.checkpoint import ResumeError
from topofl.engine.options import Saving, as_options
from topofl.engine.together import joins
from topofl.history import History
from topofl.runs.folder import PROGRESS, claimed_in, clear, write_config
from topofl.runs.identity import cache_of_process, key_of, note_of, reset_peak_memory, versions
from topofl.runs.record import RECORD
from topofl.runs.store import Failure, RunStore

CHECKPOINTS = "checkpoints"

PAUSE = 1.0
"""Seconds between two reports of progress."""


def reporter(folder: Path, rounds: int, scored: bool = True) -> Callback:
    """Return a callback that writes the round to the folder of a run, once a second.

    It also writes the score, unless it is that of several runs which are trained together.
    """
    last, score = time.monotonic(), None

    def report(event: Event) -> None:
        nonlocal last, score
        if scored and event.kind == "evaluation":
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
    is_light
        Whether it is worth to train it together with others; see :func:`is_light`.
    """

    key: str
    tables: Mapping[str, Any]
    digest: str = ""
    function: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    point: Mapping[str, Any] | None = None
    extra: Callable[[Any, History], Mapping[str, Any]] | None = None
    is_light: bool = False

    @classmethod
    def of(cls, tables: Mapping[str, Any], digest: str, is_light: bool = False) -> "Job":
        """Return the run with these configuration tables and the dataset with this hash."""
        plain = json.loads(json.dumps(tables))
        return cls(key_of(plain, digest), plain, digest, is_light=is_light)


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
    together
        Whether it was trained together with others, also if these were interrupted.
    """

    key: str
    state: str
    error: str = ""
    together: bool = False


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


MOST_TOGETHER = 16
"""Runs that are trained together at most."""

NUMBERS = 2**22
"""Parameters of all nodes of runs that are trained together, at most."""

PRODUCTS = 2**38
"""Products, at most, as :func:`_work_of` counts them.

Runs that are trained together have no checkpoints, and start again if they are interrupted.
"""

LEAST_PRODUCTS = 2**22
"""Products per round and run, at least, since a round also costs time besides them."""


def kind_of(job: Job) -> str | None:
    """Return what runs that are trained together have in common; None for one that trains alone.

    They may differ in seeds, in how the data are partitioned, and in graphs.
    """
    if not job.is_light:
        return None
    tables = _without_nodes(job.tables)
    tables["run"] = {key: value for key, value in tables["run"].items() if key != "seed"}
    return json.dumps([job.digest, tables], sort_keys=True)


def _without_nodes(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables that do not describe nodes."""
    return {k: part for k, part in tables.items() if k not in ("data", "topology", "mixing")}


def is_light(experiment: config.Experiment) -> bool:
    """Return whether a run can be trained together with others, and two of its size may be.

    Those of user-defined functions train alone, since these may read the numbers of nodes, or
    properties of the whole graph.
    """
    if experiment.checked is None or not joins(experiment.checked[1]):
        return False
    if names_functions(_without_nodes(experiment.tables)):
        return False
    numbers, products = _work_of(experiment)
    return 2 * numbers <= NUMBERS and 2 * products <= PRODUCTS


def perform_all(jobs: Sequence[Job], root: str) -> list[Outcome]:
    """Perform runs of one kind, together as far as possible; see :func:`perform`."""
    found = _performed_together(jobs, root) if len(jobs) > 1 else {}
    for job in jobs:
        if job.key not in found:
            stopped = any(outcome.state == "interrupted" for outcome in found.values())
            found[job.key] = Outcome(job.key, "interrupted") if stopped else perform(job, root)
    return [found[job.key] for job in jobs]


def _performed_together(jobs: Sequence[Job], root: str) -> dict[str, Outcome]:
    """Train and store some runs together; return how these ended, by key.

    The others are left to be performed alone: those that are stored, or have checkpoints; those
    that cannot be trained together; and those that fail, so that each tells why.
    """
    store, found = RunStore(Path(root)), dict[str, Outcome]()
    begun = set[str]()
    try:
        with ExitStack() as claims, _sigterm_noted() as is_stopped:
            claimed = []
            for job in jobs:
                if not store.has(job.key):
                    folder = claims.enter_context(claimed_in(store.root, job.key))
                    if not store.has(job.key) and not (folder / CHECKPOINTS).exists():
                        claimed.append((job, folder, _built(job)))
            for group in _groups(claimed):
                begun = {job.key for job, _, _ in group}
                _train_together(group, store, is_stopped)
                found |= {job.key: Outcome(job.key, "done", together=True) for job, _, _ in group}
    except KeyboardInterrupt as error:
        how = "interrupted", _line(error)
        return {job.key: Outcome(job.key, *how, job.key in begun) for job in jobs} | found
    except Exception:  # each alone tells its error
        return found
    return found


Claimed = tuple[Job, Path, Any]
"""A run, its folder, and its experiment."""


def _groups(claimed: Sequence[Claimed]) -> Iterator[Sequence[Claimed]]:
    """Yield runs to be trained together, as many as the constants above allow."""
    group: list[Claimed] = []
    for one in claimed:
        numbers, products = map(sum, zip(*(_work_of(own[2]) for own in [*group, one]), strict=True))
        if group and (numbers > NUMBERS or products > PRODUCTS):
            if len(group) > 1:
                yield group
            group = []
        group.append(one)
    if len(group) > 1:
        yield group


def _work_of(experiment: config.Experiment) -> tuple[int, int]:
    """Return the parameters of all nodes of a run, and how many products it takes.

    These are parameters times examples; an evaluation takes a third of those of a gradient.
    """
    if experiment.checked is None:
        return NUMBERS, PRODUCTS
    setup, rounds = experiment.checked[1], experiment.options["rounds"]
    trace, numbers = setup.trace, setup.clients.n * setup.trace.layout.d
    steps = sum(int(counts.max()) for some in trace.steps.values() for _, counts in some)
    steps += len(trace.gradient_sizes)  # of as many rounds as were played
    examples = int(trace.batch_sizes().max()) * max(1, steps // len(trace.graphs))
    evaluated = sum(len(own) for some in setup.sets.values() for own in some.values())
    evaluations = rounds // setup.evaluation.every + 1
    products = rounds * max(LEAST_PRODUCTS, numbers * examples)
    return numbers, products + evaluations * evaluated * trace.layout.d // 3


def _train_together(
    group: Sequence[Claimed], store: RunStore, is_stopped: Callable[[], bool]
) -> None:
    """Train runs together, and store each."""
    reset_peak_memory()
    start = time.perf_counter()
    reports = []
    for job, folder, experiment in group:
        _begin(job, folder)
        reports.append(reporter(folder, experiment.options["rounds"], False))

    def stop(event: Event) -> None:
        if event.kind in ("start", "round") and is_stopped():
            raise KeyboardInterrupt

    histories = config.trained_together([one for _, _, one in group], [stop, *reports])
    seconds = (time.perf_counter() - start) / len(group)
    for (job, folder, experiment), history in zip(group, histories, strict=True):
        _store(job, store, experiment, history, seconds)
        clear(folder)


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
    _begin(job, folder)
    experiment = _built(job)
    checkpoints = folder / CHECKPOINTS
    try:
        history = _run(experiment, folder, checkpoints, is_stopped)
    except ResumeError:
        shutil.rmtree(checkpoints)  # of another version, or damaged
        history = _run(experiment, folder, checkpoints, is_stopped)
    _store(job, store, experiment, history, time.perf_counter() - start)
    return Outcome(job.key, "done")


def _begin(job: Job, folder: Path) -> None:
    """Write the settings of a run to its folder."""
    replace_file(folder / RECORD, json.dumps({"tables": job.tables}) + "\n")
    # runs of functions, and those with a key of another kind, are not found by a configuration
    if job.function is None and job.digest:
        write_config(folder, job.tables)


def _store(job: Job, store: RunStore, experiment: Any, history: History, seconds: float) -> None:
    """Store a run that took some seconds."""
    tables = job.tables
    if isinstance(experiment, config.Experiment):
        tables = experiment.tables_of(history)
    extra = {} if job.extra is None else job.extra(experiment, history)
    store.add(job.key, history, tables, {**note_of(history, seconds, job.digest), **extra})


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
