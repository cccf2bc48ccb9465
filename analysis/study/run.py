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

from .graphs import build_graph
from .predictors import predictors_of
from .scenarios import (
    RATES,
    SCENARIOS,
    TUNING_GRAPH,
    TUNING_SEED,
    Cell,
    cells,
    clients_of,
    outcomes,
)

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


def tuning_jobs(scenario: str) -> list[Job]:
    """Return the runs that choose learning rates."""
    one = SCENARIOS[scenario]
    return [
        Job("tune", Cell(scenario, partition, method, TUNING_SEED, TUNING_GRAPH), lr)
        for partition in one.partitions
        for method in one.methods
        for lr in RATES
    ]


def rate_of(cell: Cell, records: Records) -> float:
    """Return the learning rate of a cell: the one with the highest mean accuracy when tuned."""
    tuned = replace(cell, seed=TUNING_SEED, graph=TUNING_GRAPH)

    def accuracy(lr: float) -> float:
        found = records[Job("tune", tuned, lr)]
        return sum(found["curve"]) / len(found["curve"]) if "curve" in found else -1.0

    return max(RATES, key=accuracy)


def jobs(scenario: str, graphs: Sequence[str], records: Records) -> list[Job]:
    """Return all predictors and runs of a scenario whose learning rates are known."""
    found = cells(SCENARIOS[scenario], tuple(graphs))
    predicted = {replace(cell, method=""): None for cell in found}
    runs = [Job("run", cell, rate_of(cell, records)) for cell in found]
    return [*(Job("predict", cell) for cell in predicted), *runs]


def compute(
    scenarios: Sequence[str],
    graphs: Sequence[str],
    path: Path,
    *,
    root: Path | None = None,
    processes: int = 1,
    more: Callable[[], bool] = lambda: True,
) -> Records:
    """Compute what is missing in a file of results, and return all.

    Parameters
    ----------
    scenarios, graphs
        Names.
    path
        File of results; the same command continues an interrupted one.
    root
        Folder of the data.
    processes
        Processes, each with one thread, so that results do not depend on their number.
    more
        Whether another job may start.
    """
    records = Records(path)
    for scenario in scenarios:
        for listed in (tuning_jobs, lambda name: jobs(name, graphs, records)):
            missing = [job for job in listed(scenario) if job not in records]
            with tqdm(total=len(missing), desc=scenario, unit="job", disable=None) as bar:
                for job, value in _computed(missing, root, processes, more):
                    records.add(job, value)
                    bar.update()
            if any(job not in records for job in listed(scenario)):
                return records
    return records


def _computed(
    missing: Sequence[Job], root: Path | None, processes: int, more: Callable[[], bool]
) -> Iterator[tuple[Job, Any]]:
    with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        waiting = list(missing)
        running: dict[Any, Job] = {}
        while running or (waiting and more()):
            while waiting and len(running) < 2 * processes and more():
                job = waiting.pop(0)
                running[pool.submit(_result, job, root)] = job
            done = next(as_completed(running))
            yield running.pop(done), done.result()


def _result(job: Job, root: Path | None) -> Any:
    if job.kind != "predict":
        return outcomes(job.cell, job.lr, root)
    clients = clients_of(job.cell, root)
    graph = build_graph(job.cell.graph, clients, job.cell.seed)
    if isinstance(graph, str):
        return {"missing": graph}
    return predictors_of(graph, clients, _statistics(replace(job.cell, graph=""), root))


@cache
def _statistics(cell: Cell, root: Path | None) -> metrics.GradientStatistics:
    """Return the statistics of gradients at the initial model, the same for all graphs."""
    scenario = SCENARIOS[cell.scenario]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.seed)
        model = scenario.model()
    return metrics.gradient_statistics(
        clients_of(cell, root), model=model, batch_size=scenario.batch_size, seed=cell.seed
    )
