"""DPFL's peer selection: greedy graph construction on validation losses, and a random baseline."""

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int, check_sequence, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.round import Models, Round, State, Trial
from topofl.algorithms.exchanges.peers import Choice, Policy, can_receive
from topofl.mixing import average_of_chosen
from topofl.topologies.collaboration import WORST, double_greedy, shuffled, translate_queries

__all__ = ["greedy_peers", "random_peers"]


@public
def greedy_peers(
    budget: int | None = None,
    *,
    every: int = 1,
    keep: bool = True,
    streamed: bool = True,
    count_self: bool = False,
    passive: Collection[int] = (),
) -> Policy:
    """Return DPFL's policy: Greedy Graph Construction on the nodes' validation examples.

    In round 0 every node k chooses its candidates ``Omega_k``: at most `budget` of its
    in-neighbors. In later rounds it chooses its collaborators ``C_k`` among the candidates that are
    its in-neighbors in the round. A group is evaluated by the loss of its mean model on the node's
    validation examples (:func:`topofl.topologies.ggc`). The node's new model is the mean over the
    chosen group, weighted by numbers of training examples. Candidates that are not chosen may be
    chosen in later rounds; other nodes may not. Relative changes of the loss below 4 times the
    precision of the models' dtype count as 0. Models with NaN or infinite values are not
    candidates, and their nodes choose no peers; a group whose loss is not finite is not chosen.

    Parameters
    ----------
    budget
        Largest number of nodes to receive from, at least 0; None: no limit.
    every
        Rounds from one choice to the next, at least 1: nodes choose in round t if `every` divides t
        (and in round 0).
    keep
        Whether nodes average over their last choice in the rounds between; False: they only train
        then, as in the authors' code.
    streamed
        Whether the first choice downloads all other models twice (BGGC, which never stores more
        than `budget` of them; in practice its second pass may end early); False: once (GGC). The
        choice is the same (Theorem 1).
    count_self
        Whether a node counts toward its own budget, as in the paper's listing.
    passive
        Nodes that send but choose no peers, such as malicious ones.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or has the wrong type.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL: Decentralized personalized federated learning" (2025),
    Algorithms 1 to 3.

    Examples
    --------
    >>> from topofl.algorithms import average_over_peers, chain, sgd
    >>> exchange = average_over_peers(greedy_peers(budget=4, every=5))
    >>> chain("mine", local=sgd(0.1), exchange=exchange).settings["exchange"]["budget"]
    4
    """
    for name, value in {"keep": keep, "streamed": streamed, "count_self": count_self}.items():
        check_switch(name, value, auto=False)
    itself = int(count_self)
    limit = None if budget is None else check_int("budget", budget, minimum=itself) - itself
    every = check_int("every", every, minimum=1)
    nodes = check_sequence("passive", passive, "nodes, such as [0, 3]")
    idle = sorted({check_int("passive", node, minimum=0) for node in nodes})

    def init(models: Models) -> State:
        n = len(models.flat)
        others = ~torch.eye(n, dtype=torch.bool, device="cpu")
        if idle and idle[-1] >= n:
            raise ValueError(f"`passive` must name nodes from 0 to n-1={n - 1}, got {idle[-1]}")
        others[idle] = False
        return {"candidates": others, "chosen": torch.zeros(n, n, dtype=torch.bool, device="cpu")}

    def choose(models: Models, state: State, round: Round) -> Choice:
        candidates = state["candidates"]
        chosen = state["chosen"]
        reachable = can_receive(round.peers)
        if round.t % every != 0:
            return Choice(average_of_chosen(chosen & reachable & keep, round.sizes))
        if round.t == 0:
            candidates &= reachable
        downloads = average_of_chosen(candidates & reachable)
        chosen.copy_(_choose_greedily(models, candidates & reachable, limit, round))
        if round.t == 0:
            candidates.copy_(chosen)
        times = 0 if limit == 0 else 2 if streamed and round.t == 0 else 1
        return Choice(average_of_chosen(chosen, round.sizes), [downloads] * times)

    settings = {"weights": "greedy", "budget": budget, "every": every, "keep": keep}
    settings |= {"streamed": streamed, "count_self": count_self}
    settings |= {"passive": idle} if idle else {}
    return Policy(choose, init, settings, rowwise=True)


