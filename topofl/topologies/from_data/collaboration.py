"""Greedy collaboration graphs: each node chooses neighbors by the reward of groups."""

from collections.abc import Sequence

import numpy as np

from topofl._support.check import as_array, check_nodes
from topofl.topologies._common import call_name
from topofl.topologies._generator import generator
from topofl.topologies.from_data.greedy_choice import Reward, ggc
from topofl.topology import Topology, from_edges

__all__ = ["greedy_collaboration"]


def _closeness_on_a_line(node: int, members: tuple[int, ...]) -> float:
    """Return the reward of an example: close neighbors on a line help, distant ones hurt."""
    return sum(2.0 - abs(node - other) for other in members if other != node)


def _example() -> Topology:
    """Return the example graph of the gallery."""
    return greedy_collaboration(_closeness_on_a_line, 30, 3, seed=0)


@generator(family="learned from rewards", examples=[_example])
def greedy_collaboration(
    reward: Reward,
    n: int,
    budget: int | Sequence[int] | None = None,
    *,
    candidates: Topology | None = None,
    count_self: bool = False,
    seed: int | np.random.Generator,
) -> Topology:
    """Return DPFL's collaboration graph: each node receives from the nodes that it chooses.

    The graph has the edge i -> k if and only if :func:`ggc` chooses i for k. It need not be
    connected.

    Parameters
    ----------
    reward
        Function of a node k and a group, the ascending tuple of k and other nodes, that returns the
        benefit for k of averaging over the group; higher is better. See :func:`averaged_reward` for
        DPFL's reward.
    n
        Number of nodes, at least 1.
    budget
        Maximum number of nodes that a node may choose, or one such number per node; None: no limit.
    candidates
        Graph on n nodes; a node may choose only its in-neighbors there. Default: all other nodes,
        which takes up to 2 n rewards per node.
    count_self
        Whether a node counts towards its own budget.
    seed
        Integer or generator; with an integer, each node has an independent stream.

    Raises
    ------
    TypeError
        If `reward` is not a function or does not return a number, or `candidates` is not a
        Topology.
    ValueError
        If a reward is not finite (the message names node and group); if `n` or `budget` is out of
        range; if `candidates` or `budget` is for another number of nodes.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL: Decentralized personalized federated learning" (2025),
    Algorithms 1 and 2.

    Examples
    --------
    >>> def same_parity(k, members):
    ...     return -sum((k - i) % 2 for i in members)
    >>> greedy_collaboration(same_parity, 6, seed=0).in_neighbors(1).tolist()
    [3, 5]
    """
    n = check_nodes(n, minimum=1)
    budgets = _budgets(budget, n)
    chosen = [
        ggc(reward, k, pool, limit, count_self=count_self, seed=seed)
        for k, (pool, limit) in enumerate(zip(_pools(candidates, n), budgets, strict=True))
    ]
    edges = [(i, k) for k, nodes in enumerate(chosen) for i in nodes]
    is_per_node = budget is not None and np.ndim(budget) > 0
    name = call_name(
        "greedy_collaboration",
        f"reward, budget[{n}]" if is_per_node else "reward",
        n=n,
        budget=None if is_per_node else budget,
        candidates=candidates,
        count_self=count_self or None,
        seed=seed,
    )
    return from_edges(edges, n, name=name, directed=True)


def _budgets(budget: int | Sequence[int] | None, n: int) -> list[int | None]:
    """Return a budget for each node."""
    if budget is None or (shape := as_array("budget", budget).shape) == ():
        return [budget] * n  # pyright: ignore[reportReturnType]
    if shape != (n,):
        raise ValueError(f"`budget` must be one number, or one per node (n={n}), got shape {shape}")
    return list(budget)  # pyright: ignore[reportArgumentType]


def _pools(candidates: Topology | None, n: int) -> list[list[int]]:
    """Return the candidates of each node."""
    if candidates is None:
        return [[*range(k), *range(k + 1, n)] for k in range(n)]
    if not isinstance(candidates, Topology):
        raise TypeError(
            f"`candidates` must be a Topology, got {type(candidates).__name__}; use "
            "as_topology(graph)"
        )
    if candidates.n != n:
        raise ValueError(
            f"`candidates` must have n={n} nodes, {candidates.name} has {candidates.n}"
        )
    senders = candidates.adjacency.tocsc()
    return [nodes.tolist() for nodes in np.split(senders.indices, senders.indptr[1:-1])]
