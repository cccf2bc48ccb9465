"""Size, degrees, clustering, distances and connectivity of graphs, also over rounds."""

import math
from collections.abc import Iterable
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import maximum_flow

from topofl._linalg.sparse import is_strong
from topofl._support.check import check_choice, check_switch
from topofl._support.public import public
from topofl.metrics._columns import (
    CONNECTED,
    CUBIC_LIMIT,
    UNDIRECTED,
    MetricColumn,
    limited,
    of_graphs,
)
from topofl.metrics._rounds import n_rounds, recorded_matrices
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import (
    Topology,
    TopologyError,
    TopologySequence,
    graph_of,
    need_topology,
    static_graph,
)

__all__ = [
    "b_connectivity",
    "clustering",
    "edge_connectivity",
    "node_connectivity",
    "reciprocity",
    "sparsity",
]


@public
def sparsity(topology: Topology, *, count_self: bool = False) -> float:
    """Return the sparsity, the share of possible edges that are absent: ``1 - E / (n (n - 1))``.

    E counts directed edges, so an undirected edge counts twice.

    Parameters
    ----------
    topology
        One graph; for a sequence, pass one round.
    count_self
        Count each node as a neighbor of itself, as in the matrix of a collaboration graph: ``1 - (E
        + n) / n^2``. If each node receives from at most B - 1 others, this is at least ``1 - B /
        n``.

    Returns
    -------
    float
        In [0, 1]: 1 without edges, or ``1 - 1/n`` with `count_self`; 0 for the complete graph of
        two or more nodes.

    Raises
    ------
    TypeError
        If `topology` is not a Topology.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL" (2025), section 4.3, reports sparsity without defining it.

    Examples
    --------
    >>> from topofl.topologies import ring
    >>> sparsity(ring(5)), sparsity(ring(5), count_self=True)
    (0.5, 0.4)
    """
    need_topology("topology", topology)
    if check_switch("count_self", count_self, auto=False):
        return 1 - (topology.adjacency.nnz + topology.n) / topology.n**2
    return 1 - topology.adjacency.nnz / max(1, topology.n * (topology.n - 1))


