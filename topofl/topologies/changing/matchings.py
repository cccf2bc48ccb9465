"""Decomposition of a graph into matchings, one per round."""

from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from topofl.topologies._common import call_name, check_weights_unused, periodic, static_graph
from topofl.topologies._generator import generator
from topofl.topology import Topology, TopologyError, TopologySequence, from_edges

__all__ = ["matchings"]


@generator(family="derived", examples=["matchings,base=(torus:16)"])
def matchings(base: Any) -> TopologySequence:
    """Return a periodic sequence of matchings that together are the edges of `base`.

    In each round every node has at most one neighbor.

    Each edge occurs in exactly one round of the period (a proper edge coloring); groups and node
    labels are preserved. All edges have weight 1. The period is the maximum degree for bipartite
    graphs (König 1916), complete graphs of even order, and circulant graphs whose offsets o all
    have ``n / gcd(n, o)`` even (for example the exponential graph of 2^L nodes); otherwise it is at
    most one more (Vizing's bound, by the algorithm of Misra and Gries). A graph without edges gives
    one round without edges.

    Parameters
    ----------
    base
        An undirected graph: a Topology, or anything else that :func:`topofl.as_topology` accepts.
        Complete graphs and these circulant graphs are colored in closed form, others edge by edge,
        which takes seconds for 100,000 edges.

    Raises
    ------
    TypeError
        If `base` is not a graph, or changes over time.
    TopologyError
        If `base` is directed.
    ValueError
        If `base` has its own mixing weights, which do not fit its matchings.

    Warns
    -----
    UserWarning
        If the edges of `base` have unequal weights, which are ignored.

    References
    ----------
    Wang, Sahu, Yang, Joshi and Kar, "MATCHA" (2019), for training over matchings (there drawn at
    random). Misra and Gries, "A constructive proof of Vizing's theorem" (1992).

    Examples
    --------
    >>> from topofl.topologies import ring
    >>> rounds = matchings(ring(6))
    >>> edges = [rounds.at(t).edge_index for t in range(rounds.period)]
    >>> [pairs[:, pairs[0] % 2 == 0].T.tolist() for pairs in edges]
    [[[0, 1], [2, 3], [4, 5]], [[0, 5], [2, 1], [4, 3]]]
    """
    graph = _undirected(base)
    edges = graph.edge_index.T[graph.edge_index[0] < graph.edge_index[1]]
    colors = np.unique(_edge_colors(graph, edges), return_inverse=True)[1]
    name = call_name("matchings", graph.name)
    graphs = (
        replace(
            from_edges(edges[colors == t], graph.n, name=f"{name}.at({t})", groups=graph.groups),
            nodes=graph.nodes,
        )
        for t in range(colors.max(initial=0) + 1)
    )
    return periodic(graph.n, graphs, name)


def _undirected(base: Any) -> Topology:
    """Return the undirected graph, or raise."""
    graph = static_graph("base", base)
    if graph.is_directed:
        raise TopologyError(
            f"`base` must be undirected, {graph.name} is directed; add the reverse edges"
        )
    check_weights_unused("base", graph)
    return graph


def _edge_colors(graph: Topology, edges: np.ndarray) -> np.ndarray:
    """Return a color for each edge, an integer that differs between edges that share a node."""
    n = graph.n
    first, second = edges.T
    is_complete = 2 * len(edges) == n * (n - 1)
    if is_complete:  # a round robin, with node n - 1 in the center if n is even
        around = n - 1 + n % 2
        return np.where(second < around, first + second, 2 * first) % around
    forward = (second - first) % n
    backward = (first - second) % n
    is_circulant = len(np.unique([forward, backward])) * n == 2 * len(edges)
    if is_circulant:
        offsets = np.minimum(forward, backward)
        common = np.gcd(n, offsets)
        if (n // common % 2 == 0).all():  # cycles of even length, with alternating colors
            return 2 * offsets + np.where(forward == offsets, first, second) // common % 2
    return _colors_by_chains(edges, n, graph.out_degrees.max(), fans=not _is_bipartite(graph))


def _is_bipartite(graph: Topology) -> bool:
    """Return whether the graph is bipartite: its double cover has twice as many components."""
    cover = sparse.block_array([[None, graph.adjacency], [graph.adjacency, None]])
    return connected_components(cover)[0] == 2 * connected_components(graph.adjacency)[0]


Mates = list[dict[int, int]]
"""For each node, its neighbor along the edge of each color."""


def _colors_by_chains(edges: np.ndarray, n: int, degree: int, *, fans: bool) -> np.ndarray:
    """Return an edge coloring with `degree` colors, or one more with `fans` if not bipartite.

    Each edge takes a color that is free at both ends. If there is none, colors around `u` are
    shifted along a fan (a single node if the graph is bipartite), and two colors are swapped along
    a path from `u`, which frees a color.
    """
    limit = int(degree) + fans
    mates: Mates = [{} for _ in range(n)]
    for u, v in edges.tolist():
        color = _free(mates, limit, u, v)
        if color == limit:
            fan = _fan(mates, u, v) if fans else [v]
            free_at_u = _free(mates, limit, u)
            color = _free(mates, limit, fan[-1])
            _swap_path(mates, u, color, free_at_u)
            v = _rotate(mates, u, fan, color)
        mates[u][color], mates[v][color] = v, u
    color_of = {(u, v): color for u, mate in enumerate(mates) for color, v in mate.items()}
    return np.array([color_of[u, v] for u, v in edges.tolist()], dtype=np.int64)


def _free(mates: Mates, limit: int, *nodes: int) -> int:
    """Return a color below `limit` that is free at all these nodes, or `limit` if there is none."""
    start = max(len(mates[node]) for node in nodes)
    for color in chain(range(start, limit), range(start)):
        if all(color not in mates[node] for node in nodes):
            return color
    return limit


def _fan(mates: Mates, u: int, v: int) -> list[int]:
    """Return a maximal fan of u from v: each edge has a color that is free at the previous node."""
    fan = [v]
    remaining = dict(mates[u])
    while following := next(
        ((c, w) for c, w in remaining.items() if c not in mates[fan[-1]]), None
    ):
        fan.append(remaining.pop(following[0]))
    return fan


def _swap_path(mates: Mates, u: int, color: int, other: int) -> None:
    """Swap two colors along their path that starts at u with `color`, so that it is free at u."""
    path = [u]
    following = color
    while following in mates[path[-1]]:
        path.append(mates[path[-1]][following])
        following = other if following == color else color
    for node in path:
        mate = mates[node]
        swapped = {color: mate.pop(other, None), other: mate.pop(color, None)}
        mate.update({c: w for c, w in swapped.items() if w is not None})


def _rotate(mates: Mates, u: int, fan: list[int], color: int) -> int:
    """Shift colors along the fan to its first node where `color` is free, and return that node."""
    color_to = {w: c for c, w in mates[u].items()}
    for here, following in pairwise(fan):
        if color not in mates[here]:
            return here
        shifted = color_to[following]
        del mates[following][shifted]
        mates[u][shifted], mates[here][shifted] = here, u
    return fan[-1]
