"""Products of rounds, and their limit: the Perron vector, the long-run influence of nodes."""

import math
from collections.abc import Hashable, Sequence

import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg

from topofl._linalg import spectral
from topofl._linalg.spectral import classes_of, without_rounding
from topofl._support.check import TOLERANCE, check_int
from topofl._support.public import public
from topofl._support.text import node_name
from topofl.metrics._columns import MetricColumn
from topofl.metrics._rounds import (
    Mixable,
    WeightRule,
    as_rounds,
    averages,
    check_averaging,
    check_size,
    converging,
    largest_eigenvalue,
    n_rounds,
)
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import TopologyError

__all__ = [
    "expected_gap",
    "perron_skewness",
    "perron_vector",
    "product_contraction",
    "window_product",
]


PRODUCT_LIMIT = 5000
"""Largest number of nodes for which products of rounds, which become dense, are computed."""

QUICK_LIMIT = 500
"""Largest number of nodes for which elimination takes less than about 0.2 seconds."""


@public
def perron_vector(x: Mixable, *, weights: WeightRule | None = None) -> np.ndarray:
    """Return the Perron vector pi: each node's share in the consensus, or in the push-sum weights.

    For row-stochastic W (pull), ``pi^T W = pi^T``, and models tend to ``pi^T X``, which is the mean
    only if pi is uniform. For column-stochastic W (push), ``W pi = pi``, and push-sum weights tend
    to ``n pi``. (Both limits exist if ``spectral_gap`` is above 0.) For a periodic sequence, W is
    the product of one period, from round 0 on.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a periodic TopologySequence, or a list of MixingMatrix, which is
        one period.
    weights
        Rule from Topology to MixingMatrix for graphs; default: Metropolis-Hastings if undirected,
        else uniform pull.

    Returns
    -------
    numpy.ndarray
        (n,) float64, non-negative, sum 1; uniform for connected doubly stochastic weights. 0 for
        nodes whose own models are forgotten (pull: they receive from others but do not send to
        them) or that lose all push-sum weight (push).

    Raises
    ------
    TopologyError
        If pi is not unique, since several groups of nodes never receive from others; if the
        sequence has no period or mixes row- with column-stochastic matrices; or if the product of a
        period is too large.
    TypeError, ValueError
        If `x` or `weights` is of another kind, or both give weights.

    References
    ----------
    Horn and Johnson, "Matrix analysis" (2013), section 8.4.

    Examples
    --------
    >>> from topofl import mixing, topologies
    >>> pulled = mixing.uniform(topologies.star(4))
    >>> perron_vector(pulled).round(3).tolist()  # degrees plus one, normalized
    [0.4, 0.2, 0.2, 0.2]
    """
    rounds = as_rounds(x, weights)
    matrices = rounds.one_period()
    is_pulled = averages(matrices, rounds.name)
    product = product_of_rounds(rounds, len(matrices))
    return _stationary(product if is_pulled else sparse.csr_array(product.T), rounds.name)


@public
def perron_skewness(x: Mixable, *, weights: WeightRule | None = None) -> float:
    """Return the skewness of the Perron vector pi, ``max(pi) / min(pi)``.

    It is 1 if all nodes have the same influence, and infinite if a node has none. Parameters and
    errors are those of :func:`perron_vector`.

    References
    ----------
    kappa_pi in work on decentralized learning over row-stochastic networks (arXiv 2506.04600).

    Examples
    --------
    >>> from topofl import mixing, topologies
    >>> print(f"{perron_skewness(mixing.uniform(topologies.star(10))):.1f}")
    5.0
    """
    pi = perron_vector(x, weights=weights)
    return float(pi.max() / pi.min()) if pi.min() > 0 else float("inf")


