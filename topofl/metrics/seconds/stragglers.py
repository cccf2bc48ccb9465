"""Expected seconds until the slowest of many machines with random times is done."""

from typing import NamedTuple

import numpy as np

from topofl.clocks import Times

__all__ = ["Slowest", "expected_slowest", "has_closed_form"]

LEAST = -700.0
"""Logarithm of the smallest probability, in place of that of 0."""

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
    for one, count in enumerate(counts):
        log_g += count * _log_cdf(times, x, mean[one], delay[one])
    g = np.exp(log_g)
    fixed = (mean == 0) & (delay == x[0])  # these are done at the first point
    shares = np.where(fixed, g[0] / max(1, counts[fixed].sum()), 0.0)
    for one in range(len(mean)):
        shares[one] += _share(_log_cdf(times, x, mean[one], delay[one]), log_g)
    return Slowest(float(x[0] + np.trapezoid(1 - g, x)), shares[group.reshape(-1)])


def _share(log_f: np.ndarray, log_g: np.ndarray) -> float:
    """Return the probability that one machine is the slowest, and done after the first point.

    Between two points, ``g = prod_u F_u`` grows by ``g sum_u d log F_u``, and the term of a machine
    is the probability that it is the slowest. We divide the growth in these proportions, which
    therefore sum to 1.

    Parameters
    ----------
    log_f, log_g
        (P,) logarithms of the distribution functions of its time and of the maximum.
    """
    steps, of_all = np.diff(log_f), np.diff(log_g)
    parts = np.divide(steps, of_all, out=np.zeros_like(steps), where=of_all > 0)
    return float((np.diff(np.exp(log_g)) * parts).sum())


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
    from scipy.special import ndtri  # takes long to import

    sigma = float(times.settings["sigma"])
    return np.exp(-sigma * ndtri(tail) - sigma**2 / 2)


def _log_cdf(times: Times, x: np.ndarray, mean: float, delay: float) -> np.ndarray:
    """Return the logarithm of the probability that ``mean * factor + delay`` is at most x."""
    if mean == 0:
        return np.where(x >= delay, 0.0, LEAST)
    factor = (x - delay) / mean
    with np.errstate(divide="ignore", invalid="ignore"):
        if times.name == "exponential":
            logs = np.log(-np.expm1(-np.maximum(factor, 0)))
        else:
            from scipy.special import log_ndtr

            sigma = float(times.settings["sigma"])
            logs = log_ndtr((np.log(np.maximum(factor, 0)) + sigma**2 / 2) / sigma)
    return np.maximum(logs, LEAST)
