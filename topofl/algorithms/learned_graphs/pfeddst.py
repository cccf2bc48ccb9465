"""PFedDST: nodes score their peers and average with the best."""

from typing import Any

from topofl._support.check import check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import check_epochs, sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.round import Part, as_part, head
from topofl.algorithms.exchanges.peers import average_over_peers
from topofl.algorithms.exchanges.scored import refresh_losses, scored_peers

__all__ = ["pfeddst"]


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
    epochs: int = 5,
    head_epochs: int = 1,
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
    passes = check_epochs("head_epochs", head_epochs)
    rest = (momentum, lr_decay, weight_decay, clip)
    losses: dict[str, Any] = (
        {} if loss_refresh == "none" else {"losses": refresh_losses("exchange", loss_refresh)}
    )
    return chain(
        "pfeddst",
        exchange=average_over_peers(policy, personal.rest),
        **losses,
        body=sgd_of_rounds(lr, batch_size, epochs, *rest, part=personal.rest),
        head=sgd_of_rounds(head_lr, batch_size, passes, *rest, part=personal),
    )
