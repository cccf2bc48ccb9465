"""Graphs with given degrees that contain as many wanted edges as possible."""

from collections.abc import Iterable, Sequence

import numpy as np

from topofl.topologies.from_data._edge_swaps import Limits

__all__ = ["completed"]

ATTEMPTS = 200
"""Attempts to join free ends, per node."""


def completed(
    wanted: np.ndarray, degrees: np.ndarray, limits: Limits, rng: np.random.Generator
) -> np.ndarray | None:
    """Return edges with exactly these degrees that contain as many wanted ones as possible.

    None if that fails.
    """
    n, free = len(degrees), degrees.copy()
    edges: set[tuple[int, int]] = set()
    allowed = None if limits.allowed is None else set(limits.allowed.tolist())
    required = {divmod(int(key), n) for key in limits.required}
    first = [*sorted(required), *np.sort(wanted, axis=1).tolist()]
    if limits.allowed is not None:
        first += np.stack(np.divmod(rng.permutation(limits.allowed), n), axis=1).tolist()
    for i, j in first:
        is_new = (i, j) not in edges and (allowed is None or i * n + j in allowed)
        if is_new and free[i] > 0 and free[j] > 0:
            edges.add((i, j))
            free[[i, j]] -= 1
    if limits.allowed is None:
        is_complete = _join_anywhere(edges, free, required, rng)
    else:
        is_complete = _join_on_network(edges, free, required, limits.allowed, rng)
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, 2) if is_complete else None


def _join_anywhere(
    edges: set[tuple[int, int]],
    free: np.ndarray,
    required: set[tuple[int, int]],
    rng: np.random.Generator,
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
    edges: set[tuple[int, int]],
    i: int,
    j: int,
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
    old = (min(u, v), max(u, v))
    if possible and edges.isdisjoint(new) and old not in required:
        edges.remove(old)
        edges.update(new)
        free[i] -= 1
        free[j] -= 1


def _join_on_network(
    edges: set[tuple[int, int]],
    free: np.ndarray,
    required: set[tuple[int, int]],
    allowed: np.ndarray,
    rng: np.random.Generator,
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
