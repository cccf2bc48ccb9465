"""Personalized methods whose nodes choose their peers: DPFL, PFedDST and pFedGraph."""

from collections.abc import Collection
from typing import Any

from topofl._support.check import check_nonnegative, check_positive, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import Epochs, Passes, Steps, sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, chain, first_round, later_rounds
from topofl.algorithms.contract.round import Part, as_part, everything, head
from topofl.algorithms.contract.terms import cosine_pull
from topofl.algorithms.exchanges.greedy import greedy_peers, random_peers
from topofl.algorithms.exchanges.peers import (
    PULL_DIRECTIONS,
    Policy,
    average_over_peers,
    similar_peers_with_pull,
)
from topofl.algorithms.exchanges.scored import refresh_losses, scored_peers
from topofl.algorithms.personalized.personal_heads import heads_and_bodies

__all__ = ["dpfl", "pfeddst", "pfedgraph", "random_collaboration"]


@public
def dpfl(
    lr: Rate,
    *,
    budget: int | None = None,
    every: int = 1,
    batch_size: int = 16,
    epochs: float = 5,
    first_epochs: float | None = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.001,
    clip: float | None = None,
    keep: bool = True,
    streamed: bool = True,
    count_self: bool = False,
    passive: Collection[int] = (),
) -> Algorithm:
    """Return DPFL: nodes choose collaborators whose models lower their validation loss.

    With numbers of training examples ``m_i``, and for every node k::

        round 0:    w_k <- w_k - lr * grad F_k(w_k)                      (`first_epochs` passes)
                    Omega_k = GGC(k, all others, budget)
                    w_k = sum_{i in Omega_k + k} m_i w_i / sum_{i in Omega_k + k} m_i
        round t:    w_k <- w_k - lr * grad F_k(w_k)                      (`epochs` passes)
                    C_k = GGC(k, Omega_k, budget)                        (every `every` rounds)
                    w_k = sum_{i in C_k + k} m_i w_i / sum_{i in C_k + k} m_i

    GGC is :func:`topofl.topologies.ggc`, with minus the loss on the node's validation examples as
    reward. Every node needs such examples. An optional topology restricts from which nodes each can
    receive. ``history.mixings`` holds the chosen graphs. The paper counts round 0 as two. Its
    weights are proportional to the "dataset size"; its code counts all examples of a node,
    including those for validation, which are not counted here. If every node holds out the same
    fraction, 20 % in the paper, the weights are equal up to rounding to whole examples.

    See the page :doc:`DPFL, from paper to code </docs/papers/dpfl>`.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round. The paper's
        "1e-3 decay" is taken as weight decay; its code has 1e-4.
    budget, every, keep, streamed, count_self, passive
        As in :func:`topofl.algorithms.greedy_peers`.
    epochs, first_epochs
        Passes over a node's data per round, and in round 0; `first_epochs` is twice `epochs` if
        None.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL: Decentralized personalized federated learning" (2025),
    Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0, val_fraction=0.2)
    >>> history = topofl.run(dpfl(lr=0.1, budget=2, epochs=1),
    ...                      model=models.logistic_regression(64), clients=clients,
    ...                      rounds=2, seed=0)
    >>> history.mixings.at(1).support().in_degrees.tolist()
    [2, 2, 2, 2]
    """
    policy = greedy_peers(
        budget, every=every, keep=keep, streamed=streamed, count_self=count_self, passive=passive
    )  # fmt: skip
    how = (momentum, lr_decay, weight_decay, clip)
    return _collaborating("dpfl", policy, lr, epochs, first_epochs, batch_size, *how)


