"""Graphs from edge lists."""

from collections.abc import Iterable, Sequence

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import check_nodes, check_switch, check_unmasked, shown
from topofl._support.public import public
from topofl.topology.graph import Topology

__all__ = ["as_pairs", "from_edges"]


@public
def from_edges(
    edges: Iterable[tuple[int, int]] | np.ndarray,
    n: int,
    *,
    name: str = "graph",
    directed: bool = False,
    groups: Iterable[Sequence[int]] = (),
) -> Topology:
    """Return the graph with the given edges.

    Parameters
    ----------
    edges
        Pairs (source, target), or an array of shape (E, 2). Repeated edges count once, and all
        weights are 1.
    n
        Number of nodes.
    name, groups
        As in :class:`Topology`.
    directed
        If False, every edge is added in both directions.

    Raises
    ------
    ValueError
        If a node is not in 0..n-1, an edge is a self-loop, or `n` is above 10 million.

    Examples
    --------
    >>> from_edges([(0, 1), (1, 2)], 4, directed=True).out_degrees.tolist()
    [1, 1, 0, 0]
    """
    n = check_nodes(n)
    pairs = as_pairs(edges)
    if pairs.size and (pairs.min() < 0 or pairs.max() >= n):
        raise ValueError(
            f"`edges` must join nodes 0..{n - 1}, got node "
            f"{pairs.max() if pairs.max() >= n else pairs.min()}"
        )
    if not check_switch("directed", directed, auto=False):
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    adjacency = sparse.csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    adjacency.data[:] = 1  # the constructor has summed repeated edges
    return Topology(adjacency, name=name, groups=groups)  # pyright: ignore[reportArgumentType]


def as_pairs(edges: Iterable[tuple[int, int]] | np.ndarray) -> np.ndarray:
    """Return edges as an integer array of shape (E, 2), or raise."""
    check_unmasked("edges", edges)
    try:
        pairs = np.asarray(edges if isinstance(edges, np.ndarray) else list(edges))
    except TypeError as error:
        raise TypeError(f"`edges` must be pairs (source, target), got {shown(edges)}") from error
    except ValueError as error:
        raise ValueError(f"`edges` must be pairs (source, target): {error}") from error
    if pairs.size == 0:
        return np.zeros((0, 2), np.int64)
    if not np.issubdtype(pairs.dtype, np.integer):
        raise TypeError(f"`edges` must be pairs of integers, got dtype {pairs.dtype}")
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"`edges` must be pairs (source, target), got shape {pairs.shape}")
    return pairs
