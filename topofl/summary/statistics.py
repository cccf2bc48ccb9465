"""Mean, spread and interval of a number in each group of runs."""

from dataclasses import dataclass

import numpy as np

from topofl.summary.verdicts import CONFIDENCE, t_quantile

__all__ = ["Statistic", "statistic_of"]


@dataclass(frozen=True, eq=False)
class Statistic:
    """A number per run, summarized over the runs of each of G groups.

    Parameters
    ----------
    n
        (G,) number of runs that have the number.
    mean
        (G,) mean over these runs; NaN for none.
    std
        (G,) standard deviation with n - 1 degrees of freedom; NaN for less than two runs.
    half
        (G,) half-width of the confidence interval of the mean by Student's t; NaN as `std`.
    """

    n: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    half: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """(G,) standard error of the mean."""
        return self.std / np.sqrt(np.maximum(self.n, 1))


def statistic_of(values: np.ndarray, group_of: np.ndarray, n_groups: int) -> Statistic:
    """Return the statistic of values (R,) in groups; runs whose value is NaN are left out.

    Examples
    --------
    >>> found = statistic_of(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]), 2)
    >>> found.n.tolist(), found.mean.tolist(), found.std.round(3).tolist()
    ([2, 1], [2.0, 5.0], [1.414, nan])
    """
    known = ~np.isnan(values)
    x, g = values[known], group_of[known]
    n = np.bincount(g, minlength=n_groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(g, x, n_groups) / n
        squares = np.bincount(g, (x - mean[g]) ** 2, n_groups)
        std = np.sqrt(np.where(n > 1, squares, np.nan) / (n - 1))
    quantile = np.array([t_quantile(CONFIDENCE, k) if k > 1 else np.nan for k in n.tolist()])
    return Statistic(n, mean, std, quantile * std / np.sqrt(np.maximum(n, 1)))
