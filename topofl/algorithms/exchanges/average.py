"""Phases in which nodes exchange models."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int, check_takes
from topofl._support.public import public
from topofl.algorithms.contract.local import sgd_of_rounds
from topofl.algorithms.contract.phase import (
    Algorithm,
    AnyParticipation,
    Neighbors,
    Participation,
    Phase,
    chain,
    named_errors,
    participation_setting,
    sampled,
)
from topofl.algorithms.contract.round import (
    Models,
    Part,
    Round,
    State,
    as_part,
    everything,
    no_state,
)
from topofl.mixing import MixingMatrix, average_of

__all__ = ["Aggregation", "aggregate", "gossip", "push_sum", "server_average"]


@public
def gossip(share: Part = everything) -> Phase:
    """Return the gossip phase, which replaces all models ``X`` by ``W @ X``.

    ``W`` is the mixing matrix of the round. All models are read before any is replaced
    (synchronous).

    Parameters
    ----------
    share
        The part of the models that is sent, such as :data:`topofl.algorithms.body`; the rest stays
        at its node.

    Examples
    --------
    >>> from topofl.algorithms import body
    >>> gossip(body).settings
    {'weights': 'round', 'share': 'all but head'}
    """
    share = as_part("share", share)

    def apply(models: Models, state: State, round: Round) -> State:
        round.mix(round.weights, models.flat, models.columns(share))
        return state

    settings = {"weights": "round"} | share_setting(share)
    return Phase(_checked(share), apply, settings, rowwise=True)


def _checked(share: Part) -> Callable[[Models], State]:
    """Return the `init` of a phase without state, which raises if models lack the shared part."""

    def init(models: Models) -> State:
        models.columns(share)
        return {}

    return init


def gossip_with(owner: str, name: str) -> Phase:
    """Return the gossip phase that also mixes the tensor `name`, (n, d), in a phase's state."""

    def apply(models: Models, state: State, round: Round) -> State:
        other = round.state(owner)[name]
        round.mix(round.weights, models.flat, scalars=other.shape[1])
        round.mix(round.weights, other, counted=False)
        return state

    return Phase(no_state, apply, {"weights": "round"}, rowwise=True)


@public
def push_sum(share: Part = everything, *, delay: int = 0) -> Phase:
    """Return the phase of a push-sum exchange, with the round's column-stochastic matrix ``P``.

    With the push-sum weight ``mu_i`` of node i, initially 1, and its model ``z_i``, which is the
    de-biased variable::

        x_i = mu_i * z_i
        x   = P @ x,   mu = P @ mu  (P[i, j]: the share that node j sends to i; columns sum to 1)
        z_i = x_i / mu_i

    The exchange preserves the sums of ``x`` and of ``mu`` over nodes. A message holds the model and
    the weight.

    Parameters
    ----------
    share
        The part of the models that is sent; the rest stays at its node and is not weighted.
    delay
        Rounds that messages take. Nodes do not wait: each sends in every round, continues with the
        share that it retains, and adds messages when they arrive; sums over nodes then include
        messages in transit. Weights are small while few messages have arrived, and steps, which
        are divided by them, are large. (The original sends only every `delay` rounds, so that nodes
        retain more.) :func:`topofl.metrics.push_sum_constants` of the run's history uses the
        matrices without the delay.

    References
    ----------
    Assran et al., "Stochastic Gradient Push" (2019), Algorithms 1 and 2; Liu et al., "DFedPGP"
    (2024), Algorithm 1.

    Examples
    --------
    >>> push_sum(delay=2).settings
    {'weights': 'push', 'delay': 2}
    """
    share = as_part("share", share)
    delay = check_int("delay", delay, minimum=0)

    def init(models: Models) -> State:
        columns = models.columns(share)  # raises before any work
        if not delay:
            return {}
        if columns != [slice(0, models.flat.shape[1])]:
            raise ValueError(
                "`share` must be everything if there is a delay, because messages in transit hold "
                f"whole models, got {share!r}; leave out `share` or `delay`"
            )
        sent = {f"sent_{k}": torch.zeros_like(models.flat) for k in range(delay)}
        return sent | {  # "sent_mass" is a name of the stored format: push-sum weights in transit
            f"sent_mass_{k}": torch.zeros_like(models.push_sum_weights) for k in range(delay)
        }

    def apply(models: Models, state: State, round: Round) -> State:
        weights = round.push_weights
        columns = models.columns(share)
        push_sum_weights = models.push_sum_weights
        for part in columns:
            models.flat[:, part].mul_(_as_column(push_sum_weights, models))
        kept = (models.flat.clone(), push_sum_weights.clone()) if delay else None
        round.mix(weights, models.flat, columns, scalars=1)
        pushed = pushed_weights(weights, push_sum_weights, round)
        if kept is None:
            push_sum_weights.copy_(pushed)
        else:
            kept_shares = round.own_rows(torch.from_numpy(weights.weights.diagonal()))
            own = kept_shares.to(push_sum_weights.device)
            slot = f"{round.t % delay}"
            _delay(models.flat, kept[0].mul_(_as_column(own, models)), state[f"sent_{slot}"])
            _delay(push_sum_weights.copy_(pushed), kept[1].mul_(own), state[f"sent_mass_{slot}"])
        for part in columns:
            models.flat[:, part].div_(_as_column(push_sum_weights, models))
        return state

    settings = {"weights": "push"} | share_setting(share) | ({"delay": delay} if delay else {})
    return Phase(init, apply, settings, rowwise=True)


def pushed_weights(weights: MixingMatrix, push_sum_weights: Tensor, round: Round) -> Tensor:
    """Return the push-sum weights after an exchange, summed in the same order on every device."""
    if push_sum_weights.is_meta:
        return torch.empty_like(push_sum_weights)
    before = round.all_rows(push_sum_weights).cpu().numpy()
    after = round.own_rows(torch.from_numpy(weights.weights @ before))
    return after.to(push_sum_weights.device)


