"""Random graphs from network science, drawn once or redrawn every round."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from topofl._support.check import check_edges, check_int, check_probability, check_switch
from topofl._support.seeding import Seed, stream
from topofl.topologies._generator import cycle_edges, generator, redrawn
from topofl.topology import Topology, TopologyError, TopologySequence, from_edges

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "barabasi_albert",
    "erdos_renyi",
    "erdos_renyi_sequence",
    "random_in",
    "random_matching",
    "random_out",
    "random_regular",
    "random_regular_sequence",
    "small_world",
    "stochastic_block_model",
]


_TRIES = 100
"""Maximum number of draws until a graph is connected."""


@generator(family="random", examples=["erdos_renyi:30,p=0.12,seed=1"])
def erdos_renyi(n: int, p: float, *, seed: Seed) -> Topology:
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
    p = check_probability("p", p)
    rng = stream(seed, "graph")
    if p == 0 and n > 1:
        raise ValueError(f"`p` must be above 0, got {p:g}")
    check_edges(p * n * (n - 1) / 2, "n", "p")
    remedy = f"take `p` above log(n) / n = {np.log(n) / n:.3g}"
    return _connected(
        lambda: _draw_erdos_renyi(n, p, rng), f"erdos_renyi(n={n}, p={p}, seed={seed})", remedy
    )


@generator(family="random", examples=["small_world:24,k=4,p=0.15,seed=0"], least=3)
def small_world(n: int, k: int = 4, p: float = 0.1, *, seed: Seed) -> Topology:
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

    k = check_int("k", k, minimum=2, maximum=n - 1)
    p = check_probability("p", p)
    if k % 2:
        raise ValueError(f"`k` must be even, got {k}")
    check_edges(n * k / 2, "n", "k")
    rng = stream(seed, "graph")
    return _connected(
        lambda: _from_networkx(nx.watts_strogatz_graph(n, k, p, seed=_integer(rng)), n),
        f"small_world(n={n}, k={k}, p={p}, seed={seed})",
        "take a larger `k`",
    )


@generator(family="random", examples=["barabasi_albert:40,m=2,seed=0"], least=2)
def barabasi_albert(n: int, m: int = 2, *, seed: Seed) -> Topology:
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

    m = check_int("m", m, minimum=1, maximum=n - 1)
    check_edges(m * (n - m), "n", "m")
    return _from_networkx(nx.barabasi_albert_graph(n, m, seed=_integer(stream(seed, "graph"))), n)


@generator(
    family="random", examples=["stochastic_block_model:40,blocks=4,p_in=0.6,p_out=0.03,seed=0"]
)
def stochastic_block_model(
    n: int, blocks: int, *, p_in: float, p_out: float, seed: Seed, connected: bool = True
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
    blocks = check_int("blocks", blocks, minimum=1, maximum=n, maximum_name="n")
    p_in, p_out = check_probability("p_in", p_in), check_probability("p_out", p_out)
    if check_switch("connected", connected, auto=False) and blocks > 1 and p_out == 0:
        raise ValueError(
            "`p_out` must be above 0 to connect blocks, got 0; or pass connected=False"
        )
    check_edges(n * (p_in * (n / blocks - 1) + p_out * n) / 2, "n", "p_in", "p_out")
    rng = stream(seed, "graph")
    members = np.array_split(np.arange(n), blocks)

    def draw() -> Topology:
        edges = _block_edges(np.array([len(block) for block in members]), p_in, p_out, rng)
        return from_edges(edges, n, groups=[block.tolist() for block in members])

    if not connected:
        return draw()
    drawn = (
        f"stochastic_block_model(n={n}, blocks={blocks}, p_in={p_in}, p_out={p_out}, seed={seed})"
    )
    return _connected(draw, drawn, "take a larger `p_in` or `p_out`, or connected=False")


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


def _connected(draw: Callable[[], Topology], drawn: str, remedy: str) -> Topology:
    """Return the first connected draw, or raise ``TopologyError``."""
    for _ in range(_TRIES):
        graph = draw()
        if graph.is_connected:
            return graph
    raise TopologyError(f"none of {_TRIES} draws of {drawn} was connected; {remedy}")


def _from_networkx(graph: "nx.Graph", n: int) -> Topology:
    return from_edges(np.array(graph.edges, dtype=np.int64).reshape(-1, 2), n)


def _integer(rng: np.random.Generator) -> int:
    """Return an integer seed: networkx is much faster with Python's generator than numpy's."""
    return int(rng.integers(2**63))


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
    p = check_probability("p", p)
    check_edges(p * n * (n - 1) / 2, "n", "p", per="round")
    return redrawn(n, partial(_draw_erdos_renyi, n, p), seed)


def _draw_erdos_renyi(n: int, p: float, rng: np.random.Generator) -> Topology:
    return from_edges(independent_pairs(np.array([n]), p, rng), n)


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
    return redrawn(n, partial(_draw_matching, n), seed)


def _draw_matching(n: int, rng: np.random.Generator) -> Topology:
    order = rng.permutation(n)
    return from_edges(order[: n - n % 2].reshape(-1, 2), n)


@generator(family="time-varying", examples=["random_out:12,k=1,seed=0"], least=2)
def random_out(n: int, k: int, *, seed: int) -> TopologySequence:
    """Return random directed graphs, redrawn every round: each node sends to k others.

    The k nodes are drawn uniformly without replacement.

    Out-degrees are k, in-degrees vary around k. Rounds are independent, and each is a pure function
    of (`seed`, t). With uniform push weights, 1/(k + 1) each, the mixing matrices are
    column-stochastic, as push-sum requires. With the default weights of methods that average what
    they receive, such as :func:`topofl.algorithms.dsgd`, this is Epidemic Learning in its local
    form, EL-Local: a node averages its model with all that it receives, however many these are.

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
    2024), Algorithm 1; de Vos, Farhadkhani, Guerraoui, Kermarrec, Pires and Sharma, "Epidemic
    learning: boosting decentralized learning with randomized communication" (NeurIPS 2023).

    Examples
    --------
    >>> pushes = random_out(100, k=10, seed=0)
    >>> set(pushes.at(7).out_degrees.tolist())
    {10}
    """
    return _random_peers(n, k, seed, receives=False)


@generator(family="time-varying", examples=["random_in:12,k=1,seed=0"], least=2)
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
    return _random_peers(n, k, seed, receives=True)


@generator(family="time-varying", examples=["random_regular_sequence:12,k=3,seed=0"], least=2)
def random_regular_sequence(n: int, k: int, *, seed: int) -> TopologySequence:
    """Return random regular graphs, redrawn every round: connected, with k neighbors per node.

    The graph of each round is undirected and drawn as by :func:`topofl.topologies.random_regular`.
    Rounds are independent, and each is a pure function of (`seed`, t). With Metropolis-Hastings
    weights, 1/(k + 1) each, the mixing matrices are doubly stochastic. D-SGD over them is Epidemic
    Learning with an oracle, EL-Oracle; its local form is that over :func:`random_out`.

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
    DFedAvgM of Liu et al., "DFedPGP" (2024), which does not specify its graph; de Vos, Farhadkhani,
    Guerraoui, Kermarrec, Pires and Sharma, "Epidemic learning" (NeurIPS 2023).

    Examples
    --------
    >>> graphs = random_regular_sequence(20, 5, seed=0)
    >>> set(graphs.at(7).out_degrees.tolist()), graphs.at(7).is_directed
    ({5}, False)
    """
    k = check_int("k", k, minimum=1)
    graphs = redrawn(n, partial(_draw_regular, n, k), seed)
    graphs.at(0)  # raises at once
    return graphs


def _draw_regular(n: int, k: int, rng: np.random.Generator) -> Topology:
    return random_regular(n, k, seed=rng)


def _random_peers(n: int, k: int, seed: int, *, receives: bool) -> TopologySequence:
    """Return the sequence in which each node draws k senders or k receivers every round."""
    k = check_int("k", k, minimum=1, maximum=n - 1)
    check_edges(n * k, "n", "k", per="round")
    return redrawn(n, partial(_draw_peers, n, k, receives), seed)


def _draw_peers(n: int, k: int, receives: bool, rng: np.random.Generator) -> Topology:
    nodes = np.repeat(np.arange(n), k)
    others = _distinct_others(n, k, rng).reshape(-1)
    pairs = np.stack([others, nodes] if receives else [nodes, others], axis=1)
    return from_edges(pairs, n, directed=True)


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


@generator(family="random", examples=["random_regular:24,k=3,seed=0"], least=2)
def random_regular(n: int, k: int, *, seed: Seed) -> Topology:
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
    k = check_int("k", k, minimum=1, maximum=n - 1, maximum_name="n-1")
    if n * k % 2:
        raise TopologyError(
            f"`n` * `k` must be even, got n={n} and k={k}: a regular graph has n k / 2 edges"
        )
    if k == 1 and n > 2:
        raise TopologyError(f"`k` must be at least 2 to connect n={n} nodes, got 1")
    check_edges(n * max(k, n - k if 2 * k >= n else 0) / 2, "n", "k")
    rng = stream(seed, "graph")
    return _connected(
        lambda: from_edges(_regular_edges(n, k, rng), n),
        f"random_regular(n={n}, k={k}, seed={seed})",
        "use another `seed` or `k`",
    )


def _regular_edges(n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return (E, 2) edges of a random k-regular graph, connected if k is 2 or at least n / 2."""
    import networkx as nx

    if k == 2:
        return cycle_edges(rng.permutation(n))
    draw = partial(nx.random_regular_graph, n=n, seed=_integer(rng))
    if 2 * k < n:
        return np.array(draw(k).edges)
    # The complement of a sparse graph, since drawing dense graphs directly hardly ever succeeds.
    absent = nx.to_numpy_array(draw(n - 1 - k), nodelist=range(n))
    return np.argwhere(np.triu(1 - absent, 1))


def independent_pairs(sizes: np.ndarray, p: float, rng: np.random.Generator) -> np.ndarray:
    """Return (E, 2) node pairs within blocks, each drawn independently with probability p.

    Blocks of the given sizes contain consecutive nodes; a single block is G(n, p). The number of
    pairs is drawn first, then the pairs, so time and memory are linear in the result.
    """
    ends = np.cumsum(sizes * (sizes - 1) // 2)
    if ends[-1] == 0:
        return np.zeros((0, 2), np.int64)
    drawn = rng.choice(ends[-1], rng.binomial(ends[-1], p), replace=False, shuffle=False)
    block = np.searchsorted(ends, drawn, side="right")
    position = drawn - np.concatenate([[0], ends])[block]
    # Pair (i, j), i > j, has position i (i - 1) / 2 + j. Roots of integers below 2^53 are exact
    # enough for the floor.
    i = (1 + np.sqrt(1 + 8 * position)).astype(np.int64) // 2
    start = np.concatenate([[0], np.cumsum(sizes)])[block]
    return start[:, None] + np.stack([i, position - i * (i - 1) // 2], axis=1)
