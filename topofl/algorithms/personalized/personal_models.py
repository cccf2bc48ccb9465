"""Personal models beside common ones, or made of them: APFL, Ditto, Per-FedAvg and kNN-Per."""

from typing import Any

import torch

from topofl._support.check import check_int, check_nonnegative, check_positive, check_probability
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, lookahead, mixture
from topofl.algorithms.contract.local import (
    Epochs,
    Passes,
    Steps,
    check_epochs,
    fine_tuning,
    sgd_descent,
    sgd_of_rounds,
)
from topofl.algorithms.contract.phase import (
    Algorithm,
    AnyParticipation,
    Neighbors,
    Phase,
    chain,
    on_kept_models,
    sampled,
    sharing,
)
from topofl.algorithms.contract.round import Models, Part, Round, State, as_part, head, no_state
from topofl.algorithms.contract.terms import proximal
from topofl.algorithms.exchanges.average import averaged_by_server, server_average

__all__ = ["apfl", "ditto", "knn_per", "per_fedavg"]


@public
def apfl(
    lr: Rate,
    *,
    alpha: float = 0.5,
    adaptive: bool = True,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
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
    lr, participation, batch_size, epochs, steps, momentum, lr_decay, weight_decay, clip
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
    how = (momentum, lr_decay, weight_decay, clip)
    at = mixture(sgd_descent(lr, *how, reset_momentum=True), share=alpha, adaptive=adaptive)
    local = sgd_of_rounds(
        lr, batch_size, epochs, *how, steps=steps, participants=participants, at=at
    )

    def init(models: Models) -> State:
        return local.init(models) | {"personal": models.flat.clone()}

    def apply(models: Models, state: State, round: Round) -> State:
        local.apply(models.like(state["personal"]), state, round)
        return _mix(models, state, round)

    return chain(
        "apfl",
        local=local._replace(init=init, apply=apply),
        server=on_kept_models("local", server_average(participants=participants), "common"),
        mixture=sharing("local", Phase(no_state, _mix, rowwise=True)),
    )


def _mix(models: Models, state: State, round: Round) -> State:
    """Set the models of the run to mixtures of shared and personal models."""
    torch.lerp(state["common"], state["personal"], state["share"][:, None], out=models.flat)
    return state


@public
def ditto(
    lr: Rate,
    *,
    strength: float = 0.5,
    personal_lr: float | None = None,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Passes = 2,
    personal_epochs: Passes = 3,
    momentum: float = 0.0,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return Ditto: personal models with a proximal term that pulls to FedAvg's model.

    Per round, with a random set A of participating nodes and the server's model ``w``::

        theta_i <- theta_i - personal_lr * (grad F_i(theta_i) + strength * (theta_i - w))
            (`personal_epochs` passes)
        y_i     <- w - lr * grad F_i(...)  (`epochs` passes)
        w       =  sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    Evaluations and the consensus distance are those of the personal models ``theta_i``, although
    only ``w`` is communicated.

    Parameters
    ----------
    lr, participation, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    strength
        The paper's lambda, at least 0; with 0 each node trains alone.
    personal_lr
        Step size of the personal models; None: `lr`.
    epochs, personal_epochs
        Passes over a node's data per round, for the server's model and for the personal one.

    References
    ----------
    Li et al., "Ditto: fair and robust federated learning through personalization" (2021), Algorithm
    1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0, test_fraction=0.2)
    >>> history = topofl.run(ditto(lr=0.1, epochs=1, personal_epochs=3),
    ...                      model=models.logistic_regression(64), clients=clients,
    ...                      rounds=2, seed=0, evaluation="own_test")
    >>> bool(history.last("accuracy").mean() > 0.6)
    True
    """
    strength = check_nonnegative("strength", strength)
    participants = sampled(participation)
    own_lr = lr if personal_lr is None else check_positive("personal_lr", personal_lr)
    passes = check_epochs("personal_epochs", personal_epochs)
    how = (momentum, lr_decay, weight_decay, clip)
    options: dict[str, Any] = {"participants": participants}
    options["terms"] = [proximal(strength, kept="anchor")]
    common = sgd_of_rounds(lr, batch_size, epochs, *how, participants=participants)
    return chain(
        "ditto",
        personal=sgd_of_rounds(own_lr, batch_size, passes, *how, **options),
        common=on_kept_models("personal", common),
        server=on_kept_models("personal", server_average(participants=participants)),
    )


@public
def per_fedavg(
    lr: Rate,
    *,
    inner_lr: float = 0.01,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    fine_tune_epochs: float | None = 1,
) -> Algorithm:
    """Return first-order Per-FedAvg: meta-learning of a model that nodes adapt in a few steps.

    Per round, with a random set A of participating nodes and successive minibatches D and D' of a
    node's data::

        y_i <- y_i - lr * grad F_i(y_i - inner_lr * grad F_i(y_i; D); D')
            (from the server's model x, i in A)
        x   =  sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    This is Per-FedAvg (FO), which omits the factor ``I - inner_lr * Hessian`` of the gradient. A
    step uses two minibatches, so a pass over the data has half as many steps as in FedAvg, rounded
    up. The method evaluates the server's model after adaptation, as ``accuracy_fine_tuned``: each
    node trains a copy on its own data.

    Parameters
    ----------
    lr, participation, batch_size, epochs, steps, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`; `lr` is the paper's beta. All but `lr` and
        `participation` apply to the outer step only; the inner step is plain SGD.
    inner_lr
        Step size of the adaptation in training and before the evaluation, the same in all rounds;
        the paper's alpha.
    fine_tune_epochs
        Passes of plain SGD over a node's own data before the evaluation. The paper takes one step;
        DPFL does not specify it. None: only the server's model is evaluated.

    References
    ----------
    Fallah, Mokhtari and Ozdaglar, "Personalized federated learning with theoretical guarantees: a
    model-agnostic meta-learning approach" (2020), Algorithm 1 and section 5; a baseline of Kharrat,
    Canini and Horváth (2025), DPFL.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0, test_fraction=0.2)
    >>> history = topofl.run(per_fedavg(lr=0.1, epochs=1), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=2, seed=0, evaluation="own_test")
    >>> bool(history.last("accuracy_fine_tuned").mean() > history.last("accuracy").mean())
    True
    """
    how = (momentum, lr_decay, weight_decay, clip)
    at, tuned = lookahead(inner_lr), fine_tuning(inner_lr, fine_tune_epochs, batch_size)
    return averaged_by_server(
        "per_fedavg", participation, lr, batch_size, epochs, *how, steps=steps, at=at, tuned=tuned
    )


@public
def knn_per(
    lr: Rate,
    *,
    k: int = 10,
    weight: float = 0.5,
    scale: float = 1.0,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
) -> Algorithm:
    """Return kNN-Per: FedAvg's model interpolated with k-nearest neighbors among a node's examples.

    Training is that of :func:`topofl.algorithms.fedavg`. A second evaluation, reported as
    ``accuracy_knn`` and ``loss_knn``, combines the server's model with the node's own training
    examples, compared by their features ``phi``, the inputs of the head::

        p(c | x) = weight * sum_{j in N(x), y_j = c} K(x, x_j) / sum_{j in N(x)} K(x, x_j)
                   + (1 - weight) * softmax(model(x))_c
        K(x, x_j) = exp(-|phi(x) - phi(x_j)|^2 / (dim(phi) * scale))
        N(x) = the `k` nearest training examples, or all if there are fewer

    Ties are broken arbitrarily. Each evaluation takes, per node, one forward pass over its training
    data and one over the evaluated data: ``evaluation="own_test"`` keeps the latter small.

    Parameters
    ----------
    lr, participation, batch_size, epochs, steps, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    k, weight
        Number of neighbors that vote, and their weight between 0 and 1, the paper's lambda. DPFL
        uses 10 and 0.5 at all nodes; the paper chooses each client's weight by validation.
    scale
        Scale of the kernel: larger values weight the neighbors more evenly. 1 in the authors' code.
    head
        The layer of the model whose inputs are compared, or its name.

    References
    ----------
    Marfoq et al., "Personalized federated learning through local memorization" (2022), with the
    kernel of the authors' code; a baseline of Kharrat, Canini and Horváth (2025), DPFL.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0, test_fraction=0.2)
    >>> history = topofl.run(knn_per(lr=0.1, epochs=1), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=2, seed=0, evaluation="own_test")
    >>> bool(history.last("accuracy_knn").mean() > history.last("accuracy").mean())
    True
    """
    neighbors = Neighbors(
        check_int("k", k, minimum=1),
        check_probability("weight", weight),
        check_positive("scale", scale),
        as_part("head", head),
    )
    how = (momentum, lr_decay, weight_decay, clip)
    return averaged_by_server(
        "knn_per", participation, lr, batch_size, epochs, *how, steps=steps, neighbors=neighbors
    )
