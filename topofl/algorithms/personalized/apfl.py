"""APFL: mixtures of a common and a personal model."""

import torch

from topofl._support.check import check_probability, check_switch
from topofl.algorithms.contract.gradient_points import mixture
from topofl.algorithms.contract.local import sgd_descent, train
from topofl.algorithms.contract.participation import sampled
from topofl.algorithms.contract.phase import Algorithm, Phase, chain, on_kept_models, sharing
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.schedules import Rate
from topofl.algorithms.exchanges.average import server_average

__all__ = ["apfl"]


def apfl(
    lr: Rate,
    *,
    alpha: float = 0.5,
    adaptive: bool = True,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return APFL: each node predicts with a mixture of FedAvg's model and its own.

    Per round, for nodes A drawn at random, with ``z_i = alpha_i v_i + (1 - alpha_i) w_i``, and both
    models trained on the same minibatches (`epochs` passes, i in A)::

        v_i     <- v_i - lr * alpha_i * grad F_i(z_i)
        w_i     <- w_i - lr * grad F_i(w_i)  (from the server's model w)
        alpha_i <- alpha_i - lr * <grad F_i(z_i), v_i - w_i>, cut to [0, 1]
            (in the first step of a round only)
        w       =  sum_{i in A} (m_i / sum_{k in A} m_k) w_i

    The right-hand sides hold the values before the step. The mixtures are evaluated: at the end of
    the round with the server's model, before the exchange with the node's own. The consensus
    distance is theirs, though only ``w`` travels.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`, of both models; `alpha` takes plain steps, and
        `clip` is of the gradient by ``v_i``, which `alpha` is a factor of.
    alpha
        Between 0 and 1, at the start: the share of the personal model.
    adaptive
        Whether it changes, at each node by itself. The paper updates it "at every communication
        round", and so does its code, which adds a decay of 0.02 that the paper does not have.

    References
    ----------
    Deng, Kamani and Mahdavi, "Adaptive personalized federated learning" (2020), Algorithm 1 and its
    update of alpha; a baseline of Kharrat, Canini and Horváth (2025), DPFL.
    """
    alpha, participants = check_probability("alpha", alpha), sampled(participation)
    check_switch("adaptive", adaptive, auto=False)
    steps_of_both = sgd_descent(
        lr,
        momentum=momentum,
        reset_momentum=True,
        lr_decay=lr_decay,
        weight_decay=weight_decay,
        clip=clip,
    )
    at = mixture(steps_of_both, share=alpha, adaptive=adaptive)
    local = train(
        steps_of_both, batch_size=batch_size, epochs=epochs, participants=participants, at=at
    )
    return chain(
        "apfl",
        local=_of_personal(local),
        server=on_kept_models("local", server_average(participants=participants), "common"),
        mixture=sharing(
            "local", Phase(lambda models: {}, lambda models, state, round: _mix(models, state))
        ),
    )


def _of_personal(phase: Phase) -> Phase:
    """Return the phase that trains and keeps personal models; models then predict as mixtures."""

    def init(models: Models) -> State:
        return phase.init(models) | {"personal": models.flat.clone()}

    def apply(models: Models, state: State, round: Round) -> State:
        phase.apply(models.like(state["personal"]), state, round)
        return _mix(models, state)

    return phase._replace(init=init, apply=apply)


def _mix(models: Models, state: State) -> State:
    torch.lerp(state["common"], state["personal"], state["share"][:, None], out=models.flat)
    return state
