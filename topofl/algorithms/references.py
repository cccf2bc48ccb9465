"""Methods for reference: all data in one place, and each node alone."""

from collections.abc import Sequence

from topofl._support.check import check_int, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import check_work, sgd, sgd_descent, train
from topofl.algorithms.contract.phase import Algorithm, chain

__all__ = ["centralized", "local_only"]


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


@public
def local_only(
    lr: Rate,
    *,
    batch_size: int = 128,
    momentum: float = 0.0,
    local_steps: int | None = None,
    epochs: int | Sequence[int] | None = None,
    reset_momentum: bool = False,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return local SGD at every node, without any communication.

    ::

        theta_i = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)

    Parameters
    ----------
    lr, batch_size, momentum, reset_momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`.
    local_steps
        Minibatch steps per round; None: those of `epochs`, or 1.
    epochs
        Passes over a node's own data per round, instead of `local_steps`: one number, or one per
        node. With ``reset_momentum=True``, a round is one of :func:`topofl.algorithms.dfedavgm`
        without the exchange.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, or both `local_steps` and `epochs` are
        given.

    References
    ----------
    The baseline "Local" of Liu et al., "DFedPGP" (2024), section 5.1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> history = topofl.run(local_only(lr=0.1, epochs=1), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    >>> int(history["messages"][-1])
    0
    """
    check_work(local_steps, epochs, name="local_steps")
    steps = None if local_steps is None else check_int("local_steps", local_steps, minimum=1)
    reset_momentum = bool(check_switch("reset_momentum", reset_momentum, auto=False))
    how = (momentum, lr_decay, weight_decay, clip)
    descent = sgd_descent(lr, *how, reset_momentum=reset_momentum)
    local = train(descent, batch_size=batch_size, steps=steps, epochs=epochs)
    return chain("local_only", local=local)
