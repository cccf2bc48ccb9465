"""Directed graphs and weights designed for the nodes' data, by Frank-Wolfe over several hops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from topofl._support.callers import warn_caller
from topofl._support.check import check_int, check_nonnegative
from topofl.topologies._common import call_name, counts_and_source
from topofl.topologies._common import label_shares as shares_of
from topofl.topologies._generator import generator
from topofl.topologies.from_data._edge_swaps import HOPS, check_network, heterogeneity, slopes
from topofl.topologies.from_data.frank_wolfe import SIZE_LIMIT, frank_wolfe_steps
from topofl.topology import Topology

__all__ = ["designed_directed"]


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
    counts, source = counts_and_source(label_counts, n, classes=10)
    check_int("degree", degree, minimum=0)
    check_int("hops", hops, minimum=1)
    check_nonnegative("lam", lam)
    if len(counts) > SIZE_LIMIT:
        raise ValueError(
            f"`label_counts` must have at most {SIZE_LIMIT} nodes, since Frank-Wolfe solves dense "
            f"assignment problems, got {len(counts)}; use designed"
        )
    shares = shares_of(counts)
    costs = _forbidden_costs(len(counts), allowed)
    weights = _designed(shares, degree, hops, lam, costs)
    edges = sparse.csr_array(weights.T)
    edges.setdiag(0)
    hops_shown = None if hops == HOPS else hops
    lam_shown = None if lam == 0.1 else lam
    name = call_name(
        "designed_directed", source, degree=degree, hops=hops_shown, lam=lam_shown, allowed=allowed
    )
    graph = Topology(edges, name=name, own_weights=True)
    if degree and not graph.is_connected:
        warn_caller(
            f"{name} is not strongly connected, so models do not agree on one average: no "
            "connected graph with edges of `allowed` only was found; raise `degree`, or allow more "
            "edges"
        )
    return graph


def _designed(
    shares: np.ndarray, degree: int, hops: int, lam: float, costs: np.ndarray | None
) -> sparse.csr_array:
    """Return W after `degree` steps from I or, if it is not connected, from I and one cycle."""
    deviations = shares - shares.mean(axis=0)
    identity = weights = sparse.csr_array(sparse.eye_array(len(shares)))
    if hops == 1 and costs is None:  # the line search has a closed form
        for step in frank_wolfe_steps(shares, degree, lam):
            weights = step.weights
    else:
        weights = _minimized(deviations, degree, hops, lam, costs)
    if degree == 0 or _is_connected(weights):
        return weights
    slope = _slope(identity, deviations, hops, lam, costs)
    start = sparse.csr_array((identity + _permutation(slope, joined=True)) / 2)
    found = _minimized(deviations, degree - 1, hops, lam, costs, start)
    return found if _is_connected(found) else weights


def _is_connected(weights: sparse.csr_array) -> bool:
    return connected_components(weights, directed=True, connection="strong")[0] == 1


def _forbidden_costs(n: int, allowed: Topology | None) -> np.ndarray | None:
    """Return (n, n) infinite costs at receiver and sender of edges that are not allowed."""
    if allowed is None:
        return None
    check_network("allowed", allowed, n)
    costs = np.where(allowed.adjacency.toarray().T != 0, 0.0, np.inf)
    np.fill_diagonal(costs, 0.0)
    return costs


def _minimized(
    deviations: np.ndarray,
    degree: int,
    hops: int,
    lam: float,
    costs: np.ndarray | None,
    start: sparse.csr_array | None = None,
) -> sparse.csr_array:
    """Return W after `degree` steps of Frank-Wolfe from `start`; None: from I."""
    n = len(deviations)
    weights = sparse.csr_array(sparse.eye_array(n)) if start is None else start

    def objective(matrix: sparse.csr_array) -> float:
        variance = (np.square(matrix.data).sum() - 1) / n
        return heterogeneity(matrix, deviations, hops) + lam * float(variance)

    value = objective(weights)
    for _ in range(degree):
        slope = _slope(weights, deviations, hops, lam, costs)
        found, lowest = _least_along(
            sparse.csr_array(_permutation(slope) - weights), weights, objective
        )
        if lowest >= value - 1e-12:
            return weights
        weights, value = found, lowest
    return weights


def _slope(
    weights: sparse.csr_array,
    deviations: np.ndarray,
    hops: int,
    lam: float,
    costs: np.ndarray | None,
) -> np.ndarray:
    """Return the gradient of the objective at W, (n, n), up to a constant, plus `costs`."""
    left, right = slopes(weights, deviations, hops)
    slope = left @ right.T
    entries = sparse.coo_array(weights)
    slope[entries.coords] += 2 * lam / len(deviations) * entries.data
    return slope if costs is None else slope + costs


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
