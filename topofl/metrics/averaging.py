"""What averaging over rounds guarantees: ergodicity, mixing time, effective neighbors."""

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sparse

from topofl._linalg import spectral
from topofl._support.check import check_choice, check_fraction, check_int, check_positive
from topofl._support.public import public
from topofl.metrics._columns import MetricColumn
from topofl.metrics._rounds import (
    Mixable,
    WeightRule,
    as_rounds,
    check_averaging,
    check_size,
    mixed_kinds,
)
from topofl.metrics.spectral import perron_vector
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import TopologyError

__all__ = ["dobrushin", "effective_neighbors", "mixing_time"]


LIMIT = 2000
"""Largest number of nodes for which products and pairs are computed densely (some seconds)."""

ENTRY_LIMIT = 50_000_000
"""Largest number of entries of a product of larger, sparse matrices."""


@public
def dobrushin(
    x: Mixable, *, rounds: int | None = None, start: int = 0, weights: WeightRule | None = None
) -> float:
    """Return Dobrushin's ergodicity coefficient of the product of a window of rounds.

    It is half the largest L1 distance between two rows:
    ``tau(A) = max_ij ||A_i - A_j||_1 / 2 = 1 - min_ij sum_k min(A_ik, A_jk)`` of the product
    ``A = W_{start+rounds-1} ... W_start``. Over the window, the range of the nodes' values shrinks
    at least by this factor: ``max(A x) - min(A x) <= tau(A) (max(x) - min(x))`` for all x. For
    matrices that are column- but not row-stochastic, columns are compared.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a TopologySequence, or a list of MixingMatrix, which is one
        period.
    rounds
        Length of the window, at least 1; default: one period, or all recorded rounds from `start`
        on. Required for other sequences without a period.
    start
        First round of the window.
    weights
        Rule from Topology to MixingMatrix for graphs; default: Metropolis-Hastings if undirected,
        else uniform pull.

    Returns
    -------
    float
        In [0, 1]; 0, up to rounding (1e-15), if and only if all rows are equal; 1 exactly if two
        nodes have no source (for columns: no receiver) in common. 0 for a single node.

    Raises
    ------
    TopologyError
        If `rounds` is missing for a sequence without a period, or the rounds mix row- with
        column-stochastic matrices. If there are more than 2,000 nodes, unless the coefficient is 1
        by a quick test: the node whose sources are least shared has none in common with some node.
    TypeError, ValueError
        If an argument is of another kind or out of range.

    Notes
    -----
    ``tau(A B) <= tau(A) tau(B)``, and ``|lambda_2(A)| <= tau(A)``. For one round of a sparse graph
    it is usually 1: take at least as many rounds as the diameter.

    References
    ----------
    Dobrushin, "Central limit theorem for nonstationary Markov chains" (1956); Seneta, "Coefficients
    of ergodicity: structure and applications" (1979).

    Examples
    --------
    >>> from topofl import topologies
    >>> graph = topologies.one_peer_exponential(8)
    >>> dobrushin(graph, rounds=1), dobrushin(graph, rounds=2), dobrushin(graph)
    (1.0, 1.0, 0.0)
    """
    source = as_rounds(x, weights)
    start = check_int("start", start, minimum=0)
    if rounds is None and source.period is None and source.length is None:
        raise TopologyError(
            f"{source.name} has no period, so `rounds` is needed: dobrushin(sequence, rounds=...)"
        )
    default = source.period or (source.length or 0) - start
    length = check_int("rounds", default if rounds is None else rounds, minimum=1)
    product = _window_product(source, range(start, start + length))
    if isinstance(product, np.ndarray):
        return ergodicity_coefficient(product)
    if not _some_pair_is_disjoint(product):
        remedy = "use metrics.slem or metrics.measured_contraction"
        check_size("Dobrushin's coefficient is", source, LIMIT, remedy)
    return 1.0


def _window_product(source: MixingSequence, window: range) -> np.ndarray | sparse.csr_array:
    """Return the product of the rounds, dense up to LIMIT; transposed if column-stochastic."""
    product: Any = (
        np.eye(source.n) if source.n <= LIMIT else sparse.eye_array(source.n, format="csr")
    )
    all_rows = all_columns = True
    for t in window:
        matrix = source.at(t)
        all_rows = all_rows and matrix.is_row_stochastic
        all_columns = all_columns and matrix.is_column_stochastic
        if not (all_rows or all_columns):
            raise mixed_kinds(source.name)
        if (
            sparse.issparse(product)
            and np.diff(product.indptr)[matrix.weights.indices].sum() > ENTRY_LIMIT
        ):
            raise TopologyError(
                f"the product of these rounds of {source.name} is too large from round {t} on "
                f"(n={source.n:,}); use fewer rounds, or metrics.measured_contraction"
            )
        product = matrix.weights @ product
    product = product if all_rows else product.T
    return sparse.csr_array(product) if sparse.issparse(product) else product


