"""Exponential graphs, with neighbors at distances 1, 2, 4, 8, ... around the ring."""

import numpy as np

from topofl._support.check import check_edges, check_int, check_nodes, check_switch
from topofl.topologies._common import call_name, periodic
from topofl.topologies._generator import generator
from topofl.topology import Topology, TopologySequence, from_edges

__all__ = ["exponential", "one_peer_exponential", "p_peer_exponential"]


@generator(family="exponential", examples=["exponential:16", "exponential:16,directed=true"])
def exponential(n: int, *, directed: bool = False) -> Topology:
    """Return the static exponential graph, in which node i is joined to ``i + 2^e mod n``.

    Here e = 0..floor(log2(n - 1)). The undirected graph has edges in both directions, with
    duplicates merged: degree 14 for n = 100 and 20 for n = 1000. In the directed graph node i sends
    to floor(log2(n - 1)) + 1 others; with uniform weights the mixing matrix is doubly stochastic,
    and for n a power of two its spectral gap is ``2 / (1 + log2 n)``.

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    directed
        Whether edges only go from node i to ``i + 2^e``. For n up to 3 both graphs are complete and
        thus undirected.

    Raises
    ------
    ValueError
        If `n` is below 1.

    References
    ----------
    Ying et al., "Exponential graph is provably efficient for decentralized deep training" (2021),
    Proposition 1, for the gap. Undirected: Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), Figure
    12.

    Examples
    --------
    >>> exponential(8, directed=True).out_neighbors(0).tolist()
    [1, 2, 4]
    >>> exponential(8).out_neighbors(0).tolist()
    [1, 2, 4, 6, 7]
    """
    n = check_nodes(n, minimum=1)
    directed = bool(check_switch("directed", directed, auto=False))
    check_edges(n * _n_offsets(n), "n")
    edges = [_offset_edges(n, 2**e) for e in range(_n_offsets(n))]
    name = call_name("exponential", n=n, directed=True if directed else None)
    return from_edges(
        np.concatenate([np.zeros((0, 2), np.int64), *edges]), n, name=name, directed=directed
    )


@generator(family="exponential", examples=["one_peer_exponential:16"])
def one_peer_exponential(n: int, *, directed: bool = True) -> TopologySequence:
    """Return the one-peer exponential graph, with peers at distance ``2^(t mod L)`` in round t.

    Directed: node i sends to ``i + 2^e mod n``, e = t mod L; each round has n edges. Undirected:
    nodes i and ``i XOR 2^e`` exchange, so each round is a matching; a node whose peer would not be
    below n is idle (the one-peer hypercube if n is a power of two). The period is L = floor(log2(n
    - 1)) + 1. The default weights (1/2 for the node itself and for its peer) are doubly stochastic
    in every round, and for n a power of two any L consecutive rounds average exactly, directed or
    not. For every n the union of the rounds of a period is connected.

    Parameters
    ----------
    n
        Number of nodes, at least 2.
    directed
        Whether node i only sends to ``i + 2^e``, instead of exchanging.

    Raises
    ------
    ValueError
        If `n` is below 2.

    References
    ----------
    Assran et al., "Stochastic gradient push" (2019), appendix A; Ying et al. (2021), Theorem 2.
    Undirected: Shi et al., "Finite-time convergent gossiping" (2016).

    Examples
    --------
    >>> pushes = one_peer_exponential(8)
    >>> [pushes.at(t).out_neighbors(0).tolist() for t in range(4)]
    [[1], [2], [4], [1]]
    >>> [one_peer_exponential(8, directed=False).at(t).out_neighbors(5).tolist() for t in range(3)]
    [[4], [7], [1]]
    """
    n = check_nodes(n, minimum=2)
    directed = bool(check_switch("directed", directed, auto=False))
    name = call_name("one_peer_exponential", n=n, directed=None if directed else False)
    check_edges(n * _n_offsets(n), "n", per="period")
    edges = [
        _offset_edges(n, 2**e) if directed else _exchange_edges(n, 2**e)
        for e in range(_n_offsets(n))
    ]
    return _sequence(n, edges, name, directed=directed)


@generator(family="exponential", examples=["p_peer_exponential:16,p=2"])
def p_peer_exponential(n: int, p: int) -> TopologySequence:
    """Return the p-peer exponential graph: node i sends to ``i + j (p + 1)^e mod n`` in round t.

    Here j = 1..p and e = t mod L, and the period is L = floor(log_{p+1}(n - 1)) + 1. Peers that
    coincide are merged, and a node is never its own peer, so a round has at most n p edges. With
    uniform weights every round is doubly stochastic, and for n a power of p + 1 any L consecutive
    rounds average exactly. With p = 1 it is :func:`one_peer_exponential`, with p = n - 1 the
    complete graph.

    Parameters
    ----------
    n
        Number of nodes, at least 2.
    p
        Number of peers per node and round, between 1 and n - 1.

    Raises
    ------
    ValueError
        If a number is out of range.

    References
    ----------
    Assran et al., "Stochastic gradient push" (2019), appendix A, and its code,
    NPeerDynamicDirectedExponentialGraph.

    Examples
    --------
    >>> pushes = p_peer_exponential(9, p=2)
    >>> [pushes.at(t).out_neighbors(0).tolist() for t in range(2)]
    [[1, 2], [3, 6]]
    """
    n = check_nodes(n, minimum=2)
    p = check_int("p", p, minimum=1, maximum=n - 1)
    distances = []
    while (step := (p + 1) ** len(distances)) < n:
        distances.append({j * step % n for j in range(1, p + 1)} - {0})
    check_edges(n * sum(map(len, distances)), "n", "p", per="period")
    edges = [
        np.concatenate([_offset_edges(n, distance) for distance in sorted(peers)])
        for peers in distances
    ]
    return _sequence(n, edges, call_name("p_peer_exponential", n=n, p=p), directed=True)


def _n_offsets(n: int) -> int:
    """Return floor(log2(n - 1)) + 1, the number of powers of two below n (0 for n = 1)."""
    return (n - 1).bit_length()


def _offset_edges(n: int, offset: int) -> np.ndarray:
    """Return the edges from every node i to ``i + offset mod n``."""
    return np.stack([np.arange(n), (np.arange(n) + offset) % n], axis=1)


def _exchange_edges(n: int, bit: int) -> np.ndarray:
    """Return the edges between nodes whose numbers differ only in this bit."""
    lower = np.flatnonzero((np.arange(n) & bit == 0) & (np.arange(n) + bit < n))
    return np.stack([lower, lower + bit], axis=1)


def _sequence(n: int, edges: list[np.ndarray], name: str, *, directed: bool) -> TopologySequence:
    """Return the periodic sequence of graphs with these edges."""
    graphs = (
        from_edges(pairs, n, name=f"{name}.at({t})", directed=directed)
        for t, pairs in enumerate(edges)
    )
    return periodic(n, graphs, name)
