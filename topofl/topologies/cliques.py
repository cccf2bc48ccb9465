"""Disjoint cliques, random or with low label skew by Greedy-Swap, and thinned cliques."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from topofl._linalg import distributions
from topofl._linalg.distributions import DISTANCES, OF_DISTRIBUTIONS
from topofl._support.check import check_choice, check_edges, check_int, shown
from topofl._support.public import public
from topofl._support.seeding import Seed, stream
from topofl.topologies._generator import (
    counts_of,
    distinct_pairs,
    generator,
    shares_of,
    without_edges,
)
from topofl.topology import Topology, TopologyError, from_edges, need_topology

__all__ = ["greedy_swap", "greedy_swap_trace", "random_cliques", "thin_cliques"]


TOLERANCE = 1e-12
"""Rounding: a swap must lower the skew by more than this, and smaller label shares count as 0."""


Labels: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Label distributions of nodes, (n, classes), and weights in averages, (n,): 1, or examples."""


@dataclass(slots=True)
class Clique:
    """A clique and its sums over members, updated at each swap.

    Its skew is a distance to the global label distribution p, or to an estimate of it. A node with
    distribution p_i and weight w_i has the deviation w_i (p_i - p).
    """

    nodes: np.ndarray  # (size,)
    deviations: np.ndarray  # (classes, size)
    weights: np.ndarray  # (size,)
    distance: str
    reference: np.ndarray  # (classes,), p
    deviation: np.ndarray = field(init=False)  # (classes,), sum over members
    weight: float = field(init=False)
    skew: float = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = self.nodes.copy()
        self.deviation = self.deviations.sum(axis=1)
        self.weight = float(self.weights.sum())
        self.skew = float(self.skews(self.deviation, self.weight))

    def skews(self, deviation: np.ndarray, weight: Any) -> np.ndarray:
        """Return skews from the (classes, ...) sums of the weighted deviations of members."""
        if self.distance == "l1":
            return np.add.reduce(np.abs(deviation), axis=0) / weight
        return distributions.distance(self.distance, *self._shares(deviation, weight))

    def infinite_terms(self, deviation: np.ndarray, weight: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of classes with an infinite term, and the skew over the others."""
        return distributions.infinite_terms(self.distance, *self._shares(deviation, weight))

    def _shares(self, deviation: np.ndarray, weight: Any) -> tuple[np.ndarray, np.ndarray]:
        reference = self.reference.reshape(-1, *[1] * (deviation.ndim - 1))
        shares = reference + deviation / weight
        if self.distance in OF_DISTRIBUTIONS:
            shares = np.where(shares < TOLERANCE, 0.0, shares)
        return shares, reference

    def with_reference(self, reference: np.ndarray) -> "Clique":
        """Return the clique measured against another reference distribution."""
        moved = np.multiply.outer(self.reference - reference, self.weights)
        deviations = self.deviations + moved
        return Clique(self.nodes, deviations, self.weights, self.distance, reference)

    def replace_member(self, k: int, node: int, deviation: np.ndarray, weight: float) -> None:
        """Replace member k by another node and update the sums."""
        self.deviation += deviation - self.deviations[:, k]
        self.weight += weight - self.weights[k]
        self.nodes[k] = node
        self.deviations[:, k] = deviation
        self.weights[k] = weight
        self.skew = float(self.skews(self.deviation, self.weight))


def cliques_of(groups: Sequence[np.ndarray], labels: Labels, distance: str) -> list[Clique]:
    """Return the cliques of these groups, measured against the distribution of all nodes."""
    shares, weights = labels
    overall = (weights @ shares) / weights.sum()
    deviations = (weights[:, None] * (shares - overall)).T.copy()
    weights = weights.astype(np.float64)
    return [Clique(g, deviations[:, g], weights[g], distance, overall) for g in groups]


def improving_swaps(a: Clique, b: Clique) -> np.ndarray:
    """Return the swaps of i in `a` for j in `b` that lower the sum of skews, as i * len(b) + j.

    An infinite sum is lowered by fewer classes with infinite terms, or by as many such classes and
    a lower sum over the others.
    """
    change = b.deviations[:, None, :] - a.deviations[:, :, None]  # (classes, len(a), len(b))
    gained = b.weights[None, :] - a.weights[:, None]
    after_a = a.deviation[:, None, None] + change
    after_b = b.deviation[:, None, None] - change
    before = a.skew + b.skew
    if np.isfinite(before):
        skews = a.skews(after_a, a.weight + gained) + b.skews(after_b, b.weight - gained)
        return np.flatnonzero(skews < before - TOLERANCE)

    def terms(of_a: np.ndarray, weight_a: Any, of_b: np.ndarray, weight_b: Any) -> Iterator[Any]:
        """Yield the number of infinite terms and the sum over the others, of both cliques."""
        both = a.infinite_terms(of_a, weight_a), b.infinite_terms(of_b, weight_b)
        return map(np.add, *both)

    infinite, finite = terms(after_a, a.weight + gained, after_b, b.weight - gained)
    infinite_before, finite_before = terms(a.deviation, a.weight, b.deviation, b.weight)
    has_fewer = infinite < infinite_before
    is_lower = (infinite == infinite_before) & (finite < finite_before - TOLERANCE)
    return np.flatnonzero(has_fewer | is_lower)


def swap_steps(
    cliques: list[Clique],
    steps: int,
    rng: np.random.Generator,
    improving: Callable[[Clique, Clique], np.ndarray] = improving_swaps,
) -> Iterator[tuple[int, int, bool]]:
    """Take steps in which two random cliques make a random swap of those that improve them.

    Yields the two cliques of each step and whether they swapped. `improving` must depend only on
    the two cliques: if it finds no swap, it is not called again for them until one of them changes,
    which saves most of the work near the end.
    """
    draws = rng.random((steps, 3)) if len(cliques) > 1 else np.empty((0, 3))
    first, second = distinct_pairs(draws[:, :2], len(cliques))
    versions = [0] * len(cliques)
    without_swaps = set()
    for a, b, choice in zip(first.tolist(), second.tolist(), draws[:, 2].tolist(), strict=True):
        state = a, versions[a], b, versions[b]
        swaps = () if state in without_swaps else improving(cliques[a], cliques[b])
        if len(swaps):
            swap = int(swaps[int(choice * len(swaps))])
            _swap(cliques[a], cliques[b], *divmod(swap, len(cliques[b].nodes)))
            versions[a] += 1
            versions[b] += 1
        else:
            without_swaps.add(state)
        yield a, b, len(swaps) > 0


def _swap(a: Clique, b: Clique, i: int, j: int) -> None:
    """Swap member i of one clique for member j of the other."""
    leaving = (int(a.nodes[i]), a.deviations[:, i].copy(), float(a.weights[i]))
    a.replace_member(i, int(b.nodes[j]), b.deviations[:, j], float(b.weights[j]))
    b.replace_member(j, *leaving)


@generator(family="D-Cliques", examples=["random_cliques:24,clique_size=4,seed=0"], least=2)
def random_cliques(n: int, clique_size: int = 10, *, seed: Seed) -> Topology:
    """Return disjoint cliques of random nodes; ``groups`` contains them.

    All cliques have `clique_size` members, except that the last one has the remaining nodes. With
    more than one clique the graph is disconnected: see :func:`topofl.topologies.dcliques` for edges
    between cliques.

    Parameters
    ----------
    n
        Number of nodes, at least 2.
    clique_size
        Between 2 and `n`.
    seed
        Integer or generator.

    Raises
    ------
    ValueError
        If `n` or `clique_size` is out of range.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section IV-G2: Greedy-Swap without steps.

    Examples
    --------
    >>> graph = random_cliques(25, 10, seed=0)
    >>> [len(group) for group in graph.groups], graph.n_edges
    ([10, 10, 5], 100)
    """
    clique_size = check_clique_size(clique_size, n)
    check_edges(n * (clique_size - 1) / 2, "n", "clique_size")
    return joined(random_groups(n, clique_size, stream(seed, "graph")))


@generator(family="D-Cliques", examples=["greedy_swap:30,clique_size=5,seed=0"], least=2)
def greedy_swap(
    label_counts: Any = None,
    clique_size: int = 10,
    *,
    n: int | None = None,
    label_shares: Any = None,
    steps: int = 1000,
    weighting: str = "uniform",
    distance: str = "l1",
    seed: Seed,
) -> Topology:
    """Return disjoint cliques with label distributions close to the global one (Greedy-Swap).

    The skew of a clique is the distance of its label distribution to the global one. Starting from
    :func:`random_cliques` of the same seed, each step draws two cliques uniformly at random, finds
    all swaps of one member each that lower the sum of their two skews, and makes one of these,
    chosen uniformly at random; if there is none, nothing changes. Thus sizes are constant, the
    total skew never grows, and fewer steps end the same path earlier.

    Parameters
    ----------
    label_counts
        (n, classes) array of non-negative integers, or an object with such a ``label_counts``, for
        example a Partition.
    clique_size
        Between 2 and n; the last clique has the remaining nodes.
    n
        Alternative to `label_counts`: n nodes of one class each; node i has class ``i %
        clique_size``.
    label_shares
        Alternative to `label_counts`: (n, classes) finite numbers, the label distributions that
        nodes report, for example by :func:`topofl.data.private_label_histograms`; they may be
        negative. All swaps are chosen by these.
    steps
        Number of steps. A step takes O(clique_size^2 classes) time and memory.
    weighting
        ``"uniform"``: the distributions of a clique and of all nodes are means of the nodes'
        distributions, as in the paper; ``"pooled"``: they are those of the pooled examples, as in
        the simulator of its authors. Both are equal if all nodes have the same number of examples.
        `label_shares` allow only ``"uniform"``.
    distance
        As in :func:`topofl.metrics.clique_skew`. If ``"symmetric_kl"`` is infinite, since a clique
        lacks a class, a sum of skews is lowered by fewer missing classes, or by as many missing
        classes and a lower sum over the others. Distances other than ``"l1"`` take a few times as
        long; those between distributions require `label_shares` that are distributions.
    seed
        Integer or generator.

    Raises
    ------
    TypeError
        If the counts are not integers.
    ValueError
        If the counts have the wrong shape, are negative, or leave a node without data; if
        `label_shares` are not finite; if `clique_size`, `steps`, `weighting` or `distance` is out
        of range; if not exactly one of `label_counts`, `n` and `label_shares` is given.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), equation 3 and Figure 4; Remark 2 for private
    histograms.

    Examples
    --------
    >>> graph = greedy_swap([[5, 0], [5, 0], [0, 5], [0, 5]], clique_size=2, seed=0)
    >>> sorted(sum(node < 2 for node in group) for group in graph.groups)
    [1, 1]
    """
    labels, size = checked_labels(label_counts, n, label_shares, clique_size, weighting, distance)
    return joined(greedy_groups(labels, size, steps, distance, stream(seed, "graph")))


@public
def greedy_swap_trace(
    label_counts: Any = None,
    clique_size: int = 10,
    *,
    label_shares: Any = None,
    steps: int = 1000,
    weighting: str = "uniform",
    distance: str = "l1",
    seed: Seed,
) -> tuple[tuple[tuple[int, ...], ...], np.ndarray]:
    """Return the cliques of :func:`greedy_swap` and the skew of each after every step.

    Parameters
    ----------
    label_counts, clique_size, label_shares, steps, weighting, distance, seed
        As in :func:`greedy_swap`.

    Returns
    -------
    groups
        As ``greedy_swap(...).groups``.
    skews
        (steps + 1, number of cliques); row 0 is before the first step. The row means are the curve
        of Figure 18. With `label_shares` these are the skews of the reported distributions: see
        :func:`topofl.metrics.clique_skew` for the true ones.

    Raises
    ------
    TypeError, ValueError
        As :func:`greedy_swap`.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), Figures 17 and 18.

    Examples
    --------
    >>> groups, skews = greedy_swap_trace([[5, 0], [5, 0], [0, 5], [0, 5]], 2, steps=20, seed=0)
    >>> skews.shape, skews[-1].tolist()
    ((21, 2), [0.0, 0.0])
    """
    told = (label_counts, None, label_shares)
    labels, size = checked_labels(*told, clique_size, weighting, distance)
    steps = check_int("steps", steps, minimum=0)
    trace = np.empty((steps + 1, -(-len(labels[0]) // size)))
    groups = greedy_groups(labels, size, steps, distance, stream(seed, "graph"), trace)
    return tuple(tuple(group.tolist()) for group in groups), trace


@generator(
    family="derived",
    examples=["thin_cliques,base=(dcliques:50,clique_size=5,inter=ring,seed=0),removed=2,seed=0"],
)
def thin_cliques(base: Topology, removed: int, *, seed: Seed) -> Topology:
    """Return `base` without `removed` uniformly random undirected edges inside each of its groups.

    Edges between groups and the ``groups`` do not change, so :func:`topofl.mixing.within_groups`
    averages over the members of the clique that are still neighbors. A complete clique of k nodes
    stays connected if at most k - 2 edges are removed, since isolating a node takes k - 1.

    Parameters
    ----------
    base
        An undirected graph with groups, for example from :func:`topofl.topologies.dcliques`.
    removed
        Edges to remove from each group, at least 0. The paper removes 1 and 5 of the 45 edges of a
        clique of 10.
    seed
        Integer or generator.

    Raises
    ------
    TypeError
        If `base` is not a Topology.
    TopologyError
        If `base` is directed or has no groups.
    ValueError
        If some group has fewer edges than `removed`.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section IV-F.

    Examples
    --------
    >>> from topofl.topologies import dcliques
    >>> base = dcliques(n=100, inter="ring", seed=0)
    >>> thin_cliques(base, removed=5, seed=0).n_edges  # 10 * (45 - 5) + 10
    410
    """
    removed = check_int("removed", removed, minimum=0)
    sources, targets, group = _inner_edges(base)
    sizes = np.bincount(group, minlength=len(base.groups))
    if removed > sizes.min():
        too_small = np.flatnonzero(sizes < removed)
        k = too_small[0]
        raise ValueError(
            f"`removed` must be at most {sizes.min()}, the fewest edges in a clique of "
            f"{base.name}, got {removed}: clique {k} of {len(base.groups[k])} nodes has "
            f"{sizes[k]} edges ({len(too_small)} such cliques)"
        )
    order = np.lexsort((stream(seed, "graph").random(len(group)), group))
    rank = np.arange(len(group)) - np.searchsorted(group[order], group[order])
    gone = order[rank < removed]
    lost = np.stack([sources[gone], targets[gone]], axis=1)
    return without_edges(base, np.concatenate([lost, lost[:, ::-1]]))


def _inner_edges(base: Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sources, targets and groups of the undirected edges inside groups."""
    need_topology("base", base)
    if base.is_directed:
        raise TopologyError(f"`base` must be undirected, {base.name} is directed")
    if not base.groups:
        raise TopologyError(
            f"`base` must have groups, {base.name} has none; use topologies.dcliques(...)"
        )
    label = base.group_of
    u, v = base.edge_index
    inside = (u < v) & (label[u] == label[v]) & (label[u] >= 0)
    return u[inside], v[inside], label[u[inside]]


