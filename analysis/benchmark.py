"""Time training steps beside the bare kernels they need, and beside a loop over nodes.

``python -m analysis.benchmark`` times, in one process and in turns, for logistic regression on data of MNIST's shape:

* ours: one round of :func:`topofl.run`, everything included except evaluation;
* the floor: index gather into a reused buffer, stacked forward and backward, update and mixing, on the same numbers,
  with no engine around them;
* the naive loop of ``tests/naive.py``: one ``nn.Module`` a node (from a checkout only).

Ratios of times taken in one run carry over to other machines, times do not. The last columns put our step beside what
the D-Cliques authors' simulator needed elsewhere: that is a comparison across machines, for orientation only.

``python -m analysis.benchmark graphs`` times graphs of 100,000 nodes instead: see ``analysis/graph_benchmark.py``.
"""

import argparse
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

import topofl
from topofl import NotApplicable, Table, algorithms, data, mixing, models, topologies

from . import graph_benchmark

COLUMNS = 1024
"""Columns that the floor mixes at a time, as many as are fastest here."""

__all__ = ["CASES", "Case", "measure", "table"]


@dataclass(frozen=True)
class Case:
    """One setting to time.

    Parameters
    ----------
    label
        In the table.
    n, batch_size
        Nodes and examples a minibatch.
    clique_averaging
        D-Cliques with Clique Averaging, else plain D-SGD on the complete graph.
    simulator
        Seconds that the D-Cliques authors' simulator takes for the same training step, as measured on another machine
        of 2 cores (with AMX); recorded, not measured here.
    """

    label: str
    n: int
    batch_size: int
    clique_averaging: bool
    simulator: float


CASES = (
    Case("D-Cliques + CA, 100 x 128", 100, 128, True, 0.110),
    Case("fully-connected, 100 x 128", 100, 128, False, 0.275),
    Case("D-Cliques + CA, 1000 x 13", 1000, 13, True, 0.98),
    Case("fully-connected, 1000 x 13", 1000, 13, False, 25.0),
)


