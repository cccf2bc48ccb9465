"""Decentralized gradient tracking (DSGT)."""

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import train
from topofl.algorithms.contract.needs import doubly_stochastic, needing
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.terms import tracking
from topofl.algorithms.exchanges.average import gossip_with

__all__ = ["dsgt"]


@public
@needing(doubly_stochastic)
def dsgt(lr: Rate, *, batch_size: int = 128) -> Algorithm:
    """Return decentralized gradient tracking (DSGT): nodes exchange models and tracked gradients.

    Per round, for every node i, with gradients ``g_i`` of this round and ``g_i'`` of the previous
    one; ``g_i'`` and ``y_i`` start at 0::

        y_i     = y_i + g_i - g_i',   g_i = grad F(theta_i; S_i)
        theta_i = sum_j W[i, j] (theta_j - lr * y_j)
        y_i     = sum_j W[i, j] y_j

    ``W`` must be doubly stochastic, so that the mean of ``y`` over nodes always equals the mean of
    their latest gradients. With full batches and a small enough constant `lr`, all models converge
    to the optimum of the mean loss, however different the data of nodes are, in contrast to D-SGD.
    A message holds two numbers per parameter.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Nedic, Olshevsky and Shi, "Achieving geometric convergence for distributed optimization over
    time-varying graphs" (2017), DIGing, which mixes models before the step instead of after it; Pu
    and Nedic, "Distributed stochastic gradient tracking methods" (2021), DSGT.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 30, "seed": 0}
    >>> tracked, plain = (topofl.run(one(lr=0.1), **how) for one in (dsgt, topofl.algorithms.dsgd))
    >>> bool(tracked.last("loss").mean() < plain.last("loss").mean())
    True
    >>> int(tracked["bytes"][-1] // plain["bytes"][-1])
    2
    """
    local = train(descend(tracking(), lr=lr), batch_size=batch_size)
    return chain("dsgt", local=local, exchange=gossip_with("local", "tracked"))
