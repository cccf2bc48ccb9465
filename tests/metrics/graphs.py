"""Graphs and weights that several tests of metrics use."""

from functools import partial

import networkx as nx
import numpy as np

from topofl import mixing
from topofl.topology import Topology, TopologySequence, as_topology, from_edges

push = partial(mixing.uniform, direction="push")


def ring(n: int) -> Topology:
    return as_topology(nx.cycle_graph(n), name=f"ring({n})")


def one_peer(n: int) -> TopologySequence:
    """Return the one-peer exponential graph: in round t, node j sends to j + 2^t."""
    rounds = range((n - 1).bit_length())
    return as_topology(
        [from_edges([(j, (j + 2**t) % n) for j in range(n)], n, directed=True) for t in rounds]
    )


def exponential(n: int) -> Topology:
    return as_topology(nx.circulant_graph(n, [2**e for e in range((n - 1).bit_length())]))


def dcliques(n: int, size: int = 10) -> Topology:
    """Return cliques of consecutive nodes, each pair connected at its least loaded nodes."""
    edges = [(i, j) for i in range(n) for j in range(i + 1, n) if i // size == j // size]
    loads = np.zeros(n, dtype=int)
    for a in range(n // size):
        for b in range(a + 1, n // size):
            ends = [c * size + int(loads[c * size : (c + 1) * size].argmin()) for c in (a, b)]
            loads[ends] += 1
            edges.append((ends[0], ends[1]))
    return from_edges(edges, n)


def relabelled(graph: Topology, seed: int = 0) -> Topology:
    """Return the graph with its nodes in random order, so that it is no longer circulant."""
    order = np.random.default_rng(seed).permutation(graph.n)
    return from_edges(order[graph.edge_index.T], graph.n, directed=graph.is_directed)


def irregular_digraph() -> Topology:
    """Return a strongly connected graph of unequal degrees.

    Its uniform weights are row- or column-stochastic, but not doubly stochastic.
    """
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3), (0, 2), (4, 1)]
    return from_edges(edges, 6, directed=True)


def triangles(n: int) -> Topology:
    """Return a chain of complete triangles, each of which sends to the next."""
    first = np.arange(0, n, 3)
    inside = [
        np.stack([first + i, first + j], axis=1) for i in range(3) for j in range(3) if i != j
    ]
    between = np.stack([first[:-1] + 2, first[1:]], axis=1)
    return from_edges(np.concatenate([*inside, between]), n, directed=True)
