"""Centralized SGD on the pooled data, the upper reference."""

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import sgd
from topofl.algorithms.contract.phase import Algorithm, chain

__all__ = ["centralized"]


@public
def centralized(lr: Rate, *, batch_size: int = 128, momentum: float = 0.0) -> Algorithm:
    """Return centralized SGD: one model on the pooled data of all nodes.

    ::

        theta = theta - lr * v,   v = momentum * v + grad F(theta; S)

    Parameters
    ----------
    lr, momentum
        As in :func:`topofl.algorithms.sgd`.
    batch_size
        Examples per step, drawn from the pooled data. Pass ``n * m`` to use as many examples per
        step as n nodes with minibatches of m.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section IV-A ("a single IID node").

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> history = topofl.run(centralized(lr=0.5), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=20, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.5)
    True
    """
    return chain(
        "centralized", pooled=True, local=sgd(lr, batch_size=batch_size, momentum=momentum)
    )
