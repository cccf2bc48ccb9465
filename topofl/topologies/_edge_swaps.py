"""Graphs with given degrees: completion of wanted edges, and swaps that lower heterogeneity."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components, dijkstra

HOPS = 10
"""Default number of hops over which heterogeneity is accumulated."""

CANDIDATES = 4000
"""Pairs of edges considered per step."""

DENSE = 2000
"""Largest number of nodes for which all entries of the gradient are computed at once."""

SPAN, PROGRESS = 50, 0.02
"""Steps, and the share by which H_K must fall in them for the search to go on."""

PATIENCE = 12
"""Consecutive steps without a better graph after which the search ends."""


def components(edges: np.ndarray, n: int) -> tuple[int, np.ndarray]:
    """Return the number of connected components, and the component of each node."""
    return connected_components(_upper(edges, n), directed=False)


def _upper(edges: np.ndarray, n: int) -> sparse.csr_array:
    return sparse.csr_array((np.ones(len(edges)), edges.T), shape=(n, n))


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


@dataclass(frozen=True, eq=False)
class Design:
    """Degrees of the nodes, the data for which H_K is lowered, and limits on edges.

    Attributes
    ----------
    degrees
        (n,) number of neighbors of each node.
    deviations
        (n, classes) deviations of the nodes' label shares from their mean.
    hops
        K, the number of hops over which heterogeneity is accumulated.
    allowed
        Sorted keys of edges (``i * n + j`` with i < j) that may exist; None: all.
    required
        Sorted keys of edges that must stay.
    max_diameter
        Largest distance between two nodes; None sets no limit.
    """

    degrees: np.ndarray
    deviations: np.ndarray
    hops: int
    allowed: np.ndarray | None = None
    required: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    max_diameter: int | None = None

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.degrees)

    def value(self, edges: np.ndarray) -> float:
        """Return H_K of the graph with these edges."""
        return heterogeneity(metropolis(edges, self.degrees), self.deviations, self.hops)

    def permit(self, keys: np.ndarray) -> np.ndarray:
        """Return which keys are those of allowed edges."""
        return np.ones(len(keys), bool) if self.allowed is None else np.isin(keys, self.allowed)

    def keep_diameter(self, edges: np.ndarray) -> bool:
        """Return whether the diameter of a connected graph is within the limit."""
        if self.max_diameter is None:
            return True
        graph = _upper(edges, self.n)
        distances = dijkstra(graph, False, unweighted=True, limit=self.max_diameter)
        return bool(np.isfinite(distances).all())


def swapped(
    edges: np.ndarray, design: Design, rng: np.random.Generator, steps: int
) -> tuple[np.ndarray, float]:
    """Return edges after swaps that keep all degrees and lower H_K, and its final value.

    A step draws pairs of edges (a, b), (c, d), ranks the swaps to (a, c), (b, d) by the predicted
    change of H_K, and makes as many of the best disjoint ones as lower H_K itself.
    """
    value, n = design.value(edges), design.n
    if len(edges) < 2:
        return edges, value
    count, failures = max(1, n // 8), 0
    earlier = value
    for step in range(steps):
        if step % SPAN == SPAN - 1:
            if value > (1 - PROGRESS) * earlier:
                break
            earlier = value
        swaps = _ranked(edges, design, rng)
        better = None
        while len(swaps) and better is None:
            better = _improved(edges, swaps[:count], design, value)
            if better is None and count == 1:
                break
            count = max(1, count // 2) if better is None else min(2 * count, n)
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
    edges: np.ndarray, swaps: np.ndarray, design: Design, value: float
) -> tuple[np.ndarray, float] | None:
    """Return the edges after these swaps and their H_K, or None if it is no lower."""
    changed = _with_swaps(edges, swaps)
    found = design.value(changed)
    if found >= value * (1 - 1e-9) or components(changed, design.n)[0] > 1:
        return None
    return (changed, found) if design.keep_diameter(changed) else None


def _with_swaps(edges: np.ndarray, swaps: np.ndarray) -> np.ndarray:
    """Return edges after swaps (k, 6): two positions, and the nodes of both new edges."""
    changed = edges.copy()
    changed[swaps[:, 0]] = np.sort(swaps[:, 2:4], axis=1)
    changed[swaps[:, 1]] = np.sort(swaps[:, 4:6], axis=1)
    return changed


def _ranked(edges: np.ndarray, design: Design, rng: np.random.Generator) -> np.ndarray:
    """Return possible swaps (k, 6) that are predicted to lower H_K and share no node, best first.

    A swap changes W by V, and H_K by its derivative along V plus terms of second order. The largest
    of these, ``||V D||_F^2 / n``, is that of the first hop, since W has not averaged it yet. It is
    never negative and does not shrink with the gradient: near a minimum, swaps ranked by the
    derivative alone are mostly refused.
    """
    degrees, deviations = design.degrees, design.deviations
    swaps = _drawn(edges, design, rng)
    a, c, b, d = swaps[:, 2:].T
    slope = _entries(*slopes(metropolis(edges, degrees), deviations, design.hops))

    def weight(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return 1.0 / (1 + np.maximum(degrees[i], degrees[j]))

    def gain(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Return the derivative of H_K along the weight of edges (i, j)."""
        return weight(i, j) * (slope(i, j) + slope(j, i) - slope(i, i) - slope(j, j))

    def flow(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Return what node i of edges (i, j) receives in the first hop, the opposite of j."""
        return weight(i, j)[:, None] * (deviations[j] - deviations[i])

    rows = flow(a, c) - flow(a, b), flow(b, d) + flow(a, b), flow(a, c) + flow(c, d)
    rows = *rows, flow(b, d) - flow(c, d)
    change = gain(a, c) + gain(b, d) - gain(a, b) - gain(c, d)
    change = change + sum(np.square(row).sum(axis=1) for row in rows) / len(degrees)
    swaps = swaps[np.argsort(change)[: int((change < 0).sum())]]
    return swaps[list(_disjoint(swaps[:, 2:]))]


def _entries(left: np.ndarray, right: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return a function of rows i and columns j that returns the entries of ``L R^T`` there."""
    if len(left) <= DENSE:
        product = left @ right.T
        return lambda i, j: product[i, j]
    return lambda i, j: np.einsum("ij,ij->i", left[i], right[j])


def _drawn(edges: np.ndarray, design: Design, rng: np.random.Generator) -> np.ndarray:
    """Return possible swaps (k, 6) of two random edges: their positions, and a, c, b, d."""
    n = design.n
    if design.allowed is None:
        first, second = rng.integers(len(edges), size=(2, CANDIDATES))
        turned = rng.integers(2, size=CANDIDATES).astype(bool)
        a, b = edges[first].T
        c, d = np.where(turned[:, None], edges[second][:, ::-1], edges[second]).T
    else:  # on a sparse network, almost no two random edges have an allowed edge (a, c)
        a, c = np.divmod(rng.choice(design.allowed, CANDIDATES), n)
        (first, b), (second, d) = _edges_at(a, edges, n, rng), _edges_at(c, edges, n, rng)
    possible = (a != c) & (a != d) & (b != c) & (b != d)
    existing = keys_of(edges, n)
    fixed = np.isin(existing, design.required)
    possible &= ~fixed[first] & ~fixed[second]
    for u, v in ((a, c), (b, d)):
        keys = keys_of(np.stack([u, v], axis=1), n)
        possible &= ~np.isin(keys, existing) & design.permit(keys)
    return np.stack([first, second, a, c, b, d], axis=1)[possible]


def _edges_at(
    nodes: np.ndarray, edges: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of a random edge of each node, and the node at its other end."""
    ends = edges.ravel()
    order = np.argsort(ends, kind="stable")
    starts = np.searchsorted(ends[order], np.arange(n + 1))
    chosen = order[rng.integers(starts[nodes], starts[nodes + 1])]
    return chosen // 2, ends[chosen ^ 1]


def _disjoint(nodes: np.ndarray) -> Iterator[int]:
    """Yield the rows of (k, 4) nodes that share no node with an earlier row that was yielded."""
    seen: set[int] = set()
    for row, members in enumerate(nodes.tolist()):
        if seen.isdisjoint(members):
            seen.update(members)
            yield row


def keys_of(edges: np.ndarray, n: int) -> np.ndarray:
    """Return the keys ``i * n + j``, i < j, of edges (m, 2)."""
    return edges.min(axis=1) * n + edges.max(axis=1)


ATTEMPTS = 200
"""Attempts to join free ends, per node."""

Pairs: TypeAlias = set[tuple[int, int]]
"""Edges (i, j), i < j."""


def completed(wanted: np.ndarray, design: Design, rng: np.random.Generator) -> np.ndarray | None:
    """Return edges with the degrees that contain as many wanted ones as possible, or None."""
    n, free = design.n, design.degrees.copy()
    edges: Pairs = set()
    allowed = None if design.allowed is None else set(design.allowed.tolist())
    required = {divmod(int(key), n) for key in design.required}
    first = [*sorted(required), *np.sort(wanted, axis=1).tolist()]
    if design.allowed is not None:
        first += np.stack(np.divmod(rng.permutation(design.allowed), n), axis=1).tolist()
    for i, j in first:
        is_new = (i, j) not in edges and (allowed is None or i * n + j in allowed)
        if is_new and free[i] > 0 and free[j] > 0:
            edges.add((i, j))
            free[[i, j]] -= 1
    if design.allowed is None:
        is_complete = _join_anywhere(edges, free, required, rng)
    else:
        is_complete = _join_on_network(edges, free, required, design.allowed, rng)
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, 2) if is_complete else None


def _join_anywhere(
    edges: Pairs, free: np.ndarray, required: Pairs, rng: np.random.Generator
) -> bool:
    """Add edges between free ends at random, and return whether none is left.

    A pair that cannot be joined takes the place of a random edge between two other nodes.
    """
    for _ in range(ATTEMPTS * len(free)):
        ends = np.repeat(np.arange(len(free)), free)
        if len(ends) == 0:
            return True
        i, j = sorted(rng.choice(ends, 2, replace=False).tolist())
        if i != j and (i, j) not in edges:
            edges.add((i, j))
            free[[i, j]] -= 1
            continue
        _make_room(edges, i, j, required, free, rng)
    return False


def _make_room(
    edges: Pairs, i: int, j: int, required: Pairs, free: np.ndarray, rng: np.random.Generator
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
    old = (min(u, v), max(u, v))
    if possible and edges.isdisjoint(new) and old not in required:
        edges.remove(old)
        edges.update(new)
        free[i] -= 1
        free[j] -= 1


def _join_on_network(
    edges: Pairs, free: np.ndarray, required: Pairs, allowed: np.ndarray, rng: np.random.Generator
) -> bool:
    """Add allowed edges between free ends, and return whether none is left.

    A free end of i without a free neighbor moves on: an allowed edge (i, u) replaces an edge (u,
    v), and v has the free end. Such ends walk through the network until two of them meet.
    """
    ends = np.stack(np.divmod(allowed, len(free)), axis=1)
    options, known = _neighbors(ends.tolist(), len(free)), _neighbors(edges, len(free))
    for _ in range(ATTEMPTS * len(free)):
        loose = np.flatnonzero(free)
        if len(loose) == 0:
            return True
        i = int(rng.choice(loose))
        new = sorted(options[i] - known[i])
        if not new:
            return False
        u = int(rng.choice([u for u in new if free[u] > 0] or new))
        if free[u] == 0:
            old = [v for v in sorted(known[u]) if (min(u, v), max(u, v)) not in required]
            if not old:
                continue
            v = int(rng.choice(old))
            edges.remove((min(u, v), max(u, v)))
            known[u].remove(v)
            known[v].remove(u)
            free[[u, v]] += 1
        edges.add((min(i, u), max(i, u)))
        known[i].add(u)
        known[u].add(i)
        free[[i, u]] -= 1
    return False


def _neighbors(edges: Iterable[Sequence[int]], n: int) -> list[set[int]]:
    """Return the neighbors of each node."""
    found: list[set[int]] = [set() for _ in range(n)]
    for i, j in edges:
        found[i].add(j)
        found[j].add(i)
    return found
