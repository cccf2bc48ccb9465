"""The graphs of the studies: specs, what is declared, and graphs chosen by their messages."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from inspect import signature
from typing import Any

import numpy as np

from topofl import Topology, TopologyError, TopologySequence, data, topologies
from topofl.data import Partition
from topofl.toolkit import build_topology, parse_spec
from topofl.topology import from_edges

Graph = Topology | TopologySequence
Builder = Callable[[Partition, int], Graph]


@dataclass(frozen=True)
class StudyGraph:
    """A graph of the study.

    Parameters
    ----------
    name, family
        Label in tables and pages, and the family that is held out as a whole.
    build
        ``build(clients, seed)`` returns the graph.
    """

    name: str
    family: str
    build: Builder


def graph_of_spec(
    spec: str, clients: Partition, seed: int, *, absent: float = 0.0, epsilon: float | None = None
) -> Graph:
    """Return the graph of a spec; a random one is drawn with the seed of the cell.

    Parameters
    ----------
    spec, clients, seed
        What is built, for whose label counts, and with which seed.
    absent
        Share of nodes without edges in a round.
    epsilon
        Privacy budget of the label counts that the graph is built from; None: the true ones.
    """
    name, arguments = parse_spec(spec)
    known = topologies.GENERATORS.get(name)
    if known is not None and "seed" in signature(known.function).parameters:
        arguments = {"seed": seed, **arguments}
    counts = clients.label_counts
    if epsilon is not None:
        shares = data.private_label_histograms(counts, epsilon=epsilon, seed=seed, clip=True)
        counts = np.rint(shares * counts.sum(axis=1, keepdims=True)).astype(int)
    graph = build_topology(name, arguments, counts).value
    return topologies.participation(graph, fraction=1 - absent, seed=seed) if absent else graph


def messages_of(graph: Graph, rounds: int = 60) -> float:
    """Return the messages per round: directed edges, on average over the period of a sequence.

    `rounds` of a sequence without period are examined.
    """
    if isinstance(graph, Topology):
        return float(graph.edge_index.shape[1])
    period = graph.period or rounds
    return sum(graph.at(t).edge_index.shape[1] for t in range(period)) / period


def base_graph_near(messages: float, clients: Partition, seed: int) -> Graph:
    """Return the base graph whose messages per round are nearest to a number."""
    largest = min(clients.n - 1, int(2 * messages) // clients.n)
    graphs = [topologies.base_graph(clients.n, k) for k in range(1, largest + 1)]
    return min(graphs, key=lambda graph: abs(messages_of(graph) - messages))


def _with_messages(messages: float, clients: Partition, seed: int) -> Graph:
    return base_graph_near(messages * clients.n, clients, seed)


def _of_mean_degree(mean_degree: float, clients: Partition, seed: int) -> Graph:
    if mean_degree == 0:
        return from_edges([], n=clients.n)
    p = min(1.0, mean_degree / (clients.n - 1))
    return topologies.erdos_renyi(clients.n, p, seed=seed)


DECLARED = tomllib.loads((files(__package__ or "") / "scenarios.toml").read_text("utf-8"))
"""What ``scenarios.toml`` declares: graphs, methods, partitions and scenarios."""


def _builder(spec: str | Mapping[str, float], changes: Mapping[str, Any]) -> Builder:
    if isinstance(spec, str):
        return partial(graph_of_spec, spec, **changes)
    if "messages" in spec:
        return partial(_with_messages, spec["messages"])
    return partial(_of_mean_degree, spec["mean_degree"])


def declared_graphs(families: Mapping[str, Any], **changes: Any) -> dict[str, StudyGraph]:
    """Return declared graphs by name; `changes` are options of :func:`graph_of_spec`."""
    return {
        name: StudyGraph(name, family, _builder(spec, changes))
        for family, members in families.items()
        for name, spec in members.items()
    }


GRAPHS: Mapping[str, StudyGraph] = declared_graphs(DECLARED["graphs"])
"""All graphs of the study by name; some do not exist for every number of nodes."""


def build_graph(graph: StudyGraph, clients: Partition, seed: int) -> Graph | str:
    """Return the graph, or the reason why there is none for these clients."""
    try:
        return graph.build(clients, seed)
    except (ValueError, TopologyError) as error:
        return str(error)
