"""Decentralized Greedy-Swap: clique leaders estimate the global label distribution by gossip."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from topofl._support.check import check_int
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.topologies._generator import generator
from topofl.topologies.cliques import (
    Clique,
    Histograms,
    checked_labels,
    cliques_of,
    improving_swaps,
    random_groups,
    swap_steps,
)
from topofl.topologies.dcliques import joined, no_edges, scheme
from topofl.topology import Topology

__all__ = ["decentralized_greedy_swap", "decentralized_greedy_swap_trace"]


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
    seed: int | np.random.Generator,
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
    labels, clique_size = checked_labels(
        label_counts, n, label_shares, clique_size, "uniform", distance
    )
    join = no_edges if inter is None else scheme(inter, None, clique_size, len(labels.shares))
    rng = stream(seed, "graph")
    gossiped = _estimates(labels, gossip_rounds, gossip_graph, seed)
    trace = _run(labels, clique_size, steps, distance, gossiped, rng, traced=False)
    groups = [np.array(group) for group in trace.groups]
    return joined(groups, len(labels.shares), join(groups, rng))


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
    seed: int | np.random.Generator,
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
    labels, clique_size = checked_labels(
        label_counts, None, label_shares, clique_size, "uniform", distance
    )
    gossiped = _estimates(labels, gossip_rounds, gossip_graph, seed)
    return _run(labels, clique_size, steps, distance, gossiped, stream(seed, "graph"), traced=True)


def gossip_estimates(
    values: np.ndarray, rounds: int, rng: np.random.Generator, graph: Topology | None = None
) -> tuple[np.ndarray, int]:
    """Return Push-Sum estimates of the mean of (n, d) values at each node, and messages sent."""
    n = len(values)
    messages = 0
    sums = np.column_stack([values, np.ones(n)])  # the last column is the weight
    draw = _other_nodes(n) if graph is None else _random_neighbors(graph)
    for _ in range(rounds):
        senders, receivers = draw(rng)
        # Weights are not halved down to 0.
        sent = np.where(sums[senders, -1:] > 1e-250, 0.5, 0.0) * sums[senders]
        sums[senders] -= sent
        np.add.at(sums, receivers, sent)
        messages += len(senders)
    return sums[:, :-1] / sums[:, -1:], messages


def _other_nodes(n: int) -> Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]:
    """Return a function that draws for each node another node uniformly: senders, receivers."""
    nodes = np.arange(n)
    return lambda rng: (nodes, (nodes + rng.integers(1, n, size=n)) % n)


def _random_neighbors(
    graph: Topology,
) -> Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]:
    """Return a function that draws an out-neighbor for each node that has one."""
    senders = np.flatnonzero(graph.out_degrees)
    starts = graph.adjacency.indptr[senders]
    degrees = graph.out_degrees[senders]
    return lambda rng: (
        senders,
        graph.adjacency.indices[starts + (rng.random(len(senders)) * degrees).astype(int)],
    )


def _estimates(
    labels: Histograms, rounds: int | None, graph: Topology | None, seed: int | np.random.Generator
) -> tuple[np.ndarray, int] | None:
    """Return the estimates of the global distribution and messages sent, or None if exact."""
    n = len(labels.shares)
    if graph is not None and rounds is None:
        raise ValueError(
            "`gossip_graph` must be left out unless the number of `gossip_rounds` is given"
        )
    if rounds is None:
        return None
    if graph is not None and not isinstance(graph, Topology):
        raise TypeError(
            f"`gossip_graph` must be a Topology, got {type(graph).__name__}; use "
            "topofl.as_topology(graph)"
        )
    if graph is not None and graph.n != n:
        raise ValueError(f"`gossip_graph` must have n={n} nodes, {graph.name} has {graph.n}")
    return gossip_estimates(
        labels.shares, check_int("gossip_rounds", rounds, minimum=0), stream(seed, "gossip"), graph
    )


def _run(
    labels: Histograms,
    clique_size: int,
    steps: int,
    distance: str,
    gossiped: tuple[np.ndarray, int] | None,
    rng: np.random.Generator,
    traced: bool,
) -> SwapTrace:
    """Run decentralized Greedy-Swap; only the last row of skews is recorded unless `traced`."""
    steps = check_int("steps", steps, minimum=0)
    n, classes = labels.shares.shape
    groups = random_groups(n, clique_size, rng)
    estimates, sent = (np.tile(labels.overall, (n, 1)), 0) if gossiped is None else gossiped
    leaders = _Leaders(groups, None if gossiped is None else estimates)
    cliques = cliques_of(groups, labels, distance)
    skews = np.tile([clique.skew for clique in cliques], (steps + 1 if traced else 1, 1))
    messages, numbers = np.zeros((2, steps + 1), np.int64)
    messages[0] = sent + n - len(cliques)
    numbers[0] = sent * (classes + 1) + (n - len(cliques)) * classes
    draws = rng.random((steps, 3)) if len(cliques) > 1 else np.empty((0, 3))
    for step, (a, b, swapped) in enumerate(swap_steps(cliques, draws, leaders.swaps), 1):
        messages[step], numbers[step] = leaders.traffic(a, b, cliques, classes, swapped)
        if swapped:
            skews[step * traced :, [a, b]] = cliques[a].skew, cliques[b].skew
    final = tuple(tuple(clique.nodes.tolist()) for clique in cliques)
    return SwapTrace(final, skews, estimates, messages, numbers)


class _Leaders:
    """Leaders of cliques, with their estimates of the global distribution and their messages."""

    def __init__(self, groups: list[np.ndarray], estimates: np.ndarray | None) -> None:
        order = np.concatenate(groups)
        self.identifiers = np.empty(len(order), np.int64)
        self.identifiers[order] = np.arange(len(order))
        self.estimates = estimates
        self.nodes = [int(group[0]) for group in groups]

    def leader_of(self, clique: Clique) -> int:
        """Return the member with the smallest identifier."""
        return int(clique.nodes[self.identifiers[clique.nodes].argmin()])

    def swaps(self, a: Clique, b: Clique) -> np.ndarray:
        """Return the swaps that lower the sum of skews by the estimate of the leader of `b`."""
        if self.estimates is None:
            return improving_swaps(a, b)
        estimate = self.estimates[self.leader_of(b)]
        return improving_swaps(a.with_reference(estimate), b.with_reference(estimate))

    def traffic(
        self, a: int, b: int, cliques: list[Clique], classes: int, swapped: bool
    ) -> tuple[int, int]:
        """Return the messages and numbers of a step between the leaders of cliques a and b."""
        messages = 2
        numbers = len(cliques[a].nodes) * (classes + 1)
        if not swapped:
            return messages, numbers
        numbers += classes + 2
        for k in (a, b):
            size = len(cliques[k].nodes)
            leader = self.leader_of(cliques[k])
            handed_over = leader != self.nodes[k]
            messages += size - 1 + handed_over
            numbers += (size - 1) * size + handed_over * size * (classes + 1)
            self.nodes[k] = leader
        return messages, numbers