def largest_share(matrices: Sequence[MixingMatrix]) -> tuple[int, float] | None:
    """Return the node with the largest share in the average on which models agree, and the share.

    Shares are the Perron vector of the product of a period of row-stochastic matrices. If graphs
    change, they depend on the round in which the period starts: of a gradient of round t, the share
    is that of periods from t on, so that methods which take gradients in all rounds weight the
    nodes by the mean over these starts, which is returned.

    The share is also found for large matrices whose smallest entries are too small to be computed.
    None if all shares are equal; if the vector is not unique, since several groups of nodes never
    receive from others.

    Raises
    ------
    TopologyError
        If its computation does not converge, or the product of several rounds is too large.

    Examples
    --------
    >>> from topofl import mixing, topologies
    >>> largest_share([mixing.uniform(topologies.star(4))])
    (0, 0.4)
    """
    rounds = MixingSequence(
        matrices[0].n, matrices.__getitem__, matrices[0].name, period=len(matrices)
    )
    product = product_of_rounds(rounds, len(matrices))
    if classes_of([product]).is_closed.sum() > 1:
        return None
    shares = [_stationary(product, rounds.name, uneven=True)]
    for matrix in reversed(matrices[1:]):  # pi_t^T = pi_{t+1}^T W_t
        shares.append(matrix.weights.T @ shares[-1])
    pi = np.mean(shares, axis=0)
    if pi.max() * len(pi) <= 1 + TOLERANCE:
        return None
    return int(pi.argmax()), float(pi.max())


def share_in_words(found: tuple[int, float], n: int, labels: Sequence[Hashable]) -> str:
    """Return words on the node with the largest share of n nodes with `labels`, and the share."""
    node, share = found
    name = node_name(labels, node)
    return f"node {name} a share of {share:.3f} ({share * n:.3g} times 1/n)"


def product_of_rounds(source: MixingSequence, rounds: int, start: int = 0) -> sparse.csr_array:
    """Return ``W_{start+rounds-1} ... W_start``; raise ``TopologyError`` if n is too large."""
    if rounds > 1:
        remedy = "use metrics.measured_contraction"
        check_size("products of several rounds are", source, PRODUCT_LIMIT, remedy)
    product = source.at(start).weights
    for t in range(start + 1, start + rounds):
        product = sparse.csr_array(source.at(t).weights @ product)
    return product


def _stationary(rows: sparse.csr_array, name: str, uneven: bool = False) -> np.ndarray:
    """Return the unique pi with ``pi^T W = pi^T`` of row-stochastic W, or raise.

    If `uneven`, the smallest entries of all but small matrices may be inaccurate.
    """
    members = _closed_class(rows, name)
    inner = sparse.csr_array(rows[members][:, members])
    pi = np.zeros(rows.shape[0])
    rounding = (4 + inner.count_nonzero(axis=0).max()) * np.finfo(float).eps
    if np.abs(inner.sum(axis=0) - 1).max() <= rounding:  # doubly stochastic there
        pi[members] = 1 / len(members)
    elif len(members) <= (QUICK_LIMIT if uneven else spectral.DENSE_LIMIT):
        pi[members] = _perron_by_elimination(inner.toarray())
    else:
        pi[members] = _perron_by_iteration(inner, name)
        if not uneven and pi[members].min() < 1e-10 * pi.max():
            raise TopologyError(
                f"the Perron vector of {name} is too uneven to be computed for "
                f"n={len(members):,}: it is exact up to n={spectral.DENSE_LIMIT:,}"
            )
    return pi


def _closed_class(rows: sparse.csr_array, name: str) -> np.ndarray:
    """Return the nodes of the closed class, which receives from no other node, or raise."""
    classes = classes_of([rows])
    closed = np.flatnonzero(classes.is_closed)
    if len(closed) > 1:
        raise TopologyError(
            f"the Perron vector of {name} is not unique: {len(closed)} groups of nodes never "
            "receive from each other; connect them"
        )
    return np.flatnonzero(classes.labels[0] == closed[0])


