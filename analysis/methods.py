"""Compare the library's methods on one task over four graphs, with equal budgets.

``python -m analysis.methods`` gives each of 20 nodes two label shards of scikit-learn's digits and
runs every method for 200 gradient steps per node on ridge logistic regression, whose loss is
strongly convex. Learning rates are tuned on one seed and validation data; tables and figures report
other seeds and test data. Finished cells are kept in ``cells.jsonl``: the same command resumes an
interrupted run.
"""

import json
import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from torch import Tensor, nn
from torch.nn import functional
from tqdm.auto import tqdm

import topofl
from topofl import DivergenceError, Table, TopologyError, algorithms, data, tasks, topologies

from .program import declared, parser_of, write

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
    apfl dfedavgm_p dfedpgp dispfl ditto dpfl fedbabu fedper fedrep knn_per per_fedavg pfeddst
    pfedgraph random_collaboration
"""
LEFT_OUT = dict.fromkeys(_PERSONALIZED.split(), _PERSONAL)
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
        return (
            functional.cross_entropy(outputs[:, :10], targets, reduction="none")
            + ridge * outputs[:, 10]
        )

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
    done = {
        lr: found
        for lr, found in tuned.items()
        if found is not None and math.isfinite(found["worst"])
    }
    short = {lr: (lr in done and _tuning(done[lr])) or None for lr in tuned}
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


def cells_of(methods: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """Return pairs of method and graph titles."""
    return [
        (row.title, graph)
        for row in _selected(methods)
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
            with _one_thread():
                cell = run_cell(setting, method, graph)
            yield cell
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        waiting, running = list(wanted), set()
        while running or (waiting and keep_going()):
            while waiting and len(running) < jobs and keep_going():
                running.add(pool.submit(run_cell, setting, *waiting.pop(0)))
            done = next(as_completed(running))
            running.remove(done)
            yield done.result()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread, as in the processes of several jobs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


Cells = Mapping[tuple[str, str], Cell]
COLUMNS = (*GRAPHS, NO_GRAPH)
TARGET = 0.9
QUICK = ComparisonTask(n=10, steps=10, every=5, rates=(0.3,), seeds=(0,))


def _reached(run: Mapping[str, Any], what: str) -> float:
    """Return steps, bytes or seconds at the first evaluation at the target; NaN if none is."""
    return next(
        (at for at, got in zip(run.get(what, ()), run["accuracy"], strict=False) if got >= TARGET),
        math.nan,
    )


def _worst(run: Mapping[str, Any]) -> float:
    return 100 * run["worst_accuracy"]


def _final(run: Mapping[str, Any]) -> float:
    return 100 * run["accuracy"][-1]


def _rates(method: Method, cell: Cell) -> str:
    tried = list(map(float, cell.tuned or {}))
    return ", ".join(
        f"{lr:g}{'*' * (lr in (min(tried), max(tried)))}" for lr in (cell.lr, cell.bias_lr)
    )


def _cost(method: Method, cell: Cell) -> str:
    """Return rounds, megabytes and simulated seconds to the target, averaged over seeds."""
    runs = [run for run in cell.accurate if run is not None]
    steps, sent, seconds = (
        np.array([_reached(run, what) for run in runs]) for what in ("steps", "bytes", "seconds")
    )
    if np.isnan(steps).any():
        return "-"
    said = "-" if np.isnan(seconds).any() else f"{seconds.mean():.0f} s"
    return f"{steps.mean() / method.steps:.0f}; {sent.mean() / 1e6:.2f} MB; {said}"


def _spread(runs: Sequence[Any], value: Callable[[Any], float], form: str) -> str:
    values = np.array([value(run) for run in runs if run is not None])
    return f"{values.mean():{form}} ({values.min():{form}} to {values.max():{form}})"


def _text(method: Method, graph: str, cells: Cells, show: Callable[[Method, Cell], str]) -> str:
    """Return the text of a method on a graph in a table."""
    if (method.title, graph) not in cells_of([method.title]):
        return ""
    cell = cells.get((method.title, graph))
    if cell is None:
        return "not run"
    if cell.error:
        return f"n/a: {cell.refused}"
    if math.isnan(cell.lr) or None in (*cell.accurate, *cell.near):
        return "diverged"
    return show(method, cell)


def _selected(methods: Sequence[str] | None) -> list[Method]:
    """Return methods by their titles, in the order of the tables; None: all of them."""
    return [METHODS[title] for title in METHODS if methods is None or title in methods]


def tables(
    setting: ComparisonTask, cells: Cells, methods: Sequence[str] | None = None
) -> dict[str, Table]:
    """Return the tables by name: one row per method (None: all) and one column per graph."""
    cost = "Rounds; megabytes sent by all nodes; simulated seconds to"
    shown: dict[str, tuple[str, Callable[[Method, Cell], str]]] = {
        "accuracy": (
            "Final test accuracy, %: mean over nodes",
            lambda method, cell: _spread(cell.accurate, _final, ".1f"),
        ),
        "worst node": (
            "Final test accuracy, %: worst node",
            lambda method, cell: _spread(cell.accurate, _worst, ".1f"),
        ),
        "cost": (f"{cost} {TARGET:.0%} mean accuracy", _cost),
        "bias": (
            "Final relative distance of the worst node from the optimum",
            lambda method, cell: _spread(cell.near, itemgetter("worst"), ".1e"),
        ),
        "mean bias": (
            "Final relative distance of the mean model from the optimum",
            lambda method, cell: _spread(cell.near, itemgetter("mean"), ".1e"),
        ),
        "rates": (
            "Tuned learning rates: for accuracy, for distance (*: at an end of the grid)",
            _rates,
        ),
    }
    found = {}
    for name, (title, show) in shown.items():
        rows = tuple(
            (m.title, m.family, *(_text(m, graph, cells, show) for graph in COLUMNS))
            for m in _selected(methods)
        )
        found[name] = Table(("method", "family", *COLUMNS), rows, title=title)
    return found


def numbers(setting: ComparisonTask, cells: Cells) -> Table:
    """Return one row per run with a reported seed."""
    columns = (
        *("method", "family", "graph", "seed", "lr", "accuracy %", "worst node %"),
        *(f"{what} to {TARGET:.0%}" for what in ("steps", "bytes", "seconds")),
        *("bytes", "bias lr", "mean distance", "worst distance"),
    )
    rows = []
    for (title, graph), cell in cells.items():
        for seed, run, near in zip(setting.seeds, cell.accurate, cell.near, strict=False):
            if run is not None and near is not None:
                reached = [_reached(run, what) for what in ("steps", "bytes", "seconds")]
                ran = (title, METHODS[title].family, graph, seed, cell.lr, _final(run), _worst(run))
                apart = (cell.bias_lr, near["mean"], near["worst"])
                rows.append((*ran, *reached, run["bytes"][-1], *apart))
    return Table(columns, tuple(rows))


def _page(setting: ComparisonTask, cells: Cells, methods: Sequence[str] | None = None) -> str:
    """Return the results in Markdown: how they were obtained, and the tables."""
    settings = [(m.title, m.steps, m.settings) for m in _selected(methods)]
    left_out = "; ".join(
        f"{reason}: {', '.join(name for name, why in LEFT_OUT.items() if why == reason)}"
        for reason in dict.fromkeys(LEFT_OUT.values())
    )
    columns = ("method", "steps per round", "settings")
    rates = ", ".join(f"{lr:g}" for lr in setting.rates)
    seeds = f"{len(setting.seeds)} other seed{'s' * (len(setting.seeds) > 1)}"
    parts = [
        f"{setting.n} nodes hold two label shards of the digits each and train ridge logistic "
        f"regression (650 parameters, ridge {setting.ridge:g}). Every method takes {setting.steps} "
        "gradient steps per node, each on all of the node's examples; methods that take several "
        "steps per round run for fewer rounds. The same learning rates are tried for every method: "
        f"{rates}. The other settings were fixed beforehand, with two exceptions: for the "
        "compressed methods, `gamma` of 0.1 and 0.3 (for DeepSqueeze also 0.05) was tried with the "
        "tuning seed, and the row of tracked Adam was added after results had been seen. With the "
        "tuning seed and validation data, the rate of the highest accuracy is selected for "
        "accuracies and costs, and the rate whose worst node is nearest to the optimum for "
        f"distances. The tables report test data and {seeds}: mean (lowest to highest). Distances "
        "are relative to the norm of the optimum, which L-BFGS finds in float64; runs use float32. "
        f"In simulated time, a gradient step takes 1 second, {setting.slow:g} seconds at one of "
        f"the nodes, and a message {setting.delay:g} seconds.",
        _time(cells),
        *(table.to_markdown() for table in tables(setting, cells, methods).values()),
        Table(columns, tuple(settings), title="Settings").to_markdown(),
        f"Not compared, because the method {left_out}.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _time(cells: Cells) -> str:
    """Return a sentence about the processor time of the cells."""
    timed = [cell for cell in cells.values() if not math.isnan(cell.seconds)]
    if not timed:
        return ""
    minutes = sum(cell.seconds for cell in timed) / 60
    slowest = max(timed, key=lambda cell: cell.seconds)
    return (
        f"{len(timed)} cells took {minutes:.1f} minutes of processor time in total and at most "
        f"{slowest.seconds / 60:.1f} minutes each ({slowest.method} on {slowest.graph}), which is "
        f"about {minutes / 2:.0f} minutes with `--jobs 2` on two idle cores."
    )


def draw_curves(cells: Cells, graph: str, path: str | Path) -> None:
    """Write the figure of accuracy by gradient steps, bytes and seconds, one row per family."""
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    shown = {METHODS[title].family for title, _ in cells}
    families = list(dict.fromkeys(m.family for m in METHODS.values() if m.family in shown))
    families = [family for family in families if family != "reference"] or ["reference"]
    size, count = (12, 0.6 + 2.5 * len(families)), len(families)
    figure, axes = plt.subplots(
        count, 3, figsize=size, layout="constrained", sharey=True, squeeze=False
    )
    axes_of = (
        ("steps", "gradient steps per node", 1),
        ("bytes", "megabytes", 1e6),
        ("seconds", "simulated seconds", 1),
    )
    for row, family in zip(axes, families, strict=True):
        for ax, (what, label, unit) in zip(row, axes_of, strict=True):
            for title, runs, style in _curves(cells, graph, family):
                _draw_curve(ax, title, [run for run in runs if what in run], what, unit, style)
            ax.set(xlabel=label, ylim=(0, 100), xscale="log" if what == "bytes" else "linear")
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.grid(alpha=0.3)
        row[0].set_ylabel("test accuracy, %")
        row[0].set_title(family, loc="left", fontsize=10)
        if handles := row[0].get_legend_handles_labels()[0]:
            row[0].legend(handles=handles, fontsize=7, loc="lower right")
    figure.suptitle(
        f"{graph}: mean over nodes and seeds; band: lowest to highest seed; black: dsgd (solid), "
        "centralized (dotted)"
    )
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _curves(
    cells: Cells, graph: str, family: str
) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Yield title, runs and style of each curve in the panels of a family."""
    for title, method in METHODS.items():
        cell = cells.get((title, graph)) or cells.get((title, NO_GRAPH))
        runs = [run for run in cell.accurate if run is not None] if cell else []
        if runs and method.family == family:
            yield title, runs, {"linewidth": 1.6}
        elif runs and title in ("dsgd", "centralized"):
            style = {"color": "black", "linestyle": "-" if title == "dsgd" else ":"}
            yield title, runs, style | {"linewidth": 1.0}


