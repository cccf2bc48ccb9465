"""Measure runs on several processes of this machine, and compare them with predictions.

``python -m analysis.ranks`` trains GN-LeNet on 100 nodes by D-SGD (random images, minibatches of
16) on a ring and on D-Cliques of 10. In turns and each in new processes, it takes one process with
one thread, one process with as many threads as there are cores, and 2 and 3 ranks of one thread,
started by torchrun with gloo on the loopback interface. It prints the median seconds of a round,
their ratio to those of one process with a thread per core in the same turn (median, least and most
over turns), the bytes that ranks sent, and the ratio of the predicted to the measured seconds.

``metrics.round_time`` predicts seconds from latency and bandwidth of messages between two
processes, measured beforehand, and from seconds per step: those of a node alone
(``metrics.step_seconds``), and those of the run of one rank. If there are more ranks than cores,
steps take longer in proportion. Times are of use on a quiet machine only; ``--preset smoke`` takes
a small case.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

import topofl
from topofl import Table, algorithms, data, metrics, models, topologies
from topofl.engine.joining import place

from .program import answers, parser_of, random_images, write

ROUNDS = {"full": 7, "smoke": 2}
"""Rounds that are timed, by preset."""


Case = Mapping[str, Any]
"""``topology``, ``model`` in ``topofl.models``, nodes ``n`` and ``batch_size`` of D-SGD."""

_USUAL = {"model": "gn_lenet", "n": 100, "batch_size": 16}

CASES: Mapping[str, Sequence[Case]] = {
    "full": [{"topology": name} | _USUAL for name in ("ring", "D-Cliques of 10")],
    "smoke": [{"topology": "ring"} | _USUAL | {"n": 6, "batch_size": 2}],
}
"""Cases by preset."""


class Way(NamedTuple):
    """Number of processes of a run, and of threads of each."""

    ranks: int
    threads: int

    def __str__(self) -> str:
        """Return the way as a cell of a table."""
        ranks = f"{self.ranks} rank{'s' * (self.ranks > 1)}"
        return f"{ranks} of {self.threads} thread{'s' * (self.threads > 1)}"


def ways(cores: int) -> list[Way]:
    """Return the ways in which cases are trained on a machine with some cores."""
    return [Way(1, 1), Way(1, cores), Way(2, 1), Way(3, 1)] if cores > 1 else [Way(1, 1), Way(2, 1)]


def clients_of(case: Case) -> data.Partition:
    """Return random images with two labels per node, the same in all processes."""
    dataset = random_images(case["n"] * 2 * case["batch_size"], test=0.05)
    return data.shards(dataset, n=case["n"], per_node=2, seed=0)


def graph_of(case: Case, clients: data.Partition) -> topofl.Topology:
    """Return the graph of a case."""
    if case["topology"] == "ring":
        return topologies.ring(case["n"])
    return topologies.dcliques(clients, clique_size=10, seed=0)


def train(case: Case, rounds: int) -> dict[str, Any]:
    """Return the seconds of rounds, the traffic and the loss of one run of a case.

    There are two more rounds than that: the first one, which warms up, and the last one, which has
    an evaluation, are not timed.
    """
    seconds = list[float]()

    def note(event: topofl.callbacks.Event) -> None:
        if event.kind == "round":
            seconds.append(event.values["seconds"])

    clients = clients_of(case)
    history = topofl.run(
        algorithms.dsgd(lr=0.01, batch_size=case["batch_size"]),
        model=getattr(models, case["model"])(),
        clients=clients,
        topology=graph_of(case, clients),
        rounds=rounds + 2,
        seed=0,
        evaluation=topofl.Evaluation(every=rounds + 2, nodes=1),
        compute=topofl.Compute(device="cpu", executor="looped", distributed="RANK" in os.environ),
        callbacks=[note],
        progress=False,
    )
    sent = history.rounds.get("rank_bytes")
    ranks = history.meta.get("ranks")
    return {
        "seconds": seconds[1:-1],
        "bytes": 0.0 if sent is None else float(np.median(sent)),
        "nodes": [case["n"]] if ranks is None else ranks["nodes"],
        "loss": float(history["train_loss"][-1]),
    }


def link(numbers: Sequence[int] = (1, 2**20), repeats: int = 20) -> list[float]:
    """Return the median seconds of one message of some numbers between two ranks, by gloo."""
    dist.init_process_group("gloo")
    rank, found = dist.get_rank(), []
    for count in numbers:
        values, times = torch.zeros(count), []
        for _ in range(repeats):
            dist.barrier()
            began = time.perf_counter()
            for turn in range(2):
                if rank == turn:
                    dist.send(values, 1 - rank)
                else:
                    dist.recv(values, 1 - rank)
            times.append((time.perf_counter() - began) / 2)
        found.append(median(times))
    dist.destroy_process_group()
    return found


def predicted(case: Case, way: Way, step: float, messages: Sequence[float], cores: int) -> float:
    """Return the seconds of a round that ``round_time`` predicts for ranks of one thread.

    Parameters
    ----------
    case, way
        The run.
    step
        Seconds of a step of one node on one thread.
    messages
        Seconds of messages of 1 and of 2^20 numbers.
    cores
        Cores of the machine.
    """
    graph, (short, long) = graph_of(case, clients_of(case)), messages
    hardware = metrics.Hardware(
        compute=step * max(1.0, way.ranks / cores),
        latency=short,
        bandwidth=4 * 2**20 / (long - short),
        placement=place(graph, way.ranks)[0],
        copies="machine",
    )
    return metrics.round_time(
        graph, hardware=hardware, model=getattr(models, case["model"])()
    ).seconds


def step(case: Case) -> float:
    """Return the seconds of a step of a node of a case, alone."""
    model = getattr(models, case["model"])()
    return metrics.step_seconds(model, clients_of(case), batch_size=case["batch_size"])


def of_first_rank(way: Way, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in new processes, on the first of them."""
    ranks = way.ranks if way.ranks > 1 else None
    first, *_ = answers(function, *arguments, ranks=ranks, threads=way.threads, limit=1200)
    return first


