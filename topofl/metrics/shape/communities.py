"""Communities of a graph, and label similarity of neighbors and communities."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import check_int
from topofl._support.public import public
from topofl.metrics._declaration import (
    CUBIC_LIMIT,
    LABELS,
    Entry,
    Limit,
    MetricColumn,
    Requirement,
    mean,
)
from topofl.metrics.data_fit.labels import (
    as_group_lists,
    check_row_per_node,
    label_distributions,
)
from topofl.metrics.shape.structure import as_static
from topofl.topology import TopologyError

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["communities", "label_separation", "modularity", "neighbor_label_distance"]

COLUMNS = (
    MetricColumn(
        "communities",
        "structure",
        "number of communities (groups with many edges inside), by the Louvain method",
        lambda entry: mean(map(len, entry.shared(_communities))),
        limit=Limit(CUBIC_LIMIT, "metrics.communities"),
        after="clustering",
    ),
    MetricColumn(
        "modularity",
        "structure",
        "share of edges inside these communities, minus the share expected from degrees alone",
        lambda entry: mean(map(modularity, entry.graphs, entry.shared(_communities))),
        limit=Limit(CUBIC_LIMIT, "metrics.modularity"),
    ),
    MetricColumn(
        "neighbor label distance",
        "data",
        "mean label distance of neighbors, relative to that of all pairs: 1 as by chance",
        lambda entry: entry.mean_over_graphs(neighbor_label_distance, entry.label_counts),
        needs=(LABELS,),
    ),
    MetricColumn(
        "label separation",
        "data",
        "share of label variation between communities: 0 as by chance, 1 if none inside them",
        lambda entry: mean(
            label_separation(groups, entry.label_counts) for groups in entry.shared(_communities)
        ),
        limit=Limit(CUBIC_LIMIT, "metrics.label_separation"),
        needs=(
            LABELS,
            Requirement(
                "communities of several nodes",
                lambda entry: (
                    "every community is a single node"
                    if any(len(groups) == entry.n for groups in entry.shared(_communities))
                    else ""
                ),
            ),
        ),
    ),
)


def _communities(entry: Entry) -> list[list[list[int]]]:
    """Return the communities of every graph."""
    return [communities(graph, seed=entry.seed) for graph in entry.graphs]


@public
def communities(graph: Any, *, seed: int = 0) -> list[list[int]]:
    """Return the communities of a graph by the Louvain method: groups with many edges inside.

    Parameters
    ----------
    graph
        One graph: anything that :func:`topofl.as_topology` accepts, or a MixingMatrix. Edge weights
        are not used; a pair of nodes with edges in both directions counts twice.
    seed
        Non-negative integer; seed of the order in which nodes are visited.

    Returns
    -------
    list of list of int
        Sorted groups of sorted nodes, with every node in exactly one. A node without edges is in a
        group by itself.

    Raises
    ------
    TypeError, ValueError
        If `graph` is not one graph, or `seed` is negative.

    References
    ----------
    Blondel, Guillaume, Lambiotte and Lefebvre, "Fast unfolding of communities in large networks"
    (2008), as implemented in networkx.

    Examples
    --------
    >>> from topofl.topology import from_edges
    >>> communities(from_edges([(0, 1), (1, 2), (2, 0), (3, 4)], n=6))
    [[0, 1, 2], [3, 4], [5]]
    """
    import networkx as nx

    seed = check_int("seed", seed, minimum=0)
    found = nx.community.louvain_communities(
        _weighted_undirected(graph), weight="weight", seed=seed
    )
    return sorted(sorted(int(node) for node in group) for group in found)


@public
def modularity(graph: Any, groups: Sequence[Sequence[int]]) -> float:
    """Return the modularity: share of edges inside groups, minus the share expected by degree.

    Parameters
    ----------
    graph
        As in :func:`communities`.
    groups
        Groups of nodes, with every node in exactly one.

    Returns
    -------
    float
        In [-1/2, 1): 0 for one group of all nodes, and for a graph without edges.

    Raises
    ------
    TypeError, ValueError
        If `graph` is not one graph, or `groups` repeat or lack a node, or have one that does not
        exist.

    References
    ----------
    Newman and Girvan, "Finding and evaluating community structure in networks" (2004), here with
    weights.

    Examples
    --------
    >>> from topofl.topology import from_edges
    >>> modularity(from_edges([(0, 1), (2, 3)], n=4), [[0, 1], [2, 3]])
    0.5
    """
    import networkx as nx

    joined = _weighted_undirected(graph)
    parted = _partition(groups, joined.number_of_nodes())
    return (
        float(nx.community.modularity(joined, parted, weight="weight"))
        if joined.number_of_edges()
        else 0.0
    )


@public
def neighbor_label_distance(graph: Any, label_counts: Any) -> float:
    """Return the mean label distance of neighbors, relative to that of all pairs of nodes.

    The label distance of two nodes is the total variation distance of their label distributions,
    ``sum_y |p_i(y) - p_j(y)| / 2``. Its mean over edges is divided by its mean over all pairs.

    Parameters
    ----------
    graph
        One graph: anything that :func:`topofl.as_topology` accepts. Directed edges count
        individually; weights are not used.
    label_counts
        As in :func:`label_distributions`, one row per node.

    Returns
    -------
    float
        At least 0. Below 1, neighbors are more similar than by chance, as in the graphs of DPFL;
        above 1, less similar, as in D-Cliques. 1 for the complete graph, and if all nodes have the
        same label distribution.

    Raises
    ------
    TopologyError
        If the graph has no edges.
    TypeError, ValueError
        If `graph` is not one graph, or `label_counts` is invalid or lacks one row per node.

    Examples
    --------
    >>> from topofl.topology import from_edges
    >>> neighbor_label_distance(from_edges([(0, 1), (2, 3)], n=4), [[5, 0], [5, 0], [0, 5], [0, 5]])
    0.0
    """
    topology = as_static(graph)
    shares = label_distributions(label_counts)
    check_row_per_node(shares, topology.n, topology.name)
    rows, columns = topology.adjacency.nonzero()
    if not len(rows):
        raise TopologyError(
            f"`graph` must have edges: the distance of neighbors needs edges, {topology.name} has "
            "none"
        )
    if (shares == shares[0]).all():
        return 1.0
    step = max(1, 10_000_000 // shares.shape[1])
    parts = (slice(start, start + step) for start in range(0, len(rows), step))
    total = sum(float(np.abs(shares[rows[part]] - shares[columns[part]]).sum()) for part in parts)
    return total / 2 / len(rows) / _mean_distance(shares)


@public
def label_separation(groups: Sequence[Sequence[int]], label_counts: Any) -> float:
    """Return the share of label variation between groups, corrected for chance.

    It is ``1 - (within / (n - k)) / (total / (n - 1))`` for k groups, where `within` and `total`
    are sums of squared distances of the nodes' label shares from the mean of their group and from
    the mean of all nodes. For random groups it is 0 on average.

    Parameters
    ----------
    groups
        Groups of nodes, with every node in exactly one; fewer groups than nodes.
    label_counts
        As in :func:`label_distributions`, one row per node.

    Returns
    -------
    float
        1 if all nodes of each group have the same shares; 0 for separation by chance, for one
        group, and if all nodes have the same shares; negative if groups are more similar than by
        chance, as in D-Cliques.

    Raises
    ------
    ValueError
        If `groups` repeat or lack a node, have one that does not exist, or are as many as the
        nodes; if `label_counts` is invalid.

    References
    ----------
    Kelley, "An unbiased correlation ratio measure" (1935), here with squared distances of vectors.

    Examples
    --------
    >>> label_separation([[0, 1], [2, 3]], [[5, 0], [5, 0], [0, 5], [0, 5]])
    1.0
    """
    shares = label_distributions(label_counts)
    parted = _partition(groups, len(shares))
    n = len(shares)
    k = len(parted)
    if k == n:
        raise ValueError(
            f"`groups` must be fewer than the {n} nodes, got one per node; merge some groups"
        )
    if (shares == shares[0]).all():
        return 0.0
    total = _squared_deviations(shares)
    within = sum(_squared_deviations(shares[sorted(group)]) for group in parted)
    return 1 - (within / (n - k)) / (total / (n - 1))


def _weighted_undirected(graph: Any) -> "nx.Graph":
    """Return the undirected graph whose weights are numbers of directed edges per pair."""
    import networkx as nx

    edges = sparse.csr_array(as_static(graph).adjacency != 0, dtype=np.int64)
    return nx.from_scipy_sparse_array(sparse.csr_array(edges + edges.T), edge_attribute="weight")


def _partition(groups: Sequence[Sequence[int]], n: int) -> list[set[int]]:
    """Return the groups as sets, or raise if not every node is in exactly one."""
    checked = as_group_lists("groups", groups, n)
    nodes = [node for group in checked for node in group]
    if sorted(nodes) != list(range(n)):
        raise ValueError(
            f"`groups` must have every node 0..{n - 1} exactly once, got {len(nodes)} nodes in all"
        )
    return list(map(set, checked))


def _mean_distance(shares: np.ndarray) -> float:
    """Return the mean total variation over all pairs of rows, without enumerating them.

    In ascending order, value k is the larger one of k pairs and the smaller one of the others.
    """
    n = len(shares)
    signs = 2 * np.arange(n) - (n - 1)
    return float(signs @ np.sort(shares, axis=0).sum(axis=1)) / (n * (n - 1))


def _squared_deviations(rows: np.ndarray) -> float:
    return float(np.square(rows - rows.mean(axis=0)).sum())