def _draw_curve(
    ax: Any, title: str, runs: Sequence[Any], what: str, unit: float, style: Mapping[str, Any]
) -> None:
    if not runs or (what == "bytes" and not any(run["bytes"][-1] for run in runs)):
        return
    at = np.mean([run[what] for run in runs], axis=0) / unit
    accuracy = 100 * np.array([run["accuracy"] for run in runs])
    if what == "bytes":  # on a logarithmic axis, which does not have the 0 of the start
        at, accuracy = at[at > 0], accuracy[:, at > 0]
    (line,) = ax.plot(at, accuracy.mean(0), label=title, **style)
    ax.fill_between(
        at, accuracy.min(0), accuracy.max(0), color=line.get_color(), alpha=0.12, linewidth=0
    )


def draw_bias(cells: Cells, path: str | Path, methods: Sequence[str] | None = None) -> None:
    """Write the figure of distances from the optimum: one row per method, one column per graph."""
    from matplotlib import pyplot as plt

    titles = [method.title for method in _selected(methods)][::-1]
    size = (15, 1.2 + 0.24 * len(titles))
    figure, axes = plt.subplots(
        1, len(COLUMNS), figsize=size, layout="constrained", sharex=True, sharey=True
    )
    for ax, graph in zip(axes, COLUMNS, strict=True):
        for y, title in enumerate(titles):
            cell = cells.get((title, graph))
            for near in filter(None, cell.near if cell else ()):
                ax.plot(near["worst"], y, "o", color="#0072B2", markersize=5)
                ax.plot(near["mean"], y, "o", color="#D55E00", markersize=5, fillstyle="none")
        ax.set(xscale="log", title=graph, xlabel="relative distance from the optimum")
        ax.grid(alpha=0.3)
    axes[0].set_yticks(range(len(titles)), titles, fontsize=8)
    axes[0].set_ylim(-0.7, len(titles) - 0.3)
    figure.suptitle("filled: worst node; open: mean model; one pair per seed")
    figure.savefig(path, dpi=90)
    plt.close(figure)


