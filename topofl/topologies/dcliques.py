"""D-Cliques: cliques that represent all classes, with a few edges between them."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from topofl._support.check import check_choice, check_int, shown
from topofl._support.seeding import stream
from topofl.topologies._generator import counts_of, generator
from topofl.topologies.cliques import (
    check_clique_size,
    checked_labels,
    complete_edges,
    greedy_groups,
    random_groups,
)
from topofl.topology import Topology, from_edges

__all__ = ["dcliques", "ideal_cliques"]


Groups = Sequence[np.ndarray]

MOST_PAIRS = 20_000_000
"""Maximum number of pairs of cliques to join: 6,300 cliques, 3 GB while the graph is built."""


@generator(
    family="D-Cliques",
    examples=[
        "dcliques:50,clique_size=5,inter=ring,seed=0",
        "dcliques:50,clique_size=5,inter=fully_connected,seed=0",
        "dcliques:81,clique_size=3,inter=fractal,seed=0",
        "dcliques:50,clique_size=5,inter=small_world,seed=0",
    ],
    least=2,
    always=["clique_size", "inter"],
)
def dcliques(
    label_counts: Any = None,
    *,
    n: int | None = None,
    label_shares: Any = None,
    clique_size: int = 10,
    inter: str = "fully_connected",
    cliques: str = "greedy_swap",
    steps: int = 1000,
    weighting: str = "uniform",
    distance: str = "l1",
    group_size: int | None = None,
    seed: int | np.random.Generator,
) -> Topology:
    """Return D-Cliques: sparsely connected cliques that each represent all classes.

    ``groups`` contains the cliques.

    Nodes are assigned to cliques by :func:`topofl.topologies.greedy_swap`, all pairs inside a
    clique are joined, and edges between the q cliques are added by one of four schemes. Each edge
    ends at a node of its clique that has the fewest edges to other cliques so far, so these loads
    differ by at most one inside a clique (for small_world, before duplicate edges are merged). In a
    fractal, the edges between groups end at the least loaded nodes of the whole group; the loads in
    a group also differ by at most one if all cliques have the same size and q is a power of
    `group_size`. Nodes of a smaller clique or group start with other loads.

    ================= ================================================== =======================
    `inter`           joined cliques                                     edges between cliques
    ================= ================================================== =======================
    fully_connected   every pair                                         q (q - 1) / 2
    ring              each and the next (one edge if q = 2)              q
    fractal           every pair in a group of `group_size` consecutive  n = 1000: 450 + 45
                      cliques, then every pair of groups in a group of
                      groups, and so on
    small_world       each and those 2^e and 2^e + 1 before and after it at most 4 q ceil(log2 q)
                      in ring order, for e below ceil(log2 q)
    ================= ================================================== =======================

    With cliques of 10 the mean degree is 9.9, 9.2, 9.9 and 12.1 at n = 100, and 18.9, 9.2, 9.99 and
    14.6 at n = 1000: small_world saves edges only from about 50 cliques on. One clique (q = 1) is
    the complete graph. For 10,000 cliques, fully_connected would need 50 million edges between them
    and is refused; the other schemes take seconds.

    See the page :doc:`D-Cliques, from paper to code </docs/papers/dcliques>`.

    Parameters
    ----------
    label_counts
        (n, classes) array of non-negative integers, or an object with such a ``label_counts``, for
        example a Partition.
    n
        Alternative to `label_counts`: n nodes of one class each; node i has class ``i %
        clique_size``.
    label_shares
        Alternative to `label_counts`: the label distributions that nodes report, as in
        :func:`topofl.topologies.greedy_swap`.
    clique_size
        Between 2 and n; if it does not divide n, the last clique has the remaining nodes, possibly
        only one.
    inter
        ``"fully_connected"``, ``"ring"``, ``"fractal"`` or ``"small_world"``. Ties between nodes
        with the fewest edges are broken at random, except that ``"fully_connected"`` takes the
        first node of the clique.
    cliques
        ``"greedy_swap"`` or ``"random"``.
    steps, weighting, distance
        Arguments of :func:`topofl.topologies.greedy_swap`.
    group_size
        Only for ``"fractal"``: cliques per group, at least 2; default `clique_size`.
    seed
        Integer or generator.

    Raises
    ------
    TypeError
        If the counts are not integers.
    ValueError
        If the counts have the wrong shape, are negative, or leave a node without data; if another
        argument is out of range; if not exactly one of `label_counts`, `n` and `label_shares` is
        given; if ``"fully_connected"`` would join more than 20 million pairs of cliques (from 6,326
        cliques on).

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques: Compensating for Data Heterogeneity with Topology in
    Decentralized Federated Learning" (2022), sections III-B and III-C.

    Examples
    --------
    >>> dcliques(n=100, inter="ring", seed=0)
    Topology("dcliques(n=100, clique_size=10, inter='ring', seed=0)", n=100, edges=460, undirected)
    """
    labels, clique_size = checked_labels(
        label_counts, n, label_shares, clique_size, weighting, distance
    )
    join = scheme(inter, group_size, clique_size, len(labels.shares))
    rng = stream(seed, "graph")
    if check_choice("cliques", cliques, ["greedy_swap", "random"]) == "random":
        groups = random_groups(len(labels.shares), clique_size, rng)
    else:
        groups = greedy_groups(labels, clique_size, steps, distance, rng)
    return joined(groups, len(labels.shares), join(groups, rng))


def joined(groups: Groups, n: int, between: np.ndarray) -> Topology:
    """Return the graph of these cliques with these edges between them."""
    edges = np.concatenate([complete_edges(groups), between])
    return from_edges(edges, n, groups=[group.tolist() for group in groups])


Join: TypeAlias = Callable[[Groups, np.random.Generator], np.ndarray]
"""Function of (groups, rng) that returns (E, 2) edges between groups."""


def no_edges(groups: Groups, rng: np.random.Generator) -> np.ndarray:
    """Return no edges, which leaves cliques disconnected."""
    del groups, rng
    return np.zeros((0, 2), np.int64)


def scheme(inter: str, group_size: int | None, clique_size: int, n: int) -> Join:
    """Return the function that joins the cliques of n nodes by a scheme, or raise."""
    size = clique_size if group_size is None else check_int("group_size", group_size, minimum=2)
    schemes = {
        "fully_connected": _fully_connected,
        "ring": _ring,
        "fractal": partial(_fractal, group_size=size),
        "small_world": _small_world,
    }
    join = schemes[check_choice("inter", inter, schemes)]
    if group_size is not None and inter != "fractal":
        raise ValueError(
            f"`group_size` must be left out unless inter='fractal', got {group_size} and "
            f"inter={shown(inter)}"
        )
    _check_pairs(inter, -(-n // clique_size))
    return join


def _check_pairs(inter: str, q: int) -> None:
    """Raise ``ValueError`` if there are too many pairs of cliques to join."""
    pairs = q * (q - 1) // 2
    if inter == "fully_connected" and pairs > MOST_PAIRS:
        raise ValueError(
            f"`inter` must not be 'fully_connected' for {q:,} cliques, which would be joined by "
            f"{pairs:,} edges, above the limit of {MOST_PAIRS:,}; use 'ring', 'fractal' or "
            "'small_world', or a larger `clique_size`"
        )


def _fully_connected(groups: Groups, rng: np.random.Generator) -> np.ndarray:
    """Join all pairs of groups; ties go to the first node."""
    del rng
    pairs = np.stack(np.triu_indices(len(groups), 1), axis=1)
    return _join(groups, pairs, _no_load(groups), None)


def _ring(groups: Groups, rng: np.random.Generator) -> np.ndarray:
    """Join consecutive groups.

    The two edges of a group end at different nodes if it has at least two nodes.
    """
    n_edges = len(groups) if len(groups) > 2 else len(groups) - 1
    starts = np.arange(n_edges)
    return _join(
        groups, np.stack([starts, (starts + 1) % len(groups)], axis=1), _no_load(groups), rng
    )


def _small_world(groups: Groups, rng: np.random.Generator) -> np.ndarray:
    """Join each group to those at distance 2^e and 2^e + 1; a pair may be joined twice."""
    q = len(groups)
    offsets = [
        sign * (2**e + k) for e in range((q - 1).bit_length()) for k in (0, 1) for sign in (-1, 1)
    ]
    starts = np.repeat(np.arange(q), len(offsets))
    ends = (starts + np.tile(np.array(offsets, dtype=np.int64), q)) % q
    pairs = np.stack([starts, ends], axis=1)[starts != ends]
    return _join(groups, pairs, _no_load(groups), rng)


def _fractal(groups: Groups, rng: np.random.Generator, *, group_size: int) -> np.ndarray:
    """Join all pairs in each batch of `group_size` groups, merge the batches, and repeat."""
    loads = _no_load(groups)
    edges = [np.zeros((0, 2), np.int64)]
    while len(groups) > 1:
        batches = [
            range(k, min(k + group_size, len(groups))) for k in range(0, len(groups), group_size)
        ]
        pairs = np.array(
            [pair for batch in batches for pair in combinations(batch, 2)], np.int64
        ).reshape(-1, 2)
        edges.append(_join(groups, pairs, loads, rng))
        groups = [np.concatenate([groups[k] for k in batch]) for batch in batches]
    return np.concatenate(edges)


def _no_load(groups: Groups) -> np.ndarray:
    return np.zeros(sum(len(group) for group in groups), np.int64)


def _join(
    groups: Groups, pairs: np.ndarray, loads: np.ndarray, rng: np.random.Generator | None
) -> np.ndarray:
    """Return an edge between the least loaded nodes of each pair of groups, and update `loads`.

    The choices in a group depend only on its own loads, so each group makes all its choices at
    once.
    """
    sides = pairs.reshape(-1)
    ends = np.empty_like(sides)
    turns = np.split(
        np.argsort(sides, kind="stable"), np.cumsum(np.bincount(sides, minlength=len(groups)))[:-1]
    )
    for group, turn in zip(groups, turns, strict=True):
        if len(turn):
            ends[turn] = _least_loaded(group, len(turn), loads, rng)
    return ends.reshape(-1, 2)


def _least_loaded(
    group: np.ndarray, k: int, loads: np.ndarray, rng: np.random.Generator | None
) -> np.ndarray:
    """Return k nodes of a group, each the least loaded at its turn; ties are broken at random.

    A node with load l gets a ticket for each of the loads l, l + 1, ...; the k lowest tickets win,
    in random order among equals.
    """
    starts = loads[group]
    tickets = starts.max() + -(-k // len(group)) - starts  # up to a load that certainly suffices
    owners = np.repeat(np.arange(len(group)), tickets)
    levels = np.arange(len(owners)) + (starts - np.cumsum(tickets) + tickets)[owners]
    ties = owners if rng is None else rng.random(len(owners))
    chosen = group[owners[np.lexsort((ties, levels))[:k]]]
    np.add.at(loads, chosen, 1)
    return chosen


@generator(family="D-Cliques", examples=["ideal_cliques:50,seed=0"], least=2)
def ideal_cliques(
    label_counts: Any = None,
    clique_size: int | None = None,
    *,
    n: int | None = None,
    inter: str | None = None,
    seed: int | np.random.Generator,
) -> Topology:
    """Return cliques with evenly distributed classes; ``groups`` contains them.

    Every node must have a single class. The nodes, shuffled and sorted by class, are dealt in turn
    to q = ceil(n / clique_size) cliques. Any two cliques thus differ by at most one node in size,
    and by at most one node of each class; if q divides the number of nodes of each class, every
    clique has the global label distribution and skew 0. If all cliques have the same size, no
    cliques of that size have a lower sum of skews, since the distance of each class is smallest if
    it is distributed evenly. With as many cliques as nodes of each class, each clique contains
    every class once.

    Parameters
    ----------
    label_counts
        (n, classes) array of non-negative integers, one class per node, or an object with such a
        ``label_counts``, for example a Partition.
    clique_size
        Maximum size, between 2 and n; default: the number of classes that nodes have (10 if only
        `n` is given), clipped to this range. Unlike in :func:`topofl.topologies.greedy_swap`, no
        clique takes the remaining nodes.
    n
        Alternative to `label_counts`: n nodes; node i has class ``i % clique_size``.
    inter
        Scheme that joins the cliques, as in :func:`topofl.topologies.dcliques`; default: none.
    seed
        Integer or generator.

    Raises
    ------
    TypeError
        If the counts are not integers.
    ValueError
        If the counts have the wrong shape, are negative, or leave a node without data; if a node
        has several classes; if `clique_size` or `inter` is out of range; if not exactly one of
        `label_counts` and `n` is given.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), and the simulator of its authors, which has a
    construction of this name.

    Examples
    --------
    >>> graph = ideal_cliques(n=100, clique_size=10, seed=0)
    >>> sorted(node % 10 for node in graph.groups[0])
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    if label_counts is None and n is not None and clique_size is not None:
        check_clique_size(clique_size, n)
    counts = counts_of(label_counts, n, classes=10 if clique_size is None else clique_size)
    if len(counts) < 2:
        raise ValueError(
            f"`label_counts` must have at least 2 nodes, got {len(counts)}; cliques need two"
        )
    classes = _single_classes(counts)
    if clique_size is None:
        size = min(max(len(np.unique(classes)), 2), len(counts))
        return ideal_cliques(label_counts, size, n=n, inter=inter, seed=seed)
    clique_size = check_clique_size(clique_size, len(counts))
    join = no_edges if inter is None else scheme(inter, None, clique_size, len(counts))
    rng = stream(seed, "graph")
    groups = _dealt(classes, -(-len(counts) // clique_size), rng)
    return joined(groups, len(counts), join(groups, rng))


def _single_classes(counts: np.ndarray) -> np.ndarray:
    """Return the (n,) classes, or raise if a node has several."""
    several = np.flatnonzero((counts > 0).sum(axis=1) > 1)
    if len(several):
        raise ValueError(
            f"`label_counts` must give each node one class, node {several[0]} has "
            f"{(counts[several[0]] > 0).sum()} ({len(several)} such nodes); use greedy_swap for "
            "nodes of several classes"
        )
    return counts.argmax(axis=1)


def _dealt(classes: np.ndarray, q: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return q groups to which nodes are dealt in turn, class by class in random order."""
    shuffled = rng.permutation(len(classes))
    rank = rng.permutation(int(classes.max()) + 1)
    order = shuffled[np.argsort(rank[classes[shuffled]], kind="stable")]
    return [order[k::q] for k in range(q)]
