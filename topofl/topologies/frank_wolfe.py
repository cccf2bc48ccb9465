"""Directed graphs and weights learned from label distributions by Frank-Wolfe."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from topofl._linalg.sparse import is_strong
from topofl._support.check import check_int, check_nonnegative
from topofl._support.public import public, warn_caller
from topofl.topologies._edge_swaps import HOPS, heterogeneity, slopes
from topofl.topologies._generator import generator, shares_of
from topofl.topology import Topology, need_topology

__all__ = ["designed_directed", "stl_fw", "stl_fw_trace"]


SIZE_LIMIT = 5000
"""Maximum number of nodes: a step solves an assignment on a dense (n, n) matrix, here 200 MB."""

_TOLERANCE = 1e-12
"""Rounding: a step must have a predicted gain of more than this."""


@generator(family="learned from data", examples=["stl_fw:30,degree=3"])
def stl_fw(
    label_counts: Any = None, degree: int = 10, *, n: int | None = None, lam: float = 0.1
) -> Topology:
    """Return the directed graph and weights that STL-FW learns from label distributions.

    Each node has at most `degree` in-neighbors and out-neighbors.

    Over doubly stochastic W, Frank-Wolfe minimizes ``g(W) = (1/n) ||W Pi - J Pi||_F^2 + (lam/n) ||W
    - J||_F^2``: the remaining label skew of neighborhoods, and the variance that remains from
    averaging over few nodes. Pi is the (n, classes) matrix of label shares and J has all entries
    1/n; the minimum of 0 is at J, the complete graph. From W = I, each step finds the permutation P
    in whose direction g decreases fastest (an assignment problem) and moves to the best point
    between W and P (in closed form). After `degree` steps each node thus receives from and sends to
    at most `degree` others, fewer if permutations agree or have fixed points, and no step increases
    g.

    The edge i -> j carries ``W[j, i]``, and ``own_weights`` is set, so the default weights are W.
    The graph is directed and not necessarily connected, although it usually is for a `degree` of 3
    or more. The choice between equally good permutations depends on rounding, so another machine
    may return a different graph of the same quality.

    Parameters
    ----------
    label_counts
        (n, classes) array of non-negative integers, or an object with such a ``label_counts``, for
        example a Partition; at most 5000 nodes. A step takes O(n^2) memory and up to O(n^3) time:
        about a second for 2000 nodes of two classes.
    degree
        Number of steps, at least 0. With one class per node and equal numbers of nodes of K
        classes, K - 1 steps remove all skew.
    n
        Alternative to `label_counts`: n nodes of one class each; node i has class ``i % 10``.
    lam
        Weight of the variance, at least 0. With 0 the method stops once no skew is left.

    Raises
    ------
    TypeError
        If the counts are not integers.
    ValueError
        If the counts have the wrong shape, are negative, or leave a node without data; if there are
        too many nodes; if `degree` or `lam` is out of range; if not exactly one of `label_counts`
        and `n` is given.

    Notes
    -----
    ``g(W_l) <= 16 / (l + 2) (lam / 2 + V)`` after l steps for every n, where V is g(I) with `lam` 0
    (at most 1): Frank-Wolfe with exact line search ends within ``2 C / (l + 2)`` of the minimum,
    where C is the supremum of ``(2/n) (||(S - W) Pi||_F^2 + lam ||S - W||_F^2)`` over doubly
    stochastic S and W, ``||S - W||_F^2 <= 2 n``, and ``||(S - W)(Pi - J Pi)||_F^2 <= 4 ||Pi - J
    Pi||_F^2``.

    References
    ----------
    Le Bars, Bellet, Tommasi, Lavoie and Kermarrec, "Refined convergence and topology learning for
    decentralized SGD with heterogeneous data" (2023), Algorithm 2 (STL-FW) and equation 8. Jaggi,
    "Revisiting Frank-Wolfe" (2013), Theorem 1, for the rate.

    Examples
    --------
    >>> from topofl.mixing import own_weights
    >>> graph = stl_fw([[5, 0], [0, 5]], degree=1)
    >>> own_weights(graph).weights.toarray().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    shares, lam = _checked(label_counts, n, degree, lam, "dcliques or neighborhood_swap")
    *_, weights = frank_wolfe_steps(shares - shares.mean(axis=0), degree, lam)
    return _graph_with(weights)


