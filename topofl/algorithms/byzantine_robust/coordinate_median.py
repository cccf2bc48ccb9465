"""D-SGD by coordinate-wise medians: BRIDGE-M."""

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.contract.needs import Need, needing
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.schedules import Rate
from topofl.algorithms.exchanges.robust import (
    aggregate,
    denser_graph_remedy,
    dsgd_steps,
    exposure_to_attackers,
)
from topofl.mixing import MixingMatrix

__all__ = ["coordinate_median"]


def _exceeded(weights: MixingMatrix, bad: np.ndarray) -> str:
    """Say at which node attackers are half of the values or more."""
    received, attackers, _ = exposure_to_attackers(weights, bad)
    worst = int((attackers / (received + 1)).argmax())
    if 2 * attackers[worst] < received[worst] + 1:
        return ""
    remedy = denser_graph_remedy(weights.n, int(bad.sum()), (weights.n - 1) // 2)
    return (
        f"node {worst} receives from {attackers[worst]} attackers, half or more of its "
        f"{received[worst] + 1} values, its own included; {remedy}"
    )


_MAJORITY = Need(
    "an honest majority at each node",
    "of the values at an honest node, its own included, fewer than half may be of attackers",
    "add edges",
    attacked=_exceeded,
    verb="have",
)


@needing(_MAJORITY)
def coordinate_median(
    lr: Rate, *, batch_size: int = 128, momentum: float = 0.0, local_steps: int = 1
) -> Algorithm:
    """Return D-SGD with coordinate-wise medians of a node's and its neighbors' models (BRIDGE-M).

    Per round, for every node i::

        x_i     = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        theta_i = median({x_i} and {x_j: W[i, j] != 0}), each parameter by itself

    The median of an even number of values is the mean of the two in the middle. The weights of the
    graph do not matter, only which nodes a node receives from. A value that is NaN counts as a
    large one.

    **Tolerance.** If of the values at every honest node, its own included, fewer than half are of
    attackers, every parameter of its new model lies between the smallest and the largest of honest
    models, whatever attackers send. On data that differ from node to node, medians are biased
    also without attackers.

    Parameters
    ----------
    lr
        A number, or ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    batch_size
        As in :func:`topofl.algorithms.train`.
    momentum
        In [0, 1), local and never averaged.
    local_steps
        Minibatch steps between two exchanges; the original method takes 1.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    BRIDGE first takes the median, then a step by the gradient at the model before it; here, as in
    D-SGD, nodes step and then exchange.

    References
    ----------
    Yin, Chen, Ramchandran and Bartlett, "Byzantine-robust distributed learning: towards optimal
    statistical rates" (2018), medians of gradients at a server; Fang, Yang and Bajwa, "BRIDGE:
    Byzantine-resilient decentralized gradient descent" (2022), BRIDGE-M, its form without a server.

    Examples
    --------
    >>> coordinate_median(0.1)  # doctest: +NORMALIZE_WHITESPACE
    coordinate_median: local(lr=0.1, batch_size=128, steps=1)
    -> exchange(weights=round, rule=median)
    """
    local = dsgd_steps(lr, batch_size, momentum, local_steps)
    return chain("coordinate_median", local=local, exchange=aggregate(_median, rule="median"))


def _median(own: Tensor, received: Tensor, shares: Tensor) -> Tensor:
    """Return the median of each column of all rows."""
    del shares
    ordered = torch.cat([own[None], received]).sort(dim=0).values
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
