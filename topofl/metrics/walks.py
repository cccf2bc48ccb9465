"""Random walks and electrical networks: Kemeny constant, effective resistance, Kirchhoff index."""

from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse.csgraph import connected_components

from topofl._linalg.sparse import is_strong, laplacian
from topofl._support.check import check_int
from topofl._support.public import public
from topofl.metrics._columns import ONE_MATRIX, UNDIRECTED, MetricColumn, of_graphs
from topofl.metrics._rounds import WeightRule, as_mixing, check_averaging, check_size
from topofl.metrics.shape import as_static
from topofl.metrics.spectral import perron_vector
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError

__all__ = ["effective_resistance", "kemeny_constant", "kirchhoff_index"]


LIMIT = 3000
"""Largest graph for which the dense Laplacian is decomposed or eliminated (some seconds)."""

BLOCK = 64
"""Number of nodes that are eliminated per update of the remaining matrix."""


@public
def effective_resistance(graph: Any, u: int | None = None, v: int | None = None) -> float:
    """Return the effective resistance between two nodes, or its mean over all pairs.

    Edges are resistors whose conductance is their weight. With the pseudo-inverse ``P`` of the
    Laplacian, the resistance between u and v is ``P_uu + P_vv - 2 P_uv``; the mean over pairs is
    ``2 / (n - 1) * sum_k 1 / lambda_k`` over the non-zero eigenvalues. It decreases with the number
    of paths, and increases with their length. The resistance of one pair is computed by star-mesh
    transforms, exact to rounding for any weights and equal in both directions.

    Parameters
    ----------
    graph
        One undirected graph of up to 3,000 nodes: anything that :func:`topofl.as_topology` accepts.
    u, v
        Two nodes; None for the mean over all pairs.

    Returns
    -------
    float
        At least 0; infinite between nodes that are not connected, and for the mean of a
        disconnected graph. 0 from a node to itself and for a single node. At most the distance in
        hops if all weights are 1, and equal to it in trees.

    Raises
    ------
    TopologyError
        If the graph is directed or has more than 3,000 nodes. If weights differ so much that the
        mean is dominated by rounding errors (a factor of 1e10 in the eigenvalues), or the
        resistance of a pair overflows or underflows.
    TypeError, ValueError
        If `graph` is not one graph, only one of `u` and `v` is given, or one is not a node.

    References
    ----------
    Klein and Randic, "Resistance distance" (1993).

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{effective_resistance(topologies.ring(4), 0, 1):.2f}")  # 1 parallel to 3
    0.75
    """
    topology = _checked_graph(graph)
    n = topology.n
    if u is None and v is None:
        return kirchhoff_index(topology) / (n * (n - 1) / 2) if n > 1 else 0.0
    if u is None or v is None:
        raise ValueError(
            "`u` and `v` must be two nodes, or both None for the mean over pairs, got only one"
        )
    u = check_int("u", u, minimum=0, maximum=n - 1)
    v = check_int("v", v, minimum=0, maximum=n - 1)
    return 0.0 if u == v else _pair_resistance(topology, u, v)


@public
def kirchhoff_index(graph: Any) -> float:
    """Return the Kirchhoff index, the sum of resistances over all pairs: ``n sum_k 1 / lambda_k``.

    Parameters and errors are those of :func:`effective_resistance`.

    Notes
    -----
    It is ``(n^3 - n) / 12`` for a ring, ``n - 1`` for a complete graph, ``(n - 1)^2`` for a star.

    References
    ----------
    Klein and Randic, "Resistance distance" (1993), for the name; Gutman and Mohar, "The
    quasi-Wiener and the Kirchhoff indices coincide" (1996), for the eigenvalues.

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{kirchhoff_index(topologies.star(5)):.4f}")
    16.0000
    """
    topology = _checked_graph(graph)
    if topology.n == 1:
        return 0.0
    if not topology.is_connected:
        return float("inf")
    eigenvalues = scipy.linalg.eigvalsh(laplacian(topology.adjacency).toarray())
    if eigenvalues[1] < 1e-10 * eigenvalues[-1]:
        raise TopologyError(_too_far_apart(topology))
    return float(topology.n * (1 / eigenvalues[1:]).sum())


