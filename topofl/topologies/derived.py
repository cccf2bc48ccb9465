"""Graphs made of others: matchings, failing links, operations."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from topofl._support.check import check_indices, check_probability
from topofl._support.public import public
from topofl._support.seeding import random_keys, torch_seed
from topofl.topologies._generator import (
    check_weights_unused,
    generator,
    pair_numbers,
    periodic,
    with_some_edges,
    without_edges,
)
from topofl.topology import (
    Topology,
    TopologyError,
    TopologySequence,
    as_pairs,
    from_edges,
    graph_of,
    restricted,
    static_graph,
)

__all__ = [
    "induced_subgraph",
    "link_failures",
    "matchings",
    "relabel",
    "remove_edges",
    "union",
    "with_groups",
]


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
    graph = static_graph("base", base)
    if graph.is_directed:
        raise TopologyError(
            f"`base` must be undirected, {graph.name} is directed; add the reverse edges"
        )
    check_weights_unused("base", graph)
    edges = graph.edge_index.T[graph.edge_index[0] < graph.edge_index[1]]
    colors = np.unique(_edge_colors(graph, edges), return_inverse=True)[1]
    rounds = periodic(
        [
            replace(from_edges(edges[colors == t], graph.n, groups=graph.groups), nodes=graph.nodes)
            for t in range(colors.max(initial=0) + 1)
        ]
    )
    return replace(rounds, name=graph.name)


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


@generator(family="derived", examples=["link_failures,base=(torus:16),fail=0.3,recover=0.5,seed=0"])
def link_failures(base: Any, *, fail: float, recover: float, seed: int) -> TopologySequence:
    """Return `base` with unreliable links that fail and recover independently, in bursts.

    Each link is a two-state Markov chain (Gilbert-Elliott): from one round to the next, a link that
    is up fails with probability `fail`, and a link that is down recovers with probability
    `recover`. Chains are independent and stationary: a link is up in a fraction ``recover / (fail +
    recover)`` of all rounds, and an outage lasts ``1 / recover`` rounds on average. With ``fail +
    recover = 1`` rounds are independent; with ``fail = 0`` links never fail.

    A link is an undirected edge, with both of its directions, or a directed edge; opposite directed
    edges fail independently. If `base` changes, links are those of the graph of a round, and they
    fail and recover also in rounds that do not use them.

    Round t is a pure function of (`seed`, t), without simulating all rounds before it: each link is
    traced back to the last round whose outcome did not depend on the previous state. This takes
    about ``1 / min(fail + recover, 2 - fail - recover)`` draws per link, at most t.

    Parameters
    ----------
    base
        A Topology, a TopologySequence (round t of which is used), or anything else
        :func:`topofl.as_topology` accepts. Edge weights, groups and node labels are preserved; if a
        graph has ``own_weights``, receivers add the weight of a failed link to their self-weight.
    fail, recover
        Probabilities in [0, 1].
    seed
        Non-negative integer; not a generator, since round t must not depend on the rounds drawn
        before it.

    Raises
    ------
    ValueError, TypeError
        If `base` is not a graph; if another argument is out of range or not an integer.

    References
    ----------
    Gilbert, "Capacity of a burst-noise channel" (1960); Elliott, "Estimates of error rates for
    codes on burst-noise channels" (1963).

    Examples
    --------
    >>> from topofl import topologies
    >>> graphs = link_failures(topologies.ring(1000), fail=0.1, recover=0.3, seed=0)  # 3 of 4 up
    >>> graphs.at(0).n_edges, graphs.at(1).n_edges
    (753, 745)
    """
    base = graph_of("base", base)
    fail = check_probability("fail", fail)
    recover = check_probability("recover", recover)
    up = partial(_links_up, fail=fail, recover=recover, key=torch_seed(seed, "links"))
    known = _links_of(base) if isinstance(base, Topology) else None
    return TopologySequence(base.n, partial(_with_links_up, base, known, up), base.name)


def _links_of(graph: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Return the links of a graph by number, whatever else it has, and the link of each edge."""
    pairs = graph.edge_index if graph.is_directed else np.sort(graph.edge_index, axis=0)
    return np.unique(pairs[0] * graph.n + pairs[1], return_inverse=True)


def _with_links_up(
    base: Topology | TopologySequence,
    known: tuple[np.ndarray, np.ndarray] | None,
    up: Callable[[np.ndarray, int], np.ndarray],
    t: int,
) -> Topology:
    """Return round t of `base` with the edges of links that are up; its links, if `known`."""
    graph = base.at(t)
    links, link_of_edge = known or _links_of(graph)
    return with_some_edges(graph, up(links, t)[link_of_edge])


def _uniforms(links: np.ndarray, t: int, key: int) -> np.ndarray:
    """Return a number in [0, 1) for each link, a function of (link, t, key) only."""
    return (random_keys(key, np.array([t]), links)[0] >> np.uint64(11)) * 2.0**-53


def _links_up(links: np.ndarray, t: int, *, fail: float, recover: float, key: int) -> np.ndarray:
    """Return which links are up in round t, tracing each link back in time.

    In round s a link that was up stays up if ``u_s >= fail``, and a link that was down recovers if
    ``u_s >= 1 - recover``. If u_s is below or above both thresholds, the previous state does not
    matter; in between, the state stays the same or flips.
    """
    if fail == 0 or recover == 0:
        return np.full(len(links), fail == 0)
    if fail == recover == 1:  # no round is decisive: states alternate from round 0 on
        return (_uniforms(links, 0, key) >= 0.5) ^ bool(t % 2)
    low, high = sorted((fail, 1 - recover))
    up = np.zeros(len(links), bool)
    flipped = np.zeros(len(links), bool)
    unknown = np.arange(len(links))
    for s in range(t, 0, -1):
        u = _uniforms(links[unknown], s, key)
        up[unknown] = u >= high
        unknown = unknown[(low <= u) & (u < high)]
        flipped[unknown] ^= fail > 1 - recover
        if len(unknown) == 0:
            return up ^ flipped
    up[unknown] = _uniforms(links[unknown], 0, key) >= fail / (fail + recover)
    return up ^ flipped


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
    labels = tuple(graph.nodes[i] for i in order) if graph.nodes else ()
    return restricted(graph, order, labels, f"relabel({graph.name}, order[{graph.n}])")


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
    labels = () if labels == tuple(range(len(kept))) else labels
    name = f"induced_subgraph({graph.name}, nodes[{len(kept)}])"
    return restricted(graph, kept, labels, name)


def _check_distinct(name: str, nodes: Any, n: int) -> np.ndarray:
    """Return `nodes` as a vector of distinct integers below n, or raise."""
    nodes = check_indices(name, nodes, n)
    repeated = np.flatnonzero(np.bincount(nodes, minlength=n) > 1)
    if len(repeated):
        raise ValueError(
            f"`{name}` must contain each node at most once, got node {repeated[0]} more than once"
        )
    return nodes


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
    return replace(without_edges(graph, pairs), name=name)


def _check_edges(graph: Topology, edges: Iterable[tuple[int, int]] | np.ndarray) -> np.ndarray:
    """Return (E, 2) edges of the graph, or raise for the first pair that is not an edge."""
    pairs = check_indices("edges", as_pairs(edges).reshape(-1), graph.n).reshape(-1, 2)
    known = np.isin(pair_numbers(pairs, graph.n), pair_numbers(graph.edge_index.T, graph.n))
    if not known.all():
        u, v = pairs[known.argmin()]
        raise ValueError(f"`edges` must be edges of {graph.name}, got ({u}, {v})")
    return pairs


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
