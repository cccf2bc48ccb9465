"""Centralized SGD on the pooled data, the upper reference."""

from topofl.algorithms.contract.local import sgd
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.schedules import Rate

__all__ = ["centralized"]


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
    """
    return chain(
        "centralized", pooled=True, local=sgd(lr, batch_size=batch_size, momentum=momentum)
    )