def _too_far_apart(topology: Topology) -> str:
    return (
        f"the weights of {topology.name} differ too much for its resistance to be computed; "
        "increase or remove the smallest"
    )


def _checked_graph(graph: Any) -> Topology:
    topology = as_static(graph)
    if topology.is_directed:
        raise TopologyError(
            "`graph` must be undirected: effective resistance needs an undirected graph, "
            f"{topology.name} is directed"
        )
    remedy = "use Topology.algebraic_connectivity, whose inverse is its largest term"
    check_size("effective resistance is", topology, LIMIT, remedy)
    return topology


def _pair_resistance(topology: Topology, u: int, v: int) -> float:
    """Return the resistance between u and v, found by eliminating all other nodes."""
    labels = connected_components(topology.adjacency, directed=False)[1]
    if labels[u] != labels[v]:
        return float("inf")
    ends = sorted((u, v))  # so that both directions give the same result
    others = np.flatnonzero((labels == labels[u]) & ~np.isin(np.arange(topology.n), ends))
    order = np.concatenate([ends, others])
    conductance = float(_eliminate_nodes(topology.adjacency[order][:, order].toarray())[0, 1])
    if not (np.isfinite(conductance) and np.isfinite(1 / conductance)):
        raise TopologyError(_too_far_apart(topology))
    return 1 / conductance


def _eliminate_nodes(conductances: np.ndarray) -> np.ndarray:
    """Return the (2, 2) conductances of the first two nodes after eliminating the others.

    The matrix is overwritten. A star-mesh transform replaces node k with conductances ``c_ki`` by
    conductances ``c_ki c_kj / sum_l c_kl`` between every pair i, j of its neighbors. There are no
    subtractions, so that the result has full relative precision for any weights. Nodes are
    eliminated from the last to the first in blocks of `BLOCK`, so that most work is in matrix
    products.
    """
    with np.errstate(all="ignore"):  # the caller raises an error on overflow
        for stop in range(len(conductances), 2, -BLOCK):
            start = max(2, stop - BLOCK)
            rows = conductances[start:stop, :stop].copy()
            totals = np.empty(stop - start)
            np.fill_diagonal(rows[:, start:], 0)
            for k in range(stop - start - 1, -1, -1):
                rest = start + k  # number of nodes before this one
                totals[k] = rows[k, :rest].sum()
                rows[:k, :rest] += np.outer(rows[:k, rest] / totals[k], rows[k, :rest])
            rows = rows[:, :start]
            conductances[:start, :start] += (rows / totals[:, None]).T @ rows
    return conductances[:2, :2]


WALK_LIMIT = 2000
"""Largest number of nodes whose (n, n) matrix is inverted (about a second)."""

LARGEST = 1e10
"""Larger constants are dominated by rounding errors of the inverse."""


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
    check_averaging("the Kemeny constant needs", matrix)
    remedy = "use metrics.spectral_gap, which holds its largest term"
    check_size("the Kemeny constant is", matrix, WALK_LIMIT, remedy)
    if not is_strong(matrix.weights):
        raise TopologyError(
            f"the Kemeny constant needs a strongly connected graph, that of {matrix.name} is not; "
            "connect its nodes, or use one of its components"
        )
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


COLUMNS = (
    MetricColumn(
        "paths",
        "effective resistance",
        "resistance between two nodes if edges are resistors, mean over all pairs",
        of_graphs(effective_resistance),
        needs=(UNDIRECTED,),
    ),
    MetricColumn(
        "averaging",
        "Kemeny constant",
        "expected steps of a random walk with the mixing weights from any node to a random one",
        lambda entry: kemeny_constant(entry.matrices[0]),
        needs=(ONE_MATRIX,),
    ),
)