@public
def reciprocity(topology: Topology, *, over: str = "edges") -> float:
    """Return the reciprocity, the share of directed edges that have a reverse edge.

    It is 1 for undirected graphs and for graphs without edges.

    Parameters
    ----------
    topology
        One graph; for a sequence, pass one round.
    over
        ``"edges"``, or ``"pairs"``: the share of unordered pairs of nodes with edges in both
        directions or in neither (1 for one node). For sparse graphs, the latter is always near 1:
        with at most B edges into each node it is at least ``1 - 2 B / (n - 1)``.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TypeError
        If `topology` is not a Topology.
    ValueError
        If `over` is unknown.

    References
    ----------
    Garlaschelli and Loffredo, "Patterns of link reciprocity in directed networks" (2004), equation
    1. Kharrat, Canini and Horvath, "DPFL" (2025), section 4.3, reports a symmetry without defining
    it.

    Examples
    --------
    >>> from topofl.topology import from_edges
    >>> graph = from_edges([(0, 1), (1, 0), (0, 2)], 3, directed=True)
    >>> print(f"{reciprocity(graph):.3f} {reciprocity(graph, over='pairs'):.3f}")
    0.667 0.667
    """
    need_topology("topology", topology)
    edges = topology.adjacency != 0
    mutual = int(edges.multiply(edges.T).sum())
    if check_choice("over", over, ["edges", "pairs"]) == "edges":
        return mutual / edges.nnz if edges.nnz else 1.0
    return 1 - (edges.nnz - mutual) / max(1, topology.n * (topology.n - 1) // 2)


DISTANCE_LIMIT = 2000
"""Largest graph for which :func:`topofl.metrics.compare` computes all n^2 distances."""


DENSE_LIMIT = 5000
"""Largest graph treated as a dense matrix, if more than 1 in 20 pairs has an edge."""

FLOW_LIMIT = 300_000_000
"""Largest number of maximum flows times edges (about half a minute)."""


@public
def clustering(graph: Any) -> float:
    """Return the clustering coefficient: share of neighbor pairs with an edge, mean over nodes.

    For node i of an undirected graph, it is ``2 T_i / (k_i (k_i - 1))`` with T_i triangles through
    i and k_i neighbors. In a directed graph, triangles of all orientations count: ``((A +
    A^T)^3)_ii / (2 (k_i (k_i - 1) - 2 b_i))`` with k_i the in- plus out-degree and b_i the number
    of neighbors with edges in both directions.

    Parameters
    ----------
    graph
        One graph: anything that :func:`topofl.as_topology` accepts. Edge weights are not used.

    Returns
    -------
    float
        In [0, 1]: 0 without triangles, 1 if all neighbors of each node are neighbors of each other.
        Nodes with fewer than two neighbors count as 0, as in networkx.

    Raises
    ------
    TypeError, ValueError
        If `graph` is not one graph.

    Notes
    -----
    The result is exact for any size: each triangle is found once, from its node of lowest degree,
    in time at most ``edges^1.5``.

    References
    ----------
    Watts and Strogatz, "Collective dynamics of 'small-world' networks" (1998); Fagiolo, "Clustering
    in complex directed networks" (2007).

    Examples
    --------
    >>> from topofl import topologies
    >>> clustering(topologies.fully_connected(5)), clustering(topologies.ring(5))
    (1.0, 0.0)
    """
    edges = _pattern(as_static(graph))
    both = sparse.csr_array(edges + edges.T)
    degrees = both.sum(axis=1)
    mutual = (both == 2).sum(axis=1)
    possible = 2 * (degrees * (degrees - 1) - 2 * mutual)
    closed = _closed_walks(both)
    return float(np.divide(closed, possible, out=np.zeros(len(closed)), where=possible > 0).mean())


@public
def edge_connectivity(graph: Any) -> int:
    """Return the edge connectivity, the fewest edges whose removal disconnects the graph.

    Parameters
    ----------
    graph
        One graph: anything that :func:`topofl.as_topology` accepts. Edge weights are not used; in a
        directed graph, directed edges are removed and paths are directed.

    Returns
    -------
    int
        0 if the graph is not (strongly) connected or is a single node; at most the smallest in- or
        out-degree.

    Raises
    ------
    TopologyError
        If the graph is too large: more than 300,000,000 maximum flows times edges (rings of about
        10,000 nodes).
    TypeError, ValueError
        If `graph` is not one graph.

    Notes
    -----
    A cut smaller than the smallest degree has nodes of every dominating set on both sides.
    Therefore, maximum flows from one node of such a set to every other node of the set (and back,
    in a directed graph) find the smallest cut.

    References
    ----------
    Esfahanian and Hakimi, "On computing the connectivities of graphs and digraphs" (1984).

    Examples
    --------
    >>> from topofl import topologies
    >>> edge_connectivity(topologies.ring(6)), edge_connectivity(topologies.star(6))
    (2, 1)
    """
    topology = as_static(graph)
    least = _least_degree(topology)
    if least <= 1:
        return least
    capacities = sparse.csr_array(_pattern(topology), dtype=np.int32)
    root, *others = _dominating_set(topology)
    pairs = [(root, other) for other in others]
    if topology.is_directed:
        pairs += [(other, root) for other in others]
    _check_work(topology, "edge", len(pairs), capacities.nnz)
    return _smallest_flow(capacities, pairs, least)


@public
def node_connectivity(graph: Any) -> int:
    """Return the node connectivity, the fewest nodes whose removal disconnects the graph.

    A graph of one remaining node counts as disconnected.

    Parameters
    ----------
    graph
        As in :func:`edge_connectivity`.

    Returns
    -------
    int
        0 if the graph is not (strongly) connected or is a single node; at most the edge
        connectivity; n - 1 exactly for the complete graph.

    Raises
    ------
    TopologyError
        If the graph is too large: more than 300,000,000 maximum flows times edges.
    TypeError, ValueError
        If `graph` is not one graph.

    Notes
    -----
    By Menger's theorem, the smallest cut from one node to another, without an edge between them,
    has as many nodes as there are paths that share no other node. A smallest cut that does not
    contain a given node v separates it from another one; a smallest cut that contains v separates
    an in-neighbor of v from an out-neighbor. Only these pairs are examined.

    References
    ----------
    Esfahanian and Hakimi, "On computing the connectivities of graphs and digraphs" (1984).

    Examples
    --------
    >>> from topofl import topologies
    >>> node_connectivity(topologies.ring(6)), node_connectivity(topologies.fully_connected(6))
    (2, 5)
    """
    topology = as_static(graph)
    least = _least_degree(topology)
    if least <= 1:
        return least
    pattern = _pattern(topology)
    n = topology.n
    pairs = _separable_pairs(topology, pattern)
    _check_work(topology, "node", len(pairs), pattern.nnz + n)
    # Node i is split into an edge of capacity 1 from i to n + i; its in-edges end at i, its
    # out-edges start at n + i.
    through = sparse.eye_array(n)
    split = sparse.csr_array(sparse.block_array([[None, through], [pattern, None]]), dtype=np.int32)
    return _smallest_flow(split, [(n + source, sink) for source, sink in pairs], least)


def as_static(graph: Any) -> Topology:
    """Return a graph, or the support of a MixingMatrix, as a Topology; raise for sequences."""
    return graph.support() if isinstance(graph, MixingMatrix) else static_graph("graph", graph)


def _pattern(topology: Topology) -> sparse.csr_array:
    return sparse.csr_array(topology.adjacency != 0, dtype=np.float64)


def _closed_walks(both: sparse.csr_array) -> np.ndarray:
    """Return the diagonal of the third power of a symmetric matrix with zero diagonal."""
    n = both.shape[0]
    if n <= DENSE_LIMIT and both.nnz > n**2 / 20:
        dense = both.toarray()
        return np.einsum("ij,ij->i", dense @ dense, dense)
    # Edges point from lower to higher degree: no node has many out-edges, so products are sparse.
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(np.diff(both.indptr), kind="stable")] = np.arange(n)
    entries = both.tocoo()
    up = rank[entries.coords[0]] < rank[entries.coords[1]]
    upward = sparse.csr_array(
        (entries.data[up], (entries.coords[0][up], entries.coords[1][up])), shape=both.shape
    )
    lowest = (upward @ upward).multiply(upward).sum(axis=1)
    others = (upward.T @ upward).multiply(upward)
    return 2 * (lowest + others.sum(axis=1) + others.sum(axis=0))


