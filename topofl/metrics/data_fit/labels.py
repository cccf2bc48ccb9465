"""Label distributions of nodes, and the label skew of cliques."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from topofl._linalg.distances import DISTANCES
from topofl._linalg.distances import distance as distance_between
from topofl._support.check import as_array, check_choice, check_label_counts, check_sequence
from topofl._support.public import public
from topofl.metrics._declaration import LABELS, NODE_GROUPS, MetricColumn
from topofl.topology import Topology, TopologyError

__all__ = [
    "as_group_lists",
    "check_row_per_node",
    "clique_skew",
    "label_distributions",
    "label_spread",
]

COLUMNS = (
    MetricColumn(
        "mean clique skew",
        "data",
        "distance of clique label distributions from the global one, mean over cliques",
        lambda entry: entry.mean_over_graphs(
            lambda graph: clique_skew(graph, entry.label_counts).mean()
        ),
        needs=(LABELS, NODE_GROUPS),
        after="H_10",
    ),
)


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
    counts = check_label_counts(label_counts)
    totals = counts.sum(axis=1, keepdims=True)
    empty = np.flatnonzero(totals == 0)
    if len(empty):
        raise ValueError(
            "`label_counts` must have at least one example per node, nodes "
            f"{_first_few(empty)} have none; leave them out"
        )
    return counts / totals


def label_spread(label_counts: Any) -> float:
    """Return the label heterogeneity without communication, ``(1/n) ||Pi - J Pi||_F^2``.

    Pi holds the label distributions of the nodes; parameters and errors are those of
    :func:`label_distributions`.
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
    rows = (
        label_distributions(label_counts)
        if weighting == "uniform"
        else check_label_counts(label_counts)
    )
    sums = np.stack(
        [rows[group].sum(axis=0) for group in _checked_groups_of(topology_or_groups, rows)]
    )
    totals = sums.sum(axis=1, keepdims=True)
    empty = np.flatnonzero(totals == 0)
    if len(empty):
        raise ValueError(
            "`label_counts` must have at least one example per group, groups "
            f"{_first_few(empty)} have none"
        )
    return distance_between(distance, (sums / totals).T, (rows.sum(axis=0) / rows.sum())[:, None])


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
    arrays = [
        as_array(argument, group)
        for group in check_sequence(argument, groups, "sequences of nodes")
    ]
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


def _first_few(nodes: np.ndarray) -> str:
    more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
    return ", ".join(str(node) for node in nodes[:5]) + more
