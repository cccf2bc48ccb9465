"""Decentralized SGD (D-SGD, D-PSGD), and with gradients averaged in cliques."""

from topofl._support.check import check_int
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import dsgd_steps, sgd_descent, train
from topofl.algorithms.contract.needs import Need, equal_shares, needing, undirected
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.exchanges.average import gossip
from topofl.mixing import within_groups

__all__ = ["clique_averaging", "dsgd"]


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