@public
def random_peers(budget: int) -> Policy:
    """Return the policy of a random collaboration graph, the same in all rounds.

    In round 0 every node draws its peers among its in-neighbors. It averages with them, weighted by
    numbers of training examples; in later rounds, with those that are its in-neighbors then.

    Parameters
    ----------
    budget
        Number of nodes from which each receives, at least 0; all in-neighbors if there are fewer.

    Examples
    --------
    >>> random_peers(4).settings["budget"]
    4
    """
    budget = check_int("budget", budget, minimum=0)

    def init(models: Models) -> State:
        n = len(models.flat)
        return {"chosen": torch.zeros(n, n, dtype=torch.bool, device="cpu")}

    def choose(models: Models, state: State, round: Round) -> Choice:
        chosen = state["chosen"]
        reachable = can_receive(round.peers)
        if round.t == 0:
            rng = round.rng("collaboration")
            for k, row in enumerate(reachable):
                chosen[k, rng.permutation(row.nonzero()[:, 0].numpy())[:budget].tolist()] = True
        return Choice(average_of_chosen(chosen & reachable, round.sizes))

    return Policy(choose, init, {"weights": "random", "budget": budget}, rowwise=True)


Sum = tuple[Tensor, float]
"""The sum of models, (d,) float64, each times its number of examples, and the sum of these."""


def _choose_greedily(models: Models, candidates: Tensor, limit: int | None, round: Round) -> Tensor:
    """Return the candidates that each node chooses, (n, n) booleans."""
    if not models.flat.is_meta:
        finite = torch.isfinite(models.flat).all(1).cpu()
        candidates = candidates & finite & finite[:, None]
    pools = {k: row.nonzero()[:, 0].numpy() for k, row in enumerate(candidates) if row.any()}
    limits = {k: len(pool) if limit is None else min(limit, len(pool)) for k, pool in pools.items()}
    if models.flat.is_meta:  # the largest choice, and nodes without validation examples are found
        round.cross_evaluate({}, "val")
        found = {k: pool[: limits[k]] for k, pool in pools.items()}
    else:
        flat, sizes = models.flat, round.sizes.astype(float)

        @lru_cache(maxsize=1)  # all nodes have the same if each has all others as candidates
        def sum_of(nodes: tuple[int, ...]) -> Sum:
            total = torch.zeros_like(flat[0], dtype=torch.float64)
            for j in nodes:
                total.add_(flat[j], alpha=sizes[j])
            return total, float(sizes[list(nodes)].sum())

        trials = {
            k: _double_greedy(models, k, pool, limits[k], sum_of, round)
            for k, pool in pools.items()
        }
        found = round.cross_evaluate(trials, "val")
    chosen = torch.zeros_like(candidates)
    for k, nodes in found.items():
        chosen[k, list(nodes)] = True
    return chosen


def _double_greedy(
    models: Models,
    k: int,
    pool: np.ndarray,
    limit: int,
    sum_of: Callable[[tuple[int, ...]], Sum],
    round: Round,
) -> Trial[list[int]]:
    """Return the peers that node k chooses, by evaluating mean models of groups."""
    flat, sizes = models.flat, [float(size) for size in round.sizes]
    order, coins = shuffled(k, pool, round.rng(f"collaboration of {k}"))

    @lru_cache(maxsize=1)  # a candidate is added to one group, then removed from another
    def model(j: int) -> Tensor:
        return flat[j].double()

    def plus(group: Sum, j: int, sign: int = 1) -> Sum:
        (total, size), more = group, sign * sizes[j]
        return total.add(model(j), alpha=more), size + more

    def minus(group: Sum, j: int) -> Sum:
        return plus(group, j, -1)

    def rewards(losses: Tensor) -> list[float]:
        return (-losses.nan_to_num(nan=torch.inf).clamp(max=-WORST)).tolist()

    def means(groups: Sequence[Sum]) -> Tensor:
        found = flat.new_empty(len(groups), flat.shape[1])
        for row, (total, size) in zip(found, groups, strict=True):
            row.copy_(total * (1 / size))
        model.cache_clear()  # off CPU the trials of all nodes wait for their losses together
        return found

    taken = model(k) * sizes[k], sizes[k]
    left = sum_of(tuple(sorted([*pool.tolist(), k])))
    rounding = max(1e-12, 4 * torch.finfo(flat.dtype).eps)
    steps = double_greedy(taken, left, order, coins, limit, plus, minus, rounding)
    return (yield from translate_queries(steps, means, rewards))
