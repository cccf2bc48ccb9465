"""The maximum cycle mean of a weighted directed graph: the growth rate of a max-plus system."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components

from topofl._linalg.spectral import NoConvergence

__all__ = ["Arcs", "CycleMean", "heaviest", "maximum_cycle_mean"]

MOST_ITERATIONS = 1000
"""Policy iterations before giving up; a few dozen suffice in practice."""


class Arcs(NamedTuple):
    """Arcs of a directed graph, sorted by their heads, with at least one into each node.

    Attributes
    ----------
    tails
        (E,) the node that each arc comes from.
    starts
        (n,) position of the first arc into each node.
    """

    tails: np.ndarray
    starts: np.ndarray

    @property
    def heads(self) -> np.ndarray:
        """(E,) the node that each arc leads to."""
        counts = np.diff(np.append(self.starts, len(self.tails)))
        return np.repeat(np.arange(len(self.starts)), counts)


class CycleMean(NamedTuple):
    """The maximum mean weight over all cycles, and the positions of the arcs of such a cycle."""

    value: float
    arcs: np.ndarray


def heaviest(arcs: Arcs, heads: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the position of the heaviest arc into each node, the first one of equals."""
    best = np.maximum.reduceat(weights, arcs.starts)
    hits = np.flatnonzero(weights == best[heads])
    into = heads[hits]
    return hits[np.concatenate([[True], into[1:] != into[:-1]])]


def maximum_cycle_mean(arcs: Arcs, weights: np.ndarray) -> CycleMean:
    """Return the maximum mean weight over the cycles of a graph, by Howard's policy iteration.

    Parameters
    ----------
    arcs
        The arcs; there need not be a path between any two nodes.
    weights
        (E,) weights.

    Raises
    ------
    NoConvergence
        If the policy still changes after 1,000 iterations.

    References
    ----------
    Cochet-Terrasson, Cohen, Gaubert, McGettrick and Quadrat, "Numerical computation of spectral
    elements in max-plus algebra" (1998).

    Examples
    --------
    >>> two = Arcs(tails=np.array([0, 1, 0]), starts=np.array([0, 2]))  # 0 -> 0, 1 -> 0, 0 -> 1
    >>> maximum_cycle_mean(two, np.array([1.0, 3.0, 2.0]))
    CycleMean(value=2.5, arcs=array([1, 2]))
    """
    inside, arcs, component = _within_components(arcs)
    heads, weights = arcs.heads, weights[inside]
    eps = float(np.abs(weights).max()) * max(1e-12, 1e-15 * len(arcs.starts))
    policy = heaviest(arcs, heads, weights)
    for _ in range(MOST_ITERATIONS):
        rate, value, cycle = _evaluated(arcs.tails[policy], weights[policy])
        best = np.lexsort((-rate, component))
        best = best[np.diff(component[best], prepend=-1) > 0]  # the first node of each component
        slower = rate < rate[best][component] - eps
        if slower.any():
            found = _trees(arcs, heads, best, slower)
            policy[heads[found]] = found
            continue
        gains = weights - rate[heads] + value[arcs.tails]
        improved = heaviest(arcs, heads, gains)
        better = gains[improved] > gains[policy] + eps
        if not better.any():
            top = int(np.argmax(np.where(cycle >= 0, rate, -np.inf)))
            critical = cycle == cycle[top]
            return CycleMean(float(rate[top]), inside[policy[critical]])
        policy = np.where(better, improved, policy)
    raise NoConvergence(f"the policy still changes after {MOST_ITERATIONS:,} iterations")


def _within_components(arcs: Arcs) -> tuple[np.ndarray, Arcs, np.ndarray]:
    """Return the arcs within strongly connected components, which all cycles consist of.

    Values of nodes with different rates cannot be compared. Within a strongly connected component
    all nodes can have the same rate.

    Returns
    -------
    tuple
        Positions of these arcs; the arcs between the nodes on cycles, numbered anew; and the
        component of each of these nodes.
    """
    heads, n = arcs.heads, len(arcs.starts)
    graph = sparse.csr_array((np.ones(len(heads), np.int8), (arcs.tails, heads)), shape=(n, n))
    labels = connected_components(graph, directed=True, connection="strong")[1]
    inside = np.flatnonzero(labels[arcs.tails] == labels[heads])
    nodes, starts = np.unique(heads[inside], return_index=True)
    tails = np.searchsorted(nodes, arcs.tails[inside])
    component = np.unique(labels[nodes], return_inverse=True)[1]
    return inside, Arcs(tails, starts), component


def _trees(arcs: Arcs, heads: np.ndarray, roots: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the arcs of breadth-first trees from `roots` into the `wanted` nodes."""
    n = len(arcs.starts)
    tails = np.concatenate([arcs.tails, np.full(len(roots), n)])  # node n comes before all roots
    to = np.concatenate([heads, roots])
    graph = sparse.csr_array((np.ones(len(to), np.int8), (tails, to)), shape=(n + 1, n + 1))
    before = breadth_first_order(graph, n, directed=True, return_predecessors=True)[1]
    hits = np.flatnonzero(wanted[heads] & (arcs.tails == before[heads]))
    return hits[np.diff(heads[hits], prepend=-1) > 0]  # parallel arcs count once


def _evaluated(
    before: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rates and values of a policy, and the cycle of each node, -1 for nodes on none.

    Parameters
    ----------
    before
        (n,) the node before each node.
    weights
        (n,) weight of the arc between them.
    """
    n = len(before)
    links = sparse.csr_array((np.ones(n), before, np.arange(n + 1)), shape=(n, n))
    parts, labels = connected_components(links, directed=True, connection="strong")
    on_cycle = (np.bincount(labels, minlength=parts)[labels] > 1) | (before == np.arange(n))
    sizes = np.bincount(labels[on_cycle], minlength=parts)
    sums = np.bincount(labels[on_cycle], weights[on_cycle], minlength=parts)
    means = np.divide(sums, sizes, out=np.zeros(parts), where=sizes > 0)
    roots = np.full(parts, -1)
    members = np.flatnonzero(on_cycle)[::-1]
    roots[labels[members]] = members  # the first node of each cycle
    root = on_cycle & (roots[labels] == np.arange(n))
    jump = np.where(root, np.arange(n), before)
    for _ in range(max(1, n.bit_length())):
        jump = jump[jump]
    rate = means[labels[jump]]
    value = np.where(root, 0.0, weights - rate)
    jump = np.where(root, np.arange(n), before)
    for _ in range(max(1, n.bit_length())):
        value = value + value[jump]
        jump = jump[jump]
    return rate, value, np.where(on_cycle, labels, -1)
