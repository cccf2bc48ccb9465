"""Checks that mixing weights are stochastic and fit a graph, with messages that name the fault."""

from collections.abc import Hashable

import numpy as np
import scipy.sparse as sparse

from topofl._support.text import node_name
from topofl.topology import Missing, Topology, places_of

__all__ = ["check_on_edges", "explain_sums"]


def explain_sums(weights: sparse.csr_array) -> str:
    """Return the message for weights of which neither all rows nor all columns sum to 1."""
    rows = weights.sum(axis=1)
    columns = weights.sum(axis=0)
    row = int(np.abs(rows - 1).argmax())
    column = int(np.abs(columns - 1).argmax())
    return (
        f"`weights` must have rows or columns that sum to 1; row {row} sums to {rows[row]:.6g} "
        f"and column {column} to {columns[column]:.6g}; divide each row by its sum, or use a "
        "rule such as metropolis_hastings(topology)"
    )


def check_on_edges(
    weights: sparse.csr_array, nodes: tuple[Hashable, ...], name: str, topology: Topology
) -> None:
    """Raise ``ValueError`` unless the weights are on edges of `topology` or the diagonal."""
    n = weights.shape[0]
    if n != topology.n:
        raise ValueError(
            f"`weights` must have one row per node: got n={n}, {topology.name} has n={topology.n}"
        )
    if nodes and nodes != topology.nodes:
        _check_labels(nodes, name, topology)
    receivers, senders = weights.nonzero()
    off_diagonal = receivers != senders
    receivers, senders = receivers[off_diagonal], senders[off_diagonal]
    off_edges = np.flatnonzero(~_are_edges(topology, senders, receivers))
    if len(off_edges):
        first = off_edges[np.lexsort((receivers[off_edges], senders[off_edges]))[0]]
        i, j = int(receivers[first]), int(senders[first])
        to, of = (node_name(topology.nodes, node) for node in (i, j))
        remedy = ""
        if _are_edges(topology, receivers, senders).all():
            remedy = (
                "; those of its transpose are on edges: "
                "from_weights(weights, topology, edges='u->v')"
            )
        raise ValueError(
            f"`weights` must be 0 off the edges of {topology.name}: node {to} gives "
            f"{weights[i, j]:g} to node {of}, but there is no edge {of} -> {to} ({len(off_edges)} "
            f"such weights){remedy}"
        )


def _are_edges(topology: Topology, senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Return for each pair whether the graph has an edge from the sender to the receiver."""
    if len(senders) == 0:
        return np.zeros(0, bool)
    return np.asarray(topology.adjacency[senders, receivers]).reshape(-1) != 0


def _check_labels(nodes: tuple[Hashable, ...], name: str, topology: Topology) -> None:
    """Raise ``ValueError`` unless rows have the labels of the graph; no labels mean 0..n-1."""
    rows = places_of(topology.nodes, nodes, topology.n)
    if isinstance(rows, Missing):
        raise ValueError(
            f"`weights` must have the nodes of {topology.name}, node {rows.label!r} is missing; "
            "use the same labels in both, or take rows as nodes 0..n-1: "
            "dataclasses.replace(weights, nodes=())"
        )
    moved = rows != np.arange(topology.n)
    if moved.any():
        i = int(moved.argmax())
        label = (topology.nodes or range(topology.n))[i]
        raise ValueError(
            f"`weights` must have the nodes of {topology.name} in the same order: node {label!r} "
            f"is row {rows[i]} of {name} and node {i} of the graph; create them with "
            "from_weights(graph, topology)"
        )
