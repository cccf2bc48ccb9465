"""Datasets, models and graphs of the comparison."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from torch import nn

from topofl import Topology, TopologySequence, data, models, topologies
from topofl.data import Partition

from ..study.scenarios import RATES, read_cifar, read_mnist

__all__ = [
    "OTHERS",
    "RATES",
    "SEEDS",
    "SETTINGS",
    "TUNING_DEGREE",
    "TUNING_SEED",
    "Other",
    "Setting",
    "designed_edges",
    "messages",
    "split",
]

Graph = Topology | TopologySequence

SEEDS = tuple(range(10))
"""Seeds that are reported; each is that of the partition, of the graphs and of the training."""

TUNING_SEED, TUNING_DEGREE = 100, 4
"""Seed and degree of the random regular graph on which the learning rate is chosen."""

CLIQUE_SIZES = (10, 5)
"""Sizes of the D-Cliques, whose messages per round are the budgets of the other graphs."""


@dataclass(frozen=True)
class Setting:
    """A dataset, a model and a training budget.

    Parameters
    ----------
    name
        Label in tables.
    dataset, model
        Functions that return the dataset, given the folder of the data, and the model.
    n, batch_size, rounds, every
        Nodes, examples per minibatch, rounds, and rounds between evaluations.
    momentum
        Momentum of D-SGD. The rates that are tried are those of :data:`RATES` times 1 - momentum,
        since momentum multiplies the length of steps by 1 / (1 - momentum) in the long run.
    executor
        Executor of the engine; results agree up to rounding.
    """

    name: str
    dataset: Callable[[Path | None], data.Dataset]
    model: Callable[[], nn.Module]
    n: int
    batch_size: int
    rounds: int
    every: int
    momentum: float = 0.0
    executor: str = "auto"

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates that are tried."""
        return tuple(round(rate * (1 - self.momentum), 6) for rate in RATES)


SETTINGS: Mapping[str, Setting] = {
    one.name: one
    for one in (
        Setting(
            "digits",
            lambda root: data.digits(),
            partial(models.logistic_regression, 64),
            n=60,
            batch_size=8,
            rounds=120,
            every=4,
        ),
        Setting(
            "MNIST",
            read_mnist,
            partial(models.logistic_regression, 784),
            n=100,
            batch_size=128,
            rounds=80,
            every=4,
        ),
        Setting(
            "CIFAR-10 subset",
            read_cifar,
            partial(models.gn_lenet, (3, 16, 16)),
            n=20,
            batch_size=10,
            rounds=120,
            every=20,
            momentum=0.9,
            executor="looped",
        ),
    )
}
"""Settings by name."""


@cache
def _dataset(name: str, root: Path | None) -> data.Dataset:
    return SETTINGS[name].dataset(root)


@cache
def split(name: str, root: Path | None, seed: int) -> Partition:
    """Return the data of the nodes of a setting: two shards each."""
    return data.shards(_dataset(name, root), n=SETTINGS[name].n, per_node=2, seed=seed)


@dataclass(frozen=True)
class Other:
    """A graph with which designed topologies are compared.

    Parameters
    ----------
    name
        Label in tables.
    clique_size
        Size of the D-Cliques whose messages per round it has, as far as possible.
    build
        ``build(clients, budget, seed)`` returns the graph with about `budget` messages per round;
        None for the D-Cliques themselves.
    """

    name: str
    clique_size: int
    build: Callable[[Partition, int, int], Graph] | None = None

    def graph(self, clients: Partition, seed: int) -> Graph:
        """Return the graph for these clients."""
        cliques = topologies.dcliques(
            clients, clique_size=self.clique_size, inter="ring", seed=seed
        )
        return cliques if self.build is None else self.build(clients, cliques.n_edges * 2, seed)


def messages(graph: Graph) -> float:
    """Return the messages per round: directed edges, on average over the period of a sequence."""
    if isinstance(graph, Topology):
        return float(graph.edge_index.shape[1])
    period = graph.period
    assert period is not None
    return sum(graph.at(t).edge_index.shape[1] for t in range(period)) / period


def designed_edges(sent: float) -> int:
    """Return the edges of a designed topology that sends no more messages per round."""
    return int(sent // 2)


def _degree(clients: Partition, budget: int) -> int:
    return max(2, round(budget / clients.n))


def _stl_fw(clients: Partition, budget: int, seed: int) -> Graph:
    return topologies.stl_fw(clients, _degree(clients, budget))


def _designed_directed(clients: Partition, budget: int, seed: int) -> Graph:
    return topologies.designed_directed(clients, _degree(clients, budget))


def _random_regular(clients: Partition, budget: int, seed: int) -> Graph:
    return topologies.random_regular(clients.n, _degree(clients, budget), seed=seed)


def _base_graph(clients: Partition, budget: int, seed: int) -> Graph:
    """Return the base graph whose mean number of messages per round is nearest to the budget."""
    graphs = [topologies.base_graph(clients.n, k) for k in range(1, 2 * budget // clients.n + 1)]
    return min(graphs, key=lambda graph: abs(messages(graph) - budget))


def _exponential(clients: Partition, budget: int, seed: int) -> Graph:
    """Return the exponential graph, directed or not, with the nearest number of messages."""
    graphs = [topologies.exponential(clients.n, directed=directed) for directed in (False, True)]
    return min(graphs, key=lambda graph: abs(messages(graph) - budget))


_BUILDERS: Mapping[str, Callable[[Partition, int, int], Graph]] = {
    "STL-FW": _stl_fw,
    "designed_directed": _designed_directed,
    "base graph": _base_graph,
    "exponential": _exponential,
    "random regular": _random_regular,
}

OTHERS: Mapping[str, Other] = {
    other.name: other
    for size in CLIQUE_SIZES
    for other in (
        Other(f"D-Cliques of {size}", size),
        *(Other(f"{name} ({size})", size, build) for name, build in _BUILDERS.items()),
    )
}
"""Graphs with which designed topologies are compared, by name."""