def _least_degree(topology: Topology) -> int:
    """Return the smallest in- or out-degree; 0 if the graph is not connected."""
    least = min(topology.in_degrees.min(), topology.out_degrees.min())
    return int(least) if topology.is_connected else 0


def _dominating_set(topology: Topology) -> list[int]:
    """Return a set of nodes such that every other node sends to and receives from one of them."""
    sends = np.zeros(topology.n, dtype=bool)
    receives = np.zeros(topology.n, dtype=bool)
    forward = topology.adjacency
    backward = topology.adjacency.T.tocsr()
    chosen = []
    for node in np.argsort(-topology.out_degrees, kind="stable"):
        if not (sends[node] and receives[node]):
            chosen.append(int(node))
            receives[forward.indices[forward.indptr[node] : forward.indptr[node + 1]]] = True
            sends[backward.indices[backward.indptr[node] : backward.indptr[node + 1]]] = True
    return chosen


def _separable_pairs(topology: Topology, pattern: sparse.csr_array) -> list[tuple[int, int]]:
    """Return pairs of nodes without an edge such that every smallest cut separates one of them."""
    v = int((topology.in_degrees * topology.out_degrees).argmin())
    into = topology.in_neighbors(v)
    out_of = topology.out_neighbors(v)
    nodes = np.arange(topology.n)
    pairs = [(v, int(w)) for w in np.setdiff1d(nodes, np.append(out_of, v))]
    if topology.is_directed:
        pairs += [(int(w), v) for w in np.setdiff1d(nodes, np.append(into, v))]
    apart = pattern[into][:, out_of].toarray() == 0
    apart &= into[:, None] != out_of if topology.is_directed else into[:, None] < out_of
    return pairs + [(int(into[i]), int(out_of[j])) for i, j in np.argwhere(apart)]


