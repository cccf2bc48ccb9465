"""Expected seconds until the slowest of many machines with random times is done."""

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtri

from topofl.clocks import Times

__all__ = ["Slowest", "expected_slowest", "has_closed_form"]

POINTS = 20_000
"""Number of points at which the distribution of the maximum is evaluated."""

GROUPS = 100
"""Most groups of equal machines whose quantiles are points of evaluation."""


class Slowest(NamedTuple):
    """Expected maximum, and the probability of each machine to be the slowest, (U,)."""

    seconds: float
    probabilities: np.ndarray


def has_closed_form(times: Times) -> bool:
    """Return whether the distribution function of these times is known."""
    return times.name in ("exponential", "lognormal")


def expected_slowest(times: Times, means: np.ndarray, delays: np.ndarray) -> Slowest:
    """Return the expected maximum of ``means * factor + delays`` with independent factors.

    The integral of ``1 - prod_u P(means[u] factor + delays[u] <= x)`` over x, by the trapezoidal
    rule on quantiles of the terms.

    Parameters
    ----------
    times
        The distribution of the factors, of mean 1: exponential or lognormal.
    means, delays
        (U,) seconds, at least 0.

    Examples
    --------
    The expected maximum of two exponential times of mean 1 is 1 + 1/2:

    >>> from topofl.clocks import exponential
    >>> found = expected_slowest(exponential(1.0), np.ones(2), np.full(2, 10.0))
    >>> round(found.seconds, 6), found.probabilities.tolist()
    (11.5, [0.5, 0.5])
    """
    pairs, group, counts = np.unique(
        np.stack([means, delays], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    mean, delay = pairs.T
    x = _points(times, mean, delay, len(means))
    log_g = np.zeros(len(x))
    shares = np.zeros(len(mean))
    for one, count in enumerate(counts):
        log_g += count * _log_cdf(times, x, mean[one], delay[one])
    g = np.exp(log_g)
    seconds = float(x[0] + np.trapezoid(1 - g, x))
    middle = (g[1:] + g[:-1]) / 2
    for one, count in enumerate(counts):
        log_f = np.maximum(_log_cdf(times, x, mean[one], delay[one]), -700.0)
        shares[one] = count * float((np.diff(log_f) * middle).sum())
    shares /= shares.sum()
    return Slowest(seconds, (shares / counts)[group.reshape(-1)])


def _points(times: Times, mean: np.ndarray, delay: np.ndarray, n: int) -> np.ndarray:
    """Return points at which the distribution of the maximum changes, from its lower end."""
    upper = mean * _quantile(times, np.array(1e-18)) + delay
    chosen = np.argsort(upper)[::-1][:GROUPS]
    k = max(200, POINTS // len(chosen))
    tails = np.concatenate([np.geomspace(1e-18 / n, 0.5, k), 1 - np.geomspace(0.5, 1e-9, k // 4)])
    points = mean[chosen, None] * _quantile(times, tails) + delay[chosen, None]
    least = max(float(delay.max()), 0.0)  # the maximum is never less
    return np.unique(np.concatenate([[least], points[points > least]]))


def _quantile(times: Times, tail: np.ndarray) -> np.ndarray:
    """Return what a factor exceeds with probability `tail`."""
    if times.name == "exponential":
        return -np.log(tail)
    sigma = float(times.settings["sigma"])
    return np.exp(-sigma * ndtri(tail) - sigma**2 / 2)


def _log_cdf(times: Times, x: np.ndarray, mean: float, delay: float) -> np.ndarray:
    """Return the logarithm of the probability that ``mean * factor + delay`` is at most x."""
    if mean == 0:
        return np.where(x >= delay, 0.0, -np.inf)
    factor = (x - delay) / mean
    with np.errstate(divide="ignore", invalid="ignore"):
        if times.name == "exponential":
            return np.where(factor > 0, np.log(-np.expm1(-np.maximum(factor, 0))), -np.inf)
        sigma = float(times.settings["sigma"])
        if sigma == 0:
            return np.where(factor >= 1, 0.0, -np.inf)
        z = (np.log(np.maximum(factor, 0)) + sigma**2 / 2) / sigma
        return np.where(factor > 0, log_ndtr(z), -np.inf)