def _clients(case: Case) -> data.Partition:
    """Return 50,000 examples of MNIST's shape, two label shards a node; times depend on shapes alone."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((50_100, 1, 28, 28), dtype=np.float32)
    labels = np.arange(50_100) % 10
    dataset = data.from_arrays(inputs, labels, test=100 / 50_100, name="synthetic")
    return data.shards(dataset, case.n, per_node=2, seed=0)


def _setting(case: Case, clients: data.Partition) -> tuple[topofl.Topology, algorithms.Algorithm]:
    if case.clique_averaging:
        graph = topologies.dcliques(clients.label_counts, clique_size=10, seed=0)
        return graph, algorithms.clique_averaging(lr=0.1, batch_size=case.batch_size)
    return topologies.fully_connected(case.n), algorithms.dsgd(lr=0.1, batch_size=case.batch_size)


def ours(case: Case, clients: data.Partition, rounds: int) -> list[float]:
    """Return the seconds of every round after the first of a run of topofl."""
    graph, algorithm = _setting(case, clients)
    stamps = []
    topofl.run(
        algorithm,
        model=models.logistic_regression(),
        clients=clients,
        topology=graph,
        rounds=rounds + 2,
        eval_every=rounds + 2,
        seed=0,
        device="cpu",
        progress=False,
        on_round=lambda t, population: stamps.append(time.perf_counter()),
    )
    return list(np.diff(stamps)[:-1])  # the last round also looks at its gradients


def floor(case: Case, clients: data.Partition, rounds: int) -> list[float]:
    """Return the seconds of steps made of the bare kernels."""
    step = _floor_step(case, clients)
    step()
    return [_seconds(step) for _ in range(rounds)]


def _floor_step(case: Case, clients: data.Partition) -> Callable[[], None]:
    n, b = case.n, case.batch_size
    graph, _ = _setting(case, clients)
    inputs, labels = clients.dataset.examples().flatten(1), clients.dataset.labels
    indices = torch.from_numpy(np.concatenate([members[np.arange(b) % len(members)] for members in clients.train]))
    buffer = torch.empty(n * b, 784)
    flat = torch.zeros(n, 7850)
    weight, bias = flat[:, :7840].view(n, 10, 784), flat[:, 7840:]
    mix = _floor_mix(mixing.metropolis_hastings(graph))
    blocks = n // 10

    def step() -> None:
        x = torch.index_select(inputs, 0, indices, out=buffer).view(n, b, 784)
        y = labels[indices].view(n, b)
        w, c = weight.detach().requires_grad_(), bias.detach().requires_grad_()
        logits = w @ x.transpose(1, 2) + c.unsqueeze(2)  # three times faster than x @ w^T, forward and backward
        losses = functional.cross_entropy(logits, y, reduction="none").mean(1)
        gradients: Sequence[torch.Tensor] = torch.autograd.grad(losses.sum(), (w, c))
        for parameter, gradient in zip((weight, bias), gradients, strict=True):
            if case.clique_averaging:  # as if cliques were blocks of ten rows
                block = gradient.view(blocks, 10, -1)
                block.copy_(block.mean(1, keepdim=True).expand_as(block))
            parameter.add_(gradient, alpha=-0.1)
        mix(flat)

    return step


def _floor_mix(weights: mixing.MixingMatrix) -> Callable[[torch.Tensor], None]:
    def mean(flat: torch.Tensor) -> None:
        flat.copy_(flat.mean(0, keepdim=True).expand_as(flat))

    if weights.is_uniform_mean:
        return mean
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)
        matrix = weights.to_torch().to_sparse_csr()

    def multiply(flat: torch.Tensor) -> None:
        for block in flat.split(COLUMNS, dim=1):
            block.copy_(matrix @ block)

    return multiply


def naive(case: Case, clients: data.Partition) -> float:
    """Return the seconds of one round of the naive loop over nodes; ImportError outside of a checkout."""
    from tests import naive as reference

    graph, _ = _setting(case, clients)
    modules = [models.logistic_regression() for _ in range(case.n)]
    dataset = clients.dataset
    nodes = reference.Nodes(modules, dataset.examples(), dataset.labels, clients.train, case.batch_size, 0)
    weights = mixing.metropolis_hastings(graph).weights
    dense = weights.toarray()
    if case.clique_averaging:
        return _seconds(lambda: reference.clique_averaging(nodes, dense, 1, lr=0.1, cliques=graph.groups))
    return _seconds(lambda: reference.dsgd(nodes, dense, 1, lr=0.1))


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Timing:
    """Seconds of one training step of a case."""

    case: Case
    ours: float
    floor: float
    naive: float | None


def measure(case: Case, *, rounds: int = 24, repeats: int = 5, with_naive: bool = True) -> Timing:
    """Time one case: `repeats` turns of ours and floor, `rounds` steps each; the median over all steps of each."""
    clients = _clients(case)
    turns = [(ours(case, clients, rounds), floor(case, clients, rounds)) for _ in range(repeats)]
    mine = statistics.median(second for turn, _ in turns for second in turn)
    bare = statistics.median(second for _, turn in turns for second in turn)
    return Timing(case, mine, bare, _naive_if_there(case, clients) if with_naive else None)


def _naive_if_there(case: Case, clients: data.Partition) -> float | None:
    try:
        return naive(case, clients)
    except ImportError:
        return None


def table(timings: Sequence[Timing]) -> Table:
    """Return the ratios."""
    columns = (
        "training step",
        "ours ms",
        "floor ms",
        "ours / floor",
        "naive / ours",
        "simulator ms *",
        "simulator / ours *",
    )
    return Table(columns, tuple(_rows(timings)), title=machine())


def _rows(timings: Sequence[Timing]) -> Iterator[tuple[Any, ...]]:
    for timing in timings:
        reference: Any = NotApplicable("not asked for, or not in a checkout")
        if timing.naive is not None:
            reference = timing.naive / timing.ours
        yield (
            timing.case.label,
            1e3 * timing.ours,
            1e3 * timing.floor,
            timing.ours / timing.floor,
            reference,
            1e3 * timing.case.simulator,
            timing.case.simulator / timing.ours,
        )


def machine() -> str:
    """Return one line about where this runs."""
    name = next(
        (line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.processor()
    )
    return f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}, Python {platform.python_version()}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.benchmark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["training", "graphs"], default="training", help="default training")
    parser.add_argument("--rounds", type=int, default=24, help="steps a turn (default 24)")
    parser.add_argument("--repeats", type=int, default=5, help="turns (default 5)")
    parser.add_argument("--no-naive", action="store_true", help="leave out the loop over nodes, which takes a minute")
    parser.add_argument("--out", type=Path, help="also write the table here, as Markdown")
    options = parser.parse_args(argv)
    if options.what == "graphs":
        result = graph_benchmark.measure(title=machine())
        print(result)
    else:
        result = _training(options)
        print(result)
        print("* the D-Cliques authors' simulator, measured on another machine of 2 cores (with AMX), not in this run")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(result.to_markdown() + "\n")
    return 0


def _training(options: argparse.Namespace) -> Table:
    timings = []
    for case in CASES:
        print(f"timing {case.label} ...", file=sys.stderr)
        timings.append(measure(case, rounds=options.rounds, repeats=options.repeats, with_naive=not options.no_naive))
    return table(timings)


if __name__ == "__main__":
    sys.exit(main())
