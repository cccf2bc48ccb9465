"""Label distributions of nodes, cliques, neighbors and communities."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sparse

from topofl._linalg.distributions import DISTANCES
from topofl._linalg.distributions import distance as distance_between
from topofl._support.check import (
    as_array,
    check_choice,
    check_int,
    check_label_counts,
    check_nonempty,
    check_nonempty_label_counts,
    check_sequence,
)
from topofl._support.public import public
from topofl.metrics._columns import (
    CUBIC_LIMIT,
    LABELS,
    NODE_GROUPS,
    Entry,
    MetricColumn,
    limited,
    mean,
    need,
)
from topofl.metrics.shape import as_static
from topofl.topology import Topology, TopologyError

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "clique_skew",
    "communities",
    "label_distributions",
    "label_separation",
    "modularity",
    "neighbor_label_distance",
]


@public
def label_distributions(label_counts: Any) -> np.ndarray:
    """Return the label distribution of each node: the share of each class in its data.

    Parameters
    ----------
    label_counts
        (n, classes) non-negative integers, the number of examples of each class at each node, or an
        object with an attribute ``label_counts``, such as a Partition.

    Returns
    -------
    numpy.ndarray
        (n, classes) float64; rows sum to 1.

    Raises
    ------
    ValueError
        If the counts are not a non-empty matrix or have a negative entry, or a node has no data.
    TypeError
        If they are not integers.

    Examples
    --------
    >>> label_distributions([[3, 1], [0, 2]])
    array([[0.75, 0.25],
           [0.  , 1.  ]])
    """
    counts = check_nonempty_label_counts(label_counts)
    return counts / counts.sum(axis=1, keepdims=True)


def label_spread(label_counts: Any) -> float:
    """Return the label heterogeneity without communication, ``(1/n) ||Pi - J Pi||_F^2``.

    Pi holds the label distributions of the nodes; parameters and errors are those of
    :func:`topofl.metrics.label_distributions`.

    Parameters
    ----------
    label_counts
        As in :func:`topofl.metrics.label_distributions`.

    Examples
    --------
    >>> label_spread([[1, 0], [0, 1]])
    0.5
    """
    shares = label_distributions(label_counts)
    return float(np.square(shares - shares.mean(axis=0)).sum() / len(shares))


@public
def clique_skew(
    topology_or_groups: Topology | Sequence[Sequence[int]],
    label_counts: Any,
    *,
    weighting: str = "uniform",
    distance: str = "l1",
) -> np.ndarray:
    """Return the skew of each clique, ``sum_y |p_C(y) - p(y)|``, relative to the global labels.

    Parameters
    ----------
    topology_or_groups
        A Topology with groups, or the q groups as sequences of nodes.
    label_counts
        As in :func:`label_distributions`.
    weighting
        ``"uniform"``: ``p_C`` and ``p`` are means of the nodes' label shares, as in the paper.
        ``"pooled"``: they are the shares in the pooled examples, as in the authors' code, so that
        nodes are weighted by their amount of data. Both are equal if all nodes have the same number
        of examples.
    distance
        From ``p_C`` to ``p``: ``"l1"``, as in the paper, or ``"total_variation"`` (half of it),
        ``"kl"`` (``sum_y p_C ln(p_C / p)``, natural logarithms), ``"symmetric_kl"`` (Jeffreys: the
        sum of both directions, not their mean), ``"hellinger"`` (at most 1), ``"euclidean"``,
        ``"chebyshev"`` (``max_y |p_C - p|``) or ``"jensen_shannon"`` (the root of the divergence,
        natural logarithms).

    Returns
    -------
    numpy.ndarray
        (q,), for ``"l1"`` in [0, 2]: 0 if the clique has the global label distribution, 2 if they
        share no class. ``"symmetric_kl"`` is infinite for a clique that lacks a class which others
        have; ``"kl"`` is always finite.

    Raises
    ------
    TopologyError
        If the topology has no groups.
    ValueError
        If a group is empty, names a node that does not exist or has no data, or `label_counts`,
        `weighting` or `distance` is not valid.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), equation 3: L1 distance, without the factor
    1/2. The authors' simulator offers L1, KL, symmetric KL, Hellinger, Euclidean and Chebyshev
    distance, the last without absolute values.

    Examples
    --------
    >>> clique_skew([(0, 1), (2, 3)], [[4, 0], [0, 4], [4, 0], [4, 0]])
    array([0.5, 0.5])
    """
    check_choice("weighting", weighting, ["uniform", "pooled"])
    check_choice("distance", distance, DISTANCES)
    weighted = label_distributions if weighting == "uniform" else check_label_counts
    rows = weighted(label_counts)
    groups = _checked_groups_of(topology_or_groups, rows)
    sums = np.stack([rows[group].sum(axis=0) for group in groups])
    check_nonempty(sums, "group")
    shares = sums / sums.sum(axis=1, keepdims=True)
    return distance_between(distance, shares.T, (rows.sum(axis=0) / rows.sum())[:, None])


def _checked_groups_of(
    topology_or_groups: Topology | Sequence[Sequence[int]], rows: np.ndarray
) -> list[list[int]]:
    """Return the groups as lists of nodes, or raise."""
    if isinstance(topology_or_groups, Topology):
        check_row_per_node(rows, topology_or_groups.n, topology_or_groups.name)
        if not topology_or_groups.groups:
            raise TopologyError(
                f"clique skew needs a topology with groups, {topology_or_groups.name} has none; "
                "pass groups of nodes"
            )
        topology_or_groups = topology_or_groups.groups
    return as_group_lists("topology_or_groups", topology_or_groups, len(rows))


def as_group_lists(argument: str, groups: Sequence[Sequence[int]], n: int) -> list[list[int]]:
    """Return groups as lists of nodes 0..n - 1, or raise ``ValueError``."""
    listed = check_sequence(argument, groups, "sequences of nodes")
    arrays = [as_array(argument, group) for group in listed]
    for k, group in enumerate(arrays):
        if group.ndim != 1 or group.size == 0 or not np.issubdtype(group.dtype, np.integer):
            raise ValueError(
                f"`{argument}` must hold non-empty sequences of nodes, group {k} is not one"
            )
        if group.min() < 0 or group.max() >= n:
            raise ValueError(f"`{argument}` must hold nodes 0..{n - 1}, group {k} has others")
    if not arrays:
        raise ValueError(f"`{argument}` must have at least one group, got none")
    return [group.tolist() for group in arrays]


def check_row_per_node(rows: np.ndarray, n: int, name: str) -> None:
    """Raise ``ValueError`` if label counts do not have one row per node of the graph `name`."""
    if len(rows) != n:
        raise ValueError(
            f"`label_counts` must have one row per node: got {len(rows)} rows, {name} has n={n}"
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
    joined = _weighted_undirected(graph)
    found = nx.community.louvain_communities(joined, weight="weight", seed=seed)
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
    if joined.number_of_edges() == 0:
        return 0.0
    return float(nx.community.modularity(joined, parted, weight="weight"))


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


_data = partial(MetricColumn, "data")
_structure = partial(MetricColumn, "structure")

COLUMNS = (
    _data(
        "mean clique skew",
        "distance of clique label distributions from the global one, mean over cliques",
        lambda entry: mean(clique_skew(graph, entry.label_counts).mean() for graph in entry.graphs),
        needs=(LABELS, NODE_GROUPS),
    ),
    _structure(
        "communities",
        "number of communities (groups with many edges inside), by the Louvain method",
        lambda entry: mean(map(len, entry.shared(_communities))),
        limit=limited(CUBIC_LIMIT, "metrics.communities"),
    ),
    _structure(
        "modularity",
        "share of edges inside these communities, minus the share expected from degrees alone",
        lambda entry: mean(map(modularity, entry.graphs, entry.shared(_communities))),
        limit=limited(CUBIC_LIMIT, "metrics.modularity"),
    ),
    _data(
        "neighbor label distance",
        "mean label distance of neighbors, relative to that of all pairs: 1 as by chance",
        lambda entry: mean(
            neighbor_label_distance(graph, entry.label_counts) for graph in entry.graphs
        ),
        needs=(LABELS,),
    ),
    _data(
        "label separation",
        "share of label variation between communities: 0 as by chance, 1 if none inside them",
        lambda entry: mean(
            label_separation(groups, entry.label_counts) for groups in entry.shared(_communities)
        ),
        limit=limited(CUBIC_LIMIT, "metrics.label_separation"),
        needs=(
            LABELS,
            need(
                "communities of several nodes",
                lambda entry: all(len(groups) < entry.n for groups in entry.shared(_communities)),
                "every community is a single node",
            ),
        ),
    ),
)
