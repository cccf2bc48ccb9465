"""Graphs that several tests of mixing matrices use."""

import networkx as nx

from topofl import mixing
from topofl.topology import Topology, from_edges

RULES = [
    mixing.metropolis_hastings,
    mixing.max_degree,
    mixing.uniform,
    mixing.within_groups,
    mixing.metropolis_or_uniform,
    mixing.own_weights,
    mixing.weighted_metropolis,
]
TAKEN = [[0.7, 0.1, 0.2], [0.5, 0.5, 0], [0, 0.6, 0.4]]


def directed_path() -> Topology:
    return from_edges([(0, 1), (1, 2)], 3, directed=True, name="path")


def shares() -> nx.DiGraph:
    """Return a graph whose edges, with those of nodes to themselves, sum to 1 into every node."""
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(1, 0, 0.1), (2, 0, 0.2), (0, 0, 0.7), (0, 1, 0.5), (1, 1, 0.5)])
    graph.add_weighted_edges_from([(1, 2, 0.6), (2, 2, 0.4)])
    return graph
