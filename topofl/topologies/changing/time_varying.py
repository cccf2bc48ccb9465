"""Random graphs that are redrawn every round."""

from functools import partial

import numpy as np

from topofl._support.check import check_edges, check_int, check_nodes, check_probability
from topofl.topologies._common import call_name, independent_pairs, redrawn
from topofl.topologies._generator import generator
from topofl.topologies.static.classic import random_regular
from topofl.topology import Topology, TopologySequence, from_edges

__all__ = [
    "erdos_renyi_sequence",
    "random_in",
    "random_matching",
    "random_out",
    "random_regular_sequence",
]

_NUMBERS = 2**20
"""Random numbers in memory at a time."""


@generator(family="time-varying", examples=["erdos_renyi_sequence:16,p=0.15,seed=0"])
def erdos_renyi_sequence(n: int, p: float, *, seed: int) -> TopologySequence:
    """Return Erdos-Renyi graphs, redrawn every round: pairs are joined with probability p.

    The graphs are undirected. A round may be disconnected (most rounds are for p below about
    ``log(n) / n``) or have isolated nodes; over time all pairs are joined. Rounds are independent,
    and each is a pure function of (`seed`, t).

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    p
        In [0, 1]. About 1 / n gives each node one neighbor per round on average.
    seed
        Non-negative integer; not a generator, since round t must not depend on the rounds drawn
        before it.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or not an integer.

    References
    ----------
    Gilbert, "Random graphs" (1959), for the graph of one round.

    Examples
    --------
    >>> graphs = erdos_renyi_sequence(1000, 0.002, seed=0)  # 1000 edges expected
    >>> graphs.at(0).n_edges, graphs.at(1).n_edges
    (1004, 1046)
    """
    n = check_nodes(n, minimum=1)
    p = check_probability("p", p)
    seed = check_int("seed", seed, minimum=0)
    check_edges(p * n * (n - 1) / 2, "n", "p", per="round")
    name = call_name("erdos_renyi_sequence", n=n, p=p, seed=seed)
    return redrawn(n, partial(_draw_erdos_renyi, n, p), seed, name)


def _draw_erdos_renyi(n: int, p: float, rng: np.random.Generator, name: str) -> Topology:
    return from_edges(independent_pairs(np.array([n]), p, rng), n, name=name)


@generator(family="time-varying", examples=["random_matching:12,seed=0"])
def random_matching(n: int, *, seed: int) -> TopologySequence:
    """Return uniformly random perfect matchings, redrawn every round.

    Every node has one neighbor, the fewest with which every node exchanges. If n is odd, one node,
    drawn uniformly, is isolated. With weights of 1/2 in each pair (Metropolis-Hastings), the
    squared disagreement between nodes shrinks per round, in expectation, by ``(n - 2) / (2 (n -
    1))`` if n is even and by 1/2 if n is odd. Rounds are independent, and each is a pure function
    of (`seed`, t).

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    seed
        Non-negative integer; not a generator, since round t must not depend on the rounds drawn
        before it.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or not an integer.

    References
    ----------
    Boyd, Ghosh, Prabhakar and Shah, "Randomized gossip algorithms" (2006), for averaging in random
    pairs.

    Examples
    --------
    >>> pairs = random_matching(100, seed=0)
    >>> set(pairs.at(7).out_degrees.tolist())
    {1}
    """
    n = check_nodes(n, minimum=1)
    seed = check_int("seed", seed, minimum=0)
    name = call_name("random_matching", n=n, seed=seed)
    return redrawn(n, partial(_draw_matching, n), seed, name)


def _draw_matching(n: int, rng: np.random.Generator, name: str) -> Topology:
    order = rng.permutation(n)
    return from_edges(order[: n - n % 2].reshape(-1, 2), n, name=name)


@generator(family="time-varying", examples=["random_out:12,k=1,seed=0"])
def random_out(n: int, k: int, *, seed: int) -> TopologySequence:
    """Return random directed graphs, redrawn every round: each node sends to k others.

    The k nodes are drawn uniformly without replacement.

    Out-degrees are k, in-degrees vary around k. Rounds are independent, and each is a pure function
    of (`seed`, t). With uniform push weights, 1/(k + 1) each, the mixing matrices are
    column-stochastic, as push-sum requires.

    Parameters
    ----------
    n
        Number of nodes, at least 2.
    k
        Out-neighbors per node, between 1 and n - 1.
    seed
        Non-negative integer; not a generator, since round t must not depend on the rounds drawn
        before it.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or not an integer.

    References
    ----------
    Liu et al., "Decentralized directed collaboration for personalized federated learning" (DFedPGP,
    2024), Algorithm 1.

    Examples
    --------
    >>> pushes = random_out(100, k=10, seed=0)
    >>> set(pushes.at(7).out_degrees.tolist())
    {10}
    """
    return _random_peers("random_out", n, k, seed, receives=False)


