"""Label-balanced cliques that change from round to round."""

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import check_edges, check_int
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.topologies._generator import generator, periodic, redrawn
from topofl.topologies.cliques import (
    TOLERANCE,
    Clique,
    Labels,
    checked_labels,
    cliques_of,
    joined,
    swap_steps,
)
from topofl.topology import Topology, TopologyError, TopologySequence, graph_of

__all__ = ["repeated_pairs", "rotating_cliques"]

REPEAT = 0.02
"""What a pair that meets again costs, in units of the L1 skew of a clique (at most 2)."""


@generator(
    family="time-varying",
    examples=["rotating_cliques:12,clique_size=3,partitions=3,seed=0"],
    least=2,
)
def rotating_cliques(
    label_counts: Any = None,
    clique_size: int = 10,
    *,
    n: int | None = None,
    label_shares: Any = None,
    partitions: int | None = 4,
    steps: int | None = None,
    seed: int,
) -> TopologySequence:
    """Return a sequence of partitions into label-balanced cliques without edges between them.

    The rounds of a period have different partitions, so that models travel although the graph of
    each round is disconnected. Every partition is found by the swaps of
    :func:`topofl.topologies.greedy_swap`, which here lower the skew of the two cliques plus 0.02
    for each pair of members that was together in an earlier partition of the period. Groups change,
    so a node needs links to up to ``partitions * (clique_size - 1)`` others; it uses
    ``clique_size - 1`` of them per round.

    Parameters
    ----------
    label_counts, n, label_shares
        As in :func:`topofl.topologies.greedy_swap`; `label_shares` may be private histograms.
    clique_size
        Largest size, between 2 and n. The ceil(n / clique_size) cliques differ by at most one node.
    partitions
        Rounds of a period, at least 1; with 1, models never leave their clique. None: every round
        has a new partition, found when the round is asked for and without regard to earlier ones;
        a node then needs links to all others.
    steps
        Number of swap steps per partition; None: 1,000, or 50 per clique if that is more.
    seed
        Non-negative integer.

    Raises
    ------
    TypeError, ValueError
        As :func:`topofl.topologies.greedy_swap`; if `partitions` is less than 1.

    Notes
    -----
    With Metropolis-Hastings weights a round replaces each model by the mean of its clique. Such a W
    is a projection, the models of a clique are equal after a round, and the bias that a round adds
    (H_1) is the mean squared distance of the cliques' label shares from the global ones. For a
    uniformly random partition of n nodes into cliques of k, E[||W x - mean||^2] =
    (n / k - 1) / (n - 1) ||x - mean||^2, nearly 1 / k whatever n is. The partitions here are not
    uniform: for P fixed ones, the deviation is multiplied over a period by at most the second
    largest singular value of the product of their matrices.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), for the swaps; Ryabinin, Gorbunov, Plokhotnyuk
    and Pekhimenko, "Moshpit SGD" (2021), for averaging in changing groups, without labels.

    Examples
    --------
    >>> sequence = rotating_cliques(n=100, clique_size=10, seed=0)
    >>> sequence.period, sequence.at(0).n_edges, len(sequence.at(1).groups)
    (4, 450, 10)
    """
    labels, size = checked_labels(label_counts, n, label_shares, clique_size, "uniform", "l1")
    nodes = len(labels[0])
    check_edges(nodes * (size - 1) / 2, "n", "clique_size")
    steps = _steps(steps, -(-nodes // size))
    if partitions is None:
        return redrawn(nodes, partial(_partition, labels, size, steps, None), seed)
    partitions = check_int("partitions", partitions, minimum=1)
    met = sparse.csr_array((nodes, nodes), dtype=np.int64)
    graphs = []
    for t in range(partitions):
        graphs.append(_partition(labels, size, steps, met, stream(seed, "graph", t)))
        met = sparse.csr_array(met + (graphs[-1].adjacency != 0).astype(np.int64))
    return periodic(graphs)


def _steps(steps: int | None, cliques: int) -> int:
    """Return the number of swap steps."""
    return max(1000, 50 * cliques) if steps is None else check_int("steps", steps, minimum=0)


def _partition(
    labels: Labels, size: int, steps: int, met: sparse.csr_array | None, rng: np.random.Generator
) -> Topology:
    """Return the cliques of one round; `met` (n, n) counts how often pairs were together."""
    n = len(labels[0])
    groups = np.array_split(rng.permutation(n), -(-n // size))
    cliques = cliques_of(groups, labels, "l1")
    for _ in swap_steps(cliques, steps, rng, partial(_improving, met)):
        pass
    return joined([clique.nodes for clique in cliques])


def _improving(met: sparse.csr_array | None, a: Clique, b: Clique) -> np.ndarray:
    """Return the swaps of i in `a` for j in `b` that lower skews plus repeats, i * len(b) + j."""
    change = b.deviations[:, None, :] - a.deviations[:, :, None]
    cost = a.skews(a.deviation[:, None, None] + change, a.weight)
    cost = cost + b.skews(b.deviation[:, None, None] - change, b.weight)
    if met is not None:
        both = np.concatenate([a.nodes, b.nodes])
        times = met[both][:, both].toarray()
        k = len(a.nodes)
        with_a, with_b = times[:, :k].sum(axis=1), times[:, k:].sum(axis=1)
        moved = (
            with_b - with_a
        )  # more meetings of a member of `a` if it moves, less those it leaves
        cost = cost + REPEAT * (moved[:k, None] - moved[None, k:] - 2 * times[:k, k:])
    return np.flatnonzero(cost < a.skew + b.skew - TOLERANCE)


@public
def repeated_pairs(sequence: Any) -> int:
    """Return how many meetings of a periodic sequence are of pairs that met before in its period.

    A pair with edges in m rounds counts m - 1 times. See :func:`topofl.metrics.clique_skew` of
    ``sequence.at(t)`` for the label balance of round t.

    Parameters
    ----------
    sequence
        A periodic sequence, for example from :func:`rotating_cliques`.

    Raises
    ------
    TypeError
        If `sequence` is not a graph or a sequence of graphs.
    TopologyError
        If it is not periodic.

    Examples
    --------
    >>> repeated_pairs(rotating_cliques(n=100, clique_size=5, partitions=2, seed=0))
    0
    """
    sequence = graph_of("sequence", sequence)
    if isinstance(sequence, Topology):
        return 0
    if sequence.period is None:
        raise TopologyError(
            f"`sequence` must be periodic, {sequence.name} is not; give rotating_cliques a number "
            "of partitions"
        )
    arcs = (sequence.at(t).adjacency for t in range(sequence.period))
    rounds = [(one != 0) + (one.T != 0) for one in arcs]
    meetings = sum(sparse.triu(one, 1).nnz for one in rounds)
    union = sum((sparse.csr_array(one, dtype=np.int64) for one in rounds[1:]), 1 * rounds[0])
    return int(meetings - sparse.triu(union != 0, 1).nnz)
