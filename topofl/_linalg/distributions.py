"""Distributions over classes: distances between them, and the projection onto them."""

from collections.abc import Callable

import numpy as np

from topofl._support.check import as_array, check_finite

Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]


def distance(name: str, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return a distance from each p to q, by its `name` in `DISTANCES`.

    ================ ========================================== ===================================
    `name`           definition (sums and maxima over classes)  values
    ================ ========================================== ===================================
    l1               sum abs(p - q)                             0 to 2
    total_variation  half of l1                                 0 to 1
    kl               KL(p to q) = sum p ln(p / q)               infinite where q lacks a class of p
    symmetric_kl     KL(p to q) + KL(q to p), no factor 1/2     infinite if a class is in one only
    hellinger        sqrt(sum (sqrt(p) - sqrt(q))^2 / 2)        0 to 1
    euclidean        sqrt(sum (p - q)^2)                        0 to sqrt(2)
    chebyshev        max abs(p - q)                             0 to 1
    jensen_shannon   sqrt((KL(p to m) + KL(q to m)) / 2)        0 to sqrt(ln 2)
    ================ ========================================== ===================================

    The mean of p and q is m; logarithms are natural, and 0 ln 0 = 0. Distances in
    `OF_DISTRIBUTIONS` need non-negative entries; the others are norms of p - q and accept any
    numbers.

    References
    ----------
    Jeffreys, "An invariant form for the prior probability in estimation problems" (1946), the
    symmetric sum; Endres and Schindelin, "A new metric for probability distributions" (2003), the
    root of the Jensen-Shannon divergence.

    Examples
    --------
    >>> p, q = np.array([1.0, 0.0]), np.array([0.5, 0.5])
    >>> [float(distance(name, p, q)) for name in ("l1", "total_variation", "chebyshev")]
    [1.0, 0.5, 0.5]
    """
    return np.maximum(DISTANCES[name](p, q), 0.0)  # rounding can make a divergence negative


def infinite_terms(name: str, p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of classes with an infinite term, and the distance over the others."""
    infinite = np.zeros(np.broadcast_shapes(p.shape, q.shape), bool)
    if name in ("kl", "symmetric_kl"):
        infinite |= (p > 0) & (q == 0)
    if name == "symmetric_kl":
        infinite |= (p == 0) & (q > 0)
    p, q = np.where(infinite, 0.0, p), np.where(infinite, 0.0, q)
    return infinite.sum(axis=0), DISTANCES[name](p, q)


def _kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    from scipy.special import rel_entr

    return rel_entr(p, q).sum(axis=0)


def _symmetric_kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    from scipy.special import rel_entr

    return (rel_entr(p, q) + rel_entr(q, p)).sum(axis=0)


def _jensen_shannon(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the distances, computed with p = m (1 + d) and q = m (1 - d).

    Then p ln(p / m) + q ln(q / m) = m (2 d artanh d + ln(1 - d^2)). This form avoids cancellation
    where p and q are close, which the root would amplify.
    """
    m = 0.5 * (p + q)
    d = np.divide(0.5 * (p - q), m, out=np.zeros(m.shape), where=m > 0)
    is_disjoint = np.abs(d) == 1
    d[is_disjoint] = 0.0
    terms = np.where(is_disjoint, 2 * np.log(2), 2 * d * np.arctanh(d) + np.log1p(-d * d))
    return np.sqrt(0.5 * np.sum(m * terms, axis=0))


DISTANCES: dict[str, Distance] = {
    "l1": lambda p, q: np.abs(p - q).sum(axis=0),
    "total_variation": lambda p, q: 0.5 * np.abs(p - q).sum(axis=0),
    "kl": _kl,
    "symmetric_kl": _symmetric_kl,
    "hellinger": lambda p, q: np.sqrt(0.5 * np.square(np.sqrt(p) - np.sqrt(q)).sum(axis=0)),
    "euclidean": lambda p, q: np.sqrt(np.square(p - q).sum(axis=0)),
    "chebyshev": lambda p, q: np.abs(p - q).max(axis=0),
    "jensen_shannon": _jensen_shannon,
}
OF_DISTRIBUTIONS = frozenset({"kl", "symmetric_kl", "hellinger", "jensen_shannon"})
"""Distances that are only defined for non-negative numbers."""


def simplex_projection(values: np.ndarray, where: np.ndarray | None = None) -> np.ndarray:
    """Return the Euclidean projection of each row onto the probability simplex.

    ::

        x = argmin ||x - v||  over x >= 0, sum x = 1
        x_j = max(v_j - tau, 0)  with the tau that leaves a sum of 1

    Parameters
    ----------
    values
        (n, m) finite numbers, one point per row.
    where
        (n, m) booleans: entries that may be nonzero, at least one per row; None: all.

    Returns
    -------
    numpy.ndarray
        (n, m) float64.

    Raises
    ------
    ValueError
        If a value is not finite, or `where` excludes all entries of a row.

    References
    ----------
    Duchi, Shalev-Shwartz, Singer and Chandra, "Efficient projections onto the l1-ball" (2008),
    figure 1.

    Examples
    --------
    >>> simplex_projection(np.array([[0.5, 0.5], [1.0, 0.5], [3.0, 0.5]])).tolist()
    [[0.5, 0.5], [0.75, 0.25], [1.0, 0.0]]
    """
    values = check_finite("values", as_array("values", values, np.float64))
    inside = np.ones(values.shape, dtype=bool) if where is None else as_array("where", where, bool)
    if not inside.any(axis=1).all():
        raise ValueError(
            "`where` must be true for at least one entry of every row, but is for none of row "
            f"{int(inside.any(axis=1).argmin())}"
        )
    allowed = np.where(inside, values, -np.inf)
    # Shifting a row does not change its projection and preserves the digits of small entries.
    shifted = allowed - allowed.max(axis=1, keepdims=True)
    descending = -np.sort(-shifted, axis=1)
    excess = descending.cumsum(axis=1) - 1
    positive = (descending * np.arange(1, shifted.shape[1] + 1) > excess).sum(axis=1, keepdims=True)
    return np.maximum(shifted - np.take_along_axis(excess, positive - 1, axis=1) / positive, 0)
