"""What was chosen, as calls: of a partition, of two generators, and of training."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from topofl import models
from topofl.advice.candidates import Call
from topofl.data import Dataset, Partition
from topofl.engine import run
from topofl.explore.choices import PARTITIONS, Choice, Method
from topofl.explore.datasets import DIGITS, Source
from topofl.history import History
from topofl.topology import Topology, TopologySequence

__all__ = [
    "Candidate",
    "Graph",
    "Nodes",
    "Training",
    "candidates",
    "clients_of",
    "graphs_of",
    "message_sizes",
    "model_of",
    "n_parameters",
]

Graph = Topology | TopologySequence

EVALUATIONS = 20
"""About how many points a curve has."""


@dataclass(frozen=True)
class Nodes:
    """The nodes and their data: those of `source`, divided by `partition`."""

    n: int = 30
    partition: Choice = PARTITIONS[0]
    values: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    source: Source = DIGITS

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of the partition, apart from the data."""
        return {"n": self.n} | self.partition.options(self.values, self.seed)

    def clients(self) -> Partition:
        """Return the partition.

        Raises
        ------
        ValueError, OSError
            If the data cannot be read, or divided in this way.
        """
        return self.partition.function(self.source.dataset, **self.options)

    @property
    def code(self) -> str:
        """The statements that make ``dataset`` and ``clients``."""
        words = [f"{key}={value!r}" for key, value in self.options.items()]
        call = f"data.{self.partition.function.__name__}(dataset, {', '.join(words)})"
        return f"{self.source.code}\nclients = {call}"


@dataclass(frozen=True)
class Candidate:
    """The call that makes a graph, and the method by which nodes train on it."""

    call: Call
    method: Method


@dataclass(frozen=True)
class Training:
    """How candidates are trained, with logistic regression."""

    rounds: int = 60
    lr: float = 0.5
    batch_size: int = 8
    seed: int = 0

    @property
    def evaluation(self) -> int:
        """Rounds between evaluations."""
        return max(1, self.rounds // EVALUATIONS)

    def history(self, graph: Graph, method: Method, clients: Partition) -> History:
        """Return the history of one run."""
        return run(
            method.function(self.lr, self.batch_size),
            model=model_of(clients.dataset),
            clients=clients,
            topology=graph,
            rounds=self.rounds,
            evaluation=self.evaluation,
            seed=self.seed,
            progress=False,
        )


def model_of(dataset: Dataset) -> nn.Module:
    """Return the model: logistic regression of the classes on all numbers of an example."""
    return models.logistic_regression(dataset.inputs[0].numel(), dataset.n_classes)


def n_parameters(dataset: Dataset) -> int:
    """Return how many numbers the model has."""
    return sum(parameter.numel() for parameter in model_of(dataset).parameters())


def message_sizes(chosen: Mapping[str, Candidate], dataset: Dataset) -> dict[str, int]:
    """Return how many numbers a message of each candidate has."""
    size = n_parameters(dataset)
    return {name: size + candidate.method.extra for name, candidate in chosen.items()}


def clients_of(nodes: Nodes) -> tuple[Partition | None, str]:
    """Return the partition, or None and the reason why there is none."""
    try:
        return nodes.clients(), ""
    except (ValueError, OSError) as error:  # such as damaged files, or too few examples
        return None, str(error)


def candidates(
    chosen: Mapping[str, tuple[Choice, Mapping[str, Any]]], n: int, seed: int
) -> dict[str, Candidate]:
    """Return the candidates by name: the letter and the title of its choice.

    Parameters
    ----------
    chosen
        Choices with the values of their parameters, by letter.
    n, seed
        Number of nodes, and the seed of random graphs.
    """
    return {
        f"{letter}: {choice.title}": Candidate(
            Call(
                choice.function,
                () if choice.of_clients else (n,),
                choice.options(values, seed),
                of_clients=choice.of_clients,
            ),
            choice.method,
        )
        for letter, (choice, values) in chosen.items()
    }


def graphs_of(
    chosen: Mapping[str, Candidate], clients: Partition
) -> tuple[dict[str, Graph], dict[str, str]]:
    """Return the graphs by name, and the reasons for those that there are not."""
    graphs, reasons = {}, {}
    for name, candidate in chosen.items():
        same = [other for other in graphs if chosen[other].call == candidate.call]
        if same:
            remedy = "choose another topology or other arguments"
            reasons[name] = f"this is the graph of {same[0]}; {remedy}"
            continue
        try:
            graphs[name] = candidate.call.build(clients)
        except ValueError as error:  # such as a regular graph with an odd sum of degrees
            reasons[name] = str(error)
    return graphs, reasons