def check_clique_size(clique_size: int, n: int) -> int:
    """Return `clique_size` as an int between 2 and `n`, or raise."""
    return check_int("clique_size", clique_size, minimum=2, maximum=n, maximum_name="n")


def checked_labels(
    label_counts: Any,
    n: int | None,
    label_shares: Any,
    clique_size: int,
    weighting: str,
    distance: str,
) -> tuple[Labels, int]:
    """Return the checked label distributions and weights of the nodes, and the clique size."""
    if label_counts is None and label_shares is None and n is not None:
        check_clique_size(clique_size, n)
    check_choice("weighting", weighting, ["uniform", "pooled"])
    check_choice("distance", distance, DISTANCES)
    shares = shares_of(label_counts, n, label_shares, classes=clique_size)
    weights = np.ones(len(shares))
    if label_shares is None and weighting == "pooled":
        weights = counts_of(label_counts, n, classes=clique_size).sum(axis=1)
    elif weighting == "pooled":
        raise ValueError(
            "`weighting` must be 'uniform' with `label_shares`, which have no sizes, got "
            f"{shown(weighting)}"
        )
    if distance in OF_DISTRIBUTIONS and (
        shares.min() < 0 or np.abs(shares.sum(axis=1) - 1).max() > 1e-6
    ):
        raise ValueError(
            f"`label_shares` must be non-negative rows that sum to 1 for distance={distance!r}; "
            "use private_label_histograms(..., clip=True), or use distance='l1'"
        )
    return (shares, weights), check_clique_size(clique_size, len(shares))


