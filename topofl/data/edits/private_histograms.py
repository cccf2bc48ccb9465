"""Label histograms of nodes with noise for differential privacy."""

from typing import Any

import numpy as np

from topofl._support.check import check_choice, check_label_counts, check_positive, check_switch
from topofl._support.public import public
from topofl._support.seeding import stream

__all__ = ["private_label_histograms"]

_MIN_EPSILON = 1e-300
"""Smallest epsilon: Laplace samples from 53 random bits are below 37, so sums stay finite."""


@public
def private_label_histograms(
    label_counts: Any,
    *,
    epsilon: float,
    seed: int | np.random.Generator,
    noise: str = "scale",
    clip: bool = False,
) -> np.ndarray:
    """Return the label shares of each node with independent, centered Laplace noise.

    A node with m examples adds noise of size ``1 / (m * epsilon)`` to each of its shares. They stay
    unbiased, but may be negative, and sum to 1 only on average. With ``epsilon=1`` and 500 examples
    the size is 0.002. The paper calls this size a standard deviation, but privacy depends on the
    scale b of the Laplace distribution (density proportional to ``exp(-|x| / b)``, standard
    deviation ``sqrt(2) * b``): if one change of the data moves the shares by at most s in L1 norm,
    noise of scale ``s / epsilon`` makes them epsilon-differentially private. `noise` selects the
    interpretation:

    ================== ================== =====================================================
    `noise`            scale b            epsilon-private with respect to
    ================== ================== =====================================================
    scale              1 / (m epsilon)    one example more or less in a class, where counts are
                                          divided by a public m
    sd                 1 / (m epsilon)    the same with sqrt(2) epsilon; this is the standard
                       / sqrt(2)          deviation, in the paper's words
    replace_one        2 / (m epsilon)    one example replaced by another
    ================== ================== =====================================================

    Parameters
    ----------
    label_counts
        (n, classes) array of non-negative integers, or an object with such an attribute
        ``label_counts``, for example a Partition.
    epsilon
        Privacy budget, at least 1e-300; smaller values mean more privacy and more noise.
    seed
        Seed of the noise.
    noise
        ``"scale"``, ``"sd"`` or ``"replace_one"``.
    clip
        Whether to set negative shares to 0 and divide each row by its sum (a row without positive
        shares becomes uniform). The rows are then distributions, but biased. Privacy is the same,
        since the data are not used again.

    Returns
    -------
    numpy.ndarray
        (n, classes) float64, for ``greedy_swap(label_shares=...)``. For simulations only: without
        rounding to a grid, floating-point noise does not guarantee privacy exactly (Mironov 2012).

    Raises
    ------
    TypeError
        If the counts are not integers, or `epsilon` is not a number.
    ValueError
        If the counts have another shape or are negative, if a node has no examples, or if `epsilon`
        or `noise` is out of range.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), Remark 2; Dwork and Roth, "The algorithmic
    foundations of differential privacy" (2014), section 3.3, the Laplace mechanism.

    Examples
    --------
    >>> private_label_histograms([[300, 200], [0, 500]], epsilon=1e9, seed=0).round(3) + 0.0
    array([[0.6, 0.4],
           [0. , 1. ]])
    """
    counts = check_label_counts(label_counts)
    clip = bool(check_switch("clip", clip, auto=False))
    if (epsilon := check_positive("epsilon", epsilon)) < _MIN_EPSILON:
        raise ValueError(
            f"`epsilon` must be at least {_MIN_EPSILON:g}, got {epsilon}, whose noise is too large "
            "for float64"
        )
    factors = {"scale": 1.0, "sd": np.sqrt(0.5), "replace_one": 2.0}
    factor = factors[check_choice("noise", noise, factors)]
    totals = counts.sum(axis=1, keepdims=True)
    empty = np.flatnonzero(totals == 0)
    if len(empty):
        raise ValueError(
            f"`label_counts` must have at least one example per node, node {empty[0]} has none"
        )
    shares = counts / totals + stream(seed, "privacy").laplace(size=counts.shape) * (
        factor / epsilon / totals
    )
    return _clipped(shares) if clip else shares


def _clipped(shares: np.ndarray) -> np.ndarray:
    """Return non-negative shares whose rows sum to 1."""
    shares = np.maximum(shares, 0.0)
    shares[shares.sum(axis=1) == 0] = 1.0
    return shares / shares.sum(axis=1, keepdims=True)
