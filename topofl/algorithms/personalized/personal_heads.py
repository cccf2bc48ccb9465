"""Personal parts of shared models: FedPer, FedBN, FedRep, FedBABU and DFedPGP."""

from typing import Any

from topofl._support.check import check_choice, check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import (
    Epochs,
    Passes,
    Steps,
    check_epochs,
    fine_tuning,
    sgd_of_rounds,
)
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, AnyParticipation, chain, sampled
from topofl.algorithms.contract.round import Part, as_part, head
from topofl.algorithms.exchanges.average import averaged_by_server, gossip, push_sum, server_average

__all__ = ["dfedpgp", "fedbabu", "fedbn", "fedper", "fedrep"]


@public
def fedper(
    lr: Rate,
    *,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
    fine_tune_epochs: float | None = None,
) -> Algorithm:
    """Return FedPer: nodes train body and head together, and the server averages the bodies.

    Per round, with a random set A of participating nodes::

        (u_i, v_i) <- (u_i, v_i) - lr * grad F_i(u_i, v_i)
            (`epochs` passes from the server's body, i in A)
        u          =  sum_{i in A} (m_i / sum_{k in A} m_k) u_i

    Parameters
    ----------
    lr, participation, batch_size, epochs, steps, momentum, lr_decay, weight_decay, clip
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
    how = (momentum, lr_decay, weight_decay, clip)
    tuned = fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    shared = as_part("head", head).rest
    return averaged_by_server(
        "fedper",
        participation,
        lr,
        batch_size,
        epochs,
        *how,
        steps=steps,
        share=shared,
        tuned=tuned,
    )


@public
def fedbn(
    lr: Rate,
    *,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    local: Part | str = "*Norm*()",
    fine_tune_epochs: float | None = None,
) -> Algorithm:
    """Return FedBN: FedAvg in which each node keeps its own normalization layers.

    The scale, shift and running statistics of these layers fit a node's own inputs, and are neither
    sent nor averaged; all other layers are those of :func:`topofl.algorithms.fedavg`.

    Parameters
    ----------
    lr, participation, batch_size, epochs, steps, momentum, lr_decay, weight_decay, clip
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
    how = (momentum, lr_decay, weight_decay, clip)
    tuned = fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    shared = as_part("local", local).rest
    return averaged_by_server(
        "fedbn", participation, lr, batch_size, epochs, *how, steps=steps, share=shared, tuned=tuned
    )


@public
def fedrep(
    lr: Rate,
    *,
    head_lr: Rate | None = None,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Passes = 5,
    head_epochs: Passes = 1,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
    fine_tune_epochs: float | None = None,
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
    how = (momentum, lr_decay, weight_decay, clip)
    local = (head_lr, head_epochs, lr, batch_size, epochs, *how)
    return chain(
        "fedrep",
        **heads_and_bodies(personal, *local, participants=participants),
        server=server_average(personal.rest, participants=participants),
        fine_tune=fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip),
    )


@public
def fedbabu(
    lr: Rate,
    *,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
    fine_tune_epochs: float | None = 5,
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
    lr, participation, batch_size, epochs, steps, momentum, lr_decay, weight_decay, clip, head
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
    shared = as_part("head", head).rest
    local = (lr, batch_size, epochs, momentum, lr_decay, weight_decay, clip)
    tuned_lr = lr if fine_tune_lr is None else check_positive("fine_tune_lr", fine_tune_lr)
    tuned = fine_tuning(tuned_lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    return averaged_by_server(
        "fedbabu",
        participation,
        *local,
        steps=steps,
        phase="body",
        part=shared,
        share=shared,
        tuned=tuned,
    )


@public
@needing(equal_shares, when={"mode": "pull"})
def dfedpgp(
    lr: Rate,
    *,
    mode: str = "pull",
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
    """Return DFedPGP: personal heads, and bodies averaged over directed graphs.

    Per round, for every node i with body ``u_i`` and head ``v_i``, each trained while the other is
    frozen::

        v_i <- v_i - head_lr * grad_v F_i(z_i, v_i)           (`head_epochs` passes)
        u_i <- u_i - lr * grad_u F_i(z_i, v_i),  z_i = u_i / mu_i  (`epochs` passes, mu_i as it is)
        push:  u_i <- sum_j P[i, j] u_j,  mu_i <- sum_j P[i, j] mu_j,  z_i = u_i / mu_i
            (columns of P sum to 1)
        pull:  u_i <- sum_j W[i, j] u_j  (rows of W sum to 1)

    See the page :doc:`DFedPGP, from paper to code </docs/papers/dfedpgp>`.

    Parameters
    ----------
    lr, head_lr
        Step sizes of the body and of the head in round 0.
    mode
        ``"push"``: push-sum, as in Algorithm 1 and the theory of the paper, for example over
        ``topologies.random_out``. ``"pull"``: as in its experiments (appendix B), where rows sum to
        1 and all ``mu_i`` stay 1, for example over ``topologies.random_in``. A directed
        graph, static or periodic, may then give nodes unequal shares in the average
        (:func:`topofl.metrics.perron_vector`), of which a run warns.
    epochs, head_epochs
        Passes over a node's data per round; the paper's 5 and 1.
    batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round and phase. If
        nodes push to few others, some weights ``mu_i`` become small at times (see
        ``history["smallest_push_weight"]``), and steps, which are divided by them, become large:
        `clip` and an `lr_decay` below 1 keep long runs stable.
    head
        The personal part of the model, or the name of a layer.

    References
    ----------
    Liu et al., "Decentralized directed collaboration for personalized federated learning" (2024),
    Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, topologies
    >>> from torch import nn
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> history = topofl.run(dfedpgp(lr=0.1, epochs=1, head="3"), model=net,
    ...                      clients=clients, topology=topologies.random_in(4, 2, seed=0),
    ...                      rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    check_choice("mode", mode, ["push", "pull"])
    head_lr = check_positive("head_lr", head_lr)
    personal = as_part("head", head)
    how = (momentum, lr_decay, weight_decay, clip)
    phases = heads_and_bodies(personal, head_lr, head_epochs, lr, batch_size, epochs, *how)
    exchange = push_sum if mode == "push" else gossip
    return chain("dfedpgp", **phases, exchange=exchange(personal.rest))


def heads_and_bodies(
    personal: Part, head_lr: Rate, head_epochs: Any, *body: Any, **options: Any
) -> dict[str, Any]:
    """Return the phases that train heads, with bodies frozen, then bodies, with heads frozen.

    `body` and `options` are the arguments of ``sgd_of_rounds`` for bodies.
    """
    _, batch_size, _, *how = body
    passes = check_epochs("head_epochs", head_epochs)
    head = sgd_of_rounds(head_lr, batch_size, passes, *how, part=personal, **options)
    return {"head": head, "body": sgd_of_rounds(*body, part=personal.rest, **options)}
