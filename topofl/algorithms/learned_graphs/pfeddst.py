"""PFedDST: nodes score their neighbors and average with the best."""

from typing import Any

from topofl._support.check import check_positive
from topofl.algorithms.contract.amounts import check_epochs
from topofl.algorithms.contract.local import sgd, sgd_arguments
from topofl.algorithms.contract.parts import Part, as_part, head
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.schedules import Rate
from topofl.algorithms.exchanges.peers import average_over_peers
from topofl.algorithms.exchanges.scored import refresh_losses, scored_peers

__all__ = ["pfeddst"]


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
    epochs: int = 5,
    head_epochs: int = 1,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
) -> Algorithm:
    """Return PFedDST: personal heads, and extractors averaged with those of peers who score best.

    Per round t, for every node i with extractor ``e_i`` and head ``h_i``, and all j whom it can
    hear::

        S_ij = (1 - exp(-recency_rate (t - t_ij))) (alpha s(l_ij) - s(1 - cos(h_i, h_j)) + cost)
        M_i  = the k peers j of highest S_ij,   t_ij = t for j in M_i
        e_i <- sum_{j in M_i and i} e_j / (|M_i| + 1)
        l_ij = the loss of (e_i, h_i) on the training examples of node j  (for j in M_i)
        e_i <- e_i - lr * grad_e F_i(e_i, h_i)                            (`epochs` passes)
        h_i <- h_i - head_lr * grad_h F_i(e_i, h_i)                       (`head_epochs` passes)

    where ``s`` scales a term to [0, 1] over the peers of node i of which it is known: the smallest
    becomes 0, the largest 1, and a term that is the same for all is 0 (see
    :func:`topofl.algorithms.scored.scores`). The paper has no such scaling, but it gives no numbers
    for `alpha`, `recency_rate` (lambda) and `cost` (c) either, and without the scaling losses,
    which differ by whole units, outweigh cosines, which differ by hundredths: the preference for
    similar peers would be off. ``standardize=False, alpha=1, cost=2`` is the formula with the terms
    as they are.

    In the beginning all ``l_ij`` are infinite and all ``t_ij`` minus infinity, so that every peer
    is tried once: of p peers in ``ceil(p / k)`` rounds, in which scores decide nothing. Where the
    listing sums extractors without the node's own, its text averages with it; we follow the text.
    It leaves open whose losses are refreshed: here those of the peers that were chosen.

    A topology, which can be left out, says who can be heard at all. ``history.mixings`` holds the
    graphs. Messages are heads of all whom a node can hear, extractors of those it hears, and to
    refresh each loss a whole model there and a number back.

    Parameters
    ----------
    lr, head_lr
        Of the extractor and of the head, in round 0; that of the head is `lr` too if None.
    k, threshold, standardize, alpha, recency_rate, cost, header_sign, loss_refresh
        As in :func:`topofl.algorithms.scored_peers`; the paper's experiments choose 10. A `cost` of
        None is the largest distance that two heads can have: 1, or 2 if the terms are not scaled.
    epochs, head_epochs
        Passes over a node's data per round; the paper's 5 and 1.
    batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round and phase.
    head
        What stays at its node: a part of the model, or the name of a layer.

    References
    ----------
    Fan, Li, Zhang, Tian and Geng, "PFedDST: Personalized federated learning with decentralized
    selection training" (2025), Algorithm 1.
    """
    head_lr = lr if head_lr is None else check_positive("head_lr", head_lr)
    personal = as_part("head", head)
    policy = scored_peers(
        k, threshold, standardize=standardize, alpha=alpha, recency_rate=recency_rate, cost=cost,
        header_sign=header_sign, loss_refresh=loss_refresh, head=personal,
    )  # fmt: skip
    rest: dict[str, Any] = {
        **sgd_arguments(batch_size, momentum, weight_decay, clip),
        "lr_decay": lr_decay,
    }
    losses: dict[str, Any] = (
        {} if loss_refresh == "none" else {"losses": refresh_losses("exchange", loss_refresh)}
    )
    return chain(
        "pfeddst",
        exchange=average_over_peers(policy, personal.rest),
        **losses,
        body=sgd(lr, epochs=epochs, part=personal.rest, **rest),
        head=sgd(head_lr, epochs=check_epochs("head_epochs", head_epochs), part=personal, **rest),
    )
