"""APFL: mixtures of a shared and a personal model."""

import torch

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, mixture
from topofl.algorithms.contract.local import sgd_descent, train
from topofl.algorithms.contract.phase import (
    Algorithm,
    Phase,
    chain,
    on_kept_models,
    sampled,
    sharing,
)
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.algorithms.exchanges.average import server_average

__all__ = ["apfl"]


@public
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

    Per round, with a random set A of participating nodes and ``z_i = alpha_i v_i + (1 - alpha_i)
    w_i``; both models train on the same minibatches (`epochs` passes, i in A)::

        v_i     <- v_i - lr * alpha_i * grad F_i(z_i)
        w_i     <- w_i - lr * grad F_i(w_i)  (from the server's model w)
        alpha_i <- alpha_i - lr * <grad F_i(z_i), v_i - w_i>, cut to [0, 1]
            (in the first step of a round only)
        w       =  sum_{i in A} (m_i / sum_{k in A} m_k) w_i

    The right-hand sides use the values before the step. The mixtures are evaluated: at the end of
    the round with the server's model ``w``, before the exchange with the node's ``w_i``. The
    consensus distance is also that of the mixtures, although only ``w`` is communicated.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`, for both models; `alpha` is updated by plain steps,
        and `clip` applies to the gradient with respect to ``v_i``, which includes the factor
        `alpha`.
    alpha
        Initial weight of the personal model, between 0 and 1.
    adaptive
        Whether each node adapts its `alpha`. The paper and its code update it "at every
        communication round"; the code adds a decay of 0.02 that the paper does not have.

    References
    ----------
    Deng, Kamani and Mahdavi, "Adaptive personalized federated learning" (2020), Algorithm 1 and its
    update of alpha; a baseline of Kharrat, Canini and Horváth (2025), DPFL.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> history = topofl.run(apfl(lr=0.1, epochs=1), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    participants = sampled(participation)
    steps_of_both = sgd_descent(lr, momentum, lr_decay, weight_decay, clip, reset_momentum=True)
    at = mixture(steps_of_both, share=alpha, adaptive=adaptive)
    local = train(
        steps_of_both, batch_size=batch_size, epochs=epochs, participants=participants, at=at
    )
    return chain(
        "apfl",
        local=_of_personal(local),
        server=on_kept_models("local", server_average(participants=participants), "common"),
        mixture=sharing("local", Phase(no_state, _mix, rowwise=True)),
    )


def _of_personal(phase: Phase) -> Phase:
    """Return `phase` with personal models in its state; the models of the run become mixtures."""

    def init(models: Models) -> State:
        return phase.init(models) | {"personal": models.flat.clone()}

    def apply(models: Models, state: State, round: Round) -> State:
        phase.apply(models.like(state["personal"]), state, round)
        return _mix(models, state, round)

    return phase._replace(init=init, apply=apply)


def _mix(models: Models, state: State, round: Round) -> State:
    """Set the models of the run to mixtures of shared and personal models."""
    torch.lerp(state["common"], state["personal"], state["share"][:, None], out=models.flat)
    return state
