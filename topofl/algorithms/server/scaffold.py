"""SCAFFOLD: FedAvg with control variates that correct local steps."""

from functools import lru_cache

import numpy as np
import torch

from topofl._support.check import check_int
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import Training, check_epochs
from topofl.algorithms.contract.phase import (
    Algorithm,
    Participation,
    Phase,
    chain,
    participation_setting,
    sampled,
)
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.algorithms.contract.terms import correction
from topofl.algorithms.exchanges.average import server_weights
from topofl.mixing import average_of

__all__ = ["scaffold"]


@public
def scaffold(
    lr: Rate, *, participation: float | int = 1.0, batch_size: int = 128, epochs: int = 5
) -> Algorithm:
    """Return SCAFFOLD: FedAvg with control variates that correct the local steps.

    Per round, with a random set A of participating nodes, the server's model x and control c; all
    controls start at 0::

        y_i <- y_i - lr * (grad F_i(y_i) + c - c_i)
            (`epochs` passes of K_i steps in all from y_i = x, i in A)
        c_i <- c_i - c + (x - y_i) / (K_i * lr)  (the mean of the gradients of these steps)
        x   =  (1 / |A|) sum_{i in A} y_i
        c   =  (1 / n) sum_i c_i                              (over all nodes)

    All nodes then hold ``x``, so the server's model is evaluated. Each message, in either
    direction, holds a model and a control: two numbers per parameter. No topology is needed; one
    that is given is ignored.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`, whose sum over the steps replaces ``K_i * lr``; if that
        sum is 0, ``c_i`` stays unchanged. The server's step size is 1.
    participation
        Number or fraction of the nodes that participate in each round, as in
        :func:`topofl.algorithms.sampled`.
    batch_size, epochs
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning" (2020),
    Algorithm 1 with option II and a global step size of 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> history = topofl.run(scaffold(lr=0.1, batch_size=32), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=10, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.9)
    True
    """
    participants = sampled(participation)
    training = Training(
        descend(correction(), lr=lr),
        check_int("batch_size", batch_size, minimum=1),
        epochs=check_epochs("epochs", epochs),
    )
    return chain("scaffold", local=_corrected(training, participants), server=_server(participants))


def _corrected(training: Training, participants: Participation) -> Phase:
    """Return the phase of corrected local steps, which sets each control to their mean gradient."""

    def init(models: Models) -> State:
        return training.init(models) | {"control": torch.zeros_like(models.flat)}

    def apply(models: Models, state: State, round: Round) -> State:
        start = models.flat.clone()
        steps = round.train(models, training, state, participants=participants(round))
        rates = [training.descend.lr(round.t, k) for k in range(int(steps.max()))]
        total = torch.from_numpy(np.cumsum([0.0, *rates])[round.own_rows(steps)]).to(start)[:, None]
        controls = start.sub_(models.flat).div_(total).sub_(state["correction"])
        state["control"].copy_(torch.where(total > 0, controls, state["control"]))
        return state

    return Phase(init, apply, training.settings | participation_setting(participants), rowwise=True)


def _server(participants: Participation) -> Phase:
    """Return the phase in which the server averages models and controls and sends both."""
    # rounds with equal weights share one matrix, which histories store once
    matrix = lru_cache(maxsize=1)(server_weights)

    def apply(models: Models, state: State, round: Round) -> State:
        local = round.state("local")
        weights = matrix(np.ones(round.n).tobytes(), participants(round).tobytes())
        round.mix(weights, models.flat, server=True, scalars=models.flat.shape[1])
        local["correction"].copy_(local["control"])
        round.mix(average_of(np.ones(round.n)), local["correction"], server=True, counted=False)
        local["correction"].sub_(local["control"])
        return state

    settings = {"weights": "equal"} | participation_setting(participants)
    return Phase(no_state, apply, settings, rowwise=True)
