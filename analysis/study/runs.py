"""Computations of the study: predictors of graphs, tuned learning rates, and training runs."""

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from topofl import History, Topology, TopologyError, TopologySequence, metrics, mixing
from topofl.data import Partition
from topofl.runs import RunStore, StoredRun
from topofl.runs.execute import Processes
from topofl.runs.execute import execute as perform_all
from topofl.runs.identity import hash_of
from topofl.runs.work import Job, Outcome

from ..program import completed
from .graphs import Graph, messages_of
from .scenarios import (
    TUNING_SEED,
    Cell,
    Scenario,
    Source,
    arguments,
    cells,
    clients_of,
    graph_of,
)

ROUNDS = 60
"""Rounds examined of sequences that do not repeat."""


def _rounds(graph: Graph) -> int | None:
    """Return the rounds to examine of a sequence without period, None for other graphs."""
    return ROUNDS if isinstance(graph, TopologySequence) and graph.period is None else None


def _heterogeneity(graph: Graph, *clients: Partition, **how: Any) -> float:
    return metrics.neighborhood_heterogeneity(graph, *clients, rounds=_rounds(graph), **how)


def _deviation(graph: Graph, clients: Partition, statistics: Any, hops: int) -> float:
    how: dict[str, Any] = {"statistics": statistics, "hops": hops, "rounds": _rounds(graph)}
    return metrics.predicted_deviation(graph, clients, **how).value


def _resistance(graph: Graph) -> float:
    if not isinstance(graph, Topology) or graph.is_directed:
        raise TopologyError("resistance is defined for undirected graphs")
    return 2 * metrics.kirchhoff_index(graph) / (graph.n * (graph.n - 1))


PREDICTORS: Mapping[str, tuple[Callable[[Any, Partition, Any], float], int]] = {
    "spectral gap": (lambda graph, *_: metrics.spectral_gap(graph), +1),
    "mean degree": (lambda graph, *_: messages_of(graph, ROUNDS) / graph.n, +1),
    "mean effective resistance": (lambda graph, *_: _resistance(graph), -1),
    **{
        f"n_W({gamma:g})": (lambda graph, *_, g=gamma: metrics.effective_neighbors(graph, g), +1)
        for gamma in (0.5, 0.9, 0.99)
    },
    **{
        f"N_{hops}": (
            lambda graph, *_, k=hops: metrics.accumulated_noise(graph, k, rounds=_rounds(graph)),
            -1,
        )
        for hops in ("inf", 10)
    },
    "gradient mixing error": (lambda graph, _, s: _heterogeneity(graph, gradients=s.means), -1),
    # the label skew of neighborhoods: H_1 by equal weights of a node and its neighbors
    "H_1, unweighted": (
        lambda graph, own, _: _heterogeneity(graph, own, weights=mixing.uniform, around="mean"),
        -1,
    ),
    **{
        f"H_{hops}": (lambda graph, own, _, k=hops: _heterogeneity(graph, own, hops=k), -1)
        for hops in (1, 5, 10, 20)
    },
    **{
        f"predicted deviation ({hops})": (
            lambda graph, own, s, k=hops: _deviation(graph, own, s, k),
            -1,
        )
        for hops in (10, 20)
    },
}
"""Function of a graph, clients and gradient statistics, and the sign of its correlation with
accuracy if it predicts well."""


def predictors_of(graph: Graph, clients: Partition, statistics: Any) -> dict[str, float | None]:
    """Return all predictors of a graph; None where one is not defined or not finite."""
    found: dict[str, float | None] = {}
    for name, (compute, _) in PREDICTORS.items():
        try:
            value: Any = compute(graph, clients, statistics)
        except (TopologyError, ValueError):
            value = math.nan
        is_number = isinstance(value, int | float) and math.isfinite(value)
        found[name] = float(value) if is_number else None
    return found


