"""The scenarios of the study: datasets, partitions, models, methods and training budgets."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from torch import nn

from topofl import Evaluation, algorithms, data, models

from .graphs import GRAPHS, StudyGraph

__all__ = [
    "METHODS",
    "PARTITIONS",
    "RATES",
    "Scenario",
    "default_scenarios",
    "read_cifar",
    "read_mnist",
]

RATES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Learning rates that are tried."""

Method = Callable[[float, int], algorithms.Algorithm]

METHODS: Mapping[str, Method] = {
    "D-SGD": lambda lr, batch: algorithms.dsgd(lr, batch_size=batch),
    "momentum": lambda lr, batch: algorithms.dsgd(lr, batch_size=batch, momentum=0.9),
    "local steps": lambda lr, batch: algorithms.dsgd(lr, batch_size=batch, local_steps=5),
    "Clique Averaging": lambda lr, batch: algorithms.clique_averaging(lr, batch_size=batch),
    "gradient tracking": lambda lr, batch: algorithms.dsgt(lr, batch_size=batch),
    "D2": lambda lr, batch: algorithms.d2(lr, batch_size=batch),
    "push-sum": lambda lr, batch: algorithms.osgp(lr, batch_size=batch),
    "DFedPGP": lambda lr, batch: algorithms.dfedpgp(lr, head_lr=lr, batch_size=batch, epochs=1),
}
"""Methods of the study: ``method(lr, batch_size)``."""

PARTITIONS: Mapping[str, Callable[..., data.Partition]] = {
    "1 class": partial(data.shards, per_node=1),
    "2 shards": partial(data.shards, per_node=2),
    "Dirichlet 0.1": partial(data.dirichlet_per_client, alpha=0.1),
    "Dirichlet 0.3": partial(data.dirichlet_per_client, alpha=0.3),
    "Dirichlet 1": partial(data.dirichlet_per_client, alpha=1.0),
    "iid": data.iid,
}
"""Partitions of the study: ``partition(dataset, n=, seed=)``."""


@dataclass(frozen=True)
class Scenario:
    """A dataset, a model, a number of nodes and a training budget.

    Parameters
    ----------
    name
        Label in tables.
    n
        Number of nodes.
    clients
        ``clients(partition, seed)`` returns the partition of a name.
    model
        Returns the model.
    method
        ``method(name, lr)`` returns the algorithm of a name.
    batch_size, rounds, evaluation
        Examples per minibatch (of gradient statistics), rounds, and when what is evaluated.
    partitions, methods, seeds
        Names, and the seeds that are reported.
    graphs
        Graphs by name.
    rates
        Learning rates that are tried.
    chosen_rates
        Learning rates by method that are used without trying others.
    settings
        Text that differs if runs of other settings must not be mixed with those of this scenario.
    """

    name: str
    n: int
    clients: Callable[[str, int], data.Partition]
    model: Callable[[], nn.Module]
    method: Callable[[str, float], algorithms.Algorithm]
    batch_size: int
    rounds: int
    evaluation: Evaluation
    partitions: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    graphs: Mapping[str, StudyGraph] = field(default_factory=lambda: GRAPHS)
    rates: tuple[float, ...] = RATES
    chosen_rates: Mapping[str, float] = field(default_factory=dict)
    settings: str = ""

    def rates_of(self, method: str) -> tuple[float, ...]:
        """Return the learning rates that are tried for a method; the only one is used as it is."""
        return (self.chosen_rates[method],) if method in self.chosen_rates else self.rates


def _digits(root: Path | None, enlarge: int = 1) -> data.Dataset:
    return data.digits(enlarge=enlarge)


def _folder(root: Path | None, name: str) -> Path:
    if root is None:
        raise ValueError(f"`--data` must name a folder with the folder {name}, got none")
    return root / name


def read_mnist(root: Path | None) -> data.Dataset:
    """Return MNIST, from `root` or a folder below."""
    return data.mnist(_folder(root, "mnist").parent)


