"""PFedDST's peer selection: nodes score their neighbors and receive from the best."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import (
    check_choice,
    check_int,
    check_nonnegative,
    check_number,
    check_positive,
    check_switch,
)
from topofl.algorithms.contract.parts import Part, as_part, head
from topofl.algorithms.contract.phase import Phase, sharing
from topofl.algorithms.contract.round import Models, Round, State, Trial
from topofl.algorithms.exchanges.peers import Choice, Policy, can_receive
from topofl.mixing import MixingMatrix, average_of_chosen
from topofl.topology import Topology

__all__ = ["refresh_losses", "scored_peers", "scores"]

LOSSES, LAST = "losses", "last"
"""Names of the states, both (n, n) float64.

The loss of i's model on j's examples, inf if never evaluated; and the round in which i last
received from j, -inf if never.
"""

COLUMNS = 2**12
"""Columns of heads multiplied at a time in float64: 32 MB for 1000 nodes."""

DECIMALS = 12
"""Decimals of cosines, so that equal heads are equally near in any order of summation."""

SAME = 1e-9
"""Largest difference of losses or distances that counts as rounding."""

NUMBERS = 2**16
"""Parameters of the models that a node evaluates at a time."""


def scored_peers(
    k: int | None = 10,
    threshold: float | None = None,
    *,
    standardize: bool = True,
    alpha: float = 1.0,
    recency_rate: float = 0.3,
    cost: float | None = None,
    header_sign: str = "intended",
    loss_refresh: str = "selected",
    head: Part | str = head,
) -> Policy:
    """Return PFedDST's policy: every node averages itself with the peers that score best.

    The score of peer j for node i is high where i's model is bad on j's data, where their heads are
    alike, and where i has not received from j for long, see
    :func:`topofl.algorithms.scored.scores`. A peer that was never tried counts as an infinite loss,
    so that with ``loss_refresh="selected"`` each peer is chosen once before any is chosen again, in
    random order; ties are broken at random too. A peer whose score is not a number, because one of
    the two models diverged, comes last.

    To score, a node receives the heads of all its candidates in every round. Losses are those that
    a later phase of the chain computed, :func:`refresh_losses`.

    Parameters
    ----------
    k
        Most peers to receive from, at least 0; None sets no limit.
    threshold
        Receive only from peers with higher scores, of these the `k` best (with ``k=None`` all);
        None: from peers of any score.
    standardize, alpha, recency_rate, cost, header_sign
        As in :func:`topofl.algorithms.scored.scores`. With ``standardize=False``, ``alpha=1`` and
        ``cost=2`` the terms enter as the paper's formula has them, whatever their units.
    loss_refresh
        Whose losses the later phase refreshes, ``"selected"`` or ``"all"``; ``"none"``: there is
        none, and all losses count as 0.
    head
        The part of the model whose directions are compared, or the name of a layer.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of another type; in round 1 if losses should have been
        refreshed and were not.

    References
    ----------
    Fan et al., "PFedDST" (2025), section II and Algorithm 1.
    """
    most = None if k is None else check_int("k", k, minimum=0)
    least = None if threshold is None else check_number("threshold", threshold)
    check_choice("header_sign", header_sign, ["intended", "literal"])
    check_switch("standardize", standardize, auto=False)
    score = partial(
        scores,
        standardize=standardize,
        alpha=check_nonnegative("alpha", alpha),
        recency_rate=check_positive("recency_rate", recency_rate),
        cost=_largest_distance(standardize, header_sign)
        if cost is None
        else check_nonnegative("cost", cost),
        header_sign=header_sign,
    )
    refreshed = check_choice("loss_refresh", loss_refresh, ["selected", "all", "none"]) != "none"
    personal, candidates = as_part("head", head), _candidates_once()

    def init(models: Models) -> State:
        models.columns(personal)  # raises before any work
        n = len(models.flat)
        losses = (
            {LOSSES: torch.full((n, n), torch.inf, dtype=torch.float64, device="cpu")}
            if refreshed
            else {}
        )
        return losses | {LAST: torch.full((n, n), -torch.inf, dtype=torch.float64, device="cpu")}

    def choose(models: Models, state: State, round: Round) -> Choice:
        able, last = candidates(round.peers), state[LAST]
        losses = state.get(LOSSES, torch.zeros((), dtype=last.dtype, device=last.device))
        _check_refreshed(losses, last)
        if models.flat.is_meta:  # as many as can be
            found = torch.full_like(last, torch.inf)
        else:
            found = score(losses, _cosines(models, personal), round.t - last, able.pairs)
        draws = round.rng("peers").random(last.shape)
        chosen = _best(found, able.pairs, draws, most, least)
        last[chosen] = round.t
        size = (
            sum(models.flat[:, part].shape[1] for part in models.columns(personal))
            * models.flat.element_size()
        )
        return Choice(average_of_chosen(chosen), besides=[(able.average_over_peers, size)])

    settings = {"weights": "scored", "k": most, "threshold": least} | score.keywords
    return Policy(choose, init, settings | {"loss_refresh": loss_refresh, "head": str(personal)})


def scores(
    losses: Tensor,
    cosines: Tensor,
    ages: Tensor,
    candidates: Tensor,
    *,
    standardize: bool,
    alpha: float,
    recency_rate: float,
    cost: float,
    header_sign: str,
) -> Tensor:
    """Return the score that node i gives to peer j, (n, n) float64; the highest are chosen.

    ::

        S_ij = s_p (alpha s_l - d + cost)
        s_p = 1 - exp(-recency_rate * ages_ij),   s_l = losses_ij,   d = 1 - cosines_ij

    With ``standardize=True``, ``s_l`` and ``d`` are scaled for every node i so that they run from 0
    to 1 over its candidates::

        s_l = (losses_ij - min_j losses_ij) / (max_j losses_ij - min_j losses_ij)
        d likewise from 1 - cosines_ij

    where minimum and maximum are over the candidates for which the quantity is finite: for losses,
    those that i has tried. Infinite losses (never tried) stay infinite, so that these peers come
    first. A term that is the same for all candidates (within 1e-9), or known of one only, tells
    none of them apart and is 0.

    The scaling makes the two terms comparable: cross-entropies differ between peers by whole units,
    the cosines of heads by hundredths, so that as they are (``standardize=False``) losses decide
    alone. It also says how large the constant must be. The bracket must not be negative, or age
    would count backwards: ``cost`` must be at least the largest distance, which is 1 after scaling.
    Nor should it be larger, as recency multiplies the constant: a large one turns the choice into
    taking turns, while at the smallest the peer with the most distant head and the smallest loss
    scores 0 however long ago it was chosen, which is what the product is for in the paper.

    Parameters
    ----------
    losses
        (n, n), or one number for all: the loss of i's model on j's examples, inf if never tried.
    cosines
        (n, n): of the angles between heads.
    ages
        (n, n): rounds since i last chose j, inf if it never did.
    candidates
        (n, n) booleans: whom i can choose.
    standardize
        Whether to scale losses and distances to [0, 1] for each node, as above.
    alpha
        Weight of losses, at least 0; at 0 they do not count, infinite ones neither.
    recency_rate
        Lambda, above 0: how fast those who were chosen come back; at 0.3 half of the way in 2.3
        rounds.
    cost
        The paper's c, at least 0, the same for all.
    header_sign
        ``"intended"``, as above; ``"literal"``: ``d = cosines_ij``, as the paper's formula reads,
        which prefers unlike heads although its text says the contrary.

    References
    ----------
    Fan et al., "PFedDST" (2025), equations 6 to 9. The paper gives neither values for alpha, lambda
    and c nor units for the terms: the scaling is ours.

    Examples
    --------
    Three peers that were never chosen before: the first has the largest loss and the most distant
    head, the last the nearest head. Scaled, both terms count; as they are, the loss decides.

    >>> losses, cosines = torch.tensor([[3.0, 1.0, 2.5]]), torch.tensor([[0.95, 0.97, 0.99]])
    >>> ages, candidates = torch.full((1, 3), torch.inf), torch.full((1, 3), True)
    >>> constants = {"alpha": 1, "recency_rate": 0.3, "header_sign": "intended"}
    >>> scores(losses, cosines, ages, candidates, standardize=True, cost=1, **constants)
    tensor([[1.0000, 0.5000, 1.7500]])
    >>> scores(losses, cosines, ages, candidates, standardize=False, cost=2, **constants)
    tensor([[4.9500, 2.9700, 4.4900]])
    """
    distances = cosines if header_sign == "literal" else 1 - cosines
    if standardize:
        losses, distances = (_standardized(values, candidates) for values in (losses, distances))
    gains = cost - distances + (alpha * losses if alpha else 0)
    return -torch.expm1(-recency_rate * ages) * gains


def _standardized(values: Tensor, candidates: Tensor) -> Tensor:
    """Return values scaled to [0, 1] per row, 0 if all are equal; inf and NaN stay."""
    known = candidates & values.isfinite()
    least = values.where(known, torch.inf).amin(1, keepdim=True)
    spread = values.where(known, -torch.inf).amax(1, keepdim=True) - least
    scaled = torch.where(spread > SAME, (values - least) / spread, 0.0)
    return torch.where(known, scaled, values)


def _largest_distance(standardize: bool, header_sign: str) -> float:
    """Return the smallest cost with which no bracket of a score is negative."""
    return 1.0 if standardize or header_sign == "literal" else 2.0


def refresh_losses(owner: str, loss_refresh: str = "selected") -> Phase:
    """Return the phase in which peers evaluate models for the next :func:`scored_peers`.

    The loss of i's model on j's training examples is found by j: the whole model goes there,
    against the edge where the graph is directed, and one number comes back. A node passes over its
    examples once for each model that it tries.

    Parameters
    ----------
    owner
        An earlier phase of the chain, ``average_over_peers(scored_peers(...), share)``.
    loss_refresh
        By whom a model is tried: ``"selected"``, those whom its node has just heard; ``"all"``, all
        whom it can hear.
    """
    everybody = check_choice("loss_refresh", loss_refresh, ["selected", "all"]) == "all"
    candidates = _candidates_once()

    def apply(models: Models, state: State, round: Round) -> State:
        if LOSSES not in state:
            raise ValueError(
                f"`owner` must be a phase that hears peers by losses, {owner!r} keeps none; use "
                "average_over_peers(scored_peers(loss_refresh='selected'))"
            )
        able = candidates(round.peers) if everybody else _Candidates.of(state[LAST] == round.t)
        _refresh(state[LOSSES], round.shown(models.flat), able.pairs, round)
        numbers, itemsize = models.flat.shape[1], models.flat.element_size()
        round.send(able.received, numbers * itemsize)
        round.send(able.average_over_peers, itemsize)
        return state

    return sharing(owner, Phase(lambda models: {}, apply, {"loss_refresh": loss_refresh}))


class _Candidates(NamedTuple):
    """From which nodes each can receive: (n, n) booleans, and matrices of both directions."""

    pairs: Tensor
    average_over_peers: MixingMatrix
    received: MixingMatrix

    @classmethod
    def of(cls, pairs: Tensor) -> "_Candidates":
        return cls(pairs, average_of_chosen(pairs), average_of_chosen(pairs.T))


def _candidates_once() -> Callable[[Topology], _Candidates]:
    """Return the function from a graph to its candidates; the last graph's are cached."""

    @lru_cache(maxsize=1)
    def candidates(topology: Topology) -> _Candidates:
        return _Candidates.of(can_receive(topology).fill_diagonal_(False))

    return candidates


