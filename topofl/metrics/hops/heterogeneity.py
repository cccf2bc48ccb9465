"""Neighborhood heterogeneity over one or several hops: the label skew that averaging leaves."""

from typing import Any

import numpy as np

from topofl._support.check import check_choice
from topofl._support.public import public
from topofl.metrics._declaration import LABELS, MetricColumn
from topofl.metrics._rounds import Mixable, WeightRule, as_rounds
from topofl.metrics.data_fit.gradients import check_gradients
from topofl.metrics.data_fit.labels import check_row_per_node, label_distributions
from topofl.metrics.hops.accumulated import (
    CONSENSUS,
    HOPS,
    MEAN,
    accumulated,
    check_discount,
    check_hops,
    over_hops,
)

__all__ = ["neighborhood_heterogeneity", "values_of"]

COLUMNS = (
    MetricColumn(
        "neighborhood heterogeneity",
        "data",
        "distance of neighborhood label distributions from the global one, mean over nodes",
        lambda entry: entry.mean_over_matrices(neighborhood_heterogeneity, entry.label_counts),
        needs=(LABELS,),
    ),
    MetricColumn(
        f"H_{HOPS}",
        "data",
        f"label skew that 1 to {HOPS} exchanges leave in neighborhoods, summed; low is good",
        lambda entry: over_hops(
            entry,
            lambda rounds: neighborhood_heterogeneity(
                entry.rounds, entry.label_counts, hops=HOPS, rounds=rounds
            ),
        ),
        needs=(LABELS,),
    ),
)


@public
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

    See the page :doc:`What predicts convergence </docs/what-predicts-convergence>`.

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
    check_row_per_node(shares, n, name)
    return shares
