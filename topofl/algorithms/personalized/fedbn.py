"""FedBN: local normalization layers."""

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import fine_tuning, sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, chain, sampled
from topofl.algorithms.contract.round import Part, as_part
from topofl.algorithms.exchanges.average import server_average

__all__ = ["fedbn"]


@public
def fedbn(
    lr: Rate,
    *,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    local: Part | str = "*Norm*()",
    fine_tune_epochs: int | None = None,
) -> Algorithm:
    """Return FedBN: FedAvg in which each node keeps its own normalization layers.

    The scale, shift and running statistics of these layers fit a node's own inputs, and are neither
    sent nor averaged; all other layers are those of :func:`topofl.algorithms.fedavg`.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    local
        The layers that each node keeps: by default all whose type has ``Norm`` in its name, such as
        ``nn.BatchNorm2d``, ``nn.GroupNorm`` and ``nn.LayerNorm``.
    fine_tune_epochs
        As in :func:`topofl.algorithms.fedavg`, for the models of all nodes, not only of
        participants.

    References
    ----------
    Li et al., "FedBN: Federated learning on non-IID features via local batch normalization" (2021),
    Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data
    >>> from torch import nn
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(),
    ...                     nn.Linear(16, 10))
    >>> history = topofl.run(fedbn(lr=0.1, epochs=1), model=net, clients=clients, rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    participants = sampled(participation)
    training = sgd_of_rounds(
        lr, batch_size, epochs, momentum, lr_decay, weight_decay, clip, participants=participants
    )
    fine_tune = fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    shared = as_part("local", local).rest
    return chain(
        "fedbn",
        local=training,
        server=server_average(shared, participants=participants),
        fine_tune=fine_tune,
    )
