"""Sweeps: many runs over points and seeds, into one store, without repeating finished runs."""

import math
import os
import pickle
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from topofl._support.check import check_int, check_path, check_switch, did_you_mean, shown
from topofl._support.machine import free_memory, resident
from topofl._support.notebook import as_html, paragraph
from topofl._support.plugins import imported
from topofl._support.public import public, warn_caller
from topofl._support.table import NotApplicable, Table
from topofl._support.text import plain_text
from topofl.runs.execute import Processes, as_executor, execute
from topofl.runs.folder import remove_abandoned
from topofl.runs.plan import (
    VARIED,
    Base,
    Point,
    Range,
    by_settings,
    check_space,
    label_of,
    prepare,
)
from topofl.runs.record import cell_of, heads_of, results_of
from topofl.runs.store import ROWS, Failure, RunStore, StoredRun
from topofl.runs.work import Outcome


@dataclass(frozen=True)
class Best:
    """The best point of a sweep.

    Parameters
    ----------
    values
        Its settings by key.
    column
        The score by which points are compared.
    value
        The mean over seeds of the final mean score over nodes.
    seeds
        Number of seeds.

    Examples
    --------
    >>> print(Best({"algorithm.lr": 0.136812, "topology": "ring"}, "accuracy", 0.3834, 2))
    algorithm.lr=0.1368, topology=ring, accuracy 0.383 (mean of 2 seeds)
    """

    values: Mapping[str, Any]
    column: str
    value: float
    seeds: int

    def __str__(self) -> str:
        texts = {
            key: f"{value:.4g}" if isinstance(value, float) else plain_text(value)
            for key, value in self.values.items()
        }
        parts = [f"{key}={text}" for key, text in texts.items()]
        seeds = "1 seed" if self.seeds == 1 else f"mean of {self.seeds} seeds"
        return ", ".join([*parts, f"{self.column} {self.value:.3g} ({seeds})"])

    def _repr_html_(self) -> str:
        return as_html(f"Best: {self}")


def final_of(keys: Collection[str], runs: Mapping[str, StoredRun], column: str) -> float:
    """Return the mean over runs of the final mean score; NaN unless all are finished and finite."""
    finals = []
    for key in keys:
        if key in runs:
            scores = runs[key].curves["scores"]
            check_scored(column, scores, f"run {key}")
            finals.append(scores[column]["mean"][-1])
    if len(finals) < len(keys) or not all(last is not None for last in finals):
        return math.nan
    return sum(finals) / len(finals)


def is_low_good(runs: Iterable[StoredRun], column: str) -> bool:
    """Return whether runs say that low values of a score are good."""
    return any(run.curves.get("low_is_good", {}).get(column, False) for run in runs)


