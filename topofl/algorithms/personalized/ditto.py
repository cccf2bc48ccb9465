"""Ditto: personal models near a shared one."""

from topofl._support.check import check_nonnegative, check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import check_epochs, sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, chain, on_kept_models, sampled
from topofl.algorithms.contract.terms import proximal
from topofl.algorithms.exchanges.average import server_average

__all__ = ["ditto"]


@public
def ditto(
    lr: Rate,
    *,
    strength: float = 0.5,
    personal_lr: float | None = None,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 2,
    personal_epochs: int = 3,
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
    rest = (momentum, lr_decay, weight_decay, clip)
    options = {"participants": participants, "terms": [proximal(strength, kept="anchor")]}
    common = sgd_of_rounds(lr, batch_size, epochs, *rest, participants=participants)
    return chain(
        "ditto",
        personal=sgd_of_rounds(own_lr, batch_size, passes, *rest, **options),
        common=on_kept_models("personal", common),
        server=on_kept_models("personal", server_average(participants=participants)),
    )
