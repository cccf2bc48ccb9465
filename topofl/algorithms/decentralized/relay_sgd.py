"""RelaySGD: nodes relay sums of models along a spanning tree."""

from functools import lru_cache, partial

import numpy as np
import scipy.sparse as sparse
import torch
from scipy.sparse.csgraph import breadth_first_order, shortest_path
from torch import Tensor

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import sgd
from topofl.algorithms.contract.needs import needing, static, strongly_connected, undirected
from topofl.algorithms.contract.phase import Algorithm, Phase, chain, on_all_models
from topofl.algorithms.contract.round import Models, Round, State
from topofl.mixing import MixingMatrix
from topofl.topology import Topology

__all__ = ["relay_sgd"]


@public
@needing(static, undirected, strongly_connected)
def relay_sgd(
    lr: Rate, *, batch_size: int = 128, momentum: float = 0.0, local_steps: int = 1
) -> Algorithm:
    """Return RelaySGD: local steps, then sums of models relayed along a spanning tree.

    Per round, for every node i with neighbors N(i) in the tree, where all ``m`` and ``c`` start at
    0::

        x_i        = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        m_{i->j}   = x_i + sum_{k in N(i), k != j} m_{k->i} of the previous round (j in N(i))
        c_{i->j}   = 1   + sum_{k in N(i), k != j} c_{k->i} of the previous round
        theta_i    = ((n - sum_{j in N(i)} c_{j->i}) x_i + sum_{j in N(i)} m_{j->i}) / n

    In other words, ``theta_i`` is the mean over all nodes j of their ``x_j``, each delayed by the
    number of nodes between i and j, with ``x_i`` in place of those that have not arrived. With full
    batches and a small enough `lr`, all models converge to the optimum of the mean loss, however
    different the data of nodes are, in contrast to D-SGD.

    A message holds a model and a number, and is sent along the edges of the tree only. The run's
    graph must be static, undirected and connected; `mixing` is not used. If the graph is not a
    tree, a tree of shortest paths to a central node is used. The mixing matrices of the history
    give the weight ``1 / n`` to each neighbor in the tree.

    Parameters
    ----------
    lr, batch_size, momentum
        As in :func:`topofl.algorithms.sgd`; momentum is local and never sent.
    local_steps
        Minibatch steps between two exchanges; the original method takes 1.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; during a run, if `topology` changes, is
        directed or is disconnected.

    References
    ----------
    Vogels, He, Koloskova, Karimireddy, Lin, Stich and Jaggi, "RelaySum for decentralized deep
    learning on heterogeneous data" (2021), Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 30, "seed": 0}
    >>> relayed, plain = (
    ...     topofl.run(one(lr=0.3, momentum=0.9), **how)
    ...     for one in (relay_sgd, topofl.algorithms.dsgd)
    ... )
    >>> bool(relayed.last("accuracy").mean() > 0.9 > plain.last("accuracy").mean())
    True
    >>> int(relayed["messages"][-1]), int(plain["messages"][-1])
    (18, 20)
    """
    local = sgd(lr, batch_size=batch_size, momentum=momentum, steps=local_steps)
    return chain(
        "relay_sgd",
        local=local,
        exchange=on_all_models(Phase(_unsent, _relay, {"along": "a spanning tree"})),
    )


def _unsent(models: Models) -> State:
    """Return the initial messages and counts, 0 for each directed edge of the tree."""
    edges = len(_tree(models.topology)[1])
    return {
        "messages": models.flat.new_zeros(edges, models.flat.shape[1]),
        "counts": torch.zeros(edges, dtype=torch.int64, device=models.flat.device),
    }


def _relay(models: Models, state: State, round: Round) -> State:
    """Send and receive messages, and set each model to the mean of what has arrived."""
    x = models.flat
    weights, *edges, groups = _tree(round.topology)
    sources, targets, opposites = (part.to(x.device) for part in edges)

    def received(messages: Tensor) -> Tensor:
        """Return the sum of the messages to each node, in the same order on every device."""
        total = messages.new_zeros(round.n, *messages.shape[1:])
        for group in groups:
            arriving = group.to(x.device)
            total[targets[arriving]] += messages[arriving]
        return total

    def sent(before: Tensor, own: Tensor) -> Tensor:
        """Return messages per edge: own values plus those received from the other neighbors."""
        return (own + received(before))[sources] - before[opposites]

    state["messages"] = sent(state["messages"], x)
    state["counts"] = sent(state["counts"], state["counts"].new_ones(round.n))
    round.send(weights, (x.shape[1] + 1) * x.element_size())
    missing = round.n - received(state["counts"])
    x.mul_(missing[:, None].to(x.dtype)).add_(received(state["messages"])).div_(round.n)
    return state


@lru_cache(maxsize=1)
def _tree(graph: Topology) -> tuple[MixingMatrix, Tensor, Tensor, Tensor, list[Tensor]]:
    """Return the weights and the directed edges of a tree of shortest paths to a central node.

    Edges are given by sources, targets and numbers of reverse edges, and in groups with distinct
    targets.
    """
    _, above = breadth_first_order(graph.adjacency, _middle(graph.adjacency), directed=False)
    below = np.flatnonzero(above >= 0)
    ends = np.stack([np.concatenate([below, above[below]]), np.concatenate([above[below], below])])
    order = np.lexsort(ends)  # by target, then by source
    sources, targets = ends[:, order]
    opposites = np.lexsort((targets, sources))
    degrees = np.bincount(targets, minlength=graph.n)
    rank = np.arange(len(targets)) - (np.cumsum(degrees) - degrees)[targets]
    groups = [torch.from_numpy(np.flatnonzero(rank == k)) for k in range(degrees.max())]
    shares = sparse.csr_array(
        (np.full(len(targets), 1 / graph.n), (targets, sources)), shape=(graph.n, graph.n)
    )
    matrix = sparse.csr_array(shares + sparse.diags_array(1 - degrees / graph.n))
    weights = MixingMatrix(matrix, name="relayed", nodes=graph.nodes)
    sources, targets, opposites = map(torch.from_numpy, (sources, targets, opposites))
    return weights, sources, targets, opposites, groups


def _middle(adjacency: sparse.csr_array) -> int:
    """Return a central node: the middle of a long shortest path, in a tree its center."""
    paths = partial(
        shortest_path, adjacency, directed=False, unweighted=True, return_predecessors=True
    )
    far = int(np.argmax(paths(indices=0)[0]))
    hops, before = paths(indices=far)
    node = int(np.argmax(hops))
    for _ in range(int(hops[node]) // 2):
        node = int(before[node])
    return node