class Records:
    """The results of a study, found by hashes of everything that determines them.

    Training runs are in the folder ``runs``, a :class:`topofl.runs.RunStore`. Numbers of graphs,
    which are no runs, are in ``predictions.jsonl``, to which each computation appends one line.
    A line that was cut off when a process was killed is dropped.

    Parameters
    ----------
    folder
        Folder of the results.
    about
        Returns what determines the results of a scenario of a name, apart from the cell, as JSON
        values: its settings and the hash of its data.
    """

    def __init__(self, folder: Path, about: Callable[[str], Any]) -> None:
        self.about = about
        self.store = RunStore(folder / "runs")
        self.path = folder / "predictions.jsonl"
        self.ran: dict[str, Mapping[str, Any]] = {}
        self.failed: set[str] = set()
        self.cells: dict[str, Cell] = {}
        self.predicted: dict[str, Any] = {}
        for failure in self.store.failures() if self.store.root.exists() else ():
            if (outcomes := _of_failure(failure.error)) is not None:
                self.ran[failure.key] = outcomes
        for line in self.path.read_text("utf-8").splitlines() if self.path.exists() else ():
            try:
                key, cell, values = json.loads(line)
            except ValueError:
                continue
            self.cells[key], self.predicted[key] = Cell(**cell), values

    def key(self, cell: Cell, lr: float | None = None) -> str:
        """Return the hash of a run, or, without learning rate, of the numbers of a graph."""
        return hash_of([asdict(cell), lr, self.about(cell.scenario)])

    def prediction(self, cell: Cell) -> Any:
        """Return what is known about a graph before training; None: not computed."""
        return self.predicted.get(self.key(cell))

    def add(self, cell: Cell, values: Any, key: str = "") -> None:
        """Keep what is known about a graph; `key` replaces its hash."""
        key = key or self.key(cell)
        self.cells[key], self.predicted[key] = cell, values
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            if file.tell() and (file.seek(-1, 2), file.read(1))[1] != b"\n":
                file.write(b"\n")  # after a line that was cut off
            file.write(f"{json.dumps([key, asdict(cell), values])}\n".encode())

    def outcomes(self, cell: Cell, lr: float) -> Mapping[str, Any] | None:
        """Return the outcomes of a run; None: not performed.

        They are ``{"diverged": True}`` or ``{"missing": reason}`` for a run that cannot exist.
        """
        key = self.key(cell, lr)
        if key not in self.ran and (run := self.store.find(key)) is not None:
            self.ran[key] = _outcomes(run)
        return self.ran.get(key)

    @property
    def failures(self) -> str:
        """How many runs failed now for another reason, and how to see why; empty if none did."""
        if not self.failed:
            return ""
        return f"{len(self.failed)} failed (topofl runs {self.store.root} --failed --traceback)"


def _of_failure(error: str) -> dict[str, Any] | None:
    """Return the outcomes of a run that cannot succeed; None: it is to be tried again."""
    kind, _, reason = error.partition(": ")
    found = {"DivergenceError": {"diverged": True}, "TopologyError": {"missing": reason}}
    return found.get(kind)


def _outcomes(run: StoredRun) -> dict[str, Any]:
    """Return the outcomes of a stored run, without reading its history."""
    curves, accuracy = run.curves, run.curves["scores"]["accuracy"]
    rounds, means = np.array(curves["round"]), np.array(accuracy["mean"], dtype=float)
    return {
        "learning phase": float(means[rounds <= rounds[-1] / 2].mean()),
        "final": float(means[rounds > 0.8 * rounds[-1]].mean()),
        "worst node": accuracy["worst"][-1],
        "all rounds": float(means.mean()),
        "spread": accuracy["std"][-1],
        "consensus": run.note["consensus"],
        "curve": [round(mean, 5) for mean in means.tolist()],
        "rounds": curves["round"],
        "bytes": [int(sent) for sent in curves["bytes"]],
    }


def _noted(experiment: Any, history: History) -> dict[str, Any]:
    """Return what outcomes need and curves lack."""
    return {"consensus": float(history["consensus_distance"].mean())}


def train(
    runs: Iterable[tuple[Cell, float]],
    records: Records,
    arguments: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    executor: Processes | None = None,
    *,
    more: Callable[[], bool] = lambda: True,
    title: str = "",
) -> None:
    """Perform the runs, cells with learning rates, that are not in the store.

    Runs that diverge and those that cannot exist are kept with their error and not repeated; runs
    that failed for another reason, such as a killed process, are tried again the next time.

    Parameters
    ----------
    runs, records
        What is performed, and where it is kept.
    arguments
        Returns the arguments of :func:`topofl.run` for a point with ``cell`` and ``lr``.
    executor
        Processes; None: this process.
    more
        Whether another run may start.
    title
        Title of the live table, which is shown on terminals.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, when the runs in progress have ended their rounds.
    OSError
        If the store cannot be written to.
    """
    todo = {records.key(*run): run for run in runs if records.outcomes(*run) is None}

    def ended(outcome: Outcome) -> None:
        records.failed.discard(outcome.key)
        if outcome.state == "failed" and (found := _of_failure(outcome.error)) is not None:
            records.ran[outcome.key] = found
        elif outcome.state == "failed":
            records.failed.add(outcome.key)

    perform_all(
        [_job(key, *run, arguments) for key, run in todo.items()],
        records.store.root,
        executor,
        limit=executor.jobs if isinstance(executor, Processes) else 1,
        labels={key: _label(cell, lr) for key, (cell, lr) in todo.items()},
        title=title,
        ended=ended,
        more=more,
    )


