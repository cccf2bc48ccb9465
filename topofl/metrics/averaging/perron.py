"""Perron vectors: long-run influence of the nodes if weights are not doubly stochastic."""

from collections.abc import Hashable, Sequence

import numpy as np
import scipy.linalg
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg

from topofl._linalg import spectral
from topofl._linalg.classes import classes_of
from topofl._support.check import TOLERANCE
from topofl._support.public import public
from topofl._support.text import node_name
from topofl._support.vectors import start_vector
from topofl.metrics._declaration import ONE_MATRIX, MetricColumn, iterated
from topofl.metrics._rounds import Mixable, WeightRule, as_mixing, as_rounds, converging
from topofl.metrics.averaging.spectral import sigma
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import Topology, TopologyError

__all__ = [
    "PRODUCT_LIMIT",
    "largest_share",
    "perron_skewness",
    "perron_vector",
    "pi_weighted_gap",
    "product_of_rounds",
    "share_in_words",
]

COLUMNS = (
    MetricColumn(
        "pi-weighted gap",
        "averaging",
        "gap of one exchange in the norm weighted by the Perron vector pi",
        lambda entry: pi_weighted_gap(entry.matrices[0]),
        limit=iterated("metrics.pi_weighted_gap"),
        needs=(ONE_MATRIX,),
        after="sigma",
    ),
    MetricColumn(
        "Perron skewness",
        "averaging",
        "largest over smallest long-run influence of a node: 1 if all nodes count equally",
        lambda entry: perron_skewness(entry.rounds),
    ),
)

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
    if all(matrix.is_row_stochastic for matrix in matrices):
        return _stationary(product_of_rounds(rounds, len(matrices)), rounds.name)
    if all(matrix.is_column_stochastic for matrix in matrices):
        return _stationary(
            sparse.csr_array(product_of_rounds(rounds, len(matrices)).T), rounds.name
        )
    raise TopologyError(
        f"the matrices of {rounds.name} must be row-stochastic in all rounds, or column-stochastic "
        "in all; use one direction: mixing.uniform(topology, direction=...)"
    )


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
    if matrix.is_doubly_stochastic and matrix.n > spectral.limits.DENSE_LIMIT:
        return float(np.clip(1.0 - sigma(matrix), 0.0, 1.0))
    rows = matrix.weights if matrix.is_row_stochastic else sparse.csr_array(matrix.weights.T)
    root = np.sqrt(pi)
    scaled = sparse.csr_array(rows.multiply(root[:, None]).multiply(1 / root[None, :]))
    return float(np.clip(1.0 - _norm_without(scaled, root), 0.0, 1.0))


def _norm_without(matrix: sparse.csr_array, direction: np.ndarray) -> float:
    """Return ``||A - u u^T||_2`` with u the unit vector `direction`."""
    n = matrix.shape[0]
    if n <= spectral.limits.DENSE_LIMIT:
        return float(scipy.linalg.svdvals(matrix.toarray() - np.outer(direction, direction))[0])

    def apply(values: np.ndarray, factor: sparse.csr_array) -> np.ndarray:
        return factor @ values - direction * (direction @ values)

    transposed = sparse.csr_array(matrix.T)
    gram = sparse_linalg.LinearOperator(
        (n, n), matvec=lambda v: apply(apply(v.reshape(-1), matrix), transposed), dtype=np.float64
    )  # pyright: ignore[reportCallIssue]
    start = start_vector(n)
    with converging("the pi-weighted norm"):
        top = sparse_linalg.eigsh(
            gram, k=1, which="LA", return_eigenvectors=False, v0=start, ncv=40
        )
    return float(np.sqrt(max(top[0], 0.0)))


def product_of_rounds(source: MixingSequence, rounds: int, start: int = 0) -> sparse.csr_array:
    """Return ``W_{start+rounds-1} ... W_start``; raise ``TopologyError`` if n is too large."""
    if rounds > 1 and source.n > PRODUCT_LIMIT:
        raise TopologyError(
            f"products of several rounds are computed up to n={PRODUCT_LIMIT:,}, {source.name} has "
            f"n={source.n:,}; use metrics.measured_contraction"
        )
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
    elif len(members) <= (QUICK_LIMIT if uneven else spectral.limits.DENSE_LIMIT):
        pi[members] = _perron_by_elimination(inner.toarray())
    else:
        pi[members] = _perron_by_iteration(inner, name)
        if not uneven and pi[members].min() < 1e-10 * pi.max():
            raise TopologyError(
                f"the Perron vector of {name} is too uneven to be computed for "
                f"n={len(members):,}: it is exact up to n={spectral.limits.DENSE_LIMIT:,}"
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
