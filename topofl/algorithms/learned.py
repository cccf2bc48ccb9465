"""Methods whose graph is an outcome of training."""

from collections.abc import Collection
from typing import Any

from topofl._check import check_int, check_positive
from topofl.algorithms.federated import steps
from topofl.algorithms.local import check_epochs, sgd
from topofl.algorithms.participation import first_round, later_rounds
from topofl.algorithms.parts import Part, as_part, head
from topofl.algorithms.peers import Policy, greedy_peers, hear, random_peers
from topofl.algorithms.phase import Algorithm, chain
from topofl.algorithms.scored import refresh_losses, scored_peers

__all__ = ["dpfl", "pfeddst", "random_collaboration"]


def dpfl(
    lr: float,
    *,
    budget: int | None = None,
    every: int = 1,
    batch_size: int = 16,
    epochs: int = 5,
    first_epochs: int | None = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.001,
    clip: float | None = None,
    keep: bool = True,
    streamed: bool = True,
    count_self: bool = False,
    passive: Collection[int] = (),
) -> Algorithm:
    """Return DPFL: nodes choose whose models to average by what groups bring them on their own validation data.

    With numbers of training examples ``m_i``, and for every node k::

        round 0:    w_k <- w_k - lr * grad F_k(w_k)                      (`first_epochs` passes)
                    Omega_k = GGC(k, all others, budget)
                    w_k = sum_{i in Omega_k + k} m_i w_i / sum_{i in Omega_k + k} m_i
        round t:    w_k <- w_k - lr * grad F_k(w_k)                      (`epochs` passes)
                    C_k = GGC(k, Omega_k, budget)                        (every `every` rounds)
                    w_k = sum_{i in C_k + k} m_i w_i / sum_{i in C_k + k} m_i

    GGC is :func:`topofl.topologies.ggc`, with minus the loss on the node's validation examples as reward. Every node
    needs such examples; a topology, which can be left out, says who can be heard at all. ``history.mixings`` holds the
    graphs. The paper counts round 0 as two. Its weights are in proportion to the "dataset size", for which its code
    takes all examples of a node, those for validation included; here they are not. Where every node holds out the same
    share, as 20 % in the paper, that is the same up to the rounding of these numbers to whole examples.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round. The paper's "1e-3 decay" is taken
        as weight decay; its code has 1e-4.
    budget, every, keep, streamed, count_self, passive
        As in :func:`topofl.algorithms.greedy_peers`.
    epochs, first_epochs
        Passes over a node's data a round, and in round 0; the latter is twice the former if None.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL: Decentralized personalized federated learning" (2025), Algorithm 1.
    """
    policy = greedy_peers(
        budget, every=every, keep=keep, streamed=streamed, count_self=count_self, passive=passive
    )  # fmt: skip
    return _collaborating(
        "dpfl", policy, lr, epochs, first_epochs,
        batch_size=batch_size, momentum=momentum, lr_decay=lr_decay, weight_decay=weight_decay, clip=clip,
    )  # fmt: skip


def random_collaboration(
    lr: float,
    budget: int,
    *,
    batch_size: int = 16,
    epochs: int = 5,
    first_epochs: int | None = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.001,
    clip: float | None = None,
) -> Algorithm:
    """Return what DPFL is compared with: the same, but for each node hearing nodes that were drawn once, at random.

    Parameters
    ----------
    lr, batch_size, epochs, first_epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`dpfl`.
    budget
        How many nodes each hears, at least 0, by :func:`topofl.algorithms.random_peers`.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL: Decentralized personalized federated learning" (2025), figure 3. How its random
    graphs are made is not said; this is our reading.
    """
    return _collaborating(
        "random_collaboration", random_peers(budget), lr, epochs, first_epochs,
        batch_size=batch_size, momentum=momentum, lr_decay=lr_decay, weight_decay=weight_decay, clip=clip,
    )  # fmt: skip


def _collaborating(
    name: str, policy: Policy, lr: float, epochs: int, first_epochs: int | None, **rest: Any
) -> Algorithm:
    epochs = check_int("epochs", epochs, minimum=1)
    first = check_int("first_epochs", 2 * epochs if first_epochs is None else first_epochs, minimum=1)
    return chain(
        name,
        first=sgd(lr, epochs=first, reset_momentum=True, who=first_round, **rest),
        local=sgd(lr, epochs=epochs, reset_momentum=True, who=later_rounds, **rest),
        exchange=hear(policy),
    )