def _job(key: str, cell: Cell, lr: float, arguments: Callable[..., Mapping[str, Any]]) -> Job:
    tables = {
        "data": {"name": cell.scenario, "partition": cell.partition},
        "algorithm": {"name": cell.method, "lr": lr},
        "topology": {"name": cell.graph},
        "run": {"seed": cell.seed},
    }
    return Job(key, tables, function=arguments, point={"cell": cell, "lr": lr}, extra=_noted)


def _label(cell: Cell, lr: float) -> str:
    return f"{cell.method}, {cell.partition}, {cell.graph}, seed {cell.seed}, lr {lr:g}"


More = Callable[[], bool]
Runs = list[tuple[Cell, float]]

WITHOUT_TUNING = {"Clique Averaging": ("digits 60", "D-SGD")}
"""Methods that do not exist on the graph of tuning, and whose rates they use."""


def tuning_runs(scenario: Scenario) -> Runs:
    """Return the runs that choose learning rates, where there is a choice."""
    return [
        (cell, lr)
        for partition in scenario.partitions
        for method in scenario.methods
        for graph in (scenario.graphs if scenario.tuned_on is None else [scenario.tuned_on])
        for cell in _tuned(scenario, Cell(scenario.name, partition, method, 0, graph))
        for lr in scenario.rates_of(method)
        if len(scenario.rates_of(method)) > 1
    ]


def _tuned(scenario: Scenario, cell: Cell) -> list[Cell]:
    """Return the cells in which the learning rate of a cell is chosen."""
    other, method = WITHOUT_TUNING.get(cell.method, (cell.scenario, cell.method))
    graph = scenario.tuned_on or cell.graph
    return [Cell(other, cell.partition, method, seed, graph) for seed in scenario.tuning_seeds]


def rate_of(scenario: Scenario, cell: Cell, records: Records) -> float | None:
    """Return the learning rate of a cell: the one with the highest mean accuracy when tuned.

    None if not all rates were tried. If there is only one, it is not tried.
    """
    rates = scenario.rates_of(cell.method)
    if len(rates) == 1:
        return rates[0]
    return best_rate(_tuned(scenario, cell), rates, records)


def best_rate(cells: Sequence[Cell], rates: Sequence[float], records: Records) -> float | None:
    """Return the rate with the highest mean accuracy in cells; None if not all were tried."""
    found = [[records.outcomes(cell, lr) for cell in cells] for lr in rates]
    means = []
    for tried in found:
        curves = [one.get("curve", [-1.0]) for one in tried if one is not None]
        if len(curves) < len(tried):
            return None
        means.append(sum(sum(curve) / len(curve) for curve in curves))
    return rates[means.index(max(means))]


def rates_said(scenario: Scenario, records: Records) -> list[str]:
    """Return a sentence on the learning rates of each method, with a warning if one is extreme."""
    lines = []
    for method in scenario.methods:
        rates = scenario.rates_of(method)
        cells_of = {p: Cell(scenario.name, p, method, TUNING_SEED, "") for p in scenario.partitions}
        found = {p: rate_of(scenario, cell, records) for p, cell in cells_of.items()}
        start = f"{scenario.name}, {method}: learning rate"
        if len(rates) == 1:
            lines.append(f"{start} {rates[0]:g}, as given.")
            continue
        chosen = [f"{_placed(lr, rates)} for {p}" for p, lr in found.items() if lr is not None]
        tried = ", ".join(f"{rate:g}" for rate in sorted(rates))
        if chosen:
            lines.append(f"{start} {'; '.join(chosen)}. Tried: {tried}.")
    return lines


def _placed(lr: float, rates: Sequence[float]) -> str:
    """Return a rate, and whether a better one may lie beyond those that were tried."""
    ends = {min(rates): "smallest", max(rates): "largest"}
    return f"{lr:g} (the {ends[lr]} tried)" if lr in ends else f"{lr:g}"


def runs(scenario: Scenario, records: Records) -> Runs:
    """Return the runs of a scenario whose learning rates are known."""
    found = [(cell, rate_of(scenario, cell, records)) for cell in cells(scenario)]
    return [(cell, lr) for cell, lr in found if lr is not None]


def predicted_cell(cell: Cell) -> Cell:
    """Return the cell of the predictors of a graph, which do not depend on the method."""
    return replace(cell, method="")


