"""Kemeny constant: expected steps of a random walk with the mixing weights."""

import numpy as np
import scipy.linalg
from scipy.sparse.csgraph import connected_components

from topofl._support.public import public
from topofl.metrics._declaration import ONE_MATRIX, MetricColumn
from topofl.metrics._rounds import WeightRule, as_mixing
from topofl.metrics.averaging.perron import perron_vector
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError

__all__ = ["kemeny_constant"]

LIMIT = 2000
"""Largest number of nodes whose (n, n) matrix is inverted (about a second)."""

LARGEST = 1e10
"""Larger constants are dominated by rounding errors of the inverse."""

COLUMNS = (
    MetricColumn(
        "Kemeny constant",
        "averaging",
        "expected steps of a random walk with the mixing weights from any node to a random one",
        lambda entry: kemeny_constant(entry.matrices[0]),
        needs=(ONE_MATRIX,),
        after="mixing time",
    ),
)


@public
def kemeny_constant(x: MixingMatrix | Topology, *, weights: WeightRule | None = None) -> float:
    """Return the Kemeny constant, the expected steps of a random walk to a random node.

    ``K = sum_{i>=2} 1 / (1 - lambda_i) = trace((I - W + 1 pi^T)^-1) - 1``, with the eigenvalues
    ``1 = lambda_1, lambda_2, ...`` and the Perron vector pi of W. The walk goes from node i to node
    j with probability ``W_ij``, against the direction of messages. With its mean first passage
    times ``m_ij``, where ``m_jj = 0``, ``K = sum_j pi_j m_ij`` is the same from every node i. (With
    the convention that ``m_jj`` is the mean return time ``1 / pi_j`` it is larger by 1.) Unlike
    :func:`topofl.metrics.slem`, it takes all eigenvalues into account, not only the slowest.

    Parameters
    ----------
    x
        A MixingMatrix with rows that sum to 1, or a Topology; strongly connected, of up to 2,000
        nodes.
    weights
        Rule from Topology to MixingMatrix; default: Metropolis-Hastings if undirected, else uniform
        pull.

    Returns
    -------
    float
        At least (n - 1) / 2, and n - 1 for exact averaging; 0 for a single node.

    Raises
    ------
    TopologyError
        If rows do not sum to 1, the graph of the weights is not strongly connected or has more than
        2,000 nodes, or the constant is above 1e10, where rounding errors dominate.
    TypeError
        If `x` is a sequence; take one of its rounds.

    Notes
    -----
    With Metropolis-Hastings weights a ring of n >= 4 nodes has ``(n^2 - 1) / 4`` and the complete
    graph n - 1. A directed cycle with weights 1 has (n - 1) / 2, the smallest of all.

    References
    ----------
    Kemeny and Snell, "Finite Markov chains" (1960), chapter 4. Levene and Loizou, "Kemeny's
    constant and the random surfer" (2002).

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{kemeny_constant(topologies.ring(9)):.4f}")
    20.0000
    """
    matrix = as_mixing(x, weights)
    _check_defined(matrix)
    flows = matrix.weights.toarray()
    np.fill_diagonal(flows, 0.0)
    # The diagonal of I - W is the sum of the other weights of the row, without cancellation.
    difference = np.diag(flows.sum(axis=1)) - flows
    inverse = scipy.linalg.inv(difference + perron_vector(matrix))
    constant = float(np.trace(inverse)) - 1.0
    if not 0 <= constant <= LARGEST:
        raise TopologyError(
            f"the Kemeny constant of {matrix.name} is dominated by rounding errors, since some "
            "nodes are connected by tiny weights only; increase these weights"
        )
    return constant


def _check_defined(matrix: MixingMatrix) -> None:
    """Raise ``TopologyError`` if the constant is undefined for a matrix or n is too large."""
    if not matrix.is_row_stochastic:
        raise TopologyError(
            f"the Kemeny constant needs rows that sum to 1, {matrix.name} is "
            f"{matrix.stochasticity}; use mixing.uniform(topology, direction='pull')"
        )
    if matrix.n > LIMIT:
        raise TopologyError(
            f"the Kemeny constant is computed up to n={LIMIT:,}, {matrix.name} has "
            f"n={matrix.n:,}; use metrics.spectral_gap, which holds its largest term"
        )
    if connected_components(matrix.weights, connection="strong")[0] > 1:
        raise TopologyError(
            f"the Kemeny constant needs a strongly connected graph, that of {matrix.name} is not; "
            "connect its nodes, or use one of its components"
        )
