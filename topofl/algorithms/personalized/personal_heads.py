"""Personal heads on shared bodies: FedPer, FedRep, FedBABU and DFedPGP."""

from topofl._support.check import check_choice, check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import check_epochs, fine_tuning, sgd_of_rounds
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, chain, sampled
from topofl.algorithms.contract.round import Part, as_part, head
from topofl.algorithms.exchanges.average import gossip, push_sum, server_average

__all__ = ["dfedpgp", "fedbabu", "fedper", "fedrep"]


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


@public
@needing(equal_shares, when={"mode": "pull"})
def dfedpgp(
    lr: Rate,
    *,
    mode: str = "pull",
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
    passes = check_epochs("head_epochs", head_epochs)
    rest = (momentum, lr_decay, weight_decay, clip)
    exchange = push_sum if mode == "push" else gossip
    return chain(
        "dfedpgp",
        head=sgd_of_rounds(head_lr, batch_size, passes, *rest, part=personal),
        body=sgd_of_rounds(lr, batch_size, epochs, *rest, part=personal.rest),
        exchange=exchange(personal.rest),
    )
