"""DPFL: nodes choose helpful collaborators; its ablation has random ones."""

from collections.abc import Collection
from typing import Any

from topofl._support.check import check_int
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, chain, first_round, later_rounds
from topofl.algorithms.exchanges.greedy import greedy_peers, random_peers
from topofl.algorithms.exchanges.peers import Policy, average_over_peers

__all__ = ["dpfl", "random_collaboration"]


@public
def dpfl(
    lr: Rate,
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
    rest = (momentum, lr_decay, weight_decay, clip)
    return _collaborating("dpfl", policy, lr, epochs, first_epochs, batch_size, *rest)


@public
def random_collaboration(
    lr: Rate,
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
    rest = (momentum, lr_decay, weight_decay, clip)
    policy = random_peers(budget)
    return _collaborating(
        "random_collaboration", policy, lr, epochs, first_epochs, batch_size, *rest
    )


def _collaborating(
    name: str,
    policy: Policy,
    lr: Rate,
    epochs: int,
    first_epochs: int | None,
    batch_size: int,
    *rest: Any,
) -> Algorithm:
    """Return the chain of local training and averaging with the peers that `policy` chooses."""
    epochs = check_int("epochs", epochs, minimum=1)
    first = check_int(
        "first_epochs", 2 * epochs if first_epochs is None else first_epochs, minimum=1
    )
    return chain(
        name,
        first=sgd_of_rounds(lr, batch_size, first, *rest, participants=first_round),
        local=sgd_of_rounds(lr, batch_size, epochs, *rest, participants=later_rounds),
        exchange=average_over_peers(policy),
    )
