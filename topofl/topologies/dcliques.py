"""D-Cliques: cliques that represent all classes, with a few edges between them.

The cliques are found by one algorithm for all nodes, or by leaders who know what gossip tells them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from topofl._support.check import check_choice, check_int, shown
from topofl._support.public import public
from topofl._support.seeding import Seed, stream
from topofl.topologies._generator import counts_of, generator
from topofl.topologies.cliques import (
    Clique,
    Labels,
    check_clique_size,
    checked_labels,
    cliques_of,
    greedy_groups,
    improving_swaps,
    joined,
    random_groups,
    swap_steps,
)
from topofl.topology import Topology, need_topology

__all__ = [
    "dcliques",
    "decentralized_greedy_swap",
    "decentralized_greedy_swap_trace",
    "ideal_cliques",
]


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
    seed: Seed,
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
    labels, size = checked_labels(label_counts, n, label_shares, clique_size, weighting, distance)
    join = _scheme(inter, group_size, size, len(labels[0]))
    rng = stream(seed, "graph")
    if check_choice("cliques", cliques, ["greedy_swap", "random"]) == "random":
        groups = random_groups(len(labels[0]), size, rng)
    else:
        groups = greedy_groups(labels, size, steps, distance, rng)
    return joined(groups, join(groups, rng))


Join: TypeAlias = Callable[[Groups, np.random.Generator], np.ndarray]
"""Function of (groups, rng) that returns (E, 2) edges between groups."""


def _scheme(inter: str, group_size: int | None, clique_size: int, n: int) -> Join:
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
    q = -(-n // clique_size)
    pairs = q * (q - 1) // 2
    if inter == "fully_connected" and pairs > MOST_PAIRS:
        raise ValueError(
            f"`inter` must not be 'fully_connected' for {q:,} cliques, which would be joined by "
            f"{pairs:,} edges, above the limit of {MOST_PAIRS:,}; use 'ring', 'fractal' or "
            "'small_world', or a larger `clique_size`"
        )
    return join


def _fully_connected(groups: Groups, rng: np.random.Generator) -> np.ndarray:
    """Join all pairs of groups; ties go to the first node."""
    del rng
    return _join(groups, np.stack(np.triu_indices(len(groups), 1), axis=1), None)


def _ring(groups: Groups, rng: np.random.Generator) -> np.ndarray:
    """Join consecutive groups, by edges that end at different nodes of a group."""
    starts = np.arange(len(groups) if len(groups) > 2 else len(groups) - 1)
    return _join(groups, np.stack([starts, (starts + 1) % len(groups)], axis=1), rng)


def _small_world(groups: Groups, rng: np.random.Generator) -> np.ndarray:
    """Join each group to those at distance 2^e and 2^e + 1; a pair may be joined twice."""
    q = len(groups)
    offsets = [
        sign * (2**e + k) for e in range((q - 1).bit_length()) for k in (0, 1) for sign in (-1, 1)
    ]
    starts = np.repeat(np.arange(q), len(offsets))
    ends = (starts + np.tile(np.array(offsets, dtype=np.int64), q)) % q
    return _join(groups, np.stack([starts, ends], axis=1)[starts != ends], rng)


def _fractal(groups: Groups, rng: np.random.Generator, *, group_size: int) -> np.ndarray:
    """Join all pairs in each batch of `group_size` groups, merge the batches, and repeat."""
    loads = np.zeros(sum(len(group) for group in groups), np.int64)
    edges = [np.zeros((0, 2), np.int64)]
    while len(groups) > 1:
        starts = range(0, len(groups), group_size)
        batches = [range(k, min(k + group_size, len(groups))) for k in starts]
        pairs = [pair for batch in batches for pair in combinations(batch, 2)]
        edges.append(_join(groups, np.array(pairs, np.int64).reshape(-1, 2), rng, loads))
        groups = [np.concatenate([groups[k] for k in batch]) for batch in batches]
    return np.concatenate(edges)


def _join(
    groups: Groups,
    pairs: np.ndarray,
    rng: np.random.Generator | None,
    loads: np.ndarray | None = None,
) -> np.ndarray:
    """Return an edge between the least loaded nodes of each pair of groups, and update `loads`.

    Choices in a group depend only on its own loads, so each group makes all its choices at once.
    """
    loads = np.zeros(sum(len(group) for group in groups), np.int64) if loads is None else loads
    sides = pairs.reshape(-1)
    ends = np.empty_like(sides)
    counts = np.bincount(sides, minlength=len(groups))
    turns = np.split(np.argsort(sides, kind="stable"), np.cumsum(counts)[:-1])
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
    seed: Seed,
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
    join = None if inter is None else _scheme(inter, None, clique_size, len(counts))
    rng = stream(seed, "graph")
    groups = _dealt(classes, -(-len(counts) // clique_size), rng)
    return joined(groups) if join is None else joined(groups, join(groups, rng))


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


@dataclass(frozen=True, eq=False)
class SwapTrace:
    """Cliques, skews and communication of a decentralized Greedy-Swap.

    Parameters
    ----------
    groups
        The final cliques.
    skews
        (steps + 1, q) skew of each clique after every step, measured with the exact distribution of
        all nodes; row 0 is before the first step.
    estimates
        (n, classes) estimate of the global distribution at each node.
    messages
        (steps + 1,) messages sent: entry 0 counts those before the first step (gossip, and the
        histograms that members send to their leaders), entry t those of step t.
    numbers
        (steps + 1,) numbers in these messages; a node identifier counts as one.
    """

    groups: tuple[tuple[int, ...], ...]
    skews: np.ndarray
    estimates: np.ndarray
    messages: np.ndarray
    numbers: np.ndarray


@generator(
    family="D-Cliques", examples=["decentralized_greedy_swap:30,clique_size=5,seed=0"], least=2
)
def decentralized_greedy_swap(
    label_counts: Any = None,
    clique_size: int = 10,
    *,
    n: int | None = None,
    label_shares: Any = None,
    steps: int = 1000,
    distance: str = "l1",
    gossip_rounds: int | None = None,
    gossip_graph: Topology | None = None,
    inter: str | None = None,
    seed: Seed,
) -> Topology:
    """Return cliques from pairwise swaps between clique leaders; ``groups`` contains them.

    Nodes have random identifiers, and nodes with consecutive identifiers form the initial cliques.
    The leader of a clique is the member with the smallest identifier. In each step a uniformly
    random leader draws another one uniformly and sends it the histograms of its members. The second
    leader finds all swaps of one member each that lower the sum of both skews by its own estimate,
    and makes one of these, chosen uniformly at random. Leaders estimate the global distribution by
    gossip before the first step.

    With exact knowledge (`gossip_rounds` None) this is :func:`topofl.topologies.greedy_swap`, and
    the same integer seed gives the same cliques. After few rounds of gossip the estimates of
    leaders are inexact and differ, so the true sum of skews may also grow.

    Parameters
    ----------
    label_counts, clique_size, n, label_shares, steps, distance
        As in :func:`topofl.topologies.greedy_swap`.
    gossip_rounds
        Rounds of Push-Sum, at least 0, by which nodes estimate the mean of all nodes' histograms:
        in each, every node sends half of its sum and of its weight to a uniformly random other
        node. None: leaders know the mean exactly.
    gossip_graph
        Graph on the n nodes; if given, Push-Sum sends to uniformly random out-neighbors.
    inter
        Scheme that joins the cliques, as in :func:`topofl.topologies.dcliques`; default: none.
    seed
        Integer or generator.

    Raises
    ------
    TypeError, ValueError
        As :func:`topofl.topologies.greedy_swap`; if `gossip_rounds` is negative; if `gossip_graph`
        is not a Topology, has another number of nodes, or is given without `gossip_rounds`; if
        `inter` is unknown.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section III-B;
    Kempe, Dobra and Gehrke, "Gossip-based computation of aggregate information" (2003), Push-Sum.

    Examples
    --------
    >>> from topofl.topologies import greedy_swap
    >>> counts = [[5, 0], [5, 0], [0, 5], [0, 5]]
    >>> decentralized_greedy_swap(counts, 2, seed=3).groups == greedy_swap(counts, 2, seed=3).groups
    True
    """
    labels, size = checked_labels(label_counts, n, label_shares, clique_size, "uniform", distance)
    join = None if inter is None else _scheme(inter, None, size, len(labels[0]))
    rng = stream(seed, "graph")
    gossiped = _estimates(labels, gossip_rounds, gossip_graph, seed)
    trace = _run(labels, size, steps, distance, gossiped, rng, traced=False)
    groups = [np.array(group) for group in trace.groups]
    return joined(groups) if join is None else joined(groups, join(groups, rng))


@public
def decentralized_greedy_swap_trace(
    label_counts: Any = None,
    clique_size: int = 10,
    *,
    label_shares: Any = None,
    steps: int = 1000,
    distance: str = "l1",
    gossip_rounds: int | None = None,
    gossip_graph: Topology | None = None,
    seed: Seed,
) -> SwapTrace:
    """Return the cliques, skews and communication of :func:`decentralized_greedy_swap` by step.

    With L classes and cliques of k members, the counts include: per round of gossip, one message of
    L + 1 numbers from each node (that has a neighbor to send to); the histogram of each member to
    its leader, L numbers; per step, the k histograms of the first leader's clique with identifiers,
    k (L + 1) numbers, and the reply, which is empty without a swap and otherwise has L + 2 numbers:
    the identifiers of both nodes and the histogram of the node that joins. After a swap each leader
    sends the k identifiers to its k - 1 other members; if another node now has the smallest
    identifier, the previous leader first sends it the k histograms with identifiers. Sampling of
    other leaders is not counted.

    Parameters
    ----------
    label_counts, clique_size, label_shares, steps, distance, gossip_rounds, gossip_graph, seed
        As in :func:`decentralized_greedy_swap`.

    Raises
    ------
    TypeError, ValueError
        As :func:`decentralized_greedy_swap`.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section III-B. The paper does not count
    messages.

    Examples
    --------
    >>> counts = [[5, 0], [5, 0], [0, 5], [0, 5]]
    >>> trace = decentralized_greedy_swap_trace(counts, 2, steps=20, gossip_rounds=6, seed=0)
    >>> int(trace.messages[0])  # 6 rounds of 4 messages, and 2 nodes that are not leaders
    26
    """
    told = (label_counts, None, label_shares)
    labels, size = checked_labels(*told, clique_size, "uniform", distance)
    gossiped = _estimates(labels, gossip_rounds, gossip_graph, seed)
    return _run(labels, size, steps, distance, gossiped, stream(seed, "graph"), traced=True)


def gossip_estimates(
    values: np.ndarray, rounds: int, rng: np.random.Generator, graph: Topology | None = None
) -> tuple[np.ndarray, int]:
    """Return Push-Sum estimates of the mean of (n, d) values at each node, and messages sent."""
    n = len(values)
    sums = np.column_stack([values, np.ones(n)])  # the last column is the weight
    senders = np.arange(n) if graph is None else np.flatnonzero(graph.out_degrees)
    for _ in range(rounds):
        if graph is None:
            receivers = (senders + rng.integers(1, n, size=n)) % n
        else:
            chosen = (rng.random(len(senders)) * graph.out_degrees[senders]).astype(int)
            receivers = graph.adjacency.indices[graph.adjacency.indptr[senders] + chosen]
        # Weights are not halved down to 0.
        sent = np.where(sums[senders, -1:] > 1e-250, 0.5, 0.0) * sums[senders]
        sums[senders] -= sent
        np.add.at(sums, receivers, sent)
    return sums[:, :-1] / sums[:, -1:], rounds * len(senders)


def _estimates(
    labels: Labels, rounds: int | None, graph: Topology | None, seed: Seed
) -> tuple[np.ndarray, int] | None:
    """Return the estimates of the global distribution and messages sent, or None if exact."""
    if rounds is None:
        if graph is not None:
            raise ValueError(
                "`gossip_graph` must be left out unless the number of `gossip_rounds` is given"
            )
        return None
    if graph is not None:
        need_topology("gossip_graph", graph, len(labels[0]))
    rounds = check_int("gossip_rounds", rounds, minimum=0)
    return gossip_estimates(labels[0], rounds, stream(seed, "gossip"), graph)


def _run(
    labels: Labels,
    clique_size: int,
    steps: int,
    distance: str,
    gossiped: tuple[np.ndarray, int] | None,
    rng: np.random.Generator,
    traced: bool,
) -> SwapTrace:
    """Run decentralized Greedy-Swap; only the last row of skews is recorded unless `traced`."""
    steps = check_int("steps", steps, minimum=0)
    n, classes = labels[0].shape
    groups = random_groups(n, clique_size, rng)
    cliques = cliques_of(groups, labels, distance)
    exact = np.tile(cliques[0].reference, (n, 1))
    estimates, sent = (exact, 0) if gossiped is None else gossiped
    leader_of = partial(_leader_of, np.argsort(np.concatenate(groups)))
    improving = improving_swaps
    if gossiped is not None:
        improving = partial(_improving_by_estimates, estimates, leader_of)
    leaders = [int(group[0]) for group in groups]
    skews = np.tile([clique.skew for clique in cliques], (steps + 1 if traced else 1, 1))
    messages, numbers = np.zeros((2, steps + 1), np.int64)
    messages[0] = sent + n - len(cliques)
    numbers[0] = sent * (classes + 1) + (n - len(cliques)) * classes
    for step, (a, b, swapped) in enumerate(swap_steps(cliques, steps, rng, improving), 1):
        messages[step] = 2
        numbers[step] = len(cliques[a].nodes) * (classes + 1)
        if not swapped:
            continue
        skews[step * traced :, [a, b]] = cliques[a].skew, cliques[b].skew
        numbers[step] += classes + 2
        for k in (a, b):
            before, leaders[k] = leaders[k], leader_of(cliques[k])
            size, handed_over = len(cliques[k].nodes), leaders[k] != before
            messages[step] += size - 1 + handed_over
            numbers[step] += (size - 1) * size + handed_over * size * (classes + 1)
    final = tuple(tuple(clique.nodes.tolist()) for clique in cliques)
    return SwapTrace(final, skews, estimates, messages, numbers)


def _leader_of(identifiers: np.ndarray, clique: Clique) -> int:
    """Return the member with the smallest identifier."""
    return int(clique.nodes[identifiers[clique.nodes].argmin()])


def _improving_by_estimates(
    estimates: np.ndarray, leader_of: Callable[[Clique], int], a: Clique, b: Clique
) -> np.ndarray:
    """Return the swaps that lower the sum of skews by the estimate of the leader of `b`."""
    estimate = estimates[leader_of(b)]
    return improving_swaps(a.with_reference(estimate), b.with_reference(estimate))
