"""The cells of the study: datasets, partitions, methods and seeds, and one run of a cell."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import topofl
from topofl import DivergenceError, algorithms, data, models

from .graphs import build_graph

__all__ = ["METHODS", "SCENARIOS", "Cell", "Scenario", "cells", "clients_of", "outcomes"]

RATES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Learning rates that are tried."""

TUNING_SEED, TUNING_GRAPH = 100, "4-regular"
"""Seed and graph on which the learning rate is chosen; neither is reported with that seed."""

Method = Callable[[float, int], algorithms.Algorithm]

METHODS: Mapping[str, Method] = {
    "D-SGD": lambda lr, batch: algorithms.dsgd(lr, batch_size=batch),
    "momentum": lambda lr, batch: algorithms.dsgd(lr, batch_size=batch, momentum=0.9),
    "local steps": lambda lr, batch: algorithms.dsgd(lr, batch_size=batch, local_steps=5),
    "gradient tracking": lambda lr, batch: algorithms.dsgt(lr, batch_size=batch),
    "D2": lambda lr, batch: algorithms.d2(lr, batch_size=batch),
    "push-sum": lambda lr, batch: algorithms.osgp(lr, batch_size=batch),
}
"""Methods of the study: ``method(lr, batch_size)``."""


@dataclass(frozen=True)
class Scenario:
    """A dataset, a model, a number of nodes and a training budget.

    Parameters
    ----------
    name
        Label in tables.
    dataset, model
        Functions that return the dataset, given the folder of the data, and the model.
    n, batch_size, rounds, every
        Nodes, examples per minibatch, rounds, and rounds between evaluations.
    partitions, methods, seeds
        Names of :data:`PARTITIONS` and :data:`METHODS`, and the seeds that are reported.
    """

    name: str
    dataset: Callable[[Path | None], data.Dataset]
    model: Callable[[], nn.Module]
    n: int
    batch_size: int
    rounds: int
    every: int
    partitions: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (0, 1, 2)


PARTITIONS: Mapping[str, Callable[..., data.Partition]] = {
    "1 class": partial(data.shards, per_node=1),
    "2 shards": partial(data.shards, per_node=2),
    "Dirichlet 0.1": partial(data.dirichlet_per_client, alpha=0.1),
    "Dirichlet 0.3": partial(data.dirichlet_per_client, alpha=0.3),
    "Dirichlet 1": partial(data.dirichlet_per_client, alpha=1.0),
    "iid": data.iid,
}
"""Partitions of the study: ``partition(dataset, n=, seed=)``."""


def _digits(root: Path | None) -> data.Dataset:
    return data.digits()


def _mnist(root: Path | None) -> data.Dataset:
    if root is None:
        raise ValueError("`--data` must name a folder with MNIST for this scenario, got none")
    return data.mnist(root / "mnist")


def _scenario(name: str, n: int, **changes: Any) -> Scenario:
    usual: dict[str, Any] = {
        "dataset": _digits,
        "model": partial(models.logistic_regression, 64),
        "batch_size": 8,
        "rounds": 120,
        "every": 4,
        "partitions": ("2 shards",),
        "methods": ("D-SGD",),
    }
    return Scenario(name, n=n, **usual | changes)


_ON_MNIST = {"dataset": _mnist, "model": partial(models.logistic_regression, 784)}

SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _scenario(
            "digits 60",
            60,
            partitions=tuple(PARTITIONS),
            methods=("D-SGD", "momentum", "local steps", "gradient tracking"),
        ),
        _scenario("digits 60, other methods", 60, methods=("D2", "push-sum")),
        _scenario("digits 30", 30),
        _scenario("digits 200", 200, batch_size=4),
        _scenario(
            "MNIST 100",
            100,
            **_ON_MNIST,
            batch_size=128,
            rounds=80,
            partitions=("2 shards", "Dirichlet 0.1"),
        ),
        _scenario("MNIST 1000", 1000, **_ON_MNIST, batch_size=13, rounds=400, every=20, seeds=(0,)),
    )
}
"""Scenarios of the study by name."""


@dataclass(frozen=True)
class Cell:
    """A graph trained in a scenario: what one run needs."""

    scenario: str
    partition: str
    method: str
    seed: int
    graph: str


def cells(scenario: Scenario, graphs: tuple[str, ...]) -> list[Cell]:
    """Return all cells of a scenario."""
    return [
        Cell(scenario.name, partition, method, seed, graph)
        for partition in scenario.partitions
        for method in scenario.methods
        for seed in scenario.seeds
        for graph in graphs
    ]


@cache
def _dataset(scenario: str, root: Path | None) -> data.Dataset:
    return SCENARIOS[scenario].dataset(root)


def clients_of(cell: Cell, root: Path | None) -> data.Partition:
    """Return the partition of a cell."""
    dataset = _dataset(cell.scenario, root)
    return PARTITIONS[cell.partition](dataset, n=SCENARIOS[cell.scenario].n, seed=cell.seed)


def outcomes(cell: Cell, lr: float, root: Path | None) -> dict[str, Any]:
    """Return the outcomes of a run, ``{"missing": reason}`` or ``{"diverged": True}``."""
    scenario, clients = SCENARIOS[cell.scenario], clients_of(cell, root)
    graph = build_graph(cell.graph, clients, cell.seed)
    if isinstance(graph, str):
        return {"missing": graph}
    try:
        history = topofl.run(
            METHODS[cell.method](lr, scenario.batch_size),
            model=scenario.model(),
            clients=clients,
            topology=graph,
            rounds=scenario.rounds,
            evaluation=scenario.every,
            compute=topofl.Compute(device="cpu", on_disconnected="allow"),
            seed=cell.seed,
            progress=False,
        )
    except DivergenceError:
        return {"diverged": True}
    except topofl.TopologyError as error:
        return {"missing": str(error)}
    return _summary(history)


def _summary(history: topofl.History) -> dict[str, Any]:
    accuracy, rounds = history["accuracy"], history["round"]
    means = accuracy.mean(axis=1)
    early = rounds <= rounds[-1] / 2
    late = rounds > 0.8 * rounds[-1]
    sent = np.concatenate([[0.0], np.cumsum(history["bytes"])])[rounds]
    return {
        "learning phase": float(means[early].mean()),
        "final": float(means[late].mean()),
        "worst node": float(accuracy[-1].min()),
        "spread": float(accuracy[-1].std()),
        "consensus": float(history["consensus_distance"].mean()),
        "curve": [round(float(mean), 5) for mean in means],
        "rounds": rounds.tolist(),
        "bytes": sent.astype(int).tolist(),
    }
