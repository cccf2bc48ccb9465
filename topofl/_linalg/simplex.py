"""Euclidean projection onto the probability simplex."""

import numpy as np

from topofl._support.check import as_array, check_finite

__all__ = ["simplex_projection"]


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
