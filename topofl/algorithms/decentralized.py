"""Decentralized SGD and its D-Cliques variant, and the two ends they are compared with."""

from collections.abc import Sequence

from topofl._check import check_int, check_switch
from topofl.algorithms.exchange import gossip
from topofl.algorithms.local import sgd
from topofl.algorithms.phase import Algorithm, chain
from topofl.mixing import within_groups

__all__ = ["centralized", "clique_averaging", "dsgd", "local_only"]


def dsgd(lr: float, *, batch_size: int = 128, momentum: float = 0.0, local_steps: int = 1) -> Algorithm:
    """Return decentralized SGD (D-SGD, D-PSGD): a local step, then averaging with the neighbors.

    Per round, for every node i::

        theta_i^(1/2) = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)    (`local_steps` times)
        theta_i       = sum_j W[i, j] theta_j^(1/2)

    Parameters
    ----------
    lr, batch_size, momentum
        As in :func:`topofl.algorithms.sgd`; momentum is local and never averaged.
    local_steps
        Minibatch steps between two exchanges; the original method takes 1.

    References
    ----------
    Lian et al., "Can decentralized algorithms outperform centralized algorithms?" (2017), Algorithm 1;
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), Figure 2.
    """
    local_steps = check_int("local_steps", local_steps, minimum=1)
    return chain(
        "dsgd",
        local=sgd(lr, batch_size=batch_size, steps=local_steps, momentum=momentum),
        exchange=gossip(),
    )


def clique_averaging(lr: float, *, batch_size: int = 128, momentum: float = 0.0) -> Algorithm:
    """Return D-SGD with Clique Averaging: gradients are averaged inside cliques, models over all edges.

    Per round, for every node i of clique C(i)::

        g_i           = (1 / |C(i)|) sum_{j in C(i)} grad F(theta_j; S_j)
        theta_i^(1/2) = theta_i - lr * v_i,   v_i = momentum * v_i + g_i
        theta_i       = sum_j W[i, j] theta_j^(1/2)

    Each member's gradient is taken at its own model. The step is then unbiased by the edges between cliques. Needs a
    topology with ``groups``, such as :func:`topofl.topologies.dcliques`; where edges inside a clique are missing a node
    averages over the members it still hears.

    Parameters
    ----------
    lr, batch_size, momentum
        As in :func:`topofl.algorithms.sgd`.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), Figure 7 and equations 4-5.
    """
    return chain(
        "clique_averaging",
        local=sgd(lr, batch_size=batch_size, momentum=momentum, gradient=within_groups),
        exchange=gossip(),
    )


def centralized(lr: float, *, batch_size: int = 128, momentum: float = 0.0) -> Algorithm:
    """Return SGD of one model on all nodes' data together: the "single IID node" that bounds what graphs can reach.

    ::

        theta = theta - lr * v,   v = momentum * v + grad F(theta; S)

    Parameters
    ----------
    lr, momentum
        As in :func:`topofl.algorithms.sgd`.
    batch_size
        Examples per step from the pooled data. To spend as many examples a step as n nodes with minibatches of m, pass
        ``n * m``.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section IV-A ("a single IID node").
    """
    return chain("centralized", pooled=True, local=sgd(lr, batch_size=batch_size, momentum=momentum))


def local_only(
    lr: float,
    *,
    batch_size: int = 128,
    momentum: float = 0.0,
    local_steps: int = 1,
    epochs: int | Sequence[int] | None = None,
    reset_momentum: bool = False,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return SGD on every node alone, with no message at all: the other end of the scale.

    ::

        theta_i = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)

    Parameters
    ----------
    lr, batch_size, momentum, reset_momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`.
    local_steps
        Minibatch steps a round.
    epochs
        Passes over a node's own data a round, in place of `local_steps`: one number, or one a node. With
        ``reset_momentum=True`` a round is then that of :func:`topofl.algorithms.dfedavgm` without its exchange.

    References
    ----------
    The baseline "Local" of Liu et al., "DFedPGP" (2024), section 5.1.
    """
    local_steps = check_int("local_steps", local_steps, minimum=1)
    reset_momentum = bool(check_switch("reset_momentum", reset_momentum, auto=False))
    local = sgd(
        lr, batch_size=batch_size, steps=local_steps, epochs=epochs, momentum=momentum, reset_momentum=reset_momentum,
        lr_decay=lr_decay, weight_decay=weight_decay, clip=clip,
    )  # fmt: skip
    return chain("local_only", local=local)
