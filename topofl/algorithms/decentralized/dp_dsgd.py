"""Differentially private D-SGD, with privacy per record or per node."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_choice, check_int, check_nonnegative, check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, as_schedule, decayed, descend, described
from topofl.algorithms.contract.local import Training, without_statistics
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import Step, Term
from topofl.algorithms.exchanges.average import gossip
from topofl.algorithms.exchanges.private import add_noise, clipped_rows, stays_finite

__all__ = ["dp_dsgd"]


@public
@needing(equal_shares)
def dp_dsgd(
    lr: Rate, *, clip: float = 1.0, noise: float = 1.0, level: str = "record", batch_size: int = 32,
    steps: int = 1, lr_decay: float = 1.0,
) -> Algorithm:  # fmt: skip
    """Return differentially private D-SGD: clipped and noised gradients or updates, then gossip.

    Nodes do not trust each other: each message is private by itself, whatever its receivers do with
    it. Per round, for every node i, with ``level="record"`` and independent ``z ~ N(0, 1)`` in
    every coordinate::

        g_i = (sum_{s in S_i} clip(grad F(x_i; s)) + noise * clip * z) / |S_i|
            (each gradient is clipped separately)
        x_i = x_i - lr * g_i  (`steps` times)

    and with ``level="node"``, where ``y_i`` is ``x_i`` after `steps` of plain SGD::

        x_i = x_i + clip(y_i - x_i) + noise * clip * z

    with ``clip(v) = v * min(1, clip / ||v||)``, and 0 if v is not finite; then ``x_i <- sum_j W[i,
    j] x_j`` at both levels. At the node level, the noise is not divided by the number of examples,
    since it hides a whole update instead of one gradient.

    :func:`topofl.privacy.spent` computes the privacy guarantee: how little all messages together
    reveal about whether the clipped gradient of one record, or the clipped updates of one node,
    count unchanged or as 0, with the number and order of records fixed. It holds for runs in which
    no loss becomes NaN or infinite: otherwise the run stops or freezes the node, which then adds no
    noise, and others can observe that. Gradients that are not finite count as 0, as do steps that
    would make a model NaN or infinite; they neither stop the run nor freeze a node. Losses and
    scores that a run records are computed from the raw data and are not private. Floating-point
    noise that is not rounded to a grid does not keep the guarantee to the last bit (Mironov 2012):
    use this method for simulations.

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`); a run then warns that it weights their losses by
    these shares. :func:`topofl.algorithms.sab`, :func:`topofl.algorithms.osgp` and
    :func:`topofl.algorithms.push_diging` weight all nodes equally.

    Parameters
    ----------
    lr, lr_decay
        As in :func:`topofl.algorithms.sgd`. With ``level="record"`` give a schedule that depends on
        the round only: its step argument is always ``batch_size - 1``.
    clip
        Maximum norm of a record's gradient, or of a node's update; above 0.
    noise
        Standard deviation of the noise in units of `clip`, at least 0.
    level
        ``"record"`` or ``"node"``.
    batch_size, steps
        As in :func:`topofl.algorithms.train`. At the record level, a minibatch takes `batch_size`
        gradient computations, one per record. The last minibatch of an epoch ends with the node's
        last record, so that no record counts twice, and can be smaller.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Abadi et al., "Deep learning with differential privacy" (2016), Algorithm 1, here at each node;
    McMahan, Ramage, Talwar and Zhang, "Learning differentially private recurrent language models"
    (2018), for the node level with a server; Cyffers et al., "Muffliato: peer-to-peer privacy
    amplification for decentralized optimization and averaging" (2022), for noise before gossip; its
    privacy amplification towards distant nodes is not counted here.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> private = dp_dsgd(lr=0.5, clip=1.0, noise=0.5, batch_size=16)
    >>> history = topofl.run(private, model=models.logistic_regression(64), clients=clients,
    ...                      topology=topologies.ring(10), rounds=20, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.7)
    True
    """
    limit = check_positive("clip", clip)
    if callable(noise):
        raise TypeError(
            "`noise` must be one number for all rounds, got a function; "
            "topofl.privacy.spent assumes equal noise in every round"
        )
    noise = check_nonnegative("noise", noise)
    scale = noise * limit
    rate = decayed(lr, lr_decay)
    size = check_int("batch_size", batch_size, minimum=1)
    steps = check_int("steps", steps, minimum=1)
    if check_choice("level", level, ["record", "node"]) == "record":
        training = Training(descend(_mean(size, limit), lr=rate), 1, size, per_step=size)
        local = _private_steps(training, scale, size, steps)
    else:
        local = _private_update(
            Training(descend(Term("finite", stays_finite), lr=rate), size, steps), limit, scale
        )
    settings = {
        "lr": described(as_schedule("lr", lr)),
        "clip": limit,
        "noise": noise,
        "level": level,
        "batch_size": size,
        "steps": steps,
    }
    settings |= {} if lr_decay == 1 else {"lr_decay": lr_decay}
    return chain("dp_dsgd", local=local._replace(settings=settings), exchange=gossip())


def _mean(size: int, limit: float) -> Term:
    """Return the term that collects clipped gradients and steps along their noised mean."""

    def init(models: Models) -> State:
        return {
            "noise": torch.zeros_like(models.flat),
            "records": models.flat.new_ones(len(models.flat), 1),
        }

    def begin(models: Models) -> State:
        return {"sum": torch.zeros_like(models.flat)}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        own["sum"].addcmul_(clipped_rows(g, limit), (step.k < own["records"]).to(g.dtype))
        return (
            g.zero_()
            if step.k < size - 1
            else torch.add(own["sum"], own["noise"], out=g).div_(own["records"])
        )

    return Term("mean", update, init, begin)


def _private_steps(training: Training, scale: float, size: int, steps: int) -> Phase:
    """Return the phase of local steps of `size` records each."""

    def apply(models: Models, state: State, round: Round) -> State:
        # at most the records that are left in the pass
        records = np.minimum(size, round.sizes - round.t * size % round.sizes)
        state["records"].copy_(torch.from_numpy(round.own_rows(records))[:, None])
        for k in range(steps):
            add_noise(state["noise"].zero_(), models, round.rng(f"noise/{k}"), scale)
            round.train(models, training, state)
        return state

    return Phase(partial(without_statistics, "dp_dsgd", training), apply, rowwise=True)


def _private_update(training: Training, limit: float, scale: float) -> Phase:
    """Return the phase of local steps whose total update is clipped and noised."""

    def apply(models: Models, state: State, round: Round) -> State:
        start = models.flat.clone()
        round.train(models, training, state)
        clipped_rows(models.flat.sub_(start), limit).add_(start)
        add_noise(models.flat, models, round.rng("noise"), scale)
        return state

    return Phase(partial(without_statistics, "dp_dsgd", training), apply, rowwise=True)
