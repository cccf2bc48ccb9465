"""What was chosen, as calls: of a partition, of two generators, and of training."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topofl import algorithms, data, models
from topofl.advice.calls import Call
from topofl.data import Partition
from topofl.engine import run
from topofl.explore.choices import PARTITIONS, Choice
from topofl.history import History
from topofl.topology import Topology

__all__ = ["INPUTS", "N_PARAMETERS", "Nodes", "Training", "candidates", "graphs_of"]

INPUTS = 64
"""Pixels of a digit."""

N_PARAMETERS = 10 * (INPUTS + 1)
"""Numbers in a message: logistic regression of 10 classes."""

EVALUATIONS = 20
"""About how many points a curve has."""


@dataclass(frozen=True)
class Nodes:
    """The nodes and their data: the digits that come with scikit-learn, divided by `partition`."""

    n: int = 30
    partition: Choice = PARTITIONS[0]
    values: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of the partition, apart from the data."""
        return {"n": self.n} | self.partition.options(self.values, self.seed)

    def clients(self) -> Partition:
        """Return the partition."""
        return self.partition.function(data.digits(), **self.options)

    @property
    def code(self) -> str:
        """The expression that makes the partition."""
        words = [f"{key}={value!r}" for key, value in self.options.items()]
        return f"data.{self.partition.function.__name__}(data.digits(), {', '.join(words)})"


@dataclass(frozen=True)
class Training:
    """How both candidates are trained: D-SGD with logistic regression."""

    rounds: int = 60
    lr: float = 0.5
    batch_size: int = 8
    seed: int = 0

    @property
    def evaluation(self) -> int:
        """Rounds between evaluations."""
        return max(1, self.rounds // EVALUATIONS)

    def history(self, graph: Topology, clients: Partition) -> History:
        """Return the history of one run."""
        return run(
            algorithms.dsgd(lr=self.lr, batch_size=self.batch_size),
            model=models.logistic_regression(INPUTS),
            clients=clients,
            topology=graph,
            rounds=self.rounds,
            evaluation=self.evaluation,
            seed=self.seed,
            progress=False,
        )


def candidates(
    chosen: Mapping[str, tuple[Choice, Mapping[str, Any]]], n: int, seed: int
) -> dict[str, Call]:
    """Return the call of each candidate by its name: its letter and the title of its choice.

    Parameters
    ----------
    chosen
        Choices with the values of their parameters, by letter.
    n, seed
        Number of nodes, and the seed of random graphs.
    """
    return {
        f"{letter}: {choice.title}": Call(
            choice.function,
            () if choice.of_clients else (n,),
            choice.options(values, seed),
            of_clients=choice.of_clients,
        )
        for letter, (choice, values) in chosen.items()
    }


def graphs_of(
    calls: Mapping[str, Call], clients: Partition
) -> tuple[dict[str, Topology], dict[str, str]]:
    """Return the graphs by name, and the reasons for those that there are not."""
    graphs, reasons = {}, {}
    for name, call in calls.items():
        try:
            graphs[name] = call.build(clients)
        except ValueError as error:  # such as a regular graph with an odd sum of degrees
            reasons[name] = str(error)
    return graphs, reasons
