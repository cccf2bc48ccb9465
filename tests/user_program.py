"""A program as users write it, which type checkers follow through the installed package."""

from pathlib import Path
from tempfile import TemporaryDirectory

import topofl
from topofl import (
    History,
    MixingMatrix,
    Topology,
    algorithms,
    data,
    metrics,
    mixing,
    models,
    topologies,
)


def gap(graph: Topology) -> float:
    """Return the spectral gap of a graph with Metropolis-Hastings weights."""
    weights: MixingMatrix = mixing.metropolis_hastings(graph)
    return weights.spectral_gap


def main() -> None:
    """Train over a ring, and print what came of it."""
    clients = data.shards(data.digits(), n=8, per_node=2, seed=0)
    graph: Topology = topologies.ring(8)
    history: History = topofl.run(
        algorithms.dsgd(lr=0.5, batch_size=8),
        model=models.logistic_regression(64),
        clients=clients,
        topology=graph,
        rounds=5,
        evaluation=topofl.Evaluation(every=5),
        seed=0,
    )
    print(gap(graph), history.last("accuracy").mean(), history.n_rounds)
    print(metrics.compare([graph], label_counts=clients))
    with TemporaryDirectory() as folder:
        place: Path = history.save(Path(folder, "run"))
        assert History.load(place).n_rounds == 5


if __name__ == "__main__":
    main()
