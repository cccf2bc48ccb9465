"""Stochastic gradient push (SGP), and its overlapping variant (OSGP)."""

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.exchanges.average import push_sum

__all__ = ["osgp"]


@public
def osgp(
    lr: Rate,
    *,
    delay: int = 0,
    batch_size: int = 128,
    epochs: int = 5,
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
    epochs
        Passes over a node's data between two exchanges; the original takes one minibatch.

    References
    ----------
    Assran et al., "Stochastic Gradient Push for distributed deep learning" (2019), Algorithms 1 and
    2; with local epochs, a baseline of Liu et al., "DFedPGP" (2024).

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
    local = sgd_of_rounds(lr, batch_size, epochs, momentum, lr_decay, weight_decay, clip)
    return chain("osgp", local=local, exchange=push_sum(delay=delay))
