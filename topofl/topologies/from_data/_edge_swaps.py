"""Degree-preserving edge swaps that lower the heterogeneity accumulated over several hops."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components, dijkstra

from topofl._support.check import shown
from topofl.topology import Topology

__all__ = [
    "HOPS",
    "Limits",
    "check_network",
    "completed",
    "heterogeneity",
    "metropolis",
    "slopes",
    "swapped",
]

HOPS = 10
"""Default number of hops over which heterogeneity is accumulated."""

CANDIDATES = 4000
"""Pairs of edges considered per step."""

PATIENCE = 12
"""Consecutive steps without a better graph after which the search ends."""


@dataclass(frozen=True)
class Limits:
    """What the edges of a designed graph must satisfy.

    Parameters
    ----------
    forbidden, required
        Sorted keys of edges (``i * n + j`` with i < j) that must not exist, and that must stay.
    max_diameter
        Largest distance between two nodes; None sets no limit.
    """

    forbidden: np.ndarray
    required: np.ndarray
    max_diameter: int | None = None

    def allow(self, edges: np.ndarray, n: int) -> bool:
        """Return whether a graph is connected, and its diameter within the limit."""
        ones = np.ones(len(edges))
        graph = sparse.csr_array((ones, edges.T), shape=(n, n))
        if connected_components(graph, directed=False)[0] > 1:
            return False
        if self.max_diameter is None:
            return True
        distances = dijkstra(graph, directed=False, unweighted=True, limit=self.max_diameter)
        return bool(np.isfinite(distances).all())


def check_network(argument: str, graph: Any, n: int) -> None:
    """Raise unless an argument is a graph on n nodes."""
    if not isinstance(graph, Topology):
        raise TypeError(
            f"`{argument}` must be a Topology, got {shown(graph)}; use as_topology(graph)"
        )
    if graph.n != n:
        raise ValueError(f"`{argument}` must have one node per row of the data, {n}, got {graph.n}")


def metropolis(edges: np.ndarray, degrees: np.ndarray) -> sparse.csr_array:
    """Return the Metropolis-Hastings matrix of edges (m, 2) of nodes with these degrees."""
    n = len(degrees)
    weights = 1.0 / (1 + np.maximum(degrees[edges[:, 0]], degrees[edges[:, 1]]))
    upper = sparse.csr_array((weights, edges.T), shape=(n, n))
    both = sparse.csr_array(upper + upper.T)
    return sparse.csr_array(both + sparse.diags_array(1 - both.sum(axis=1)))


def heterogeneity(weights: sparse.csr_array, deviations: np.ndarray, hops: int) -> float:
    """Return ``H_K = (1/n) sum_{k=1..K} ||W^k D||_F^2`` with D the deviations from the mean."""
    total, left = 0.0, deviations
    for _ in range(hops):
        left = weights @ left
        total += float(np.square(left).sum())
    return total / len(deviations)


def slopes(
    weights: sparse.csr_array, deviations: np.ndarray, hops: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return factors L and R, (n, K classes), of the gradient of H_K with respect to W, ``L R^T``.

    With ``U_k = W^k D``, the adjoints are ``A_K = 2 U_K / n`` and ``A_k = 2 U_k / n + W^T
    A_{k+1}``, and the gradient is ``sum_k A_{k+1} U_k^T``.
    """
    states = [deviations]
    for _ in range(hops):
        states.append(weights @ states[-1])
    transposed = sparse.csr_array(weights.T)
    adjoints = [2 * states[hops] / len(deviations)]
    for k in range(hops - 1, 0, -1):
        adjoints.append(2 * states[k] / len(deviations) + transposed @ adjoints[-1])
    return np.concatenate(adjoints[::-1], axis=1), np.concatenate(states[:-1], axis=1)


