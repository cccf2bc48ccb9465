"""D-SGD, with gradients averaged in cliques, on pooled data, and without communication."""

from collections.abc import Sequence

from topofl._support.check import check_int, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import check_work, dsgd_steps, sgd, sgd_descent, train
from topofl.algorithms.contract.needs import Need, equal_shares, needing, undirected
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.exchanges.average import gossip
from topofl.mixing import within_groups

__all__ = ["centralized", "clique_averaging", "dsgd", "local_only"]


@public
@needing(equal_shares)
def dsgd(
    lr: Rate, *, batch_size: int = 128, momentum: float = 0.0, local_steps: int = 1
) -> Algorithm:
    """Return decentralized SGD (D-SGD, D-PSGD): a local step, then averaging with the neighbors.

    Per round, for every node i::

        theta_i^(1/2) = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        theta_i       = sum_j W[i, j] theta_j^(1/2)

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`); a run then warns that it weights their losses by
    these shares. :func:`topofl.algorithms.sab`, :func:`topofl.algorithms.osgp` and
    :func:`topofl.algorithms.push_diging` weight all nodes equally.

    Parameters
    ----------
    lr, batch_size, momentum
        As in :func:`topofl.algorithms.sgd`; momentum is local and never averaged.
    local_steps
        Minibatch steps between two exchanges; the original method takes 1.

    See Also
    --------
    dadam : local steps of Adam or AdamW in place of SGD.
    topofl.algorithms.descend : any other optimizer, as a chain of terms such as ``adamw()``.

    Notes
    -----
    An optimizer is not an argument but a part of the local steps. D-SGD with AdamW is
    ``chain("adamw", local=train(descend(adamw(), lr=0.01)), exchange=gossip())``.

    References
    ----------
    Lian et al., "Can decentralized algorithms outperform centralized algorithms?" (2017), Algorithm
    1; Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), Figure 2.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> history = topofl.run(dsgd(lr=0.5), model=models.logistic_regression(64),
    ...                      clients=clients, topology=topologies.ring(4), rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    >>> int(history["messages"][-1])  # per round: one each way along 4 edges
    8
    """
    local = dsgd_steps(lr, batch_size, momentum, local_steps)
    return chain("dsgd", local=local, exchange=gossip())


_GROUPS = Need(
    "groups",
    "sets of nodes that average their gradients",
    "use topologies.dcliques(...), or name groups by topologies.with_groups(graph, groups)",
    graph=lambda graph: "" if graph.groups else "it has none",
    verb="have",
)


@public
@needing(undirected, _GROUPS)
def clique_averaging(lr: Rate, *, batch_size: int = 128, momentum: float = 0.0) -> Algorithm:
    """Return D-SGD with Clique Averaging: gradients are averaged in cliques, models over all edges.

    Per round, for every node i of clique C(i)::

        g_i           = (1 / |C(i)|) sum_{j in C(i)} grad F(theta_j; S_j)
        theta_i^(1/2) = theta_i - lr * v_i,   v_i = momentum * v_i + g_i
        theta_i       = sum_j W[i, j] theta_j^(1/2)

    Each member computes its gradient at its own model. Edges between cliques then do not bias the
    step. The topology must have ``groups``, as that of :func:`topofl.topologies.dcliques`; if edges
    inside a clique are missing, a node averages over the members from which it still receives.

    See the page :doc:`D-Cliques, from paper to code </docs/papers/dcliques>`.

    Parameters
    ----------
    lr, batch_size, momentum
        As in :func:`topofl.algorithms.sgd`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.
    topofl.TopologyError
        During the run, if a graph has no groups or is directed.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), Figure 7 and equations 4-5.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> cliques = topologies.dcliques(clients.label_counts, clique_size=5, steps=10, seed=0)
    >>> history = topofl.run(clique_averaging(lr=0.5), model=models.logistic_regression(64),
    ...                      clients=clients, topology=cliques, rounds=3, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    return chain(
        "clique_averaging",
        local=train(
            sgd_descent(lr, momentum=momentum),
            batch_size=check_int("batch_size", batch_size, minimum=1),
            gradient=within_groups,
        ),
        exchange=gossip(),
    )


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
