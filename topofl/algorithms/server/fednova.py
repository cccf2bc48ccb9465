"""FedNova: normalized averaging for nodes that take different numbers of steps."""

from collections.abc import Sequence
from functools import lru_cache

import torch

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import Training, check_amount, check_work, sgd_descent
from topofl.algorithms.contract.phase import (
    Algorithm,
    Participation,
    Phase,
    chain,
    participation_setting,
    sampled,
)
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.exchanges.average import server_weights

__all__ = ["fednova"]


@public
def fednova(
    lr: Rate,
    *,
    participation: float | int = 1.0,
    batch_size: int | Sequence[int] = 128,
    epochs: int | Sequence[int] | None = None,
    steps: int | Sequence[int] | None = None,
    momentum: float = 0.0,
    lr_decay: float = 1.0,
) -> Algorithm:
    """Return FedNova: FedAvg with updates normalized by the number of local steps.

    Per round, with a random set A of nodes that take ``K_i`` local steps and have weights ``p_i =
    m_i / sum_{k in A} m_k``::

        v_i = momentum * v_i + grad F_i(y_i),   y_i = y_i - lr * v_i
            (K_i times from y_i = x, v_i = 0)
        a_i = (K_i - momentum * (1 - momentum^K_i) / (1 - momentum)) / (1 - momentum)
            (K_i without momentum)
        x   = x + (sum_{i in A} p_i a_i) * sum_{i in A} p_i (y_i - x) / a_i

    ``a_i`` is the number of gradients, with momentum, by which ``y_i`` has moved. FedAvg, which
    adds ``sum_i p_i (y_i - x)``, converges to the optimum of the losses weighted by ``p_i a_i``
    instead of ``p_i``. If all ``a_i`` are equal, the two methods are the same. Nodes that are
    frozen because they diverged get no weight. All nodes then hold ``x``, so the server's model is
    evaluated. All nodes must start from one model. A message to the server holds a model and
    ``a_i``; a message from it holds a model. No topology is needed; one that is given
    is ignored.

    Parameters
    ----------
    lr, lr_decay
        As in :func:`topofl.algorithms.sgd`.
    participation
        Number or fraction of the nodes that participate in each round, as in
        :func:`topofl.algorithms.sampled`.
    batch_size, epochs, steps
        As in :func:`topofl.algorithms.train`: one number or one per node, at least 1. Give either
        `epochs` or `steps`; by default, nodes train for 5 epochs.
    momentum
        Momentum of the local steps, in [0, 1); it starts from zero in every round.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; if both `epochs` and `steps` are given;
        if nodes start from different models.

    References
    ----------
    Wang, Liu, Liang, Joshi and Poor, "Tackling the objective inconsistency problem in heterogeneous
    federated optimization" (2020), with ``tau_eff = sum_i p_i ||a_i||_1``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> unlike = fednova(lr=0.1, batch_size=32, steps=[1, 2, 3, 4, 5, 5, 4, 3, 2, 1])
    >>> history = topofl.run(unlike, model=models.logistic_regression(64), clients=clients,
    ...                      rounds=20, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.8)
    True
    """
    participants = sampled(participation)
    if steps is None and epochs is None:
        epochs = 5
    descent = sgd_descent(lr, momentum, lr_decay, reset_momentum=True)
    size = check_amount("batch_size", batch_size, least=1)
    training = Training(descent, size, *check_work(steps, epochs, least=1))
    return chain(
        "fednova", local=_counting(training, momentum, participants), server=_server(participants)
    )


def _counting(training: Training, momentum: float, participants: Participation) -> Phase:
    """Return the phase of local steps, which stores ``a_i`` for each node as ``moved``."""

    def init(models: Models) -> State:
        return training.init(models) | {"moved": torch.zeros_like(models.flat[:, :1])}

    def apply(models: Models, state: State, round: Round) -> State:
        steps = round.train(models, training, state, participants=participants(round))
        moved = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
        state["moved"].copy_(torch.from_numpy(round.own_rows(moved))[:, None])
        return state

    return Phase(init, apply, training.settings | participation_setting(participants), rowwise=True)


def _server(participants: Participation) -> Phase:
    """Return the server phase, which averages normalized model changes and rescales their mean."""
    # rounds with equal weights share one matrix, which histories store once
    matrix = lru_cache(maxsize=1)(server_weights)

    def apply(models: Models, state: State, round: Round) -> State:
        flat = models.flat
        x = state["server"]
        moved = round.state("local")["moved"]
        weights = matrix(round.sizes.astype(float).tobytes(), participants(round).tobytes())
        # a frozen node counts no gradients, though its model may have moved before it froze
        flat.sub_(x).div_(moved.clamp(min=1)).masked_fill_(moved == 0, 0)
        counted = torch.cat([moved, (moved > 0).to(moved.dtype)], 1)
        for values in (flat, counted):
            round.mix(weights, values, server=True, counted=False)
        round.send(weights, (2 * flat.shape[1] + 1) * flat.element_size() // 2, server=True)
        # means are over the nodes that took steps, whose total weight is `share`
        effective, share = counted[:1].split(1, 1)
        far = torch.where(share > 0, effective / share**2, 0)
        flat.copy_(x.addcmul_(flat[:1], far).expand_as(flat))
        return state

    settings = {"weights": "data"} | participation_setting(participants)
    return Phase(lambda models: {"server": models.start}, apply, settings, rowwise=True)