def _smallest_flow(
    capacities: sparse.csr_array, pairs: Iterable[tuple[int, int]], bound: int
) -> int:
    for source, sink in pairs:
        bound = min(bound, int(maximum_flow(capacities, source, sink).flow_value))
        if bound == 1:
            break
    return bound


def _check_work(topology: Topology, kind: str, flows: int, edges: int) -> None:
    if flows * edges > FLOW_LIMIT:
        raise TopologyError(
            f"{kind} connectivity of {topology.name} takes {flows:,} maximum flows over {edges:,} "
            f"edges, more than {FLOW_LIMIT:,} in all; it is at most the smallest degree and, if "
            "undirected, unweighted and not complete, at least Topology.algebraic_connectivity"
        )


@public
def b_connectivity(
    graphs: Any, *, rounds: int | None = None, windows: str = "sliding"
) -> int | float:
    """Return the smallest B for which every B consecutive graphs are jointly strongly connected.

    Parameters
    ----------
    graphs
        Anything :func:`topofl.as_topology` takes, or a MixingMatrix, MixingSequence or History,
        whose supports are used.
    rounds
        Number of rounds to examine. Required (except for recorded rounds, of which the default is
        all), and only allowed, for sequences without a period; the result then holds for rounds
        0..rounds - 1 only. For static and periodic graphs, it holds for all rounds.
    windows
        ``"sliding"``: windows start at every round (DFedPGP's Assumption 1). ``"block"``: windows
        start at multiples of B only (as in the theory of stochastic gradient push). The block B is
        at most the sliding B, which is at most twice the block B, minus 1.

    Returns
    -------
    int or float
        B, or infinity if there is none; 1 for a static strongly connected graph.

    Raises
    ------
    TopologyError
        If `rounds` is missing for a sequence without a period.
    ValueError
        If `rounds` is given for a sequence with a period or is below 1, or `windows` is unknown.

    Notes
    -----
    The cost is linear in the number of rounds for any B: each round's graph is computed once (for a
    period, twice), since both ends of the window only move forward. 10,000 rounds of 1,000 nodes
    took 9 s on two cores (``python -m analysis.benchmark graphs``).

    References
    ----------
    Liu et al., "DFedPGP" (2024), Assumption 1; Nedic and Olshevsky, "Distributed optimization over
    time-varying directed graphs" (2015), Assumption 1.

    Examples
    --------
    >>> from topofl import topologies
    >>> b_connectivity(topologies.ring(5))
    1
    >>> graph = topologies.one_peer_exponential(8)
    >>> b_connectivity(graph)  # rounds of even offsets never leave the even nodes
    3
    """
    graphs = recorded_matrices(graphs)
    is_weighted = isinstance(graphs, MixingMatrix | MixingSequence)
    sequence = graph_of("graphs", graphs.support() if is_weighted else graphs)
    kind = check_choice("windows", windows, ["sliding", "block"])
    looked_at = n_rounds(graphs if isinstance(graphs, MixingSequence) else sequence, rounds)
    horizon = looked_at if sequence.period is None else None
    period = sequence.period or 0
    lengths = _shortest_windows(sequence, starts=horizon or period, end=horizon or 2 * period)
    if kind == "block":
        return _smallest_block(lengths, horizon)
    return longest_window(lengths, periodic=horizon is None)


def rounds_until_strong(source: MixingSequence, rounds: int) -> np.ndarray:
    """Return, for each of the first rounds, the length of the connected window that starts there.

    It is the number of rounds that are jointly strongly connected: infinite if there are too few
    rounds before `rounds` or, for a periodic sequence, if no number suffices.
    """
    return _shortest_windows(source.support(), starts=rounds, end=rounds + (source.period or 0))


def longest_window(lengths: np.ndarray, *, periodic: bool) -> int | float:
    """Return the smallest B such that any B consecutive rounds suffice, infinite if there is none.

    `lengths` are the numbers of rounds needed from each start, infinite if there are too few.
    Windows that extend beyond the last round are ignored unless `periodic`.
    """
    if periodic:
        return int(lengths.max()) if np.isfinite(lengths.max()) else math.inf
    longest = np.maximum.accumulate(lengths)  # over starts 0..l
    # Windows of length 1 can start at every round, of length 2 at all but one, ...
    fits = np.flatnonzero(longest[::-1] <= np.arange(1, len(lengths) + 1))
    return int(fits[0]) + 1 if len(fits) else math.inf


