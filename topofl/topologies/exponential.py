"""Exponential graphs, graphs that average exactly in finite time, and random circulants.

The last, EquiTopo, have a rate of averaging that does not depend on the number of nodes.
"""

from collections.abc import Iterable
from functools import partial
from itertools import count

import numpy as np

from topofl._support.check import check_edges, check_int, check_nodes, check_share, check_switch
from topofl._support.seeding import Seed, stream
from topofl.topologies._generator import generator, periodic, redrawn, with_own_weights
from topofl.topology import Topology, TopologyError, TopologySequence, from_edges

__all__ = [
    "base_graph",
    "d_equistatic",
    "exponential",
    "hyper_hypercube",
    "od_equidyn",
    "one_peer_exponential",
    "ou_equidyn",
    "p_peer_exponential",
    "u_equistatic",
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
    Assran et al., "Stochastic gradient push" (2019), appendix A; Ying et al., "Exponential graph is
    provably efficient for decentralized deep training" (2021), Theorem 2. Undirected: Shi et al.,
    "Finite-time convergent gossiping" (2016).

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
    edges_of = _offset_edges if directed else _exchange_edges
    edges = [edges_of(n, 2**e) for e in range(_n_offsets(n))]
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
    Takezawa et al., "Beyond exponential graph" (2023), Algorithm 1.

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
    ends = np.broadcast_to(later[:, None], partners.shape)
    edges = np.stack([ends, partners], axis=-1).reshape(-1, 2)
    rounds = [(edges, np.full(len(edges), size / (blocks * size + count_later)))]
    idle = part[:, :, count_later:].reshape(groups, -1)
    full = idle.shape[1] // (k + 1) * (k + 1)
    return [*rounds, _cliques(idle[:, :full].reshape(-1, k + 1)), _cliques(idle[:, full:])]


def _sequence(n: int, rounds: list[Round]) -> TopologySequence:
    """Return the sequence of these rounds, or of one without edges if there are none."""
    return periodic([with_own_weights(*one, n) for one in rounds or [_joined([])]])


@generator(family="EquiTopo", examples=["d_equistatic:20,m=3,seed=0"], least=2)
def d_equistatic(n: int, m: int, *, seed: Seed) -> Topology:
    """Return the directed static EquiTopo graph, the mean of m basis graphs with random shifts u.

    In the basis graph of shift u, node i sends to ``i + u mod n`` with weight ``(n - 1) / n`` and
    has self-weight 1/n. The m shifts are drawn from 1..n-1 with replacement; equal ones add up, so
    degrees are at most m. The graph has its own weights, which are doubly stochastic. With ``m >= 8
    ln(2 n / p) / (3 rho^2)``, rho in (0, 1), one exchange reduces any disagreement to at most a
    fraction rho with probability at least ``1 - p``. The graph is connected unless n and all shifts
    have a common divisor above 1.

    Parameters
    ----------
    n
        Number of nodes, at least 2.
    m
        Number of basis graphs, at least 1.
    seed
        Non-negative integer or generator.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or not an integer.

    References
    ----------
    Song, Li, Jin, Shi, Yan, Yin and Yuan, "Communication-efficient topologies for decentralized
    learning with O(1) consensus rate" (2022), D-EquiStatic; the number of basis graphs as in its
    code.

    Examples
    --------
    >>> from topofl import mixing
    >>> W = mixing.own_weights(d_equistatic(100, m=20, seed=0))
    >>> W.is_doubly_stochastic, W.spectral_gap > 0.3
    (True, True)
    """
    return _circulant(n, _counts_of_shifts(n, m, seed) / m)


@generator(family="EquiTopo", examples=["u_equistatic:20,m=3,seed=0"], least=2)
def u_equistatic(n: int, m: int, *, seed: Seed) -> Topology:
    """Return the undirected static EquiTopo graph: :func:`d_equistatic` averaged with its reverse.

    Degrees are at most 2 m; the weights are symmetric and doubly stochastic. The worst-case
    reduction of disagreement by one exchange is at least as good as for the directed graph of the
    same shifts.

    Parameters
    ----------
    n, m, seed
        As in :func:`d_equistatic`.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or not an integer.

    References
    ----------
    Song et al., "Communication-efficient topologies for decentralized learning" (2022),
    U-EquiStatic.

    Examples
    --------
    >>> u_equistatic(7, m=1, seed=0)
    Topology('u_equistatic(n=7, m=1, seed=0)', n=7, edges=7, undirected)
    """
    counts = _counts_of_shifts(n, m, seed)
    return _circulant(n, (counts + np.roll(counts[::-1], 1)) / (2 * m))


@generator(family="EquiTopo", examples=["od_equidyn:12,seed=0"], least=2, always=["eta"])
def od_equidyn(n: int, *, seed: int, m: int | None = None, eta: float = 0.5) -> TopologySequence:
    """Return directed one-peer EquiTopo graphs, in which node i sends to ``i + v mod n``, v random.

    The mixing matrix is ``(1 - eta) I + eta A``, with A the basis graph of shift v
    (:func:`d_equistatic`): doubly stochastic, with one message per node. In expectation, a round
    reduces any squared disagreement to at most a fraction ``1 - 2 eta (1 - eta) (1 - rho)``, where
    rho is the fraction of (unsquared) disagreement that the static graph of the same shifts leaves.
    With all n - 1 shifts rho is 0, and the fraction is exactly ``(1 - eta)^2 + eta^2 (n - 2) / n``.

    Parameters
    ----------
    n
        Number of nodes, at least 2.
    seed
        Non-negative integer; not a generator, since round t must not depend on the rounds drawn
        before it.
    m
        Number of shifts to draw v from, those of ``d_equistatic(n, m, seed=seed)``; default: all of
        1..n-1.
    eta
        Weight of the basis graph, in (0, 1].

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or of the wrong type.

    References
    ----------
    Song et al., "Communication-efficient topologies for decentralized learning" (2022), OD-EquiDyn.

    Examples
    --------
    >>> pushes = od_equidyn(100, seed=0)
    >>> pushes.at(3).n_edges, set(pushes.at(3).out_degrees.tolist())
    (100, {1})
    """
    return _one_peer(n, seed, m, eta, directed=True)


@generator(family="EquiTopo", examples=["ou_equidyn:12,seed=0"], least=2, always=["eta"])
def ou_equidyn(n: int, *, seed: int, m: int | None = None, eta: float = 0.5) -> TopologySequence:
    """Return undirected one-peer EquiTopo graphs: matchings of nodes i and ``i + v mod n``.

    In order from a random node on, each unmatched node i is matched with ``i + v mod n`` if that
    node is unmatched too; the others are idle. At least n / 3 pairs are matched and give each other
    the weight ``eta (n - 1) / n``. In expectation, a round reduces any squared disagreement to at
    most a fraction ``1 - (4 / 3) eta (1 - eta) (1 - rho)``, where rho is the fraction of
    (unsquared) disagreement that the static graph of the same shifts leaves: 0 with all n - 1
    shifts.

    Parameters
    ----------
    n, seed, eta
        As in :func:`od_equidyn`.
    m
        Number of shifts to draw v from, those of ``u_equistatic(n, m, seed=seed)``; default: all of
        1..n-1.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or of the wrong type.

    References
    ----------
    Song et al., "Communication-efficient topologies for decentralized learning" (2022), OU-EquiDyn.

    Examples
    --------
    >>> pairs = ou_equidyn(100, seed=0)
    >>> int(pairs.at(3).out_degrees.max()), pairs.at(3).is_directed
    (1, False)
    """
    return _one_peer(n, seed, m, eta, directed=False)


def _unmatched_pairs(n: int, shift: int, rng: np.random.Generator) -> np.ndarray:
    """Return the greedy matching of nodes i and ``i + shift mod n`` from a random start."""
    # Shifts v and n - v have the same edges; with the shorter one, even blocks of v nodes are
    # paired with odd ones.
    step = min(shift, n - shift)
    start = rng.integers(n)
    first = np.arange(n - step)
    first = first[first // step % 2 == 0]
    return (start + np.stack([first, first + step], axis=1)) % n


def _one_peer(n: int, seed: int, m: int | None, eta: float, *, directed: bool) -> TopologySequence:
    """Return the sequence whose rounds have the edges of a random shift of the basis."""
    share = check_share("eta", eta)
    basis = np.arange(1, n) if m is None else _shifts(n, check_nodes(m, name="m"), seed)
    return redrawn(n, partial(_draw_one_peer, n, basis, share, directed), seed)


def _draw_one_peer(
    n: int, basis: np.ndarray, eta: float, directed: bool, rng: np.random.Generator
) -> Topology:
    shift = int(rng.choice(basis))
    edges = _offset_edges(n, shift) if directed else _unmatched_pairs(n, shift, rng)
    weights = np.full(len(edges), eta * (n - 1) / n)
    return with_own_weights(edges, weights, n, directed=directed)


def _shifts(n: int, m: int, seed: Seed) -> np.ndarray:
    return stream(seed, "graph").integers(1, n, size=m)


def _counts_of_shifts(n: int, m: int, seed: Seed) -> np.ndarray:
    """Return how often each of the shifts 0..n-1 is among m random ones."""
    m = check_nodes(m, name="m")
    check_edges(n * min(m, n - 1), "n", "m")
    return np.bincount(_shifts(n, m, seed), minlength=n)


def _circulant(n: int, shares: np.ndarray) -> Topology:
    """Return the graph with edges i to ``i + u mod n`` of weight ``shares[u] (n - 1) / n``."""
    shifts = np.flatnonzero(shares)
    edges = np.concatenate([_offset_edges(n, shift) for shift in shifts.tolist()])
    weights = np.repeat(shares[shifts] * (n - 1) / n, n)
    return with_own_weights(edges, weights, n, directed=True)
