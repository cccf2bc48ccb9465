"""Graphs, models and hardware that are compared, and what is computed for each graph."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from topofl import Topology, TopologySequence, metrics, topologies
from topofl.clocks import lognormal

__all__ = [
    "FAMILIES",
    "HARDWARE",
    "MODELS",
    "Model",
    "cost_of",
    "label_counts",
    "regional",
    "stragglers",
]

SEED = 0
DESIGNED_NODES = 1000
"""Most nodes for which a topology is designed, since the search takes long above."""

COMPLETE_NODES = 5000
"""Most nodes of a complete graph, which has 25 million links."""


@dataclass(frozen=True)
class Model:
    """A message and a round of local work.

    Parameters
    ----------
    label
        Label in tables.
    n_parameters
        Numbers per message, 4 bytes each.
    compute
        Seconds of local work per round: an assumption.
    """

    label: str
    n_parameters: int
    compute: float


MODELS = (
    Model("logistic regression", 7850, 0.005),
    Model("GN-LeNet", 85_354, 0.1),
    Model("ResNet-18-GN", 11_173_962, 2.0),
)
"""Sizes are those of ``topofl.models``; seconds are assumed, for a few steps on a small CPU."""

HARDWARE: Mapping[str, Mapping[str, Any]] = {
    "cluster": {"latency": 5e-5, "bandwidth": 1.25e9},
    "cloud regions": {"latency": 0.1, "bandwidth": 1.25e8},
    "homes": {"latency": 0.02, "bandwidth": 1.25e6},
}
"""Latency in seconds, and bandwidth in bytes per second: 10 Gbit/s, 1 Gbit/s, 10 Mbit/s."""


def label_counts(n: int) -> np.ndarray:
    """Return label counts (n, 10) of nodes with two random shards of ten examples each."""
    rng = np.random.default_rng(SEED)
    labels = rng.permutation(np.arange(2 * n) % 10).reshape(n, 2)
    counts = np.zeros((n, 10), dtype=np.int64)
    for column in labels.T:
        counts[np.arange(n), column] += 10
    return counts


Graph = Topology | TopologySequence

FAMILIES: Mapping[str, Callable[[int], Graph]] = {
    "ring": topologies.ring,
    "one-peer exponential": topologies.one_peer_exponential,
    "random 6-regular": lambda n: topologies.random_regular(n, k=6, seed=SEED),
    "exponential": lambda n: topologies.exponential(n, directed=True),
    "D-Cliques of 10": lambda n: topologies.dcliques(
        label_counts(n), clique_size=10, inter="small_world", seed=SEED
    ),
    "designed, degree 6": lambda n: _designed(n),
    "fully connected": lambda n: _complete(n),
    "star": topologies.star,
}
"""Functions from a number of nodes to a graph; a ValueError says why there is none."""


def _complete(n: int) -> Graph:
    if n > COMPLETE_NODES:
        raise ValueError(
            f"n^2 messages above {COMPLETE_NODES:,} nodes; a star keeps its busiest link as busy"
        )
    return topologies.fully_connected(n)


def _designed(n: int) -> Graph:
    if n > DESIGNED_NODES:
        raise ValueError(f"the search is slow above {DESIGNED_NODES:,} nodes")
    return topologies.designed(label_counts(n), degree=6, seed=SEED)


def cost_of(family: str, n: int) -> dict[str, Any]:
    """Return a record: seconds of all models and hardware, or the reason why there are none."""
    record: dict[str, Any] = {"family": family, "n": n}
    try:
        graph = FAMILIES[family](n)
    except ValueError as error:
        return record | {"reason": str(error)}
    cells = []
    for model in MODELS:
        for name, links in HARDWARE.items():
            hardware = metrics.Hardware(compute=model.compute, **links)
            found = metrics.round_time(graph, hardware=hardware, n_parameters=model.n_parameters)
            cells.append(
                {
                    "model": model.label,
                    "hardware": name,
                    "seconds": found.seconds,
                    "compute": found.compute,
                    "latency": found.latency,
                    "transfer": found.transfer,
                    "bound": found.bound,
                }
            )
    unit = metrics.Hardware(compute=None, bandwidth=4.0)
    degree = metrics.round_time(graph, hardware=unit, n_parameters=1).seconds
    spread = metrics.neighborhood_heterogeneity(graph, label_counts(n), hops=10)
    return record | {"busiest": degree, "h10": spread, "cells": cells}


def stragglers(family: str, n: int, sigma: float, rounds: int = 100) -> dict[str, Any]:
    """Return seconds per round of random steps of mean 1, without messages, for both waits."""
    graph = FAMILIES[family](n)
    hardware = metrics.Hardware(compute=lognormal(1.0, sigma=sigma))
    options: dict[str, Any] = {"hardware": hardware, "n_parameters": 1}
    near = metrics.round_time(graph, waiting="neighbors", rounds=rounds, seed=SEED, **options)
    return {
        "family": family,
        "n": n,
        "sigma": sigma,
        "all": metrics.round_time(graph, **options).seconds,
        "neighbors": float(near.per_round[rounds // 5 :].mean()),
    }


def regional(n: int = 100, within: float = 5e-4) -> list[dict[str, Any]]:
    """Return seconds per round of nodes in ten Azure regions, by graph, order and wait."""
    blocks = np.repeat(np.arange(10), n // 10)
    shuffled = np.random.default_rng(SEED).permutation(blocks)
    graphs = {name: FAMILIES[name](n) for name in ("ring", "random 6-regular", "exponential")}
    graphs |= {name: FAMILIES[name](n) for name in ("D-Cliques of 10", "fully connected", "star")}
    records = []
    for family, graph in graphs.items():
        for order, places in (("by region", blocks), ("shuffled", shuffled)):
            regions = [metrics.AZURE_REGIONS[place] for place in places]
            latency = metrics.azure_latency(regions, within=within)
            hardware = metrics.Hardware(compute=0.005, latency=latency, bandwidth=1.25e8)
            record: dict[str, Any] = {"family": family, "order": order}
            for waiting in ("all", "neighbors"):
                found = metrics.round_time(
                    graph, hardware=hardware, n_parameters=7850, waiting=waiting
                )
                record[waiting] = found.seconds
            records.append(record)
    return records