@public
def random_collaboration(
    lr: Rate,
    budget: int,
    *,
    batch_size: int = 16,
    epochs: float = 5,
    first_epochs: float | None = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.001,
    clip: float | None = None,
) -> Algorithm:
    """Return DPFL's ablation with fixed random collaborators.

    Parameters
    ----------
    lr, batch_size, epochs, first_epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`dpfl`.
    budget
        Number of nodes from which each receives, at least 0, as in
        :func:`topofl.algorithms.random_peers`.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL: Decentralized personalized federated learning" (2025),
    figure 3. The paper does not specify how its random graphs are drawn; this is our
    interpretation.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> history = topofl.run(random_collaboration(lr=0.1, budget=2, epochs=1),
    ...                      model=models.logistic_regression(64), clients=clients,
    ...                      rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    how = (momentum, lr_decay, weight_decay, clip)
    return _collaborating(
        "random_collaboration", random_peers(budget), lr, epochs, first_epochs, batch_size, *how
    )


def _collaborating(
    name: str, policy: Policy, lr: Rate, epochs: float, first_epochs: float | None, *how: Any
) -> Algorithm:
    """Return the chain of local training and averaging with the peers that `policy` chooses.

    `how` are the batch size, and what ``sgd_of_rounds`` takes after the epochs.
    """
    batch_size, *rest = how
    epochs = check_positive("epochs", epochs)
    first = 2 * epochs if first_epochs is None else check_positive("first_epochs", first_epochs)
    return chain(
        name,
        first=sgd_of_rounds(lr, batch_size, first, *rest, participants=first_round),
        local=sgd_of_rounds(lr, batch_size, epochs, *rest, participants=later_rounds),
        exchange=average_over_peers(policy),
    )


@public
def pfeddst(
    lr: Rate,
    *,
    head_lr: Rate | None = None,
    k: int | None = 10,
    threshold: float | None = None,
    standardize: bool = True,
    alpha: float = 1.0,
    recency_rate: float = 0.3,
    cost: float | None = None,
    header_sign: str = "intended",
    loss_refresh: str = "selected",
    batch_size: int = 128,
    epochs: Passes = 5,
    head_epochs: Passes = 1,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
) -> Algorithm:
    """Return PFedDST: personal heads, and extractors averaged with those of the best-scored peers.

    Per round t, for every node i with extractor ``e_i`` and head ``h_i``, and all peers j from
    which it can receive::

        S_ij = (1 - exp(-recency_rate (t - t_ij))) (alpha s(l_ij) - s(1 - cos(h_i, h_j)) + cost)
        M_i  = the k peers j of highest S_ij,   t_ij = t for j in M_i
        e_i <- sum_{j in M_i and i} e_j / (|M_i| + 1)
        l_ij = the loss of (e_i, h_i) on the training examples of node j  (for j in M_i)
        e_i <- e_i - lr * grad_e F_i(e_i, h_i)                            (`epochs` passes)
        h_i <- h_i - head_lr * grad_h F_i(e_i, h_i)                       (`head_epochs` passes)

    where ``s`` scales a term to [0, 1] over the peers of node i for which it is known: the smallest
    becomes 0, the largest 1, and a term that is equal for all peers is 0 (see
    ``topofl.algorithms.exchanges.scored.scores``). The paper has no such scaling, but it does
    not give values of `alpha`, `recency_rate` (lambda) and `cost` (c) either. Without the scaling,
    losses, which differ by whole units, outweigh cosines, which differ by hundredths, and the
    preference for similar peers has no effect. ``standardize=False, alpha=1, cost=2`` gives the
    formula with unscaled terms.

    Initially all ``l_ij`` are infinite and all ``t_ij`` are minus infinity, so that every peer is
    tried once: with p peers, this takes ``ceil(p / k)`` rounds, in which scores decide nothing. The
    paper's listing sums extractors without the node's own, while its text includes it; we follow
    the text. The paper leaves open which losses are refreshed; here they are those of the chosen
    peers.

    An optional topology restricts from which nodes each can receive. ``history.mixings`` holds the
    chosen graphs. A node receives the heads of all its peers and the extractors of the chosen ones;
    to refresh a loss, it sends its whole model to that peer and receives a number.

    See the page :doc:`PFedDST, from paper to code </docs/papers/pfeddst>`.

    Parameters
    ----------
    lr, head_lr
        Step sizes of the extractor and of the head in round 0; `head_lr` is `lr` if None.
    k, threshold, standardize, alpha, recency_rate, cost, header_sign, loss_refresh
        As in :func:`topofl.algorithms.scored_peers`; the paper's experiments use ``k=10``. A `cost`
        of None is the largest possible distance of two heads: 1, or 2 if the terms are not scaled.
    epochs, head_epochs
        Passes over a node's data per round; the paper's 5 and 1.
    batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round and phase.
    head
        The personal part of the model, or the name of a layer.

    References
    ----------
    Fan, Li, Zhang, Tian and Geng, "PFedDST: Personalized federated learning with decentralized
    selection training" (2025), Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data
    >>> from torch import nn
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> history = topofl.run(pfeddst(lr=0.1, k=2, epochs=1, head="3"), model=net,
    ...                      clients=clients, rounds=2, seed=0)
    >>> history.mixings.at(1).support().in_degrees.tolist()
    [2, 2, 2, 2]
    """
    head_lr = lr if head_lr is None else check_positive("head_lr", head_lr)
    personal = as_part("head", head)
    policy = scored_peers(
        k, threshold, standardize=standardize, alpha=alpha, recency_rate=recency_rate, cost=cost,
        header_sign=header_sign, loss_refresh=loss_refresh, head=personal,
    )  # fmt: skip
    how = (momentum, lr_decay, weight_decay, clip)
    phases = heads_and_bodies(personal, head_lr, head_epochs, lr, batch_size, epochs, *how)
    losses: dict[str, Any] = (
        {} if loss_refresh == "none" else {"losses": refresh_losses("exchange", loss_refresh)}
    )
    return chain(
        "pfeddst",
        exchange=average_over_peers(policy, personal.rest),
        **losses,
        body=phases["body"],
        head=phases["head"],
    )


@public
def pfedgraph(
    lr: Rate,
    *,
    strength: float = 0.8,
    regulariser: float = 0.01,
    code_sign: bool = False,
    threshold: float = 0.9,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return pFedGraph: a server averages, for each node, models that moved in similar directions.

    Per round, with the initial model ``theta_0`` of all nodes, and ``p_j`` the fraction of all
    training examples at node j::

        theta_i <- theta_i - lr * grad (F_i(theta_i) - regulariser * <a_i, theta_i> / ||theta_i||)
            (`epochs` passes)
        D_ij    =  -cos(theta_i - theta_0, theta_j - theta_0);      -1 if it is below -threshold
        x_i     =  argmin of <D_i, x> + strength * ||x - p||^2  over x >= 0, sum x = 1
        a_i     =  sum_j x_ij theta_j / ||theta_j||
        theta_i <- sum_j x_ij theta_j

    In round 0 there is no ``a_i``, and thus no second term. :func:`topofl.algorithms.similar_peers`
    computes the weights, and ``history.mixings`` holds them. All nodes participate in every round.
    Each node sends and receives one message per round; with a regulariser, the message from the
    server holds two models, the mean and ``a_i``. The means ``theta_i`` are evaluated; the paper
    also evaluates models after local training, as ``Evaluation(before_exchange=True)`` does.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round, and gradients
        are clipped before the regulariser's is added.
    strength, threshold
        As in :func:`topofl.algorithms.similar_peers`; the paper's lambda_1.
    regulariser
        The paper's lambda_2, at least 0: how strongly models are pulled in the direction of those
        with which they are averaged.
    code_sign
        Whether the second term is added to the loss, as in the authors' code, which turns models
        away from each other. False: it is subtracted, as intended.
    epochs, steps
        As in :func:`topofl.algorithms.fedavg`.

    References
    ----------
    Ye, Ni, Wu, Chen and Wang, "Personalized federated learning with inferred collaboration graphs"
    (2023); a baseline of DPFL. Defaults are those of the authors' code.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> history = topofl.run(pfedgraph(lr=0.1, epochs=1), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=2, seed=0)
    >>> history.mixings.at(1).weights.toarray().sum(axis=1).round(6).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    regulariser = check_nonnegative("regulariser", regulariser)
    check_switch("code_sign", code_sign, auto=False)
    how = (momentum, lr_decay, weight_decay, clip)
    terms = [cosine_pull(PULL_DIRECTIONS)] if regulariser else []
    local = sgd_of_rounds(lr, batch_size, epochs, *how, steps=steps, terms=terms)
    pull = -regulariser if code_sign else regulariser
    policy = similar_peers_with_pull(strength, threshold, everything, pull)
    settings = {"regulariser": regulariser} | ({"code_sign": True} if code_sign else {})
    policy = policy._replace(settings={**policy.settings, **settings})
    exchange = average_over_peers(policy)
    return chain("pfedgraph", local=local, exchange=exchange)