@public
def stl_fw_trace(label_counts: Any, degree: int = 10, *, lam: float = 0.1) -> np.ndarray:
    """Return both terms of STL-FW's objective after every step.

    Parameters
    ----------
    label_counts, degree, lam
        As in :func:`stl_fw`.

    Returns
    -------
    numpy.ndarray
        (degree + 1, 2): ``(1/n) ||W Pi - J Pi||_F^2`` and ``(1/n) ||W - J||_F^2``; row 0 is W = I.
        The objective is the first column plus `lam` times the second, and never rises.

    Raises
    ------
    TypeError, ValueError
        As :func:`stl_fw`.

    References
    ----------
    Le Bars et al., "Refined convergence and topology learning for decentralized SGD with
    heterogeneous data" (2023).

    Examples
    --------
    >>> stl_fw_trace([[5, 0], [0, 5]], degree=1).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    shares, lam = _checked(label_counts, None, degree, lam, "dcliques or neighborhood_swap")
    deviations = shares - shares.mean(axis=0)
    trace = [_terms(weights, deviations) for weights in frank_wolfe_steps(deviations, degree, lam)]
    left = degree + 1 - len(trace)  # stopped early, at the minimum along all permutations
    return np.array(trace + [trace[-1]] * left)


def _checked(
    label_counts: Any, n: int | None, degree: int, lam: float, others: str
) -> tuple[np.ndarray, float]:
    """Return the label shares and `lam`, or raise; `others` are generators for more nodes."""
    shares = shares_of(label_counts, n)
    check_int("degree", degree, minimum=0)
    if len(shares) > SIZE_LIMIT:
        raise ValueError(
            f"`label_counts` must have at most {SIZE_LIMIT} nodes, since Frank-Wolfe solves dense "
            f"assignment problems, got {len(shares)}; use {others}"
        )
    return shares, check_nonnegative("lam", lam)


def _graph_with(weights: sparse.csr_array) -> Topology:
    """Return the graph whose own mixing weights are W."""
    edges = sparse.csr_array(weights.T)
    edges.setdiag(0)
    return Topology(edges, own_weights=True)


def frank_wolfe_steps(
    deviations: np.ndarray, degree: int, lam: float
) -> Iterator[sparse.csr_array]:
    """Yield I, and W after each of at most `degree` steps, until no permutation gives a gain."""
    n = len(deviations)
    weights = sparse.csr_array(sparse.eye_array(n))
    yield weights
    for _ in range(degree):
        # The gradient times n / 2, up to constants, which do not matter for doubly stochastic
        # matrices.
        slope = (weights @ deviations) @ deviations.T
        entries = sparse.coo_array(weights)
        slope[entries.coords] += lam * entries.data
        line = sparse.csr_array(_permutation(slope) - weights)
        gain = -2 / n * float(line.multiply(slope).sum())
        if gain <= _TOLERANCE:
            return
        # g(W + s D) = g(W) - s gain + s^2 curvature
        curvature = float(np.square(line @ deviations).sum() + lam * np.square(line.data).sum()) / n
        weights = sparse.csr_array(weights + min(1.0, gain / (2 * curvature)) * line)
        yield weights


def _terms(weights: sparse.csr_array, deviations: np.ndarray) -> tuple[float, float]:
    """Return both terms of g: ``||W - J||_F^2 = ||W||_F^2 - 1`` for doubly stochastic W."""
    n = len(deviations)
    skew = np.square(weights @ deviations).sum() / n
    variance = (np.square(weights.data).sum() - 1) / n
    return float(skew), float(variance)


@generator(family="learned from data", examples=["designed_directed:30,degree=3"])
def designed_directed(
    label_counts: Any = None,
    degree: int = 10,
    *,
    n: int | None = None,
    hops: int = HOPS,
    lam: float = 0.1,
    allowed: Topology | None = None,
) -> Topology:
    """Return a directed graph with weights designed for the nodes' data, by Frank-Wolfe on H_K.

    Over doubly stochastic W, the method minimizes ``(1/n) sum_{k=1..K} ||W^k Pi - J Pi||_F^2 +
    (lam/n) ||W - J||_F^2`` from W = I: each step moves to the best point between W and the
    permutation in whose direction the objective decreases fastest. After `degree` steps each node
    receives from and sends to at most `degree` others. With ``hops=1`` it is :func:`stl_fw` where
    that is connected.

    If the result is not connected, as with equal labels at all nodes, the steps are repeated from
    the mean of I and a single cycle, which is connected: the cycles of the first permutation are
    joined at the least increase of its slope.

    Parameters
    ----------
    label_counts, degree, n, lam
        As in :func:`stl_fw`.
    hops
        K, at least 1.
    allowed
        Graph whose edges may be used; None: all.

    Returns
    -------
    Topology
        Directed; the edge i -> j carries ``W[j, i]``, and ``own_weights`` is set. It is strongly
        connected if `degree` is at least 1. With `allowed` it may not be: a warning says so.

    Raises
    ------
    TypeError, ValueError
        As :func:`stl_fw`; if `hops` is below 1, or `allowed` has another number of nodes.

    Notes
    -----
    For K > 1 the objective is not convex, so steps lower it but need not end near the minimum. The
    line search is numerical, to a relative precision of 1e-8.

    References
    ----------
    Le Bars, Bellet, Tommasi, Lavoie and Kermarrec, "Refined convergence and topology learning for
    decentralized SGD with heterogeneous data" (2023), for one hop.

    Examples
    --------
    >>> from topofl.mixing import own_weights
    >>> graph = designed_directed([[5, 0], [0, 5]], degree=1)
    >>> own_weights(graph).weights.toarray().round(6).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    shares, lam = _checked(label_counts, n, degree, lam, "designed")
    check_int("hops", hops, minimum=1)
    costs = _forbidden_costs(len(shares), allowed)
    objective = _Objective(shares - shares.mean(axis=0), hops, lam, costs)
    graph = _graph_with(_designed(objective, degree))
    if degree and not graph.is_connected:
        warn_caller(
            f"designed_directed(degree={degree}) is not strongly connected, so models do not agree "
            "on one average: no connected graph with edges of `allowed` only was found; raise "
            "`degree`, or allow more edges"
        )
    return graph


