"""FedPer: averaged bodies and personal heads."""

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import fine_tuning, sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, chain, sampled
from topofl.algorithms.contract.round import Part, as_part, head
from topofl.algorithms.exchanges.average import server_average

__all__ = ["fedper"]


@public
def fedper(
    lr: Rate,
    *,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
    fine_tune_epochs: int | None = None,
) -> Algorithm:
    """Return FedPer: nodes train body and head together, and the server averages the bodies.

    Per round, with a random set A of participating nodes::

        (u_i, v_i) <- (u_i, v_i) - lr * grad F_i(u_i, v_i)
            (`epochs` passes from the server's body, i in A)
        u          =  sum_{i in A} (m_i / sum_{k in A} m_k) u_i

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    head
        The personal part of the model, or the name of a layer.
    fine_tune_epochs
        As in :func:`topofl.algorithms.fedavg`, for the models of all nodes, not only of
        participants.

    References
    ----------
    Arivazhagan et al., "Federated learning with personalization layers" (2019), Algorithms 1 and 2.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data
    >>> from torch import nn
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> history = topofl.run(fedper(lr=0.1, epochs=1, head="3"), model=net,
    ...                      clients=clients, rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    participants = sampled(participation)
    personal = as_part("head", head)
    local = sgd_of_rounds(
        lr, batch_size, epochs, momentum, lr_decay, weight_decay, clip, participants=participants
    )
    fine_tune = fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    return chain(
        "fedper",
        local=local,
        server=server_average(personal.rest, participants=participants),
        fine_tune=fine_tune,
    )
