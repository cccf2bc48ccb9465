"""D-SGD with robust rules in place of weighted means, against Byzantine nodes."""

from collections.abc import Callable
from math import inf

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_fraction, check_int, check_positive, check_share
from topofl._support.public import public
from topofl._support.text import node_name
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import dsgd_steps, train
from topofl.algorithms.contract.needs import Need, equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.terms import averaged
from topofl.algorithms.exchanges.average import Aggregation, aggregate
from topofl.mixing import MixingMatrix

__all__ = ["clipped_gossip", "coordinate_median", "self_centered_clipping", "trimmed_mean"]


def exposure(weights: MixingMatrix, bad: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how many models each node receives, how many from attackers, and their weight.

    All are (n,), and 0 for attackers; `bad` are (n,) booleans: the attackers.
    """
    matrix = weights.weights.tocoo()
    counted = (matrix.row != matrix.col) & (matrix.data != 0) & ~bad[matrix.row]
    receivers, attacks = matrix.row[counted], bad[matrix.col[counted]]
    received, attackers, shares = (
        np.bincount(receivers, given, minlength=len(bad))
        for given in (None, attacks, matrix.data[counted] * attacks)
    )
    return received, attackers.astype(int), shares


def denser_graph(n: int, attackers: int, most: int, arguments: str = "") -> str:
    """Return the remedy for attackers, of which the fully connected graph tolerates `most`."""
    if attackers <= most:
        return f"use topologies.fully_connected({n}){arguments}"
    return f"let at most {most} of the {n} nodes attack, since no graph tolerates more"


def _beyond_radius(weights: MixingMatrix, bad: np.ndarray, *, delta: float | None) -> str:
    """Return at which node attackers weigh more than is tolerated, or an empty text."""
    _, _, shares = exposure(weights, bad)
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
        remedy = denser_graph(n, count, (n - 2) // 2, share)
    name = node_name(weights.nodes, int(over[0]))
    return f"attackers weigh {shares[over[0]]:.3g} at node {name}, {bound}; {remedy}"


_OUTWEIGHED = Need(
    "attackers of little weight",
    "less than half of the weight of an honest node's neighbors, and at most `delta` if given",
    "add edges",
    attacked=_beyond_radius,
    verb="have",
    of=("delta",),
)
"""The requirement that attackers have small weights."""


@public
@needing(equal_shares, _OUTWEIGHED)
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
    return chain("clipped_gossip", local=local, exchange=_clipping(tau, delta))


def _clipping(tau: float | None, delta: float | None) -> Phase:
    """Return the exchange of clipped differences, with a given or a computed radius."""
    if (tau is None) == (delta is None):
        raise ValueError(
            f"exactly one of `tau` and `delta` must be given, got tau={tau} and delta={delta}; "
            "give delta=0.1"
        )
    if tau is not None:
        setting = {"tau": tau if tau == inf else check_positive("tau", tau)}
    else:
        setting = {"delta": check_positive("delta", check_fraction("delta", delta))}

    def rule(own: Tensor, received: Tensor, weights: Tensor) -> Tensor:
        apart = received - own
        distances = torch.linalg.vector_norm(apart, dim=1)
        finite = torch.isfinite(distances)
        if delta is None:
            radius = distances.new_full((), setting["tau"])
        else:
            radius = _radius(distances, weights, setting["delta"])
        factors = torch.where(distances > radius, radius / distances, 1) * weights
        return own + torch.where(finite, factors, 0) @ torch.where(finite[:, None], apart, 0)

    return aggregate(rule, **setting)


def _radius(distances: Tensor, weights: Tensor, delta: float) -> Tensor:
    """Return the radius from the neighbors without the farthest ones, which weigh `delta`."""
    farthest = torch.where(torch.isfinite(distances), distances, inf).sort(descending=True)
    ordered = weights[farthest.indices]
    weight_farther = ordered.cumsum(0) - ordered
    counted = weight_farther >= delta * (1 - 1e-5)  # sums of weights are rounded
    return (torch.where(counted, ordered * farthest.values.square(), 0).sum() / delta).sqrt()


@public
@needing(equal_shares, _OUTWEIGHED)
def self_centered_clipping(
    lr: Rate,
    *,
    tau: float | None = None,
    delta: float | None = None,
    alpha: float = 0.1,
    batch_size: int = 128,
) -> Algorithm:
    """Return self-centered clipping (SCClip) with local momentum.

    Per round, for every node i, with ``m_i`` starting at 0::

        m_i     = (1 - alpha) m_i + alpha * grad F(theta_i; S_i)
        x_i     = theta_i - lr * m_i
        theta_i = x_i + sum_{j != i} W[i, j] clip(x_j - x_i, tau_i)

    The exchange and its tolerance are those of :func:`clipped_gossip`, which the first version of
    the paper calls self-centered clipping. The running averages of gradients are those of the
    paper's training algorithm; they reduce the minibatch noise in which attackers can hide.

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`), also where nothing is clipped; a run then warns
    that it weights their losses by these shares.

    Parameters
    ----------
    lr, tau, delta, batch_size
        As in :func:`clipped_gossip`.
    alpha
        Weight of the new gradient, above 0 and at most 1; 1 gives :func:`clipped_gossip` without
        momentum.

    Raises
    ------
    ValueError, TypeError
        As :func:`clipped_gossip`.

    Notes
    -----
    The authors' published code sums gradients, ``m_i = (1 - alpha) m_i + grad F(theta_i; S_i)``, so
    that its `lr` is `alpha` times the one here; without `tau`, it uses the distance of the
    second-farthest neighbor.

    References
    ----------
    He, Karimireddy and Jaggi, "Byzantine-robust decentralized learning via self-centered clipping"
    (2022, first version); the reason for momentum is from Karimireddy, He and Jaggi, "Learning from
    history for Byzantine robust optimization" (2021).

    Examples
    --------
    >>> self_centered_clipping(0.5, tau=1.0)  # doctest: +NORMALIZE_WHITESPACE
    self_centered_clipping: local(lr=0.5, alpha=0.1, batch_size=128, steps=1)
    -> exchange(weights=round, tau=1.0)
    """
    alpha = check_share("alpha", alpha)
    local = train(descend(averaged(alpha, alpha=alpha), lr=lr), batch_size=batch_size)
    return chain("self_centered_clipping", local=local, exchange=_clipping(tau, delta))


def beyond_half(weights: MixingMatrix, bad: np.ndarray, *, bucket: int = 1) -> str:
    """Return at which node half or more of the values are from attackers, or an empty text.

    If values are averaged in buckets before, an attacker counts for one bucket.
    """
    received, attackers, _ = exposure(weights, bad)
    values = -(-(received + 1) // bucket)
    worst = int((attackers / values).argmax())
    if 2 * attackers[worst] < values[worst]:
        return ""
    remedy = denser_graph(weights.n, int(bad.sum()), (-(-weights.n // bucket) - 1) // 2)
    what = "values" if bucket == 1 else f"buckets of {bucket} values"
    return (
        f"node {node_name(weights.nodes, worst)} receives from {attackers[worst]} attackers, half "
        f"or more of its {values[worst]} {what}, its own included; {remedy}"
    )


_MAJORITY = Need(
    "an honest majority at each node",
    "fewer than half of the values at an honest node, its own included, may come from attackers",
    "add edges",
    attacked=beyond_half,
    verb="have",
)


@public
@needing(_MAJORITY)
def coordinate_median(
    lr: Rate, *, batch_size: int = 128, momentum: float = 0.0, local_steps: int = 1
) -> Algorithm:
    """Return D-SGD with coordinate-wise medians instead of averages (BRIDGE-M).

    Per round, for every node i::

        x_i     = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        theta_i = median({x_i} and {x_j: W[i, j] != 0}), coordinate-wise

    The median of an even number of values is the mean of the two middle ones. The weights of the
    graph do not matter, only its edges do. NaN counts as a large value.

    **Tolerance.** If fewer than half of the values at an honest node, its own included, come from
    attackers, every parameter of its new model lies between the smallest and the largest of honest
    models, whatever attackers send. If data differ between nodes, medians are biased even without
    attackers.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    batch_size
        As in :func:`topofl.algorithms.train`.
    momentum
        In [0, 1); local and never averaged.
    local_steps
        Minibatch steps between two exchanges; 1 in the original method.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    BRIDGE takes the median first, and then a step along the gradient at the previous model; here,
    as in D-SGD, nodes step and then exchange.

    References
    ----------
    Yin, Chen, Ramchandran and Bartlett, "Byzantine-robust distributed learning: towards optimal
    statistical rates" (2018), medians of gradients at a server; Fang, Yang and Bajwa, "BRIDGE:
    Byzantine-resilient decentralized gradient descent" (2022), BRIDGE-M, the decentralized form.

    Examples
    --------
    >>> coordinate_median(0.1)  # doctest: +NORMALIZE_WHITESPACE
    coordinate_median: local(lr=0.1, batch_size=128, steps=1)
    -> exchange(weights=round, rule=median)
    """
    local = dsgd_steps(lr, batch_size, momentum, local_steps)
    return chain("coordinate_median", local=local, exchange=aggregate(_median, rule="median"))


def _median(own: Tensor, received: Tensor, weights: Tensor) -> Tensor:
    """Return the median of each column of all rows."""
    ordered = torch.cat([own[None], received]).sort(dim=0).values
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _too_few(weights: MixingMatrix, *, trim: int) -> str:
    """Return which node receives from others, but from too few to trim, or an empty text."""
    received, _, _ = exposure(weights, np.zeros(weights.n, dtype=bool))
    few = np.flatnonzero((received > 0) & (received <= 2 * trim))
    if not len(few):
        return ""
    worst = int(few[received[few].argmin()])
    return (
        f"with trim={trim}, node {node_name(weights.nodes, worst)} receives from {received[worst]} "
        f"others; {len(few)} of {weights.n} nodes receive from too few"
    )


def _beyond_trim(weights: MixingMatrix, bad: np.ndarray, *, trim: int) -> str:
    """Return which node receives from the most attackers, if more than `trim`, or an empty text."""
    return beyond_number(
        weights,
        bad,
        f"trim={trim}",
        lambda more: not _too_few(weights, trim=more),
        largest=(weights.n - 2) // 2,
    )


def beyond_number(
    weights: MixingMatrix,
    bad: np.ndarray,
    given: str,
    is_possible: Callable[[int], bool],
    *,
    largest: int,
) -> str:
    """Return which node receives from more attackers than an argument says, or an empty text.

    The argument and its number are `given`, as in ``"trim=2"``. The remedy is the number that is
    needed if it `is_possible` on the graph, else a graph with more edges, of which the fully
    connected one tolerates the `largest` number of attackers.
    """
    argument, _, allowed = given.partition("=")
    _, attackers, _ = exposure(weights, bad)
    worst = int(attackers.argmax())
    most = int(attackers[worst])
    if most <= int(allowed):
        return ""
    count = int(bad.sum())
    remedy = f"give {argument}={most}"
    if not is_possible(most):
        remedy = denser_graph(weights.n, count, largest, f" and {argument}={count}")
    name = node_name(weights.nodes, worst)
    return f"node {name} receives from {most} attackers, more than {given}; {remedy}"


_ENOUGH = Need(
    "more than 2 * trim neighbors at each node",
    "a node that receives from 2 * trim others or fewer has nothing left to average",
    "add edges, or give a smaller `trim`",
    weights=_too_few,
    attacked=_beyond_trim,
    verb="give",
    of=("trim",),
)


@public
@needing(_ENOUGH)
def trimmed_mean(
    lr: Rate, trim: int, *, batch_size: int = 128, momentum: float = 0.0, local_steps: int = 1
) -> Algorithm:
    """Return D-SGD with coordinate-wise trimmed means instead of averages (BRIDGE-T).

    Per round, for every node i with the neighbors ``N_i = {j != i: W[i, j] != 0}``::

        x_i     = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        theta_i = (x_i + sum of x_j, j in N_i, without the `trim` smallest and the `trim` largest)
                  / (|N_i| - 2 trim + 1), coordinate-wise

    The weights of the graph do not matter, only its edges do: even with ``trim=0``, nodes from
    which more others receive count for more, unless the graph is regular. NaN counts as a large
    value.

    **Tolerance.** If no honest node receives from more than `trim` attackers, every parameter of
    its new model lies between the smallest and the largest of honest models, whatever attackers
    send. A node that receives from others must receive from more than ``2 trim``, so that values
    are left to average. The theorem requires that honest nodes stay connected when, in addition to
    the attackers, any `trim` neighbors of each are removed.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    trim
        Number of values removed at either end, ``b`` in the paper; 0 gives the mean over the
        neighborhood.
    batch_size
        As in :func:`topofl.algorithms.train`.
    momentum
        In [0, 1); local and never averaged.
    local_steps
        Minibatch steps between two exchanges; 1 in the original method.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.
    topofl.TopologyError
        Before the run, if a node receives from at least 1 but at most ``2 trim`` others.

    Notes
    -----
    BRIDGE takes the trimmed mean first, and then a step along the gradient at the previous model;
    here, as in D-SGD, nodes step and then exchange. The authors' published code can also trim a
    node's own value; here it always counts.

    References
    ----------
    Yin, Chen, Ramchandran and Bartlett, "Byzantine-robust distributed learning: towards optimal
    statistical rates" (2018), trimmed means of gradients at a server; Fang, Yang and Bajwa,
    "BRIDGE: Byzantine-resilient decentralized gradient descent" (2022), BRIDGE-T, the decentralized
    form.

    Examples
    --------
    >>> trimmed_mean(0.1, trim=2)
    trimmed_mean: local(lr=0.1, batch_size=128, steps=1) -> exchange(weights=round, trim=2)
    """
    trim = check_int("trim", trim, minimum=0)
    local = dsgd_steps(lr, batch_size, momentum, local_steps)
    exchange = aggregate(_trimmed(trim), trim=trim)
    return chain("trimmed_mean", local=local, exchange=exchange)


def _trimmed(trim: int) -> Aggregation:
    """Return the rule of coordinate-wise trimmed means, which always counts the own value."""

    def rule(own: Tensor, received: Tensor, weights: Tensor) -> Tensor:
        left = received.sort(dim=0).values[trim : max(trim, len(received) - trim)]
        return torch.cat([own[None], left]).mean(0)

    return rule
