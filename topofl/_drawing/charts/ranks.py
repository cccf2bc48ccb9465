"""Scores of nodes, sorted from the worst to the best."""

from collections.abc import Sequence

import numpy as np

__all__ = ["ranked_curves"]

GRID = 101
"""Positions of a sorted curve if runs have different numbers of nodes."""


def ranked_curves(
    scores: Sequence[np.ndarray], *, low_is_good: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of ranks in percent, and the sorted scores of each run.

    Parameters
    ----------
    scores
        (n,) scores of the nodes of each run. With different numbers of nodes, curves are
        interpolated.
    low_is_good
        Whether the worst scores are the largest.

    Examples
    --------
    >>> x, table = ranked_curves([np.array([0.5, 0.25])], low_is_good=False)
    >>> x.tolist(), table.tolist()
    ([25.0, 75.0], [[0.25, 0.5]])
    """
    ranked = [np.sort(row)[:: -1 if low_is_good else 1] for row in scores]
    if len({len(row) for row in ranked}) == 1:
        return 100 * _middles(len(ranked[0])), np.stack(ranked)
    x = np.linspace(0, 1, GRID)
    return 100 * x, np.stack([np.interp(x, _middles(len(row)), row) for row in ranked])


def _middles(n: int) -> np.ndarray:
    return (np.arange(n) + 0.5) / n