def _designed(objective: "_Objective", degree: int) -> sparse.csr_array:
    """Return W after `degree` steps from I or, if it is not connected, from I and one cycle."""
    identity = sparse.csr_array(sparse.eye_array(len(objective.deviations)))
    if objective.hops == 1 and objective.costs is None:  # the line search has a closed form
        *_, weights = frank_wolfe_steps(objective.deviations, degree, objective.lam)
    else:
        weights = objective.minimized(identity, degree)
    if degree == 0 or is_strong(weights):
        return weights
    start = (identity + _permutation(objective.slope(identity), joined=True)) / 2
    found = objective.minimized(sparse.csr_array(start), degree - 1)
    return found if is_strong(found) else weights


def _forbidden_costs(n: int, allowed: Topology | None) -> np.ndarray | None:
    """Return (n, n) infinite costs at receiver and sender of edges that are not allowed."""
    if allowed is None:
        return None
    need_topology("allowed", allowed, n)
    costs = np.where(allowed.adjacency.toarray().T != 0, 0.0, np.inf)
    np.fill_diagonal(costs, 0.0)
    return costs


@dataclass(frozen=True, eq=False)
class _Objective:
    """``H_K + (lam/n) ||W - J||_F^2``, and (n, n) costs of edges that are not allowed, or None."""

    deviations: np.ndarray
    hops: int
    lam: float
    costs: np.ndarray | None

    def value(self, weights: sparse.csr_array) -> float:
        variance = (np.square(weights.data).sum() - 1) / len(self.deviations)
        return heterogeneity(weights, self.deviations, self.hops) + self.lam * float(variance)

    def slope(self, weights: sparse.csr_array) -> np.ndarray:
        """Return the gradient at W, (n, n), up to a constant, plus the costs."""
        left, right = slopes(weights, self.deviations, self.hops)
        slope = left @ right.T
        entries = sparse.coo_array(weights)
        slope[entries.coords] += 2 * self.lam / len(self.deviations) * entries.data
        return slope if self.costs is None else slope + self.costs

    def minimized(self, weights: sparse.csr_array, degree: int) -> sparse.csr_array:
        """Return W after at most `degree` steps of Frank-Wolfe, each of which lowers the value."""
        value = self.value(weights)
        for _ in range(degree):
            line = sparse.csr_array(_permutation(self.slope(weights)) - weights)
            found, lowest = _least_along(line, weights, self.value)
            if lowest >= value - 1e-12:
                break
            weights, value = found, lowest
        return weights


def _permutation(costs: np.ndarray, *, joined: bool = False) -> sparse.csr_array:
    """Return the permutation matrix of least total cost, (n, n), perhaps with joined cycles."""
    from scipy.optimize import linear_sum_assignment

    rows, targets = linear_sum_assignment(costs)
    if joined:
        targets = _joined(targets, costs)
    return sparse.csr_array((np.ones(len(costs)), (rows, targets)), shape=costs.shape)


def _joined(targets: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return a permutation whose cycles are joined into one, as far as costs are finite.

    The smallest cycle is joined first, by swapping the targets of one of its nodes and of a node
    outside at the least cost.
    """
    targets = targets.copy()
    nodes = np.arange(len(targets))
    ones = np.ones(len(targets))
    count, cycle_of = connected_components(
        sparse.csr_array((ones, (nodes, targets)), shape=costs.shape), directed=False
    )
    closed: set[int] = set()
    while True:
        sizes = np.bincount(cycle_of, minlength=count)
        left = [k for k in np.argsort(sizes, kind="stable") if sizes[k] and k not in closed]
        if not left or sizes[left[0]] == len(targets):
            return targets
        inside, outside = (np.flatnonzero(cycle_of == left[0]), np.flatnonzero(cycle_of != left[0]))
        change = costs[np.ix_(inside, targets[outside])]
        change = change + costs[np.ix_(outside, targets[inside])].T
        change -= costs[inside, targets[inside]][:, None] + costs[outside, targets[outside]]
        a, b = np.unravel_index(int(change.argmin()), change.shape)
        if not np.isfinite(change[a, b]):
            closed.add(left[0])
            continue
        a, b = inside[a], outside[b]
        targets[[a, b]] = targets[[b, a]]
        cycle_of[inside] = cycle_of[b]
        closed.clear()


def _least_along(
    line: sparse.csr_array,
    weights: sparse.csr_array,
    objective: Callable[[sparse.csr_array], float],
) -> tuple[sparse.csr_array, float]:
    """Return where on ``weights + step * line``, 0 <= step <= 1, an objective is least, and it."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda step: objective(sparse.csr_array(weights + step * line)),
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": 1e-8},
    )
    return sparse.csr_array(weights + found.x * line), float(found.fun)
