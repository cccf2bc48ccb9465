"""The comparison of methods: the task, the methods, and one cell of results per method and graph.

:mod:`analysis.methods` is its command, with its tables and figures.
"""

import json
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from torch import Tensor, nn
from torch.nn import functional

import topofl
from topofl import DivergenceError, TopologyError, algorithms, data, tasks, topologies

from .program import completed, declared, torch_threads

Graphs = topofl.Topology | topofl.TopologySequence

NO_GRAPH = "no graph"
"""Column of methods without a graph: with a server, pooled data, or no communication."""


@dataclass(frozen=True)
class Method:
    """A method with all settings except the learning rate, which is tuned.

    Parameters
    ----------
    title, family
        In tables: its name, and the group of methods with which it is shown.
    name
        In ``topofl.algorithms``.
    arguments
        Of the function `name`, in addition to the learning rate and the batch size.
    steps
        Gradient steps per node and round.
    has_graph
        Whether it runs over a graph.
    has_clock
        Whether it takes a clock itself, as asynchronous methods do.
    is_timed
        Whether simulated seconds are recorded: not where a gradient step consists of steps on
        single examples.
    pooled
        Whether one model learns from the examples of all nodes.
    """

    title: str
    family: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    steps: int = 1
    has_graph: bool = True
    has_clock: bool = False
    is_timed: bool = True
    pooled: bool = False

    @property
    def settings(self) -> str:
        """Its settings as text."""
        return ", ".join(f"{name}={value}" for name, value in self.arguments.items()) or "none"

    def build(self, lr: float, batch_size: int) -> algorithms.Algorithm:
        """Return the algorithm with a learning rate."""
        return getattr(algorithms, self.name)(lr=lr, batch_size=batch_size, **self.arguments)


def _method(title: str, family: str, row: Mapping[str, Any]) -> Method:
    """Return the method of a row of ``studies.toml``."""
    arguments = {
        name: None if value == "none" else value for name, value in row.get("arguments", {}).items()
    }
    return Method(title, family, **{"name": title, **row, "arguments": arguments})


METHODS = {
    title: _method(title, family, row)
    for family, rows in declared("methods").items()
    for title, row in rows.items()
}
"""The compared methods by title."""

_PERSONAL = "learns a separate model for every node, which a shared test set does not evaluate"
_PERSONALIZED = """
    apfl dfedavgm_p dfedpgp dispfl ditto dpfl facade fedala fedbabu fedbn fedper fedproto fedrep
    ifca knn_per per_fedavg pfeddst pfedgraph pfedme proxyfl random_collaboration
"""
_MANY_STEPS = (
    "takes tens or hundreds of steps of Adam per round, and the compared methods one or five"
)
LEFT_OUT = {
    **dict.fromkeys(_PERSONALIZED.split(), _PERSONAL),
    **dict.fromkeys(("diloco", "noloco"), _MANY_STEPS),
    **dict.fromkeys(
        ("dsgd_ceca", "teleportation"), "exchanges along edges of its own, whatever the graph"
    ),
    "divshare": "draws graphs of its own, within those that are compared",
}
_WORST = "minimizes the loss of the worst nodes, whose optimum is another one"
LEFT_OUT |= dict.fromkeys(("ad_gda", "dr_dsgd", "drfa"), _WORST)
LEFT_OUT |= dict.fromkeys(
    (
        "hierfavg",
        "dp_fedavg",
        "fedasync",
        "fedbuff",
        "feddecorr",
        "moon",
        "bulyan",
        "fltrust",
        "geometric_median",
        "krum",
        "edm",
        "momentum_tracking",
        "motef",
        "dinno",
        "demuon",
        "gt_hsgd",
        "led",
        "proxskip",
    ),
    "was added after the study was run",
)
"""Methods that are not compared, with the reason."""


GRAPHS: dict[str, Callable[[data.Partition, int], Graphs]] = {
    "ring": lambda clients, seed: topologies.ring(clients.n),
    "exponential": lambda clients, seed: topologies.exponential(clients.n),
    "D-Cliques": lambda clients, seed: topologies.dcliques(
        clients.label_counts, clique_size=5, inter="ring", seed=seed
    ),
    "random directed": lambda clients, seed: topologies.random_out(clients.n, 3, seed=seed),
}
"""Name -> ``graph(clients, seed)``."""


