"""EquiTopo: random circulant graphs whose averaging rate is independent of the number of nodes."""

from collections.abc import Callable
from functools import partial

import numpy as np

from topofl._support.check import check_edges, check_nodes, check_positive
from topofl._support.seeding import stream
from topofl.topologies._generator import generator, redrawn, with_own_weights
from topofl.topology import Topology, TopologySequence

__all__ = ["d_equistatic", "od_equidyn", "ou_equidyn", "u_equistatic"]


@generator(family="EquiTopo", examples=["d_equistatic:20,m=3,seed=0"], least=2)
def d_equistatic(n: int, m: int, *, seed: int | np.random.Generator) -> Topology:
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
    m = check_nodes(m, name="m")
    check_edges(n * min(m, n - 1), "n", "m")
    return _circulant(n, np.bincount(_shifts(n, m, seed), minlength=n) / m)


@generator(family="EquiTopo", examples=["u_equistatic:20,m=3,seed=0"], least=2)
def u_equistatic(n: int, m: int, *, seed: int | np.random.Generator) -> Topology:
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
    Song et al. (2022), U-EquiStatic.

    Examples
    --------
    >>> u_equistatic(7, m=1, seed=0)
    Topology('u_equistatic(n=7, m=1, seed=0)', n=7, edges=7, undirected)
    """
    m = check_nodes(m, name="m")
    check_edges(n * min(m, n - 1), "n", "m")
    counts = np.bincount(_shifts(n, m, seed), minlength=n)
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
    Song et al. (2022), OD-EquiDyn.

    Examples
    --------
    >>> pushes = od_equidyn(100, seed=0)
    >>> pushes.at(3).n_edges, set(pushes.at(3).out_degrees.tolist())
    (100, {1})
    """
    return _one_peer(n, seed, m, eta, _all_push, directed=True)


def _all_push(n: int, shift: int, rng: np.random.Generator) -> np.ndarray:
    """Return the edges from every node i to ``i + shift mod n``."""
    del rng
    return np.stack([np.arange(n), (np.arange(n) + shift) % n], axis=1)


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
    Song et al. (2022), OU-EquiDyn.

    Examples
    --------
    >>> pairs = ou_equidyn(100, seed=0)
    >>> int(pairs.at(3).out_degrees.max()), pairs.at(3).is_directed
    (1, False)
    """
    return _one_peer(n, seed, m, eta, _unmatched_pairs, directed=False)


def _unmatched_pairs(n: int, shift: int, rng: np.random.Generator) -> np.ndarray:
    """Return the greedy matching of nodes i and ``i + shift mod n`` from a random start."""
    # Shifts v and n - v have the same edges; with the shorter one, even blocks of v nodes are
    # paired with odd ones.
    step = min(shift, n - shift)
    start = rng.integers(n)
    first = np.arange(n - step)
    first = first[first // step % 2 == 0]
    return (start + np.stack([first, first + step], axis=1)) % n


Peers = Callable[[int, int, np.random.Generator], np.ndarray]
"""Function of n, a shift and a generator that returns (E, 2) edges."""


def _one_peer(
    n: int, seed: int, m: int | None, eta: float, peers: Peers, *, directed: bool
) -> TopologySequence:
    """Return the sequence whose rounds have the edges `peers` for a random shift of the basis."""
    eta = _check_share("eta", eta)
    m = None if m is None else check_nodes(m, name="m")
    basis = np.arange(1, n) if m is None else _shifts(n, m, seed)
    return redrawn(n, partial(_draw_one_peer, n, basis, eta, peers, directed), seed)


def _draw_one_peer(
    n: int, basis: np.ndarray, eta: float, peers: Peers, directed: bool, rng: np.random.Generator
) -> Topology:
    edges = peers(n, int(rng.choice(basis)), rng)
    weights = np.full(len(edges), eta * (n - 1) / n)
    return with_own_weights(edges, weights, n, directed=directed)


def _check_share(name: str, value: float) -> float:
    """Return a number in (0, 1], or raise."""
    share = check_positive(name, value)
    if share > 1:
        raise ValueError(f"`{name}` must be above 0 and at most 1, got {share:g}")
    return share


def _shifts(n: int, m: int, seed: int | np.random.Generator) -> np.ndarray:
    return stream(seed, "graph").integers(1, n, size=m)


def _circulant(n: int, shares: np.ndarray) -> Topology:
    """Return the graph with edges i to ``i + u mod n`` of weight ``shares[u] (n - 1) / n``."""
    shifts = np.flatnonzero(shares)
    nodes = np.arange(n)
    receivers = (nodes + shifts[:, None]) % n
    edges = np.stack([np.broadcast_to(nodes, receivers.shape), receivers], axis=-1).reshape(-1, 2)
    weights = np.repeat(shares[shifts] * (n - 1) / n, n)
    return with_own_weights(edges, weights, n, directed=True)
