"""Benchmark cases: networks, numbers of nodes, graphs and algorithms, on synthetic data."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import nn

from topofl import Topology, algorithms, data, models, topologies

from ..program import random_examples

IMAGE = (3, 32, 32)


@dataclass(frozen=True)
class Network:
    """A model, its data shape and its learning rate.

    Parameters
    ----------
    label
        Label in tables.
    build
        Function that returns the module, always with the same parameters.
    shape
        Shape of one example.
    examples
        Number of training examples, divided among all nodes.
    lr
        Learning rate at which training stays finite.
    """

    label: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...] = IMAGE
    examples: int = 20_000
    lr: float = 0.002

    @property
    def is_linear(self) -> bool:
        """Whether the forward pass of all nodes is one stacked matrix product."""
        return self.build is models.logistic_regression


@dataclass(frozen=True)
class Case:
    """One setting to time.

    Parameters
    ----------
    label
        Label in tables.
    network, n, batch_size, momentum
        What each of n nodes trains, with one minibatch per round.
    graph
        ``"dcliques"``, ``"fully_connected"`` or ``"exponential"``.
    clique_averaging
        Clique Averaging, else plain D-SGD.
    precision
        ``"fp32"`` or ``"bf16"``.
    simulator
        Seconds per training step of the D-Cliques authors' simulator, measured on another machine
        of 2 cores (with AMX) unless the benchmark measures it. None: unknown.
    """

    label: str
    network: Network
    n: int
    batch_size: int
    graph: str = "exponential"
    clique_averaging: bool = False
    momentum: float = 0.0
    precision: str = "fp32"
    simulator: float | None = None


LOGISTIC = Network("logistic", models.logistic_regression, (1, 28, 28), examples=50_000, lr=0.1)
GN_LENET = Network("GN-LeNet", models.gn_lenet)

_LENET_STEP = Case(
    "GN-LeNet, 100 x 20", GN_LENET, 100, 20, "dcliques", True, momentum=0.9, simulator=1.37
)

TRAINING = (
    Case("D-Cliques + CA, 100 x 128", LOGISTIC, 100, 128, "dcliques", True, simulator=0.110),
    Case("fully-connected, 100 x 128", LOGISTIC, 100, 128, "fully_connected", simulator=0.275),
    Case("D-Cliques + CA, 1000 x 13", LOGISTIC, 1000, 13, "dcliques", True, simulator=0.98),
    Case("fully-connected, 1000 x 13", LOGISTIC, 1000, 13, "fully_connected", simulator=25.0),
    _LENET_STEP,
    replace(_LENET_STEP, label="GN-LeNet, 100 x 20, bf16", precision="bf16"),
)
"""Settings of the D-Cliques paper: logistic regression (MNIST) and GN-LeNet (CIFAR-10)."""


NETWORKS = (
    *(LOGISTIC, GN_LENET),
    *(Network("DPFL CNN", models.dpfl_cnn), Network("ResNet-18-GN", models.resnet18_gn)),
)
"""Networks of the matrix."""


def matrix_cases(nodes: tuple[int, ...] = (10, 100, 1000)) -> tuple[Case, ...]:
    """Return D-SGD on exponential graphs: every network, number of nodes and precision.

    Minibatches have at most as many examples as a node.
    """
    return tuple(
        Case(
            f"{network.label}, {n} nodes, {precision}",
            network,
            n,
            min(128 if network.is_linear else 20, network.examples // n),
            precision=precision,
        )
        for network in NETWORKS
        for n in nodes
        for precision in ("fp32", "bf16")
    )


def clients_of(case: Case, test: int = 100) -> data.Partition:
    """Return random images of the network's input shape, two label shards per node."""
    network, name = case.network, f"synthetic {case.network.label}"
    dataset = random_examples(network.examples, network.shape, test, name)
    return data.shards(dataset, case.n, per_node=2, seed=0)


def setting(case: Case, clients: data.Partition) -> tuple[Topology, algorithms.Algorithm]:
    """Return the graph and the algorithm of a case."""
    options = {"lr": case.network.lr, "batch_size": case.batch_size, "momentum": case.momentum}
    algorithm = (
        algorithms.clique_averaging(**options)
        if case.clique_averaging
        else algorithms.dsgd(**options)
    )
    if case.graph == "dcliques":
        return topologies.dcliques(clients.label_counts, clique_size=10, seed=0), algorithm
    return getattr(topologies, case.graph)(case.n), algorithm


def on_few_nodes(case: Case, n: int, *, same_graph: bool = False) -> Case:
    """Return the same local work at n nodes, with little more than one minibatch each.

    Without `same_graph`, the case is D-SGD on the complete graph, which exists for any n.
    """
    small = replace(
        case, n=n, network=replace(case.network, examples=n * 10 * -(-case.batch_size // 10))
    )
    return small if same_graph else replace(small, graph="fully_connected", clique_averaging=False)
