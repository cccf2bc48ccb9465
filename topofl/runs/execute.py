"""Execution of the runs of a sweep, in this process, in others, or by another executor."""

import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import torch

from topofl._support.check import shown
from topofl._support.machine import available_cores
from topofl._support.plugins import imported
from topofl._support.processes import METHOD, identity, prepare_fork
from topofl._support.text import approximate, printable
from topofl.runs.folder import in_progress
from topofl.runs.identity import cache_of_process
from topofl.runs.store import Failure, RunStore
from topofl.runs.work import (
    MOST_TOGETHER,
    Job,
    Outcome,
    kind_of,
    perform,
    perform_all,
    perform_elsewhere,
)

SHOWN = 8
"""Largest number of runs in progress that are listed."""


@dataclass(eq=False)
class Live:
    """How many runs are done, which are running, which failed, and the time left.

    A thread draws it once a second; nothing is drawn off terminals.

    Parameters
    ----------
    root
        The store, which has the progress of the runs.
    total
        Number of runs to do.
    shown
        Whether to draw; ``"auto"``: on terminals only.
    stream
        Where to draw.
    labels
        Names of the runs by key.
    title
        Name of the sweep.
    """

    root: Path
    total: int
    shown: bool | str = "auto"
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    labels: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    done: int = 0
    failed: int = 0
    _running: dict[str, Job] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _lines: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Live":
        if self.stream.isatty() if self.shown == "auto" else self.shown:
            self._thread = threading.Thread(target=self._draw_on, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._erase()
            self.stream.flush()

    def started(self, job: Job) -> None:
        """Note that a run was submitted."""
        self._running[job.key] = job

    def ended(self, outcome: Outcome) -> None:
        """Note how a run ended."""
        self._running.pop(outcome.key, None)
        self.failed += outcome.state == "failed"
        self.done += outcome.state != "failed"

    def text(self) -> list[str]:
        """Return the lines of the table."""
        left = self.total - self.done - self.failed
        head = f"{self.title}: " if self.title else ""
        head += f"{self.done} of {self.total} runs done"
        head += f", {self.failed} failed" if self.failed else ""
        ended = self.done + self.failed
        if ended and left:
            seconds = (time.monotonic() - self._began) / ended * left
            head += f", {approximate(seconds)} left"
        keys = list(self._running)[:SHOWN]
        reports = in_progress(self.root, keys)
        lines = [head]
        for key in keys:
            report = reports.get(key, {})
            line = f"  {self.labels.get(key, key)}"
            if report:
                line += f": round {report.get('round')} of {report.get('rounds')}"
            if isinstance(score := report.get("score"), float):
                line += f", score {score:.3f}"
            lines.append(printable(line))
        more = len(self._running) - len(keys)
        return [*lines, f"  and {more} more"] if more > 0 else lines

    def _draw_on(self) -> None:
        while not self._over.wait(1.0):
            lines = self.text()
            width = shutil.get_terminal_size().columns - 1
            self._erase()
            self.stream.write("".join(f"{line[:width]}\n" for line in lines))
            self.stream.flush()
            self._lines = len(lines)

    def _erase(self) -> None:
        if self._lines:
            self.stream.write(f"\x1b[{self._lines}F\x1b[J")
            self._lines = 0


@dataclass(eq=False)
class Processes:
    """Several pools of one process each, so that a killed process costs only its own run.

    Parameters
    ----------
    jobs
        Number of processes.
    threads
        Threads of each; None: the processes share the CPU cores evenly.
    """

    jobs: int
    threads: int | None = None
    _pools: dict[int, tuple[ProcessPoolExecutor, Future[int]]] = field(default_factory=dict)
    _futures: dict[int, Future[Any]] = field(default_factory=dict)

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Start a call in an idle process; there must be one.

        Raises
        ------
        RuntimeError
            If the process ended before it was ready.
        """
        slots = range(self.jobs)
        slot = next(k for k in slots if k not in self._futures or self._futures[k].done())
        try:
            self._futures[slot] = self._ready(slot).submit(fn, *args)
        except BrokenProcessPool:  # its process was killed
            self._pools.pop(slot)[0].shutdown(wait=False)
            self._futures[slot] = self._ready(slot).submit(fn, *args)
        return self._futures[slot]

    def __enter__(self) -> "Processes":
        """Start processes, which then get ready while the runs are planned."""
        for slot in range(min(self.jobs, available_cores())):  # the others start when used
            self._started(slot)
        return self

    def _started(self, slot: int) -> tuple[ProcessPoolExecutor, Future[int]]:
        if slot not in self._pools:
            prepare_fork()
            threads = self.threads or max(1, available_cores() // self.jobs)
            pool = ProcessPoolExecutor(1, get_context(METHOD), _start_process, (threads,))
            self._pools[slot] = pool, pool.submit(os.getpid)
        return self._pools[slot]

    def _ready(self, slot: int) -> ProcessPoolExecutor:
        """Return a pool whose process has started; that one ends before is no failure of a run."""
        pool, pid = self._started(slot)
        try:
            pid.result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a process of `jobs` ended while it started, before any run; if a script starts "
                'the sweep, put the call below `if __name__ == "__main__":`, since each process '
                "imports the script (its RuntimeError about bootstrapping is shown above), or use "
                "jobs=1"
            ) from error
        return pool

    def keep(self, jobs: int) -> None:
        """End all but so many processes, which must be idle."""
        self.jobs = jobs
        for slot in [slot for slot in self._pools if slot >= jobs]:
            self._pools.pop(slot)[0].shutdown(wait=True)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the processes with a run in progress: SIGTERM ends its round."""
        for slot, (_, pid) in self._pools.items():
            if slot in self._futures and not self._futures[slot].done():
                with suppress(Exception):  # it did not start, or has ended
                    os.kill(pid.result(timeout=30), number)

    def shutdown(self, *error: object) -> None:
        """End all processes."""
        for pool, _ in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
        self._pools.clear()

    __exit__ = shutdown


def _start_process(threads: int) -> None:
    """Prepare a process: threads, no reaction to Ctrl-C, and its end together with its parent."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and sends SIGTERM
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def as_executor(executor: Any, jobs: int) -> Any:
    """Return an object with ``submit`` for the argument `executor` of a sweep; None: this process.

    Raises
    ------
    TypeError
        If it is none.
    """
    if executor is None:
        return None if jobs == 1 else Processes(jobs)
    if hasattr(executor, "get_executor"):  # a client of Dask
        return executor.get_executor()
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            "`executor` must have a method submit, as those of concurrent.futures, submitit and "
            f"Dask have, or be topofl.runs.ray_executor(), got {shown(executor)}"
        )
    return executor


def execute(
    jobs: Iterable[Job],
    root: Path,
    executor: Any,
    *,
    limit: int | None,
    progress: bool | str = "auto",
    labels: Mapping[str, str] | None = None,
    title: str = "",
    ended: Callable[[Outcome], None] = lambda outcome: None,
    more: Callable[[], bool] = lambda: True,
) -> None:
    """Perform runs, at most `limit` at a time (None: all), and report how each ends.

    Without an executor, this process performs them one after the other. Meanwhile, a live table is
    shown. When `more()` is false, no further run starts, and those in progress are finished.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C or SIGTERM, when the runs in progress have ended their rounds.
    OSError
        If the store cannot be written to, when the runs in progress have ended.
    """
    here = isinstance(executor, Processes | None)
    waiting = deque(of_one_kind(jobs, limit or 1) if here else ([job] for job in jobs))
    live = Live(root, sum(map(len, waiting)), progress, labels=labels or {}, title=title)
    execution = _Execution(RunStore(root), executor, limit, live, ended, waiting)
    with live:
        try:
            with _terminable():
                while execution.active or waiting:
                    if execution.unwritable or not more():
                        waiting.clear()
                    execution.submit()
                    if execution.active:
                        execution.collect()
        except (KeyboardInterrupt, Exception):  # an executor's error, which every run would meet
            execution.stop()
            raise
        finally:
            cache_of_process.cache_clear()
            if isinstance(executor, Processes):
                executor.shutdown()
    if execution.unwritable:
        raise OSError(
            f"the sweep stopped, since a disk cannot be written to: {execution.unwritable}; free "
            "some space or name another folder, and start the sweep again: finished runs are "
            f"stored in {root}"
        )


def of_one_kind(jobs: Iterable[Job], limit: int) -> Iterator[list[Job]]:
    """Yield runs of one kind that a process performs by one call; each of `limit` gets a share."""
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        alike.setdefault(kind_of(job) or job.key, []).append(job)
    for own in alike.values():
        size = min(MOST_TOGETHER, -(-len(own) // limit))
        yield from (own[start : start + size] for start in range(0, len(own), size))


@dataclass(eq=False)
class _Execution:
    """The runs that an executor has to perform, and those that it performs now, by future.

    Runs of one kind are performed by one call, which may train them together.
    """

    store: RunStore
    executor: Any
    limit: int | None
    live: Live
    ended: Callable[[Outcome], None]
    waiting: deque[list[Job]]
    active: dict[Any, list[Job]] = field(default_factory=dict)
    unwritable: str = ""
    _done: "queue.SimpleQueue[Any]" = field(default_factory=queue.SimpleQueue)

    def submit(self) -> None:
        """Submit as many runs as may be active; together if the executor takes batches.

        Processes of clusters set their threads themselves.
        """
        room = len(self.waiting) if self.limit is None else self.limit - len(self.active)
        batch: AbstractContextManager[Any] = nullcontext()
        if room > 1 and len(self.waiting) > 1 and hasattr(self.executor, "batch"):  # submitit
            batch = self.executor.batch()
        here, root = isinstance(self.executor, Processes | None), str(self.store.root)
        submit = _call if self.executor is None else self.executor.submit
        submitted = []
        with batch:
            while self.waiting and len(submitted) < room:
                jobs = self.waiting.popleft()
                for job in jobs:
                    self.live.started(job)
                if len(jobs) > 1:
                    future = submit(perform_all, jobs, root)
                elif here:
                    future = submit(perform, jobs[0], root)
                else:
                    future = submit(perform_elsewhere, jobs[0], root, identity())
                submitted.append((future, jobs))
        for future, jobs in submitted:  # those of a batch can be used only now
            self.active[future] = jobs
            if hasattr(future, "add_done_callback"):
                future.add_done_callback(self._done.put)

    def _report(self, outcome: Outcome) -> None:
        self.live.ended(outcome)
        self.ended(outcome)

    def _note_interrupted(self, found: Iterable[Outcome]) -> None:
        """Report the runs that lose their rounds, since they were trained together."""
        for one in found:
            if one.state == "interrupted" and one.together and not self.store.has(one.key):
                self.ended(one)

    def collect(self) -> None:
        """Report the runs that have ended, and put back those interrupted from outside."""
        for future, jobs in self._finished():
            found = self._outcomes(jobs, future)
            for job, outcome in zip(jobs, found, strict=True):
                if outcome.state == "interrupted":
                    self.waiting.append([job])
                elif outcome.state == "unwritable":
                    self.unwritable = outcome.error
                else:
                    self._report(outcome)
            if self.executor is None and any(one.state == "interrupted" for one in found):
                self._note_interrupted(found)
                raise KeyboardInterrupt

    def _finished(self) -> Iterator[tuple[Any, list[Job]]]:
        """Yield the runs whose futures are done, waiting for one up to half a second."""
        active = list(self.active)
        if all(hasattr(future, "add_done_callback") for future in active):
            with suppress(queue.Empty):
                future = self._done.get(timeout=0.5)
                yield future, self.active.pop(future)
            return
        found = [future for future in active if future.done()]
        if not found:
            time.sleep(0.1)
        for future in found:
            yield future, self.active.pop(future)

    def _outcomes(self, jobs: list[Job], future: Any) -> list[Outcome]:
        """Return the outcomes of some runs, also if their process was killed."""
        try:
            return _found(future)
        except Exception as error:  # of any executor
            return [self._after(error, job, alone=len(jobs) == 1) for job in jobs]

    def _after(self, error: Exception, job: Job, alone: bool) -> Outcome:
        """Return the outcome of a run whose process was killed, or raise another error.

        Runs that were not `alone` are performed again, each alone.
        """
        if self.store.has(job.key):  # it was killed after its run was stored
            return Outcome(job.key, "done")
        if not _was_killed(error):
            raise error
        if not alone:
            return Outcome(job.key, "interrupted")
        text = (str(error).splitlines() or [""])[0]
        what = (
            "the process of the run was killed, for example for lack of memory "
            f"({type(error).__name__}: {text}); use fewer jobs"
        )
        self.store.fail(Failure(job.key, job.tables, what))
        return Outcome(job.key, "failed", what)

    def stop(self) -> None:
        """End the rounds of active runs, or cancel runs that have not started elsewhere."""
        self.waiting.clear()
        if not isinstance(self.executor, Processes):
            for future in self.active:
                if hasattr(future, "cancel"):
                    with suppress(Exception):
                        future.cancel()
            return
        self.executor.stop()
        try:
            while self.active:
                for future, jobs in self._finished():
                    found = [] if future.exception() else _found(future)
                    self._note_interrupted(found)
                    ended = {one.key: one for one in found}
                    for job in jobs:  # a process may have ended with its runs
                        if job.key in ended and ended[job.key].state in ("done", "failed"):
                            self._report(ended[job.key])
                        elif self.store.has(job.key):
                            self._report(Outcome(job.key, "done"))
        except KeyboardInterrupt:  # a second Ctrl-C
            self.executor.stop(signal.SIGKILL)


def _found(future: Any) -> list[Outcome]:
    """Return what a call returned: the outcomes of several runs, or that of one."""
    found = future.result()
    return found if isinstance(found, list) else [found]


def _call(fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
    """Call a function, and return its finished future."""
    future: Future[Any] = Future()
    future.set_result(fn(*args))
    return future


_KILLED = {
    "BrokenExecutor": "concurrent.futures",
    "TerminatedWorkerError": "joblib",
    "KilledWorker": "distributed",
    "WorkerCrashedError": "ray",
    "OutOfMemoryError": "ray",
    "NodeDiedError": "ray",
    "LocalRayletDiedError": "ray",
    "UncompletedJobError": "submitit",
}
"""Types of errors of executors whose process was killed, with their packages."""


def _was_killed(error: Exception) -> bool:
    """Return whether an executor says that the process of a run was killed."""
    kinds = {(kind.__name__, kind.__module__) for kind in type(error).__mro__}
    if any(module.startswith(_KILLED.get(name, "no package")) for name, module in kinds):
        return True
    # submitit reports in this way that Slurm's limit of time was reached
    return ("FailedJobError", "submitit.core.utils") in kinds and "UncompletedJob" in str(error)


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def ray_executor(**options: Any) -> Any:
    """Return an executor of the cluster of Ray that this process is connected to.

    Ray repeats the runs of killed processes elsewhere.

    Parameters
    ----------
    **options
        Options of ``ray.remote`` per run, such as ``num_cpus=2``.

    Raises
    ------
    ModuleNotFoundError
        If Ray is not installed.
    ValueError
        If ``ray.init`` was not called.

    Examples
    --------
    >>> ray_executor(num_cpus=2)  # doctest: +SKIP
    """
    ray = _package("ray", "ray")
    if not ray.is_initialized():
        raise ValueError("`ray_executor` must be called after ray.init(), which connects to Ray")
    how = {"num_cpus": 1, **options}

    def submit(fn: Callable[..., Any], /, *args: Any) -> Any:
        return ray.remote(fn).options(**how).remote(*args).future()

    return SimpleNamespace(submit=submit)


def dask_executor(address: str) -> Any:
    """Return an executor of the Dask cluster with this scheduler, such as ``tcp://host:8786``.

    A client of Dask can be given to a sweep itself, too.

    Raises
    ------
    ModuleNotFoundError
        If Dask is not installed.
    OSError
        If the scheduler cannot be reached.

    Examples
    --------
    >>> dask_executor("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: `address` must be such as tcp://host:8786, got 'nowhere'
    """
    if "://" not in address:
        raise ValueError(f"`address` must be such as tcp://host:8786, got {shown(address)}")
    return _package("distributed", "dask").Client(address, timeout=10).get_executor()


def slurm_executor(folder: str, *, cluster: str | None = None, **parameters: Any) -> Any:
    """Return an executor that submits runs as Slurm arrays, by submitit.

    Parameters
    ----------
    folder
        Folder for submitit's scripts and logs, on a shared file system.
    cluster
        ``"local"`` starts processes of this machine instead; None: Slurm.
    **parameters
        Parameters of ``submitit.AutoExecutor``, such as ``timeout_min=60`` and
        ``slurm_array_parallelism=50``.

    Raises
    ------
    ModuleNotFoundError
        If submitit is not installed.
    ValueError
        If this machine has no Slurm, or a parameter is unknown.

    Examples
    --------
    >>> slurm_executor("logs", cluster="local", timeout_min=60)  # doctest: +SKIP
    """
    submitit = _package("submitit", "slurm")
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster or "slurm")
    except RuntimeError as error:  # as submitit raises it
        raise ValueError(
            "`cluster` must be 'local' on a machine without the commands of Slurm, got "
            f"{shown(cluster)}: {error}"
        ) from error
    try:
        executor.update_parameters(**parameters)
    except (NameError, TypeError) as error:  # as submitit raises them
        raise ValueError(f"submitit: {error}") from error
    return executor


def _package(name: str, extra: str) -> Any:
    """Return a module of a cluster, or raise with the extra of topofl that installs it."""
    return imported(name, extra, "`executor`", name=f"the package {name}")