def _perron_by_elimination(rows: np.ndarray) -> np.ndarray:
    """Return pi of an irreducible matrix, each entry to full relative precision.

    The elimination of Grassmann, Taksar and Heyman removes the nodes from the chain one by one
    without subtractions, so that even entries far below the rounding error of the largest are
    accurate (Heyman 1987). The matrix is overwritten.
    """
    for k in range(len(rows) - 1, 0, -1):
        rows[:k, k] /= rows[k, :k].sum()
        rows[:k, :k] += np.outer(rows[:k, k], rows[k, :k])
    pi = np.ones(len(rows))
    for k in range(1, len(rows)):
        pi[k] = pi[:k] @ rows[:k, k]
        if pi[k] > 1e100:  # rescaled to avoid overflow; only ratios matter
            pi[: k + 1] /= pi[k]
    return pi / pi.sum()


def _perron_by_iteration(rows: sparse.csr_array, name: str) -> np.ndarray:
    """Return pi of a large irreducible matrix by Arnoldi's method on ``(I + W^T) / 2``."""
    n = rows.shape[0]
    transposed = sparse.csr_array(0.5 * (sparse.eye_array(n) + rows.T))
    with converging(f"the Perron vector of {name}"):
        _, vectors = sparse_linalg.eigs(transposed, k=1, which="LM", v0=np.full(n, 1 / n), ncv=40)
    pi = np.abs(vectors[:, 0].real)
    return pi / pi.sum()


@public
def window_product(
    x: Mixable, *, rounds: int, start: int = 0, weights: WeightRule | None = None
) -> MixingMatrix:
    """Return the product ``W_{start+rounds-1} ... W_start`` of a window of mixing matrices.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, any TopologySequence, or a list of MixingMatrix, which is one
        period.
    rounds, start
        Number of rounds, at least 1, and first round.
    weights
        As in :func:`topofl.metrics.mixing_time`.

    Raises
    ------
    TopologyError
        If n is above 5,000 and `rounds` above 1, since the product would be dense.
    ValueError, TypeError
        If an argument is out of range, or the rounds mix row- with column-stochastic matrices.

    Examples
    --------
    >>> from topofl import topologies
    >>> window_product(topologies.one_peer_exponential(8), rounds=3).is_uniform_mean
    True
    """
    source = as_rounds(x, weights)
    rounds = check_int("rounds", rounds, minimum=1)
    start = check_int("start", start, minimum=0)
    product = product_of_rounds(source, rounds, start)
    return MixingMatrix(
        product, name=f"window_product({source.name}, rounds={rounds}, start={start})"
    )


@public
def product_contraction(
    x: Mixable, *, rounds: int, start: int = 0, weights: WeightRule | None = None
) -> float:
    """Return ``||W_{start+rounds-1} ... W_start - J||_2``, the worst-case factor over a window.

    This factor on consensus distance is defined for doubly stochastic rounds. For one round, it is
    :func:`topofl.metrics.sigma`. It is at most the product of the factors of parts of the window,
    and often far smaller: most single rounds of the one-peer exponential graph do not contract, but
    a period averages exactly. For other weights, use :func:`topofl.metrics.dobrushin`.

    Parameters
    ----------
    x, rounds, start, weights
        As in :func:`window_product`.

    Returns
    -------
    float
        In [0, 1], for the whole window; the factor per round is its power ``1 / rounds``.

    Raises
    ------
    TopologyError
        If a round is not doubly stochastic, or n is above 5,000 and `rounds` above 1.

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{product_contraction(topologies.ring(16), rounds=10):.4f}")
    0.5940
    """
    product = window_product(x, rounds=rounds, start=start, weights=weights)
    if not product.is_doubly_stochastic:
        raise TopologyError(
            f"product contraction needs doubly stochastic rounds, {product.name} is "
            f"{product.stochasticity}; use metrics.dobrushin(..., rounds=...)"
        )
    return without_rounding(spectral.sigma(product.weights), product.n)


