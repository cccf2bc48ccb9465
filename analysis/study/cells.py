"""The cells of a scenario, and one run of a cell."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import topofl
from topofl import DivergenceError, data

from .configured import configured_scenarios
from .graphs import Graph, build_graph
from .scenarios import Scenario, default_scenarios

__all__ = ["Cell", "Source", "cells", "graph_of", "outcomes"]

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
    return source.scenario(cell.scenario).clients(cell.partition, cell.seed)


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


def _summary(history: topofl.History) -> dict[str, Any]:
    accuracy, rounds = history["accuracy"], history["round"]
    means = np.nanmean(accuracy, axis=1)
    early = rounds <= rounds[-1] / 2
    late = rounds > 0.8 * rounds[-1]
    sent = np.concatenate([[0.0], np.cumsum(history["bytes"])])[rounds]
    return {
        "learning phase": float(means[early].mean()),
        "final": float(means[late].mean()),
        "worst node": float(np.nanmin(accuracy[-1])),
        "spread": float(np.nanstd(accuracy[-1])),
        "consensus": float(history["consensus_distance"].mean()),
        "curve": [round(float(mean), 5) for mean in means],
        "rounds": rounds.tolist(),
        "bytes": sent.astype(int).tolist(),
    }
