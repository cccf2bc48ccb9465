"""The cells of a scenario, and what a run of a cell needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from topofl import Compute, TopologyError, data, topologies
from topofl.runs.run import digest_of

from .configured import configured_scenarios
from .graphs import Graph, build_graph
from .scenarios import Scenario, default_scenarios

__all__ = ["Cell", "Source", "about", "arguments", "cells", "clients_of", "graph_of"]

TUNING_SEED = 100
"""Seed with which the learning rate is chosen, on the random 4-regular graph; not reported."""


@dataclass(frozen=True)
class Source:
    """Where the scenarios come from; small, since it is sent to every process.

    Parameters
    ----------
    root
        Folder of the data.
    config
        Configuration file of a study of one's own; None: the scenarios of this study.
    """

    root: Path | None = None
    config: Path | None = None

    def scenario(self, name: str) -> Scenario:
        """Return the scenario of a name."""
        return scenarios_of(self)[name]


@cache
def scenarios_of(source: Source) -> dict[str, Scenario]:
    """Return the scenarios of a source by name."""
    if source.config is not None:
        return dict(configured_scenarios(source.config))
    return dict(default_scenarios(source.root))


@dataclass(frozen=True)
class Cell:
    """A graph trained in a scenario: what one run needs."""

    scenario: str
    partition: str
    method: str
    seed: int
    graph: str


def cells(scenario: Scenario) -> list[Cell]:
    """Return all cells of a scenario."""
    return [
        Cell(scenario.name, partition, method, seed, graph)
        for partition in scenario.partitions
        for method in scenario.methods
        for seed in scenario.seeds
        for graph in scenario.graphs
    ]


def clients_of(cell: Cell, source: Source) -> data.Partition:
    """Return the partition of a cell."""
    return _clients(source, cell.scenario, cell.partition, cell.seed)


@lru_cache(maxsize=2)  # the graphs of a cell are computed one after the other
def _clients(source: Source, scenario: str, partition: str, seed: int) -> data.Partition:
    return source.scenario(scenario).clients(partition, seed)


def graph_of(cell: Cell, clients: data.Partition, source: Source) -> Graph | str:
    """Return the graph of a cell, or the reason why there is none for these clients."""
    if cell.graph == TUNING_GRAPH:
        return topologies.random_regular(clients.n, 4, seed=cell.seed)
    return build_graph(source.scenario(cell.scenario).graphs[cell.graph], clients, cell.seed)


TUNING_GRAPH = "4-regular"
"""Graph on which the learning rate is chosen."""


def arguments(source: Source, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of :func:`topofl.run` for a cell and a learning rate.

    Raises
    ------
    TopologyError
        If there is no such graph for these clients.
    """
    cell: Cell = point["cell"]
    scenario, clients = source.scenario(cell.scenario), clients_of(cell, source)
    graph = graph_of(cell, clients, source)
    if isinstance(graph, str):
        raise TopologyError(graph)
    return {
        "algorithm": scenario.method(cell.method, point["lr"]),
        "model": scenario.model(),
        "clients": clients,
        "topology": graph,
        "rounds": scenario.rounds,
        "evaluation": scenario.evaluation,
        "compute": Compute(device="cpu", on_disconnected="allow"),
        "seed": cell.seed,
    }


@cache
def about(source: Source, name: str) -> list[Any]:
    """Return what determines the results of a scenario apart from the cell, as JSON values."""
    scenario = source.scenario(name)
    dataset = scenario.clients(scenario.partitions[0], TUNING_SEED).dataset
    numbers = [scenario.n, scenario.batch_size, scenario.rounds, scenario.evaluation.every]
    return [*numbers, scenario.evaluation.on, scenario.settings, digest_of(dataset, splits=False)]
