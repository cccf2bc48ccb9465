"""Matching nodes of graphs by label."""

from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from topofl.topology.graph import Topology

__all__ = ["Missing", "ordered_as", "places_of"]


def ordered_as(graph: Topology, n: int, nodes: tuple[Hashable, ...], which: str) -> Topology:
    """Return the graph with its nodes in the order of these labels; empty labels are 0..n-1.

    A graph of another size is returned unchanged.

    Raises
    ------
    ValueError
        If the graph has other nodes; `which` names the graph in the message.
    """
    if graph.n != n or graph.nodes == nodes:
        return graph
    order = places_of(nodes, graph.nodes, n)
    if isinstance(order, Missing):
        raise ValueError(
            f"`graph` must be graphs of the same nodes, {which} has no node {order.label!r}, which "
            "the first one has; use the same labels in all graphs, or drop labels by "
            "dataclasses.replace(topology, nodes=())"
        )
    new_index = np.argsort(order)
    groups = tuple(tuple(int(new_index[i]) for i in group) for group in graph.groups)
    return replace(graph, adjacency=graph.adjacency[order][:, order], groups=groups, nodes=nodes)


class Missing(NamedTuple):
    """A label that belongs to no node."""

    label: Hashable


def places_of(
    wanted: tuple[Hashable, ...], nodes: tuple[Hashable, ...], n: int
) -> np.ndarray | Missing:
    """Return the nodes with the wanted labels, or the first missing one; empty means 0..n-1."""
    index_of = {label: i for i, label in enumerate(nodes or range(n))}
    found = [index_of.get(label, -1) for label in wanted or range(n)]
    return Missing((wanted or range(n))[found.index(-1)]) if -1 in found else np.array(found)
