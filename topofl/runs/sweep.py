"""Sweeps: many runs over points and seeds, into one store, without repeating finished runs."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from topofl._support.callers import warn_caller
from topofl._support.check import check_int, check_path, check_switch
from topofl._support.memory import free_memory, resident
from topofl._support.public import public
from topofl._support.table import NotApplicable, Table
from topofl.runs.best import Best, best_of
from topofl.runs.datasets import cache_of_process
from topofl.runs.execute import Processes, Stopped, as_executor, execute
from topofl.runs.live import Live
from topofl.runs.plan import (
    Base,
    Point,
    check_picklable,
    label_of,
    one_per_key,
    prepare,
    shard_of,
)
from topofl.runs.points import VARIED
from topofl.runs.private import remove_abandoned
from topofl.runs.records import Failure
from topofl.runs.shown import cell_of, finals_of, heads_of, table_as_html
from topofl.runs.stored import RunStore, StoredRun

__all__ = ["STORE", "Sweep", "SweepInterrupted", "perform_points", "sweep"]

STORE = Path("runs", "sweeps")
"""Default store of sweeps."""


class SweepInterrupted(KeyboardInterrupt):
    """A sweep was stopped by Ctrl-C or SIGTERM; the same call continues it.

    Parameters
    ----------
    done, total
        Number of finished runs, and of all runs.
    store
        Folder of the store.

    Examples
    --------
    >>> print(SweepInterrupted(3, 10, Path("runs")))
    interrupted with 3 of 10 runs finished in runs; start the same sweep again to go on
    """

    def __init__(self, done: int, total: int, store: Path) -> None:
        super().__init__(
            f"interrupted with {done} of {total} runs finished in {store}; start the same sweep "
            "again to go on"
        )
        self.done = done
        self.total = total
        self.store = store

    def __reduce__(self) -> tuple[Any, ...]:
        return SweepInterrupted, (self.done, self.total, self.store)


@dataclass(frozen=True, eq=False)
class Sweep:
    """The finished and failed runs of a sweep.

    Parameters
    ----------
    points
        All of its runs, planned: settings, seed and key of each.
    runs
        Those that are finished, in the order of the points.
    failures
        Those that failed, in the order of the points.
    trained
        Number of runs that were performed by this call; the others were in the store.

    Examples
    --------
    >>> import tempfile, topofl
    >>> base = {"data": {"name": "digits", "n": 4}, "topology": "ring", "run": {"rounds": 1}}
    >>> grid = {"algorithm": ["dsgd,lr=0.1", "dsgt,lr=0.1"]}
    >>> found = topofl.sweep(base, grid, seeds=2, store=tempfile.mkdtemp())
    >>> found, found.table.column("seed")
    (Sweep(4 points, 4 runs, 0 failed), (0, 1, 0, 1))
    """

    points: tuple[Point, ...]
    runs: tuple[StoredRun, ...]
    failures: tuple[Failure, ...]
    trained: int = 0

    @cached_property
    def table(self) -> Table:
        """One row per point and seed with the final scores of the run.

        It contains no times, so that it is the same however often the sweep was interrupted.
        Arguments of a user's function with the name of another column, such as ``round``, are
        named ``setting round``.
        """
        keys = list(dict.fromkeys(key for point in self.points for key in point.values))
        by_key: dict[str, StoredRun | Failure] = {run.key: run for run in self.runs}
        by_key |= {failure.key: failure for failure in self.failures}
        scores = list(dict.fromkeys(name for run in self.runs for name in run.curves["scores"]))
        rows = tuple(
            (
                *(cell_of(point.values.get(key)) for key in keys),
                *([] if point.seed is None else [point.seed]),
                *_results(by_key.get(point.key), scores),
            )
            for point in self.points
        )
        seed = ["seed"] if any(point.seed is not None for point in self.points) else []
        statistics = [f"{name}{end}" for name in scores for end in ("", " worst tenth")]
        others = [*seed, "round", *statistics, "MB sent"]
        return Table((*heads_of(keys, others), *others), rows)

    def best(self, column: str = "accuracy", *, low_is_good: bool | None = None) -> Best:
        """Return the point with the best final score, the mean over its seeds.

        Parameters
        ----------
        column
            A score of the runs.
        low_is_good
            Whether low values of the score are better; None: as the runs say.

        Raises
        ------
        ValueError
            If no point has finished runs for all seeds, or the runs have no such score.

        Examples
        --------
        >>> import tempfile, topofl
        >>> base = {"data": {"name": "digits", "n": 4}, "topology": "ring", "run": {"rounds": 2}}
        >>> base |= {"algorithm": "dsgd,lr=0.1"}
        >>> grid = {"algorithm.lr": [1e-6, 0.1]}
        >>> topofl.sweep(base, grid, seeds=2, store=tempfile.mkdtemp()).best().values
        {'algorithm.lr': 0.1}
        """
        return best_of(self.points, self.runs, column, low_is_good)

    def __repr__(self) -> str:
        return (
            f"Sweep({len(self.points)} points, {len(self.runs)} runs, {len(self.failures)} failed)"
        )

    def _repr_html_(self) -> str:
        return table_as_html(repr(self), self.table)


def _results(run: StoredRun | Failure | None, scores: Sequence[str]) -> Iterator[Any]:
    """Yield the cells of a run: last round, scores and megabytes."""
    if isinstance(run, StoredRun):
        yield from finals_of(run.curves, scores, ("mean", "worst_tenth"))
        return
    why = NotApplicable("not performed" if run is None else f"failed: {run.error}")
    yield from [why] * (2 + 2 * len(scores))


@public
def sweep(
    base: Base,
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    vary: Sequence[str] = VARIED,
    store: str | os.PathLike[str] = STORE,
    jobs: int | None = None,
    executor: Any = None,
    retry_failed: bool = False,
    shard: str | tuple[int, int] | None = None,
    progress: bool | str = "auto",
) -> Sweep:
    """Perform all runs of a grid that are not in the store yet, and return all of them.

    See the page :doc:`Sweeps </docs/sweeps>`.

    Parameters
    ----------
    base
        Configuration tables, the path of a TOML file, or a function of the point. The function
        receives a dictionary with the settings of a point and, with `seeds`, its ``"seed"``, and
        returns configuration tables or the arguments of :func:`topofl.run`. The runs of such
        arguments are found by the point, the name and source of the function and the contents of
        the data; functions that it calls do not count.
    grid
        Lists of values by key, such as ``{"topology": ["ring", "torus"], "data.alpha": [0.1, 1]}``,
        or a list of points, such as that of :func:`topofl.runs.random_points`. None: the base.
    seeds
        Number of seeds per point, from 0, or a list of them. A seed applies to the run, the
        partition and the graph alike. None: the seeds of the base.
    vary
        Which of ``"run"``, ``"data"`` and ``"topology"`` get the seeds; for functions it is up to
        the function.
    store
        Folder of the :class:`topofl.runs.RunStore`. Several sweeps can share it at the same time.
    jobs
        Number of processes (default: 1, this process), or, with an executor, of runs that are
        submitted at a time (default: all). Fewer are used if they do not fit into free memory.
    executor
        Anything with a method ``submit``: of ``concurrent.futures``, a client of Dask,
        :func:`topofl.runs.ray_executor`, an executor of submitit. Its machines need the same store.
    retry_failed
        Whether to repeat runs that failed before.
    shard
        ``"1/2"``: every second run from the first on, for machines that share nothing.
    progress
        Whether to show a live table; ``"auto"``: on terminals only.

    Returns
    -------
    Sweep
        Finished and failed runs. Failed runs do not raise.

    Raises
    ------
    ValueError, TypeError
        Before the first run trains: if points cannot be built, naming all of them; if the store has
        another version; if not even one run fits into memory.
    OSError
        If the store cannot be written to, for example because the disk is full.
    Exception
        Of an executor that cannot submit runs or return their outcomes, unless the process of a run
        was killed, which fails that run.
    SweepInterrupted
        After Ctrl-C or SIGTERM. Rounds in progress have ended; the same call continues.

    Examples
    --------
    >>> import tempfile, topofl
    >>> base = {
    ...     "data": {"name": "digits", "n": 4},
    ...     "algorithm": "dsgd,lr=0.1",
    ...     "run": {"rounds": 1},
    ... }
    >>> found = topofl.sweep(
    ...     base, {"topology": ["ring", "star"]}, seeds=1, store=tempfile.mkdtemp()
    ... )
    >>> [run.settings["topology.name"] for run in found.runs]
    ['ring', 'star']
    """
    processes = 1 if jobs is None else check_int("jobs", jobs, minimum=1)
    check_switch("progress", progress)
    check_switch("retry_failed", retry_failed, auto=False)
    if executor is None and processes > 1:
        check_picklable(base)
    runs = RunStore(check_path("store", store))
    runs.check()
    submits = as_executor(executor, processes)
    limit = jobs if executor is not None else processes
    local = isinstance(submits, Processes)
    with submits if local else nullcontext():
        points = prepare(base, grid, seeds=seeds, vary=vary, with_memory=local)
        points = shard_of(one_per_key(points), shard)
        return perform_points(points, runs, submits, limit, retry_failed, progress)


def perform_points(
    points: Sequence[Point],
    store: RunStore,
    executor: Any,
    limit: int | None,
    retry_failed: bool = False,
    progress: bool | str = "auto",
) -> Sweep:
    """Perform the points that are not stored, and return the sweep of all of them.

    Raises
    ------
    OSError, SweepInterrupted
        As :func:`sweep`.
    """
    store.create()
    known = {} if retry_failed else {failure.key: failure for failure in store.failures()}
    todo = [point for point in points if point.key not in known and not store.has(point.key)]
    if isinstance(executor, Processes):
        limit = _fitting(todo, executor.jobs)
        executor.keep(limit)
    live = Live(store.root, len(todo), progress)
    live.labels.update({point.key: label_of(point.values, point.seed) for point in todo})
    with _continuable(points, store), live:
        execute(
            [point.job for point in todo],
            store.root,
            executor,
            limit=limit,
            started=live.started,
            ended=live.ended,
        )
    keys = [point.key for point in points]
    remove_abandoned(store.root, keys, [key for key in keys if store.has(key)])
    return collected(points, store, len(todo))


def collected(points: Sequence[Point], store: RunStore, trained: int = 0) -> Sweep:
    """Return the sweep of these points with what the store has of them now."""
    found = [store.find(point.key) for point in points]
    failed = {failure.key: failure for failure in store.failures()} if None in found else {}
    failures = [failed[point.key] for point in points if point.key in failed]
    runs = tuple(run for run in found if run is not None)
    return Sweep(tuple(points), runs, tuple(failures), trained)


def _fitting(points: Sequence[Point], jobs: int) -> int:
    """Return how many processes fit into free memory, at most `jobs`.

    Raises
    ------
    ValueError
        If not even one does.
    """
    if not points:
        return jobs
    most = jobs
    for device in sorted({"cpu", *(point.device for point in points)}):
        needs = sorted((p.memory or 0 for p in points if p.device == device), reverse=True)
        most = min(most, _fitting_on(device, needs, jobs))
    return most


def _fitting_on(device: str, needs: Sequence[int], jobs: int) -> int:
    """Return how many of these runs fit on a device; processes themselves are in memory."""
    free, own = free_memory(device), resident() if device == "cpu" else 0
    if free is None:
        return jobs
    together = [sum(needs[:k]) + k * own for k in range(1, jobs + 1)]
    fitting = sum(need <= free for need in together)
    where = "memory" if device == "cpu" else f"the memory of {device}"
    if not fitting:
        raise ValueError(
            f"`jobs` must be runs that fit into {where}, the largest needs {together[0] >> 20} MiB "
            f"in a process of its own and {free >> 20} MiB are free; use smaller models or chunks"
        )
    if fitting < jobs:
        warn_caller(
            f"{fitting} of {jobs} processes are used: more runs do not fit into the "
            f"{free >> 20} MiB of free {where.removeprefix('the ')}"
        )
    return fitting


@contextmanager
def _continuable(points: Sequence[Point], store: RunStore) -> Iterator[None]:
    """Say how to go on if the sweep is interrupted, and free datasets in any case."""
    try:
        yield
    except Stopped:
        done = sum(store.has(point.key) for point in points)
        raise SweepInterrupted(done, len(points), store.root) from None
    finally:
        cache_of_process.cache_clear()
