"""MATCHA: random matchings of a graph, which occur as often as its connectivity needs them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import linprog, minimize_scalar

from topofl._support.check import check_share
from topofl._support.public import public
from topofl.topologies._generator import generator, redrawn, with_own_weights
from topofl.topologies.derived import matchings
from topofl.topology import Topology, TopologyError, TopologySequence, static_graph

__all__ = ["Activation", "activation", "matcha"]

GAP = 1e-5
"""Relative distance from the optimum that is proven before the search stops."""

STEPS = 2000
"""Cutting planes after which the search gives up; graphs of 100 nodes need about 100."""

STAY = 0.7
"""Weight of the best point in the next one; without it, cutting planes swing between corners."""

VECTORS = 6
"""Eigenvectors of a point from which cuts are made."""

NODES = 1000
"""Largest number of nodes: about 100 dense eigendecompositions then take minutes."""


@dataclass(frozen=True, eq=False)
class Activation:
    """How often each matching of a graph occurs, and the weight of its edges.

    Attributes
    ----------
    edges
        For each of the M matchings, its (E, 2) undirected edges.
    probabilities
        (M,) probability with which each matching occurs in a round, independently of the others.
    connectivity
        Second smallest eigenvalue of the expected Laplacian, the sum of the Laplacians of the
        matchings times their probabilities.
    bound
        Proven upper bound of `connectivity` over all probabilities within the budget.
    alpha
        Weight of an edge: the one that lowers `contraction` most.
    contraction
        Largest factor by which a round with ``W = I - alpha L``, L the Laplacian of the matchings
        that occur, shrinks squared disagreement in expectation: the norm of ``E[W W] - J``.

    Examples
    --------
    >>> from topofl import topologies
    >>> found = activation(topologies.path(5), budget=0.5)  # edges 0-1, 2-3 and 1-2, 3-4
    >>> found.probabilities.round(3).tolist(), round(found.connectivity, 4)
    ([0.5, 0.5], 0.191)
    """

    edges: tuple[np.ndarray, ...]
    probabilities: np.ndarray
    connectivity: float
    bound: float
    alpha: float
    contraction: float


@generator(family="time-varying", examples=["matcha,base=(grid:16),budget=0.5,seed=0"])
def matcha(base: Any, *, budget: float, seed: int) -> TopologySequence:
    """Return random subsets of the matchings of `base`, those that connect it most often.

    `base` is split into M matchings (:func:`topofl.topologies.matchings`). In each round matching j
    occurs with probability p_j, independently of the others and of other rounds. The probabilities
    maximize the second smallest eigenvalue of the expected Laplacian ``sum_j p_j L_j`` (algebraic
    connectivity) such that on average at most ``budget * M`` matchings occur; they are within 1e-5
    of the optimum, relatively. So edges that hold the graph together are used more often than those
    in dense parts. :func:`activation` returns the probabilities.

    The graph has its own weights, symmetric and doubly stochastic: alpha, the weight with the
    fastest expected contraction, except where this leaves a node with a negative self-weight. There
    the weight of an edge is 1 / d, with d the larger degree of its two nodes in the round.

    Parameters
    ----------
    base
        A connected undirected graph of 2 to 1,000 nodes: a Topology, or anything else that
        :func:`topofl.as_topology` accepts. Groups and node labels are preserved.
    budget
        In (0, 1]: expected share of the matchings that occur in a round. With 1, every round is
        `base`.
    seed
        Non-negative integer; not a generator, since round t must not depend on the rounds drawn
        before it.

    Raises
    ------
    TypeError
        If `base` is not a graph, or changes over time; if another argument has the wrong type.
    TopologyError
        If `base` is directed or not connected, or has a single node.
    ValueError
        If `base` has its own mixing weights or too many nodes; if `budget` is out of range.

    Warns
    -----
    UserWarning
        If the edges of `base` have unequal weights, which are ignored.

    References
    ----------
    Wang, Sahu, Yang, Joshi and Kar, "MATCHA" (2019), and its code for alpha, which there may make
    self-weights negative; Kelley, "The cutting-plane method for solving convex programs" (1960).

    Examples
    --------
    >>> from topofl import topologies
    >>> graphs = matcha(topologies.torus(16), budget=0.5, seed=0)  # 32 edges in 4 matchings
    >>> [graphs.at(t).n_edges for t in range(6)]
    [16, 8, 16, 16, 16, 16]
    """
    budget = check_share("budget", budget)
    graph = _checked(base)
    drawn = redrawn(graph.n, partial(_draw, _activation(graph, budget), graph), seed)
    return replace(drawn, name=graph.name)


def _draw(found: Activation, base: Topology, rng: np.random.Generator) -> Topology:
    """Return the matchings that occur in a round."""
    occurs = rng.random(len(found.probabilities)) < found.probabilities
    chosen = [pairs for pairs, used in zip(found.edges, occurs, strict=True) if used]
    edges = np.concatenate([np.zeros((0, 2), np.int64), *chosen])
    degrees = np.bincount(edges.reshape(-1), minlength=base.n)
    larger = degrees[edges].max(axis=1)
    graph = with_own_weights(edges, np.minimum(found.alpha, 1 / larger), base.n)
    return replace(graph, groups=base.groups, nodes=base.nodes)


@public
def activation(base: Any, *, budget: float) -> Activation:
    """Return the probabilities and the weight with which :func:`matcha` uses the matchings.

    The largest second eigenvalue is found by cutting planes: for every vector v orthogonal to the
    ones, ``sum_j p_j v' L_j v / v' v`` is an upper bound that is linear in p. The linear program
    over the bounds found so far proves how far the best p is from the optimum.

    Parameters
    ----------
    base, budget
        As in :func:`matcha`.

    Raises
    ------
    TypeError, TopologyError, ValueError
        As :func:`matcha`.

    References
    ----------
    Wang, Sahu, Yang, Joshi and Kar, "MATCHA" (2019); Kelley, "The cutting-plane method for solving
    convex programs" (1960).

    Examples
    --------
    >>> from topofl import topologies
    >>> found = activation(topologies.fully_connected(6), budget=0.4)  # of 5 matchings
    >>> found.probabilities.round(3).tolist(), round(found.connectivity, 3)
    ([0.4, 0.4, 0.4, 0.4, 0.4], 2.4)
    """
    budget = check_share("budget", budget)
    return _activation(_checked(base), budget)


def _checked(base: Any) -> Topology:
    """Return a graph that is small enough, has matchings and is connected, or raise."""
    graph = static_graph("base", base)
    if graph.n > NODES:
        raise ValueError(
            f"`base` must have at most {NODES:,} nodes, since its eigenvectors are computed often, "
            f"got {graph.n:,}; use matchings or random_matching"
        )
    if graph.is_directed or (graph.n > 1 and graph.is_connected):
        return graph  # matchings refuses directed graphs
    kind = "a single node" if graph.n == 1 else "several components"
    raise TopologyError(
        f"`base` must be connected and have at least 2 nodes, {graph.name} has {kind}"
    )


def _activation(graph: Topology, budget: float) -> Activation:
    rounds = matchings(graph)
    pairs = [rounds.at(t).edge_index.T for t in range(rounds.period or 1)]
    edges = tuple(both[both[:, 0] < both[:, 1]] for both in pairs)
    laplacian = partial(_laplacian, edges, graph.n)
    if budget < 1:
        p, value, bound = _most_connected(edges, laplacian, graph.n, budget)
    else:
        p = np.ones(len(edges))
        value = bound = float(_lowest(laplacian(p))[0][0])
    return Activation(edges, p, value, bound, *_best_weight(laplacian, p))


def _laplacian(edges: tuple[np.ndarray, ...], n: int, p: np.ndarray) -> np.ndarray:
    """Return the (n, n) sum of the Laplacians of the matchings, times p."""
    ends = np.concatenate(edges).T
    weights = np.repeat(p, [len(pairs) for pairs in edges])
    adjacency = np.zeros((n, n))
    adjacency[ends[0], ends[1]] = adjacency[ends[1], ends[0]] = weights
    return np.diag(adjacency.sum(axis=0)) - adjacency


def _lowest(laplacian: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest eigenvalues, except that of the ones, and their (n, k) eigenvectors."""
    n = len(laplacian)
    above = 4 * np.abs(laplacian.diagonal()).max() / n  # moves the ones to the upper end
    eigenvalues, vectors = np.linalg.eigh(laplacian + above)
    count = min(VECTORS, n - 1)
    return eigenvalues[:count], vectors[:, :count]


