"""How accuracy on rotating cliques depends on the number of partitions.

``python -m analysis.rotating_partitions`` trains logistic regression by D-SGD on digits, with two
shards per node, on ``topologies.rotating_cliques`` of 5 and of 10 with 1, 2, 4, 8 and 16 partitions
in turn and with new ones in every round (None). ``--preset mnist --data DIR`` does so on MNIST with
100 nodes, where DIR contains the folder ``mnist``. It prints, as means over seeds, accuracy over
the first half of the evaluations without that of the untrained model ("learning"), at the end
("final") and of the worst node at the end ("worst"), all in %; how much each exceeds that of 2
partitions, as means of differences paired over seeds with 95 % t-intervals; the most other nodes to
which a node sends over the rounds of training; and the share of the squared deviation that a round
leaves at most, on average over a period (the squared largest singular value of the product, to the
power 1 / period).

Fixed before the first run: learning rate 0.1, which is that of the first measurements of rotating
cliques on MNIST and was not chosen here, the sizes, numbers and seeds.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import topofl
from topofl import Table, TopologySequence, algorithms, data, mixing, models, topologies
from topofl.summary.verdicts import mean_interval, with_interval

from .program import parser_of, write

PARTITIONS = (1, 2, 4, 8, 16, None)
"""Numbers of partitions; None: new ones in every round."""

COMPARED = 2
"""Number of partitions with which the others are compared."""


class Preset(NamedTuple):
    """Dataset, nodes, examples per minibatch, rounds, rounds between evaluations, seeds."""

    dataset: str
    n: int
    batch_size: int
    rounds: int
    every: int
    seeds: int
    sizes: tuple[int, ...] = (10, 5)


PRESETS = {
    "quick": Preset("digits", 60, 8, 80, 4, 3),
    "full": Preset("digits", 60, 8, 80, 4, 10),
    "mnist": Preset("mnist", 100, 128, 80, 4, 3),
    "smoke": Preset("digits", 8, 8, 4, 2, 2, (4,)),
}
"""Settings by name."""


def left_per_round(sequence: TopologySequence) -> float | str:
    """Return the largest share of the squared deviation that is left, per round of a period."""
    if sequence.period is None:
        return "-"
    product = np.eye(sequence.n)
    for t in range(sequence.period):
        product = mixing.metropolis_hastings(sequence.at(t)).weights @ product
    largest = np.linalg.svd(product - 1 / sequence.n, compute_uv=False)[0]
    return float(largest ** (2 / sequence.period))


def links(sequence: TopologySequence, rounds: int) -> int:
    """Return the most other nodes to which a node sends within some rounds."""
    count = min(rounds, sequence.period or rounds)
    met = np.zeros((sequence.n, sequence.n), dtype=bool)
    for t in range(count):
        met |= sequence.at(t).adjacency.toarray() != 0
    return int(met.sum(axis=1).max())


def outcome(preset: Preset, root: Path | None, size: int, count: int | None, seed: int) -> Any:
    """Return learning, final and worst accuracy in %, links, and what a round leaves."""
    images = data.digits() if preset.dataset == "digits" else data.mnist(str(root))
    clients = data.shards(images, n=preset.n, per_node=2, seed=seed)
    graph = topologies.rotating_cliques(clients, size, partitions=count, seed=seed)
    history = topofl.run(
        algorithms.dsgd(lr=0.1, batch_size=preset.batch_size),
        model=models.logistic_regression(images.inputs[0].numel()),
        clients=clients,
        topology=graph,
        rounds=preset.rounds,
        seed=seed,
        evaluation=preset.every,
        compute=topofl.Compute(on_disconnected="allow"),  # of one partition
        progress=False,
    )
    accuracy = 100 * np.asarray(history["accuracy"])  # (evaluations, nodes), the first untrained
    trained = accuracy[-(preset.rounds // preset.every) :]
    learning = trained[: len(trained) // 2].mean()
    found = (learning, trained[-1].mean(), trained[-1].min())
    return [*map(float, found), links(graph, preset.rounds), left_per_round(graph)]


def measure(preset: Preset, root: Path | None) -> list[dict[str, Any]]:
    """Return one row per size and number of partitions."""
    rows = []
    for size in preset.sizes:
        for count in PARTITIONS:
            seeds = [outcome(preset, root, size, count, seed) for seed in range(preset.seeds)]
            rows.append({"clique_size": size, "partitions": count, "seeds": seeds})
            print(f"cliques of {size}, {count} partitions: done", file=sys.stderr)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return means over seeds, and paired differences from two partitions with their intervals."""
    accuracies = [np.array([seed[:3] for seed in row["seeds"]]) for row in rows]  # (seeds, 3)
    compared = {
        row["clique_size"]: own
        for row, own in zip(rows, accuracies, strict=True)
        if row["partitions"] == COMPARED
    }
    cells = []
    for row, own in zip(rows, accuracies, strict=True):
        *_, most, left = zip(*row["seeds"], strict=True)
        spreads = [f"{mean:.1f}" for mean in own.mean(axis=0)]
        for values in (own - compared[row["clique_size"]]).T:
            said = with_interval(float(values.mean()), mean_interval(values), "+.2f")
            spreads.append("" if row["partitions"] == COMPARED else said)
        per_round = "-" if "-" in left else float(np.mean(left))
        named = "None" if row["partitions"] is None else row["partitions"]
        cells.append((row["clique_size"], named, *spreads, max(most), per_round))
    outcomes = "learning", "final", "worst"
    apart = (f"{outcome} minus that of {COMPARED}" for outcome in outcomes)
    names = ("cliques of", "partitions", *outcomes, *apart, "links", "left per round")
    return Table(names, tuple(cells))


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print a table as Markdown."""
    options = parser_of(
        "rotating_partitions",
        __doc__,
        preset=("quick", "settings", PRESETS),
        data=(Path, "folder with the datasets, for --preset mnist"),
        out=(Path, "folder for rotating_partitions.md and rotating_partitions.json"),
    ).parse_args(argv)
    rows = measure(PRESETS[options.preset], options.data)
    text = table(rows).to_markdown()
    print(text)
    if options.out is not None:
        mnist = PRESETS[options.preset].dataset == "mnist"
        title = "# Rotating cliques by the number of partitions" + ", MNIST" * mnist
        how = f"python -m analysis.rotating_partitions --preset {options.preset}"
        how = f"`{how}{' --data DIR' * mnist}`"
        write(options.out, rotating_partitions=f"{title}\n\n{how}\n\n{text}\n")
        write(options.out, rotating_partitions=rows)


if __name__ == "__main__":
    main()