def status(scenarios: Sequence[str], records: Records, source: Source) -> str:
    """Return a sentence on how many training runs are in the store and how many are not."""
    tuning, known, every = set(), set(), 0
    for scenario in map(source.scenario, scenarios):
        tuning |= set(tuning_runs(scenario))
        known |= set(runs(scenario, records))
        every += len(cells(scenario))
    done = sum(records.outcomes(*run) is not None for run in tuning | known)
    left = len(tuning | known) + every - len(known) - done
    parts = [f"{done + left:,} runs in {records.store.root}: {done:,} done, {left:,} to do"]
    return ", ".join(parts + [records.failures] * bool(records.failures))


def compute_for(
    minutes: float,
    scenarios: Sequence[str],
    records: Records,
    source: Source,
    *,
    processes: int,
    show: Callable[[str], object],
    numbers: "Numbers | None" = None,
) -> None:
    """Show what is done, and compute what is missing, starting no run after some minutes.

    Ctrl-C ends it, too; the same call continues.
    """
    end = time.monotonic() + 60 * minutes
    show(status(scenarios, records, source))
    try:
        compute(
            scenarios,
            records,
            source,
            processes=processes,
            more=lambda: time.monotonic() < end,
            numbers=numbers,
        )
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)


def compute(
    scenarios: Sequence[str],
    records: Records,
    source: Source = Source(),  # noqa: B008 - it is frozen
    *,
    processes: int = 1,
    more: More = lambda: True,
    numbers: "Numbers | None" = None,
) -> None:
    """Compute what is missing in the results of scenarios.

    Parameters
    ----------
    scenarios
        Names.
    records
        Results; the same call continues an interrupted one.
    source
        Where the scenarios come from.
    processes
        Processes, each with one thread, so that results do not depend on their number.
    more
        Whether another computation may start.
    numbers
        Function of a module that returns what is known about a graph before training; None: the
        predictors of the study.

    Raises
    ------
    ValueError
        If there are results of other settings.
    KeyboardInterrupt, OSError
        As :func:`analysis.study.runs.train`.
    """
    executor = Processes(processes, threads=1)
    options = {"executor": executor, "more": more}
    try:
        for scenario in map(source.scenario, scenarios):
            _check_settings(scenario, records)
            perform = partial(train, records=records, arguments=partial(arguments, source))
            perform(tuning_runs(scenario), title=f"{scenario.name}, learning rates", **options)
            predict(scenario, records, source, numbers or study_numbers, **options)
            perform(runs(scenario, records), title=scenario.name, **options)
    finally:
        executor.shutdown()


def _check_settings(scenario: Scenario, records: Records) -> None:
    """Raise if a folder has results of other settings; record those of a new one."""
    if scenario.name not in records.predicted:
        cell = Cell(scenario.name, "", "", 0, "")
        records.add(cell, scenario.settings, key=scenario.name)
    if records.predicted[scenario.name] != scenario.settings:
        raise ValueError(
            f"`out` must be a new folder, since {records.path} has results of {scenario.name} with "
            "other settings"
        )


Numbers = Callable[[Graph, Cell, Source], dict[str, Any]]
"""``numbers(graph, cell, source)`` returns what is known about a graph before training."""


def study_numbers(graph: Graph, cell: Cell, source: Source) -> dict[str, Any]:
    """Return the predictors of a graph."""
    return predictors_of(graph, clients_of(cell, source), statistics_of(cell, source))


def predict(
    scenario: Scenario,
    records: Records,
    source: Source,
    numbers: Numbers,
    executor: Processes,
    more: More,
) -> None:
    """Compute the numbers of all graphs that are missing."""
    every = dict.fromkeys(predicted_cell(cell) for cell in cells(scenario))
    waiting = [cell for cell in every if records.prediction(cell) is None]
    title, limit = f"{scenario.name}, graphs", executor.jobs
    with tqdm(total=len(waiting), desc=title, unit="graph", leave=False, disable=None) as bar:

        def submit(cell: Cell) -> Any:
            return executor.submit(_predicted, cell, source, numbers)

        for cell, found in completed(submit, waiting, limit, more):
            records.add(cell, found)
            bar.update()


def _predicted(cell: Cell, source: Source, numbers: Numbers) -> dict[str, Any]:
    """Return the numbers of a graph, or why there is none for these clients."""
    graph = graph_of(cell, clients_of(cell, source), source)
    return {"missing": graph} if isinstance(graph, str) else numbers(graph, cell, source)


def statistics_of(cell: Cell, source: Source) -> metrics.GradientStatistics:
    """Return the statistics of gradients at the initial model, the same for all graphs."""
    return _statistics(replace(cell, graph=""), source)


@cache
def _statistics(cell: Cell, source: Source) -> metrics.GradientStatistics:
    scenario = source.scenario(cell.scenario)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.seed)
        model = scenario.model()
    return metrics.gradient_statistics(
        clients_of(cell, source), model=model, batch_size=scenario.batch_size, seed=cell.seed
    )
