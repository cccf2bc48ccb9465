"""Servers that correct the local steps of nodes: SCAFFOLD and FedDyn."""

from functools import lru_cache

import numpy as np
import torch

from topofl._support.check import check_int, check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import Training, check_epochs, steps_and_rates, train
from topofl.algorithms.contract.phase import Algorithm, Phase, chain, participation_setting, sampled
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.algorithms.contract.terms import correction, proximal
from topofl.algorithms.exchanges.average import server_average, server_weights
from topofl.mixing import average_of

__all__ = ["feddyn", "scaffold"]


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
    # rounds with equal weights share one matrix, which histories store once
    matrix = lru_cache(maxsize=1)(server_weights)

    def init(models: Models) -> State:
        return training.init(models) | {"control": torch.zeros_like(models.flat)}

    def correct(models: Models, state: State, round: Round) -> State:
        start = models.flat.clone()
        total = steps_and_rates(models, training, state, round, participants=participants(round))
        controls = start.sub_(models.flat).div_(total).sub_(state["correction"])
        state["control"].copy_(torch.where(total > 0, controls, state["control"]))
        return state

    def average(models: Models, state: State, round: Round) -> State:
        local = round.state("local")
        weights = matrix(np.ones(round.n).tobytes(), participants(round).tobytes())
        round.mix(weights, models.flat, server=True, scalars=models.flat.shape[1])
        local["correction"].copy_(local["control"])
        round.mix(average_of(np.ones(round.n)), local["correction"], server=True, counted=False)
        local["correction"].sub_(local["control"])
        return state

    who = participation_setting(participants)
    return chain(
        "scaffold",
        local=Phase(init, correct, training.settings | who, rowwise=True),
        server=Phase(no_state, average, {"weights": "equal"} | who, rowwise=True),
    )


@public
def feddyn(
    lr: Rate, *, alpha: float = 0.1, participation: float | int = 1.0, batch_size: int = 128,
    epochs: int = 5,
) -> Algorithm:  # fmt: skip
    """Return FedDyn: federated learning with dynamic regularization.

    Per round, with a random set A of the n nodes; all ``h_i``, and the server's ``h``, start at 0::

        y_i <- y_i - lr * (grad F_i(y_i) - h_i + alpha * (y_i - x))
            (`epochs` passes from y_i = x, i in A)
        h_i <- h_i - alpha * (y_i - x)  (i in A; grad F_i(y_i) if y_i is optimal)
        h   =  h - alpha / n * sum_{i in A} (y_i - x)
        x   =  (1 / |A|) sum_{i in A} y_i - h / alpha

    The local steps descend on ``F_i(y) - <h_i, y> + alpha / 2 * |y - x|^2``. ``h`` is always the
    mean of the ``h_i`` over all nodes. At a fixed point all ``y_i`` equal ``x``, so that ``h = 0``
    and x is a stationary point of the unweighted mean of the losses, however few local steps are
    taken. All nodes then hold ``x``, so the server's model is evaluated. All nodes must start from
    one model. A message, up or down, is a model. No topology is needed; one that is given
    is ignored.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`.
    alpha
        Strength of the proximal term that pulls to the server's model; above 0.
    participation
        Number or fraction of the nodes that participate in each round, as in
        :func:`topofl.algorithms.sampled`.
    batch_size, epochs
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; if nodes start from different models.

    Notes
    -----
    The authors' published code divides `alpha` by a node's number of examples over the mean number,
    and clips gradients to a norm of 10; the paper's algorithm has neither.

    References
    ----------
    Acar et al., "Federated learning based on dynamic regularization" (2021), Algorithm 1, with its
    local minimization approximated by a few passes of SGD.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> history = topofl.run(feddyn(lr=0.1, batch_size=32), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=10, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.9)
    True
    """
    participants = sampled(participation)
    alpha = check_positive("alpha", alpha)
    steps = descend(correction(), proximal(alpha), lr=lr)
    local = train(steps, batch_size=batch_size, epochs=epochs, participants=participants)
    average = server_average(participants=participants, weighted=False)

    def init(models: Models) -> State:
        start = models.start
        return {"server": start, "h": start.new_zeros(start.shape)}

    def apply(models: Models, state: State, round: Round) -> State:
        x, h = state["server"], state["h"]
        # models of nodes that do not participate are still x
        round.state("local")["correction"].add_(models.flat - x, alpha=alpha)
        average.apply(models, {}, round)
        h.sub_(models.flat[:1] - x, alpha=alpha * float(participants(round).mean()))
        models.flat.copy_(x.copy_(models.flat[:1] - h / alpha).expand_as(models.flat))
        return state

    server = Phase(init, apply, {"alpha": alpha, **average.settings}, rowwise=True)
    return chain("feddyn", local=local, server=server)
