"""Runs of the study: tuned learning rates, predictors and outcomes, each computed once and kept."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import torch
from tqdm.auto import tqdm

from topofl import metrics

from .cells import TUNING_GRAPH, TUNING_SEED, Cell, Source, cells, clients_of, graph_of, outcomes
from .predictors import predictors_of
from .scenarios import Scenario

__all__ = ["Job", "Records", "compute", "jobs"]


@dataclass(frozen=True)
class Job:
    """A computation whose result is kept.

    Parameters
    ----------
    kind
        ``"tune"``: a run with learning rate `lr` on the graph and seed of tuning; ``"predict"``:
        predictors of a graph (the method does not matter); ``"run"``: outcomes of a cell.
    cell
        What is computed.
    lr
        Learning rate; 0 for predictors.
    """

    kind: str
    cell: Cell
    lr: float = 0.0

    @property
    def key(self) -> str:
        """Text that identifies the job in the file of results."""
        return json.dumps([self.kind, *asdict(self.cell).values(), self.lr])


class Keyed(Protocol):
    """What has a key in a file of results, such as a :class:`Job`."""

    @property
    def key(self) -> str:
        """Text that identifies it."""
        ...


class Records:
    """Results by job, in a file of JSON lines to which each finished job appends one.

    A line that was cut off when a process was killed is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, Any] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    key, value = json.loads(line)
                except ValueError:
                    continue
                self.found[key] = value

    def add(self, job: Keyed, value: Any) -> None:
        """Keep a result."""
        self.found[job.key] = value
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([job.key, value]) + "\n")

    def __contains__(self, job: Keyed) -> bool:
        return job.key in self.found

    def __getitem__(self, job: Keyed) -> Any:
        return self.found[job.key]


def tuning_jobs(scenario: Scenario) -> list[Job]:
    """Return the runs that choose learning rates."""
    return [
        Job("tune", Cell(scenario.name, partition, method, TUNING_SEED, TUNING_GRAPH), lr)
        for partition in scenario.partitions
        for method in scenario.methods
        for lr in scenario.rates
        if method not in WITHOUT_TUNING
    ]


WITHOUT_TUNING = {"Clique Averaging": ("digits 60", "D-SGD")}
"""Methods that do not exist on the graph of tuning, and whose rates they use."""


def rate_of(scenario: Scenario, cell: Cell, records: Records) -> float:
    """Return the learning rate of a cell: the one with the highest mean accuracy when tuned."""
    tuned = replace(cell, seed=TUNING_SEED, graph=TUNING_GRAPH)
    if cell.method in WITHOUT_TUNING:
        other, method = WITHOUT_TUNING[cell.method]
        tuned = replace(tuned, scenario=other, method=method)

    def accuracy(lr: float) -> float:
        found = records[Job("tune", tuned, lr)]
        return sum(found["curve"]) / len(found["curve"]) if "curve" in found else -1.0

    return max(scenario.rates, key=accuracy)


def jobs(scenario: Scenario, records: Records) -> list[Job]:
    """Return all predictors and runs of a scenario whose learning rates are known."""
    found = cells(scenario)
    predicted = {replace(cell, method=""): None for cell in found}
    runs = [Job("run", cell, rate_of(scenario, cell, records)) for cell in found]
    return [*(Job("predict", cell) for cell in predicted), *runs]


def compute(
    scenarios: Sequence[str],
    path: Path,
    source: Source = Source(),  # noqa: B008 - it is frozen
    *,
    processes: int = 1,
    more: Callable[[], bool] = lambda: True,
) -> Records:
    """Compute what is missing in a file of results, and return all.

    Parameters
    ----------
    scenarios
        Names.
    path
        File of results; the same command continues an interrupted one.
    source
        Where the scenarios come from.
    processes
        Processes, each with one thread, so that results do not depend on their number.
    more
        Whether another job may start.
    """
    records = Records(path)
    with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for scenario in map(source.scenario, scenarios):
            _check_settings(scenario, records)
            for listed in (tuning_jobs, lambda one: jobs(one, records)):
                missing = [job for job in listed(scenario) if job not in records]
                with tqdm(total=len(missing), desc=scenario.name, unit="job", disable=None) as bar:
                    for job, value in _computed(missing, source, pool, processes, more):
                        records.add(job, value)
                        bar.update()
                if any(job not in records for job in listed(scenario)):
                    return records
    return records


def _check_settings(scenario: Scenario, records: Records) -> None:
    """Raise if a file of results is of other settings; record those of a new one."""
    job = Job("settings", Cell(scenario.name, "", "", 0, ""))
    if job not in records:
        records.add(job, scenario.settings)
    if records[job] != scenario.settings:
        raise ValueError(
            f"`out` must be a new folder, since {records.path} has results of {scenario.name} with "
            "other settings"
        )


def _computed(
    missing: Sequence[Job],
    source: Source,
    pool: ProcessPoolExecutor,
    processes: int,
    more: Callable[[], bool],
) -> Iterator[tuple[Job, Any]]:
    """Yield the jobs and their results in the order in which they are done."""
    waiting = list(missing)
    running: dict[Any, Job] = {}
    while running or (waiting and more()):
        while waiting and len(running) < 2 * processes and more():
            job = waiting.pop(0)
            running[pool.submit(_result, job, source)] = job
        done = next(as_completed(running))
        yield running.pop(done), done.result()


def _result(job: Job, source: Source) -> Any:
    if job.kind != "predict":
        return outcomes(job.cell, job.lr, source)
    clients = clients_of(job.cell, source)
    graph = graph_of(job.cell, clients, source)
    if isinstance(graph, str):
        return {"missing": graph}
    return predictors_of(graph, clients, _statistics(replace(job.cell, graph=""), source))


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
