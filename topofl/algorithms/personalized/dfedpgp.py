"""DFedPGP: personal heads, and bodies averaged over directed graphs."""

from topofl._support.check import check_choice, check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import check_epochs, sgd_of_rounds
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.round import Part, as_part, head
from topofl.algorithms.exchanges.average import gossip, push_sum

__all__ = ["dfedpgp"]


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