def pfeddst(
    lr: float,
    *,
    head_lr: float | None = None,
    k: int | None = 10,
    threshold: float | None = None,
    standardize: bool = True,
    alpha: float = 1.0,
    recency_rate: float = 0.3,
    cost: float | None = None,
    header_sign: str = "intended",
    loss_refresh: str = "selected",
    batch_size: int = 128,
    epochs: int = 5,
    head_epochs: int = 1,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
) -> Algorithm:
    """Return PFedDST: personal heads, and extractors averaged with those of peers who score best.

    Per round t, for every node i with extractor ``e_i`` and head ``h_i``, and all j whom it can hear::

        S_ij = (1 - exp(-recency_rate (t - t_ij))) (alpha s(l_ij) - s(1 - cos(h_i, h_j)) + cost)
        M_i  = the k peers j of highest S_ij,   t_ij = t for j in M_i
        e_i <- sum_{j in M_i and i} e_j / (|M_i| + 1)
        l_ij = the loss of (e_i, h_i) on the training examples of node j           (for j in M_i)
        e_i <- e_i - lr * grad_e F_i(e_i, h_i)                                     (`epochs` passes)
        h_i <- h_i - head_lr * grad_h F_i(e_i, h_i)                                (`head_epochs` passes)

    where ``s`` scales a term to [0, 1] over the peers of node i of which it is known: the smallest becomes 0, the
    largest 1, and a term that is the same for all is 0 (see :func:`topofl.algorithms.scored.scores`). The paper has no
    such scaling, but it gives no numbers for `alpha`, `recency_rate` (lambda) and `cost` (c) either, and without the
    scaling losses, which differ by whole units, outweigh cosines, which differ by hundredths: the preference for
    similar peers would be off. ``standardize=False, alpha=1, cost=2`` is the formula with the terms as they are.

    In the beginning all ``l_ij`` are infinite and all ``t_ij`` minus infinity, so that every peer is tried once: of p
    peers in ``ceil(p / k)`` rounds, in which scores decide nothing. Where the listing sums extractors without the
    node's own, its text averages with it; we follow the text. It leaves open whose losses are refreshed: here those of
    the peers that were chosen.

    A topology, which can be left out, says who can be heard at all. ``history.mixings`` holds the graphs. Messages are
    heads of all whom a node can hear, extractors of those it hears, and to refresh each loss a whole model there and
    a number back.

    Parameters
    ----------
    lr, head_lr
        Of the extractor and of the head, in round 0; that of the head is `lr` too if None.
    k, threshold, standardize, alpha, recency_rate, cost, header_sign, loss_refresh
        As in :func:`topofl.algorithms.scored_peers`; the paper's experiments choose 10. A `cost` of None is the largest
        distance that two heads can have: 1, or 2 if the terms are not scaled.
    epochs, head_epochs
        Passes over a node's data a round; the paper's 5 and 1.
    batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round and phase.
    head
        What stays at its node: a part of the model, or the name of a layer.

    References
    ----------
    Fan, Li, Zhang, Tian and Geng, "PFedDST: Personalized federated learning with decentralized selection training"
    (2025), Algorithm 1.
    """
    head_lr = lr if head_lr is None else check_positive("head_lr", head_lr)
    personal = as_part("head", head)
    policy = scored_peers(
        k, threshold, standardize=standardize, alpha=alpha, recency_rate=recency_rate, cost=cost,
        header_sign=header_sign, loss_refresh=loss_refresh, head=personal,
    )  # fmt: skip
    rest: dict[str, Any] = {**steps(batch_size, momentum, weight_decay, clip), "lr_decay": lr_decay}
    losses: dict[str, Any] = {} if loss_refresh == "none" else {"losses": refresh_losses("exchange", loss_refresh)}
    return chain(
        "pfeddst",
        exchange=hear(policy, personal.rest),
        **losses,
        body=sgd(lr, epochs=epochs, part=personal.rest, **rest),
        head=sgd(head_lr, epochs=check_epochs("head_epochs", head_epochs), part=personal, **rest),
    )
