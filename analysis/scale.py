"""Measure how time and memory grow with the number of nodes, up to a million.

``python -m analysis.scale --preset full --out analysis/results/scale`` has two parts:

* **training**: D-SGD with logistic regression (650 parameters, 20 examples per node, minibatches of
  10) on random 6-regular graphs. For every number of nodes, a new process runs some rounds without
  evaluation; the first is not timed. Peak memory is the growth of the resident memory of the
  process by the run (``VmHWM`` of Linux, reset before it), after data and graph were made. Slopes
  are of least squares in logarithms: 1 means proportional to the number of nodes.
* **graphs**: numbers of sparse graphs, each family and size in a new process with a time limit:
  seconds, value, or the reason why there is none.

Times are of use on a quiet machine only. The preset ``full`` is 10^2 to 10^5 nodes for training and
10^5 and 10^6 for graphs; ``small`` is for tests. Memory is measured on Linux only.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import topofl
from topofl import Table, algorithms, data, metrics, models, toolkit, topologies

from .cost_in_seconds import FAMILIES, label_counts
from .program import (
    answers,
    load_of_machine,
    parser_of,
    process_bytes,
    random_examples,
    resident_before,
    stamps_of_rounds,
    write,
)

GRAPHS = (
    "ring",
    "one-peer exponential",
    "exponential",
    "random 6-regular",
    "D-Cliques of 10",
    "fully connected",
)
"""Families of graphs whose numbers are computed; the last one is not sparse."""


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "small": {"training": (20, 40), "graphs": (60,), "rounds": 2, "repeats": 1, "limit": 60}
    | {"families": ("ring", "one-peer exponential", "fully connected")},
    "middle": {"training": (100, 1000, 10_000), "graphs": (30_000,), "rounds": 5, "repeats": 2}
    | {"limit": 120},
    "full": {"training": (100, 1000, 10_000, 100_000), "graphs": (100_000, 1_000_000)}
    | {"rounds": 10, "repeats": 3, "limit": 900},
}
"""Arguments of :func:`measure` by name."""

PER_NODE = 20
FEATURES = 64


def train(n: int, rounds: int) -> dict[str, Any]:
    """Return seconds per round and bytes of a run, in this process."""
    dataset = random_examples(n * PER_NODE, (1, 8, 8), test=10)
    clients, graph = data.shards(dataset, n, per_node=2, seed=0), FAMILIES["random 6-regular"](n)
    stamps, stamp = stamps_of_rounds(torch.device("cpu"))
    before = resident_before()
    topofl.run(
        algorithms.dsgd(lr=0.05, batch_size=10),
        model=models.logistic_regression(FEATURES),
        clients=clients,
        topology=graph,
        rounds=rounds + 2,
        seed=0,
        evaluation=topofl.Evaluation(every=rounds + 2, nodes=1, examples=1),
        callbacks=[stamp],
        progress=False,
    )
    seconds = np.diff(stamps)[:rounds]  # the last round also evaluates
    return {"n": n, "seconds": seconds.tolist(), "bytes": process_bytes("VmHWM") - before}


def numbers_of(family: str, n: int) -> Iterator[dict[str, Any]]:
    """Yield a record per number of a graph: its seconds, and its value or why there is none."""
    kept: dict[str, Any] = {}

    def record(name: str, compute: Callable[[], Any]) -> dict[str, Any]:
        began = time.perf_counter()
        try:
            value = compute()
        except (ValueError, TypeError, MemoryError) as error:
            found = {"reason": str(error) or type(error).__name__}
        else:
            if name == "graph":
                kept[name] = value
            found = {"value": _shown(value)}
        seconds = time.perf_counter() - began
        return {"family": family, "n": n, "name": name, "seconds": seconds, **found}

    generate = {**FAMILIES, "fully connected": topologies.fully_connected}[family]
    yield record("graph", lambda: generate(n))
    if "graph" not in kept:
        return
    for name, compute in _computations(kept["graph"], n).items():
        yield record(name, compute)
    peak = f"{process_bytes('VmHWM') / 2**30:.2f} GiB"
    yield {"family": family, "n": n, "name": "peak memory", "seconds": 0.0, "value": peak}


def _computations(graph: Any, n: int) -> Mapping[str, Callable[[], Any]]:
    """Return what is computed of a graph of n nodes, by name."""
    links: dict[str, Any] = {"compute": 0.005, "latency": 0.02, "bandwidth": 1.25e6}
    timed: dict[str, Any] = {"hardware": links, "n_parameters": 7850}
    counts = label_counts(n)
    return {
        "connected": lambda: metrics.b_connectivity(graph),
        "messages per round": lambda: metrics.round_time(graph, **timed).messages,
        "seconds per round": lambda: metrics.round_time(graph, **timed).seconds,
        "cycle time": lambda: metrics.round_time(graph, waiting="neighbors", **timed).seconds,
        "H_1": lambda: metrics.neighborhood_heterogeneity(graph, counts, hops=1),
        "H_10": lambda: metrics.neighborhood_heterogeneity(graph, counts, hops=10),
        "distances": lambda: graph.at(0).distances,
        "heterogeneity spectrum": lambda: metrics.heterogeneity_spectrum(graph, counts),
        "N_10": lambda: metrics.accumulated_noise(graph, hops=10),
        "spectral gap": lambda: metrics.spectral_gap(graph),
    }


def _shown(value: Any) -> float | str:
    """Return a number, or what there is of other results."""
    if isinstance(value, topofl.Topology):
        return f"{value.n_edges:,} edges"
    return value if isinstance(value, int | float) else "computed"


def measure(
    threads: int,
    *,
    training: Sequence[int],
    graphs: Sequence[int],
    rounds: int,
    repeats: int,
    limit: float,
    families: Sequence[str] = GRAPHS,
) -> dict[str, Any]:
    """Return all records.

    Parameters
    ----------
    threads
        Threads of training.
    training, graphs
        Numbers of nodes.
    rounds, repeats
        Timed rounds, and processes per number of nodes, in turns.
    limit
        Seconds for all numbers of a graph.
    families
        The graphs.
    """
    trained: list[dict[str, Any]] = []
    for turn in range(repeats):
        for n in training:
            trained += _records(train, n, rounds, n=n, threads=threads)
            print(f"training, turn {turn + 1}, {n:,} nodes", file=sys.stderr)
    numbers: list[dict[str, Any]] = []
    for n in graphs:
        for family in families:
            numbers += _records(numbers_of, family, n, n=n, limit=limit)
            print(f"numbers of {family}, {n:,} nodes", file=sys.stderr)
    return {
        "training": trained,
        "graphs": numbers,
        "machine": toolkit.machine(),
        "threads": threads,
        "load": load_of_machine(),
    }


def _records(
    task: Callable[..., Any], *arguments: Any, n: int, **how: Any
) -> Iterator[dict[str, Any]]:
    """Yield the records of a part of this study in a new process, and why it was stopped, if so."""
    try:
        yield from answers(task, *arguments, **how)
    except subprocess.TimeoutExpired as error:
        reason = f"the next number was not done within {error.timeout:g} s in all"
        yield {"family": arguments[0], "n": n, "name": "stopped", "reason": reason}
    except subprocess.CalledProcessError as error:
        yield {"n": n, "reason": f"the process ended with {error.returncode}"}


def fitted_slope(n: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of least squares of the logarithms; 1 means proportional.

    Examples
    --------
    >>> round(fitted_slope([10, 100, 1000], [3, 300, 30_000]), 12)
    2.0
    """
    return float(np.polyfit(np.log(n), np.log(values), 1)[0])


