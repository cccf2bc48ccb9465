"""FedAvg."""

from topofl.algorithms.contract.local import fine_tuning, sgd, sgd_arguments
from topofl.algorithms.contract.participation import sampled
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.schedules import Rate
from topofl.algorithms.exchanges.average import server_average

__all__ = ["fedavg"]


def fedavg(
    lr: Rate,
    *,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    fine_tune_epochs: int | None = None,
) -> Algorithm:
    """Return FedAvg: a server averages the models that participating nodes have trained locally.

    Per round, for nodes A drawn at random::

        y_i = x - lr * grad F_i(...)  (`epochs` passes from the server's model x, i in A)
        x   = sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    All nodes then hold ``x``, so the server's model is evaluated. Needs no topology.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round.
    participation
        Number or share of the nodes that take part in a round, as in
        :func:`topofl.algorithms.sampled`.
    epochs
        Passes over a node's data per round.
    fine_tune_epochs
        Passes of every node over its own data, from the server's model, before that is evaluated a
        further time (as ``accuracy_fine_tuned``): what FedAvg is worth as a personal model. The
        step size is `lr` in all rounds. None: the server's model only. DPFL fine-tunes the model
        that is best on a node's validation set: ``history.best_on_validation("accuracy_fine_tuned",
        "accuracy_own_val")``, of runs that fine-tune every time.

    References
    ----------
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data"
    (2017), Algorithm 1.
    """
    participants = sampled(participation)
    rest = sgd_arguments(batch_size, momentum, weight_decay, clip)
    local = sgd(lr, epochs=epochs, lr_decay=lr_decay, participants=participants, **rest)
    fine_tune = fine_tuning(lr, fine_tune_epochs, **rest)
    return chain(
        "fedavg", local=local, server=server_average(participants=participants), fine_tune=fine_tune
    )
