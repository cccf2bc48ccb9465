"""Exchanges in which nodes choose by models from which peers they receive."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor

from topofl._support.check import check_int, check_sequence, check_switch, shown
from topofl._support.generators import translate_queries
from topofl.algorithms.contract.parts import Part, as_part, everything
from topofl.algorithms.contract.phase import Phase
from topofl.algorithms.contract.round import Models, Round, State, Trial, nothing
from topofl.mixing import MixingMatrix, average_of_chosen, check_pulls, from_weights
from topofl.topologies.from_data.greedy_choice import WORST, double_greedy, shuffled
from topofl.topology import Topology, TopologyError

__all__ = ["Choice", "Policy", "average_over_peers", "can_receive", "greedy_peers", "random_peers"]


class Choice(NamedTuple):
    """From which peers nodes receive in a round.

    Attributes
    ----------
    weights
        (n, n), rows sum to 1: row i holds the weights with which node i averages models.
    downloads
        Matrices along whose off-diagonal entries whole messages travel, to choose and to average;
        None: along those of `weights`.
    besides
        Further messages that the choice takes: matrices, and the bytes of a message along each of
        their off-diagonal entries.
    server
        How many messages' worth a server sends down to each node, in one message, for the message
        that each sends up. 0: there is no server. With a server, `downloads` are None.

    See Also
    --------
    topofl.mixing.average_of_chosen, topofl.mixing.from_weights
    """

    weights: MixingMatrix
    downloads: Sequence[MixingMatrix] | None = None
    besides: Sequence[tuple[MixingMatrix, int]] = ()
    server: int = 0


class Policy(NamedTuple):
    """How nodes choose the peers from which they receive.

    Attributes
    ----------
    choose
        ``choose(models, state, round)`` -> :class:`Choice`; it may change the state, not the
        models. Peers are restricted to the edges of ``round.peers``: along (j, i), i receives from
        j. Random numbers come from ``round.rng``, losses on nodes' own examples from
        ``round.cross_evaluate``; see :class:`topofl.algorithms.Round`.
    init
        ``init(models)`` -> its state, tensors by name that last from round to round.
    settings
        Its arguments, kept with results.
    """

    choose: Callable[[Models, State, Round], Choice]
    init: Callable[[Models], State] = nothing
    settings: Mapping[str, Any] = MappingProxyType({})


def average_over_peers(policy: Policy, share: Part = everything) -> Phase:
    """Return the phase in which nodes average with peers that a policy chooses.

    All models are read before any is replaced (synchronous). The history keeps the matrix of every
    round, a graph like any other: ``history.mixings``. Nodes receive only along edges of the run's
    topology; without one, from all nodes.

    Parameters
    ----------
    policy
        Such as :func:`greedy_peers`, or your own.
    share
        The part of the models that is averaged; the rest stays at its node.

    Raises
    ------
    TypeError
        If `policy` is no Policy, or its functions are none; in a run, if it returns no Choice with
        a MixingMatrix.
    ValueError
        If it evaluates on other examples than ``"train"`` or ``"val"``; in a run, with the round
        named, if it changes models or returns impossible costs.

    Examples
    --------
    Every node averages with the node whose model is nearest to its own:

    >>> def nearest(models, state, round):
    ...     distances = torch.cdist(models.flat, models.flat).fill_diagonal_(torch.inf)
    ...     chosen = torch.zeros_like(distances).scatter_(1, distances.argmin(1)[:, None], 1)
    ...     return Choice(average_of_chosen(chosen))
    >>> average_over_peers(Policy(nearest, settings={"weights": "nearest"})).settings
    {'weights': 'nearest'}
    """
    share, policy = as_part("share", share), _checked(policy)

    def init(models: Models) -> State:
        models.columns(share)  # raises before any work
        return (
            _played(policy.init, models)
            if models.flat.is_meta
            else _checked_state(policy.init(models))
        )

    def apply(models: Models, state: State, round: Round) -> State:
        with _naming_round(round.t):
            others = round.shown(models.flat)
            seen = models if others is models.flat else models.like(others)
            choice, columns = _chosen(policy, seen, state, round), models.columns(share)
            weights = check_pulls(choice.weights).check_on(round.peers)
        round.mix(
            weights, models.flat, columns, counted=choice.downloads is None and not choice.server
        )
        size = sum(models.flat[:, part].shape[1] for part in columns) * models.flat.element_size()
        if choice.server:
            round.send(_everybody(weights.n), size * (1 + choice.server) // 2, server=True)
        for sent, nbytes in [*((whole, size) for whole in choice.downloads or ()), *choice.besides]:
            round.send(sent.check_on(round.peers), nbytes)
        return state

    return Phase(
        init, apply, dict(policy.settings) | ({} if share.is_everything else {"share": str(share)})
    )


def _checked(policy: Any) -> Policy:
    """Return the policy, or raise."""
    if not isinstance(policy, Policy) or not callable(policy.choose) or not callable(policy.init):
        raise TypeError(
            f"`policy` must be a Policy of functions, as Policy(choose), got {shown(policy)}"
        )
    return policy


@contextmanager
def _naming_round(t: int) -> Iterator[None]:
    """Put the round, counted from 1, in front of error messages."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = next(
            kind for kind in (TopologyError, TypeError, ValueError) if isinstance(error, kind)
        )
        raise kind(f"round {t + 1}, where nodes choose their peers: {error}") from error


