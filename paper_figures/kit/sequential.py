"""Intervals that stay valid when seeds are added one by one until a claim is decided.

An interval that is looked at after every seed excludes the true mean at some look far more often
than at a single one. The intervals here are those of a group-sequential t-test: they are wider than
Student's, by critical values such that the probability that any of them excludes the mean, at any
number of seeds from :data:`FIRST` to :data:`MOST`, is one minus their level. Since this bounds all
looks together, the number of seeds may depend on the results in any way.

The critical values follow a spending function (Lan and DeMets 1983), and are exact for few seeds,
since they use the joint distribution of the t-statistics (Jennison and Turnbull 1991) instead of a
normal approximation. ``python -m paper_figures.compare_rules`` compares them with other rules,
among them the anytime-valid t-test (Lai 1976; Wang and Ramdas 2023), which needs no largest number
of seeds and therefore more of them.

All assume independent, normal values of one mean; the t-statistic does not depend on their spread.

References
----------
Lan and DeMets, "Discrete sequential boundaries for clinical trials" (Biometrika 70, 1983).
Jennison and Turnbull, "Exact calculations for sequential t, chi-squared and F tests" (Biometrika
78, 1991).
Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown
variance" (arXiv:2310.03722, 2023).
"""

import math
from collections.abc import Callable, Collection, Sequence
from functools import cache

import numpy as np
from scipy import optimize, special

FIRST, MOST = 3, 40
"""Smallest and largest number of seeds with which a claim is judged."""

CELLS = 150
"""Number of cells of the distribution; critical values are then accurate to about 0.2 %."""


def critical(level: float, k: int) -> float:
    """Return the half-width of the interval for k seeds in standard errors.

    It is infinite for fewer than :data:`FIRST` and for more than :data:`MOST` seeds.

    Examples
    --------
    >>> critical(0.95, 2)
    inf
    >>> 2.02 < critical(0.95, 40) < critical(0.95, 10) < critical(0.99, 10)
    True
    """
    return boundary(level)[k - FIRST] if FIRST <= k <= MOST else math.inf


@cache
def boundary(level: float) -> tuple[float, ...]:
    """Return the critical values for :data:`FIRST` to :data:`MOST` seeds."""
    return boundary_of(lambda share: spent(share, 1 - level))


def spent(share: float, error: float) -> float:
    """Return the error that may be spent up to a share of the seeds.

    It is that of Lan and DeMets for boundaries similar to Pocock's.
    """
    return error * math.log1p((math.e - 1) * share)


def boundary_of(
    spending: Callable[[float], float],
    looks: Collection[int] = range(FIRST, MOST + 1),
    cells: int = CELLS,
) -> tuple[float, ...]:
    """Return the critical values of t for any looks and spending function.

    The state after k values is ``|sum| / norm`` of the values, the root of k times the sine of an
    angle whose tangent is ``|t| / sqrt(k - 1)``. It is independent of the norm if the mean is zero,
    and therefore a Markov chain. Its distribution over angles up to the boundary is followed in
    cells, from value to value.

    Parameters
    ----------
    spending
        ``spending(share)`` -> probability of exceeding a critical value up to a look, by its share
        of the largest number of seeds.
    looks
        Numbers of seeds at which t is compared.
    cells
        Number of cells.
    """
    last = max(looks)
    states, masses, found = np.ones(1), np.ones(1), []
    for k in range(2, last + 1):
        edge = math.pi / 2
        if k in looks:
            kept = 1 - spending(k / last)
            edge = _edge(states, masses, k, kept)
            found.append(math.sqrt(k - 1) * math.tan(edge))
        edges = np.linspace(0, edge, cells + 1)
        masses = masses @ np.diff(_within(states[:, None], k, edges), axis=1)
        states = math.sqrt(k) * np.sin((edges[1:] + edges[:-1]) / 2)
    return tuple(found)


def _edge(states: np.ndarray, masses: np.ndarray, k: int, kept: float) -> float:
    """Return the angle below which the probability that no look has exceeded is `kept`."""
    return float(
        optimize.brentq(
            lambda angle: float(masses @ _within(states, k, angle)) - kept,
            *(0.0, math.pi / 2),
            xtol=1e-12,
        )
    )


def _within(states: np.ndarray, k: int, angle: float | np.ndarray) -> np.ndarray:
    """Return the probability that the k-th state is at most ``sqrt(k) * sin(angle)``.

    The new value over the norm of the k - 1 earlier ones is Student's t over ``sqrt(k - 1)``, here
    the tangent of an angle phi. From a state r it leads to ``sqrt(1 + r ** 2) * |sin(phi + atan
    r)|``.
    """
    df, turn = k - 1, np.arctan(states)
    height = math.sqrt(k) * np.sin(angle) / np.sqrt(1 + states**2)
    arc = np.arcsin(np.minimum(height, 1.0))

    def below(phi: np.ndarray) -> np.ndarray:
        return special.stdtr(df, math.sqrt(df) * np.tan(phi))

    start = -arc - turn
    wrapped = start < -math.pi / 2
    before = below(np.where(wrapped, start + math.pi, start)) - wrapped
    return below(arc - turn) - before


def seeds_needed(values: Sequence[float], bound: float, level: float) -> int | None:
    """Return how many seeds an interval needs to exclude a bound if mean and spread stay.

    At least one more than there are; None if :data:`MOST` are not enough.

    Examples
    --------
    >>> seeds_needed([1.0, 1.1, 0.9], 0.0, 0.95), seeds_needed([1.0, -1.1, 0.2], 0.0, 0.95)
    (4, None)
    """
    numbers = np.asarray(values)
    if len(numbers) < 2:
        return None
    away, spread = abs(float(numbers.mean()) - bound), float(numbers.std(ddof=1))
    enough = (k for k in range(len(numbers) + 1, MOST + 1) if _excludes(away, spread, level, k))
    return next(enough, None)


def _excludes(away: float, spread: float, level: float, k: int) -> bool:
    return away * math.sqrt(k) > critical(level, k) * spread
