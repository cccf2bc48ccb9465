"""Search for good settings by Optuna, whose trials are points of sweeps."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topofl._support.check import check_int
from topofl._support.optional import imported
from topofl.runs.best import check_scored, final_of, is_low_good
from topofl.runs.plan import Base, prepare
from topofl.runs.points import VARIED, Range, check_space
from topofl.runs.sweep import STORE, Sweep, sweep

__all__ = ["search"]


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
            check_scored(column, first.scores, "its first trial")
        found.append(sweep(base, points, **options))
        runs = {run.key: run for run in found[-1].runs}
        for trial, values in zip(asked, points, strict=True):
            keys = {point.key for point in found[-1].points if point.values == values}
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
    )


def _suggest(trial: Any, key: str, values: Any) -> Any:
    """Return Optuna's suggestion for one setting."""
    if not isinstance(values, Range):  # categories must be plain, so they are suggested by number
        return values[trial.suggest_categorical(key, list(range(len(values))))]
    if values.whole:
        return trial.suggest_int(key, int(values.low), int(values.high))
    return trial.suggest_float(key, values.low, values.high, log=values.log)
