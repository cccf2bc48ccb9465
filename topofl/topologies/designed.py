"""Topologies designed for the nodes' data: few links, low heterogeneity over several hops."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from topofl._support.check import check_int
from topofl._support.seeding import Seed, stream
from topofl.topologies._edge_swaps import HOPS, Design, completed, components, keys_of, swapped
from topofl.topologies._generator import generator, shares_of
from topofl.topologies.cliques import greedy_swap
from topofl.topology import Topology, TopologyError, from_edges, need_topology

__all__ = ["designed"]


DRAWS = 20
"""Random graphs drawn until one meets the limits."""

FIRST_STEPS = 100
"""Steps from every start, after which the search goes on from the best result only."""

STEPS = 2000
"""Default number of steps of the search, which usually ends earlier."""


@generator(family="learned from data", examples=["designed:30,degree=4,seed=0"])
def designed(
    label_counts: Any = None,
    *,
    degree: int | None = None,
    edges: int | None = None,
    n: int | None = None,
    label_shares: Any = None,
    hops: int = HOPS,
    allowed: Topology | None = None,
    required: Topology | None = None,
    max_diameter: int | None = None,
    steps: int = STEPS,
    seed: Seed,
) -> Topology:
    """Return an undirected graph designed for the nodes' data: given links, low heterogeneity.

    With Metropolis-Hastings weights W, the graph has a low ``H_K = (1/n) sum_{k=1..K} ||W^k Pi - J
    Pi||_F^2``, the label heterogeneity accumulated over K hops, which predicts how fast
    decentralized SGD learns; see :func:`topofl.metrics.neighborhood_heterogeneity`. From several
    starts (a random graph, and cliques with representative labels as in D-Cliques), swaps of two
    edges that keep all degrees lower H_K until none is found, and the best result is returned. Its
    H_K is low and not the lowest: 4 to 20 % above the best graph of an exhaustive sample.

    Parameters
    ----------
    label_counts
        (n, classes) array of non-negative integers, or an object with such a ``label_counts``, for
        example a Partition.
    degree
        Number of neighbors of every node; n times degree must be even.
    edges
        Alternative to `degree`: number of edges, at least n - 1; degrees differ by at most 1.
    n
        Alternative to `label_counts`: n nodes of one class each; node i has class ``i % 10``.
    label_shares
        Alternative to `label_counts`: (n, classes) finite numbers, the label distributions that
        nodes report, for example by :func:`topofl.data.private_label_histograms`.
    hops
        K, at least 1.
    allowed
        Graph whose edges may be used, such as the links of a physical network; None: all.
    required
        Graph whose edges must be used; None: none.
    max_diameter
        Largest distance between two nodes; None sets no limit.
    steps
        Maximum number of steps. Each start gets up to 100 of them, and the best result gets what
        the number leaves after 100: with three starts, `steps` + 200 steps in all. A search ends
        earlier when 50 steps lower H_K by less than 2 %. A step takes O(n degree hops classes)
        time.
    seed
        Integer or generator.

    Returns
    -------
    Topology
        Connected. For a version that changes over time and sends one message per node and round,
        pass it to :func:`matchings`.

    Raises
    ------
    TypeError
        If the counts are not integers, or an argument is of another kind.
    ValueError
        If not exactly one of `degree` and `edges`, and of `label_counts`, `n` and `label_shares`,
        is given; if a number is out of range, or n times degree is odd; if counts or shares are not
        valid; if `allowed` or `required` have another number of nodes.
    TopologyError
        If no connected graph with these degrees, edges and diameter was found.

    Notes
    -----
    Swaps are ranked by the derivative of H_K, a product of two (n, K classes) matrices, plus the
    second-order term of the first hop, so a step compares thousands of swaps for the price of 2 K
    exchanges. It makes as many of the best swaps that share no node as lower H_K itself. Since
    swaps keep all degrees, messages per round stay the same.

    References
    ----------
    Own work. For one hop and directed graphs it is the aim of STL-FW (Le Bars et al. 2023); see
    :func:`designed_directed`.

    Examples
    --------
    >>> from topofl import data, metrics, topologies
    >>> clients = data.shards(data.digits(), n=20, per_node=2, seed=0)
    >>> graph = designed(clients, degree=4, seed=0)
    >>> others = topologies.random_regular(20, 4, seed=0), topologies.torus(20)
    >>> found = metrics.neighborhood_heterogeneity(graph, clients, hops=10)
    >>> all(found < metrics.neighborhood_heterogeneity(x, clients, hops=10) for x in others)
    True
    """
    shares = shares_of(label_counts, n, label_shares)
    hops, steps = check_int("hops", hops, minimum=1), check_int("steps", steps, minimum=0)
    rng = stream(seed, "graph")
    n = len(shares)
    may = None if allowed is None else _edge_keys("allowed", allowed, n)
    must = np.empty(0, np.int64) if required is None else _edge_keys("required", required, n)
    if max_diameter is not None:
        check_int("max_diameter", max_diameter, minimum=1)
    if may is not None and not np.isin(must, may).all():
        raise ValueError("`required` must have edges of `allowed` only; allow all of them")
    degrees = _degrees(n, degree, edges, must)
    design = Design(degrees, shares - shares.mean(axis=0), hops, may, must, max_diameter)
    first = min(steps, FIRST_STEPS)
    tried = [swapped(start, design, rng, first) for start in _starts(shares, design, rng)]
    if not tried:
        raise TopologyError(_impossible(degrees, max_diameter, allowed))
    best, _ = min(tried, key=lambda found: found[1])
    best, _ = swapped(best, design, rng, steps - first)
    return from_edges(best, n)


def _edge_keys(argument: str, graph: Topology, n: int) -> np.ndarray:
    """Return the sorted keys ``i * n + j`` of the edges of an undirected graph on n nodes."""
    need_topology(argument, graph, n)
    if graph.is_directed:
        raise ValueError(f"`{argument}` must be undirected, {graph.name} is directed")
    return np.unique(keys_of(graph.edge_index.T, n))


def _degrees(n: int, degree: int | None, edges: int | None, required: np.ndarray) -> np.ndarray:
    """Return the degree of each node, or raise for budgets that no connected graph meets."""
    if (degree is None) == (edges is None):
        both = "neither" if edges is None else "both"
        raise ValueError(f"exactly one of `degree` and `edges` must be given, got {both}")
    if degree is not None:
        least = min(2, n - 1)
        remedy = f"a connected graph of {n} nodes needs a degree of {least} or more"
        name = "n-1"
        check_int("degree", degree, minimum=least, maximum=n - 1, maximum_name=name, remedy=remedy)
        if n * degree % 2:
            raise ValueError(
                f"`degree` times n must be even, got {degree} times {n}; use edges="
                f"{(n * degree + 1) // 2}, or the degree {degree + 1}"
            )
        degrees = np.full(n, degree)
    else:
        remedy = f"a connected graph of {n} nodes needs {n - 1} edges"
        most = n * (n - 1) // 2
        edges = check_int("edges", edges, minimum=n - 1, maximum=most, remedy=remedy)
        degrees = np.full(n, 2 * edges // n)
        degrees[: 2 * edges - int(degrees.sum())] += 1
    ends = np.stack(np.divmod(required, n)).ravel()
    over = np.flatnonzero(np.bincount(ends, minlength=n) > degrees)
    if len(over):
        raise ValueError(
            f"`required` must have at most {degrees[over[0]]} edges at node {over[0]}, which is "
            "its degree; raise the budget"
        )
    return degrees


def _starts(shares: np.ndarray, design: Design, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield connected graphs of a design: a random one, and cliques with all labels."""
    least = int(design.degrees.min())
    for size in (0, least + 1, least):
        wanted = np.empty((0, 2), dtype=np.int64)
        if size >= 3:
            size = min(size, len(shares))
            groups = greedy_swap(label_shares=shares, clique_size=size, seed=rng).groups
            pairs = [(i, j) for group in groups for i in group for j in group if i < j]
            wanted = np.array(pairs).reshape(-1, 2)
        elif size:
            continue
        for _ in range(1 if size else DRAWS):
            edges = completed(wanted, design, rng)
            if edges is not None and (edges := _connected(edges, design, rng)) is not None:
                yield edges
                break