def read_cifar(root: Path | None) -> data.Dataset:
    """Return the CIFAR-10 subset from a folder of `root`, averaged to 16 x 16 pixels."""
    # The subset has other checksums than the whole dataset. Averaging saves three quarters of time.
    return data.cifar10(_folder(root, "cifar10-subset"), verify=False, downscale=2)


def _own_tests(clients: data.Partition, seed: int) -> data.Partition:
    return data.match_test(clients, rule="disjoint", seed=seed)


def _keep(clients: data.Partition, seed: int) -> data.Partition:
    return clients


@dataclass(frozen=True)
class _Source:
    """Return the partitions of a dataset, which is read when it is first needed."""

    dataset: Callable[[Path | None], data.Dataset]
    root: Path | None
    n: int
    edit: Callable[[data.Partition, int], data.Partition] = _keep

    def __call__(self, partition: str, seed: int) -> data.Partition:
        dataset = _read_once(self.dataset, self.root)
        return self.edit(PARTITIONS[partition](dataset, n=self.n, seed=seed), seed)


@cache
def _read_once(dataset: Callable[[Path | None], data.Dataset], root: Path | None) -> data.Dataset:
    return dataset(root)


def _scenario(name: str, source: _Source, **changes: Any) -> Scenario:
    """Return a scenario with the usual settings, which are those of the digits."""
    batch_size = changes.pop("batch_size", 8)
    every, on = changes.pop("every", 4), changes.pop("on", "test")
    usual: dict[str, Any] = {
        "model": partial(models.logistic_regression, 64),
        "rounds": 120,
        "partitions": ("2 shards",),
        "methods": ("D-SGD",),
    }
    return Scenario(
        name,
        source.n,
        source,
        method=lambda method, lr: METHODS[method](lr, batch_size),
        batch_size=batch_size,
        evaluation=Evaluation(every=every, on=on),
        **usual | changes,
    )


def default_scenarios(root: Path | None = None) -> Mapping[str, Scenario]:
    """Return the scenarios of the study by name; datasets are read from folders of `root`."""
    scenarios = (*_on_digits(root), *_on_mnist(root), *_of_networks(root))
    return {scenario.name: scenario for scenario in scenarios}


def _on_digits(root: Path | None) -> Iterator[Scenario]:
    few, some, many = (_Source(_digits, root, n) for n in (30, 60, 200))
    four = ("D-SGD", "momentum", "local steps", "gradient tracking")
    yield _scenario("digits 60", some, partitions=tuple(PARTITIONS), methods=four)
    yield _scenario("digits 60, other methods", some, methods=("D2", "push-sum"))
    yield _scenario("digits 60, Clique Averaging", some, methods=("Clique Averaging",))
    yield _scenario("digits 30", few)
    yield _scenario("digits 200", many, batch_size=4)


def _on_mnist(root: Path | None) -> Iterator[Scenario]:
    usual = {"model": partial(models.logistic_regression, 784)}
    some = {"batch_size": 128, "rounds": 80, "partitions": ("2 shards", "Dirichlet 0.1")}
    yield _scenario("MNIST 100", _Source(read_mnist, root, 100), **usual, **some)
    many = {"batch_size": 13, "rounds": 400, "every": 40, "seeds": (0,)}
    yield _scenario("MNIST 1000", _Source(read_mnist, root, 1000), **usual, **many)


def _of_networks(root: Path | None) -> Iterator[Scenario]:
    yield _scenario(
        "digits 16 x 16, DFedPGP",
        _Source(partial(_digits, enlarge=2), root, 30, _own_tests),
        model=partial(models.dpfl_cnn, (1, 16, 16)),
        batch_size=16,
        rounds=60,
        on="own_test",
        partitions=("Dirichlet 0.3",),
        methods=("DFedPGP",),
        seeds=(0,),
    )
    yield _scenario(
        "CIFAR-10 subset, GN-LeNet",
        _Source(read_cifar, root, 30),
        model=partial(models.gn_lenet, (3, 16, 16)),
        batch_size=16,
        rounds=150,
        every=15,
        methods=("momentum",),
        seeds=(0,),
    )