def _smallest_block(lengths: np.ndarray, horizon: int | None) -> int | float:
    """Return the smallest B for windows that start at multiples of B, infinite if there is none.

    With a period p, blocks of B start at multiples of gcd(B, p), and B <= p suffices.
    """
    for b in range(1, len(lengths) + 1):
        stop, step = (horizon - b + 1, b) if horizon else (None, math.gcd(b, len(lengths)))
        if lengths[:stop:step].max() <= b:
            return b
    return math.inf


def _shortest_windows(
    sequence: Topology | TopologySequence, *, starts: int, end: int
) -> np.ndarray:
    """Return, for each start, the length of the shortest strongly connected window before `end`.

    The length is infinite if there is none. Every round is computed once: an edge is in the window
    of rounds start..stop - 1 if the last round before `stop` with that edge is not before `start`.
    """
    lengths = np.full(starts, math.inf)
    # For each edge, the last round that had it, plus 1.
    last = sparse.csr_array((sequence.n, sequence.n))
    stop = 0
    for start in range(starts):
        last.data[last.data <= start] = 0
        last.eliminate_zeros()
        while not (connected := stop > start and is_strong(last)) and stop < end:
            edges = sequence.at(stop).to_scipy()
            stop += 1
            edges.data[:] = stop
            last = last.maximum(edges)
        if not connected:
            break
        lengths[start] = stop - start
    return lengths


_structure = partial(MetricColumn, "structure")
_paths = partial(MetricColumn, "paths")

COLUMNS = (
    _structure("nodes", "number of nodes", lambda entry: entry.n),
    _structure(
        "edges", "number of edges; an undirected edge counts once", of_graphs(attrgetter("n_edges"))
    ),
    _structure(
        "mean degree",
        "mean number of neighbors that a node sends to, excluding itself",
        of_graphs(lambda graph: graph.out_degrees.mean()),
    ),
    _structure(
        "max degree",
        "largest number of in- or out-neighbors of a node, excluding itself",
        lambda entry: max(
            int(max(graph.in_degrees.max(), graph.out_degrees.max())) for graph in entry.graphs
        ),
    ),
    _structure("sparsity", "share of possible edges that are absent", of_graphs(sparsity)),
    _structure(
        "reciprocity", "share of directed edges that have a reverse edge", of_graphs(reciprocity)
    ),
    _structure(
        "clustering",
        "share of pairs of neighbors of a node that have an edge, mean over nodes",
        of_graphs(clustering),
    ),
    _paths(
        "diameter",
        "hops between the two nodes that are farthest apart",
        of_graphs(attrgetter("diameter")),
        limit=limited(DISTANCE_LIMIT, "Topology.diameter"),
        needs=(CONNECTED,),
    ),
    _paths(
        "mean distance",
        "mean hops between two nodes",
        of_graphs(attrgetter("mean_distance")),
        limit=limited(DISTANCE_LIMIT, "Topology.mean_distance"),
        needs=(CONNECTED,),
    ),
    _paths(
        "edge connectivity",
        "fewest edges whose loss disconnects the graph",
        of_graphs(edge_connectivity),
        limit=limited(CUBIC_LIMIT, "metrics.edge_connectivity"),
    ),
    _paths(
        "node connectivity",
        "fewest nodes whose loss disconnects the graph",
        of_graphs(node_connectivity),
        limit=limited(CUBIC_LIMIT, "metrics.node_connectivity"),
    ),
    _paths(
        "algebraic connectivity",
        "second smallest eigenvalue of the graph's Laplacian: 0 if disconnected",
        of_graphs(attrgetter("algebraic_connectivity")),
        needs=(UNDIRECTED,),
    ),
    MetricColumn(
        "rounds",
        "B",
        "smallest B such that any B consecutive rounds are jointly strongly connected",
        lambda entry: b_connectivity(entry.rounds, rounds=entry.limit),
    ),
)
