"""FedBABU: federated training of bodies with fixed heads."""

from topofl._support.check import check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import fine_tuning, sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, chain, sampled
from topofl.algorithms.contract.round import Part, as_part, head
from topofl.algorithms.exchanges.average import server_average

__all__ = ["fedbabu"]


@public
def fedbabu(
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
    fine_tune_epochs: int | None = 5,
    fine_tune_lr: float | None = None,
) -> Algorithm:
    """Return FedBABU: only bodies are trained and averaged; heads keep their initial values.

    Per round, with a random set A of participating nodes and the initial head ``v`` of all nodes::

        u_i <- u_i - lr * grad_u F_i(u_i, v)  (`epochs` passes from the server's body, i in A)
        u   =  sum_{i in A} (m_i / sum_{k in A} m_k) u_i

    Heads are equal only if all models start equal, as by default. The method evaluates fine-tuned
    models, as ``accuracy_fine_tuned``: copies of all nodes' models whose heads and bodies were
    trained on their own data.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip, head
        As in :func:`topofl.algorithms.fedper`.
    fine_tune_epochs
        Passes over a node's own data before the evaluation; 5 in the paper. None: no fine-tuning.
    fine_tune_lr
        Step size of fine-tuning, the same in all rounds; None: `lr`.

    References
    ----------
    Oh, Kim and Yun, "FedBABU" (2022), Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data
    >>> from torch import nn
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0, test_fraction=0.2)
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> history = topofl.run(fedbabu(lr=0.1, epochs=1, head="3", fine_tune_epochs=1), model=net,
    ...                      clients=clients, rounds=2, seed=0, evaluation="own_test")
    >>> bool(history.last("accuracy_fine_tuned").mean() > history.last("accuracy").mean())
    True
    """
    participants = sampled(participation)
    personal = as_part("head", head)
    options = {"participants": participants, "part": personal.rest}
    local = sgd_of_rounds(lr, batch_size, epochs, momentum, lr_decay, weight_decay, clip, **options)
    tuned_lr = lr if fine_tune_lr is None else check_positive("fine_tune_lr", fine_tune_lr)
    fine_tune = fine_tuning(tuned_lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    return chain(
        "fedbabu",
        body=local,
        server=server_average(personal.rest, participants=participants),
        fine_tune=fine_tune,
    )