def _most_connected(
    edges: tuple[np.ndarray, ...],
    laplacian: Callable[[np.ndarray], np.ndarray],
    n: int,
    budget: float,
) -> tuple[np.ndarray, float, float]:
    """Return the best probabilities, their connectivity, and an upper bound of the optimum.

    The search is for multiples of the budget, since solvers have absolute tolerances.
    """
    point = best = np.ones(len(edges))
    value, bound = -np.inf, np.inf
    ends = [pairs.T for pairs in edges]
    cuts = [np.array([2 * len(pairs) / (n - 1) for pairs in edges])]  # the mean over all v
    for _ in range(STEPS):
        eigenvalues, vectors = _lowest(laplacian(point))
        if eigenvalues[0] > value:
            value, best = float(eigenvalues[0]), point
        near = vectors[:, eigenvalues <= 1.3 * abs(eigenvalues[0]) + GAP]
        slopes = np.array([((near[u] - near[v]) ** 2).sum(axis=0) for u, v in ends])
        cuts += [*slopes.T, slopes.mean(axis=1)]
        corner, bound = _highest(np.array(cuts), 1 / budget)
        if bound - value <= GAP * bound:
            return np.minimum(budget * best, 1), budget * value, budget * bound
        point = STAY * best + (1 - STAY) * corner
    raise TopologyError(
        f"no probabilities within {GAP:g} of the optimum were found after {STEPS:,} steps: "
        f"connectivity {budget * value:.6g}, bound {budget * bound:.6g}; use matchings"
    )