def save(
    setting: ComparisonTask, cells: Cells, out: Path, methods: Sequence[str] | None = None
) -> None:
    """Write tables, numbers and figures of methods (None: all) to the folder `out`."""
    write(out, table=_page(setting, cells, methods))
    numbers(setting, cells).to_csv(out / "numbers.csv")
    draw_bias(cells, out / "bias.png", methods)
    for graph in GRAPHS:
        draw_curves(cells, graph, out / f"curves-{graph.replace(' ', '-').lower()}.png")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison from the command line; returns the exit code."""
    parser = parser_of(
        "methods",
        __doc__,
        quick=(False, "10 nodes, 10 steps, one rate and one seed: about a minute"),
        jobs=(2, "processes of one thread each"),
        minutes=(math.inf, "start no further cell after this time"),
        out=(Path, "folder of the results; cells found there are kept (default: out/methods)"),
    )
    parser.add_argument(
        "--methods", nargs="+", choices=list(METHODS), metavar="NAME", help="compare only these"
    )
    options = parser.parse_args(argv)
    setting = QUICK if options.quick else ComparisonTask()
    out = options.out or Path("out", "methods-quick" if options.quick else "methods")
    if options.jobs < 1:
        print(f"methods: error: `--jobs` must be at least 1, got {options.jobs}", file=sys.stderr)
        return 2
    began = time.monotonic()
    with tqdm(total=len(cells_of(options.methods)), desc="cells", unit="cell", disable=None) as bar:

        def on_cell(cell: Cell, done: int, total: int) -> None:
            bar.set_postfix_str(f"{cell.method} on {cell.graph}")
            bar.update(done - bar.n)

        cells = compute(
            setting,
            out / "cells.jsonl",
            methods=options.methods,
            jobs=options.jobs,
            keep_going=lambda: time.monotonic() - began < 60 * options.minutes,
            on_cell=on_cell,
        )
    save(setting, cells, out, options.methods)
    shown = tables(setting, cells, options.methods)
    print(shown["accuracy"], shown["bias"], sep="\n\n")
    minutes = (time.monotonic() - began) / 60
    print(
        f"wrote {out}/table.md, numbers.csv, bias.png and curves-*.png; took {minutes:.1f} minutes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
