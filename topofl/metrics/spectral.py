"""Averaging speed of mixing matrices by their spectrum: gaps, SLEM, sigma; the Perron vector."""

from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np
import scipy.linalg
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg

from topofl._linalg import second, spectral
from topofl._linalg.spectral import classes_of, without_rounding
from topofl._support.check import TOLERANCE
from topofl._support.public import public
from topofl._support.text import node_name
from topofl.metrics._columns import ONE_MATRIX, MetricColumn, iterated
from topofl.metrics._rounds import (
    Mixable,
    WeightRule,
    as_mixing,
    as_rounds,
    averages,
    check_push_weights,
    converging,
    largest_eigenvalue,
    product_of_rounds,
)
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import Topology, TopologyError

__all__ = [
    "perron_skewness",
    "perron_vector",
    "pi_weighted_gap",
    "sigma",
    "slem",
    "smallest_eigenvalue",
    "spectral_gap",
]


QUICK_LIMIT = 500
"""Largest number of nodes for which elimination takes less than about 0.2 seconds."""


@public
def slem(x: Mixable, *, weights: WeightRule | None = None) -> float:
    """Return the second largest eigenvalue modulus (SLEM), per round.

    It is ``|lambda_2(W)|`` for one matrix and ``|lambda_2(W_{p-1} ... W_0)|^(1/p)`` for a period of
    p matrices, the asymptotic factor on consensus distance per round.

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
    float
        In [0, 1]; 0 for a single node and for exact averaging within one or a few periods.

    Raises
    ------
    TopologyError
        If the sequence has no period, or mixes row- with column-stochastic matrices. If iterations
        do not converge for a period of more than 1,500 nodes. If the eigenvalue of a period may be
        0, but there are more than ``6000 / sqrt(p)`` nodes, too many to decide it (it is always
        decided for weights that are fractions with denominators up to a million, and if all rows of
        a round are equal). If the ``slem_solution`` of one matrix raises an error. If a node's
        push-sum weight tends to 0: column-stochastic weights need a positive Perron vector; without
        one, the second eigenvalue is the rate at which push-sum weights converge, but models never
        agree.
    TypeError, ValueError
        If `x` or `weights` is of another kind, or both give weights.

    References
    ----------
    Boyd, Ghosh, Prabhakar and Shah, "Randomized gossip algorithms" (2006), section II, for one
    matrix.

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{slem(topologies.star(4)):.4f}")
    0.7500
    """
    rounds = as_rounds(x, weights)
    matrices = rounds.one_period()
    if len(matrices) == 1:
        rate = matrices[0].slem
    else:
        factors = [matrix.weights for matrix in matrices]
        if not averages(matrices, rounds.name):  # the reversed transposes have the same spectrum
            factors = [sparse.csr_array(factor.T) for factor in reversed(factors)]
        try:
            rate = second.second_modulus_per_round(factors) if rounds.n > 1 else 0.0
        except spectral.NoConvergence as error:
            raise TopologyError(f"{error}; use metrics.measured_contraction") from error
    check_push_weights(matrices, rounds.name)
    return rate


@public
def spectral_gap(x: Mixable, *, weights: WeightRule | None = None) -> float:
    """Return the spectral gap, ``1 - slem(x)``.

    With a gap of 0, the nodes never reach consensus; with a gap of 1, they average exactly within a
    period. Parameters and errors are those of :func:`slem`.

    Notes
    -----
    Ring with weights 1/3, n >= 4: ``1 - (1 + 2 cos(2 pi / n)) / 3``. One-peer exponential graph
    with n a power of 2: 1, although every single round has gap 0 for n > 2 (Ying et al.,
    "Exponential graph is provably efficient for decentralized deep training", 2021).

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{spectral_gap(topologies.ring(16)):.5f}")
    0.05075
    >>> spectral_gap(topologies.one_peer_exponential(16))
    1.0
    """
    return 1.0 - slem(x, weights=weights)


