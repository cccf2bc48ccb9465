"""Checks of the parts of a Topology: adjacency matrix, groups, labels and mixing weights."""

from collections.abc import Hashable, Iterable
from operator import index
from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import TOLERANCE, as_csr, check_sequence, shown
from topofl._support.text import node_name

__all__ = [
    "as_groups",
    "as_labels",
    "check_groups",
    "check_no_loops",
    "check_received_shares",
    "frozen_adjacency",
    "readonly",
]


def frozen_adjacency(matrix: Any) -> sparse.csr_array:
    """Return a validated, canonical, read-only copy of an adjacency matrix."""
    adjacency = as_csr("adjacency", matrix)
    for array in (adjacency.data, adjacency.indices, adjacency.indptr):
        readonly(array)
    return adjacency


def check_no_loops(adjacency: sparse.csr_array, nodes: tuple[Hashable, ...]) -> None:
    """Raise ``ValueError`` if an edge leads from a node to itself."""
    loops = np.flatnonzero(adjacency.diagonal())
    if len(loops):
        name = node_name(nodes, int(loops[0]))
        raise ValueError(
            f"`adjacency` must have no self-loops, got one at node {name} ({len(loops)} in "
            "all); every node averages its own model anyway, so remove them: as_topology(graph, "
            "drop_self_loops=True)"
        )


def as_labels(nodes: Any, n: int) -> tuple[Hashable, ...]:
    """Return node labels as a tuple; raise unless empty or n distinct hashable labels."""
    labels = tuple(check_sequence("nodes", nodes, "labels"))
    if labels and (len(labels) != n or len(set(_hashable(labels))) != n):
        raise ValueError(f"`nodes` must have one distinct label for each of the n={n} nodes")
    return labels


def _hashable(nodes: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    """Return the labels, or raise ``TypeError`` if one is not hashable."""
    for label in nodes:
        try:
            hash(label)
        except TypeError as error:
            raise TypeError(
                f"`nodes` must be hashable labels, for example strings, got {shown(label)}"
            ) from error
    return nodes


def as_groups(groups: Any) -> tuple[tuple[int, ...], ...]:
    """Return groups as tuples of integers, or raise ``TypeError``."""
    return tuple(map(_as_group, check_sequence("groups", groups, "sequences of nodes")))


def _as_group(group: Any) -> tuple[int, ...]:
    """Return one group as a tuple of integers, or raise ``TypeError``."""
    if not isinstance(group, Iterable):
        raise TypeError(
            f"`groups` must hold sequences of nodes, got {shown(group)}; as in [(0, 1), (2, 3)]"
        )
    try:
        return tuple(index(i) for i in group)
    except (TypeError, ValueError, RuntimeError) as error:  # tensors raise RuntimeError
        raise TypeError(
            f"`groups` must hold sequences of nodes, which are integers, got {shown(group)}; as in "
            "[(0, 1), (2, 3)]"
        ) from error


def check_groups(groups: tuple[tuple[int, ...], ...], n: int) -> None:
    """Raise ``ValueError`` unless groups are disjoint and contain nodes of 0..n-1 only."""
    members = [i for group in groups for i in group]
    if len(set(members)) != len(members):
        raise ValueError("`groups` must be disjoint, got a node in two of them")
    outside = [i for i in members if not 0 <= i < n]
    if outside:
        raise ValueError(f"`groups` must hold nodes 0..{n - 1}, got {outside[0]}")


def check_received_shares(adjacency: sparse.csr_array, nodes: tuple[Hashable, ...]) -> None:
    """Raise ``ValueError`` if the weights of the edges into a node sum to more than 1."""
    received = np.asarray(adjacency.sum(axis=0))
    if received.max() > 1 + TOLERANCE:
        node = int(received.argmax())
        reverse = ""
        if (adjacency.data == 1).all():
            reverse = (
                "; all weights are 1, as of edges without weights: networkx stores them as the "
                "attribute 'weight', PyTorch Geometric as edge_weight"
            )
        elif adjacency.sum(axis=1).max() <= 1 + TOLERANCE:
            reverse = (
                "; the weights out of each node sum to at most 1, so if the edge (u, v) is the "
                "weight that u gives to v, reverse it: graph.reverse() of networkx, matrix.T"
            )
        raise ValueError(
            "`adjacency` with `own_weights` must have weights that sum to at most 1 into each "
            f"node, but those into node {node_name(nodes, node)} sum to {received[node]:.6g}; "
            "divide the weights, or leave `own_weights` False and use a rule of topofl.mixing, "
            f"such as weighted_metropolis, which scales them{reverse}"
        )


def readonly(array: np.ndarray) -> np.ndarray:
    """Make an array read-only and return it."""
    array.setflags(write=False)
    return array