def check_scored(
    column: str, scores: Collection[str], run: str, *, may_be_derived: bool = False
) -> None:
    """Raise ``ValueError`` if a run has no scores, or none of which `column` is one.

    `scores` may lack columns of other stages and sets, such as ``"accuracy_own_val"``, if
    `may_be_derived`.
    """
    if not scores:
        raise ValueError(
            f"`column` must be a score of the runs, got {shown(column)}, but {run} evaluates "
            "nothing; run it with a set, as in evaluation.on=test"
        )
    starts = tuple(f"{score}_" for score in scores if may_be_derived)
    if column not in scores and not str(column).startswith(starts):
        raise ValueError(
            f"`column` must be one of {', '.join(scores)}, got {shown(column)}"
            f"{did_you_mean(column, scores)}"
        )


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
    lost
        Number of runs in progress that were trained together, which have no checkpoints.

    Examples
    --------
    >>> print(SweepInterrupted(3, 10, Path("runs")))
    interrupted with 3 of 10 runs finished in runs; start the same sweep again to go on
    """

    def __init__(self, done: int, total: int, store: Path, lost: int = 0) -> None:
        again = f"; {lost} that were trained together begin again" if lost else ""
        super().__init__(
            f"interrupted with {done} of {total} runs finished in {store}{again}; start the same "
            "sweep again to go on"
        )
        self.done = done
        self.total = total
        self.store = store
        self.lost = lost

    def __reduce__(self) -> tuple[Any, ...]:
        return SweepInterrupted, (self.done, self.total, self.store, self.lost)


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
    together
        Number of those that were trained together with others, as nodes of one run.

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
    together: int = 0

    @cached_property
    def table(self) -> Table:
        """One row per point and seed with the final scores of the run.

        It contains no times, so that it is the same however often the sweep was interrupted.
        Arguments of a user's function with the name of another column, such as ``round``, are
        named ``setting round``.
        """
        keys = list(dict.fromkeys(key for point in self.points for key in point.values))
        errors = {failure.key: f"failed: {failure.error}" for failure in self.failures}
        curves = {run.key: run.curves for run in self.runs}
        results, finals = results_of(
            [
                curves.get(point.key) or NotApplicable(errors.get(point.key, "not performed"))
                for point in self.points
            ]
        )
        if any(point.seed is not None for point in self.points):
            results = ["seed", *results]
        rows = tuple(
            (
                *(cell_of(point.values.get(key)) for key in keys),
                *([] if point.seed is None else [point.seed]),
                *cells,
            )
            for point, cells in zip(self.points, finals, strict=True)
        )
        return Table((*heads_of(keys, results), *results), rows)

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
        by_key = {run.key: run for run in self.runs}
        found: list[Best] = []
        for group in by_settings(self.points):
            keys = list(dict.fromkeys(point.key for point in group))
            value = final_of(keys, by_key, column)
            if not math.isnan(value):
                found.append(Best(group[0].values, column, value, len(keys)))
        if not found:
            raise ValueError(
                "`best` needs a point whose runs are all finished with finite scores, got none; "
                "see `failures`"
            )
        if low_is_good is None:
            low_is_good = is_low_good(self.runs, column)
        return (min if low_is_good else max)(found, key=lambda one: one.value)

    def __repr__(self) -> str:
        return (
            f"Sweep({len(self.points)} points, {len(self.runs)} runs, {len(self.failures)} failed)"
        )

    def _repr_html_(self) -> str:
        table, more = self.table, len(self.points) - ROWS
        note = paragraph(f"{more} more rows are in the table") if more > 0 else ""
        return as_html(repr(self)) + Table(table.columns, table.rows[:ROWS])._repr_html_() + note


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
        points = shard_of(points, shard)
        return perform_points(points, runs, submits, limit, retry_failed, progress)


def check_picklable(base: object) -> None:
    """Raise ``ValueError`` for a function that cannot be sent to other processes."""
    if not callable(base):
        return
    try:
        pickle.dumps(base)
    except Exception as error:  # pickle raises errors of many types
        raise ValueError(
            "`base` must be a function of a module for several processes, got "
            f"{shown(base)}: {error}; define it at the top level of a file, or use jobs=1"
        ) from error


def shard_of(points: Sequence[Point], shard: str | tuple[int, int] | None) -> list[Point]:
    """Return the part of the points that one of several machines performs, without repeated runs.

    Parameters
    ----------
    points
        Points, of which the first one counts if several have the same run.
    shard
        ``"1/2"`` or ``(1, 2)``: the first of two parts; None: all.

    Raises
    ------
    ValueError
        If it has another form, or names a part that does not exist.

    Examples
    --------
    >>> shard_of([], "1/2")
    []
    """
    found: dict[str, Point] = {}
    for point in points:
        found.setdefault(point.key, point)
    if shard is None:
        return list(found.values())
    try:
        part, parts = map(int, shard.split("/") if isinstance(shard, str) else shard)
    except (TypeError, ValueError):
        raise ValueError(
            f"`shard` must be such as '1/2', the first of two parts, got {shown(shard)}"
        ) from None
    check_int("shard", parts, minimum=1)
    check_int("shard", part, minimum=1, maximum=parts)
    return list(found.values())[part - 1 :: parts]


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
    labels = {point.key: label_of(point.values, point.seed) for point in todo}
    jobs = [point.job for point in todo]
    together, lost = list[str](), list[str]()

    def ended(outcome: Outcome) -> None:
        kept = lost if outcome.state == "interrupted" else together
        kept.extend([outcome.key] * outcome.together)

    how = {"limit": limit, "progress": progress, "labels": labels, "ended": ended}
    try:
        execute(jobs, store.root, executor, **how)
    except KeyboardInterrupt:
        done = sum(store.has(point.key) for point in points)
        raise SweepInterrupted(done, len(points), store.root, len(lost)) from None
    keys = [point.key for point in points]
    remove_abandoned(store.root, keys, [key for key in keys if store.has(key)])
    found = [store.find(key) for key in keys]
    failed = {failure.key: failure for failure in store.failures()} if None in found else {}
    runs = tuple(run for run in found if run is not None)
    failures = tuple(failed[key] for key in keys if key in failed)
    return Sweep(tuple(points), runs, failures, len(todo), len(together))


def _fitting(points: Sequence[Point], jobs: int) -> int:
    """Return how many processes fit into free memory, at most `jobs`.

    Raises
    ------
    ValueError
        If not even one does.
    """
    most = jobs
    for device in sorted({"cpu", *(point.device for point in points)}) if points else ():
        needs = sorted((p.memory or 0 for p in points if p.device == device), reverse=True)
        # processes themselves are in memory, too
        free, own = free_memory(device), resident() if device == "cpu" else 0
        if free is None:
            continue
        together = [sum(needs[:k]) + k * own for k in range(1, jobs + 1)]
        fitting = sum(need <= free for need in together)
        where = "memory" if device == "cpu" else f"the memory of {device}"
        if not fitting:
            raise ValueError(
                f"`jobs` must be runs that fit into {where}, the largest needs "
                f"{together[0] >> 20} MiB in a process of its own and {free >> 20} MiB are free; "
                "use smaller models or chunks"
            )
        if fitting < jobs:
            warn_caller(
                f"{fitting} of {jobs} processes are used: more runs do not fit into the "
                f"{free >> 20} MiB of free {where.removeprefix('the ')}"
            )
        most = min(most, fitting)
    return most


def search(
    base: Base,
    space: Mapping[str, Any],
    *,
    trials: int,
    column: str = "accuracy",
    low_is_good: bool | None = None,
    batch: int = 4,
    seed: int = 0,
    seeds: int | Sequence[int] = 1,
    vary: Sequence[str] = VARIED,
    store: str | os.PathLike[str] = STORE,
    jobs: int | None = None,
    executor: Any = None,
    retry_failed: bool = False,
    progress: bool | str = "auto",
) -> Sweep:
    """Search a space by Optuna's tree-structured Parzen estimator, and return all of its runs.

    Trials are suggested in batches; each is performed with all seeds as a sweep. The value of a
    trial is the mean over seeds of the final mean score over nodes; a trial with a failed run
    counts as failed. The same call suggests the same trials, so an interrupted search goes on where
    it was, from the runs in the store.

    Parameters
    ----------
    base, seeds, vary, store, jobs, executor, retry_failed, progress
        As in :func:`topofl.sweep`.
    space
        As in :func:`topofl.runs.random_points`.
    trials
        Number of points to try.
    column
        A score of the runs.
    low_is_good
        Whether low values of the score are better; None: as the first finished run says.
    batch
        Number of trials that are suggested at a time, before their values are known.
    seed
        Seed of the suggestions.

    Returns
    -------
    Sweep
        Points, runs and failures of all trials; its method ``best`` returns the best point.

    Raises
    ------
    ModuleNotFoundError
        If Optuna is not installed.
    ValueError
        Before the first run trains: if the first trial has no such score, or as
        :func:`topofl.sweep`.

    References
    ----------
    Akiba, Sano, Yanase, Ohta and Koyama (2019), Optuna, KDD.

    Examples
    --------
    >>> import tempfile
    >>> from topofl.runs import log_uniform
    >>> base = {"data": {"name": "digits", "n": 4}, "topology": "ring", "run": {"rounds": 1}}
    >>> base |= {"algorithm": {"name": "dsgd"}}
    >>> space = {"algorithm.lr": log_uniform(0.01, 1)}
    >>> len(search(base, space, trials=2, store=tempfile.mkdtemp()).runs)  # doctest: +SKIP
    2
    """
    optuna = imported(
        "optuna",
        "optuna",
        "`search`",
        name="Optuna",
        instead=", or draw points by topofl.runs.random_points",
    )
    lists = check_space("space", space)
    trials = check_int("trials", trials, minimum=1)
    batch = check_int("batch", batch, minimum=1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=check_int("seed", seed, minimum=0))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    found: list[Sweep] = []
    options = {"seeds": seeds, "vary": vary, "store": Path(store), "jobs": jobs}
    options |= {"executor": executor, "retry_failed": retry_failed, "progress": progress}
    for start in range(0, trials, batch):
        asked = [study.ask() for _ in range(min(batch, trials - start))]
        points = [{key: _suggest(trial, key, lists[key]) for key in lists} for trial in asked]
        if not start:
            first = prepare(base, points[:1], seeds=seeds, vary=vary)[0]
            check_scored(column, first.scores, "its first trial", may_be_derived=True)
        found.append(sweep(base, points, **options))
        runs = {run.key: run for run in found[-1].runs}
        for trial, values in zip(asked, points, strict=True):
            keys = [point.key for point in found[-1].points if point.values == values]
            value = final_of(keys, runs, column)
            if math.isnan(value):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                is_low = is_low_good(runs.values(), column) if low_is_good is None else low_is_good
                study.tell(trial, -value if is_low else value)
    return Sweep(
        tuple(point for one in found for point in one.points),
        tuple({run.key: run for one in found for run in one.runs}.values()),
        tuple({failure.key: failure for one in found for failure in one.failures}.values()),
        sum(one.trained for one in found),
        sum(one.together for one in found),
    )


def _suggest(trial: Any, key: str, values: Any) -> Any:
    """Return Optuna's suggestion for one setting."""
    if not isinstance(values, Range):  # categories must be plain, so they are suggested by number
        return values[trial.suggest_categorical(key, list(range(len(values))))]
    if values.whole:
        return trial.suggest_int(key, int(values.low), int(values.high))
    return trial.suggest_float(key, values.low, values.high, log=values.log)
