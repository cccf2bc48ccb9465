"""D-SGD with coordinate-wise trimmed means (BRIDGE-T)."""

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int
from topofl._support.public import public
from topofl._support.text import node_name
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import dsgd_steps
from topofl.algorithms.contract.needs import Need, needing
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.exchanges.robust import (
    Aggregation,
    aggregate,
    denser_graph_remedy,
    exposure_to_attackers,
)
from topofl.mixing import MixingMatrix

__all__ = ["trimmed_mean"]


def _too_few(weights: MixingMatrix, *, trim: int) -> str:
    """Return which node receives from others, but from too few to trim, or an empty text."""
    received, _, _ = exposure_to_attackers(weights, np.zeros(weights.n, dtype=bool))
    few = np.flatnonzero((received > 0) & (received <= 2 * trim))
    if not len(few):
        return ""
    worst = int(few[received[few].argmin()])
    return (
        f"with trim={trim}, node {node_name(weights.nodes, worst)} receives from {received[worst]} "
        f"others; {len(few)} of {weights.n} nodes receive from too few"
    )


def _exceeded(weights: MixingMatrix, bad: np.ndarray, *, trim: int) -> str:
    """Return which node receives from the most attackers, if more than `trim`, or an empty text."""
    _, attackers, _ = exposure_to_attackers(weights, bad)
    worst = int(attackers.argmax())
    most = int(attackers[worst])
    if most <= trim:
        return ""
    if not _too_few(weights, trim=most):
        remedy = f"give trim={most}"
    else:
        count = int(bad.sum())
        remedy = denser_graph_remedy(weights.n, count, (weights.n - 2) // 2, f" and trim={count}")
    name = node_name(weights.nodes, worst)
    return f"node {name} receives from {most} attackers, more than trim={trim}; {remedy}"


_ENOUGH = Need(
    "more than 2 * trim neighbors at each node",
    "a node that receives from 2 * trim others or fewer has nothing left to average",
    "add edges, or give a smaller `trim`",
    weights=_too_few,
    attacked=_exceeded,
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
