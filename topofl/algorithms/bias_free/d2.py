"""D^2, also known as exact diffusion: D-SGD with a correction for differences in local data."""

from collections.abc import Callable

import torch

from topofl._support.check import check_switch
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

__all__ = ["d2"]


_LARGE = eigenvalues_above(
    -1 / 3,
    "use lazy=True, or mixing weights with larger self-weights, such as "
    "mixing=lambda graph: mixing.lazy(mixing.metropolis_hastings(graph))",
)


@public
@needing(static, symmetric, doubly_stochastic)
@needing(_LARGE, when={"lazy": False})
def d2(lr: Rate, *, lazy: bool = True, batch_size: int = 128) -> Algorithm:
    """Return D^2, decentralized training over decentralized data, also known as exact diffusion.

    With all models as the rows of ``X^t``, their gradients ``G^t``, ``V = (I + W) / 2`` (``W``
    itself if not `lazy`) and a constant `lr`::

        X^1     = V (X^0 - lr * G^0)
        X^(t+2) = V (2 X^(t+1) - X^t - lr * (G^(t+1) - G^t))

    Equivalently, per round, for every node i with model ``x_i`` and a correction ``c_i`` that
    starts at 0::

        p_i = x_i - lr * grad F(x_i; S_i)
        x_i = sum_j V[i, j] (p_j + lr * c_j),   c_i = (x_i - p_i) / lr

    The graph must be static and connected, and ``W`` symmetric and doubly stochastic. With `lazy`,
    as in exact diffusion, any such ``W`` works; D^2 as published uses ``W`` itself and is faster,
    but requires that all eigenvalues are above -1/3, which does not hold on a ring of an even
    number of nodes with equal weights. The corrections sum to 0 after every round. With full
    batches and a small enough constant `lr`, all models converge to the optimum of the mean loss,
    however different the data of nodes are, in contrast to D-SGD: at the optimum, ``c_i`` is the
    gradient of the node's own loss. A message holds one model, as in D-SGD.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
        Corrections are gradients, so that models at the optimum stay there when the rate changes
        (it is constant in the papers). While it is 0, corrections do not change. If the rate falls
        by orders of magnitude within one round, remaining differences divided by `lr` are large,
        and a rate that soon rises again, as in schedules with restarts, amplifies them.
    lazy
        Whether exchanges use ``(I + W) / 2`` instead of ``W``.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run without `lazy`, if
        an eigenvalue of ``W`` is not above -1/3.

    References
    ----------
    Tang, Lian, Yan, Zhang and Liu, "D^2: decentralized training over decentralized data" (2018),
    Algorithm 1; Yuan, Ying, Zhao and Sayed, "Exact diffusion for distributed optimization and
    learning, part I: algorithm development" (2019), Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 30, "seed": 0}
    >>> exact, plain = (topofl.run(one(lr=0.1), **how) for one in (d2, algorithms.dsgd))
    >>> bool(exact.last("loss").mean() < plain.last("loss").mean())
    True
    >>> bool(exact["bytes"][-1] == plain["bytes"][-1])
    True
    """
    lazy = bool(check_switch("lazy", lazy, auto=False))
    steps = descend(lr=lr)
    settings = {"weights": "round", "lazy": lazy}
    exchange = Phase(_start, _exchange(steps.lr, lazy), settings, rowwise=True)
    return chain("d2", local=train(steps, batch_size=batch_size), exchange=exchange)


def _start(models: Models) -> State:
    """Return corrections of 0."""
    return {"correction": torch.zeros_like(models.flat)}


def _exchange(lr: Schedule, lazy: bool) -> Callable[[Models, State, Round], State]:
    """Return the exchange of corrected models, which updates the corrections."""

    def apply(models: Models, state: State, round: Round) -> State:
        flat = models.flat
        rate = float(lr(round.t, 0))
        before = flat.clone()
        flat.add_(state["correction"], alpha=rate)
        kept = flat.clone() if lazy else None
        round.mix(round.weights, flat)
        if kept is not None:
            flat.add_(kept).mul_(0.5)
        if rate > 0:
            torch.sub(flat, before, out=state["correction"]).div_(rate)
        return state

    return apply
