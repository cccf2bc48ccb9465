"""Computations of the study: tuned learning rates, numbers of graphs, and training runs."""

from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from tqdm.auto import tqdm

from topofl import metrics
from topofl.runs.execute import Processes

from .cells import TUNING_GRAPH, TUNING_SEED, Cell, Source, arguments, cells, clients_of, graph_of
from .predictors import predictors_of
from .records import Records, train
from .scenarios import Scenario

__all__ = [
    "compute",
    "predicted_cell",
    "rate_of",
    "rates_said",
    "runs",
    "status",
    "tuning_runs",
]

More = Callable[[], bool]
Runs = list[tuple[Cell, float]]

WITHOUT_TUNING = {"Clique Averaging": ("digits 60", "D-SGD")}
"""Methods that do not exist on the graph of tuning, and whose rates they use."""


def tuning_runs(scenario: Scenario) -> Runs:
    """Return the runs that choose learning rates, where there is a choice."""
    return [
        (_tuned(Cell(scenario.name, partition, method, TUNING_SEED, TUNING_GRAPH)), lr)
        for partition in scenario.partitions
        for method in scenario.methods
        for lr in scenario.rates_of(method)
        if len(scenario.rates_of(method)) > 1
    ]


def _tuned(cell: Cell) -> Cell:
    """Return the cell in which the learning rate of a cell is chosen."""
    other, method = WITHOUT_TUNING.get(cell.method, (cell.scenario, cell.method))
    return Cell(other, cell.partition, method, TUNING_SEED, TUNING_GRAPH)


def rate_of(scenario: Scenario, cell: Cell, records: Records) -> float | None:
    """Return the learning rate of a cell: the one with the highest mean accuracy when tuned.

    None if not all rates were tried. If there is only one, it is not tried.
    """
    rates = scenario.rates_of(cell.method)
    if len(rates) == 1:
        return rates[0]
    found = [records.outcomes(_tuned(cell), lr) for lr in rates]
    curves = [one.get("curve", [-1.0]) for one in found if one is not None]
    if len(curves) < len(found):
        return None
    means = [sum(curve) / len(curve) for curve in curves]
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


def compute(
    scenarios: Sequence[str],
    records: Records,
    source: Source = Source(),  # noqa: B008 - it is frozen
    *,
    processes: int = 1,
    more: More = lambda: True,
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

    Raises
    ------
    ValueError
        If there are results of other settings.
    KeyboardInterrupt, OSError
        As :func:`analysis.study.records.train`.
    """
    executor = Processes(processes, threads=1)
    options = {"executor": executor, "more": more}
    try:
        for scenario in map(source.scenario, scenarios):
            _check_settings(scenario, records)
            perform = partial(train, records=records, arguments=partial(arguments, source))
            perform(tuning_runs(scenario), title=f"{scenario.name}, learning rates", **options)
            predict(scenario, records, source, **options)
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


def predict(
    scenario: Scenario, records: Records, source: Source, executor: Processes, more: More
) -> None:
    """Compute the predictors of all graphs that are missing."""
    every = dict.fromkeys(predicted_cell(cell) for cell in cells(scenario))
    waiting = [cell for cell in every if records.prediction(cell) is None]
    running: dict[Any, Cell] = {}
    title = f"{scenario.name}, graphs"
    with tqdm(total=len(waiting), desc=title, unit="graph", leave=False, disable=None) as bar:
        while running or (waiting and more()):
            while waiting and len(running) < executor.jobs and more():
                cell = waiting.pop(0)
                running[executor.submit(_predicted, cell, source)] = cell
            done = next(as_completed(running))
            records.add(running.pop(done), done.result())
            bar.update()


def _predicted(cell: Cell, source: Source) -> dict[str, Any]:
    """Return the predictors of a graph, or why there is none for these clients."""
    clients = clients_of(cell, source)
    graph = graph_of(cell, clients, source)
    if isinstance(graph, str):
        return {"missing": graph}
    return predictors_of(graph, clients, _statistics(replace(cell, graph=""), source))


@cache
def _statistics(cell: Cell, source: Source) -> metrics.GradientStatistics:
    """Return the statistics of gradients at the initial model, the same for all graphs."""
    scenario = source.scenario(cell.scenario)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.seed)
        model = scenario.model()
    return metrics.gradient_statistics(
        clients_of(cell, source), model=model, batch_size=scenario.batch_size, seed=cell.seed
    )