@generator(family="time-varying", examples=["random_in:12,k=1,seed=0"])
def random_in(n: int, k: int, *, seed: int) -> TopologySequence:
    """Return random directed graphs, redrawn every round: each node receives from k others.

    The k nodes are drawn uniformly without replacement.

    In-degrees are k, out-degrees vary around k. Rounds are independent, and each is a pure function
    of (`seed`, t). With uniform pull weights, 1/(k + 1) each, the mixing matrices are
    row-stochastic; disagreement between nodes shrinks per round by about ``sqrt((1 - k / (n - 1)) /
    (k + 1))`` (root mean square).

    Parameters
    ----------
    n, seed
        As in :func:`random_out`.
    k
        In-neighbors per node, between 1 and n - 1.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or not an integer.

    References
    ----------
    Dai et al., "DisPFL" (2022), and the experiments of DFedPGP (2024), appendix B.

    Examples
    --------
    >>> pulls = random_in(100, k=10, seed=0)
    >>> set(pulls.at(7).in_degrees.tolist())
    {10}
    """
    return _random_peers("random_in", n, k, seed, receives=True)


@generator(family="time-varying", examples=["random_regular_sequence:12,k=3,seed=0"])
def random_regular_sequence(n: int, k: int, *, seed: int) -> TopologySequence:
    """Return random regular graphs, redrawn every round: connected, with k neighbors per node.

    The graph of each round is undirected and drawn as by :func:`topofl.topologies.random_regular`.
    Rounds are independent, and each is a pure function of (`seed`, t). With Metropolis-Hastings
    weights, 1/(k + 1) each, the mixing matrices are doubly stochastic.

    Parameters
    ----------
    n, seed
        As in :func:`random_out`.
    k
        Neighbors per node, between 1 and n - 1.

    Raises
    ------
    ValueError, TypeError, TopologyError
        As :func:`topofl.topologies.random_regular`, raised at once; if `seed` is not an integer.

    References
    ----------
    The undirected counterpart of the random peers of Dai et al., "DisPFL" (2022), for the baseline
    DFedAvgM of Liu et al., "DFedPGP" (2024), which does not specify its graph.

    Examples
    --------
    >>> graphs = random_regular_sequence(20, 5, seed=0)
    >>> set(graphs.at(7).out_degrees.tolist()), graphs.at(7).is_directed
    ({5}, False)
    """
    n = check_nodes(n, minimum=2)
    k = check_int("k", k, minimum=1)
    seed = check_int("seed", seed, minimum=0)
    name = call_name("random_regular_sequence", n=n, k=k, seed=seed)
    graphs = redrawn(n, partial(_draw_regular, n, k), seed, name)
    graphs.at(0)  # raises at once
    return graphs


def _draw_regular(n: int, k: int, rng: np.random.Generator, name: str) -> Topology:
    return Topology(random_regular(n, k, seed=rng).adjacency, name=name)


def _random_peers(function: str, n: int, k: int, seed: int, *, receives: bool) -> TopologySequence:
    """Return the sequence in which each node draws k senders or k receivers every round."""
    n = check_nodes(n, minimum=2)
    k = check_int("k", k, minimum=1, maximum=n - 1)
    seed = check_int("seed", seed, minimum=0)
    check_edges(n * k, "n", "k", per="round")
    name = call_name(function, n=n, k=k, seed=seed)
    return redrawn(n, partial(_draw_peers, n, k, receives), seed, name)


def _draw_peers(n: int, k: int, receives: bool, rng: np.random.Generator, name: str) -> Topology:
    nodes = np.repeat(np.arange(n), k)
    others = _distinct_others(n, k, rng).reshape(-1)
    pairs = np.stack([others, nodes] if receives else [nodes, others], axis=1)
    return from_edges(pairs, n, name=name, directed=True)


def _distinct_others(n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return (n, k) random nodes, distinct within each row i and other than i."""
    if k * k < n:
        # Few rows have repetitions. Redrawing whole rows keeps all choices equally likely.
        draws = rng.integers(n - 1, size=(n, k))
        while (repeated := (np.diff(np.sort(draws, axis=1), axis=1) == 0).any(axis=1)).any():
            draws[repeated] = rng.integers(n - 1, size=(int(repeated.sum()), k))
    else:
        rows = max(1, _NUMBERS // (n - 1))
        draws = np.empty((n, k), np.int64)
        for start in range(0, n, rows):  # blocks give the same random numbers as a single draw
            part = draws[start : start + rows]
            part[:] = np.argpartition(rng.random((len(part), n - 1)), k - 1, axis=1)[:, :k]
    return draws + (draws >= np.arange(n)[:, None])
