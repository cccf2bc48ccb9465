"""Phases in which nodes exchange models."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int
from topofl.algorithms.contract.participation import Participation, participation_name
from topofl.algorithms.contract.parts import Part, as_part, everything
from topofl.algorithms.contract.phase import Phase
from topofl.algorithms.contract.round import Models, Round, State
from topofl.mixing import MixingMatrix, average_of

__all__ = ["gossip", "push_sum", "pushed_weights", "server_average", "server_weights"]


def gossip(share: Part = everything) -> Phase:
    """Return the phase that replaces all models by ``W @ X``, with the round's mixing matrix ``W``.

    All models are read before any is replaced (synchronous).

    Parameters
    ----------
    share
        What travels, such as :data:`topofl.algorithms.body`; the rest of a model stays at its node.
    """
    share = as_part("share", share)

    def init(models: Models) -> State:
        models.columns(share)  # raises before any work
        return {}

    def apply(models: Models, state: State, round: Round) -> State:
        round.mix(round.weights, models.flat, models.columns(share))
        return state

    return Phase(init, apply, {"weights": "round"} | _told(share))


def push_sum(share: Part = everything, *, delay: int = 0) -> Phase:
    """Return the phase of a push-sum exchange, with the round's column stochastic matrix ``P``.

    With ``mu_i`` the node's push-sum weight, at first 1, and ``z_i`` what its model holds, the
    de-biased variable::

        x_i = mu_i * z_i
        x   = P @ x,   mu = P @ mu  (P[i, j]: the share that node j sends to i; columns sum to 1)
        z_i = x_i / mu_i

    The sums of ``x`` and of ``mu`` over nodes stay what they are. A message holds the weight
    besides the model.

    Parameters
    ----------
    share
        What travels; the rest of a model stays at its node, without a weight.
    delay
        Rounds that messages take. Nodes do not wait: each sends in every round, goes on with the
        share that it keeps, and adds what arrives; sums over nodes then include what is under way.
        While little has arrived weights are small, and steps, which they divide, large. (The
        original, which sends every `delay` rounds only, keeps more.)
        :func:`topofl.metrics.push_sum_constants` of the run's history looks at the matrices alone,
        without the delay.

    References
    ----------
    Assran et al., "Stochastic Gradient Push" (2019), Algorithms 1 and 2; Liu et al., "DFedPGP"
    (2024), Algorithm 1.
    """
    share, delay = as_part("share", share), check_int("delay", delay, minimum=0)

    def init(models: Models) -> State:
        columns = models.columns(share)  # raises before any work
        if not delay:
            return {}
        if columns != [slice(0, models.flat.shape[1])]:
            raise ValueError(
                "`share` must be everything with a delay, messages under way are of whole models"
            )
        sent = {f"sent_{k}": torch.zeros_like(models.flat) for k in range(delay)}
        return sent | {
            f"sent_mass_{k}": torch.zeros_like(models.push_sum_weights) for k in range(delay)
        }

    def apply(models: Models, state: State, round: Round) -> State:
        weights, columns, push_sum_weights = (
            round.push_weights,
            models.columns(share),
            models.push_sum_weights,
        )
        for part in columns:
            models.flat[:, part].mul_(_as_column(push_sum_weights, models))
        kept = (models.flat.clone(), push_sum_weights.clone()) if delay else None
        round.mix(weights, models.flat, columns, scalars=1)
        pushed = pushed_weights(weights, push_sum_weights)
        if kept is None:
            push_sum_weights.copy_(pushed)
        else:
            own = torch.from_numpy(weights.weights.diagonal()).to(push_sum_weights.device)
            slot = f"{round.t % delay}"
            _delayed(models.flat, kept[0].mul_(_as_column(own, models)), state[f"sent_{slot}"])
            _delayed(push_sum_weights.copy_(pushed), kept[1].mul_(own), state[f"sent_mass_{slot}"])
        for part in columns:
            models.flat[:, part].div_(_as_column(push_sum_weights, models))
        return state

    settings = {"weights": "push"} | _told(share) | ({"delay": delay} if delay else {})
    return Phase(init, apply, settings)


def pushed_weights(weights: MixingMatrix, push_sum_weights: Tensor) -> Tensor:
    """Return push-sum weights after an exchange, summed in the same order on every device."""
    if push_sum_weights.is_meta:
        return torch.empty_like(push_sum_weights)
    return torch.from_numpy(weights.weights @ push_sum_weights.cpu().numpy()).to(
        push_sum_weights.device
    )


def _as_column(values: Tensor, models: Models) -> Tensor:
    return values[:, None].to(models.flat.dtype)


def _delayed(received: Tensor, kept: Tensor, sent: Tensor) -> None:
    """Put what is kept and what arrives now into `received`.

    What it held beyond what is kept goes into `sent`.
    """
    arriving = sent.clone()
    sent.copy_(received - kept)
    received.copy_(kept + arriving)


def server_average(
    share: Part = everything, *, participants: Participation | None = None, weighted: bool = True
) -> Phase:
    """Return the phase in which a server averages the participants' models and sends the mean.

    ::

        x_i = sum_{j in A_t} (m_j / sum_{k in A_t} m_k) x_j        for every node i

    It is a mixing matrix with equal rows. Messages are those of nodes that take part, one up and
    one down; others get the model when they next take part, and predict with the server's until
    then.

    Parameters
    ----------
    share
        What travels; the rest of a model stays at its node.
    who
        Who takes part, such as ``sampled(0.1)``, the same as in training; None: all.
    weighted
        Whether by numbers of training examples ``m_j``; False: equally.

    References
    ----------
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data"
    (2017), Algorithm 1.
    """
    share = as_part("share", share)
    matrix = lru_cache(maxsize=1)(
        server_weights
    )  # one object for all rounds in which it is the same, as histories keep it

    def init(models: Models) -> State:
        models.columns(share)  # raises before any work
        return {}

    def apply(models: Models, state: State, round: Round) -> State:
        chosen = None if participants is None else participants(round)
        sizes = round.sizes.astype(float) if weighted else np.ones(len(round.sizes))
        weights = matrix(sizes.tobytes(), None if chosen is None else chosen.tobytes())
        round.mix(weights, models.flat, models.columns(share), server=True)
        return state

    settings = (
        {"weights": "data" if weighted else "equal"}
        | _told(share)
        | ({} if participants is None else {"participation": participation_name(participants)})
    )
    return Phase(init, apply, settings)


def server_weights(sizes: bytes, chosen: bytes | None) -> MixingMatrix:
    """Return a server's averaging matrix from (n,) sizes and booleans as bytes, to be cached."""
    return average_of(
        np.frombuffer(sizes), None if chosen is None else np.frombuffer(chosen, dtype=bool)
    )


def _told(share: Part) -> dict[str, str]:
    return {} if share.is_everything else {"share": str(share)}