def report(records: Mapping[str, Any], command: str) -> str:
    """Return the Markdown text of all tables."""
    blocks = [
        "# Time and memory against the number of nodes",
        f"`{command}`; {records['machine']}; {records['threads']} threads; load of the machine over"
        f" 1, 5 and 15 minutes at the end: {records['load']}.",
        "## Training",
        _training_table(records["training"]),
        "## Numbers of graphs",
        "Seconds include those of the default weights. Peak memory is that of the whole process.",
    ]
    names = ("graph", "nodes", "number", "value", "seconds")
    usual = {"family": "", "name": "", "seconds": ""}
    shown = [usual | {"value": one.get("reason")} | one for one in records["graphs"]]
    keys = ("family", "n", "name", "value", "seconds")
    rows = [tuple(one[key] for key in keys) for one in shown]
    return "\n\n".join([*blocks, Table(names, tuple(rows)).to_markdown()]) + "\n"


def _training_table(records: Sequence[Mapping[str, Any]]) -> str:
    done = [one for one in records if "seconds" in one]
    sizes = sorted({one["n"] for one in done})
    rows, times, memory = [], [], []
    for n in sizes:
        own = [one for one in done if one["n"] == n]
        medians = [statistics.median(one["seconds"]) for one in own]
        times.append(statistics.median(medians))
        memory.append(statistics.median(one["bytes"] for one in own))
        rows.append(
            (n, times[-1], min(medians), max(medians), memory[-1] / 2**20, memory[-1] / n / 2**10)
        )
    names = ("nodes", "s per round", "least", "most", "peak MiB", "KiB per node")
    text = [Table(names, tuple(rows)).to_markdown()]
    if len(sizes) > 1:
        text.append(
            f"Slopes in logarithms, all sizes: seconds {fitted_slope(sizes, times):.2f}, memory "
            f"{fitted_slope(sizes, memory):.2f}; the two largest: seconds "
            f"{fitted_slope(sizes[-2:], times[-2:]):.2f}, memory "
            f"{fitted_slope(sizes[-2:], memory[-2:]):.2f}."
        )
    failed = [f"- {one['n']:,} nodes: {one['reason']}" for one in records if "reason" in one]
    return "\n\n".join([*text, *failed])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write report.md and records.json; returns the exit code."""
    options = parser_of(
        "scale",
        __doc__,
        preset=("middle", "sizes", PRESETS),
        threads=(os.cpu_count() or 1, "threads of PyTorch"),
        out=(Path("out", "scale"), "folder"),
    ).parse_args(argv)
    records = measure(options.threads, **PRESETS[options.preset])
    command = f"python -m analysis.scale --preset {options.preset}"
    write(options.out, records=records, report=report(records, command))
    print(f"written: {options.out / 'report.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