def random_groups(n: int, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return a random partition of n nodes into groups of `size`; the last one has the rest."""
    return np.split(rng.permutation(n), range(size, n, size))


def complete_edges(groups: Sequence[np.ndarray]) -> np.ndarray:
    """Return the (E, 2) pairs of nodes inside groups."""
    sizes = {len(group) for group in groups}
    pairs = {size: np.stack(np.triu_indices(size, 1), axis=1) for size in sizes}
    return np.concatenate([group[pairs[len(group)]] for group in groups])


def joined(groups: Sequence[np.ndarray], *between: np.ndarray) -> Topology:
    """Return the graph of these cliques, with edges (E, 2) between them if there are any."""
    edges = np.concatenate([complete_edges(groups), *between])
    n = sum(len(group) for group in groups)
    return from_edges(edges, n, groups=[group.tolist() for group in groups])


def greedy_groups(
    labels: Labels,
    size: int,
    steps: int,
    distance: str,
    rng: np.random.Generator,
    trace: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Return the groups of Greedy-Swap, and write skews to `trace` (steps + 1, groups) if given."""
    steps = check_int("steps", steps, minimum=0)
    cliques = cliques_of(random_groups(len(labels[0]), size, rng), labels, distance)
    if trace is not None:
        trace[:] = [clique.skew for clique in cliques]
    for step, (a, b, swapped) in enumerate(swap_steps(cliques, steps, rng), 1):
        if trace is not None and swapped:
            trace[step:, [a, b]] = cliques[a].skew, cliques[b].skew
    return [clique.nodes for clique in cliques]
