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

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import topofl
from topofl import Table, algorithms, data, metrics, models, topologies
from topofl.engine.joining import place

from .program import as_installed, free_port

ROUNDS = {"full": 7, "smoke": 2}
"""Rounds that are timed, by preset."""


@dataclass(frozen=True)
class RankCase:
    """D-SGD on random images.

    Parameters
    ----------
    topology
        ``"ring"`` or ``"D-Cliques of 10"``.
    model
        Name in ``topofl.models``.
    n, batch_size
        Number of nodes, and of examples per minibatch.
    """

    topology: str
    model: str
    n: int
    batch_size: int


CASES = {
    "full": [RankCase(name, "gn_lenet", 100, 16) for name in ("ring", "D-Cliques of 10")],
    "smoke": [RankCase("ring", "gn_lenet", 6, 2)],
}
"""Cases by preset."""


@dataclass(frozen=True)
class Way:
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


def clients_of(case: RankCase) -> data.Partition:
    """Return random images with two labels per node, the same in all processes."""
    rng = np.random.default_rng(0)
    count = case.n * 2 * case.batch_size
    images = torch.from_numpy(rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, 10, count))
    dataset = data.from_arrays(images, labels, test=0.05, mean=[0.5] * 3, std=[0.25] * 3)
    return data.shards(dataset, n=case.n, per_node=2, seed=0)


def graph_of(case: RankCase, clients: data.Partition) -> topofl.Topology:
    """Return the graph of a case."""
    if case.topology == "ring":
        return topologies.ring(case.n)
    counts = clients.label_counts
    return topologies.dcliques(counts, clique_size=10, seed=0)


def train(case: RankCase, rounds: int, distributed: bool) -> dict[str, Any]:
    """Return the seconds of rounds, the traffic and the loss of one run.

    There are two more rounds than that: the first one, which warms up, and the last one, which has
    an evaluation, are not timed.
    """
    seconds: list[float] = []

    def note(event: topofl.callbacks.Event) -> None:
        if event.kind == "round":
            seconds.append(event.values["seconds"])

    clients = clients_of(case)
    history = topofl.run(
        algorithms.dsgd(lr=0.01, batch_size=case.batch_size),
        model=getattr(models, case.model)(),
        clients=clients,
        topology=graph_of(case, clients),
        rounds=rounds + 2,
        seed=0,
        evaluation=topofl.Evaluation(every=rounds + 2, nodes=1),
        compute=topofl.Compute(device="cpu", executor="looped", distributed=distributed),
        callbacks=[note],
        progress=False,
    )
    sent = history.rounds.get("rank_bytes")
    ranks = history.meta.get("ranks")
    return {
        "seconds": seconds[1:-1],
        "bytes": 0.0 if sent is None else float(np.median(sent)),
        "nodes": [case.n] if ranks is None else ranks["nodes"],
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


def predicted(
    case: RankCase, way: Way, step: float, messages: Sequence[float], cores: int
) -> float:
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
    clients = clients_of(case)
    graph = graph_of(case, clients)
    model = getattr(models, case.model)()
    short, long = messages
    hardware = metrics.Hardware(
        compute=step * max(1.0, way.ranks / cores),
        latency=short,
        bandwidth=4 * 2**20 / (long - short),
        placement=place(graph, way.ranks)[0],
        copies="machine",
    )
    return metrics.round_time(graph, hardware=hardware, model=model).seconds


def output_of(way: Way, *words: str) -> Any:
    """Return the JSON that this module prints last when it is started in some processes."""
    command = [sys.executable, "-m"]
    if way.ranks > 1:
        command += ["torch.distributed.run", "--nproc-per-node", str(way.ranks)]
        command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), "-m"]
    environment = os.environ | {
        "OMP_NUM_THREADS": str(way.threads),
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    done = subprocess.run(
        [*command, __spec__.name, *words],
        stdout=subprocess.PIPE, text=True, check=True, timeout=1200, env=environment,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def measure(preset: str, turns: int, cores: int) -> list[dict[str, Any]]:
    """Return one row per case and way, measured in turns in new processes."""
    rows = []
    for case in CASES[preset]:
        text = json.dumps(asdict(case))
        step = output_of(Way(1, 1), "--step", text)
        messages = output_of(Way(2, 1), "--link")
        runs: dict[Way, list[Mapping[str, Any]]] = {way: [] for way in ways(cores)}
        for _ in range(turns):
            for way, found in runs.items():
                found.append(output_of(way, "--train", text, "--preset", preset))
        for way, found in runs.items():
            rows.append({
                "case": asdict(case),
                "way": asdict(way),
                "cores": cores,
                "seconds": median(s for one in found for s in one["seconds"]),
                "turns": [median(one["seconds"]) for one in found],
                "bytes": found[0]["bytes"],
                "loss": found[0]["loss"],
                "step": step,
                "messages": messages,
            })  # fmt: skip
            print(f"{case.topology}, {way}: {rows[-1]['seconds']:.3g} s", file=sys.stderr)
    return rows


def ratios(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[float | str]:
    """Return predicted seconds over measured ones, by each of two seconds per step.

    The first are those of a node alone, the second those of the run of one rank of one thread.
    """
    case, way = RankCase(**row["case"]), Way(**row["way"])
    if way.threads > 1:
        return ["-", "-"]
    alone = next(
        other["seconds"]
        for other in rows
        if (other["case"], other["way"]) == (row["case"], asdict(Way(1, 1)))
    )
    found: list[float | str] = [
        predicted(case, way, step, row["messages"], row["cores"]) / row["seconds"]
        for step in (row["step"], alone / case.n)
    ]
    return found if way.ranks > 1 else [found[0], "-"]


def _over_threads(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the median, lowest and highest ratio over turns to a process with all cores."""
    threads = asdict(Way(1, row["cores"]))
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
    parser = argparse.ArgumentParser(
        prog=as_installed("python -m analysis.ranks"), description=as_installed(__doc__)
    )
    parser.add_argument("--preset", choices=CASES, default="full", help="size of the cases")
    parser.add_argument("--turns", type=int, default=3, help="turns (default 3)")
    parser.add_argument("--out", type=Path, help="folder for ranks.md and ranks.json")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--link", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.train or options.step or options.link:
        _part(options)
        return
    rows = measure(options.preset, options.turns, os.cpu_count() or 1)
    text = table(rows).to_markdown()
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "ranks.md").write_text(f"# Runs on several ranks\n\n{text}\n")
        (options.out / "ranks.json").write_text(json.dumps(rows, indent=1) + "\n")


def _part(options: argparse.Namespace) -> None:
    """Do the part of one process, and print its result as JSON on the first rank."""
    rank = int(os.environ.get("RANK", "0"))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if options.train:
        case = RankCase(**json.loads(options.train))
        found: Any = train(case, ROUNDS[options.preset], "RANK" in os.environ)
    elif options.step:
        case = RankCase(**json.loads(options.step))
        model = getattr(models, case.model)()
        found = metrics.step_seconds(model, clients_of(case), batch_size=case.batch_size)
    else:
        found = link()
    if rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
