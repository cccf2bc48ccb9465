"""Exponential graphs: neighbors at distances 1, 2, 4, 8, ... around the ring."""

import numpy as np

from topofl._check import check_int
from topofl.topologies._common import call_name
from topofl.topology import Topology, TopologySequence, from_edges

__all__ = ["exponential", "one_peer_exponential"]


def exponential(n: int, *, directed: bool = False) -> Topology:
    """Return the static exponential graph: node i is joined to ``i + 2^e mod n`` for e = 0..floor(log2(n - 1)).

    Undirected, each node has its offsets in both directions (equal ones merged): degree 14 at n = 100, 20 at n = 1000.
    Directed, node i sends to floor(log2(n - 1)) + 1 others; with uniform weights the mixing matrix is doubly
    stochastic, and for n a power of two its spectral gap is ``2 / (1 + log2 n)``.

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    directed
        Whether edges go only forwards. For n up to 3 both graphs are complete and so undirected.

    Raises
    ------
    ValueError
        If `n` is below 1.

    References
    ----------
    Ying et al., "Exponential graph is provably efficient for decentralized deep training" (2021), Proposition 1, for
    the gap. Undirected: Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), Figure 12.

    Examples
    --------
    >>> exponential(8, directed=True).out_neighbors(0).tolist()
    [1, 2, 4]
    >>> exponential(8).out_neighbors(0).tolist()
    [1, 2, 4, 6, 7]
    """
    n = check_int("n", n, minimum=1)
    edges = [_offset_edges(n, 2**e) for e in range(_n_offsets(n))]
    name = call_name("exponential", n=n, directed=True if directed else None)
    return from_edges(np.concatenate([np.zeros((0, 2), np.int64), *edges]), n, name=name, directed=directed)


def one_peer_exponential(n: int) -> TopologySequence:
    """Return the directed time-varying graph in which, in round t, node i sends to ``i + 2^(t mod L) mod n`` only.

    The period is L = floor(log2(n - 1)) + 1; each round has n edges. With uniform weights (1/2 kept, 1/2 sent) every
    round is doubly stochastic, and for n a power of two the product of L consecutive rounds is exact averaging.

    Parameters
    ----------
    n
        Number of nodes, at least 2.

    Raises
    ------
    ValueError
        If `n` is below 2.

    References
    ----------
    Assran et al., "Stochastic gradient push" (2019), appendix A; Ying et al. (2021), Theorem 2.

    Examples
    --------
    >>> pushes = one_peer_exponential(8)
    >>> [pushes.at(t).out_neighbors(0).tolist() for t in range(4)]
    [[1], [2], [4], [1]]
    """
    n = check_int("n", n, minimum=2)
    name = call_name("one_peer_exponential", n=n)
    rounds = tuple(
        from_edges(_offset_edges(n, 2**e), n, name=f"{name}.at({e})", directed=True) for e in range(_n_offsets(n))
    )
    return TopologySequence(n, rounds.__getitem__, name=name, period=len(rounds))


def _n_offsets(n: int) -> int:
    """Return floor(log2(n - 1)) + 1, the number of powers of two below n (0 for n = 1)."""
    return (n - 1).bit_length()


def _offset_edges(n: int, offset: int) -> np.ndarray:
    return np.stack([np.arange(n), (np.arange(n) + offset) % n], axis=1)
