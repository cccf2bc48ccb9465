"""pFedMe: personal models, whose Moreau envelopes the shared model minimizes."""

from typing import Any

from torch import Tensor

from topofl._support.check import check_int, check_nonnegative, check_positive, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Gradient, GradientPoint, Rate, decayed, descend
from topofl.algorithms.contract.local import Epochs, Steps, epochs_or_steps, train
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import (
    Algorithm,
    AnyParticipation,
    Participation,
    Phase,
    chain,
    participation_setting,
    sampled,
)
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import Step
from topofl.algorithms.exchanges.average import server_weights

__all__ = ["pfedme"]


@public
@needing(equal_shares, when={"server": False})
def pfedme(
    lr: Rate,
    *,
    strength: float = 15.0,
    personal_lr: float = 0.09,
    personal_steps: int = 5,
    beta: float = 1.0,
    server: bool = True,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
) -> Algorithm:
    """Return pFedMe: the shared model descends on the Moreau envelopes of the nodes' losses.

    Per round, with a random set A of participating nodes, ``w_i = w`` and ``theta_i = w``; each of
    the steps (`epochs` passes, i in A) takes one minibatch, also for the `personal_steps`::

        theta_i <- theta_i - personal_lr * (grad F_i(theta_i) + strength * (theta_i - w_i)
                                            + weight_decay * theta_i)    (`personal_steps` times)
        w_i     <- w_i - lr * strength * (w_i - theta_i)
        w       =  (1 - beta) * w + beta * sum_{i in A} (m_i / sum_{k in A} m_k) w_i   (at the end)

    ``strength * (w_i - theta_i)`` is the gradient of the envelope ``min over theta of F_i(theta) +
    strength / 2 * |theta - w_i|^2`` if ``theta_i`` attains this minimum. Evaluations and the
    consensus distance are those of the personal models ``theta_i``, although only ``w`` is
    communicated; nodes that do not participate keep theirs.

    Parameters
    ----------
    lr, participation, batch_size, epochs, steps, lr_decay
        As in :func:`topofl.algorithms.fedavg`; the steps are those of ``w_i``, and the paper's eta
        is `lr`.
    strength
        The paper's lambda, above 0. Steps are stable only if ``lr * strength`` is at most 1, and
        ``personal_lr * strength`` below 2.
    personal_lr, personal_steps
        Step size, and number of steps on each minibatch, of the personal models, the same in all
        rounds; 0.09 and 5 in the code.
    beta
        Above 0: how far the server's model goes to the average, 1 in the code; above 1, it goes
        beyond.
    server
        Whether a server averages the ``w_i`` of participating nodes. False: each node averages
        those of its neighbors, by the mixing matrix of the round, and has a ``w`` of its own.
    weight_decay
        Of the personal models, at least 0; always 0.001 in the code.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; in a run, if nodes start from different
        models and `beta` is not 1 with a server.

    Notes
    -----
    In the paper and its code, nodes that do not participate train as well, and the server discards
    their ``w_i``. Over directed graphs, static or periodic, the default weights may give nodes
    unequal shares in the average; a run then warns that it weights their losses by these shares.

    References
    ----------
    Dinh, Tran and Nguyen, "Personalized federated learning with Moreau envelopes" (2020), Algorithm
    1, in the authors' code CharlieDinh/pFedMe.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0, test_fraction=0.2)
    >>> history = topofl.run(pfedme(lr=0.05, batch_size=16, epochs=1),
    ...                      model=models.logistic_regression(64), clients=clients,
    ...                      rounds=2, seed=0, evaluation="own_test")
    >>> bool(history.last("accuracy").mean() > 0.6)
    True
    """
    participants, strength = sampled(participation), check_positive("strength", strength)
    personal_steps = check_int("personal_steps", personal_steps, minimum=1)
    decay = check_nonnegative("weight_decay", weight_decay)
    at = _envelope(strength, check_positive("personal_lr", personal_lr), personal_steps, decay)
    beta = check_positive("beta", beta)
    check_switch("server", server, auto=False)
    local = train(
        descend(lr=decayed(lr, lr_decay)),
        batch_size=batch_size,
        participants=participants,
        at=at,
        **epochs_or_steps(epochs, steps),
    )

    def init(models: Models) -> State:
        return local.init(models) | {"common": models.flat.clone()}

    def apply(models: Models, state: State, round: Round) -> State:
        local.apply(models.like(state["common"]), state, round)
        models.flat.copy_(state["personal"])
        return state

    phases: dict[str, Any] = {"local": local._replace(init=init, apply=apply)}
    phases["server" if server else "exchange"] = _averaged(participants if server else None, beta)
    return chain("pfedme", **phases)


def _envelope(strength: float, lr: float, steps: int, decay: float) -> GradientPoint:
    """Return the gradients of Moreau envelopes, by some steps of the models named "personal"."""

    def toward(theta: Tensor, g: Tensor, common: Tensor) -> Tensor:
        slope = g.add(theta - common, alpha=strength).add_(theta, alpha=decay)
        return theta.sub(slope, alpha=lr)

    def where(common: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        theta = own["personal"].copy_(common) if step.k == 0 else own["personal"]
        for _ in range(steps - 1):  # `back` takes the last one
            theta.copy_(toward(theta, gradient(theta), common))
        return theta.clone()

    def back(g: Tensor, common: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        theta = own["personal"].copy_(toward(own["personal"], g, common))
        return common.sub(theta).mul_(strength)

    def init(models: Models) -> State:
        return {"personal": models.flat.clone()}

    settings = {"strength": strength, "personal_lr": lr, "personal_steps": steps}
    settings |= {"weight_decay": decay} if decay else {}
    return GradientPoint("envelope", where, back, init, settings=settings)


def _averaged(participants: Participation | None, beta: float) -> Phase:
    """Return the exchange of the shared models: by a server of participants, or by neighbors."""
    matrix = server_weights()

    def init(models: Models) -> State:
        if beta == 1:
            return {}
        return {"before": models.flat.clone() if participants is None else models.start}

    def apply(models: Models, state: State, round: Round) -> State:
        common, weights = round.state("local")["common"], None
        if participants is not None:
            weights = matrix(round.sizes.astype(float), participants(round))
        round.mix(weights or round.weights, common, server=weights is not None)
        if beta != 1:
            before = state["before"]
            before.copy_(common.mul_(beta).add_(before, alpha=1 - beta)[: len(before)])
        return state

    settings = {"weights": "data" if participants else "round", "beta": beta}
    return Phase(init, apply, settings | participation_setting(participants), rowwise=True)
