"""D-SGD with coordinate-wise medians (BRIDGE-M)."""

import numpy as np
import torch
from torch import Tensor

from topofl._support.public import public
from topofl._support.text import node_name
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import dsgd_steps
from topofl.algorithms.contract.needs import Need, needing
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.exchanges.robust import aggregate, denser_graph_remedy, exposure_to_attackers
from topofl.mixing import MixingMatrix

__all__ = ["coordinate_median"]


def _exceeded(weights: MixingMatrix, bad: np.ndarray) -> str:
    """Return at which node half or more of the values are from attackers, or an empty text."""
    received, attackers, _ = exposure_to_attackers(weights, bad)
    worst = int((attackers / (received + 1)).argmax())
    if 2 * attackers[worst] < received[worst] + 1:
        return ""
    remedy = denser_graph_remedy(weights.n, int(bad.sum()), (weights.n - 1) // 2)
    return (
        f"node {node_name(weights.nodes, worst)} receives from {attackers[worst]} attackers, half "
        f"or more of its {received[worst] + 1} values, its own included; {remedy}"
    )


_MAJORITY = Need(
    "an honest majority at each node",
    "fewer than half of the values at an honest node, its own included, may come from attackers",
    "add edges",
    attacked=_exceeded,
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
