"""What a command will do, before it does it: runs, time and memory."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from topofl import Table, config

from .figure import Figure, Setting
from .runs import Run, Store, forget_peak, key_of, peak_megabytes

__all__ = ["plan", "probe"]

PROBED_ROUNDS, PROBED_NODES = 3, 5
"""So many rounds are run in a probe, and so many nodes' models evaluated."""


def plan(figures: Sequence[Figure], setting: Setting, store: Store) -> Table:
    """Return one row a figure: its training runs, how many of them are still to do, and their time and memory.

    Time is that of one process after the other, inferred from :func:`probe` of one run of every kind; a run that
    figures share is counted for the first of them. What figures do besides training, seconds, is not in it.
    """
    seen: set[str] = set()
    kinds: dict[str, tuple[float, float]] = {}
    rows: list[tuple[Any, ...]] = []
    for figure in figures:
        runs = {key_of(run): run for run in figure.runs(setting)}
        todo = [run for key, run in runs.items() if key not in seen and not store.has(run)]
        seen |= set(runs)
        costs = [_known_or_probed(run, kinds) for run in todo]
        minutes, peak = sum(seconds for seconds, _ in costs) / 60, max((peak for _, peak in costs), default=0.0)
        rows.append((figure.id, len(runs), len(todo), minutes, peak))
    rows.append(("all", len(seen), *(sum(row[k] for row in rows) for k in (2, 3)), max(row[4] for row in rows)))
    columns = ("figure", "runs", "to do", "minutes", "MiB a process")
    return Table(columns, tuple(rows), title=f"scale {setting.scale}, {len(setting.seeds)} seeds; inferred from probes")


def _known_or_probed(run: Run, kinds: dict[str, tuple[float, float]]) -> tuple[float, float]:
    kind = json.dumps(_without_seeds(run.tables), sort_keys=True, default=str)
    if kind not in kinds:
        kinds[kind] = probe(run)
    return kinds[kind]


def _without_seeds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_seeds(entry) for key, entry in value.items() if key not in ("seed", "split_seed")}
    return value


def probe(run: Run) -> tuple[float, float]:
    """Return the seconds that a run will take, from a few of its rounds and evaluations, and its peak memory in MiB."""
    forget_peak()
    start = time.perf_counter()
    experiment = config.build(run.tables)
    prepared = time.perf_counter() - start
    n, options = experiment.clients.n, experiment.options
    few = {"eval_nodes": min(n, PROBED_NODES), "eval_every": PROBED_ROUNDS + 1}
    one, several = (_seconds(experiment, few | {"rounds": rounds}) for rounds in (1, 1 + PROBED_ROUNDS))
    step = max(several - one, 0.0) / PROBED_ROUNDS
    evaluation = max(one - step, 0.0) / 2 * n / min(n, PROBED_NODES)  # before the first round and after the last
    evaluations = 1 + -(-options["rounds"] // options["eval_every"])
    return prepared + options["rounds"] * step + evaluations * evaluation, peak_megabytes()


def _seconds(experiment: config.Experiment, options: dict[str, Any]) -> float:
    start = time.perf_counter()
    replace(experiment, options={**experiment.options, **options}).run(progress=False)
    return time.perf_counter() - start