@public
def sigma(x: MixingMatrix | Topology, *, weights: WeightRule | None = None) -> float:
    """Return ``||W - J||_2``, the worst-case factor of one exchange on consensus distance.

    All entries of J are 1/n. It is at least :func:`slem`, and equal to it for symmetric weights.

    Parameters
    ----------
    x
        A MixingMatrix or a Topology.
    weights
        As in :func:`slem`.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TopologyError
        If the matrix is not doubly stochastic, so that disagreement can grow in one exchange.
    TypeError
        If `x` is a sequence; take one of its rounds.

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{sigma(topologies.star(4)):.4f}")
    0.7500
    """
    matrix = as_mixing(x, weights)
    if not matrix.is_doubly_stochastic:
        raise TopologyError(
            f"sigma needs a doubly stochastic matrix, {matrix.name} is {matrix.stochasticity}; use "
            "slem, or weights such as mixing.metropolis_hastings"
        )
    return matrix.slem if matrix.is_symmetric else spectral.sigma(matrix.weights)


@public
def smallest_eigenvalue(x: MixingMatrix | Topology, *, weights: WeightRule | None = None) -> float:
    """Return lambda_n, the smallest eigenvalue of symmetric weights.

    It is exactly -1 for a bipartite graph without self-weights: then averaging never converges,
    although the graph may be connected. If ``|lambda_n|`` is the SLEM, :func:`topofl.mixing.lazy`
    weights are faster.

    Parameters
    ----------
    x
        A MixingMatrix or a Topology.
    weights
        Rule from Topology to MixingMatrix; default: Metropolis-Hastings if undirected, else uniform
        pull.

    Returns
    -------
    float
        In [-1, 1].

    Raises
    ------
    TopologyError
        If the weights are not symmetric, or the iteration does not converge.
    TypeError
        If `x` is a sequence; take one of its rounds.

    Examples
    --------
    >>> from topofl import mixing, topologies
    >>> print(f"{smallest_eigenvalue(topologies.ring(6)):.4f}")
    -0.3333
    >>> smallest_eigenvalue(mixing.from_weights([[0, 1], [1, 0]]))
    -1.0
    """
    matrix = as_mixing(x, weights)
    if not matrix.is_symmetric:
        raise TopologyError(
            "`x` must be symmetric: the smallest eigenvalue needs symmetric weights, "
            f"{matrix.name} is not symmetric; use metrics.slem"
        )
    with converging(f"the smallest eigenvalue of {matrix.name}"):
        return without_rounding(spectral.smallest(matrix.weights), matrix.n)


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


