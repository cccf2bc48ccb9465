"""The plan of a command: training runs with estimated time and memory."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from topofl import Table, config
from topofl.runs.run import Run

from ..figure import Figure
from ..figure_data import needed
from ..setting import Setting
from .keys import keyed
from .store import Store, peak_memory_megabytes, reset_peak_memory

__all__ = ["plan", "probe"]


PROBED_ROUNDS = 2
"""Rounds of a probe's short runs; its long run has three times as many."""


PROBED_EXAMPLES = 300
"""Largest number of test examples in a probe's evaluations."""


def plan(figures: Sequence[Figure], setting: Setting, store: Store) -> Table:
    """Return one row per figure: its training runs, those to do, and their time and memory.

    Times are for a single process, estimated by :func:`probe` from one run of every kind; a run
    that figures share is counted for the first of them. The seconds that figures take in addition
    to training are not included.
    """
    seen: set[str] = set()
    kinds: dict[str, tuple[float, float]] = {}
    rows: list[tuple[Any, ...]] = []
    for figure in figures:
        runs = keyed(figure.runs(setting))
        todo = [
            run
            for key, run in needed(figure, setting, store).items()
            if key not in seen and not store.has(run)
        ]
        seen |= set(runs)
        costs = [_known_or_probed(run, kinds) for run in todo]
        minutes = sum(seconds for seconds, _ in costs) / 60
        peak = max((megabytes for _, megabytes in costs), default=0.0)
        rows.append((figure.id, len(runs), len(todo), minutes, peak))
    todo_total, minutes_total = (sum(row[k] for row in rows) for k in (2, 3))
    rows.append(
        ("all", len(seen), todo_total, minutes_total, max([0.0, *(row[4] for row in rows)]))
    )
    count = len(setting.seeds)
    title = f"scale {setting.scale}, {count} seed{'s' * (count > 1)}; estimated from probes"
    columns = ("figure", "runs", "to do", "minutes", "MiB per process")
    return Table(columns, tuple(rows), title=title)


def _known_or_probed(run: Run, kinds: dict[str, tuple[float, float]]) -> tuple[float, float]:
    kind = json.dumps(_without_seeds(run.tables), sort_keys=True, default=str)
    if kind not in kinds:
        kinds[kind] = probe(run)
    return kinds[kind]


def _without_seeds(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_seeds(entry)
            for key, entry in value.items()
            if key not in ("seed", "split_seed")
        }
    return value


def probe(run: Run) -> tuple[float, float]:
    """Return the estimated seconds of a run and its peak memory in MiB, from a few rounds.

    The times of a round and of an evaluation are differences between probes of different lengths,
    so that one-time costs are counted once.
    """
    reset_peak_memory()
    start = time.perf_counter()
    experiment = config.build(run.tables)
    prepared = time.perf_counter() - start
    # Both of these probes have two evaluations, before the first and after the last round.
    short = _seconds(experiment, PROBED_ROUNDS, every=PROBED_ROUNDS)
    long = _seconds(experiment, 3 * PROBED_ROUNDS, every=3 * PROBED_ROUNDS)
    evaluated = _seconds(experiment, PROBED_ROUNDS, every=1)
    per_round = max(long - short, 0.0) / (2 * PROBED_ROUNDS)
    per_evaluation = max(evaluated - short, 0.0) / (PROBED_ROUNDS - 1)  # of the probe's examples
    once = max(short - PROBED_ROUNDS * per_round - 2 * per_evaluation, 0.0)
    rounds = experiment.options["rounds"]
    evaluations = 1 + -(-rounds // experiment.options["evaluation"].every)
    seconds = prepared + once + rounds * per_round
    seconds += evaluations * per_evaluation / _share(experiment)
    return seconds, peak_memory_megabytes()


def _share(experiment: config.Experiment) -> float:
    """Return the share of a run's test examples on which a probe evaluates."""
    all_examples = experiment.options["evaluation"].examples or len(experiment.clients.dataset.test)
    return (_examples(experiment) or all_examples) / all_examples


def _examples(experiment: config.Experiment) -> int | None:
    """Return the number of test examples of a probe; None for those of the run."""
    evaluation = experiment.options["evaluation"]
    if any(name.startswith("own_") for name in evaluation.on):
        return None
    return min(evaluation.examples or len(experiment.clients.dataset.test), PROBED_EXAMPLES)


def _seconds(experiment: config.Experiment, rounds: int, every: int) -> float:
    evaluation = experiment.options["evaluation"]
    fine_tune_every = None if evaluation.fine_tune_every is None else every
    evaluation = replace(
        evaluation, every=every, examples=_examples(experiment), fine_tune_every=fine_tune_every
    )
    options = {**experiment.options, "rounds": rounds, "evaluation": evaluation}
    start = time.perf_counter()
    replace(experiment, options=options).run(progress=False)
    return time.perf_counter() - start