def _as_column(values: Tensor, models: Models) -> Tensor:
    return values[:, None].to(models.flat.dtype)


def _delay(received: Tensor, kept: Tensor, sent: Tensor) -> None:
    """Exchange what is received without delay, ``received - kept``, for what was sent earlier.

    Afterwards `received` holds the retained values `kept` plus the arriving values `sent`, and
    `sent` holds the messages of this round.
    """
    arriving = sent.clone()
    sent.copy_(received - kept)
    received.copy_(kept + arriving)


@public
def server_average(
    share: Part = everything, *, participants: Participation | None = None, weighted: bool = True
) -> Phase:
    """Return the phase in which a server averages the participants' models (FedAvg).

    ::

        x_i = sum_{j in A_t} (m_j / sum_{k in A_t} m_k) x_j        for every node i

    The mixing matrix has equal rows. Each participant sends one message and receives one. Other
    nodes receive the model when they next participate; their evaluations use the server's model
    until then.

    Parameters
    ----------
    share
        The part of the models that is sent; the rest stays at its node.
    participants
        The participants ``A_t``, such as ``sampled(0.1)``, the same as in training; None: all.
    weighted
        Whether models are weighted by numbers of training examples ``m_j``; False: equally.

    References
    ----------
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data"
    (2017), Algorithm 1.

    Examples
    --------
    >>> from topofl.algorithms import sampled
    >>> server_average(participants=sampled(0.1)).settings
    {'weights': 'data', 'participation': '0.1 of all'}
    """
    share = as_part("share", share)
    matrix = server_weights()

    def apply(models: Models, state: State, round: Round) -> State:
        chosen = None if participants is None else participants(round)
        sizes = round.sizes.astype(float) if weighted else np.ones(len(round.sizes))
        round.mix(matrix(sizes, chosen), models, models.columns(share), server=True)
        return state

    settings = {"weights": "data" if weighted else "equal"} | share_setting(share)
    settings |= participation_setting(participants)
    return Phase(_checked(share), apply, settings, rowwise=True)


def average_phase(server: bool, participants: Participation) -> dict[str, Phase]:
    """Return the exchange by name: a server's average of some nodes, or all nodes' gossip."""
    if server:
        return {"server": server_average(participants=participants)}
    return {"exchange": gossip()}


def server_weights() -> Callable[[np.ndarray, np.ndarray | None], MixingMatrix]:
    """Return the function from (n,) sizes and (n,) participants to the matrix of a server.

    Rounds with equal arguments share one matrix, which histories store once.
    """

    @lru_cache(maxsize=1)
    def of_bytes(sizes: bytes, chosen: bytes | None) -> MixingMatrix:
        return average_of(
            np.frombuffer(sizes), None if chosen is None else np.frombuffer(chosen, dtype=bool)
        )

    return lambda sizes, chosen: of_bytes(
        sizes.tobytes(), None if chosen is None else chosen.tobytes()
    )


def share_setting(share: Part) -> dict[str, str]:
    """Return the setting that names the shared part; none if it is everything."""
    return {} if share.is_everything else {"share": str(share)}


def averaged_by_server(
    name: str,
    participation: AnyParticipation,
    *local: Any,
    phase: str = "local",
    share: Part = everything,
    tuned: Phase | None = None,
    neighbors: Neighbors | None = None,
    **options: Any,
) -> Algorithm:
    """Return the chain of local SGD of some nodes, and of the server's average of their models.

    `local` and `options` are arguments of ``sgd_of_rounds``, and `phase` is the name of that phase.
    """
    participants = sampled(participation)
    phases: dict[str, Any] = {
        phase: sgd_of_rounds(*local, participants=participants, **options),
        "server": server_average(share, participants=participants),
    }
    return chain(name, **phases, fine_tune=tuned, neighbors=neighbors)


Aggregation = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``rule(own, received, weights) -> model``: from a node's model (d,), received ones (k, d), and
their weights (k,); see the example of :func:`aggregate`.
"""


@public
def aggregate(rule: Aggregation, /, **settings: object) -> Phase:
    """Return the exchange in which nodes aggregate their own and received models by a rule.

    Node i receives from all nodes j with ``W[i, j] != 0`` in the round's mixing matrix ``W``. All
    models are read before any is replaced.

    Parameters
    ----------
    rule
        ``rule(own, received, weights) -> model`` (d,): from a node's own model (d,), the models
        (k, d) that it receives, in ascending order of nodes, and their weights ``W[i, j]``, (k,).
        It must not branch on values, since a run plays it on tensors without values (device
        'meta'). For a node without neighbors `received` has k = 0 rows, and the rule should return
        `own`.
    settings
        Arguments of the rule, saved with results.

    Raises
    ------
    TypeError
        If `rule` is not a function of three arguments.

    Examples
    --------
    The coordinate-wise maximum:

    >>> import torch
    >>> def largest(own, received, weights):
    ...     return torch.cat([own[None], received]).amax(0)
    >>> aggregate(largest, rule="largest").settings
    {'weights': 'round', 'rule': 'largest'}
    """
    check_takes("`rule`", rule, "own", "received", "weights")

    def named(own: Tensor, received: Tensor, weights: Tensor) -> Tensor:
        with named_errors("`rule` of aggregate, for the models that a node receives,", received):
            return rule(own, received, weights)

    def apply(models: Models, state: State, round: Round) -> State:
        round.aggregate(round.weights, models.flat, named)
        return state

    return Phase(no_state, apply, {"weights": "round"} | settings, rowwise=True)
