"""Textbook graphs of any size, and social networks from the literature."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import check_edges, check_int, check_sequence, check_switch
from topofl.topologies._generator import cycle_edges, generator
from topofl.topology import Topology, TopologyError, from_edges

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "circulant",
    "complete_bipartite",
    "davis_southern_women",
    "de_bruijn",
    "florentine_families",
    "fully_connected",
    "grid",
    "hypercube",
    "karate_club",
    "kautz",
    "path",
    "ring",
    "star",
    "torus",
    "tree",
]


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
    check_edges(n * (n - 1) / 2, "n")
    others = np.arange(n - 1)[None, :] + (np.arange(n - 1)[None, :] >= np.arange(n)[:, None])
    pointers = np.arange(n + 1) * (n - 1)
    adjacency = sparse.csr_array((np.ones(others.size), others.reshape(-1), pointers), shape=(n, n))
    return Topology(adjacency)


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
    return from_edges(cycle_edges(np.arange(n)), n)


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
    return from_edges(np.concatenate(edges), n)


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
    return from_edges(edges, n)


def _pairs(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return (E, 2) pairs of the entries of two arrays of the same shape."""
    return np.stack([sources.reshape(-1), targets.reshape(-1)], axis=1)


def _rows_of_nodes(kind: str, n: int, rows: int | None) -> np.ndarray:
    """Return the node numbers as a (rows, columns) array, or raise."""
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
    leaves = np.arange(1, n)
    return from_edges(_pairs(np.zeros_like(leaves), leaves), n)


@generator(family="classic", examples=["path:30"])
def path(n: int) -> Topology:
    """Return the path 0 - 1 - ... - (n - 1).

    It has n - 1 edges and diameter n - 1. No connected graph has a larger diameter or a lower
    algebraic connectivity (``2 - 2 cos(pi / n)``). With Metropolis-Hastings weights (1/3 on every
    edge, for n >= 3) the spectral gap is ``(2 - 2 cos(pi / n)) / 3``, of order 1/n^2. Since these
    weights depend on degrees too, a path between two cliques can have a lower gap (two triangles
    with four nodes between them: 0.0324, the path of 10 nodes: 0.0326).

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
    >>> path(4)
    Topology('path(n=4)', n=4, edges=3, undirected)
    """
    return from_edges(np.stack([np.arange(n - 1), np.arange(1, n)], axis=1), n)


