"""Exponential graphs, and graphs that average exactly in finite time."""

from collections.abc import Iterable
from itertools import count

import numpy as np

from topofl._support.check import check_edges, check_int, check_switch
from topofl.topologies._generator import generator, periodic, with_own_weights
from topofl.topology import Topology, TopologyError, TopologySequence, from_edges

__all__ = [
    "base_graph",
    "exponential",
    "hyper_hypercube",
    "one_peer_exponential",
    "p_peer_exponential",
]


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
    directed = bool(check_switch("directed", directed, auto=False))
    check_edges(n * _n_offsets(n), "n")
    edges = [_offset_edges(n, 2**e) for e in range(_n_offsets(n))]
    return from_edges(np.concatenate([np.zeros((0, 2), np.int64), *edges]), n, directed=directed)


@generator(family="exponential", examples=["one_peer_exponential:16"], least=2)
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
    directed = bool(check_switch("directed", directed, auto=False))
    check_edges(n * _n_offsets(n), "n", per="period")
    edges = [
        _offset_edges(n, 2**e) if directed else _exchange_edges(n, 2**e)
        for e in range(_n_offsets(n))
    ]
    return periodic([from_edges(pairs, n, directed=directed) for pairs in edges])


@generator(family="exponential", examples=["p_peer_exponential:16,p=2"], least=2)
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
    p = check_int("p", p, minimum=1, maximum=n - 1)
    distances = []
    while (step := (p + 1) ** len(distances)) < n:
        distances.append({j * step % n for j in range(1, p + 1)} - {0})
    check_edges(n * sum(map(len, distances)), "n", "p", per="period")
    edges = [
        np.concatenate([_offset_edges(n, distance) for distance in sorted(peers)])
        for peers in distances
    ]
    return periodic([from_edges(pairs, n, directed=True) for pairs in edges])


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


Round = tuple[np.ndarray, np.ndarray]
"""One round: (E, 2) undirected edges and their (E,) mixing weights."""


@generator(family="finite-time", examples=["base_graph:12,k=1"])
def base_graph(n: int, k: int) -> TopologySequence:
    """Return the Base-(k + 1) graph, which averages exactly in finite time for every n.

    Each node has at most k neighbors per round, and one period of rounds averages exactly.

    Each round is undirected and carries its mixing weights, which are symmetric and doubly
    stochastic; the product over one period (from its first round on) is J, all entries 1/n. The
    period is at most ``2 log_{k+1}(n) + 2``. It is the shorter of two constructions: the Simple
    Base-(k + 1) graph on all nodes, or s of these in parallel on ``n / s`` nodes each, followed by
    hyper-hypercubes on s nodes each, where s is the largest divisor of n without a prime factor
    above k + 1.

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    k
        Maximum number of neighbors per node and round, between 1 and n - 1 (1 for a single node).

    Raises
    ------
    ValueError
        If a number is out of range.

    References
    ----------
    Takezawa, Sato, Bao, Niwa and Yamada, "Beyond exponential graph: communication-efficient
    topologies for decentralized learning via finite-time convergence" (2023), Algorithms 2 and 3,
    Theorem 1.

    Examples
    --------
    >>> from topofl import mixing
    >>> graphs = base_graph(5, k=1)
    >>> graphs.period, max(graphs.at(t).out_degrees.max() for t in range(graphs.period)).item()
    (5, 1)
    >>> values = np.arange(5.0)
    >>> for t in range(graphs.period):
    ...     values = mixing.own_weights(graphs.at(t)) @ values
    >>> values.round(12).tolist()
    [2.0, 2.0, 2.0, 2.0, 2.0]
    """
    k = check_int("k", k, minimum=1, maximum=max(1, n - 1))
    check_edges(n * k / 2, "n", "k", per="round")
    groups = np.arange(n).reshape(_smooth_part(n, k + 1), -1)
    simple = _simple_base(np.arange(n)[None], k)
    split = _simple_base(groups, k) + _hyper_hypercubes(groups.T, k + 1)
    return _sequence(n, simple if len(simple) < len(split) else split)


@generator(family="finite-time", examples=["hyper_hypercube:12,k=2"])
def hyper_hypercube(n: int, k: int) -> TopologySequence:
    """Return the k-peer hyper-hypercube: per round, disjoint cliques of at most k + 1 nodes.

    With n = n_1 n_2 ... n_L, the product of the fewest possible factors up to k + 1 (ascending),
    round l joins nodes whose mixed-radix numbers differ only in digit l, with weights 1/n_l. The
    product over the period L is exactly J; ``L <= max(1, 2 log_{k+2}(n))``. For n a power of two
    and k = 1 it is the one-peer hypercube.

    Parameters
    ----------
    n
        Number of nodes, without a prime factor above k + 1.
    k
        Maximum number of neighbors per node and round, between 1 and n - 1 (1 for a single node).

    Raises
    ------
    ValueError
        If a number is out of range.
    TopologyError
        If `n` has a prime factor above k + 1; the message names the nearest valid numbers.

    References
    ----------
    Takezawa et al. (2023), Algorithm 1.

    Examples
    --------
    >>> graphs = hyper_hypercube(6, k=2)
    >>> [graphs.at(t).out_neighbors(0).tolist() for t in range(graphs.period)]
    [[1], [2, 4]]
    """
    k = check_int("k", k, minimum=1, maximum=max(1, n - 1))
    check_edges(n * k / 2, "n", "k", per="round")
    if _smooth_part(n, k + 1) < n:
        below, above = (
            next(m for m in count(n, way) if _smooth_part(m, k + 1) == m) for way in (-1, 1)
        )
        raise TopologyError(
            f"`n` must have no prime factor above k + 1 = {k + 1}, got {n}; the nearest are "
            f"{below} and {above}, or use base_graph"
        )
    return _sequence(n, _hyper_hypercubes(np.arange(n)[None], k + 1))


