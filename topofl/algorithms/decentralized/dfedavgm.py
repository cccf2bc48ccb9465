"""DFedAvgM, and its variant with personal heads."""

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import sgd_of_rounds
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.round import Part, head
from topofl.algorithms.exchanges.average import gossip
from topofl.algorithms.personalized.dfedpgp import dfedpgp

__all__ = ["dfedavgm", "dfedavgm_p"]


@public
@needing(equal_shares)
def dfedavgm(
    lr: Rate,
    *,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return DFedAvgM: local epochs of heavy-ball SGD, then averaging with the neighbors.

    Per round, for every node i, from ``y^0 = y^-1 = x_i``::

        y^(k+1) = y^k - lr * grad F_i(y^k) + momentum * (y^k - y^(k-1))      (`epochs` passes)
        x_i     = sum_j W[i, j] y_j^K

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`); a run then warns that it weights their losses by
    these shares. :func:`topofl.algorithms.sab`, :func:`topofl.algorithms.osgp` and
    :func:`topofl.algorithms.push_diging` weight all nodes equally.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round.
    epochs
        Passes over a node's data per round.

    References
    ----------
    Sun, Li and Wang, "Decentralized federated averaging" (2022), Algorithm 1; a baseline of
    DFedPGP.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> history = topofl.run(dfedavgm(lr=0.1, epochs=1), model=models.logistic_regression(64),
    ...                      clients=clients, topology=topologies.ring(4), rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    local = sgd_of_rounds(lr, batch_size, epochs, momentum, lr_decay, weight_decay, clip)
    return chain("dfedavgm", local=local, exchange=gossip())


@public
@needing(equal_shares)
def dfedavgm_p(
    lr: Rate,
    *,
    head_lr: float = 0.001,
    batch_size: int = 128,
    epochs: int = 5,
    head_epochs: int = 1,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
) -> Algorithm:
    """Return DFedAvgM-P: DFedAvgM with personal heads, an ablation of DFedPGP.

    As in :func:`topofl.algorithms.dfedpgp`, nodes train heads, then bodies, and then average
    bodies, ``u_i <- sum_j W[i, j] u_j``: only the graph differs.

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`); a run then warns that it weights their losses by
    these shares. :func:`topofl.algorithms.sab`, :func:`topofl.algorithms.osgp` and
    :func:`topofl.algorithms.push_diging` weight all nodes equally.

    Parameters
    ----------
    lr, head_lr, batch_size, epochs, head_epochs, momentum, lr_decay, weight_decay, clip, head
        As in :func:`topofl.algorithms.dfedpgp`.

    References
    ----------
    Liu et al., "DFedPGP" (2024), Table 4, which does not specify whether training alternates.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, topologies
    >>> from torch import nn
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> history = topofl.run(dfedavgm_p(lr=0.1, epochs=1, head="3"), model=net,
    ...                      clients=clients, topology=topologies.ring(4), rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    same = dfedpgp(
        lr,
        head_lr=head_lr,
        batch_size=batch_size,
        epochs=epochs,
        head_epochs=head_epochs,
        momentum=momentum,
        lr_decay=lr_decay,
        weight_decay=weight_decay,
        clip=clip,
        head=head,
    )
    return Algorithm("dfedavgm_p", same.phases)