@generator(family="classic", examples=["complete_bipartite:12,left=4"], least=2)
def complete_bipartite(n: int, left: int | None = None) -> Topology:
    """Return the complete bipartite graph with `left` nodes on the first side.

    Each of the first `left` nodes is joined to all others. ``groups`` contains the two sides.

    It has ``left * (n - left)`` edges and diameter 2. Its Laplacian spectrum is 0, `left` (n - left
    - 1 times), n - left (left - 1 times) and n.

    Parameters
    ----------
    n
        Number of nodes, at least 2.
    left
        Number of nodes on the first side, between 1 and n - 1; default: half of n, rounded down.

    Raises
    ------
    ValueError
        If a number is out of range.

    Examples
    --------
    >>> complete_bipartite(5).groups
    ((0, 1), (2, 3, 4))
    """
    if left is None:
        return complete_bipartite(n, n // 2)  # whose name has the number
    left = check_int("left", left, minimum=1, maximum=n - 1)
    check_edges(left * (n - left), "n", "left")
    ends = np.meshgrid(np.arange(left), np.arange(left, n), indexing="ij")
    edges = np.stack(ends, axis=-1).reshape(-1, 2)
    return from_edges(edges, n, groups=[range(left), range(left, n)])


@generator(family="classic", examples=["hypercube:16", "hypercube:32"])
def hypercube(n: int) -> Topology:
    """Return the hypercube, in which nodes are joined if their numbers differ in one bit.

    Degree and diameter are log2(n). With Metropolis-Hastings weights the spectral gap is ``2 /
    (log2(n) + 1)``; the smallest eigenvalue is ``-1 + 2 / (log2(n) + 1)``.

    Parameters
    ----------
    n
        Number of nodes, a power of two.

    Raises
    ------
    TopologyError
        If `n` is not a power of two; the message names the nearest ones.

    Examples
    --------
    >>> hypercube(8).out_neighbors(0).tolist()
    [1, 2, 4]
    """
    if n & (n - 1):
        below = 1 << (n.bit_length() - 1)
        raise TopologyError(
            f"`n` must be a power of two, got {n}; the nearest are {below} and {2 * below}"
        )
    check_edges(n * (n.bit_length() - 1) / 2, "n")
    nodes = np.arange(n)
    edges = [np.stack([nodes, nodes ^ (1 << digit)], axis=1) for digit in range(n.bit_length() - 1)]
    return from_edges(np.concatenate([np.zeros((0, 2), np.int64), *edges]), n)


@generator(family="classic", examples=["tree:31,branching=2", "tree:63,branching=2"])
def tree(n: int, branching: int = 2) -> Topology:
    """Return the balanced tree: the parent of node i > 0 is node ``(i - 1) // branching``.

    The last level may be incomplete.

    It has n - 1 edges, the fewest of a connected graph, and a diameter of about ``2 log(n) /
    log(branching)``.

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    branching
        Number of children per node, at least 1 (which gives the path).

    Raises
    ------
    ValueError
        If a number is out of range.

    Examples
    --------
    >>> tree(7).out_neighbors(0).tolist(), tree(7).out_neighbors(2).tolist()
    ([1, 2], [0, 5, 6])
    """
    branching = check_int("branching", branching, minimum=1)
    nodes = np.arange(1, n)
    edges = np.stack([(nodes - 1) // branching, nodes], axis=1)
    return from_edges(edges, n)


@generator(family="classic", examples=["circulant:16,offsets=[1, 4]"])
def circulant(n: int, offsets: Sequence[int] = (1, 2), *, directed: bool = False) -> Topology:
    """Return the circulant graph: node i is joined to ``i + o mod n`` for each offset o.

    It is connected if and only if n and the offsets have no common divisor above 1. The eigenvalues
    of its adjacency matrix are ``sum_o exp(2 pi i j o / n)``, j = 0..n-1, over both signs of the
    offsets if undirected.

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    offsets
        Integers that are not multiples of n. ``(1,)`` gives the ring and ``(1, c)`` the chordal
        ring of chord c.
    directed
        Whether edges only go from node i to ``i + o``.

    Raises
    ------
    ValueError, TypeError
        If `n` is below 1, there are no offsets, or an offset is not an integer or is a multiple of
        n (a self-loop).

    Examples
    --------
    >>> circulant(8, [1, 4]).out_neighbors(0).tolist()
    [1, 4, 7]
    """
    listed = check_sequence("offsets", offsets, "integers")
    steps = [int(check_int("offsets", offset, minimum=-(2**62))) for offset in listed]
    check_edges(n * len(steps), "n", "offsets")
    loops = [step for step in steps if step % n == 0]
    if not steps or loops:
        raise ValueError(f"`offsets` must be integers that are not multiples of n={n}, got {steps}")
    nodes = np.arange(n)
    edges = np.concatenate([np.stack([nodes, (nodes + step) % n], axis=1) for step in steps])
    directed = bool(check_switch("directed", directed, auto=False))
    return from_edges(edges, n, directed=directed)


@generator(family="classic", examples=["de_bruijn:16", "de_bruijn:27,degree=3"])
def de_bruijn(n: int, degree: int = 2) -> Topology:
    """Return the De Bruijn digraph: node i sends to ``degree * i + r mod n`` for r = 0..degree - 1.

    Nodes are words of k letters, ``n = degree^k``; an edge drops the first letter and appends one.
    The diameter is k, and the graph is strongly connected. Self-loops of the `degree` nodes with
    equal letters are omitted: these nodes have degree - 1 edges in and out, all others `degree`.
    With weights of 1 / degree on every edge and on the omitted self-loops, k exchanges average
    exactly (:func:`topofl.mixing.own_weights`).

    Parameters
    ----------
    n
        Number of nodes, a power of `degree`.
    degree
        Number of letters, at least 2.

    Raises
    ------
    ValueError
        If an argument is too small or too large.
    TopologyError
        If `n` is not a power of `degree`; the message names the nearest ones.

    References
    ----------
    de Bruijn, "A combinatorial problem" (1946).

    Examples
    --------
    >>> de_bruijn(8).out_neighbors(3).tolist()  # 011 sends to 110 and 111
    [6, 7]
    >>> de_bruijn(8).diameter
    3.0
    """
    degree = check_int("degree", degree, minimum=2)
    _check_order(n, degree, 1, "degree^k")
    check_edges(n * degree, "n", "degree")
    sources = np.repeat(np.arange(n), degree)
    targets = (degree * sources + np.tile(np.arange(degree), n)) % n
    edges = np.stack([sources, targets], axis=1)[sources != targets]
    return from_edges(edges, n, directed=True)


@generator(family="classic", examples=["kautz:12", "kautz:36,degree=3"])
def kautz(n: int, degree: int = 2) -> Topology:
    """Return the Kautz digraph: node i sends to ``-degree * i - r mod n`` for r = 1..degree.

    Every node has `degree` edges in and out, ``n = degree^k + degree^(k - 1)``, and the diameter is
    k. It is the iterated line digraph, k - 1 times, of the complete digraph of degree + 1 nodes.
    With uniform weights the mixing matrix is doubly stochastic, and its spectral gap is ``degree /
    (degree + 1)`` for every k >= 2, independent of the number of nodes.

    Parameters
    ----------
    n
        Number of nodes, ``degree^k + degree^(k - 1)`` with k >= 1: 3, 6, 12, 24, ... for degree 2.
    degree
        Number of nodes that each node sends to, at least 2.

    Raises
    ------
    ValueError
        If an argument is too small or too large.
    TopologyError
        If there is no such graph with `n` nodes; the message names the nearest numbers.

    References
    ----------
    Kautz, "Bounds on directed (d, k) graphs" (1968); Imase and Itoh, "A design for directed graphs
    with minimum diameter" (1983), for the numbers of nodes.

    Examples
    --------
    >>> graph = kautz(12)
    >>> graph.out_neighbors(0).tolist(), graph.diameter
    ([10, 11], 3.0)
    """
    degree = check_int("degree", degree, minimum=2)
    _check_order(n, degree, degree + 1, "degree^k + degree^(k - 1)")
    check_edges(n * degree, "n", "degree")
    sources = np.repeat(np.arange(n), degree)
    targets = (-degree * sources - np.tile(np.arange(1, degree + 1), n)) % n
    edges = np.stack([sources, targets], axis=1)
    return from_edges(edges, n, directed=True)


def _check_order(n: int, degree: int, smallest: int, rule: str) -> None:
    """Raise ``TopologyError`` unless n is `smallest` times a power of `degree`."""
    order = smallest
    while order * degree <= n:
        order *= degree
    if order != n:
        nearest = f"the nearest are {order} and {order * degree}"
        if n < smallest:
            nearest = f"the smallest is {smallest}"
        raise TopologyError(f"`n` must be {rule} for `degree`={degree}, got {n}; {nearest}")


@generator(family="social", examples=["karate_club"])
def karate_club() -> Topology:
    """Return Zachary's karate club: 34 members, 78 friendships, and two clubs as groups.

    The first group is the club of the instructor (node 0), the second that of the officers (node
    33), with 17 nodes each. Edges have weight 1; the weights in networkx are numbers of contexts in
    which two members met.

    References
    ----------
    Zachary, "An information flow model for conflict and fission in small groups" (1977).

    Examples
    --------
    >>> karate_club()
    Topology('karate_club()', n=34, edges=78, undirected)
    """
    import networkx as nx

    graph = nx.karate_club_graph()
    clubs = nx.get_node_attributes(graph, "club")
    return _unweighted(graph, [[i for i in graph if clubs[i] == clubs[head]] for head in (0, 33)])


@generator(family="social", examples=["davis_southern_women"])
def davis_southern_women() -> Topology:
    """Return Davis's Southern women: 18 women, 14 club meetings, and 89 attendances as edges.

    The graph is bipartite: the groups are the women and the meetings, whose names are in ``nodes``.

    References
    ----------
    Davis, Gardner and Gardner, "Deep South" (1941).

    Examples
    --------
    >>> graph = davis_southern_women()
    >>> graph, graph.nodes[0], graph.nodes[-1]
    (Topology('davis_southern_women()', n=32, edges=89, undirected), 'Evelyn Jefferson', 'E14')
    """
    import networkx as nx

    graph = nx.davis_southern_women_graph()
    return _unweighted(graph, [graph.graph["top"], graph.graph["bottom"]])


@generator(family="social", examples=["florentine_families"])
def florentine_families() -> Topology:
    """Return the graph of 20 marriages between 15 Florentine families, named in ``nodes``.

    References
    ----------
    Breiger and Pattison, "Cumulated social roles: the duality of persons and their algebras"
    (1986).

    Examples
    --------
    >>> graph = florentine_families()
    >>> graph.nodes[graph.out_degrees.argmax()]
    'Medici'
    """
    import networkx as nx

    return _unweighted(nx.florentine_families_graph())


def _unweighted(graph: "nx.Graph", groups: Iterable[Iterable[object]] = ()) -> Topology:
    """Return a networkx graph with its labels but without weights; groups contain labels."""
    index_of = {label: i for i, label in enumerate(graph)}
    labels = () if list(graph) == list(range(len(graph))) else tuple(graph)
    members = [[index_of[label] for label in group] for group in groups]
    edges = [(index_of[u], index_of[v]) for u, v in graph.edges]
    return replace(from_edges(edges, len(graph), groups=members), nodes=labels)
