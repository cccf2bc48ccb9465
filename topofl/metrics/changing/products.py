"""Products of the mixing matrices of several rounds, and expected gaps of random sequences."""

import math

import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg

from topofl._linalg import spectral
from topofl._support.check import check_int
from topofl._support.public import public
from topofl._support.vectors import start_vector
from topofl.metrics._declaration import MetricColumn
from topofl.metrics._rounds import Mixable, WeightRule, as_rounds, converging, n_rounds
from topofl.metrics.averaging.perron import product_of_rounds
from topofl.metrics.averaging.spectral import without_rounding
from topofl.mixing import MixingMatrix
from topofl.topology import TopologyError

__all__ = [
    "expected_gap",
    "product_contraction",
    "window_product",
]

COLUMNS = (
    MetricColumn(
        "expected gap",
        "rounds",
        "guaranteed relative decrease of squared consensus distance per round, mean over rounds",
        lambda entry: expected_gap(entry.rounds, rounds=entry.limit),
        after="B",
    ),
)


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
        if not matrix.is_row_stochastic:
            raise TopologyError(
                f"the expected gap needs rows that sum to 1, {matrix.name} is "
                f"{matrix.stochasticity}; use metrics.push_sum_constants, or "
                "mixing.uniform(topology, direction='pull')"
            )
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
    if n <= spectral.limits.DENSE_LIMIT:
        dense = gram.toarray() - sums.T @ sums / k
        centered = dense - dense.mean(axis=0)
        centered -= centered.mean(axis=1, keepdims=True)
        # All eigenvalues are computed, since LAPACK's subsets fail on rounding around 0.
        return float(max(np.linalg.eigvalsh(centered)[-1], 0.0))

    def apply(values: np.ndarray) -> np.ndarray:
        values = values.reshape(-1) - values.mean()
        image = gram @ values - sums.T @ (sums @ values) / k
        return image - image.mean()

    operator = sparse_linalg.LinearOperator((n, n), matvec=apply, dtype=np.float64)  # pyright: ignore[reportCallIssue]
    start = start_vector(n)
    with converging("the expected gap"):
        top = sparse_linalg.eigsh(
            operator, k=1, which="LA", return_eigenvectors=False, v0=start, ncv=40
        )
    return float(top[0])
