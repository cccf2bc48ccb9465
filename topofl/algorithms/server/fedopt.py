"""FedOpt: server optimizers for the mean model change (FedAdam, FedYogi, FedAvgM, DiLoCo)."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from topofl._support.check import check_fraction, check_int, check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import Epochs, Steps, epochs_or_steps, train
from topofl.algorithms.contract.phase import Algorithm, AnyParticipation, Phase, chain, sampled
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import Term, adamw
from topofl.algorithms.contract.terms import clip as clipping
from topofl.algorithms.exchanges.average import server_average

__all__ = ["diloco", "fedadam", "fedavgm", "fedyogi"]


@public
def fedadam(
    lr: Rate,
    *,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
) -> Algorithm:
    """Return FedAdam: FedAvg whose server applies Adam to the mean model change.

    Per round, with a random set A of participating nodes, ``m`` starting at 0 and ``v`` at
    ``tau^2``::

        y_i   = x - lr * grad F_i(...)  (`epochs` passes from the server's model x, i in A)
        Delta = sum_{i in A} (m_i / sum_{k in A} m_k) (y_i - x)  (m_i: number of examples)
        m     = beta1 * m + (1 - beta1) * Delta
        v     = beta2 * v + (1 - beta2) * Delta^2
        x     = x + server_lr * m / (sqrt(v) + tau)

    All nodes then hold ``x``, so the server's model is evaluated. All nodes must start from one
    model. As in FedAvg, each message is one model: ``m`` and ``v`` stay at the server. No topology
    is needed.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`.
    server_lr
        Step size of the server, above 0. Parameters whose changes are much larger than `tau` move
        by about `server_lr` per round.
    beta1, beta2
        In [0, 1).
    tau
        Above 0; larger values make the server less adaptive. With ``beta1 = beta2 = 0`` and a large
        `tau`, the server moves ``server_lr / tau`` of the way to the average of FedAvg.
    participation
        Number (an integer) or fraction of the nodes that participate in each round, or a trace, as
        in :func:`topofl.algorithms.sampled`: 1 is one node, and 1.0 are all.
    batch_size, epochs, steps
        As in :func:`topofl.algorithms.fedavg`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; if nodes start from different models.

    Notes
    -----
    The paper requires that ``v`` starts at ``tau^2`` or more. Some public implementations start
    from ``v = 0``, and some, like Flower, multiply the step by the bias correction of Adam, which
    the paper's algorithm does not have.

    References
    ----------
    Reddi et al., "Adaptive federated optimization" (2021), Algorithm 2. The paper averages changes
    without weights; here they are weighted by numbers of examples, as in FedAvg.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> history = topofl.run(fedadam(lr=0.1, server_lr=0.1), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=10, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.8)
    True
    """

    def squares(square: Tensor, new: Tensor) -> Tensor:
        return square.lerp_(new, 1 - beta2)

    others = (server_lr, lr, participation, batch_size, epochs, steps)
    return _adaptive("fedadam", squares, beta1, beta2, tau, *others)


@public
def fedyogi(
    lr: Rate,
    *,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
) -> Algorithm:
    """Return FedYogi: FedAvg whose server applies Yogi to the mean model change.

    Like :func:`fedadam`, except for::

        v = v - (1 - beta2) * Delta^2 * sign(v - Delta^2)

    Parameters
    ----------
    lr, server_lr, beta1, beta2, tau, participation, batch_size, epochs, steps
        As in :func:`fedadam`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; if nodes start from different models.

    Notes
    -----
    Some public implementations, like Flower, start from ``v = 0`` instead of ``tau^2``.

    References
    ----------
    Reddi et al., "Adaptive federated optimization" (2021), Algorithm 2.

    Examples
    --------
    >>> fedyogi(lr=0.1).settings["server"]["tau"]
    0.001
    """

    def squares(square: Tensor, new: Tensor) -> Tensor:
        return square.addcmul_(new, torch.sign(square - new), value=beta2 - 1)

    others = (server_lr, lr, participation, batch_size, epochs, steps)
    return _adaptive("fedyogi", squares, beta1, beta2, tau, *others)


@public
def fedavgm(
    lr: Rate, *, server_lr: float = 1.0, beta: float = 0.9, participation: AnyParticipation = 1.0,
    batch_size: int = 128, epochs: Epochs = None, steps: Steps = None,
) -> Algorithm:  # fmt: skip
    """Return FedAvgM: FedAvg with heavy-ball momentum at the server.

    Like :func:`fedadam`, except for the server's step, with ``m`` starting at 0::

        m = beta * m + Delta
        x = x + server_lr * m

    Parameters
    ----------
    lr, participation, batch_size, epochs, steps
        As in :func:`fedadam`.
    server_lr
        Step size of the server, above 0; 1 without momentum is FedAvg.
    beta
        Momentum of the server, in [0, 1).

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; if nodes start from different models.

    Notes
    -----
    In the paper `server_lr` is 1.

    References
    ----------
    Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated
    visual classification" (2019).

    Examples
    --------
    >>> fedavgm(lr=0.1, beta=0.5).settings["server"]["beta"]
    0.5
    """
    beta = check_fraction("beta", beta)

    def direction(change: Tensor, own: State) -> Tensor:
        return own["mean"].mul_(beta).add_(change)

    others = (server_lr, lr, participation, batch_size, epochs, steps)
    return _optimized("fedavgm", direction, {"mean": 0.0}, {"beta": beta}, *others)


@public
def diloco(
    lr: Rate,
    *,
    outer_lr: float = 0.7,
    outer_momentum: float = 0.9,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    local_steps: int = 500,
    beta1: float = 0.9,
    beta2: float = 0.95,
    eps: float = 1e-8,
    decay: float = 0.1,
    clip: float | None = 1.0,
) -> Algorithm:
    """Return DiLoCo: many local steps of AdamW, and a step of Nesterov momentum along their mean.

    Per round, with a random set A of participating nodes, and ``v`` starting at 0::

        y_i   = AdamW(x; lr, decay)    (`local_steps` steps from the common model x, i in A)
        Delta = x - (1 / |A|) sum_{i in A} y_i
        v     = outer_momentum * v + Delta
        x     = x - outer_lr * (Delta + outer_momentum * v)

    All nodes then hold ``x``, which is evaluated, and all must start from one model. The moments of
    AdamW stay at their node from round to round. No topology is needed: each participant sends one
    model per round and receives one, as in FedAvg. (Without a server, all nodes know the mean after
    an all-reduce, and take the outer step themselves.) :func:`topofl.algorithms.noloco` replaces
    the mean over all nodes by averages with neighbors.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`. The code has 4e-4 after a warmup of 1000 steps, with
        cosine decay.
    outer_lr
        Step size of the outer step, above 0; 1 without momentum is the mean of the local models.
    outer_momentum
        Momentum of the outer step, in [0, 1).
    participation
        Number or fraction of the nodes that participate in each round, as in
        :func:`topofl.algorithms.sampled`; all in the code.
    batch_size
        As in :func:`topofl.algorithms.train`.
    local_steps
        Steps between two exchanges, the same at all nodes.
    beta1, beta2, eps, decay
        As in :func:`topofl.algorithms.adamw`.
    clip
        Limit of the norms of gradients, as in :func:`topofl.algorithms.clip`; None: no limit.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; if nodes start from different models.

    References
    ----------
    Douillard et al., "DiLoCo: distributed low-communication training of language models" (2023), in
    the public implementation OpenDiLoCo, PrimeIntellect-ai/OpenDiloco,
    open_diloco/train_diloco_torch.py, from which the defaults are.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> history = topofl.run(diloco(lr=0.01, local_steps=20), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=10, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.8)
    True
    """
    outer_momentum = check_fraction("outer_momentum", outer_momentum)
    limits = [] if clip is None else [clipping(clip)]
    terms = [*limits, adamw(beta1, beta2, decay=decay, eps=eps)]

    def direction(change: Tensor, own: State) -> Tensor:
        return change + outer_momentum * own["mean"].mul_(outer_momentum).add_(change)

    return _optimized(
        "diloco",
        direction,
        {"mean": 0.0},
        {"outer_momentum": outer_momentum},
        check_positive("outer_lr", outer_lr),
        lr,
        participation,
        batch_size,
        steps=check_int("local_steps", local_steps, minimum=1),
        terms=terms,
        weighted=False,
    )


def _adaptive(
    name: str,
    squares: Callable[[Tensor, Tensor], Tensor],
    beta1: float,
    beta2: float,
    tau: float,
    *others: Any,
) -> Algorithm:
    """Return the method of an adaptive server; `squares` updates the second moments."""
    settings = {"beta1": check_fraction("beta1", beta1), "beta2": check_fraction("beta2", beta2)}
    settings["tau"] = check_positive("tau", tau)

    def direction(change: Tensor, own: State) -> Tensor:
        mean = own["mean"].lerp_(change, 1 - beta1)
        return mean / squares(own["square"], change.square()).sqrt().add_(settings["tau"])

    first = {"mean": 0.0, "square": settings["tau"] ** 2}
    return _optimized(name, direction, first, settings, *others)


def _optimized(
    name: str,
    direction: Callable[[Tensor, State], Tensor],
    first: dict[str, float],
    settings: dict[str, float],
    server_lr: float,
    lr: Rate,
    participation: AnyParticipation,
    batch_size: int,
    epochs: Epochs = None,
    steps: Steps = None,
    *,
    terms: Sequence[Term] = (),
    weighted: bool = True,
) -> Algorithm:
    """Return the method whose server steps along `direction` of the mean model change."""
    participants = sampled(participation)
    rate = check_positive("server_lr", server_lr)
    average = server_average(participants=participants, weighted=weighted)

    def init(models: Models) -> State:
        start = models.start
        return {"server": start} | {
            name: torch.full_like(start, number) for name, number in first.items()
        }

    def apply(models: Models, state: State, round: Round) -> State:
        average.apply(models, {}, round)
        state["server"].add_(direction(models.flat[:1] - state["server"], state), alpha=rate)
        models.flat.copy_(state["server"].expand_as(models.flat))
        return state

    told = {"server_lr": rate, **settings, **average.settings}
    work = epochs_or_steps(epochs, steps)
    local = train(descend(*terms, lr=lr), batch_size=batch_size, participants=participants, **work)
    return chain(name, local=local, server=Phase(init, apply, told, rowwise=True))
