"""Per-FedAvg: meta-learning of a model that nodes adapt in a few steps."""

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, lookahead
from topofl.algorithms.contract.local import fine_tuning, sgd_descent, train
from topofl.algorithms.contract.phase import Algorithm, chain, sampled
from topofl.algorithms.exchanges.average import server_average

__all__ = ["per_fedavg"]


@public
def per_fedavg(
    lr: Rate,
    *,
    inner_lr: float = 0.01,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    fine_tune_epochs: int | None = 1,
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
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
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
    participants = sampled(participation)
    descent = sgd_descent(lr, momentum, lr_decay, weight_decay, clip, reset_momentum=True)
    local = train(
        descent,
        batch_size=batch_size,
        epochs=epochs,
        participants=participants,
        at=lookahead(inner_lr),
    )
    fine_tune = fine_tuning(inner_lr, fine_tune_epochs, batch_size)
    return chain(
        "per_fedavg",
        local=local,
        server=server_average(participants=participants),
        fine_tune=fine_tune,
    )