@dataclass(frozen=True)
class ComparisonTask:
    """The task on which all methods are compared, and their budget.

    Parameters
    ----------
    n
        Nodes, each with two label shards of scikit-learn's digits.
    steps
        Gradient steps per node and run, each on all of the node's examples.
    every
        Gradient steps between evaluations; a multiple of 5, the steps per round of methods with
        several local steps.
    ridge
        Factor of half the squared norm of the parameters in the loss, which makes it strongly
        convex.
    rates
        Learning rates that are tried.
    tuning, seeds
        The seed on which learning rates are chosen, and those that are reported.
    slow
        Seconds that the last node takes for a gradient step; others take one.
    delay
        Seconds of a message.
    """

    n: int = 20
    steps: int = 200
    every: int = 10
    ridge: float = 0.1
    rates: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    tuning: int = 100
    seeds: tuple[int, ...] = (0, 1, 2)
    slow: float = 4.0
    delay: float = 0.25

    @property
    def clock(self) -> dict[str, Any]:
        """Arguments of the clock for methods that record simulated seconds."""
        return {"compute": [1.0] * (self.n - 1) + [self.slow], "delay": self.delay}


@dataclass(frozen=True)
class Cell:
    """The results of one method on one graph.

    Parameters
    ----------
    method, graph
        Titles.
    refused, error
        The requirement that the graph does not meet, and the error of the run; empty if it ran.
    tuned
        Learning rate -> ``accuracy`` and ``loss`` on validation data, ``mean`` and ``worst``
        distance from the optimum; None where it diverged.
    lr, bias_lr
        The rate of the highest accuracy, the lower loss deciding between equal ones, and of the
        smallest worst distance; NaN where all diverged.
    accurate, near
        One per seed with `lr` and with `bias_lr`: the results of a run by name; None where it
        diverged.
    seconds
        Processor time of all runs of the cell; NaN if unknown.
    """

    method: str
    graph: str
    refused: str = ""
    error: str = ""
    tuned: Mapping[str, Mapping[str, float] | None] | None = None
    lr: float = math.nan
    bias_lr: float = math.nan
    accurate: Sequence[Mapping[str, Any] | None] = ()
    near: Sequence[Mapping[str, Any] | None] = ()
    seconds: float = math.nan


class _Ridge(nn.Module):
    """Logistic regression with half its squared norm as an additional output for the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return (b, 11): logits, and half the squared norm."""
        logits = self.head(images.flatten(1))
        square = self.head.weight.square().sum() + self.head.bias.square().sum()
        return torch.cat([logits, (square / 2).expand(len(logits), 1)], 1)


def _task(ridge: float) -> tasks.Task:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        entropy = functional.cross_entropy(outputs[:, :10], targets, reduction="none")
        return entropy + ridge * outputs[:, 10]

    def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[:, :10].argmax(1) == targets

    return tasks.Task("ridge classification", loss, {"accuracy": accuracy})


@cache
def _dataset() -> data.Dataset:
    """Return the centered digits, scaled by 2: 1200 for training, 297 validation, 300 test."""
    digits = data.digits(test=300, val=297)
    mean = digits.inputs[torch.from_numpy(np.array(digits.train))].mean(0)
    return replace(digits, inputs=2 * (digits.inputs - mean), name="centered digits")


def clients_of(setting: ComparisonTask, seed: int) -> data.Partition:
    """Return the partition of the examples among nodes."""
    return data.shards(_dataset(), n=setting.n, per_node=2, seed=seed)


