"""Label heterogeneity of neighborhoods and cliques, relative to the global distribution."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from topofl._linalg.distances import DISTANCES
from topofl._linalg.distances import distance as distance_between
from topofl._support.check import as_array, check_choice, check_counts, check_sequence
from topofl.metrics._accumulated import CONSENSUS, MEAN, accumulated, check_discount, check_hops
from topofl.metrics._declaration import LABELS, NODE_GROUPS, Column
from topofl.metrics._rounds import Mixable, WeightRule, as_rounds
from topofl.metrics.data_fit.gradients import check_gradients
from topofl.topology import Topology, TopologyError

__all__ = ["clique_skew", "label_distributions", "neighborhood_heterogeneity"]

HOPS = 10
"""Hops of the column of accumulated heterogeneity of :func:`topofl.metrics.compare`."""

COLUMNS = (
    Column(
        "neighborhood heterogeneity",
        "data",
        "distance of neighborhood label distributions from the global one, mean over nodes",
        lambda entry: entry.mean_over_matrices(neighborhood_heterogeneity, entry.label_counts),
        needs=(LABELS,),
    ),
    Column(
        "accumulated heterogeneity",
        "data",
        f"label skew that {HOPS} exchanges leave in neighborhoods, summed over the exchanges",
        lambda entry: neighborhood_heterogeneity(
            entry.rounds, entry.label_counts, hops=HOPS, rounds=entry.limit
        ),
        needs=(LABELS,),
    ),
    Column(
        "mean clique skew",
        "data",
        "distance of clique label distributions from the global one, mean over cliques",
        lambda entry: entry.mean_over_graphs(
            lambda graph: clique_skew(graph, entry.label_counts).mean()
        ),
        needs=(LABELS, NODE_GROUPS),
    ),
)


def label_distributions(label_counts: Any) -> np.ndarray:
    """Return the label distribution of each node: the share of each class in its data.

    Parameters
    ----------
    label_counts
        (n, classes) non-negative integers, examples of each class at each node, or an object with
        an attribute ``label_counts``, such as a Partition.

    Returns
    -------
    numpy.ndarray
        (n, classes) float64; rows sum to 1.

    Raises
    ------
    ValueError
        If the counts are not a non-empty matrix, have a negative entry, or a node has no data.
    TypeError
        If they are not integers.

    Examples
    --------
    >>> label_distributions([[3, 1], [0, 2]])
    array([[0.75, 0.25],
           [0.  , 1.  ]])
    """
    counts = check_counts(label_counts)
    totals = counts.sum(axis=1, keepdims=True)
    empty = np.flatnonzero(totals == 0)
    if len(empty):
        raise ValueError(
            f"`label_counts` must have at least one example per node, nodes {_listed(empty)} have "
            "none; leave them out"
        )
    return counts / totals


def neighborhood_heterogeneity(
    x: Mixable,
    label_counts: Any = None,
    *,
    hops: int | str = 1,
    discount: float = 1.0,
    gradients: Any = None,
    around: str | None = None,
    rounds: int | None = None,
    weights: WeightRule | None = None,
) -> float:
    """Return the label skew left after averaging, ``(1/n) sum_{k=1..K} ||W^k Pi - J Pi||_F^2``.

    ``Pi`` holds the (n, classes) label shares, and all entries of ``J`` are 1/n. With ``hops=1``,
    row i compares the weighted labels that node i receives with the mean over all nodes. Over K
    hops it is the heterogeneity H_K that gradients of the last K rounds leave between models, which
    ranks graphs by how fast decentralized learning converges on these data.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a sequence of either, a list of MixingMatrix, which is one
        period, or a History, whose recorded matrices are taken.
    label_counts
        As in :func:`label_distributions`.
    hops
        K, at least 1, or ``"inf"``: the sum over all hops (only for rounds that repeat).
    discount
        d in (0, 1]: hop k counts ``d^(k-1)``.
    gradients
        (n, d) values in place of label shares, such as the nodes' gradients at a model; then leave
        out `label_counts`.
    around
        For weights that are not doubly stochastic: ``"mean"``, the distance from the mean over all
        nodes, as published for one hop, or ``"consensus"``, that from the limit of ``W^k Pi``.
        None: the mean for one hop, the consensus for more.
    rounds
        Number of rounds to examine of a sequence that neither repeats nor ends; the sums are
        averaged over all starts within these.
    weights
        Rule from Topology to MixingMatrix; default: Metropolis-Hastings if undirected, else uniform
        pull.

    Returns
    -------
    float
        At least 0: 0 if every neighborhood has the global label distribution. For doubly stochastic
        W, each hop contributes at most the value without communication (W = I), which is at most
        1 - 1/classes for labels. Infinite for ``hops="inf"`` and d = 1 if labels stay apart.

    Raises
    ------
    TopologyError
        If neither all rows nor all columns of W sum to 1, if ``hops="inf"`` is used with rounds
        that do not repeat or that mix too slowly, or if the Perron vector is not unique.
    TypeError, ValueError
        If an argument is of another kind or out of range, if values do not have one row per node,
        or if `hops` exceeds the rounds examined.

    Notes
    -----
    Symmetric W: ``H_K = sum_i e_i sum_k d^(k-1) lambda_i^(2k)`` with the energies e_i of
    :func:`heterogeneity_spectrum`. For sequences, powers are products of successive rounds,
    averaged over the starts of a period.

    The limit of ``W^k Pi`` under row-stochastic W has equal rows ``pi^T Pi`` with the Perron vector
    pi, which differ from the mean by a bias that no averaging removes. For column-stochastic W, the
    powers are divided by their row sums (push-sum weights), and the limit is ``J Pi``. For products
    of rounds that do not repeat, the limit is taken from the last round examined.

    References
    ----------
    Le Bars, Bellet, Tommasi, Lavoie and Kermarrec, "Refined convergence and topology learning for
    decentralized SGD with heterogeneous data" (2022): the bias term of neighborhood heterogeneity,
    with labels in place of gradients; it is that of one hop.

    Examples
    --------
    >>> from topofl import topologies
    >>> from topofl.topology import from_edges
    >>> neighborhood_heterogeneity(from_edges([(0, 1)], n=2), [[5, 0], [0, 5]])
    0.0
    >>> labels = np.eye(4, dtype=int)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> ring = topologies.ring(8)
    >>> [round(neighborhood_heterogeneity(ring, labels, hops=k), 3) for k in (1, 5, "inf")]
    [0.306, 0.728, 0.817]
    """
    hops, discount = check_hops(hops), check_discount(discount)
    source = as_rounds(x, weights)
    name = source.at(0).name if source.period == 1 else source.name
    values = values_of(source.n, name, label_counts, gradients)
    if around is None:
        around = MEAN if hops == 1 else CONSENSUS
    check_choice("around", around, [MEAN, CONSENSUS])
    return accumulated(source, values, hops, discount, rounds, around)


def values_of(n: int, name: str, label_counts: Any, gradients: Any) -> np.ndarray:
    """Return label shares (n, classes), or the gradients (n, d) given in their place."""
    if (label_counts is None) == (gradients is None):
        raise TypeError(
            "one of `label_counts` and `gradients` must be given, got "
            + ("neither" if gradients is None else "both")
            + "; for data without labels, give gradients"
        )
    if gradients is not None:
        return check_gradients(gradients, n, name)
    shares = label_distributions(label_counts)
    check_one_row_a_node(shares, n, name)
    return shares


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
        ``"pooled"``: shares of the pooled examples, as in the authors' code, so that a node counts
        by its amount of data. Both are equal if all nodes have the same number of examples.
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
        have, ``"kl"`` never is.

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
        label_distributions(label_counts) if weighting == "uniform" else check_counts(label_counts)
    )
    sums = np.stack([rows[group].sum(axis=0) for group in _groups(topology_or_groups, rows)])
    totals = sums.sum(axis=1, keepdims=True)
    empty = np.flatnonzero(totals == 0)
    if len(empty):
        raise ValueError(
            f"`label_counts` must have at least one example per group, groups {_listed(empty)} "
            "have none"
        )
    return distance_between(distance, (sums / totals).T, (rows.sum(axis=0) / rows.sum())[:, None])


def _groups(
    topology_or_groups: Topology | Sequence[Sequence[int]], rows: np.ndarray
) -> list[list[int]]:
    """Return the groups as lists of nodes, or raise."""
    if isinstance(topology_or_groups, Topology):
        check_one_row_a_node(rows, topology_or_groups.n, topology_or_groups.name)
        if not topology_or_groups.groups:
            raise TopologyError(
                f"clique skew needs a topology with groups, {topology_or_groups.name} has none; "
                "pass groups of nodes"
            )
        topology_or_groups = topology_or_groups.groups
    return check_groups("topology_or_groups", topology_or_groups, len(rows))


def check_groups(argument: str, groups: Sequence[Sequence[int]], n: int) -> list[list[int]]:
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


def check_one_row_a_node(rows: np.ndarray, n: int, name: str) -> None:
    """Raise ``ValueError`` if label counts do not have one row per node of the graph `name`."""
    if len(rows) != n:
        raise ValueError(
            f"`label_counts` must have one row per node: got {len(rows)} rows, {name} has n={n}"
        )


def _listed(nodes: np.ndarray) -> str:
    more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
    return ", ".join(str(node) for node in nodes[:5]) + more
