"""Accumulated noise: how much of nodes' independent noise is left after each of several hops."""

import numpy as np

from topofl._linalg import spectral
from topofl._support.check import check_int
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.metrics._declaration import MetricColumn, iterated
from topofl.metrics._rounds import Mixable, WeightRule, as_rounds
from topofl.metrics.hops.accumulated import (
    HOPS,
    accumulated,
    check_discount,
    check_hops,
    geometric,
    over_hops,
)
from topofl.mixing import MixingSequence

__all__ = ["EXACT_LIMIT", "accumulated_noise"]

EXACT_LIMIT = 2000
"""Largest number of nodes whose products of rounds are computed in full."""

PROBED_LIMIT = 200_000
"""Largest graph whose column is estimated by random vectors unless it is asked for by name."""

COLUMNS = (
    MetricColumn(
        f"N_{HOPS}",
        "averaging",
        f"gradient noise that 1 to {HOPS} exchanges leave, summed; low is good",
        lambda entry: over_hops(
            entry, lambda rounds: accumulated_noise(entry.rounds, rounds=rounds, seed=entry.seed)
        ),
        limit=iterated("metrics.accumulated_noise", nodes=PROBED_LIMIT),
        after="worst effective neighbors",
    ),
)


@public
def accumulated_noise(
    x: Mixable,
    hops: int | str = HOPS,
    *,
    discount: float = 1.0,
    rounds: int | None = None,
    weights: WeightRule | None = None,
    probes: int = 64,
    seed: int = 0,
) -> float:
    """Return the accumulated noise ``N_K = (1/n) sum_{k=1..K} d^(k-1) ||W^k - J||_F^2``.

    All entries of J are 1/n. If the nodes' gradients have independent noise of unit variance, term
    k is the variance that gradients of k rounds ago still contribute to a node's deviation from the
    mean model. For homogeneous data, noise is all that sets the nodes' models apart.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a sequence of either, a list of MixingMatrix, which is one
        period, or a History, whose recorded matrices are taken.
    hops
        K, at least 1, or ``"inf"``: the sum over all hops (only for rounds that repeat).
    discount
        d in (0, 1], the factor by which each further hop counts.
    rounds
        Number of rounds to examine of a sequence that neither repeats nor ends; the sums are
        averaged over all starts within these.
    weights
        Rule from Topology to MixingMatrix for graphs; default: Metropolis-Hastings if undirected,
        else uniform pull.
    probes, seed
        For more than 2,000 nodes, the norm is estimated from this number of random sign vectors
        (Hutchinson), drawn with this seed. Sums of circulants, such as rings, are exact for any
        number of nodes, and sums over all hops of symmetric weights for up to 6,000.

    Returns
    -------
    float
        At least 0: 0 for exact averaging, K (1 - 1/n) without communication for d = 1. Infinite for
        ``hops="inf"``, d = 1 and weights whose powers do not converge to J.

    Raises
    ------
    TopologyError
        If neither all rows nor all columns sum to 1, if ``hops="inf"`` is used with rounds that do
        not repeat or that mix too slowly, or if the Perron vector is not unique.
    TypeError, ValueError
        If an argument is of another kind or out of range; if `hops` exceeds the rounds examined.

    Notes
    -----
    Symmetric W: ``N_K = (1/n) sum_{i>=2} sum_k d^(k-1) lambda_i^(2k)``. The effective number of
    neighbors of doubly stochastic W is a function of the sum over all hops: ``n_W(d) = 1 / (1/n +
    (1 - d) N_inf(d))``. Without discount, ``N_inf = (1/n) sum_{i>=2} lambda_i^2 / (1 -
    lambda_i^2)`` depends on the whole spectrum.

    For row-stochastic W, J is replaced by the limit of ``W^k``, whose rows are the Perron vector.
    For column-stochastic W, the powers are divided by their row sums (push-sum weights). For
    products of rounds that do not repeat, the limit is taken from the last round examined.

    References
    ----------
    Vogels, Hendrikx and Jaggi, "Beyond spectral gap: the role of the topology in decentralized
    learning" (2022), for n_W. Hutchinson, "A stochastic estimator of the trace of the influence
    matrix for Laplacian smoothing splines" (1989).

    Examples
    --------
    >>> from topofl import topologies
    >>> [round(accumulated_noise(topologies.ring(100), hops), 3) for hops in (1, 10, "inf")]
    [0.323, 1.592, 11.939]
    """
    hops, discount = check_hops(hops), check_discount(discount)
    probes = check_int("probes", probes, minimum=1)
    source = as_rounds(x, weights)
    if hops == "inf" or source.n > EXACT_LIMIT:
        known = _of_spectrum(source, hops, discount)
        if known is not None:
            return known
    if source.n <= EXACT_LIMIT:
        return accumulated(source, np.eye(source.n), hops, discount, rounds)
    signs = stream(seed, "probes of accumulated noise").integers(2, size=(source.n, probes))
    return accumulated(source, (2.0 * signs - 1.0) / probes**0.5, hops, discount, rounds)


def _of_spectrum(source: MixingSequence, hops: int | str, discount: float) -> float | None:
    """Return the sum from the eigenvalues of one normal matrix, or None."""
    if source.period != 1 or not source.at(0).is_doubly_stochastic:
        return None
    matrix = source.at(0)
    eigenvalues = spectral.circulant_spectrum(matrix.weights)
    if eigenvalues is None:
        if hops != "inf" or not matrix.is_symmetric or matrix.n > spectral.limits.SPECTRUM_LIMIT:
            return None
        eigenvalues = matrix.eigenvalues
    others = np.delete(eigenvalues, int(np.abs(eigenvalues - 1).argmin()))
    squares = np.abs(others) ** 2
    if hops != "inf":
        terms = (discount ** (k - 1) * float((squares**k).sum()) for k in range(1, int(hops) + 1))
        return sum(terms) / matrix.n
    return geometric(squares, np.ones(len(others)), discount) / matrix.n
