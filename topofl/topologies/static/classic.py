"""Classic graphs: complete, ring, grid, torus, star, random regular, and a ring by label skew."""

from functools import partial
from math import isqrt
from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import check_choice, check_edges, check_int, check_nodes
from topofl._support.seeding import stream
from topofl.topologies._common import call_name, counts_and_source, cycle_edges, label_shares
from topofl.topologies._generator import generator
from topofl.topology import Topology, TopologyError, from_edges

__all__ = ["dissimilar_ring", "fully_connected", "grid", "random_regular", "ring", "star", "torus"]

_TRIES = 100
"""Maximum number of draws of a random regular graph until one is connected."""


@generator(family="classic", examples=["fully_connected:12"])
def fully_connected(n: int) -> Topology:
    """Return the complete graph, in which every node is joined to every other.

    It has n (n - 1) / 2 edges, degree n - 1 and diameter 1. Metropolis-Hastings weights are all
    1/n, so one exchange averages exactly, and the spectral gap is 1.

    Parameters
    ----------
    n
        Number of nodes, at least 1.

    Raises
    ------
    ValueError
        If `n` is below 1.

    Examples
    --------
    >>> fully_connected(5)
    Topology('fully_connected(n=5)', n=5, edges=10, undirected)
    """
    n = check_nodes(n, minimum=1)
    check_edges(n * (n - 1) / 2, "n")
    others = np.arange(n - 1)[None, :] + (np.arange(n - 1)[None, :] >= np.arange(n)[:, None])
    pointers = np.arange(n + 1) * (n - 1)
    adjacency = sparse.csr_array((np.ones(others.size), others.reshape(-1), pointers), shape=(n, n))
    return Topology(adjacency, name=call_name("fully_connected", n=n))


@generator(family="classic", examples=["ring:12"])
def ring(n: int) -> Topology:
    """Return the cycle 0 - 1 - ... - (n - 1) - 0.

    It has n edges, degree 2 and diameter floor(n / 2); a single node has no edge, and two nodes
    have one. With Metropolis-Hastings weights (all 1/3 for n >= 3) the spectral gap is ``1 - (1 + 2
    cos(2 pi / n)) / 3`` for n >= 4, of order 1/n^2.

    Parameters
    ----------
    n
        Number of nodes, at least 1.

    Raises
    ------
    ValueError
        If `n` is below 1.

    Examples
    --------
    >>> ring(5).in_neighbors(0).tolist()
    [1, 4]
    """
    n = check_nodes(n, minimum=1)
    return from_edges(cycle_edges(np.arange(n)), n, name=call_name("ring", n=n))


@generator(family="classic", examples=["grid:25"])
def grid(n: int, *, rows: int | None = None) -> Topology:
    """Return the rectangular grid; node ``r * columns + c`` is in row r and column c.

    It has ``rows (columns - 1) + columns (rows - 1)`` edges, degrees 2 to 4 and diameter ``rows +
    columns - 2``.

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    rows
        Number of rows, a divisor of `n`; 1 gives a path. Default: the factor pair closest to a
        square.

    Raises
    ------
    ValueError
        If `n` is below 1 or `rows` does not divide it.
    TopologyError
        If `n` is a prime above 3 and `rows` is not given: the only grid would be a path.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), Figure 1 (there n is a square).

    Examples
    --------
    >>> grid(12, rows=3).n_edges
    17
    """
    nodes = _rows_of_nodes("grid", n, rows)
    edges = [_pairs(nodes[:, :-1], nodes[:, 1:]), _pairs(nodes[:-1], nodes[1:])]
    return from_edges(
        np.concatenate(edges), nodes.size, name=call_name("grid", n=nodes.size, rows=rows)
    )


@generator(family="classic", examples=["torus:16"])
def torus(n: int, *, rows: int | None = None) -> Topology:
    """Return the torus, a grid with wrap-around; node ``r * columns + c`` is in row r, column c.

    If both sides are at least 3, it has degree 4 and 2 n edges. A side of 2 has single instead of
    double edges, and a side of 1 gives a ring. With sides of at least 3 all Metropolis-Hastings
    weights are 1/5 and the eigenvalues are ``(1 + 2 cos(2 pi a / rows) + 2 cos(2 pi b / columns)) /
    5`` for a < rows, b < columns.

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    rows
        Number of rows, a divisor of `n`. Default: the factor pair closest to a square.

    Raises
    ------
    ValueError
        If `n` is below 1 or `rows` does not divide it.
    TopologyError
        If `n` is a prime above 3 and `rows` is not given: the only torus would be a ring.

    Examples
    --------
    >>> torus(16).out_degrees.tolist() == [4] * 16
    True
    """
    nodes = _rows_of_nodes("torus", n, rows)
    edges = np.concatenate([_pairs(nodes, np.roll(nodes, -1, axis=axis)) for axis in (0, 1)])
    edges = edges[edges[:, 0] != edges[:, 1]]
    return from_edges(edges, nodes.size, name=call_name("torus", n=nodes.size, rows=rows))


