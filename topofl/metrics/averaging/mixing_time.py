"""Mixing time: number of rounds until the product of the mixing matrices is near its limit."""

import math
from collections.abc import Callable
from functools import reduce

import numpy as np

from topofl._linalg import spectral
from topofl._support.check import check_positive
from topofl._support.public import public
from topofl.metrics._declaration import MetricColumn
from topofl.metrics._rounds import Mixable, WeightRule, as_rounds
from topofl.metrics.averaging.perron import perron_vector
from topofl.topology import TopologyError

__all__ = ["mixing_time"]

COLUMNS = (
    MetricColumn(
        "mixing time",
        "averaging",
        "rounds until every node's mixture is within 1/4 of the limit in total variation",
        lambda entry: mixing_time(entry.rounds),
        after="Dobrushin coefficient",
    ),
)

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
    if source.n > spectral.limits.DENSE_LIMIT:
        raise TopologyError(
            f"the mixing time is computed up to n={spectral.limits.DENSE_LIMIT:,}, {source.name} "
            f"has n={source.n:,}; log(1 / epsilon) / spectral gap is its order of magnitude"
        )
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
