"""PFedDST's peer selection: nodes score their neighbors and average with the best."""

from functools import lru_cache
from typing import Any

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
from topofl._support.public import public
from topofl.algorithms.contract.phase import Phase, sharing
from topofl.algorithms.contract.round import (
    Models,
    Part,
    Round,
    State,
    Trial,
    as_part,
    head,
    no_state,
)
from topofl.algorithms.exchanges.peers import Choice, Policy, can_receive
from topofl.mixing import MixingMatrix, average_of_chosen
from topofl.topology import Topology

__all__ = ["refresh_losses", "scored_peers"]

LOSSES = "losses"
"""State (n, n) float64: the loss of i's model on j's examples, inf if never evaluated."""

LAST = "last"
"""State (n, n) float64: the round in which i last received from j, -inf if never."""

COLUMNS = 2**12
"""Columns of heads multiplied at a time in float64: 32 MB for 1000 nodes."""

DECIMALS = 12
"""Decimals to which cosines are rounded, so that they do not depend on the order of summation."""

SAME = 1e-9
"""Largest difference of losses or distances that counts as rounding error."""

NUMBERS = 2**16
"""Total number of parameters of the models that a node evaluates at a time."""


@public
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
    """Return PFedDST's policy: every node averages with the peers that score best.

    The score of peer j for node i is high if i's model has a large loss on j's data, if their heads
    are similar, and if i has not received from j for many rounds; see
    ``topofl.algorithms.exchanges.scored.scores``. The loss of a peer that was never tried
    counts as infinite, so that with ``loss_refresh="selected"`` every peer is chosen once, in
    random order, before any is chosen again. Ties are broken at random. Peers whose score is NaN,
    because one of the two models diverged, come last.

    To compute scores, a node receives the heads of all its candidates in every round. Losses are
    computed by a later phase of the chain, :func:`topofl.algorithms.refresh_losses`.

    Parameters
    ----------
    k
        Largest number of peers to receive from, at least 0; None: no limit.
    threshold
        Receive only from peers with scores above it: from the `k` best of them, with ``k=None``
        from all; None: from peers of any score.
    standardize, alpha, recency_rate, cost, header_sign
        As in ``topofl.algorithms.exchanges.scored.scores``. With ``standardize=False``,
        ``alpha=1`` and ``cost=2`` the terms are those of the paper's formula, whatever their units.
    loss_refresh
        The losses that the later phase refreshes, ``"selected"`` or ``"all"``; ``"none"``: there is
        no such phase, and all losses count as 0.
    head
        The part of the model whose directions are compared, or the name of a layer.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or has the wrong type; in round 1 if no phase refreshed
        the losses although `loss_refresh` is not ``"none"``.

    References
    ----------
    Fan et al., "PFedDST" (2025), section II and Algorithm 1.

    Examples
    --------
    >>> from topofl.algorithms import average_over_peers, chain, sgd
    >>> exchange = average_over_peers(scored_peers(k=3))
    >>> refresh = refresh_losses("exchange")
    >>> chain("mine", local=sgd(0.1), exchange=exchange, losses=refresh).settings["losses"]
    {'loss_refresh': 'selected', 'of': 'exchange'}
    """
    most = None if k is None else check_int("k", k, minimum=0)
    least = None if threshold is None else check_number("threshold", threshold)
    check_choice("header_sign", header_sign, ["intended", "literal"])
    check_switch("standardize", standardize, auto=False)
    # the smallest cost with which no bracket of a score is negative
    largest_distance = 1.0 if standardize or header_sign == "literal" else 2.0
    scoring: dict[str, Any] = {
        "standardize": standardize,
        "alpha": check_nonnegative("alpha", alpha),
        "recency_rate": check_positive("recency_rate", recency_rate),
        "cost": largest_distance if cost is None else check_nonnegative("cost", cost),
        "header_sign": header_sign,
    }
    refreshed = check_choice("loss_refresh", loss_refresh, ["selected", "all", "none"]) != "none"
    personal = as_part("head", head)
    candidates = lru_cache(maxsize=1)(_candidates)

    def init(models: Models) -> State:
        models.columns(personal)  # raises before any work
        infinite = torch.full((models.n, models.n), torch.inf, dtype=torch.float64, device="cpu")
        return ({LOSSES: infinite} if refreshed else {}) | {LAST: -infinite}

    def choose(models: Models, state: State, round: Round) -> Choice:
        pairs, from_candidates, _ = candidates(round.peers)
        last = state[LAST]
        losses = state.get(LOSSES, torch.zeros((), dtype=last.dtype, device=last.device))
        if bool((losses.isposinf() & last.isfinite()).any()):
            raise ValueError(
                "`loss_refresh` must be 'none' where no later phase refreshes losses; add one to "
                "the chain, such as losses=refresh_losses('exchange')"
            )
        if models.flat.is_meta:  # the largest choice
            found = torch.full_like(last, torch.inf)
        else:
            found = scores(losses, _cosines(models, personal), round.t - last, pairs, **scoring)
        chosen = _best(found, pairs, round.rng("peers").random(last.shape), most, least)
        last[chosen] = round.t
        numbers = sum(models.flat[:, part].shape[1] for part in models.columns(personal))
        heads = (from_candidates, numbers * models.flat.element_size())
        return Choice(average_of_chosen(chosen), extra_messages=[heads])

    settings = {"weights": "scored", "k": most, "threshold": least, **scoring}
    settings |= {"loss_refresh": loss_refresh, "head": str(personal)}
    return Policy(choose, init, settings, rowwise=True)


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
    """Return the score that node i assigns to peer j, (n, n) float64; the highest are chosen.

    ::

        S_ij = s_p (alpha s_l - d + cost)
        s_p = 1 - exp(-recency_rate * ages_ij),   s_l = losses_ij,   d = 1 - cosines_ij

    With ``standardize=True``, ``s_l`` and ``d`` are scaled for every node i so that they run from 0
    to 1 over its candidates::

        s_l = (losses_ij - min_j losses_ij) / (max_j losses_ij - min_j losses_ij)
        d likewise from 1 - cosines_ij

    where minimum and maximum are over the candidates with finite values: for losses, those that i
    has tried. Infinite losses (never tried) stay infinite, so that these peers come first. A term
    that is the same for all candidates (within 1e-9), or known for only one, is 0.

    The scaling makes the two terms comparable. Cross-entropies differ between peers by whole units,
    the cosines of heads by hundredths, so that without scaling (``standardize=False``) only losses
    matter. The scaling also determines ``cost``. The bracket must not be negative, or older choices
    would score lower: ``cost`` must be at least the largest distance, which is 1 after scaling. It
    should not be larger either, because recency multiplies it: with a large ``cost`` nodes choose
    their peers in turn. With the smallest, the peer with the most distant head and the smallest
    loss scores 0 however long ago it was chosen, which is the purpose of the product in the paper.

    Parameters
    ----------
    losses
        (n, n), or one number for all: the loss of i's model on j's examples, inf if never tried.
    cosines
        (n, n): cosines of the angles between heads.
    ages
        (n, n): rounds since i last chose j, inf if it never did.
    candidates
        (n, n) booleans: the peers that i can choose.
    standardize
        Whether to scale losses and distances to [0, 1] for each node, as above.
    alpha
        Weight of losses, at least 0; at 0 even infinite losses do not count.
    recency_rate
        Lambda, above 0: how fast the score of a chosen peer recovers; at 0.3 it takes 2.3 rounds to
        recover half of it.
    cost
        The paper's c, at least 0, the same for all peers.
    header_sign
        ``"intended"``, as above; ``"literal"``: ``d = cosines_ij``, the paper's formula, which
        prefers dissimilar heads although the paper's text states the opposite.

    References
    ----------
    Fan et al., "PFedDST" (2025), equations 6 to 9. The paper gives neither values of alpha, lambda
    and c nor units of the terms; the scaling is an addition of this library.

    Examples
    --------
    Three peers that were never chosen: the first has the largest loss and the most distant head,
    the last has the nearest head. With scaling both terms count; without it the loss decides.

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
    """Return values scaled to [0, 1] per row, 0 if all are equal; inf and NaN are unchanged."""
    known = candidates & values.isfinite()
    least = values.where(known, torch.inf).amin(1, keepdim=True)
    spread = values.where(known, -torch.inf).amax(1, keepdim=True) - least
    scaled = torch.where(spread > SAME, (values - least) / spread, 0.0)
    return torch.where(known, scaled, values)


@public
def refresh_losses(owner: str, loss_refresh: str = "selected") -> Phase:
    """Return the phase in which peers evaluate models for the next choice of scored peers.

    Node j computes the loss of i's model on its training examples: i sends the whole model to j,
    against the direction of the edge in a directed graph, and receives one number. A node passes
    over its examples once for each model that it evaluates.

    Parameters
    ----------
    owner
        Name of an earlier phase, ``average_over_peers(scored_peers(...), share)``.
    loss_refresh
        The nodes that evaluate a model: ``"selected"``, those from which its node received in this
        round; ``"all"``, all from which it can receive.

    Examples
    --------
    >>> refresh_losses("exchange", "all").settings
    {'loss_refresh': 'all', 'of': 'exchange'}
    """
    by_all = check_choice("loss_refresh", loss_refresh, ["selected", "all"]) == "all"
    candidates = lru_cache(maxsize=1)(_candidates)

    def apply(models: Models, state: State, round: Round) -> State:
        if LOSSES not in state:
            raise ValueError(
                f"`owner` must be a phase that scores peers by losses, but {owner!r} has none in "
                "its state; use average_over_peers(scored_peers(loss_refresh='selected'))"
            )
        chosen = state[LAST] == round.t
        pairs, back, there = candidates(round.peers) if by_all else (chosen, *_messages(chosen))
        _refresh(state[LOSSES], round.published(models.flat), pairs, round)
        itemsize = models.flat.element_size()
        round.send(there, models.flat.shape[1] * itemsize)
        round.send(back, itemsize)
        return state

    settings = {"loss_refresh": loss_refresh}
    return sharing(owner, Phase(no_state, apply, settings, rowwise=True))


def _candidates(topology: Topology) -> tuple[Tensor, MixingMatrix, MixingMatrix]:
    """Return whom each node may choose, (n, n), and matrices of messages from and to these."""
    pairs = can_receive(topology).fill_diagonal_(False)
    return pairs, *_messages(pairs)


def _messages(pairs: Tensor) -> tuple[MixingMatrix, MixingMatrix]:
    return average_of_chosen(pairs), average_of_chosen(pairs.T)


def _cosines(models: Models, part: Part) -> Tensor:
    """Return cosines between the parts of all nodes, (n, n) float64 on the CPU; 0 if one is 0."""
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
    eligible = pairs if least is None else pairs & (found > least)
    if most is None:
        return eligible
    keys = found.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    order = np.lexsort((draws, -keys.numpy(), ~eligible.numpy()), axis=-1)[:, :most]
    return torch.zeros_like(eligible).scatter_(1, torch.from_numpy(order.copy()), True) & eligible


def _refresh(losses: Tensor, flat: Tensor, pairs: Tensor, round: Round) -> None:
    """Compute the losses of i's model on j's examples for all `pairs` (i, j), in place."""
    if flat.is_meta:
        round.cross_evaluate({}, "train")
        losses[pairs] = 0.0
        return
    owners = {j: column.nonzero()[:, 0] for j, column in enumerate(pairs.T) if column.any()}
    rows = torch.cat(list(owners.values())).to(flat.device) if owners else pairs.new_zeros(0)
    groups = dict(zip(owners, rows.split(list(map(len, owners.values()))), strict=True))
    trials = {j: _evaluate_in_chunks(flat, nodes) for j, nodes in groups.items()}
    found = round.cross_evaluate(trials, "train")
    largest = torch.finfo(torch.float64).max  # infinity means never tried
    for j, nodes in owners.items():
        losses[nodes, j] = found[j].clamp(max=largest)


def _evaluate_in_chunks(flat: Tensor, nodes: Tensor) -> Trial[Tensor]:
    """Return the losses of some nodes' models, evaluated a few at a time."""
    found = []
    for chunk in nodes.split(max(1, NUMBERS // flat.shape[1])):
        found.append((yield flat[chunk]))
    return torch.cat(found)
