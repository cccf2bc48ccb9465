"""Disjoint cliques, drawn at random or made representative by Greedy-Swap."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from topofl._check import check_choice, check_int
from topofl._seeding import stream
from topofl.topologies._common import call_name, known_counts, label_shares
from topofl.topology import Topology, from_edges

__all__ = ["greedy_swap", "greedy_swap_trace", "random_cliques"]

_TOLERANCE = 1e-12
"""A swap must lower the skew by more than this; less is rounding."""


def random_cliques(n: int, clique_size: int = 10, *, seed: int | np.random.Generator) -> Topology:
    """Return disjoint cliques of random nodes; ``groups`` holds them, in the order in which they were drawn.

    All cliques have `clique_size` members, but for the last one, which takes the rest of the nodes. With more than one
    clique the graph is not connected: see :func:`topofl.topologies.dcliques` for edges between cliques.

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
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section IV-G2: Greedy-Swap with no step.

    Examples
    --------
    >>> graph = random_cliques(25, 10, seed=0)
    >>> [len(group) for group in graph.groups], graph.n_edges
    ([10, 10, 5], 100)
    """
    n = check_int("n", n, minimum=2)
    clique_size = check_clique_size(clique_size, n)
    groups = random_groups(n, clique_size, stream(seed, "graph"))
    return _disjoint(groups, n, call_name("random_cliques", n=n, clique_size=clique_size, seed=seed))


def greedy_swap(
    label_counts: Any = None,
    clique_size: int = 10,
    *,
    n: int | None = None,
    steps: int = 1000,
    weighting: str = "uniform",
    seed: int | np.random.Generator,
) -> Topology:
    """Return disjoint cliques whose label distributions are close to the global one; ``groups`` holds them.

    The skew of a clique is the L1 distance of its label distribution to the global one. Starting from
    :func:`random_cliques` of the same seed, each step takes two cliques uniformly at random, finds all swaps of one
    member each that lower the sum of their two skews, and makes one of these, chosen uniformly at random; if there is
    none the step passes. So sizes stay and the total skew never grows, and with fewer steps the same path ends earlier.

    Parameters
    ----------
    label_counts
        (n, classes) array of non-negative integers, or an object with such a ``label_counts``, as a Partition.
    clique_size
        Between 2 and n; the last clique takes the rest of the nodes.
    n
        Instead of `label_counts`: n nodes of one class each, node i having class ``i % clique_size``.
    steps
        Number of steps. A step takes O(clique_size^2 classes) time and memory.
    weighting
        ``"uniform"``: the distributions of a clique and of all nodes are means of the nodes' distributions, as in the
        paper; ``"pooled"``: they are those of the pooled examples, as in its authors' simulator. The same if all nodes
        have equally many examples.
    seed
        Integer or generator.

    Raises
    ------
    TypeError
        If the counts are not integers.
    ValueError
        If the counts have another shape, are negative, or leave a node without data; if `clique_size`, `steps` or
        `weighting` is out of range; if not exactly one of `label_counts` and `n` is given.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), equation 3 and Figure 4.

    Examples
    --------
    >>> graph = greedy_swap([[5, 0], [5, 0], [0, 5], [0, 5]], clique_size=2, seed=0)
    >>> sorted(sum(node < 2 for node in group) for group in graph.groups)
    [1, 1]
    """
    counts, clique_size, source = counts_and_size(label_counts, n, clique_size)
    groups = greedy_groups(counts, clique_size, steps, weighting, stream(seed, "graph"))
    name = call_name("greedy_swap", source, clique_size=clique_size, **non_default(steps, weighting), seed=seed)
    return _disjoint(groups, len(counts), name)


def greedy_swap_trace(
    label_counts: Any,
    clique_size: int = 10,
    *,
    steps: int = 1000,
    weighting: str = "uniform",
    seed: int | np.random.Generator,
) -> tuple[tuple[tuple[int, ...], ...], np.ndarray]:
    """Return the cliques of :func:`greedy_swap` and the skew of each after every step.

    Parameters
    ----------
    label_counts, clique_size, steps, weighting, seed
        As in :func:`greedy_swap`.

    Returns
    -------
    groups
        As ``greedy_swap(...).groups``.
    skews
        (steps + 1, number of cliques); row 0 is before the first step. Its row means are the curve of Figure 18.

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
    counts, clique_size, _ = counts_and_size(label_counts, None, clique_size)
    trace = np.empty((check_int("steps", steps, minimum=0) + 1, -(-len(counts) // clique_size)))
    groups = greedy_groups(counts, clique_size, steps, weighting, stream(seed, "graph"), trace)
    return tuple(tuple(group.tolist()) for group in groups), trace


def check_clique_size(clique_size: int, n: int) -> int:
    """Return `clique_size` as an int between 2 and `n`, or raise."""
    return check_int("clique_size", clique_size, minimum=2, maximum=n, maximum_name="n")


def counts_and_size(label_counts: Any, n: int | None, clique_size: int) -> tuple[np.ndarray, int, str]:
    """Return checked label counts and clique size, and how to show the counts in a name."""
    if label_counts is None and n is not None:
        check_clique_size(clique_size, check_int("n", n, minimum=2))
    counts, source = known_counts(label_counts, n, classes=clique_size)
    return counts, check_clique_size(clique_size, len(counts)), source


def non_default(steps: int, weighting: str) -> dict[str, Any]:
    """Return the arguments of Greedy-Swap that differ from their defaults, for a name."""
    return {"steps": None if steps == 1000 else steps, "weighting": None if weighting == "uniform" else weighting}


def random_groups(n: int, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return a random partition of n nodes into groups of `size`, the last of which takes the rest."""
    return np.split(rng.permutation(n), range(size, n, size))


def complete_edges(groups: Sequence[np.ndarray]) -> np.ndarray:
    """Return all (E, 2) pairs inside groups."""
    pairs = {size: np.stack(np.triu_indices(size, 1), axis=1) for size in {len(group) for group in groups}}
    return np.concatenate([group[pairs[len(group)]] for group in groups])


def _disjoint(groups: Sequence[np.ndarray], n: int, name: str) -> Topology:
    return from_edges(complete_edges(groups), n, name=name, groups=[group.tolist() for group in groups])


def greedy_groups(
    counts: np.ndarray,
    size: int,
    steps: int,
    weighting: str,
    rng: np.random.Generator,
    trace: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Return the groups of Greedy-Swap; fills `trace` (steps + 1, groups), if given, with their skews."""
    steps = check_int("steps", steps, minimum=0)
    deviations, masses = _deviations(counts, check_choice("weighting", weighting, ["uniform", "pooled"]))
    cliques = [_Clique.of(group, deviations, masses) for group in random_groups(len(counts), size, rng)]
    if trace is not None:
        trace[:] = [clique.skew for clique in cliques]
    if len(cliques) > 1:
        _swap_greedily(cliques, rng.random((steps, 3)), trace)
    return [clique.nodes for clique in cliques]


def _deviations(counts: np.ndarray, weighting: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (classes, n) deviations d and (n,) masses m so that a clique's skew is ``|sum d|_1 / sum m``.

    A node of distribution p_i and size m_i has d = p_i - p and mass 1, or pooled d = m_i (p_i - p) and mass m_i.
    """
    shares = label_shares(counts)
    sizes = counts.sum(axis=1) if weighting == "pooled" else np.ones(len(counts))
    overall = (sizes @ shares) / sizes.sum()
    return (sizes[:, None] * (shares - overall)).T.copy(), sizes.astype(np.float64)


@dataclass(slots=True)
class _Clique:
    """A clique and its sums, kept up to date under swaps."""

    nodes: np.ndarray  # (size,)
    deviations: np.ndarray  # (classes, size)
    masses: np.ndarray  # (size,)
    deviation: np.ndarray  # (classes,), sum over members
    mass: float
    skew: float

    @classmethod
    def of(cls, nodes: np.ndarray, deviations: np.ndarray, masses: np.ndarray) -> "_Clique":
        total, mass = deviations[:, nodes].sum(axis=1), float(masses[nodes].sum())
        return cls(nodes.copy(), deviations[:, nodes], masses[nodes], total, mass, float(np.abs(total).sum() / mass))

    def replace(self, place: int, node: int, deviation: np.ndarray, mass: float) -> None:
        """Put another node in the place of one."""
        self.deviation += deviation - self.deviations[:, place]
        self.mass += mass - self.masses[place]
        self.nodes[place], self.deviations[:, place], self.masses[place] = node, deviation, mass
        self.skew = float(np.abs(self.deviation).sum() / self.mass)


def _swap_greedily(cliques: list[_Clique], draws: np.ndarray, trace: np.ndarray | None) -> None:
    """Make one step for each row of `draws`, three uniform numbers: first clique, second clique, which swap."""
    first = (draws[:, 0] * len(cliques)).astype(np.int64)
    second = (draws[:, 1] * (len(cliques) - 1)).astype(np.int64)
    second += second >= first
    for step, (a, b, choice) in enumerate(zip(first.tolist(), second.tolist(), draws[:, 2].tolist(), strict=True)):
        swaps = _improving_swaps(cliques[a], cliques[b])
        if len(swaps):
            _swap(cliques[a], cliques[b], *divmod(int(swaps[int(choice * len(swaps))]), len(cliques[b].nodes)))
            if trace is not None:
                trace[step + 1 :, a], trace[step + 1 :, b] = cliques[a].skew, cliques[b].skew


def _improving_swaps(a: _Clique, b: _Clique) -> np.ndarray:
    """Return the swaps that lower the sum of both skews, member i of `a` for member j of `b` as i * len(b) + j."""
    change = b.deviations[:, None, :] - a.deviations[:, :, None]  # (classes, len(a), len(b))
    mass = b.masses[None, :] - a.masses[:, None]
    skews = np.add.reduce(np.abs(a.deviation[:, None, None] + change), axis=0) / (a.mass + mass)
    skews += np.add.reduce(np.abs(b.deviation[:, None, None] - change), axis=0) / (b.mass - mass)
    return np.flatnonzero(skews < a.skew + b.skew - _TOLERANCE)


def _swap(a: _Clique, b: _Clique, i: int, j: int) -> None:
    leaving = (int(a.nodes[i]), a.deviations[:, i].copy(), float(a.masses[i]))
    a.replace(i, int(b.nodes[j]), b.deviations[:, j], float(b.masses[j]))
    b.replace(j, *leaving)