def _smooth_part(n: int, largest: int) -> int:
    """Return the largest divisor of n whose prime factors are all at most `largest`."""
    rest, factor = n, 2
    while factor <= min(largest, rest):
        if rest % factor:
            factor += 1
        else:
            rest //= factor
    return n // rest


def _fewest_factors(n: int, largest: int) -> list[int]:
    """Return the fewest factors in 2..`largest` with product n, ascending; none for n = 1."""
    divisors = np.flatnonzero(n % np.arange(1, n + 1) == 0) + 1
    fewest: dict[int, list[int]] = {1: []}
    for divisor in divisors[1:].tolist():
        last = [
            f
            for f in divisors[::-1].tolist()
            if 1 < f <= largest and divisor % f == 0 and divisor // f in fewest
        ]
        if last:
            fewest[divisor] = min(([*fewest[divisor // f], f] for f in last), key=len)
    return sorted(fewest[n])


def _cliques(members: np.ndarray) -> Round:
    """Return the round in which the nodes of each row are a clique that averages exactly."""
    size = members.shape[1]
    first, second = np.triu_indices(size, 1)
    edges = np.stack([members[:, first], members[:, second]], axis=-1).reshape(-1, 2)
    return edges, np.full(len(edges), 1 / max(size, 1))


def _joined(rounds: Iterable[Round]) -> Round:
    """Return the union of rounds that share no node."""
    edges, weights = zip((np.zeros((0, 2), np.int64), np.zeros(0)), *rounds, strict=True)
    return np.concatenate(edges), np.concatenate(weights)


def _hyper_hypercubes(nodes: np.ndarray, largest: int) -> list[Round]:
    """Return the rounds of hyper-hypercubes on each row of `nodes`, in parallel."""
    rounds = []
    stride = 1
    for size in _fewest_factors(nodes.shape[1], largest):
        digits = nodes.reshape(len(nodes), -1, size, stride)
        rounds.append(_cliques(np.moveaxis(digits, 2, 3).reshape(-1, size)))
        stride *= size
    return rounds


def _simple_base(nodes: np.ndarray, k: int) -> list[Round]:
    """Return the rounds of Simple Base-(k + 1) graphs on each row of `nodes`, in parallel.

    A row is split into parts V_1, V_2, ... of ``a_l (k + 1)^p_l`` nodes, one for each digit a_l > 0
    of its length in base k + 1. First each part averages internally. Then, in step l, every node of
    V_{l+1}, V_{l+2}, ... exchanges with one node of each of the a_l blocks of V_l. The weights make
    the mean over each block of V_l, and the mean over all later parts, equal to the mean over the
    row, so the blocks can finish on their own while later parts take their steps.
    """
    groups, n = nodes.shape
    if _smooth_part(n, k + 1) == n:
        return _hyper_hypercubes(nodes, k + 1)
    parts = _parts(nodes, k)
    within = [_hyper_hypercubes(part.reshape(groups, -1), k + 1) for part in parts]
    rounds = [
        _joined(part[t % len(part)] for part in within if part) for t in range(len(within[0]))
    ]
    # Blocks of one node, which only the last part has, are done: their part averages as a whole.
    finish = [
        _hyper_hypercubes(p.reshape(-1, p.shape[2] if p.shape[2] > 1 else p.shape[1]), k + 1)
        for p in parts
    ]
    last = len(parts) - 1
    for step in range(len(finish[0]) + 1):
        elapsed = [step - min(part + 1, last) for part in range(len(parts))]
        active = [
            own[s % len(own)] for own, s in zip(finish, elapsed, strict=True) if s >= 0 and own
        ]
        if step < last:
            later = np.concatenate([part.reshape(groups, -1) for part in parts[step + 1 :]], axis=1)
            active += _exchange(parts[step], later, k)
        rounds.append(_joined(active))
    return rounds


def _parts(nodes: np.ndarray, k: int) -> list[np.ndarray]:
    """Return the parts of the rows, largest first, each of shape (groups, blocks, (k + 1)^p)."""
    groups, rest = nodes.shape
    block = (k + 1) ** next(p for p in count() if (k + 1) ** (p + 1) > rest)
    parts = []
    start = 0
    while rest:
        digit, rest = divmod(rest, block)
        if digit:
            parts.append(nodes[:, start : start + digit * block].reshape(groups, digit, block))
        start += digit * block
        block //= k + 1
    return parts


def _exchange(part: np.ndarray, later: np.ndarray, k: int) -> list[Round]:
    """Return the exchange of `later` nodes with one node per block; other nodes form cliques."""
    groups, blocks, size = part.shape
    count_later = later.shape[1]
    partners = part[:, :, :count_later]
    edges = np.stack([np.broadcast_to(later[:, None], partners.shape), partners], axis=-1).reshape(
        -1, 2
    )
    rounds = [(edges, np.full(len(edges), size / (blocks * size + count_later)))]
    idle = part[:, :, count_later:].reshape(groups, -1)
    full = idle.shape[1] // (k + 1) * (k + 1)
    return [*rounds, _cliques(idle[:, :full].reshape(-1, k + 1)), _cliques(idle[:, full:])]


def _sequence(n: int, rounds: list[Round]) -> TopologySequence:
    """Return the sequence of these rounds, or of one without edges if there are none."""
    return periodic([with_own_weights(*one, n) for one in rounds or [_joined([])]])
