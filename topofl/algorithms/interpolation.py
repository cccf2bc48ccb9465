"""Methods that predict with something between what is common and what is personal."""

import torch

from topofl._check import check_int, check_positive, check_probability, check_switch
from topofl.algorithms.exchange import server_average
from topofl.algorithms.federated import steps
from topofl.algorithms.local import sgd, train, usual
from topofl.algorithms.participation import sampled
from topofl.algorithms.parts import Part, as_part, head
from topofl.algorithms.phase import Algorithm, Neighbors, Phase, beside, chain, sharing
from topofl.algorithms.points import mixture
from topofl.algorithms.round import Models, Round, State

__all__ = ["apfl", "knn_per"]


def apfl(
    lr: float,
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
    """Return APFL: each node predicts with a mixture of the model that FedAvg finds and one of its own.

    Per round, for nodes A drawn at random, with ``z_i = alpha_i v_i + (1 - alpha_i) w_i``, and both models trained
    on the same minibatches (`epochs` passes, i in A)::

        v_i     <- v_i - lr * alpha_i * grad F_i(z_i)
        w_i     <- w_i - lr * grad F_i(w_i)                                 (from the server's model w)
        alpha_i <- alpha_i - lr * <grad F_i(z_i), v_i - w_i>, cut to [0, 1]    (in the first step of a round only)
        w       =  sum_{i in A} (m_i / sum_{k in A} m_k) w_i

    The right-hand sides are of before the step. Evaluated are the mixtures, at the end of the round with the server's
    model, before the exchange with the node's own; the consensus distance is theirs too, though only ``w`` travels.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`, of both models; `alpha` takes plain steps, and `clip` is of the gradient
        by ``v_i``, which `alpha` is a factor of.
    alpha
        Between 0 and 1, at the start: the share of the personal model.
    adaptive
        Whether it changes, at each node by itself. The paper updates it "at every communication round", and so does its
        code, which adds a decay of 0.02 that the paper does not have.

    References
    ----------
    Deng, Kamani and Mahdavi, "Adaptive personalized federated learning" (2020), Algorithm 1 and its update of alpha; a
    baseline of Kharrat, Canini and Horváth (2025), DPFL.
    """
    alpha, who = check_probability("alpha", alpha), sampled(participation)
    check_switch("adaptive", adaptive, auto=False)
    steps_of_both = usual(
        lr, momentum=momentum, reset_momentum=True, lr_decay=lr_decay, weight_decay=weight_decay, clip=clip
    )  # fmt: skip
    at = mixture(steps_of_both, share=alpha, adaptive=adaptive)
    local = train(steps_of_both, batch_size=batch_size, epochs=epochs, who=who, at=at)
    return chain(
        "apfl",
        local=_of_personal(local),
        server=beside("local", server_average(who=who), "common"),
        mixture=sharing("local", Phase(lambda models: {}, lambda models, state, round: _mix(models, state))),
    )


def _of_personal(phase: Phase) -> Phase:
    """Return the phase that trains personal models, which it keeps; models then predict as mixtures."""

    def init(models: Models) -> State:
        return phase.init(models) | {"personal": models.flat.clone()}

    def apply(models: Models, state: State, round: Round) -> State:
        phase.apply(models.like(state["personal"]), state, round)
        return _mix(models, state)

    return phase._replace(init=init, apply=apply)


def _mix(models: Models, state: State) -> State:
    torch.lerp(state["common"], state["personal"], state["share"][:, None], out=models.flat)
    return state


def knn_per(
    lr: float,
    *,
    k: int = 10,
    weight: float = 0.5,
    scale: float = 1.0,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
) -> Algorithm:
    """Return kNN-Per: FedAvg, whose model predicts together with each node's nearest own examples.

    Training is that of :func:`topofl.algorithms.fedavg`. The method evaluates the server's model a further time, as
    ``accuracy_knn`` and ``loss_knn``, with features ``phi``, the input of its head, of the node's own training data::

        p(c | x) = weight * sum_{j in N(x), y_j = c} K(x, x_j) / sum_{j in N(x)} K(x, x_j)
                   + (1 - weight) * softmax(model(x))_c
        K(x, x_j) = exp(-|phi(x) - phi(x_j)|^2 / (dim(phi) * scale)),   N(x): the `k` nearest, or all if there are fewer

    Of equally near ones any is taken. This happens at every evaluation and takes, at each node, one pass of its model
    over its training data and one over what is evaluated: own test sets, ``evaluation="own_test"``, are small.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    k, weight
        How many neighbors vote, and their weight, the paper's lambda, between 0 and 1. DPFL has 10 and 0.5, one of each
        for all; the paper chooses the weight of each client by validation.
    scale
        The larger, the less nearness counts; the authors' code has 1.
    head
        One layer of the model, whose inputs are compared, or its name.

    References
    ----------
    Marfoq et al., "Personalized federated learning through local memorization" (2022), with the kernel of the authors'
    code; a baseline of Kharrat, Canini and Horváth (2025), DPFL.
    """
    neighbors = Neighbors(
        check_int("k", k, minimum=1), check_probability("weight", weight), check_positive("scale", scale),
        as_part("head", head),
    )  # fmt: skip
    who = sampled(participation)
    local = sgd(lr, epochs=epochs, lr_decay=lr_decay, who=who, **steps(batch_size, momentum, weight_decay, clip))
    return chain("knn_per", local=local, server=server_average(who=who), neighbors=neighbors)
