"""FedPer."""

from topofl.algorithms.contract.local import fine_tuning, sgd, sgd_arguments
from topofl.algorithms.contract.participation import sampled
from topofl.algorithms.contract.parts import Part, as_part, head
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.schedules import Rate
from topofl.algorithms.exchanges.average import server_average

__all__ = ["fedper"]


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
    """Return FedPer: body and head are trained together, the server averages bodies only.

    Per round, for nodes A drawn at random::

        (u_i, v_i) <- (u_i, v_i) - lr * grad F_i(u_i, v_i)
            (`epochs` passes from the server's body, i in A)
        u          =  sum_{i in A} (m_i / sum_{k in A} m_k) u_i

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    head
        What stays at its node: a part of the model, or the name of a layer.
    fine_tune_epochs
        As in :func:`topofl.algorithms.fedavg`: what all nodes' models are worth after local passes,
        not only those that took part.

    References
    ----------
    Arivazhagan et al., "Federated learning with personalization layers" (2019), Algorithms 1 and 2.
    """
    participants, personal = sampled(participation), as_part("head", head)
    rest = sgd_arguments(batch_size, momentum, weight_decay, clip)
    local = sgd(lr, epochs=epochs, lr_decay=lr_decay, participants=participants, **rest)
    fine_tune = fine_tuning(lr, fine_tune_epochs, **rest)
    return chain(
        "fedper",
        local=local,
        server=server_average(personal.rest, participants=participants),
        fine_tune=fine_tune,
    )