def _played(init: Callable[[Models], State], models: Models) -> State:
    """Return a policy's state on meta tensors; nothing if it needs values."""
    try:
        return _checked_state(init(models))
    except (RuntimeError, TypeError):
        return {}


def _needs_numbers(error: BaseException | None) -> bool:
    """Return whether an error, or a cause of it, is that a tensor has no values."""
    while error is not None:
        if "meta" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def _foretold(policy: Policy, models: Models, state: State, round: Round) -> Choice:
    """Return a policy's choice on meta tensors; if it needs values, all allowed peers."""
    try:
        return _made(policy.choose(models, dict(state), round))
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        unmade = isinstance(error, KeyError) and not state  # what `init` makes needs numbers, too
        if not unmade and not _needs_numbers(error):
            raise
        return Choice(average_of_chosen(can_receive(round.peers)))


def _chosen(policy: Policy, models: Models, state: State, round: Round) -> Choice:
    """Return what a policy chooses, or raise if it may not."""
    if models.flat.is_meta:
        return _foretold(policy, models, state, round)
    before = models.flat._version  # torch counts changes in place
    choice = _made(policy.choose(models, state, round))
    _checked_state(state)
    if models.flat._version != before:
        raise ValueError(
            "a policy must not change models, got some that it changed; work on models.flat.clone()"
        )
    return choice


def _checked_state(state: Any) -> State:
    """Return what a policy carries, or raise if a checkpoint could not."""
    if not isinstance(state, dict):
        raise TypeError(f"a policy's state must be a dict of tensors, got {type(state).__name__}")
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"a policy's state must hold tensors, got {type(value).__name__} as "
                f"state[{name!r}]; torch.tensor(...)"
            )
    return state


def _made(choice: Any) -> Choice:
    """Return what a policy chose, or raise."""
    if not isinstance(choice, Choice) or not isinstance(choice.weights, MixingMatrix):
        what = type(choice.weights if isinstance(choice, Choice) else choice).__name__
        raise TypeError(
            f"a policy must return Choice(weights) with a MixingMatrix, got {what}; "
            "mixing.average_of_chosen(hears) or mixing.from_weights(weights) makes one"
        )
    check_int("server", choice.server, minimum=0)
    if not isinstance(choice.downloads, Sequence | None) or not isinstance(
        choice.besides, Sequence
    ):
        raise TypeError(
            "`downloads` and `besides` of a Choice must be lists, such as [matrix] and [(matrix, "
            "4)]"
        )
    for one in (*(choice.downloads or ()), *(matrix for matrix, _ in choice.besides)):
        if not isinstance(one, MixingMatrix):
            raise TypeError(
                "`downloads` and `besides` of a Choice must hold MixingMatrix, got "
                f"{type(one).__name__}"
            )
    for _, nbytes in choice.besides:
        check_int("besides", nbytes, minimum=0)
    _check_covered(choice)
    return choice


def _check_covered(choice: Choice) -> None:
    """Raise ``ValueError`` if models are averaged that did not travel."""
    if choice.downloads is None:
        return
    used = choice.weights.support().adjacency
    for one in choice.downloads:
        used = used - used.multiply(one.support().adjacency)
    if used.count_nonzero():
        i, j = min(zip(*used.T.nonzero(), strict=True))
        raise ValueError(
            "`downloads` of a Choice must hold all edges along which models are averaged, node "
            f"{i} takes of node {j} without a download; None means those of `weights`"
        )


def _everybody(n: int) -> MixingMatrix:
    """Return a matrix with columns of all nodes, whatever they give each other."""
    return from_weights(sparse.eye_array(n, format="csr"), name="everybody")


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
    every, idle = check_int("every", every, minimum=1), _nodes("passive", passive)
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
        chosen.copy_(_greedily(models, candidates & able, limit, round))
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


def _nodes(name: str, nodes: Any) -> list[int]:
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


def can_receive(topology: Topology) -> Tensor:
    """Return from which nodes each can receive on a graph, (n, n) booleans, row i for node i."""
    return torch.from_numpy(topology.adjacency.T.toarray() != 0)


class _Sum(NamedTuple):
    """The sum of some models, (d,) float64, each times its size, and the sum of these."""

    total: Tensor
    size: float


def _greedily(models: Models, candidates: Tensor, limit: int | None, round: Round) -> Tensor:
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

    def plus(group: _Sum, j: int, sign: int = 1) -> _Sum:
        return _Sum(group.total.add(flat[j], alpha=sign * sizes[j]), group.size + sign * sizes[j])

    def minus(group: _Sum, j: int) -> _Sum:
        return plus(group, j, -1)

    def rewards(losses: Tensor) -> list[float]:
        return (-losses.nan_to_num(nan=torch.inf).clamp(max=-WORST)).tolist()

    def means(groups: Sequence[_Sum]) -> Tensor:
        return torch.stack([(group.total / group.size).to(flat.dtype) for group in groups])

    taken = plus(_Sum(torch.zeros_like(flat[k], dtype=torch.float64), 0.0), k)
    left = _Sum(taken.total.clone(), taken.size + float(sizes[pool].sum()))
    for j in pool.tolist():
        left.total.add_(flat[j], alpha=float(sizes[j]))
    rounding = max(1e-12, 4 * torch.finfo(flat.dtype).eps)
    steps = double_greedy(taken, left, order, coins, limit, plus, minus, rounding)
    return (yield from translate_queries(steps, means, rewards))