@public
def expected_gap(
    x: Mixable, *, rounds: int | None = None, weights: WeightRule | None = None
) -> float:
    """Return the expected gap p: ``E ||W x - mean(W x)||^2 <= (1 - p) ||x - mean(x)||^2``.

    ``p = 1 - lambda_max(E[W^T (I - J) W])`` on disagreement, for the worst direction of x (all
    entries of J are 1/n; for doubly stochastic W the matrix is ``E[W^T W] - J``). E is the mean
    over a period or, for a random sequence, over rounds 0..rounds-1, which must be independent and
    identically distributed for p to hold beyond them. Use many rounds, since few underestimate p
    (the largest eigenvalue of a sample mean is biased upwards).

    Parameters
    ----------
    x
        As in :func:`window_product`.
    rounds
        Number of rounds to average over; required, and only allowed, for sequences without a
        period. Default for recorded rounds: all.
    weights
        As in :func:`topofl.metrics.mixing_time`.

    Returns
    -------
    float
        At most 1 (exact averaging). For row-stochastic rounds it may be negative, since the mean
        squared disagreement may grow. For a static doubly stochastic W it is ``1 - sigma^2``.

    Raises
    ------
    TopologyError
        If rows of a matrix do not sum to 1, or `rounds` is missing for a sequence without a period.
    ValueError
        If `rounds` is given for a sequence with a period, or is below 1.

    References
    ----------
    Boyd, Ghosh, Prabhakar and Shah, "Randomized gossip algorithms" (2006); p as in Koloskova et
    al., "A unified theory of decentralized SGD with changing topology and local updates" (2020),
    Assumption 4.

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{expected_gap(topologies.star(4)):.4f}")  # 1 - 0.75^2
    0.4375
    """
    source = as_rounds(x, weights)
    times = range(n_rounds(source, rounds))
    n = source.n
    total = sparse.csr_array((n, n))
    sums = []
    for t in times:
        matrix = source.at(t)
        remedy = "metrics.push_sum_constants, or mixing.uniform(topology, direction='pull')"
        check_averaging("the expected gap needs", matrix, use=remedy)
        total = total + matrix.weights.T @ matrix.weights
        sums.append(np.asarray(matrix.weights.sum(axis=0)))
    worst = _largest_on_disagreement(
        sparse.csr_array(total / len(times)), np.stack(sums) / math.sqrt(n)
    )
    return 1.0 - without_rounding(worst, n)


def _largest_on_disagreement(gram: sparse.csr_array, sums: np.ndarray) -> float:
    """Return the largest eigenvalue of ``G - S^T S / k`` on vectors of mean 0; S is (k, n)."""
    n = gram.shape[0]
    k = len(sums)
    if n == 1:
        return 0.0
    if n <= spectral.DENSE_LIMIT:
        dense = gram.toarray() - sums.T @ sums / k
        centered = dense - dense.mean(axis=0)
        centered -= centered.mean(axis=1, keepdims=True)
        # All eigenvalues are computed, since LAPACK's subsets fail on rounding around 0.
        return float(max(np.linalg.eigvalsh(centered)[-1], 0.0))

    def apply(values: np.ndarray) -> np.ndarray:
        values = values.reshape(-1) - values.mean()
        image = gram @ values - sums.T @ (sums @ values) / k
        return image - image.mean()

    return largest_eigenvalue(apply, n, "the expected gap")


COLUMNS = (
    MetricColumn(
        "Perron skewness",
        "averaging",
        "largest over smallest long-run influence of a node: 1 if all nodes count equally",
        lambda entry: perron_skewness(entry.rounds),
    ),
    MetricColumn(
        "expected gap",
        "rounds",
        "guaranteed relative decrease of squared consensus distance per round, mean over rounds",
        lambda entry: expected_gap(entry.rounds, rounds=entry.limit),
    ),
)
