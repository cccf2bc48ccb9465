"""Operations on graphs: unions, subgraphs, relabeling, removal of edges, and groups."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from topofl._support.check import check_indices, check_unmasked
from topofl._support.public import public
from topofl.topologies._generator import check_weights_unused, static_graph, with_some_edges
from topofl.topology import Topology, from_edges

__all__ = ["induced_subgraph", "relabel", "remove_edges", "union", "with_groups"]


@public
def union(*graphs: Any, name: str | None = None) -> Topology:
    """Return the union of graphs: all their edges with weight 1, and the groups of the first graph.

    Parameters
    ----------
    graphs
        One or more static graphs on the same nodes: Topologies or anything else
        :func:`topofl.as_topology` accepts. The union is directed if its edges are.
    name
        Name of the result; default: the call, for example ``"union(ring(n=8), star(n=8))"``.

    Raises
    ------
    TypeError
        If an argument is not a graph, or changes over time.
    ValueError
        If no graph is given; if graphs differ in the number or the labels of nodes; if one has its
        own mixing weights, which have no union.

    Warns
    -----
    UserWarning
        If a graph has unequal edge weights, which are ignored.

    Examples
    --------
    >>> from topofl import topologies
    >>> union(topologies.ring(8), topologies.star(8))
    Topology('union(ring(n=8), star(n=8))', n=8, edges=13, undirected)
    """
    members = [static_graph("graphs", graph) for graph in graphs]
    if not members:
        raise ValueError("`graphs` must be at least one graph, got none")
    for graph in members:
        _check_same_nodes(members[0], graph)
        check_weights_unused("graphs", graph)
    edges = np.concatenate([graph.edge_index for graph in members], axis=1).T
    name = name or f"union({', '.join(graph.name for graph in members)})"
    joined = from_edges(edges, members[0].n, name=name, directed=True, groups=members[0].groups)
    return replace(joined, nodes=members[0].nodes)


def _check_same_nodes(first: Topology, other: Topology) -> None:
    """Raise ``ValueError`` unless both graphs have the same nodes and labels."""
    if other.n != first.n:
        raise ValueError(
            f"`graphs` must have the same nodes: {first.name} has n={first.n}, {other.name} "
            f"n={other.n}"
        )
    if other.nodes != first.nodes:
        raise ValueError(
            f"`graphs` must have the same labels in the same order, those of {other.name} differ "
            f"from those of {first.name}; reorder its nodes with relabel, or drop labels: "
            "dataclasses.replace(graph, nodes=())"
        )


@public
def relabel(graph: Any, order: Sequence[int] | np.ndarray) -> Topology:
    """Return the graph with nodes renumbered: node i of the result is node ``order[i]``.

    Groups, node labels and weights are renumbered too; all spectra are unchanged.

    Parameters
    ----------
    graph
        A static graph: a Topology or anything else :func:`topofl.as_topology` accepts.
    order
        Permutation of 0..n-1.

    Raises
    ------
    TypeError
        If `graph` is not a graph, or changes over time; if `order` is not integers.
    ValueError
        If `order` is not a permutation.

    Examples
    --------
    >>> from topofl import topologies
    >>> relabel(topologies.path(3), [1, 0, 2]).out_degrees.tolist()
    [2, 1, 1]
    """
    graph = static_graph("graph", graph)
    order = _check_distinct("order", order, graph.n)
    if len(order) != graph.n:
        raise ValueError(
            f"`order` must contain each of the n={graph.n} nodes once, got {len(order)} nodes"
        )
    return _restricted(
        graph,
        order,
        tuple(graph.nodes[i] for i in order) if graph.nodes else (),
        "relabel",
        "order",
    )


@public
def induced_subgraph(graph: Any, nodes: Sequence[int] | np.ndarray) -> Topology:
    """Return the subgraph of some nodes: node i of the result is node ``nodes[i]`` of `graph`.

    The labels of nodes, or their numbers if there are no labels, are stored in ``.nodes``. Groups
    are restricted to the remaining nodes, and empty groups are dropped. Weights are preserved; if
    the graph has ``own_weights``, receivers add the weights of removed nodes to their self-weight.

    Parameters
    ----------
    graph
        A static graph: a Topology or anything else :func:`topofl.as_topology` accepts.
    nodes
        At least one node of 0..n-1, without repetitions.

    Raises
    ------
    TypeError
        If `graph` is not a graph, or changes over time; if `nodes` are not integers.
    ValueError
        If `nodes` is empty, or contains a node outside the graph or a node twice.

    Examples
    --------
    >>> from topofl import topologies
    >>> part = induced_subgraph(topologies.ring(6), [1, 2, 3])
    >>> part, part.nodes
    (Topology('induced_subgraph(ring(n=6), nodes[3])', n=3, edges=2, undirected), (1, 2, 3))
    """
    graph = static_graph("graph", graph)
    kept = _check_distinct("nodes", nodes, graph.n)
    if len(kept) == 0:
        raise ValueError("`nodes` must contain at least one node, got none")
    labels = tuple(graph.nodes[i] for i in kept) if graph.nodes else tuple(kept.tolist())
    return _restricted(
        graph,
        kept,
        () if labels == tuple(range(len(kept))) else labels,
        "induced_subgraph",
        "nodes",
    )


def _check_distinct(name: str, nodes: Any, n: int) -> np.ndarray:
    """Return `nodes` as a vector of distinct integers below n, or raise."""
    nodes = check_indices(name, nodes, n)
    repeated = np.flatnonzero(np.bincount(nodes, minlength=n) > 1)
    if len(repeated):
        raise ValueError(
            f"`{name}` must contain each node at most once, got node {repeated[0]} more than once"
        )
    return nodes


def _restricted(
    graph: Topology, kept: np.ndarray, labels: tuple, function: str, argument: str
) -> Topology:
    """Return the graph induced by the nodes `kept`, in this order."""
    new_index = np.full(graph.n, -1)
    new_index[kept] = np.arange(len(kept))
    groups = [[int(new_index[i]) for i in group if new_index[i] >= 0] for group in graph.groups]
    return replace(
        graph,
        adjacency=graph.adjacency[kept][:, kept],
        name=f"{function}({graph.name}, {argument}[{len(kept)}])",
        groups=tuple(tuple(group) for group in groups if group),
        nodes=labels,
    )


@public
def remove_edges(graph: Any, edges: Iterable[tuple[int, int]] | np.ndarray) -> Topology:
    """Return the graph without these edges; undirected edges are removed in both directions.

    Nodes, groups, labels and the weights of the other edges do not change; if the graph has
    ``own_weights``, receivers add the weights of removed edges to their self-weight.

    Parameters
    ----------
    graph
        A static graph: a Topology or anything else :func:`topofl.as_topology` accepts.
    edges
        Pairs (source, target), or an array of shape (E, 2). Repeated pairs count once.

    Raises
    ------
    TypeError
        If `graph` is not a graph, or changes over time; if `edges` are not integers.
    ValueError
        If a pair is not an edge of the graph.

    Examples
    --------
    >>> from topofl import topologies
    >>> remove_edges(topologies.ring(6), [(5, 0)]).diameter
    5.0
    """
    graph = static_graph("graph", graph)
    pairs = _check_edges(graph, edges)
    name = f"remove_edges({graph.name}, edges[{len(pairs)}])"
    if not graph.is_directed:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    kept = ~np.isin(_numbers(graph.edge_index.T, graph.n), _numbers(pairs, graph.n))
    return replace(with_some_edges(graph, kept), name=name)


def _check_edges(graph: Topology, edges: Iterable[tuple[int, int]] | np.ndarray) -> np.ndarray:
    """Return (E, 2) edges of the graph, or raise for the first pair that is not an edge."""
    check_unmasked("edges", edges)
    try:
        pairs = np.asarray(edges if isinstance(edges, np.ndarray) else list(edges))
    except ValueError as error:
        raise ValueError(f"`edges` must be pairs (source, target): {error}") from error
    pairs = np.zeros((0, 2), np.int64) if pairs.size == 0 else pairs
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"`edges` must be pairs (source, target), got shape {pairs.shape}")
    pairs = check_indices("edges", pairs.reshape(-1), graph.n).reshape(-1, 2)
    unknown = np.flatnonzero(
        ~np.isin(_numbers(pairs, graph.n), _numbers(graph.edge_index.T, graph.n))
    )
    if len(unknown):
        u, v = pairs[unknown[0]]
        raise ValueError(f"`edges` must be edges of {graph.name}, got ({u}, {v})")
    return pairs


def _numbers(pairs: np.ndarray, n: int) -> np.ndarray:
    """Return a unique number for each pair of nodes."""
    return pairs[:, 0] * n + pairs[:, 1]


@public
def with_groups(graph: Any, groups: Iterable[Iterable[int]]) -> Topology:
    """Return the graph with other groups.

    Parameters
    ----------
    graph
        A static graph: a Topology or anything else :func:`topofl.as_topology` accepts.
    groups
        Disjoint collections of nodes, which need not cover all nodes; empty to remove all groups.

    Raises
    ------
    TypeError
        If `graph` is not a graph, or changes over time; if nodes in `groups` are not integers.
    ValueError
        If groups overlap or contain a node outside the graph.

    Examples
    --------
    >>> from topofl import topologies
    >>> with_groups(topologies.ring(4), [(0, 1), (2, 3)]).groups
    ((0, 1), (2, 3))
    """
    graph = static_graph("graph", graph)
    members = [
        check_indices(f"groups[{k}]", list(group), graph.n).tolist()
        for k, group in enumerate(groups)
    ]
    name = f"with_groups({graph.name}, groups[{len(members)}])"
    return replace(graph, groups=tuple(tuple(group) for group in members), name=name)