def measure(preset: str, turns: int, cores: int) -> list[dict[str, Any]]:
    """Return one row per case and way, measured in turns in new processes."""
    rows = []
    for case in CASES[preset]:
        alone = of_first_rank(Way(1, 1), step, case)
        messages = of_first_rank(Way(2, 1), link)
        runs: dict[Way, list[Mapping[str, Any]]] = {way: [] for way in ways(cores)}
        for _ in range(turns):
            for way, found in runs.items():
                found.append(of_first_rank(way, train, case, ROUNDS[preset]))
        for way, found in runs.items():
            rows.append({
                "case": case,
                "way": way._asdict(),
                "cores": cores,
                "seconds": median(s for one in found for s in one["seconds"]),
                "turns": [median(one["seconds"]) for one in found],
                "bytes": found[0]["bytes"],
                "loss": found[0]["loss"],
                "step": alone,
                "messages": messages,
            })  # fmt: skip
            print(f"{case['topology']}, {way}: {rows[-1]['seconds']:.3g} s", file=sys.stderr)
    return rows


def ratios(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[float | str]:
    """Return predicted seconds over measured ones, by each of two seconds per step.

    The first are those of a node alone, the second those of the run of one rank of one thread.
    """
    case, way = row["case"], Way(**row["way"])
    if way.threads > 1:
        return ["-", "-"]
    alone = next(
        other["seconds"]
        for other in rows
        if (other["case"], other["way"]) == (row["case"], Way(1, 1)._asdict())
    )
    found: list[float | str] = [
        predicted(case, way, step, row["messages"], row["cores"]) / row["seconds"]
        for step in (row["step"], alone / case["n"])
    ]
    return found if way.ranks > 1 else [found[0], "-"]


def _over_threads(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the median, lowest and highest ratio over turns to a process with all cores."""
    threads = Way(1, row["cores"])._asdict()
    other = next(one for one in rows if (one["case"], one["way"]) == (row["case"], threads))
    if row is other:
        return "1"
    ratios = [own / one for own, one in zip(row["turns"], other["turns"], strict=True)]
    return f"{median(ratios):.3g} ({min(ratios):.3g} to {max(ratios):.3g})"


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the measured seconds of a round, and the ratios of predicted to measured seconds."""
    cells = [
        (
            row["case"]["topology"],
            str(Way(**row["way"])),
            row["seconds"],
            _over_threads(row, rows),
            row["bytes"] / 2**20,
            *ratios(row, rows),
        )
        for row in rows
    ]
    steps = ("by steps of a node alone", "by steps of one rank")
    columns = ("topology", "processes", "s per round", "over threads", "MiB sent", *steps)
    return Table(columns, tuple(cells))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print a table as Markdown."""
    options = parser_of(
        "ranks",
        __doc__,
        preset=("full", "size of the cases", CASES),
        turns=(3, "turns"),
        out=(Path, "folder for ranks.md and ranks.json"),
    ).parse_args(argv)
    rows = measure(options.preset, options.turns, os.cpu_count() or 1)
    text = table(rows).to_markdown()
    print(text)
    if options.out is not None:
        write(options.out, ranks=f"# Runs on several ranks\n\n{text}\n")
        write(options.out, ranks=rows)


if __name__ == "__main__":
    main()