def swapped(
    edges: np.ndarray,
    degrees: np.ndarray,
    deviations: np.ndarray,
    hops: int,
    limits: Limits,
    rng: np.random.Generator,
    steps: int,
) -> tuple[np.ndarray, float]:
    """Return edges after swaps that keep all degrees and lower H_K, and its final value.

    A step draws pairs of edges (a, b), (c, d), ranks the swaps to (a, c), (b, d) by the change of
    H_K to first order, and makes as many of the best disjoint ones as lower H_K itself.
    """
    value = heterogeneity(metropolis(edges, degrees), deviations, hops)
    if len(edges) < 2:
        return edges, value
    count, failures = max(1, len(degrees) // 8), 0
    for _ in range(steps):
        swaps = _ranked(edges, degrees, deviations, hops, limits, rng)
        better = None
        while len(swaps) and better is None:
            better = _improved(edges, swaps[:count], degrees, deviations, hops, limits, value)
            if better is None and count == 1:
                break
            count = max(1, count // 2) if better is None else min(2 * count, len(degrees))
        if better is None:
            failures += 1
            count = 4
            if failures == PATIENCE:
                break
            continue
        edges, value = better
        failures = 0
    return edges, value


def _improved(
    edges: np.ndarray,
    swaps: np.ndarray,
    degrees: np.ndarray,
    deviations: np.ndarray,
    hops: int,
    limits: Limits,
    value: float,
) -> tuple[np.ndarray, float] | None:
    """Return the edges after these swaps and their H_K, or None if it is no lower."""
    changed = _with_swaps(edges, swaps)
    found = heterogeneity(metropolis(changed, degrees), deviations, hops)
    if found >= value * (1 - 1e-9) or not limits.allow(changed, len(degrees)):
        return None
    return changed, found


def _with_swaps(edges: np.ndarray, swaps: np.ndarray) -> np.ndarray:
    """Return edges after swaps (k, 6): two positions, and the nodes of both new edges."""
    changed = edges.copy()
    changed[swaps[:, 0]] = np.sort(swaps[:, 2:4], axis=1)
    changed[swaps[:, 1]] = np.sort(swaps[:, 4:6], axis=1)
    return changed


def _ranked(
    edges: np.ndarray,
    degrees: np.ndarray,
    deviations: np.ndarray,
    hops: int,
    limits: Limits,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return possible swaps (k, 6) that lower H_K to first order and share no node, best first."""
    n, m = len(degrees), len(edges)
    left, right = slopes(metropolis(edges, degrees), deviations, hops)
    diagonal = np.einsum("ij,ij->i", left, right)

    def gain(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the derivative of H_K along the weight of edges (a, b)."""
        both = np.einsum("ij,ij->i", left[a], right[b]) + np.einsum("ij,ij->i", left[b], right[a])
        weights = 1.0 / (1 + np.maximum(degrees[a], degrees[b]))
        return weights * (both - diagonal[a] - diagonal[b])

    first, second = rng.integers(m, size=(2, CANDIDATES))
    turned = rng.integers(2, size=CANDIDATES).astype(bool)
    a, b = edges[first].T
    c, d = np.where(turned[:, None], edges[second][:, ::-1], edges[second]).T
    distinct = (a != c) & (a != d) & (b != c) & (b != d)
    existing = np.sort(_keys(edges, n))
    fixed = _among(limits.required, _keys(edges, n))
    movable = ~fixed[first] & ~fixed[second]
    for u, v in ((a, c), (b, d)):
        keys = np.minimum(u, v) * n + np.maximum(u, v)
        movable &= ~_among(existing, keys) & ~_among(limits.forbidden, keys)
    possible = np.flatnonzero(distinct & movable)
    a, b, c, d = a[possible], b[possible], c[possible], d[possible]
    change = gain(a, c) + gain(b, d) - gain(a, b) - gain(c, d)
    order = np.argsort(change)[: int((change < 0).sum())]
    rows = np.stack([first[possible], second[possible], a, c, b, d], axis=1)[order]
    return rows[list(_disjoint(rows[:, 2:]))]


def _disjoint(nodes: np.ndarray) -> Iterator[int]:
    """Yield the rows of (k, 4) nodes that share no node with an earlier row that was yielded."""
    seen: set[int] = set()
    for row, members in enumerate(nodes.tolist()):
        if seen.isdisjoint(members):
            seen.update(members)
            yield row


def _keys(edges: np.ndarray, n: int) -> np.ndarray:
    return edges.min(axis=1) * n + edges.max(axis=1)


def _among(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return which values are among sorted keys."""
    places = np.searchsorted(keys, values)
    return (
        (places < len(keys)) & (keys[np.minimum(places, len(keys) - 1)] == values)
        if len(keys)
        else np.zeros(len(values), dtype=bool)
    )


def completed(
    wanted: np.ndarray, degrees: np.ndarray, limits: Limits, rng: np.random.Generator
) -> np.ndarray | None:
    """Return edges with exactly these degrees that contain as many wanted ones as possible.

    Missing edges join free ends at random; a pair that cannot be joined takes the place of a random
    edge between two other nodes. None if that fails.
    """
    n, free = len(degrees), degrees.copy()
    edges: set[tuple[int, int]] = set()
    forbidden = set(limits.forbidden.tolist())
    required = {divmod(int(key), n) for key in limits.required}
    for i, j in [*sorted(required), *np.sort(wanted, axis=1).tolist()]:
        is_new = (i, j) not in edges and i * n + j not in forbidden
        if is_new and free[i] > 0 and free[j] > 0:
            edges.add((i, j))
            free[[i, j]] -= 1
    for _ in range(200 * n):
        ends = np.repeat(np.arange(n), free)
        if len(ends) == 0:
            return np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)
        i, j = sorted(rng.choice(ends, 2, replace=False).tolist())
        if i != j and (i, j) not in edges and i * n + j not in forbidden:
            edges.add((i, j))
            free[[i, j]] -= 1
            continue
        _make_room(edges, i, j, n, forbidden, required, free, rng)
    return None


def _make_room(
    edges: set[tuple[int, int]],
    i: int,
    j: int,
    n: int,
    forbidden: set[int],
    required: set[tuple[int, int]],
    free: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Replace a random edge (u, v) by (i, u) and (j, v) if these are possible."""
    known = sorted(edges)
    if not known:
        return
    u, v = known[int(rng.integers(len(known)))]
    if rng.integers(2):
        u, v = v, u
    new = [(min(i, u), max(i, u)), (min(j, v), max(j, v))]
    possible = len({i, u}) == len({j, v}) == 2 and new[0] != new[1]
    taken = any(edge in edges or edge[0] * n + edge[1] in forbidden for edge in new)
    old = (min(u, v), max(u, v))
    if possible and not taken and old not in required:
        edges.remove(old)
        edges.update(new)
        free[i] -= 1
        free[j] -= 1
