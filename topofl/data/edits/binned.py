"""Classes from numbers, so that regression data can be partitioned by label."""

from typing import Any

import numpy as np

from topofl._support.check import as_array, check_finite, check_int
from topofl._support.public import public

__all__ = ["binned"]


@public
def binned(values: Any, n: int) -> np.ndarray:
    """Return the quantile bin of each number, with `n` bins of about equal size.

    Use the bins as labels of a dataset whose targets are numbers; partitioners can then make nodes
    heterogeneous.

    Parameters
    ----------
    values
        (N,) finite numbers.
    n
        Number of bins, at most N. Equal numbers are in one bin, so some bins may be empty.

    Returns
    -------
    numpy.ndarray
        (N,) int64 in 0..n - 1; larger numbers have higher or equal bins.

    Raises
    ------
    ValueError
        If `values` is not a vector of finite numbers, or `n` is not between 1 and N.

    Examples
    --------
    >>> binned([0.1, 5.0, 0.3, 7.0, 100.0, 0.2], 3)
    array([0, 1, 1, 2, 2, 0])
    """
    numbers = as_array("values", values, np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(
            f"`values` must be a vector of numbers, got shape {numbers.shape}; pass one column"
        )
    check_finite("values", numbers)
    n = check_int("n", n, minimum=1, maximum=len(numbers), maximum_name="the number of values")
    order = np.sort(numbers)
    bounds = order[(np.arange(1, n) * len(order)) // n]  # first number of each bin but the lowest
    return np.searchsorted(bounds, numbers, side="right").astype(np.int64)
