"""Gradient tracking with local steps (K-GT)."""

import numpy as np
import torch

from topofl._support.check import check_int, check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.needs import doubly_stochastic, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.algorithms.contract.terms import correction

__all__ = ["local_gt"]


@public
@needing(doubly_stochastic)
def local_gt(
    lr: Rate, *, local_steps: int = 5, global_lr: float = 1.0, batch_size: int = 128
) -> Algorithm:
    """Return gradient tracking with local steps (K-GT).

    Per round, for every node i with model ``x_i``, K = `local_steps` and a correction ``c_i`` that
    starts at 0::

        y_i = x_i;   y_i <- y_i - lr * (grad F(y_i; S_i) + c_i)        (K times)
        z_i = (x_i - y_i) / (K * lr)  (the mean of these K directions)
        c_i = c_i - z_i + sum_j W[i, j] z_j
        x_i = sum_j W[i, j] (x_j - global_lr * K * lr * z_j)
            (the weighted mean of the y_j if `global_lr` is 1)

    ``W`` must be doubly stochastic, and the graph connected, or connected over some rounds. The
    corrections then sum to 0 after every round. With full batches and a small enough constant `lr`,
    all models converge to the optimum of the mean loss, however different the data of nodes are;
    D-SGD stays farther from it the more local steps it takes. With one local step and a `global_lr`
    of 1, the method is :func:`topofl.algorithms.dsgt`. A message holds two numbers per parameter: a
    model and a direction.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`, whose sum over the steps replaces ``K * lr``; if that sum
        is 0, so is ``z_i``.
    local_steps
        Steps between two exchanges, the same at all nodes.
    global_lr
        Factor of the local updates before models are averaged, above 0; 1 applies them as they are.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Liu, Lin, Koloskova and Stich, "Decentralized gradient tracking with local steps" (2023),
    Algorithm 1, K-GT. There, corrections can also start as the mean gradient of all nodes minus a
    node's own, which needs an exchange with all nodes; here they start at 0. They sum to 0 in both
    cases.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 20, "seed": 0}
    >>> methods = (local_gt(lr=0.1, local_steps=5), algorithms.dsgd(lr=0.1, local_steps=5))
    >>> tracked, plain = (topofl.run(method, **how) for method in methods)
    >>> bool(tracked.last("loss").mean() < plain.last("loss").mean())
    True
    """
    training = Training(
        descend(correction(), lr=lr),
        check_int("batch_size", batch_size, minimum=1),
        check_int("local_steps", local_steps, minimum=1),
    )
    return chain(
        "local_gt",
        local=_corrected(training),
        exchange=_exchange(check_positive("global_lr", global_lr)),
    )


def _corrected(training: Training) -> Phase:
    """Return the phase of corrected steps, which stores their mean direction and total rate."""

    def init(models: Models) -> State:
        flat = models.flat
        return training.init(models) | {
            "direction": torch.zeros_like(flat),
            "length": torch.zeros_like(flat[:, 0]),
        }

    def apply(models: Models, state: State, round: Round) -> State:
        start = models.flat.clone()
        steps = round.train(models, training, state)
        rates = [training.descend.lr(round.t, k) for k in range(int(steps.max()))]
        state["length"].copy_(torch.from_numpy(np.cumsum([0.0, *rates])[round.own_rows(steps)]))
        length = state["length"][:, None]
        state["direction"].copy_(torch.where(length > 0, start.sub_(models.flat).div_(length), 0))
        return state

    return Phase(init, apply, training.settings, rowwise=True)


def _exchange(global_lr: float) -> Phase:
    """Return the phase that averages models and directions, which are sent in one message."""

    def apply(models: Models, state: State, round: Round) -> State:
        local = round.state("local")
        direction = local["direction"]
        correct = local["correction"].sub_(local["direction"])
        models.flat.addcmul_(direction, local["length"][:, None], value=1 - global_lr)
        round.mix(round.weights, models.flat, scalars=direction.shape[1])
        round.mix(round.weights, direction, counted=False)
        correct.add_(direction)
        return state

    settings = {"weights": "round", "global_lr": global_lr}
    return Phase(no_state, apply, settings, rowwise=True)