@cache
def optimum(ridge: float) -> np.ndarray:
    """Return the minimizer (650,) of the mean training loss, by L-BFGS in float64.

    All nodes have equally many examples, so it also minimizes the mean of the nodes' losses.
    """
    train = np.array(_dataset().train)
    inputs = _dataset().inputs.flatten(1).double().numpy()[train]
    classes = np.eye(10)[_dataset().labels.numpy()[train]]

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = theta[:640].reshape(10, 64), theta[640:]
        logs = log_softmax(inputs @ weight.T + bias, axis=1)
        errors = (np.exp(logs) - classes) / len(train)
        gradient = np.concatenate([(errors.T @ inputs).ravel(), errors.sum(0)]) + ridge * theta
        return float(-(classes * logs).sum() / len(train) + ridge / 2 * theta @ theta), gradient

    options = {"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-9}
    return minimize(value, np.zeros(650), jac=True, method="L-BFGS-B", options=options).x


def _algorithm(
    setting: ComparisonTask, method: Method, lr: float, clients: data.Partition
) -> algorithms.Algorithm:
    """Return the method, which records simulated seconds where they are meaningful."""
    if method.has_clock:
        method = replace(method, arguments={**method.arguments, "clock": setting.clock})
    algorithm = method.build(lr, int(clients.sizes.max()) * (setting.n if method.pooled else 1))
    if method.has_clock or not method.is_timed:
        return algorithm
    return algorithms.timed(algorithm, setting.clock)


def _run(
    setting: ComparisonTask, method: Method, graph: str, lr: float, seed: int, on: str
) -> dict[str, Any] | None:
    """Return the results of a run, evaluated on ``"val"`` or ``"test"``; None if it diverged."""
    clients = clients_of(setting, seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # steps that are too large
            history = topofl.run(
                _algorithm(setting, method, lr, clients),
                model=_Ridge(),
                clients=clients,
                topology=None if graph == NO_GRAPH else GRAPHS[graph](clients, seed),
                rounds=setting.steps // method.steps,
                task=_task(setting.ridge),
                evaluation=topofl.Evaluation(every=setting.every // method.steps, on=on),
                compute=topofl.Compute(device="cpu", executor="batched"),
                seed=seed,
                progress=False,
            )
    except DivergenceError:
        return None
    return _summary(setting, method, history)


def _summary(setting: ComparisonTask, method: Method, history: topofl.History) -> dict[str, Any]:
    """Return the results of a run for tables and figures."""
    assert history.models is not None
    best = optimum(setting.ridge)
    models = history.models.flat.double().numpy()
    apart = np.linalg.norm(models - best, axis=1) / np.linalg.norm(best)
    mean = np.linalg.norm(models.mean(0) - best) / np.linalg.norm(best)
    accuracy, rounds = history["accuracy"], history["round"]
    sent = np.concatenate([[0.0], np.cumsum(history["bytes"])])[rounds]
    found: dict[str, Any] = {
        "accuracy": _short(accuracy.mean(axis=1)),
        "worst_accuracy": float(accuracy[-1].min()),
        "loss": float(history["loss"][-1].mean()),
        "steps": (rounds * method.steps).tolist(),
        "bytes": sent.astype(int).tolist(),
        "mean": float(mean),
        "worst": float(apart.max()),
    }
    if "simulated_seconds" in history.rounds:
        found["seconds"] = _short(np.concatenate([[0.0], history["simulated_seconds"]])[rounds])
    return found


def _short(values: np.ndarray) -> list[float]:
    return [round(float(value), 5) for value in values]


def run_cell(setting: ComparisonTask, method: str, graph: str) -> Cell:
    """Return the results of a method on a graph, tuned with a separate seed on validation data."""
    began = time.process_time()
    cell = _tuned_cell(setting, method, graph)
    return replace(cell, seconds=round(time.process_time() - began, 3))


def _tuned_cell(setting: ComparisonTask, method: str, graph: str) -> Cell:
    """Return the results as :func:`run_cell`, without processor time."""
    row, tuned = METHODS[method], {}
    try:
        for lr in setting.rates:
            tuned[str(lr)] = _run(setting, row, graph, lr, setting.tuning, "val")
    except TopologyError as error:
        return Cell(method, graph, _requirement(row, error), str(error))
    done = {lr: run for lr, run in tuned.items() if run and math.isfinite(run["worst"])}
    short = {lr: _tuning(done.get(lr)) for lr in tuned}
    if not done:
        return Cell(method, graph, tuned=short)
    lr = float(max(done, key=lambda lr: (done[lr]["accuracy"][-1], -done[lr]["loss"])))
    bias_lr = float(min(done, key=lambda lr: done[lr]["worst"]))
    accurate = [_run(setting, row, graph, lr, seed, "test") for seed in setting.seeds]
    near = accurate
    if lr != bias_lr:
        near = [_run(setting, row, graph, bias_lr, seed, "test") for seed in setting.seeds]
    nearest = [_tuning(run) for run in near]
    return Cell(method, graph, tuned=short, lr=lr, bias_lr=bias_lr, accurate=accurate, near=nearest)


def _tuning(found: Mapping[str, Any] | None) -> dict[str, float] | None:
    """Return the final results of a run."""
    if found is None:
        return None
    last = {name: found[name] for name in ("loss", "mean", "worst")}
    return {"accuracy": found["accuracy"][-1], **last}


def _requirement(method: Method, error: TopologyError) -> str:
    """Return the requirement that a graph does not meet, such as "must be static"."""
    musts = [f"must {need.verb} {need.name}" for need in method.build(0.1, 1).needs]
    named = next((must for must in musts if f"{must} for" in str(error)), None)
    found = re.search(r"must (?:be|have) .+?(?= for |: |, |;| \()", str(error))
    return named or (found[0] if found else str(error))


def selected(methods: Sequence[str] | None) -> list[Method]:
    """Return methods by their titles, in the order of the tables; None: all of them."""
    return [METHODS[title] for title in METHODS if methods is None or title in methods]


def cells_of(methods: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """Return pairs of method and graph titles."""
    return [
        (row.title, graph)
        for row in selected(methods)
        for graph in (GRAPHS if row.has_graph else [NO_GRAPH])
    ]


def _marker(setting: ComparisonTask, method: str) -> str:
    return json.dumps([asdict(setting), METHODS[method].settings], sort_keys=True)


def kept_cells(setting: ComparisonTask, path: Path) -> dict[tuple[str, str], Cell]:
    """Return the cells of a file that were computed with this setting and the current methods."""
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        cell = Cell(**record["cell"])
        if cell.method in METHODS and record["marker"] == _marker(setting, cell.method):
            found[cell.method, cell.graph] = cell
    return found


def compute(
    setting: ComparisonTask,
    path: Path,
    *,
    methods: Sequence[str] | None = None,
    jobs: int = 1,
    keep_going: Callable[[], bool] = lambda: True,
    on_cell: Callable[[Cell, int, int], None] = lambda cell, done, total: None,
) -> dict[tuple[str, str], Cell]:
    """Compute the cells that are missing in a file, append them to it, and return all in order.

    Parameters
    ----------
    setting, methods
        Methods by title; None: all of them.
    path
        Lines of JSON, one per cell.
    jobs
        Processes, of one thread each, so that results do not depend on their number; 1: this
        process.
    keep_going
        Function that returns whether another cell may start.
    on_cell
        Called with each completed cell, the number of completed cells, and the total number.
    """
    wanted = cells_of(methods)
    found = kept_cells(setting, path)
    found = {key: found[key] for key in wanted if key in found}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        missing = [key for key in wanted if key not in found]
        for cell in _computed(setting, missing, jobs, keep_going):
            found[cell.method, cell.graph] = cell
            record = {"marker": _marker(setting, cell.method), "cell": asdict(cell)}
            file.write(json.dumps(record) + "\n")
            file.flush()
            on_cell(cell, len(found), len(wanted))
    return {key: found[key] for key in wanted if key in found}


def _computed(
    setting: ComparisonTask,
    wanted: Sequence[tuple[str, str]],
    jobs: int,
    keep_going: Callable[[], bool],
) -> Iterator[Cell]:
    """Yield cells as they are completed, until no more may start."""
    if jobs == 1:
        for method, graph in wanted:
            if not keep_going():
                return
            with torch_threads(1):
                cell = run_cell(setting, method, graph)
            yield cell
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        submit = partial(pool.submit, run_cell, setting)
        for _, cell in completed(lambda key: submit(*key), wanted, jobs, keep_going):
            yield cell
