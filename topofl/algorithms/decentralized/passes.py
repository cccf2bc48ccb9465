"""Passes over the local data between two exchanges: DFedAvgM, DFedSAM, and SGP."""

from topofl._support.check import check_int, check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, ascent
from topofl.algorithms.contract.local import Epochs, Passes, Steps, sgd_of_rounds
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.round import Models, Part, Round, State, as_part, head
from topofl.algorithms.exchanges.average import gossip, push_sum
from topofl.algorithms.personalized.personal_heads import heads_and_bodies

__all__ = ["dfedavgm", "dfedavgm_p", "dfedsam", "osgp"]


@public
@needing(equal_shares)
def dfedavgm(
    lr: Rate,
    *,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
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
    epochs, steps
        As in :func:`topofl.algorithms.fedavg`.

    References
    ----------
    Sun, Li and Wang, "Decentralized federated averaging" (2023), Algorithm 1; a baseline of
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
    how = (momentum, lr_decay, weight_decay, clip)
    local = sgd_of_rounds(lr, batch_size, epochs, *how, steps=steps)
    return chain("dfedavgm", local=local, exchange=gossip())


@public
@needing(equal_shares)
def dfedavgm_p(
    lr: Rate,
    *,
    head_lr: float = 0.001,
    batch_size: int = 128,
    epochs: Passes = 5,
    head_epochs: Passes = 1,
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
    head_lr, personal = check_positive("head_lr", head_lr), as_part("head", head)
    how = (momentum, lr_decay, weight_decay, clip)
    phases = heads_and_bodies(personal, head_lr, head_epochs, lr, batch_size, epochs, *how)
    return chain("dfedavgm_p", **phases, exchange=gossip(personal.rest))


@public
@needing(equal_shares)
def dfedsam(
    lr: Rate,
    *,
    radius: float = 0.01,
    gossip_steps: int = 1,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.0,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return DFedSAM: sharpness-aware local training, then one or several gossip steps.

    Per round, for every node i, from ``y = x_i``::

        g   = grad F(y; S_i)
        y   = y - lr * grad F(y + radius * g / (||g|| + 1e-12); S_i)         (`epochs` passes)
        z_i = y
        z_i = sum_j W[i, j] z_j                                              (`gossip_steps` times)
        x_i = z_i

    A step computes two gradients on the same minibatch. Each of the `gossip_steps` exchanges sends
    a model along every edge. The theory assumes symmetric, doubly stochastic weights.

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`); a run then warns that it weights their losses by
    these shares. :func:`topofl.algorithms.sab`, :func:`topofl.algorithms.osgp` and
    :func:`topofl.algorithms.push_diging` weight all nodes equally.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum, which Algorithm 1 of the paper does not have,
        starts from zero in every round.
    radius
        Distance to the point uphill at which gradients are taken, above 0.
    gossip_steps
        Exchanges per round (the paper's Q): 1 is DFedSAM, more are DFedSAM-MGS.
    epochs, steps
        As in :func:`topofl.algorithms.fedavg`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    Some public code averages at the beginning of a round instead of its end; from equal initial
    models, nodes then train from the same models.

    References
    ----------
    Shi, Shen, Wei, Sun, Yuan, Wang and Tao, "Improving the model consistency of decentralized
    federated learning" (2023), Algorithm 1; Foret et al., "Sharpness-aware minimization for
    efficiently improving generalization" (2021).

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 10, "seed": 0}
    >>> once, often = (
    ...     topofl.run(dfedsam(lr=0.1, epochs=1, gossip_steps=q), **how) for q in (1, 4)
    ... )
    >>> bool(often["consensus_distance"][-1] < once["consensus_distance"][-1])
    True
    >>> int(often["bytes"][-1] // once["bytes"][-1])
    4
    """
    how = (momentum, lr_decay, weight_decay, clip)
    local = sgd_of_rounds(lr, batch_size, epochs, *how, steps=steps, at=ascent(radius))
    times, once = check_int("gossip_steps", gossip_steps, minimum=1), gossip()

    def several(models: Models, state: State, round: Round) -> State:
        for _ in range(times):
            once.apply(models, state, round)
        return state

    exchange = once._replace(apply=several, settings={**once.settings, "gossip_steps": times})
    return chain("dfedsam", local=local, exchange=exchange)


@public
def osgp(
    lr: Rate,
    *,
    delay: int = 0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return stochastic gradient push (SGP), or with a delay, its overlapping variant (OSGP).

    Per round, for every node i, with ``z_i = x_i / mu_i``::

        x_i  <- x_i - lr * grad F_i(z_i)                         (`epochs` passes, fixed mu_i)
        x_i  <- sum_j P[i, j] x_j,   mu_i <- sum_j P[i, j] mu_j  (columns of P sum to 1)

    With a delay, a node continues with the share that it keeps, and messages are added `delay`
    rounds after they were sent. Nodes still send in every round; in the original they send every
    `delay` rounds, which is the same for 0 and 1.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round.
    delay
        Number of rounds until messages arrive; 0: in the same round (SGP).
    epochs, steps
        As in :func:`topofl.algorithms.fedavg`; the original takes one step.

    References
    ----------
    Assran et al., "Stochastic Gradient Push for distributed deep learning" (2019), Algorithms 1 and
    2; with local epochs, a baseline of Liu et al. (2024), DFedPGP.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> history = topofl.run(osgp(lr=0.1, epochs=1), model=models.logistic_regression(64),
    ...                      clients=clients, topology=topologies.random_out(4, 2, seed=0),
    ...                      rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    how = (momentum, lr_decay, weight_decay, clip)
    local = sgd_of_rounds(lr, batch_size, epochs, *how, steps=steps)
    return chain("osgp", local=local, exchange=push_sum(delay=delay))
