"""Effective number of neighbors: how much averaging reduces the variance of noise."""

import numpy as np
import scipy.linalg

from topofl._support.check import check_choice, check_fraction
from topofl._support.public import public
from topofl.metrics._declaration import MetricColumn
from topofl.metrics._rounds import Mixable, WeightRule, as_rounds
from topofl.mixing import MixingMatrix
from topofl.topology import TopologyError

__all__ = ["effective_neighbors"]

GAMMA = 0.9
"""Decay of the random walk in the columns of :func:`topofl.metrics.compare`."""

COLUMNS = (
    MetricColumn(
        "effective neighbors",
        "averaging",
        "number of nodes whose plain average would have as little variance, at decay 0.9",
        lambda entry: effective_neighbors(entry.rounds, GAMMA),
        after="mixing time",
    ),
    MetricColumn(
        "worst effective neighbors",
        "averaging",
        "effective neighbors of the node with the largest variance",
        lambda entry: effective_neighbors(entry.rounds, GAMMA, which="worst"),
    ),
)

LIMIT = 2000
"""Largest number of nodes whose covariance is computed (seconds if symmetric, else a minute)."""


@public
def effective_neighbors(
    x: Mixable, gamma: float, *, weights: WeightRule | None = None, which: str = "mean"
) -> float:
    """Return the effective number of neighbors: how much averaging reduces a node's variance.

    In each round, the value of each node decays and receives new noise, and then all nodes average:
    ``x <- W (sqrt(gamma) x + xi)`` with standard normal xi. Without communication, the stationary
    variance is ``1 / (1 - gamma)``; its ratio to the variance with communication is

        ``n_W(gamma) = (1 / (1 - gamma)) / Var``,
        ``Var_i = sum_k gamma^k ||row i of W^(k+1)||^2``.

    A small gamma measures the neighborhood, a gamma near 1 the whole graph: gamma models how slowly
    old gradients are forgotten (flat directions, small steps).

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a periodic TopologySequence, or a list of MixingMatrix, which is
        one period; of up to 2,000 nodes.
    gamma
        Decay, in [0, 1).
    weights
        Rule from Topology to MixingMatrix for graphs; default: Metropolis-Hastings if undirected,
        else uniform pull.
    which
        ``"mean"``: Var is the mean over nodes. ``"worst"``: Var is the largest variance of a node.

    Returns
    -------
    float
        In [1, n]: 1 without communication, n for exact averaging in each round. Non-decreasing in
        gamma for doubly stochastic weights. At gamma = 0 the mean is ``n / ||W||_F^2``; as gamma
        tends to 1 it tends to n for doubly stochastic weights with a spectral gap, and to ``1 /
        sum_i pi_i^2`` for row-stochastic ones with stationary distribution pi.

    Raises
    ------
    TopologyError
        If rows do not sum to 1, the sequence has no period, or there are more than 2,000 nodes.
    TypeError, ValueError
        If an argument is of another kind or out of range.

    Notes
    -----
    One symmetric matrix: ``Var = (1/n) sum_i lambda_i^2 / (1 - gamma lambda_i^2)``. Otherwise the
    covariance solves a discrete Lyapunov equation, here by doubling (squared Smith method). Over a
    period the variance of each node changes from round to round; here it is averaged over the
    rounds of the period, whereas the authors' code uses the last round of the period only.

    References
    ----------
    Vogels, Hendrikx and Jaggi, "Beyond spectral gap: the role of the topology in decentralized
    learning" (2022), and the authors' code. Smith, "Matrix equation XA + BX = C" (1968).

    Examples
    --------
    >>> from topofl import topologies
    >>> [round(effective_neighbors(topologies.ring(100), gamma), 2) for gamma in (0.0, 0.9, 0.99)]
    [3.0, 6.63, 17.83]
    """
    gamma = check_fraction("gamma", gamma)
    which = check_choice("which", which, ["mean", "worst"])
    matrices = as_rounds(x, weights).one_period()
    _check_averaging(matrices)
    if len(matrices) == 1 and matrices[0].is_symmetric:
        variances = _symmetric_variances(matrices[0].weights.toarray(), gamma)
    else:
        variances = _periodic_variances(matrices, gamma)
    variance = variances.mean() if which == "mean" else variances.max()
    return float(np.clip(1 / (1 - gamma) / variance, 1.0, len(variances)))


def _check_averaging(matrices: list[MixingMatrix]) -> None:
    other = next((matrix for matrix in matrices if not matrix.is_row_stochastic), None)
    if other is not None:
        raise TopologyError(
            f"effective neighbors need rows that sum to 1, {other.name} is {other.stochasticity}; "
            "use mixing.uniform(topology, direction='pull')"
        )
    if matrices[0].n > LIMIT:
        raise TopologyError(
            f"effective neighbors are computed up to n={LIMIT:,}, {matrices[0].name} has "
            f"n={matrices[0].n:,}; use a smaller graph of the same kind"
        )


def _symmetric_variances(matrix: np.ndarray, gamma: float) -> np.ndarray:
    """Return the (n,) variances of the nodes under one symmetric matrix."""
    eigenvalues, vectors = scipy.linalg.eigh(matrix)
    squares = np.minimum(eigenvalues**2, 1.0)
    return vectors**2 @ (squares / (1 - gamma * squares))


def _periodic_variances(matrices: list[MixingMatrix], gamma: float) -> np.ndarray:
    """Return the (n,) variances of the nodes, averaged over the rounds of a period."""
    n = matrices[0].n
    product = np.eye(n)
    fresh = np.zeros((n, n))
    for matrix in matrices:
        product = matrix @ product
        fresh = _next_covariance(matrix, fresh, gamma)
    covariance = _solve_lyapunov(product, fresh, gamma, len(matrices))
    variances = np.zeros(n)
    for matrix in matrices:
        covariance = _next_covariance(matrix, covariance, gamma)
        variances += covariance.diagonal() / len(matrices)
    return variances


def _next_covariance(matrix: MixingMatrix, covariance: np.ndarray, gamma: float) -> np.ndarray:
    """Return the covariance of ``W (sqrt(gamma) x + xi)``, given that of x."""
    half = matrix @ (gamma * covariance + np.eye(matrix.n))
    return matrix @ half.T  # the covariance is symmetric


def _solve_lyapunov(
    product: np.ndarray, fresh: np.ndarray, gamma: float, period: int
) -> np.ndarray:
    """Return the solution of ``X = g A X A^T + C`` with g = gamma^period, by doubling.

    ``X = sum_k g^k A^k C (A^k)^T``, with A the product and C the fresh noise over a period.
    """
    total = fresh
    while gamma**period > np.finfo(float).eps ** 2:
        total = total + gamma**period * (product @ total @ product.T)
        product = product @ product
        period *= 2
        # Squaring doubles the rounding error of the eigenvalue 1; rows that sum to 1 keep it at 1.
        product = product / product.sum(axis=1, keepdims=True)
    return total
