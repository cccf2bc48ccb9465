"""EXTRA: D-SGD with a correction that accumulates differences from the neighbors."""

from collections.abc import Callable

import torch

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, Schedule, descend
from topofl.algorithms.contract.local import train
from topofl.algorithms.contract.needs import (
    doubly_stochastic,
    eigenvalues_above,
    needing,
    static,
    symmetric,
)
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State

__all__ = ["extra"]


_LARGE = eigenvalues_above(
    -1, "use mixing weights with positive self-weights, such as mixing.lazy(...)"
)


@public
@needing(static, symmetric, doubly_stochastic, _LARGE)
def extra(lr: Rate, *, batch_size: int = 128) -> Algorithm:
    """Return EXTRA, the exact first-order algorithm: gossip, a gradient step and a correction.

    With all models as the rows of ``X^t``, their gradients ``G^t``, ``V = (I + W) / 2`` and a
    constant `lr`::

        X^1     = W X^0 - lr * G^0
        X^(t+2) = (I + W) X^(t+1) - V X^t - lr * (G^(t+1) - G^t)

    Equivalently, per round, for every node i with model ``x_i`` and a correction ``c_i`` that
    starts at 0::

        m_i = sum_j W[i, j] x_j,   g_i = grad F(x_i; S_i)
        c_i' = c_i + (m_i - x_i) / (2 * lr)  (c_i of the next round)
        x_i = m_i - lr * (g_i - c_i)

    The graph must be static and connected, and ``W`` symmetric and doubly stochastic without an
    eigenvalue of -1 (one node with a positive self-weight is enough, as with
    :func:`topofl.mixing.metropolis_hastings`). The corrections sum to 0 after every round. With
    full batches and a constant `lr` below ``(1 + smallest eigenvalue of W) / L``, where L is the
    Lipschitz constant of the gradients, all models converge to the optimum of the mean loss,
    however different the data of nodes are, in contrast to D-SGD: at the optimum, ``c_i`` is the
    gradient of the node's own loss. A message holds one model, as in D-SGD.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
        Corrections are gradients, so that models at the optimum stay there when the rate changes
        (it is constant in the paper). While it is 0, corrections do not change. If the rate falls
        by orders of magnitude within one round, remaining differences divided by `lr` are large,
        and a rate that soon rises again, as in schedules with restarts, amplifies them.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run, if -1 is an
        eigenvalue of ``W``.

    References
    ----------
    Shi, Ling, Wu and Yin, "EXTRA: an exact first-order algorithm for decentralized consensus
    optimization" (2015), Algorithm 1, with the mixing matrix of its choice (I + W) / 2.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 30, "seed": 0}
    >>> exact, plain = (topofl.run(one(lr=0.1), **how) for one in (extra, algorithms.dsgd))
    >>> bool(exact.last("loss").mean() < plain.last("loss").mean())
    True
    >>> bool(exact["bytes"][-1] == plain["bytes"][-1])
    True
    """
    steps = descend(lr=lr)
    exchange = Phase(_start, _exchange(steps.lr), {"weights": "round"}, rowwise=True)
    return chain("extra", local=train(steps, batch_size=batch_size), exchange=exchange)


def _start(models: Models) -> State:
    """Return the initial models, which are the first messages, and corrections of 0."""
    return {"sent": models.flat.clone(), "correction": torch.zeros_like(models.flat)}


def _exchange(lr: Schedule) -> Callable[[Models, State, Round], State]:
    """Return the exchange, which adds corrections and the disagreement of the previous models."""

    def apply(models: Models, state: State, round: Round) -> State:
        rate = float(lr(round.t, 0))
        apart = state["sent"].clone()
        round.mix(round.weights, apart)
        apart.sub_(state["sent"])
        models.flat.add_(apart).add_(state["correction"], alpha=rate)
        if rate > 0:
            state["correction"].add_(apart, alpha=0.5 / rate)
        state["sent"].copy_(models.flat)
        return state

    return apply
