"""The plan of a sweep: time and memory of its runs, measured in some of their rounds."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from topofl import config
from topofl._support.check import check_int, check_path
from topofl._support.machine import free_memory
from topofl._support.table import NotApplicable, Table
from topofl._support.text import approximate, plain_text
from topofl.callbacks import Callback, Event
from topofl.engine.probe import EVERY, timed
from topofl.runs.execute import of_one_kind
from topofl.runs.identity import peak_memory_megabytes, reset_peak_memory
from topofl.runs.plan import VARIED, Base, Point, by_settings, prepare
from topofl.runs.store import RunStore
from topofl.runs.sweep import STORE, shard_of

PROBED_EXAMPLES = 300
"""Largest number of test examples in a probe's evaluations."""


_OF_GRAPHS = ("topology", "mixing")
"""Tables without a meaning for algorithms that ignore the topology."""


def probe(tables: Mapping[str, Any]) -> tuple[float, float]:
    """Return the estimated seconds of a run and its peak memory in MiB, from some rounds."""
    reset_peak_memory()
    start = time.perf_counter()
    experiment = config.build(tables)
    prepared = time.perf_counter() - start
    rounds, evaluation = (experiment.options[name] for name in ("rounds", "evaluation"))
    every = evaluation.examples or len(experiment.clients.dataset.test)
    examples = min(every, PROBED_EXAMPLES)
    if not evaluation.on or any(name.startswith("own_") for name in evaluation.on):
        every = examples = None  # those of the run
    found = timed(
        partial(_train, experiment, examples=examples, every=EVERY, fine_tune=False), rounds
    )
    tuning = _tuning(experiment, examples, found.evaluation)
    tuned = -(-rounds // (evaluation.fine_tune_every or rounds)) if tuning else 0
    evaluations = 1 + -(-rounds // evaluation.every) + tuned  # tuned models are evaluated, too
    scale = 1.0 if every is None or examples is None else every / examples
    seconds = prepared + found.once + rounds * found.round + tuned * tuning
    return seconds + scale * evaluations * found.evaluation, peak_memory_megabytes()


def _tuning(experiment: config.Experiment, examples: int | None, per_evaluation: float) -> float:
    """Return the seconds of fine-tuning before an evaluation; 0 without."""
    fine_tune = experiment.options["evaluation"].fine_tune
    if not (fine_tune or (fine_tune is None and experiment.algorithm.fine_tune is not None)):
        return 0.0
    tuned: list[Event] = []
    _train(experiment, 1, tuned.append, examples=examples, every=1)
    last = [event for event in tuned if event.kind == "evaluation"][-1]
    return max(last.values["seconds"] - 2 * per_evaluation, 0.0)  # also before fine-tuning


def _train(experiment: config.Experiment, rounds: int, note: Callback, **changes: Any) -> None:
    """Train for some rounds, with changed evaluations, of which fine-tuned ones are at the end."""
    evaluation = replace(experiment.options["evaluation"], fine_tune_every=None, **changes)
    options = {**experiment.options, "rounds": rounds, "evaluation": evaluation}
    replace(experiment, options=options).run(progress=False, callbacks=[note])


def planned(
    base: Base,
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    vary: Sequence[str] = VARIED,
    store: str | os.PathLike[str] = STORE,
    jobs: int | None = None,
    shard: str | tuple[int, int] | None = None,
) -> Table:
    """Return one row per point of a sweep: runs, those to do, their time and memory.

    Each point with runs to do is probed by some rounds; a point that fails in them, for example
    since it diverges, has n/a with the reason. Times are of single processes; those of the title
    are divided by those of the `jobs` processes that fit into memory.

    Parameters
    ----------
    base, grid, seeds, vary, store, jobs, shard
        As in :func:`topofl.sweep`.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.sweep`; also if `base` is a function that returns the arguments of
        :func:`topofl.run`, which cannot be probed.

    Examples
    --------
    >>> import tempfile
    >>> base = {"data": {"name": "digits", "n": 4}, "topology": "ring", "run": {"rounds": 1}}
    >>> base |= {"algorithm": "dsgd,lr=0.1"}
    >>> table = planned(base, {"run.rounds": [1, 2]}, seeds=2, store=tempfile.mkdtemp())
    >>> table.column("run.rounds"), table.column("runs")
    (('1', '2', 'all'), (2, 2, 4))
    """
    jobs = check_int("jobs", 1 if jobs is None else jobs, minimum=1)
    runs = RunStore(check_path("store", store))
    runs.check()
    points = shard_of(prepare(base, grid, seeds=seeds, vary=vary), shard)
    if any(point.job.function is not None for point in points):
        raise ValueError(
            "`base` must return configuration tables for a plan, got the arguments of topofl.run; "
            "estimate such a run by topofl.estimate"
        )
    return _table(by_settings(points), runs, jobs)


def _table(groups: Sequence[Sequence[Point]], store: RunStore, jobs: int) -> Table:
    """Return the table of points, each with the runs of its seeds."""
    keys = list(dict.fromkeys(key for group in groups for key in group[0].values)) or ["base"]
    rows: list[tuple[Any, ...]] = []
    for group in groups:
        todo = [point for point in group if not store.has(point.key)]
        minutes, megabytes = _cost(todo)
        values = [plain_text(group[0].values.get(key, "none")) for key in keys]
        rows.append((*values, len(group), len(todo), minutes, megabytes))
    known = [row for row in rows if not isinstance(row[-1], NotApplicable)]
    totals = [sum(row[len(keys) + k] for row in rows) for k in range(2)]
    minutes = sum(row[-2] for row in known)
    peak = max((row[-1] for row in known), default=0.0)
    names = ["all", *(NotApplicable("of all points") for _ in keys[1:])]
    rows.append((*names, *totals, minutes, peak))
    columns = (*keys, "runs", "to do", "minutes", "MiB per process")
    title = _title(minutes, peak, jobs)
    if failed := len(groups) - len(known):
        title += f"; {failed} of {len(groups)} points failed in their probes and are left out"
    waiting = [p.job for group in groups for p in group if not store.has(p.key)]
    if together := sum(len(own) for own in of_one_kind(waiting, jobs) if len(own) > 1):
        runs = f"{together} run{'s' * (together > 1)}"
        title += f"; up to {runs} will be trained together, which takes less time"
    title += _repeated(groups)
    return Table(columns, tuple(rows), title=title)


def _repeated(groups: Sequence[Sequence[Point]]) -> str:
    """Return how many points repeat another one, since only an unused topology differs."""
    alike: dict[str, list[Point]] = {}
    for point, *_ in groups:
        if point.ignores_topology:
            used = {key: part for key, part in point.job.tables.items() if key not in _OF_GRAPHS}
            alike.setdefault(json.dumps(used, sort_keys=True, default=str), []).append(point)
    repeats = [points for points in alike.values() if len(points) > 1]
    if not repeats:
        return ""
    names = sorted({points[0].job.tables["algorithm"]["name"] for points in repeats})
    count = sum(len(points) - 1 for points in repeats)
    again = f"{count} of {len(groups)} points repeat{'s' * (count == 1)} other points"
    return f"; {again}, since {' and '.join(names)} ignore{'s' * (len(names) == 1)} the topology"


def _cost(todo: Sequence[Point]) -> tuple[float | NotApplicable, float | NotApplicable]:
    """Return the minutes of a point's runs and their MiB, or why the first of them failed."""
    if not todo:
        return 0.0, 0.0
    try:
        seconds, megabytes = probe(todo[0].job.tables)
    except Exception as error:  # as in a sweep, one run that fails does not stop the others
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        what = NotApplicable(f"failed in its probe: {text}")
        return what, what
    return len(todo) * seconds / 60, megabytes


def _title(minutes: float, peak: float, jobs: int) -> str:
    """Return the sentence about all runs: their time, and how many fit into memory."""
    free = free_memory("cpu")
    fitting = jobs if free is None or not peak else min(int(free / 2**20 // peak), jobs)
    used = max(fitting, 1)
    processes = f"{used} process{'es' * (used > 1)}"
    title = f"{approximate(60 * minutes / used)} in {processes}, estimated from probes"
    if free is not None and peak:
        title += f"; {fitting} of {jobs} fit into {free >> 20} MiB of free memory"
    return title
