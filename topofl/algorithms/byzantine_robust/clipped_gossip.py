"""ClippedGossip: D-SGD that clips differences from neighbors."""

from collections.abc import Callable
from math import inf

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_fraction, check_positive
from topofl._support.public import public
from topofl._support.text import node_name
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import dsgd_steps
from topofl.algorithms.contract.needs import Need, equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.exchanges.robust import (
    Aggregation,
    aggregate,
    denser_graph_remedy,
    exposure_to_attackers,
)
from topofl.mixing import MixingMatrix

__all__ = ["clipped_gossip", "clipping", "outweighed"]


def _exceeded(weights: MixingMatrix, bad: np.ndarray, *, delta: float | None) -> str:
    """Return at which node attackers weigh more than is tolerated, or an empty text."""
    _, _, shares = exposure_to_attackers(weights, bad)
    half = (1 - weights.weights.diagonal()) / 2
    # sums of weights are rounded
    limit = half * (1 - 1e-9) if delta is None else delta * (1 + 1e-9)
    over = np.flatnonzero((shares > 0) & (shares > limit))
    if not len(over):
        return ""
    bound = (
        "half of the weight of its neighbors, or more"
        if delta is None
        else f"more than delta={delta:g}"
    )
    count = int(bad.sum())
    n = weights.n
    most = float(shares.max())
    if delta is not None and not ((shares > 0) & (shares > half * (1 - 1e-9))).any():
        remedy = f"give delta={np.ceil(most * 1000) / 1000:g}"
    else:
        share = "" if delta is None else f" and delta={np.ceil(count / n * 1000) / 1000:g}"
        remedy = denser_graph_remedy(n, count, (n - 2) // 2, share)
    name = node_name(weights.nodes, int(over[0]))
    return f"attackers weigh {shares[over[0]]:.3g} at node {name}, {bound}; {remedy}"


outweighed = Need(
    "attackers of little weight",
    "less than half of the weight of an honest node's neighbors, and at most `delta` if given",
    "add edges",
    attacked=_exceeded,
    verb="have",
    of=("delta",),
)
"""The requirement that attackers have small weights."""


@public
@needing(equal_shares, outweighed)
def clipped_gossip(
    lr: Rate,
    *,
    tau: float | None = None,
    delta: float | None = None,
    batch_size: int = 128,
    momentum: float = 0.0,
    local_steps: int = 1,
) -> Algorithm:
    """Return ClippedGossip: D-SGD that clips the differences from neighbors to a radius.

    Per round, for every node i::

        x_i     = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        theta_i = x_i + sum_{j != i} W[i, j] clip(x_j - x_i, tau_i)
        clip(d, tau) = d * min(1, tau / ||d||)

    The radius is either given, or each node computes it in every round from an assumed weight
    `delta` of attackers among its neighbors::

        tau_i^2 = (1 / delta) sum_{j in N_i} W[i, j] ||x_j - x_i||^2

    where ``N_i`` are the neighbors without the farthest ones, as few as have weights that sum to at
    least `delta`. (The theorem sums over the honest neighbors, which no node knows.) Messages with
    NaN or infinite values are ignored.

    **Tolerance.** Whatever attackers send, they move node i by at most ``tau_i delta_i`` per round,
    where ``delta_i = sum_{j attacks} W[i, j]``. If no ``delta_i`` is above `delta`, they cannot
    make ``tau_i`` larger than the sum over honest neighbors would. The theorem needs symmetric,
    doubly stochastic weights, honest nodes that are connected among themselves, and a largest
    ``delta_i`` that is small compared to the square of their spectral gap.

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`), also where nothing is clipped; a run then warns
    that it weights their losses by these shares.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    tau
        The radius, above 0; ``inf`` gives D-SGD.
    delta
        Assumed weight of attackers, above 0 and below 1, instead of `tau`.
    batch_size
        As in :func:`topofl.algorithms.train`.
    momentum
        In [0, 1); local and never averaged.
    local_steps
        Minibatch steps between two exchanges; 1 in the original method.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, or if both or neither of `tau` and
        `delta` are given.

    References
    ----------
    He, Karimireddy and Jaggi, "Byzantine-robust decentralized learning via ClippedGossip" (2022).
    With `delta`, the radius is that of the experiments of Gaucher, Dieuleveut and Hendrikx,
    "Unified breakdown analysis for Byzantine robust gossip" (2025), except if weights sum to
    exactly `delta`.

    Examples
    --------
    >>> import topofl
    >>> from topofl import attacks, data, models, topologies
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.fully_connected(10), "rounds": 30, "seed": 0}
    >>> how |= {"attackers": attacks.sign_flip([0, 5], scale=3.0)}
    >>> methods = clipped_gossip(0.3, delta=0.2), topofl.algorithms.dsgd(0.3)
    >>> clipped, plain = (topofl.run(method, **how) for method in methods)
    >>> bool(clipped.last("accuracy")[1] > 0.8), bool(plain.last("accuracy")[1] > 0.8)
    (True, False)
    """
    local = dsgd_steps(lr, batch_size, momentum, local_steps)
    return chain("clipped_gossip", local=local, exchange=clipping(tau, delta))


def clipping(tau: float | None, delta: float | None) -> Phase:
    """Return the exchange of clipped differences, with a given or a computed radius."""
    if (tau is None) == (delta is None):
        raise ValueError(
            f"exactly one of `tau` and `delta` must be given, got tau={tau} and delta={delta}; "
            "give delta=0.1"
        )
    if tau is not None:
        radius = tau if tau == inf else check_positive("tau", tau)
        return aggregate(
            _clipped(lambda distances, weights: distances.new_full((), radius)), tau=radius
        )
    share = check_positive("delta", check_fraction("delta", delta))
    return aggregate(
        _clipped(lambda distances, weights: _radius(distances, weights, share)), delta=share
    )


def _clipped(radius: Callable[[Tensor, Tensor], Tensor]) -> Aggregation:
    """Return the rule that adds differences from neighbors, clipped to a radius."""

    def rule(own: Tensor, received: Tensor, weights: Tensor) -> Tensor:
        apart = received - own
        distances = torch.linalg.vector_norm(apart, dim=1)
        finite = torch.isfinite(distances)
        tau = radius(distances, weights)
        factors = torch.where(distances > tau, tau / distances, 1) * weights
        return own + torch.where(finite, factors, 0) @ torch.where(finite[:, None], apart, 0)

    return rule


def _radius(distances: Tensor, weights: Tensor, delta: float) -> Tensor:
    """Return the radius from the neighbors without the farthest ones, which weigh `delta`."""
    farthest = torch.where(torch.isfinite(distances), distances, inf).sort(descending=True)
    ordered = weights[farthest.indices]
    weight_farther = ordered.cumsum(0) - ordered
    counted = weight_farther >= delta * (1 - 1e-5)  # sums of weights are rounded
    return (torch.where(counted, ordered * farthest.values.square(), 0).sum() / delta).sqrt()
