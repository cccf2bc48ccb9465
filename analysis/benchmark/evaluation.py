"""Time of evaluating all models, compared with one matrix product and the authors' simulator."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

import topofl
from topofl import NotApplicable, Table
from topofl.callbacks import Event
from topofl.engine.evaluation import evaluate, evaluation_plan
from topofl.engine.executor import Executor
from topofl.engine.gradients import linear_gradients
from topofl.engine.minibatches import Batches, Examples
from topofl.engine.plan import Plan
from topofl.engine.population import Layout, Population

from .cases import LOGISTIC, TRAINING, Case, clients_of, setting
from .steps.stopwatch import in_turns, seconds_of

IMAGES = 10_000

SIMULATOR_NODE = 0.5
"""Seconds in which the D-Cliques authors' simulator evaluates a node, on another machine."""

COLUMNS = (
    "evaluation",
    "ours ms",
    "one product ms",
    "ours / product",
    "simulator ms *",
    "simulator / ours *",
)


@dataclass(frozen=True)
class EvaluationTimes:
    """Seconds of evaluating n logistic models on `images` images, and of one matrix product."""

    n: int
    images: int
    ours: Sequence[float]
    product: Sequence[float]

    @property
    def ratio(self) -> float:
        """Ratio of the median evaluation time to the median time of the product."""
        return statistics.median(self.ours) / statistics.median(self.product)


def evaluation_of(
    n: int, device: torch.device, *, images: int = IMAGES, repeats: int = 5
) -> EvaluationTimes:
    """Time loss and accuracy of n logistic models in turns with one product of that size.

    Each is called twice per turn, and the first call is not timed.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(images, *LOGISTIC.shape, generator=generator).to(device)
    examples = Examples(inputs, None, inputs.dtype)
    labels = (torch.arange(images) % 10).to(device)
    module = LOGISTIC.build().to(device)
    layout = Layout.of(module)
    models = Population.alone(torch.randn(n, layout.d, generator=generator).to(device), layout)
    evaluated = dict.fromkeys(range(n), torch.arange(images, device=device))
    weight = models.flat[:, :-10].reshape(n * 10, -1).T.contiguous()
    out = torch.empty(images, n * 10, device=device)

    def timed(function) -> list[float]:
        return [seconds_of(function, device) for _ in range(2)][1:]

    threads = torch.get_num_threads()
    plan = Plan("batched", n, threads if device.type == "cpu" else 1, threads)
    batches = Batches([np.arange(images)], seed=0)
    executor = Executor(plan, examples, labels, batches, linear_gradients)
    how = evaluation_plan(module, examples(torch.arange(2, device=device)))

    def ours() -> None:
        with executor.threads():
            evaluate(how, models, executor, evaluated)

    ways = {
        "ours": partial(timed, ours),
        "product": partial(timed, lambda: torch.mm(inputs.flatten(1), weight, out=out)),
    }
    return EvaluationTimes(n, images, **in_turns(ways, repeats))


@dataclass(frozen=True)
class WholeRun:
    """Seconds per epoch of a run with evaluation, and those of the authors' simulator."""

    epochs: Sequence[float]
    simulator: float

    @property
    def ratio(self) -> float:
        """Ratio of the simulator's seconds to the median epoch of the engine."""
        return self.simulator / statistics.median(self.epochs)


def whole_run(
    device: torch.device, case: Case = TRAINING[0], *, epochs: int = 10, images: int = IMAGES
) -> WholeRun:
    """Time a run of logistic regression on D-Cliques that evaluates all nodes every epoch.

    An epoch is timed from the end of its last round to the end of the next epoch's last round, with
    one evaluation in between.
    """
    clients = clients_of(case, test=images)
    graph, algorithm = setting(case, clients)
    steps = -(-case.network.examples // case.n // case.batch_size)
    stamps: list[float] = []

    def stamp(event: Event) -> None:
        if event.kind == "round":
            if device.type == "cuda":
                torch.cuda.synchronize()
            stamps.append(time.perf_counter())

    topofl.run(
        algorithm,
        model=case.network.build(),
        clients=clients,
        topology=graph,
        rounds=steps * (epochs + 2),
        evaluation=steps,
        compute=device,
        seed=0,
        progress=False,
        callbacks=[stamp],
    )
    lasts = [float(second) for second in np.diff(stamps[steps - 1 :: steps])[1:]]
    return WholeRun(
        lasts, steps * (case.simulator or 0) + case.n * SIMULATOR_NODE * images / IMAGES
    )


def table(evaluations: Sequence[EvaluationTimes], run: WholeRun | None, title: str = "") -> Table:
    """Return the table of evaluation times."""
    rows = []
    for one in evaluations:
        ours, product = 1e3 * statistics.median(one.ours), 1e3 * statistics.median(one.product)
        simulator = 1e3 * one.n * SIMULATOR_NODE * one.images / IMAGES
        label = f"{one.n} logistic models on {one.images:,} images"
        rows.append((label, ours, product, one.ratio, simulator, simulator / ours))
    if run is not None:
        none = NotApplicable("a run is no single product")
        ours = 1e3 * statistics.median(run.epochs)
        label = "an epoch of 4 steps and the evaluation, D-Cliques + CA, 100 nodes"
        rows.append((label, ours, none, none, 1e3 * run.simulator, run.ratio))
    return Table(COLUMNS, tuple(rows), title=title)
