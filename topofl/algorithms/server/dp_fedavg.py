"""DP-FedAvg: FedAvg with differential privacy of each node's whole data, by a trusted server."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from topofl._support.check import check_nonnegative, check_positive, check_share
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import (
    Epochs,
    Steps,
    Training,
    check_amount,
    check_work,
    epochs_or_steps,
    without_statistics,
)
from topofl.algorithms.contract.phase import (
    Algorithm,
    Participation,
    Phase,
    chain,
    participation_setting,
)
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import Term
from topofl.algorithms.exchanges.average import server_weights
from topofl.algorithms.exchanges.private import add_common_noise, clipped_rows, stays_finite

__all__ = ["dp_fedavg"]


@public
def dp_fedavg(
    lr: Rate, *, clip: float = 1.0, noise: float = 1.0, participation: float = 1.0,
    batch_size: int = 128, epochs: Epochs = None, steps: Steps = None,
) -> Algorithm:  # fmt: skip
    """Return DP-FedAvg: a server adds noise to the average of clipped updates.

    Per round, every node participates with probability q, the `participation`, independently of
    the others. With the set A of those that do, and ``z ~ N(0, I)``::

        y_i = x - lr * grad F_i(...)  (`epochs` passes from the server's model x, i in A)
        x   = x + (sum_{i in A} clip(y_i - x) + noise * clip * z) / (q * n)

    with ``clip(v) = v * min(1, clip / ||v||)``, and 0 if v is not finite. The denominator is the
    expected number of participants, not their number in this round, so that one node changes the
    average by at most ``clip / (q * n)`` whoever else participates, also an attacker, since the
    server clips what it receives. The standard deviation of the noise is `noise` times that bound.
    In a round without participants the server adds noise only. All nodes then hold ``x``, so the
    server's model is evaluated. All nodes must start from one model. A participant sends one model
    and receives one. No topology is needed; one that is given is ignored.

    :func:`topofl.privacy.spent` computes the privacy guarantee, with the `noise` and the
    `participation` of this method as its `noise` and `sampling`, and the number of rounds as its
    `steps`. It hides whether a node, with all of its examples, takes part, from everybody who sees
    the models of all rounds, except the server: that sees the updates before the noise, and must be
    trusted (:func:`topofl.algorithms.dp_dsgd` with ``level="node"`` needs no trusted party). The
    guarantee assumes that nobody else knows who participated. Losses and scores that a run records
    are computed from the raw data and are not private. Floating-point noise that is not rounded to
    a grid does not keep the guarantee to the last bit (Mironov 2012): use this method for
    simulations.

    Parameters
    ----------
    lr
        As in :func:`topofl.algorithms.sgd`; local steps have no momentum.
    clip
        Maximum norm of a node's update, the paper's S; above 0.
    noise
        Standard deviation of the noise on the sum of updates in units of `clip`, the paper's z; at
        least 0.
    participation
        The probability q with which a node participates in a round, above 0 and at most 1: Poisson
        sampling, as in the paper, so that the number of participants varies. A fixed number of
        participants is refused, because :func:`topofl.privacy.spent` does not cover it.
    batch_size, epochs, steps
        As in :func:`topofl.algorithms.fedavg`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; if nodes start from different models, or
        models keep running statistics.

    Notes
    -----
    All nodes have equal weights, the special case of the paper's ``w_k = min(n_k / w_cap, 1)`` with
    a cap of one example. An update is clipped once, after the local steps, as in FLSim's
    ``SyncDPSGDServer``; other implementations project onto the ball after every local step. Both
    have the same guarantee. FLSim and Flower divide by the number of sampled nodes, which is fixed
    there.

    References
    ----------
    McMahan, Ramage, Talwar and Zhang, "Learning differentially private recurrent language models"
    (2018), Algorithm 1 with flat clipping and the estimator of fixed denominator.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.iid(data.digits(), n=50, seed=0)
    >>> private = dp_fedavg(lr=0.5, clip=1.0, noise=0.5, participation=0.5, batch_size=10, epochs=1)
    >>> history = topofl.run(private, model=models.logistic_regression(64), clients=clients,
    ...                      rounds=20, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.8)
    True

    What 20 rounds spend, for a delta of 1e-3::

        topofl.privacy.spent(0.5, steps=20, delta=1e-3, sampling=0.5)
        topofl.privacy.spent_by(history, delta=1e-3)  # the same, from what the run records
    """
    limit = check_positive("clip", clip)
    if callable(noise):
        raise TypeError(
            "`noise` must be one number for all rounds, got a function; "
            "topofl.privacy.spent assumes equal noise in every round"
        )
    noise = check_nonnegative("noise", noise)
    participants = _Poisson(_probability(participation))
    descent = descend(Term("finite", stays_finite), lr=lr)
    size = check_amount("batch_size", batch_size, least=1)
    training = Training(descent, size, *check_work(**epochs_or_steps(epochs, steps)))
    local = _local(training, participants)
    return chain("dp_fedavg", local=local, server=_noised_average(limit, noise, participants))


def _probability(participation: float) -> float:
    """Return a probability; raise for a number of nodes, which is no Poisson sampling."""
    if isinstance(participation, int | np.integer) and not isinstance(participation, bool):
        raise ValueError(
            "`participation` must be a probability such as 0.1, got the whole number "
            f"{participation}; a fixed number of nodes is no Poisson sampling, and 1.0 takes all"
        )
    return check_share("participation", participation)


@dataclass(frozen=True)
class _Poisson:
    """The rule by which every node participates with a probability, independently."""

    probability: float

    def __call__(self, round: Round) -> np.ndarray:
        return round.rng("participation").random(len(round.sizes)) < self.probability

    def __str__(self) -> str:
        short = f"{self.probability:g}"  # but in full where an accountant would get another one
        exact = short if float(short) == self.probability else repr(self.probability)
        return f"each with probability {exact}"


def _local(training: Training, participants: Participation) -> Phase:
    """Return the phase of the participants' local steps, which stay finite."""

    def apply(models: Models, state: State, round: Round) -> State:
        round.train(models, training, state, participants=participants(round))
        return state

    settings = training.settings | participation_setting(participants)
    init = partial(without_statistics, "dp_fedavg", training)
    return Phase(init, apply, settings, rowwise=True)


def _noised_average(limit: float, noise: float, participants: _Poisson) -> Phase:
    """Return the server phase, which averages clipped updates and adds noise."""
    matrix = server_weights()

    def apply(models: Models, state: State, round: Round) -> State:
        flat, x = models.flat, state["server"]
        chosen = participants(round)
        expected = participants.probability * len(chosen)
        if chosen.any() or (flat.is_meta and round.t == 0):  # a dry run shows what is sent
            there = chosen if chosen.any() else np.arange(len(chosen)) == 0
            weights = matrix(np.ones(len(chosen)), there)
            round.send(weights, flat.shape[1] * flat.element_size(), server=True)
        received = round.published(flat.sub_(x), own=True)  # after attackers have forged theirs
        there = torch.from_numpy(round.own_rows(chosen)).to(flat)
        total = round.sum_of_ranks(there[None] @ clipped_rows(received, limit)) / expected
        add_common_noise(total, round.rng("noise"), noise * limit / expected)
        flat.copy_(x.add_(total).expand_as(flat))
        return state

    settings = {"clip": limit, "noise": noise} | participation_setting(participants)
    return Phase(lambda models: {"server": models.start}, apply, settings, rowwise=True)