def _check_refreshed(losses: Tensor, last: Tensor) -> None:
    if bool((losses.isposinf() & last.isfinite()).any()):
        raise ValueError(
            "`loss_refresh` must be 'none' where no later phase refreshes losses; add one to the "
            "chain, losses=refresh_losses('exchange')"
        )


def _cosines(models: Models, part: Part) -> Tensor:
    """Return cosines between all nodes' parts, (n, n) float64 on the CPU; 0 for zero parts."""
    flat = models.flat
    products = torch.zeros(len(flat), len(flat), dtype=torch.float64, device=flat.device)
    for columns in models.columns(part):
        for block in flat[:, columns].split(COLUMNS, dim=1):
            wide = block.double()
            products.addmm_(wide, wide.T)
    lengths = products.diagonal().sqrt()
    inverse = torch.where(lengths == 0, 0, 1 / lengths)
    return (products * inverse[:, None] * inverse).clamp(-1, 1).round(decimals=DECIMALS).cpu()


def _best(
    found: Tensor, pairs: Tensor, draws: np.ndarray, most: int | None, least: float | None
) -> Tensor:
    """Return the chosen peers, (n, n) booleans: of `pairs` the `most` best above `least`."""
    able = pairs if least is None else pairs & (found > least)
    if most is None:
        return able
    worth = found.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    order = np.lexsort((draws, -worth.numpy(), ~able.numpy()), axis=-1)[:, :most]
    return torch.zeros_like(able).scatter_(1, torch.from_numpy(order.copy()), True) & able


def _refresh(losses: Tensor, flat: Tensor, pairs: Tensor, round: Round) -> None:
    """Write the losses of i's model on j's examples into `losses` for all `pairs` (i, j)."""
    if flat.is_meta:
        round.cross_evaluate({}, "train")
        losses[pairs] = 0.0
        return
    askers = {j: column.nonzero()[:, 0] for j, column in enumerate(pairs.T) if column.any()}
    rows = torch.cat(list(askers.values())).to(flat.device) if askers else pairs.new_zeros(0)
    groups = dict(zip(askers, rows.split(list(map(len, askers.values()))), strict=True))
    found = round.cross_evaluate({j: _trial(flat, nodes) for j, nodes in groups.items()}, "train")
    for j, nodes in askers.items():
        losses[nodes, j] = found[j].clamp(
            max=torch.finfo(torch.float64).max
        )  # infinite ones were never tried


def _trial(flat: Tensor, nodes: Tensor) -> Trial[Tensor]:
    """Try some nodes' models, a few at a time."""
    found = []
    for few in nodes.split(max(1, NUMBERS // flat.shape[1])):
        found.append((yield flat[few]))
    return torch.cat(found)
