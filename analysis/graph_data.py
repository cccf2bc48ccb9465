"""Ask whether the communication graph matters as H_10 says when the data are a graph, too.

``python -m analysis.graph_data`` draws a stochastic block model with a class per block and noisy
features, of which each vertex alone says little and its neighbors much. Its vertices are given to
nodes by class (two classes each) or at random, and edges between nodes are dropped or kept. Each
node trains a graph convolutional network on its own vertices, by D-SGD over several communication
graphs. For each case it prints H_10 of each graph (the distance of the labels around a node from
the global labels after ten hops), the mean test accuracy over all evaluations, and Spearman's rank
correlation of the two. ``--preset smoke`` takes few nodes and rounds.

``--batching`` measures instead what batching would bring: the gradients of as many models as nodes,
each on a subgraph of its own, one after another, in one call of ``torch.func.vmap`` on edges that
are padded to equal numbers, and, for the convolution of the study, on one block-diagonal graph with
products of all nodes' own weights.
"""

import sys
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv, SAGEConv

import topofl
from topofl import Evaluation, Table, algorithms, data, metrics, topologies

from .program import parser_of, seconds_of

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
        return self.second(with_mean(self.first(with_mean(x, edges)).relu(), edges))


def with_mean(values: Tensor, edges: Tensor) -> Tensor:
    """Return values (V, k) of vertices, joined to their means over neighbors."""
    source, target = edges
    ones = torch.ones_like(values[source, 0])
    degrees = torch.zeros_like(values[:, 0]).index_add(0, target, ones)
    sums = torch.zeros_like(values).index_add(0, target, values[source])
    return torch.cat([values, sums / degrees.clamp(min=1)[:, None]], 1)


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


class Layers(nn.Module):
    """Two layers of PyTorch Geometric."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        sizes = (FEATURES, 16), (16, CLASSES)
        if kind == "GINConv":
            self.first, self.second = (GINConv(nn.Linear(*size)) for size in sizes)
        else:
            layer = {"GCNConv": GCNConv, "SAGEConv": SAGEConv}[kind]
            self.first, self.second = (layer(*size) for size in sizes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return logits (V, CLASSES)."""
        return self.second(self.first(x, edges).relu(), edges)


def batching(preset: str, repeats: int = 20) -> Table:
    """Return the table of milliseconds for all nodes' gradients, and whether they agree."""
    n, vertices, _, _ = PRESETS[preset]
    graphs = [drawn(vertices, seed) for seed in range(n)]
    x = torch.stack([graph.x.float() for graph in graphs])
    labels = torch.stack([graph.y for graph in graphs])
    networks = {kind: partial(Layers, kind) for kind in ("GCNConv", "SAGEConv", "GINConv")}
    rows = []
    for kind, make in ({"the study's": Convolution} | networks).items():
        modules = [make() for _ in graphs]
        rows.append((kind, *_milliseconds(modules, graphs, x, labels, repeats)))
    return Table(("layers", "one after another", "vmap", "block-diagonal"), tuple(rows))


def _milliseconds(
    modules: Sequence[nn.Module], graphs: Sequence[Data], x: Tensor, labels: Tensor, repeats: int
) -> list[float | str]:
    """Return the milliseconds of each way, or why it cannot be taken."""
    n, vertices = labels.shape
    edges = [graph.edge_index for graph in graphs]
    most = max(own.shape[1] for own in edges)
    padded = torch.stack(
        [functional.pad(own, (0, most - own.shape[1]), value=vertices) for own in edges]
    )
    wide = functional.pad(x, (0, 0, 0, 1))  # padding is between a vertex and itself
    blocks = torch.cat([own + k * vertices for k, own in enumerate(edges)], 1)
    stacked = [
        torch.stack(own).detach().requires_grad_()
        for own in zip(*(module.parameters() for module in modules), strict=True)
    ]
    names = [name for name, _ in modules[0].named_parameters()]

    def one_after_another() -> list[Tensor]:
        found = list[list[Tensor]]()
        for module, own, own_x, own_labels in zip(modules, edges, x, labels, strict=True):
            loss = functional.cross_entropy(module(own_x, own), own_labels)
            found.append([*torch.autograd.grad(loss, list(module.parameters()))])
        return [torch.stack(own) for own in zip(*found, strict=True)]

    def differentiated(outputs: Tensor) -> list[Tensor]:
        losses = functional.cross_entropy(outputs.transpose(1, 2), labels, reduction="none")
        return [*torch.autograd.grad(losses.mean(1).sum(), stacked)]

    def batched() -> list[Tensor]:
        def apply(values: Sequence[Tensor], own_x: Tensor, own: Tensor) -> Tensor:
            return functional_call(modules[0], dict(zip(names, values, strict=True)), (own_x, own))

        return differentiated(vmap(apply)(stacked, wide, padded)[:, :vertices])

    def block_diagonal() -> list[Tensor]:
        def linear(values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            return (values.view(n, vertices, -1) @ weight.mT + bias[:, None]).flatten(0, 1)

        hidden = linear(with_mean(x.flatten(0, 1), blocks), *stacked[:2]).relu()
        found = linear(with_mean(hidden, blocks), *stacked[2:])
        return differentiated(found.view(n, vertices, -1))

    ways = [one_after_another, batched]
    ways += [block_diagonal] if isinstance(modules[0], Convolution) else []
    wanted, found = one_after_another(), list[float | str]()
    for way in ways:
        try:
            for one, other in zip(way(), wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
        except RuntimeError as error:
            found.append(f"fails: {str(error).strip().splitlines()[0]:.60}")
            continue
        times = [seconds_of(way, torch.device("cpu")) for _ in range(repeats)]
        found.append(round(1000 * min(times), 2))
    return [*found, *["not tried"] * (3 - len(found))]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables of the study; returns the exit code."""
    parser = parser_of(
        "graph_data",
        __doc__,
        preset=("full", "settings", tuple(PRESETS)),
        batching=(False, "measure what batching would bring"),
    )
    options = parser.parse_args(argv)
    if options.batching:
        print(batching(options.preset))
        return 0
    for table in study(options.preset):
        print(table, end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
