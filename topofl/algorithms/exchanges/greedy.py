"""DPFL's peer selection: greedy graph construction on validation losses, and a random baseline."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int, check_sequence, check_switch
from topofl._support.generators import translated
from topofl.algorithms.contract.round import Models, Round, State, Trial
from topofl.algorithms.exchanges.peers import Choice, Policy, can_receive
from topofl.mixing import average_of_chosen
from topofl.topologies.from_data.greedy_choice import WORST, double_greedy, shuffled

__all__ = ["greedy_peers", "random_peers"]


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

    In round 0 every node k chooses its candidates ``Omega_k``, at most `budget` of all whom it can
    hear; later its collaborators ``C_k`` among those of these whom the round's graph lets it hear.
    It judges a group by the loss of the group's mean on its own validation examples
    (:func:`topofl.topologies.ggc`), and goes on from the mean of those that it chose, weighted by
    numbers of training examples. Candidates that are not chosen may be chosen again later; others
    never. A change of the loss by less than 4 times the precision of the models' numbers, relative
    to it, counts as none. Models that are not finite are no candidates, and who has one chooses
    nobody; no group is chosen whose loss is not finite.

    Parameters
    ----------
    budget
        Most nodes to receive from, at least 0; None sets no limit.
    every
        Rounds from one choice to the next, at least 1: round t chooses if it divides t (and in
        round 0).
    keep
        Whether nodes average over their last choice in the rounds between; False: they train alone
        then, as in the authors' code.
    streamed
        How many models the first choice costs: twice all the others (BGGC, which never holds more
        than a budget of them; its second pass may in fact end early), or, if False, once (GGC). The
        choice is the same (Theorem 1).
    count_self
        Whether a node counts towards its own budget, as in the paper's listing.
    passive
        Nodes that choose nobody and only send, such as malicious ones.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL: Decentralized personalized federated learning" (2025),
    Algorithms 1 to 3.
    """
    limit = (
        None
        if budget is None
        else check_int("budget", budget, minimum=int(count_self)) - int(count_self)
    )
    every, idle = check_int("every", every, minimum=1), _check_nodes("passive", passive)
    for name, value in {"keep": keep, "streamed": streamed, "count_self": count_self}.items():
        check_switch(name, value, auto=False)

    def init(models: Models) -> State:
        n = len(models.flat)
        others = ~torch.eye(n, dtype=torch.bool, device="cpu")
        if idle and idle[-1] >= n:
            raise ValueError(f"`passive` must name nodes from 0 to n-1={n - 1}, got {idle[-1]}")
        others[idle] = False
        return {"candidates": others, "chosen": torch.zeros(n, n, dtype=torch.bool, device="cpu")}

    def choose(models: Models, state: State, round: Round) -> Choice:
        candidates, chosen, able = state["candidates"], state["chosen"], can_receive(round.peers)
        if round.t % every != 0:
            return Choice(average_of_chosen(chosen & able & keep, round.sizes))
        if round.t == 0:
            candidates &= able
        asked = average_of_chosen(candidates & able)
        chosen.copy_(_choose_greedily(models, candidates & able, limit, round))
        if round.t == 0:
            candidates.copy_(chosen)
        times = 0 if limit == 0 else 2 if streamed and round.t == 0 else 1
        return Choice(average_of_chosen(chosen, round.sizes), [asked] * times)

    settings = {
        "weights": "greedy",
        "budget": budget,
        "every": every,
        "keep": keep,
        "streamed": streamed,
    }
    settings |= {"count_self": count_self} | ({"passive": idle} if idle else {})
    return Policy(choose, init, settings)


def _check_nodes(name: str, nodes: Any) -> list[int]:
    """Return different nodes, ascending, or raise."""
    return sorted(
        {
            check_int(name, i, minimum=0)
            for i in check_sequence(name, nodes, "nodes, such as [0, 3]")
        }
    )


def random_peers(budget: int) -> Policy:
    """Return the policy of a random collaboration graph, the same in all rounds.

    They are drawn in round 0 among those whom it can hear, and weighted by numbers of training
    examples. Where the graph changes, a node goes without those whom it cannot hear in a round.

    Parameters
    ----------
    budget
        From how many nodes each receives, at least 0; all that it can hear if these are fewer.
    """
    budget = check_int("budget", budget, minimum=0)

    def init(models: Models) -> State:
        n = len(models.flat)
        return {"chosen": torch.zeros(n, n, dtype=torch.bool, device="cpu")}

    def choose(models: Models, state: State, round: Round) -> Choice:
        chosen, able = state["chosen"], can_receive(round.peers)
        if round.t == 0:
            rng = round.rng("collaboration")
            for k, row in enumerate(able):
                chosen[k, rng.permutation(row.nonzero()[:, 0].numpy())[:budget].tolist()] = True
        return Choice(average_of_chosen(chosen & able, round.sizes))

    return Policy(choose, init, {"weights": "random", "budget": budget})


class _WeightedSum(NamedTuple):
    """The sum of some models, (d,) float64, each times its size, and the sum of these."""

    total: Tensor
    size: float


def _choose_greedily(models: Models, candidates: Tensor, limit: int | None, round: Round) -> Tensor:
    """Return whom each node chooses of its candidates, (n, n) booleans."""
    if not models.flat.is_meta:
        finite = torch.isfinite(models.flat).all(1).cpu()
        candidates = candidates & finite & finite[:, None]
    pools = {k: row.nonzero()[:, 0].numpy() for k, row in enumerate(candidates) if row.any()}
    limits = {k: len(pool) if limit is None else min(limit, len(pool)) for k, pool in pools.items()}
    if models.flat.is_meta:  # as many as can be
        round.cross_evaluate(
            {}, "val"
        )  # so that nodes without such examples are found before the run
        found = {k: pool[: limits[k]] for k, pool in pools.items()}
    else:
        found = round.cross_evaluate(
            {k: _trial(models, k, pool, limits[k], round) for k, pool in pools.items()}, "val"
        )
    chosen = torch.zeros_like(candidates)
    for k, nodes in found.items():
        chosen[k, list(nodes)] = True
    return chosen


def _trial(models: Models, k: int, pool: np.ndarray, limit: int, round: Round) -> Trial[list[int]]:
    """Choose for node k: try means of groups, whose weighted sums are kept in float64."""
    flat, sizes = models.flat, round.sizes.astype(float)
    order, coins = shuffled(k, pool, round.rng(f"collaboration of {k}"))

    def plus(group: _WeightedSum, j: int, sign: int = 1) -> _WeightedSum:
        return _WeightedSum(
            group.total.add(flat[j], alpha=sign * sizes[j]), group.size + sign * sizes[j]
        )

    def minus(group: _WeightedSum, j: int) -> _WeightedSum:
        return plus(group, j, -1)

    def rewards(losses: Tensor) -> list[float]:
        return (-losses.nan_to_num(nan=torch.inf).clamp(max=-WORST)).tolist()

    def means(groups: Sequence[_WeightedSum]) -> Tensor:
        return torch.stack([(group.total / group.size).to(flat.dtype) for group in groups])

    taken = plus(_WeightedSum(torch.zeros_like(flat[k], dtype=torch.float64), 0.0), k)
    left = _WeightedSum(taken.total.clone(), taken.size + float(sizes[pool].sum()))
    for j in pool.tolist():
        left.total.add_(flat[j], alpha=float(sizes[j]))
    rounding = max(1e-12, 4 * torch.finfo(flat.dtype).eps)
    steps = double_greedy(taken, left, order, coins, limit, plus, minus, rounding)
    return (yield from translated(steps, means, rewards))