def _highest(cuts: np.ndarray, most: float) -> tuple[np.ndarray, float]:
    """Return the point in [0, most] of mean 1 whose lowest cut is highest, and its value."""
    count, size = cuts.shape
    solved = linprog(
        np.append(np.zeros(size), -1.0),
        A_ub=np.column_stack([-cuts, np.ones(count)]),
        b_ub=np.zeros(count),
        A_eq=np.append(np.ones(size), 0)[None],
        b_eq=[size],
        bounds=[(0, min(most, size))] * size + [(None, None)],
    )
    return np.maximum(solved.x[:size], 0), float(-solved.fun)


def _best_weight(
    laplacian: Callable[[np.ndarray], np.ndarray], p: np.ndarray
) -> tuple[float, float]:
    """Return the weight of edges with the fastest expected contraction, and the contraction.

    For matchings ``L_j L_j = 2 L_j``, so ``E[L L]`` is the square of the expected Laplacian plus
    twice the sum of ``p_j (1 - p_j) L_j``. What a round contracts is concave in the weight. With x
    the Rayleigh quotient of a vector, it contracts most for a weight below ``1 / (x + 2 - 2 max
    p)``.
    """
    mean = laplacian(p)
    square = mean @ mean + 2 * laplacian(p * (1 - p))
    most = 1 / (_lowest(mean)[0][0] + 2 * (1 - p.max()))

    def loss(weight: float) -> float:
        return -float(_lowest(2 * weight * mean - weight**2 * square)[0][0])

    found = minimize_scalar(
        loss, bounds=(0, most), method="bounded", options={"xatol": 1e-9 * most}
    )
    return float(found.x), 1 + float(found.fun)
