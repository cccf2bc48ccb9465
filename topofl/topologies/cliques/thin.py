"""Cliques with randomly removed edges."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import check_int
from topofl._support.seeding import stream
from topofl.topologies._common import call_name
from topofl.topologies._generator import generator
from topofl.topology import Topology, TopologyError

__all__ = ["thin_cliques"]


@generator(
    family="derived",
    examples=["thin_cliques,base=(dcliques:50,clique_size=5,inter=ring,seed=0),removed=2,seed=0"],
)
def thin_cliques(base: Topology, removed: int, *, seed: int | np.random.Generator) -> Topology:
    """Return `base` without `removed` uniformly random undirected edges inside each of its groups.

    Edges between groups and the ``groups`` do not change, so :func:`topofl.mixing.within_groups`
    averages over the members of the clique that are still neighbors. A complete clique of k nodes
    stays connected if at most k - 2 edges are removed, since isolating a node takes k - 1.

    Parameters
    ----------
    base
        An undirected graph with groups, for example from :func:`topofl.topologies.dcliques`.
    removed
        Edges to remove from each group, at least 0. The paper removes 1 and 5 of the 45 edges of a
        clique of 10.
    seed
        Integer or generator.

    Raises
    ------
    TypeError
        If `base` is not a Topology.
    TopologyError
        If `base` is directed or has no groups.
    ValueError
        If some group has fewer edges than `removed`.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section IV-F.

    Examples
    --------
    >>> from topofl.topologies import dcliques
    >>> base = dcliques(n=100, inter="ring", seed=0)
    >>> thin_cliques(base, removed=5, seed=0).n_edges  # 10 * (45 - 5) + 10
    410
    """
    removed = check_int("removed", removed, minimum=0)
    sources, targets, group = _inner_edges(base)
    _check_enough(np.bincount(group, minlength=len(base.groups)), removed, base)
    order = np.lexsort((stream(seed, "graph").random(len(group)), group))
    rank = np.arange(len(group)) - np.searchsorted(group[order], group[order])
    gone = order[rank < removed]
    u = np.append(sources[gone], targets[gone])
    v = np.append(targets[gone], sources[gone])
    lost = sparse.csr_array((np.ones(len(u), bool), (u, v)), shape=(base.n, base.n))
    adjacency = base.adjacency - base.adjacency.multiply(lost)
    adjacency.eliminate_zeros()
    name = call_name("thin_cliques", base.name, removed=removed, seed=seed)
    return replace(base, adjacency=sparse.csr_array(adjacency), name=name)


def _inner_edges(base: Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sources, targets and groups of the undirected edges inside groups."""
    if not isinstance(base, Topology):
        raise TypeError(
            f"`base` must be a Topology, got {type(base).__name__}; use topofl.as_topology(graph)"
        )
    if base.is_directed:
        raise TopologyError(f"`base` must be undirected, {base.name} is directed")
    if not base.groups:
        raise TopologyError(
            f"`base` must have groups, {base.name} has none; use topologies.dcliques(...)"
        )
    label = np.full(base.n, -1)
    for k, group in enumerate(base.groups):
        label[list(group)] = k
    u, v = base.edge_index
    inside = (u < v) & (label[u] == label[v]) & (label[u] >= 0)
    return u[inside], v[inside], label[u[inside]]


def _check_enough(n_edges: np.ndarray, removed: int, base: Topology) -> None:
    """Raise ``ValueError`` if a group has fewer edges than `removed`."""
    too_small = np.flatnonzero(n_edges < removed)
    if len(too_small):
        k = too_small[0]
        raise ValueError(
            f"`removed` must be at most {n_edges.min()}, the fewest edges in a clique of "
            f"{base.name}, got {removed}: clique {k} of {len(base.groups[k])} nodes has "
            f"{n_edges[k]} edges ({len(too_small)} such cliques)"
        )
