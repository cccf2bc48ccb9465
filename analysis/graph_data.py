"""Ask whether the communication graph matters as H_10 says when the data are a graph, too.

``python -m analysis.graph_data`` draws a stochastic block model with a class per block and noisy
features, of which each vertex alone says little and its neighbors much. Its vertices are given to
nodes by class (two classes each) or at random, and edges between nodes are dropped or kept. Each
node trains a graph convolutional network on its own vertices, by D-SGD over several communication
graphs. For each case it prints H_10 of each graph (the distance of the labels around a node from
the global labels after ten hops), the mean test accuracy over all evaluations, and Spearman's rank
correlation of the two. ``--preset smoke`` takes few nodes and rounds.
"""

import sys
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch_geometric.data import Data

import topofl
from topofl import Evaluation, Table, algorithms, data, metrics, topologies

from .program import parser_of

CLASSES, FEATURES = 5, 16
"""Blocks of the model, and numbers per vertex."""


PRESETS = {"full": (20, 40, 60, 3), "smoke": (10, 12, 4, 1)}
"""Nodes of the run, vertices of each of them, rounds, and seeds, by name."""


def drawn(vertices: int, seed: int) -> Data:
    """Return a stochastic block model: 8 neighbors of the own class and 2 others, on average."""
    rng = np.random.default_rng(seed)
    y = np.arange(vertices) % CLASSES
    same = y[:, None] == y[None]
    p = np.where(same, 8 * CLASSES / vertices, 2 * CLASSES / ((CLASSES - 1) * vertices))
    upper = np.triu(rng.random((vertices, vertices)) < p, 1)
    edges = np.array((upper | upper.T).nonzero())
    x = rng.standard_normal((CLASSES, FEATURES))[y] + 3 * rng.standard_normal((vertices, FEATURES))
    return Data(torch.from_numpy(x), torch.from_numpy(edges), y=torch.from_numpy(y))


class Convolution(nn.Module):
    """Two layers that average over neighbors and the vertex itself, as SAGEConv without bias."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2 * FEATURES, hidden), nn.Linear(2 * hidden, CLASSES)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return logits (V, CLASSES)."""
        source, target = edges
        degrees = torch.zeros_like(x[:, 0]).index_add_(0, target, torch.ones_like(x[source, 0]))

        def with_mean(values: Tensor) -> Tensor:
            sums = torch.zeros_like(values).index_add_(0, target, values[source])
            return torch.cat([values, sums / degrees.clamp(min=1)[:, None]], 1)

        return self.second(with_mean(self.first(with_mean(x)).relu()))


CASES = {
    "by class, edges dropped": (True, "drop"),
    "by class, edges kept": (True, "keep"),
    "at random, edges dropped": (False, "drop"),
}
"""Whether nodes hold two classes each, and what happens to edges between them, by name."""


def clients_of(dataset: data.Dataset, n: int, skewed: bool, seed: int) -> data.Partition:
    """Return nodes with vertices for training, and with some of the test vertices.

    A test vertex is drawn to a node that trains on its class, so that it has neighbors.
    """
    split = partial(data.shards, per_node=2) if skewed else data.iid
    clients, rng = split(dataset, n, seed=seed), np.random.default_rng(seed)
    held: list[list[int]] = [[] for _ in range(n)]
    for vertex in dataset.test.tolist():
        fitting = np.flatnonzero(clients.label_counts[:, int(dataset.labels[vertex])])
        held[int(rng.choice(fitting))].append(vertex)
    test = tuple(np.array(own, dtype=np.int64) for own in held)
    return data.Partition(dataset, clients.train, clients.val, test, name=clients.name)


def graphs_of(clients: data.Partition, seed: int) -> list[topofl.Topology]:
    """Return the communication graphs that are compared."""
    n = clients.n
    return [
        topologies.ring(n),
        topologies.grid(n),
        topologies.random_regular(n, k=4, seed=seed),
        topologies.exponential(n),
        topologies.dcliques(clients.label_counts, clique_size=n // 2, seed=seed),
        topologies.fully_connected(n),
    ]


def accuracy(
    model: nn.Module, clients: data.Partition, over: topofl.Topology, rounds: int, seed: int
) -> float:
    """Return the mean accuracy over nodes and evaluations."""
    history = topofl.run(
        algorithms.dsgd(lr=0.3, batch_size=8),
        model=model,
        clients=clients,
        topology=over,
        rounds=rounds,
        seed=seed,
        evaluation=Evaluation(every=max(1, rounds // 12)),
        compute=topofl.Compute(executor="looped"),
    )
    return float(history["accuracy"][1:].mean())


def study(preset: str) -> list[Table]:
    """Return a table for each case."""
    n, vertices, rounds, seeds = PRESETS[preset]
    rows: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for seed in range(seeds):
        graph = data.from_pyg(drawn(n * vertices, seed), test=0.25)
        for name, (skewed, between) in CASES.items():
            clients = clients_of(graph.dataset, n, skewed, seed)
            model = graph.network(Convolution(), clients, between=between)
            for over in graphs_of(clients, seed):
                found = accuracy(model, clients, over, rounds, seed)
                h_10 = metrics.neighborhood_heterogeneity(over, clients, hops=10)
                own = rows.setdefault(name, {}).setdefault(over.name.partition("(")[0], [])
                own.append((h_10, found))
    return [_table(name, found) for name, found in rows.items()]


def _table(name: str, found: dict[str, list[tuple[float, float]]]) -> Table:
    means = {graph: np.mean(values, axis=0) for graph, values in found.items()}
    h_10, scores = np.array(list(means.values())).T
    note = ""
    if np.ptp(h_10) > 0:
        note = f"Spearman's rank correlation {spearmanr(h_10, scores).statistic:.2f}"
    rows = ((graph, round(h, 4), round(100 * score, 1)) for graph, (h, score) in means.items())
    notes = (note,) if note else ()
    columns = ("graph", "H_10", "accuracy in %")
    return Table(columns, tuple(rows), title=f"vertices {name}", notes=notes)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables of the study; returns the exit code."""
    parser = parser_of("graph_data", __doc__, preset=("full", "settings", tuple(PRESETS)))
    for table in study(parser.parse_args(argv).preset):
        print(table, end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