def _connected(edges: np.ndarray, design: Design, rng: np.random.Generator) -> np.ndarray | None:
    """Return edges after swaps that join components; None if that or the diameter fails."""
    n = design.n
    fixed = np.isin(keys_of(edges, n), design.required)
    for _ in range(50 * n):
        count, labels = components(edges, n)
        if count == 1:
            return edges if design.keep_diameter(edges) else None
        first, second = rng.integers(len(edges), size=2)
        (a, b), (c, d) = edges[first], edges[second]
        new = np.array([(a, c), (b, d)])
        if labels[a] == labels[c] or fixed[[first, second]].any():
            continue
        if not design.permit(keys_of(new, n)).all():
            continue
        edges = edges.copy()
        edges[[first, second]] = np.sort(new, axis=1)
    return None


def _impossible(degrees: np.ndarray, max_diameter: int | None, allowed: Topology | None) -> str:
    least, most = int(degrees.min()), int(degrees.max())
    degree = f"degree {least}" if least == most else f"degrees {least} and {most}"
    wishes = [] if max_diameter is None else [f"a diameter of at most {max_diameter}"]
    wishes += [] if allowed is None else [f"edges of {allowed.name} only"]
    remedy = "raise the budget" if not wishes else "raise the budget, or relax these limits"
    return f"no connected graph with {', '.join([degree, *wishes])} was found; {remedy}"
