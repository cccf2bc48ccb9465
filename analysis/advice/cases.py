"""Cases of the validation: data, partitions, numbers of nodes and budgets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from topofl import data, models

__all__ = ["CASES", "SEEDS", "Case", "dirichlet_case", "shards_case"]

SEEDS = (0, 1, 2)
"""Seeds of partitions, random graphs and minibatches."""


@dataclass(frozen=True)
class Case:
    """Data, a number of nodes and a budget.

    Parameters
    ----------
    dataset, n, partition
        ``"digits"`` or ``"MNIST"``, number of nodes, and the name of the partition.
    split
        ``split(dataset, n=, seed=)`` returns the partition.
    options
        Arguments of :func:`topologies.recommend`: the budget and which graphs are allowed.
    """

    dataset: str
    n: int
    partition: str
    split: Callable[..., data.Partition]
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Label in the table and in the records."""
        words = ", ".join(f"{k}={v}" if v is not True else k for k, v in self.options.items())
        return f"{self.dataset}, {self.n} nodes, {self.partition}; {words}"

    @property
    def rounds(self) -> int:
        """Rounds of training."""
        return 60 if self.dataset == "digits" else 40

    @property
    def batch_size(self) -> int:
        """Examples per minibatch."""
        return 8 if self.dataset == "digits" else 16

    def model(self) -> torch.nn.Module:
        """Return the model."""
        return models.logistic_regression(64 if self.dataset == "digits" else 784)


def shards_case(dataset: str, n: int, per_node: int, **options: Any) -> Case:
    """Return a case with shards of sorted data."""
    split = partial(data.shards, per_node=per_node)
    return Case(dataset, n, f"shards {per_node}", split, options)


def dirichlet_case(dataset: str, n: int, alpha: float, **options: Any) -> Case:
    """Return a case with label shares drawn from a Dirichlet distribution."""
    split = partial(data.dirichlet_per_client, alpha=alpha)
    return Case(dataset, n, f"Dirichlet {alpha:g}", split, options)


CASES = (
    dirichlet_case("digits", 60, 0.05, max_degree=4),
    dirichlet_case("digits", 60, 0.05, max_degree=10, directed=True),
    dirichlet_case("digits", 60, 0.5, max_degree=6, directed=True),
    dirichlet_case("digits", 60, 0.5, max_messages=240, static=True),
    dirichlet_case("digits", 60, 2.0, max_degree=3, static=True),
    shards_case("digits", 60, 3, max_degree=6, static=True),
    shards_case("digits", 60, 3, max_degree=4, directed=True),
    shards_case("digits", 40, 2, max_degree=4),
    shards_case("digits", 40, 3, max_degree=3),
    dirichlet_case("digits", 40, 0.1, max_degree=10, directed=True, static=True),
    shards_case("digits", 80, 2, max_degree=6),
    shards_case("digits", 80, 1, max_degree=10, static=True),
    dirichlet_case("digits", 80, 0.3, max_degree=3, directed=True),
    dirichlet_case("MNIST", 30, 0.1, max_degree=4, static=True),
    shards_case("MNIST", 50, 2, max_degree=6, directed=True, static=True),
)
"""The cases."""