def _stationary(rows: sparse.csr_array, name: str, uneven: bool = False) -> np.ndarray:
    """Return the unique pi with ``pi^T W = pi^T`` of row-stochastic W, or raise.

    If `uneven`, the smallest entries of all but small matrices may be inaccurate.
    """
    classes = classes_of([rows])
    closed = np.flatnonzero(classes.is_closed)  # which receive from no other node
    if len(closed) > 1:
        raise TopologyError(
            f"the Perron vector of {name} is not unique: {len(closed)} groups of nodes never "
            "receive from each other; connect them"
        )
    members = np.flatnonzero(classes.labels[0] == closed[0])
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
def pi_weighted_gap(x: MixingMatrix | Topology, *, weights: WeightRule | None = None) -> float:
    """Return the pi-weighted gap of one exchange, ``1 - ||W - 1 pi^T||_pi``.

    W never expands the norm ``||A||_pi = ||diag(pi)^(1/2) A diag(pi)^(-1/2)||_2`` if it is
    row-stochastic. For column-stochastic W, the norm of the transpose is used: ``||diag(pi)^(-1/2)
    (W - pi 1^T) diag(pi)^(1/2)||_2``. Unlike 1 - :func:`topofl.metrics.sigma`, the gap is defined
    for weights that are not doubly stochastic; for those that are, both are equal. It is at most
    :func:`topofl.metrics.spectral_gap`, and equal to it for reversible W (``pi_i W_ij = pi_j
    W_ji``), for example uniform pull weights on an undirected graph. (If pi is very uneven, W is
    far from normal, and its computed spectral gap is less accurate than this gap.)

    Parameters
    ----------
    x
        A MixingMatrix or a Topology.
    weights
        As in :func:`perron_vector`.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TopologyError
        If pi has a zero entry, since the graph is not strongly connected.
    TypeError
        If `x` is a sequence; take one of its rounds.

    References
    ----------
    The norm of arXiv 2506.04600 and arXiv 2511.19513 (weighted Hilbert space), on decentralized
    learning with row-stochastic matrices.

    Examples
    --------
    >>> from topofl import mixing, topologies
    >>> W = mixing.uniform(topologies.star(4))
    >>> print(f"{pi_weighted_gap(W):.4f} {W.spectral_gap:.4f}")
    0.5000 0.5000
    """
    matrix = as_mixing(x, weights)
    pi = perron_vector(matrix)
    if pi.min() <= 0:
        name = node_name(matrix.nodes, int(pi.argmin()))
        raise TopologyError(
            f"the pi-weighted gap needs a strongly connected graph, node {name} of "
            f"{matrix.name} has Perron weight 0; use metrics.spectral_gap"
        )
    if matrix.is_doubly_stochastic and matrix.n > spectral.DENSE_LIMIT:
        return float(np.clip(1.0 - sigma(matrix), 0.0, 1.0))
    rows = matrix.weights if matrix.is_row_stochastic else sparse.csr_array(matrix.weights.T)
    root = np.sqrt(pi)
    scaled = sparse.csr_array(rows.multiply(root[:, None]).multiply(1 / root[None, :]))
    return float(np.clip(1.0 - _norm_without(scaled, root), 0.0, 1.0))


def _norm_without(matrix: sparse.csr_array, direction: np.ndarray) -> float:
    """Return ``||A - u u^T||_2`` with u the unit vector `direction`."""
    n = matrix.shape[0]
    if n <= spectral.DENSE_LIMIT:
        return float(scipy.linalg.svdvals(matrix.toarray() - np.outer(direction, direction))[0])

    def apply(values: np.ndarray, factor: sparse.csr_array) -> np.ndarray:
        return factor @ values - direction * (direction @ values)

    transposed = sparse.csr_array(matrix.T)
    squared = largest_eigenvalue(
        lambda v: apply(apply(v.reshape(-1), matrix), transposed), n, "the pi-weighted norm"
    )
    return float(np.sqrt(max(squared, 0.0)))


_averaging = partial(MetricColumn, "averaging")

COLUMNS = (
    _averaging(
        "spectral gap",
        "speed of agreement in the long run: 0 never agrees, 1 agrees exactly within a period",
        lambda entry: spectral_gap(entry.rounds),
        limit=iterated("metrics.spectral_gap"),
    ),
    _averaging(
        "slem",
        "second largest eigenvalue modulus of the mixing matrix: factor on disagreement per round "
        "in the long run",
        lambda entry: slem(entry.rounds),
        limit=iterated("metrics.slem"),
    ),
    _averaging(
        "lambda_n",
        "smallest eigenvalue of the mixing matrix",
        lambda entry: smallest_eigenvalue(entry.matrices[0]),
        limit=iterated("metrics.smallest_eigenvalue"),
        needs=(ONE_MATRIX,),
    ),
    _averaging(
        "sigma",
        "worst-case factor of one round on consensus distance",
        lambda entry: sigma(entry.matrices[0]),
        limit=iterated("metrics.sigma"),
        needs=(ONE_MATRIX,),
    ),
    _averaging(
        "pi-weighted gap",
        "gap of one exchange in the norm weighted by the Perron vector pi",
        lambda entry: pi_weighted_gap(entry.matrices[0]),
        limit=iterated("metrics.pi_weighted_gap"),
        needs=(ONE_MATRIX,),
    ),
    _averaging(
        "Perron skewness",
        "largest over smallest long-run influence of a node: 1 if all nodes count equally",
        lambda entry: perron_skewness(entry.rounds),
    ),
)
