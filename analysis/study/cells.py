"""The cells of a scenario, and one run of a cell."""

from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import topofl
from topofl import DivergenceError, data

from .configured import configured_scenarios
from .graphs import Graph, build_graph
from .scenarios import Scenario, default_scenarios

__all__ = ["Cell", "Source", "accuracies_of", "cells", "clients_of", "graph_of", "outcomes"]

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
        return topofl.topologies.random_regular(clients.n, 4, seed=cell.seed)
    return build_graph(source.scenario(cell.scenario).graphs[cell.graph], clients, cell.seed)


TUNING_GRAPH = "4-regular"
"""Graph on which the learning rate is chosen."""


def outcomes(cell: Cell, lr: float, source: Source) -> dict[str, Any]:
    """Return the outcomes of a run, ``{"missing": reason}`` or ``{"diverged": True}``."""
    scenario, clients = source.scenario(cell.scenario), clients_of(cell, source)
    graph = graph_of(cell, clients, source)
    if isinstance(graph, str):
        return {"missing": graph}
    try:
        history = topofl.run(
            scenario.method(cell.method, lr),
            model=scenario.model(),
            clients=clients,
            topology=graph,
            rounds=scenario.rounds,
            evaluation=scenario.evaluation,
            compute=topofl.Compute(device="cpu", on_disconnected="allow"),
            seed=cell.seed,
            progress=False,
        )
    except DivergenceError:
        return {"diverged": True}
    except topofl.TopologyError as error:
        return {"missing": str(error)}
    return _summary(history)


def accuracies_of(history: topofl.History) -> dict[str, float]:
    """Return mean accuracy over the first half and the last fifth, and that of the worst node."""
    accuracy, rounds = history["accuracy"], history["round"]
    means = np.nanmean(accuracy, axis=1)
    return {
        "learning phase": float(means[rounds <= rounds[-1] / 2].mean()),
        "final": float(means[rounds > 0.8 * rounds[-1]].mean()),
        "worst node": float(np.nanmin(accuracy[-1])),
    }


def _summary(history: topofl.History) -> dict[str, Any]:
    accuracy, rounds = history["accuracy"], history["round"]
    means = np.nanmean(accuracy, axis=1)
    sent = np.concatenate([[0.0], np.cumsum(history["bytes"])])[rounds]
    return {
        **accuracies_of(history),
        "spread": float(np.nanstd(accuracy[-1])),
        "consensus": float(history["consensus_distance"].mean()),
        "curve": [round(float(mean), 5) for mean in means],
        "rounds": rounds.tolist(),
        "bytes": sent.astype(int).tolist(),
    }
