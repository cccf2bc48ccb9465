"""FedRep: averaged bodies, and heads that are trained first."""

from topofl._support.check import check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import check_epochs, fine_tuning, sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, chain, sampled
from topofl.algorithms.contract.round import Part, as_part, head
from topofl.algorithms.exchanges.average import server_average

__all__ = ["fedrep"]


@public
def fedrep(
    lr: Rate,
    *,
    head_lr: Rate | None = None,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    head_epochs: int = 1,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
    fine_tune_epochs: int | None = None,
) -> Algorithm:
    """Return FedRep: nodes train the head, then the body, and the server averages the bodies.

    Per round, with a random set A of participating nodes::

        v_i <- v_i - head_lr * grad_v F_i(u, v_i)           (`head_epochs` passes, i in A)
        u_i <- u_i - lr * grad_u F_i(u_i, v_i)              (`epochs` passes)
        u   =  sum_{i in A} (m_i / sum_{k in A} m_k) u_i

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip, head,
    fine_tune_epochs
        As in :func:`topofl.algorithms.fedper`.
    head_lr
        Step size of the head; None: `lr`.
    head_epochs
        Passes over a node's data that train the head, with the body frozen.

    References
    ----------
    Collins et al., "Exploiting shared representations for personalized federated learning" (2021),
    Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data
    >>> from torch import nn
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> history = topofl.run(fedrep(lr=0.1, epochs=1, head="3"), model=net,
    ...                      clients=clients, rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    participants = sampled(participation)
    personal = as_part("head", head)
    head_lr = lr if head_lr is None else check_positive("head_lr", head_lr)
    passes = check_epochs("head_epochs", head_epochs)
    rest = (momentum, lr_decay, weight_decay, clip)
    on_head = {"participants": participants, "part": personal}
    on_body = {"participants": participants, "part": personal.rest}
    return chain(
        "fedrep",
        head=sgd_of_rounds(head_lr, batch_size, passes, *rest, **on_head),
        body=sgd_of_rounds(lr, batch_size, epochs, *rest, **on_body),
        server=server_average(personal.rest, participants=participants),
        fine_tune=fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip),
    )
