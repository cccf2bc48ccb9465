"""Measure what ranks send if groups of nodes average: sums of groups, or rows of nodes.

``python -m analysis.group_averages`` trains GN-LeNet on 100 nodes by D-SGD on rotating cliques of
10 and of 5, on 2 and on 4 ranks of one thread on this machine (gloo, loopback). In turns and each
in new processes, it averages by the weights 1/k, so that sums of groups travel, and by weights that
differ from them by 1e-6, for which rows of nodes travel as on any other graph. It prints the MiB
that all ranks send per round, the seconds of the slowest rank's exchanges (medians over rounds and
turns, in which ranks also wait for each other), and their least and most over turns. Times on a
shared machine, or of more ranks than cores, say little about other machines.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import topofl
from topofl import Table, Topology, algorithms, data, mixing, models, topologies

from .program import answers, load_of_machine, parser_of, random_images, write

PRESETS = {"full": (100, (10, 5), (2, 4), 8), "smoke": (8, (4,), (2,), 2)}
"""Nodes, sizes of cliques, numbers of ranks, and rounds, by preset."""

WAYS = ("sums of groups", "rows of nodes")
"""What travels between ranks."""


def nearly_equal(graph: Topology) -> mixing.MixingMatrix:
    """Return the weights 1/k of groups of k nodes, with 1e-6 more for the own model."""
    equal = mixing.metropolis_hastings(graph)
    lazy = (1 - 1e-6) * equal.weights.toarray() + 1e-6 * np.eye(graph.n)
    return mixing.from_weights(lazy, graph)


def train(n: int, size: int, rounds: int, way: str) -> dict[str, Any]:
    """Return bytes and seconds of the exchanges of each round but the first, and the last loss."""
    clients = data.shards(random_images(n * 4, test=0.05), n=n, per_node=2, seed=0)
    history = topofl.run(
        algorithms.dsgd(lr=0.01, batch_size=2),
        model=models.gn_lenet(),
        clients=clients,
        topology=topologies.rotating_cliques(clients, clique_size=size, steps=50, seed=0),
        mixing=None if way == WAYS[0] else nearly_equal,
        rounds=rounds + 1,
        seed=0,
        evaluation=topofl.Evaluation(every=rounds + 1, nodes=1),
        compute=topofl.Compute(device="cpu", executor="looped", distributed="RANK" in os.environ),
        progress=False,
    )
    found = {name: history.rounds[name][1:] for name in ("rank_bytes", "exchange_seconds")}
    loss = float(history["train_loss"][-1])
    return {name: np.asarray(values).tolist() for name, values in found.items()} | {"loss": loss}


def measure(preset: str, turns: int) -> list[dict[str, Any]]:
    """Return one row per size, number of ranks and way, measured in turns in new processes."""
    n, sizes, numbers, rounds = PRESETS[preset]
    rows = []
    for size in sizes:
        for ranks in numbers:
            runs: dict[str, list[Any]] = {way: [] for way in WAYS}
            for _ in range(turns):
                for way, found in runs.items():
                    arguments = n, size, rounds, way
                    first, *_ = answers(train, *arguments, ranks=ranks, threads=1, limit=1200)
                    found.append(first)
            for way, found in runs.items():
                rows.append({
                    "clique_size": size,
                    "ranks": ranks,
                    "way": way,
                    "bytes": float(np.mean([one["rank_bytes"] for one in found])),
                    "seconds": [median(one["exchange_seconds"]) for one in found],
                    "loss": found[0]["loss"],
                })  # fmt: skip
                print(f"{size}, {ranks} ranks, {way}: done", file=sys.stderr)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return what ranks sent, and the seconds that it took."""
    cells = [
        (
            *(row["clique_size"], row["ranks"], row["way"], row["bytes"] / 2**20),
            *(median(row["seconds"]), min(row["seconds"]), max(row["seconds"])),
        )
        for row in rows
    ]
    names = ("cliques of", "ranks", "what travels", "MiB per round")
    return Table((*names, "exchange s per round", "least", "most"), tuple(cells))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print a table as Markdown."""
    options = parser_of(
        "group_averages",
        __doc__,
        preset=("full", "size of the cases", PRESETS),
        turns=(3, "turns"),
        out=(Path, "folder for group_averages.md and group_averages.json"),
    ).parse_args(argv)
    rows = measure(options.preset, options.turns)
    text = f"{table(rows).to_markdown()}\n\nLoad of this machine at the end: {load_of_machine()}."
    print(text)
    if options.out is not None:
        about = f"# Averages of groups on several ranks\n\n{text}\n"
        write(options.out, group_averages=about)
        write(options.out, group_averages=rows)


if __name__ == "__main__":
    main()
