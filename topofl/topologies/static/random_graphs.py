"""Random graphs from network science, connected by default."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from topofl._support.check import (
    check_edges,
    check_int,
    check_nodes,
    check_probability,
    check_switch,
)
from topofl._support.seeding import stream
from topofl.topologies._common import call_name, independent_pairs
from topofl.topologies._generator import generator
from topofl.topology import Topology, TopologyError, from_edges

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["barabasi_albert", "erdos_renyi", "small_world", "stochastic_block_model"]

_TRIES = 100
"""Maximum number of draws until a graph is connected."""


@generator(family="random", examples=["erdos_renyi:30,p=0.12,seed=1"])
def erdos_renyi(n: int, p: float, *, seed: int | np.random.Generator) -> Topology:
    """Return a connected Erdos-Renyi graph: each pair is joined with probability p.

    Pairs are independent, given that the graph is connected: it is drawn up to 100 times until it
    is, which is likely if p is well above ``log(n) / n``. A draw takes time linear in the number of
    edges, not of pairs.

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    p
        Probability of an edge, in (0, 1].
    seed
        Integer or generator.

    Raises
    ------
    ValueError
        If a number is out of range.
    TopologyError
        If none of 100 draws was connected; the message names a sufficient p.

    References
    ----------
    Erdos and Renyi, "On random graphs I" (1959); Gilbert, "Random graphs" (1959), for independent
    edges.

    Examples
    --------
    >>> erdos_renyi(30, 0.3, seed=0).is_connected
    True
    """
    n = check_nodes(n, minimum=1)
    p = check_probability("p", p)
    name = call_name("erdos_renyi", n=n, p=p, seed=seed)
    rng = stream(seed, "graph")
    if p == 0 and n > 1:
        raise ValueError(f"`p` must be above 0, got {p:g}")
    check_edges(p * n * (n - 1) / 2, "n", "p")
    remedy = f"take `p` above log(n) / n = {np.log(n) / n:.3g}"
    sizes = np.array([n])
    return _connected(
        lambda: from_edges(independent_pairs(sizes, p, rng), n, name=name), name, remedy
    )


@generator(family="random", examples=["small_world:24,k=4,p=0.15,seed=0"])
def small_world(n: int, k: int = 4, p: float = 0.1, *, seed: int | np.random.Generator) -> Topology:
    """Return a connected Watts-Strogatz graph: a ring lattice, rewired with probability p.

    It has n k / 2 edges. For p = 0 it is the lattice, a circulant of offsets 1..k/2; for p = 1 it
    is close to a random graph.

    Parameters
    ----------
    n
        Number of nodes, at least 3.
    k
        Degree before rewiring, even and between 2 and n - 1.
    p
        In [0, 1].
    seed
        Integer or generator.

    Raises
    ------
    ValueError
        If a number is out of range.
    TopologyError
        If none of 100 draws was connected.

    References
    ----------
    Watts and Strogatz, "Collective dynamics of small-world networks" (1998).

    Examples
    --------
    >>> small_world(20, k=4, p=0.2, seed=0).n_edges
    40
    """
    import networkx as nx

    n = check_nodes(n, minimum=3)
    k = check_int("k", k, minimum=2, maximum=n - 1)
    p = check_probability("p", p)
    if k % 2:
        raise ValueError(f"`k` must be even, got {k}")
    check_edges(n * k / 2, "n", "k")
    name = call_name("small_world", n=n, k=k, p=p, seed=seed)
    rng = stream(seed, "graph")
    return _connected(
        lambda: _from_networkx(nx.watts_strogatz_graph(n, k, p, seed=_integer(rng)), n, name),
        name,
        "take a larger `k`",
    )


@generator(family="random", examples=["barabasi_albert:40,m=2,seed=0"])
def barabasi_albert(n: int, m: int = 2, *, seed: int | np.random.Generator) -> Topology:
    """Return a Barabasi-Albert graph, grown by preferential attachment of m edges per new node.

    It grows from a star of m + 1 nodes, so it is connected and has ``m (n - m)`` edges; degrees
    follow a power law with exponent 3.

    Parameters
    ----------
    n
        Number of nodes, at least 2.
    m
        Number of edges of each new node, between 1 and n - 1.
    seed
        Integer or generator.

    Raises
    ------
    ValueError
        If a number is out of range.

    References
    ----------
    Barabasi and Albert, "Emergence of scaling in random networks" (1999).

    Examples
    --------
    >>> barabasi_albert(20, m=2, seed=0).n_edges
    36
    """
    import networkx as nx

    n = check_nodes(n, minimum=2)
    m = check_int("m", m, minimum=1, maximum=n - 1)
    check_edges(m * (n - m), "n", "m")
    name = call_name("barabasi_albert", n=n, m=m, seed=seed)
    return _from_networkx(
        nx.barabasi_albert_graph(n, m, seed=_integer(stream(seed, "graph"))), n, name
    )


@generator(
    family="random", examples=["stochastic_block_model:40,blocks=4,p_in=0.6,p_out=0.03,seed=0"]
)
def stochastic_block_model(
    n: int,
    blocks: int,
    *,
    p_in: float,
    p_out: float,
    seed: int | np.random.Generator,
    connected: bool = True,
) -> Topology:
    """Return a stochastic block model, with edge probability p_in within blocks and p_out between.

    Pairs are independent, given that the graph is connected: it is drawn up to 100 times until it
    is. The blocks are the groups: consecutive nodes, with sizes that differ by at most 1. Without
    this condition a node in a block of size s has ``p_in (s - 1)`` neighbors inside its block and
    ``p_out (n - s)`` outside on average. A draw takes time and memory linear in the number of
    edges, not of pairs.

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    blocks
        Number of blocks, between 1 and n; 1 gives :func:`erdos_renyi`.
    p_in, p_out
        In [0, 1].
    seed
        Integer or generator.
    connected
        If False, the first draw is returned, connected or not.

    Raises
    ------
    ValueError, TypeError
        If a number is out of range; if `p_out` is 0 and several blocks must be connected.
    TopologyError
        If none of 100 draws was connected.

    References
    ----------
    Holland, Laskey and Leinhardt, "Stochastic blockmodels: first steps" (1983).

    Examples
    --------
    >>> graph = stochastic_block_model(100, 4, p_in=0.5, p_out=0.02, seed=0)
    >>> [len(group) for group in graph.groups]
    [25, 25, 25, 25]
    """
    n = check_nodes(n, minimum=1)
    blocks = check_int("blocks", blocks, minimum=1, maximum=n, maximum_name="n")
    p_in, p_out = check_probability("p_in", p_in), check_probability("p_out", p_out)
    if check_switch("connected", connected, auto=False) and blocks > 1 and p_out == 0:
        raise ValueError(
            "`p_out` must be above 0 to connect blocks, got 0; or pass connected=False"
        )
    check_edges(n * (p_in * (n / blocks - 1) + p_out * n) / 2, "n", "p_in", "p_out")
    shown = {"p_in": p_in, "p_out": p_out, "seed": seed, "connected": None if connected else False}
    name = call_name("stochastic_block_model", n=n, blocks=blocks, **shown)
    rng = stream(seed, "graph")
    members = np.array_split(np.arange(n), blocks)

    def draw() -> Topology:
        edges = _block_edges(np.array([len(block) for block in members]), p_in, p_out, rng)
        return from_edges(edges, n, name=name, groups=[block.tolist() for block in members])

    return (
        _connected(draw, name, "take a larger `p_in` or `p_out`, or connected=False")
        if connected
        else draw()
    )


def _block_edges(
    sizes: np.ndarray, p_in: float, p_out: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the (E, 2) edges of a block model; blocks contain consecutive nodes."""
    if len(sizes) == 1:
        return independent_pairs(sizes, p_in, rng)
    block_of = np.repeat(np.arange(len(sizes)), sizes)
    across = independent_pairs(np.array([sizes.sum()]), p_out, rng)  # also within blocks
    across = across[block_of[across[:, 0]] != block_of[across[:, 1]]]
    return np.concatenate([independent_pairs(sizes, p_in, rng), across])


def _connected(draw: Callable[[], Topology], name: str, remedy: str) -> Topology:
    """Return the first connected draw, or raise ``TopologyError``."""
    for _ in range(_TRIES):
        graph = draw()
        if graph.is_connected:
            return graph
    raise TopologyError(f"none of {_TRIES} draws of {name} was connected; {remedy}")


def _from_networkx(graph: "nx.Graph", n: int, name: str) -> Topology:
    return from_edges(np.array(graph.edges, dtype=np.int64).reshape(-1, 2), n, name=name)


def _integer(rng: np.random.Generator) -> int:
    """Return an integer seed: networkx is much faster with Python's generator than numpy's."""
    return int(rng.integers(2**63))