def _some_pair_is_disjoint(matrix: sparse.csr_array) -> bool:
    """Return whether the row whose columns are used least has none in common with some row."""
    column_counts = np.bincount(matrix.indices, minlength=matrix.shape[0])
    pattern = sparse.csr_array(
        (np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape
    )
    row = int((pattern @ column_counts).argmin())
    columns = pattern[[row]].toarray()[0]
    return bool((pattern @ columns == 0).any())


def ergodicity_coefficient(matrix: np.ndarray) -> float:
    """Return half the largest L1 distance of two rows of a dense row-stochastic matrix.

    Differences that are only rounding count as 0.
    """
    from scipy.spatial.distance import pdist

    if (matrix == matrix[0]).all():
        return 0.0
    support = (matrix > 0).astype(np.float32)
    if (support @ support.T).min() == 0:
        return 1.0
    largest = float(min(1.0, pdist(matrix, "cityblock").max() / 2))
    rounding = len(matrix) * np.finfo(float).eps
    return largest if largest > rounding else 0.0


TIE = 1e-12
"""Relative difference below which two distances to the limit are equal up to rounding."""


@public
def mixing_time(
    x: Mixable, *, epsilon: float = 0.25, weights: WeightRule | None = None
) -> int | float:
    """Return the mixing time: rounds until every node's mixture is within epsilon of the limit.

    The smallest t with ``max_i TV(row i of W_{t-1} ... W_0, pi) <= epsilon``, where TV is half the
    L1 distance and pi the Perron vector (uniform for doubly stochastic W). For column-stochastic W,
    columns are compared with ``W_{t-1} ... W_0 pi``.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a periodic TopologySequence, or a list of MixingMatrix, which is
        one period.
    epsilon
        In (0, 1); 1/4 by convention.
    weights
        Rule from Topology to MixingMatrix; default: Metropolis-Hastings if undirected, else uniform
        pull.

    Returns
    -------
    int or float
        Number of rounds; a distance that equals `epsilon` up to rounding (a relative 1e-12)
        counts as reached. Infinite if it is never reached (or not in 10^12 periods), as on a
        bipartite graph without self-weights; 0 for one node.

    Raises
    ------
    TopologyError
        If pi is not unique, the sequence has no period, or n is above 1,500 (products are dense).
    ValueError
        If `epsilon` is out of range.

    References
    ----------
    Levin, Peres and Wilmer, "Markov chains and mixing times" (2009), section 4.5.

    Examples
    --------
    >>> from topofl import topologies
    >>> mixing_time(topologies.ring(16))
    18
    >>> mixing_time(topologies.one_peer_exponential(16), epsilon=1e-9)
    4
    """
    epsilon = check_positive("epsilon", epsilon)
    if epsilon >= 1:
        raise ValueError(f"`epsilon` must be between 0 and 1, got {epsilon:g}")
    source = as_rounds(x, weights)
    matrices = source.one_period()
    remedy = "log(1 / epsilon) / spectral gap is its order of magnitude"
    check_size("the mixing time is", source, spectral.DENSE_LIMIT, remedy)
    pi = perron_vector(matrices)
    factors = [matrix.weights.toarray() for matrix in matrices]
    reached = epsilon * (1 + TIE) + 4 * float(np.finfo(float).eps)
    if all(matrix.is_row_stochastic for matrix in matrices):
        return _first_time(
            factors, lambda product: 0.5 * np.abs(product - pi).sum(axis=1).max() > reached, axis=1
        )

    def far(product: np.ndarray) -> bool:
        return 0.5 * np.abs(product - (product @ pi)[:, None]).sum(axis=0).max() > reached

    return _first_time(factors, far, axis=0)


def _first_time(
    factors: list[np.ndarray], far: Callable[[np.ndarray], bool], *, axis: int
) -> int | float:
    """Return the first t at which ``W_{t-1} ... W_0`` is not `far`, by doubling, then bisection.

    Once a product is near the limit, all longer products are. Sums along `axis` are 1 in exact
    arithmetic; they are normalized after each squaring, which doubles their rounding error.
    """
    done = np.eye(len(factors[0]))
    if not far(done):
        return 0
    cycle = reduce(lambda product, factor: factor @ product, factors)
    powers = [cycle]  # 1, 2, 4, ... periods
    while far(powers[-1]):
        if len(powers) > 40:
            return math.inf
        square = powers[-1] @ powers[-1]
        powers.append(square / square.sum(axis=axis, keepdims=True))
    t = 0
    # Find the largest number of periods after which the product is still far.
    for k in reversed(range(len(powers) - 1)):
        longer = powers[k] @ done
        if far(longer):
            done = longer
            t += 2**k * len(factors)
    for factor in factors:
        done = factor @ done
        t += 1
        if not far(done):
            break
    return t


GAMMA = 0.9
"""Decay of the random walk in the columns of :func:`topofl.metrics.compare`."""


COVARIANCE_LIMIT = 2000
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
    check_averaging("effective neighbors need", *matrices)
    remedy = "use a smaller graph of the same kind"
    check_size("effective neighbors are", matrices[0], COVARIANCE_LIMIT, remedy)
    if len(matrices) == 1 and matrices[0].is_symmetric:
        variances = _symmetric_variances(matrices[0].weights.toarray(), gamma)
    else:
        variances = _periodic_variances(matrices, gamma)
    variance = variances.mean() if which == "mean" else variances.max()
    return float(np.clip(1 / (1 - gamma) / variance, 1.0, len(variances)))


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


_averaging = partial(MetricColumn, "averaging")

COLUMNS = (
    _averaging(
        "Dobrushin coefficient",
        "guaranteed factor on the range of the nodes' values over a period",
        lambda entry: dobrushin(entry.rounds),
    ),
    _averaging(
        "mixing time",
        "rounds until every node's mixture is within 1/4 of the limit in total variation",
        lambda entry: mixing_time(entry.rounds),
    ),
    _averaging(
        "effective neighbors",
        "number of nodes whose plain average would have as little variance, at decay 0.9",
        lambda entry: effective_neighbors(entry.rounds, GAMMA),
    ),
    _averaging(
        "worst effective neighbors",
        "effective neighbors of the node with the largest variance",
        lambda entry: effective_neighbors(entry.rounds, GAMMA, which="worst"),
    ),
)
