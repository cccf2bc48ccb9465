"""Cliques with minimal label skew for nodes of one class each."""

from typing import Any

import numpy as np

from topofl._support.check import check_nodes
from topofl._support.seeding import stream
from topofl.topologies._common import call_name, counts_and_source
from topofl.topologies._generator import generator
from topofl.topologies.cliques.dcliques import joined, no_edges, scheme
from topofl.topologies.cliques.greedy_swap import check_clique_size
from topofl.topology import Topology

__all__ = ["ideal_cliques"]


@generator(family="D-Cliques", examples=["ideal_cliques:50,seed=0"])
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
    if n is not None:
        n = check_nodes(n, minimum=2)
    if label_counts is None and n is not None:
        clique_size = check_clique_size(min(10, n) if clique_size is None else clique_size, n)
    counts, source = counts_and_source(
        label_counts, n, classes=10 if clique_size is None else clique_size
    )
    if len(counts) < 2:
        raise ValueError(
            f"`label_counts` must have at least 2 nodes, got {len(counts)}; cliques need two"
        )
    classes = _single_classes(counts)
    if clique_size is None:
        clique_size = min(max(len(np.unique(classes)), 2), len(counts))
    clique_size = check_clique_size(clique_size, len(counts))
    join = no_edges if inter is None else scheme(inter, None, clique_size, len(counts))
    rng = stream(seed, "graph")
    groups = _dealt(classes, -(-len(counts) // clique_size), rng)
    name = call_name("ideal_cliques", source, clique_size=clique_size, inter=inter, seed=seed)
    return joined(groups, len(counts), join(groups, rng), name)


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