def _pairs(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return (E, 2) pairs of the entries of two arrays of the same shape."""
    return np.stack([sources.reshape(-1), targets.reshape(-1)], axis=1)


def _rows_of_nodes(kind: str, n: int, rows: int | None) -> np.ndarray:
    """Return the node numbers as a (rows, columns) array, or raise."""
    n = check_nodes(n, minimum=1)
    if rows is None:
        rows = _most_square(n)
        if rows == 1 and n > 3:
            raise TopologyError(
                f"`n` must be a product of two sides of at least 2 for a {kind}, got the prime "
                f"{n}; the nearest are n={n - 1} and n={n + 1}, or pass rows=1 for a "
                f"{'path' if kind == 'grid' else 'ring'}"
            )
    rows = check_int("rows", rows, minimum=1, maximum=n, maximum_name="n")
    if n % rows:
        raise ValueError(
            f"`rows` must divide n={n}, got {rows}; the most square is rows={_most_square(n)}"
        )
    return np.arange(n).reshape(rows, n // rows)


def _most_square(n: int) -> int:
    """Return the largest divisor of `n` up to its square root."""
    return next(rows for rows in range(isqrt(n), 0, -1) if n % rows == 0)


@generator(family="classic", examples=["star:10"])
def star(n: int) -> Topology:
    """Return the star, in which node 0 is joined to all others and there are no other edges.

    It has n - 1 edges and diameter 2. With Metropolis-Hastings weights (1/n on edges) the spectral
    gap is 1/n for n >= 3. It is the graph of a server that also trains.

    Parameters
    ----------
    n
        Number of nodes, at least 1.

    Raises
    ------
    ValueError
        If `n` is below 1.

    Examples
    --------
    >>> star(5).out_degrees.tolist()
    [4, 1, 1, 1, 1]
    """
    n = check_nodes(n, minimum=1)
    leaves = np.arange(1, n)
    return from_edges(_pairs(np.zeros_like(leaves), leaves), n, name=call_name("star", n=n))


@generator(family="random", examples=["random_regular:24,k=3,seed=0"])
def random_regular(n: int, k: int, *, seed: int | np.random.Generator) -> Topology:
    """Return a random connected graph in which every node has `k` neighbors.

    It has n k / 2 edges. For k = 2 it is a ring in uniformly random order; otherwise it is drawn by
    the algorithm of Steger and Wormald, repeatedly until connected (redraws are rare for k >= 3).
    For k >= n / 2, except k = 2, it is the complement of such a graph of degree n - 1 - k, which
    may be disconnected. The distribution is only asymptotically uniform: for n = 6 and k = 3, 31 %
    of the draws are complete bipartite graphs, which are 14 % of all such graphs.

    Parameters
    ----------
    n
        Number of nodes, at least 2.
    k
        Degree, between 1 and n - 1.
    seed
        Integer or generator.

    Raises
    ------
    ValueError
        If `n` or `k` is out of range.
    TopologyError
        If n k is odd, or if k is 1 and n is above 2 (no such graph is connected), or if 100 draws
        were disconnected.

    References
    ----------
    Steger and Wormald, "Generating random regular graphs quickly" (1999). Bellet, Kermarrec and
    Lavoie, "D-Cliques" (2022), Figure 11 uses k = 10.

    Examples
    --------
    >>> graph = random_regular(20, 3, seed=0)
    >>> graph.n_edges, graph.is_connected
    (30, True)
    """
    n = check_nodes(n, minimum=2)
    k = check_int("k", k, minimum=1, maximum=n - 1, maximum_name="n-1")
    if n * k % 2:
        raise TopologyError(
            f"`n` * `k` must be even, got n={n} and k={k}: a regular graph has n k / 2 edges"
        )
    if k == 1 and n > 2:
        raise TopologyError(f"`k` must be at least 2 to connect n={n} nodes, got 1")
    check_edges(n * max(k, n - k if 2 * k >= n else 0) / 2, "n", "k")
    rng = stream(seed, "graph")
    name = call_name("random_regular", n=n, k=k, seed=seed)
    for _ in range(_TRIES):
        graph = from_edges(_regular_edges(n, k, rng), n, name=name)
        if graph.is_connected:
            return graph
    raise TopologyError(
        f"no connected graph with n={n} and k={k} in {_TRIES} draws; use another `seed` or `k`"
    )


def _regular_edges(n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return (E, 2) edges of a random k-regular graph, connected if k is 2 or at least n / 2."""
    import networkx as nx

    if k == 2:
        return cycle_edges(rng.permutation(n))
    # An integer seed is 10 times faster than seed=rng.
    draw = partial(nx.random_regular_graph, n=n, seed=int(rng.integers(2**63)))
    if 2 * k < n:
        return np.array(draw(k).edges)
    # The complement of a sparse graph, since drawing dense graphs directly hardly ever succeeds.
    absent = nx.to_numpy_array(draw(n - 1 - k), nodelist=range(n))
    return np.argwhere(np.triu(1 - absent, 1))


@generator(family="learned from data", examples=["dissimilar_ring:20,seed=0"])
def dissimilar_ring(
    label_counts: Any = None,
    *,
    n: int | None = None,
    ties: str = "stable",
    seed: int | np.random.Generator,
) -> Topology:
    """Return a ring in a greedy order that gives neighbors dissimilar label distributions.

    The order starts at a random node and continues with the unvisited node whose label distribution
    is farthest in L1 from that of the current node; the last node is joined to the first. For all
    `ties` the graph is isomorphic to ``ring(n)`` and has the same spectral gap: only the assignment
    of nodes to positions differs. This affects training: with two shards of MNIST at each of 100
    nodes, logistic regression by D-SGD reaches 75 to 77 % after 10 epochs with stable ties, 60 to
    62 % with random ties and 56 to 61 % in the order of the nodes (three seeds). Neighborhood
    heterogeneity distinguishes these graphs (0.087, 0.117, 0.149); no metric of the graph alone
    can. Takes O(n^2 (classes + log n)) time.

    Parameters
    ----------
    label_counts
        (n, classes) array of non-negative integers, or an object with such a ``label_counts``, for
        example a Partition.
    n
        Alternative to `label_counts`: n nodes of one class each; node i has class ``i % 10``.
    ties
        Choice between nodes at the same distance. ``"stable"``: as in the simulator of the authors
        of D-Cliques, which sorts the remaining nodes by distance in each step with a stable sort.
        This prefers the node that was farthest from the previous node, then from the one before it,
        and so on; the initial order is random. ``"random"``: any of them.
    seed
        Integer or generator.

    Raises
    ------
    TypeError
        If the counts are not integers.
    ValueError
        If the counts have the wrong shape, are negative, or leave a node without data; if not
        exactly one of `label_counts` and `n` is given; if `ties` is unknown.

    References
    ----------
    The default order of the ring in the simulator of the authors of D-Cliques (Bellet, Kermarrec
    and Lavoie 2022), ``tools/setup/topology/ring.py``, which starts at its last node and treats
    distances as equal that differ by less than 0.001; the paper itself states that nodes are placed
    at random.

    Examples
    --------
    >>> graph = dissimilar_ring([[9, 0], [8, 1], [1, 8], [0, 9]], seed=0)
    >>> graph.in_neighbors(0).tolist()
    [2, 3]
    """
    counts, source = counts_and_source(label_counts, n, classes=10)
    follow = {"stable": _stable_dissimilar, "random": _greedy_dissimilar}[
        check_choice("ties", ties, _TIES)
    ]
    order = stream(seed, "graph").permutation(len(counts))
    order = order[follow(label_shares(counts)[order])]
    shown_ties = None if ties == "stable" else ties
    name = call_name("dissimilar_ring", source, ties=shown_ties, seed=seed)
    return from_edges(cycle_edges(order), len(counts), name=name)


_TIES = ("stable", "random")


def _stable_dissimilar(shares: np.ndarray) -> np.ndarray:
    """Return the order from row 0 to the farthest remaining row each time; stable for ties."""
    order = np.zeros(len(shares), dtype=np.int64)
    remaining = np.arange(1, len(shares))[::-1]
    for step in range(1, len(shares)):
        distances = np.abs(shares[remaining] - shares[order[step - 1]]).sum(axis=1)
        remaining = remaining[np.argsort(distances.round(9), kind="stable")]  # equal up to rounding
        order[step] = remaining[-1]
        remaining = remaining[:-1]
    return order


def _greedy_dissimilar(shares: np.ndarray) -> np.ndarray:
    """Return the order from row 0 to the farthest remaining row each time; ties by row number."""
    order = np.zeros(len(shares), dtype=np.int64)
    remaining = np.ones(len(shares), dtype=bool)
    for step in range(1, len(shares)):
        remaining[order[step - 1]] = False
        distances = np.abs(shares - shares[order[step - 1]]).sum(axis=1)
        order[step] = np.where(remaining, distances, -1.0).argmax()
    return order
