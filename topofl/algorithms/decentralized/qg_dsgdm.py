"""D-SGD with quasi-global momentum, which follows the change of the averaged models."""

import torch
from torch import Tensor

from topofl._support.check import check_fraction, check_int, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Descend, Rate
from topofl.algorithms.contract.local import Training, sgd_descent
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import Step, Term
from topofl.algorithms.exchanges.average import gossip

__all__ = ["qg_dsgdm"]


@public
@needing(equal_shares)
def qg_dsgdm(
    lr: Rate,
    *,
    batch_size: int = 128,
    momentum: float = 0.9,
    global_momentum: float | None = None,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Algorithm:
    """Return D-SGD with quasi-global momentum (QG-DSGDm).

    Per round, for every node i, with ``d_i`` starting at 0::

        g_i     = grad F(theta_i; S_i) + weight_decay * theta_i
        m_i     = momentum * d_i + g_i
        x_i     = theta_i - lr * m_i                         (nesterov: lr * (g_i + momentum * m_i))
        theta_i = sum_j W[i, j] x_j
        d_i     = global_momentum * d_i
                  + (1 - global_momentum) * (theta_i of the previous round - theta_i) / lr

    ``d_i``, which stays at its node, thus follows the common movement of the models. The momentum
    of :func:`topofl.algorithms.dsgd` follows the gradients of node i alone, which drives nodes with
    different data apart. A message holds a model. The theory assumes doubly stochastic weights; the
    graph may change.

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`); a run then warns that it weights their losses by
    these shares. :func:`topofl.algorithms.sab`, :func:`topofl.algorithms.osgp` and
    :func:`topofl.algorithms.push_diging` weight all nodes equally.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`; while
        it is 0, ``d_i`` does not change. Since ``d_i`` is the movement of a model divided by `lr`,
        and averaging moves models too, ``d_i`` becomes large if the rate falls by orders of
        magnitude within one round, as in the paper's formula; a schedule that then restarts takes
        long steps.
    batch_size
        As in :func:`topofl.algorithms.train`.
    momentum
        In [0, 1); 0 gives D-SGD.
    global_momentum
        In [0, 1); None: `momentum`, as in the paper.
    nesterov
        Whether to use Nesterov's form of the momentum (QG-DSGDm-N).
    weight_decay
        At least 0; part of the gradient, as in ``torch.optim.SGD``.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Lin, Karimireddy, Stich and Jaggi, "Quasi-global momentum: accelerating decentralized deep
    learning on heterogeneous data" (2021), Algorithm 1, and the authors' code for Nesterov's form.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 30, "seed": 0}
    >>> quasi = topofl.run(qg_dsgdm(lr=0.05), **how)
    >>> local = topofl.run(topofl.algorithms.dsgd(lr=0.05, momentum=0.9), **how)
    >>> bool(quasi.last("accuracy").mean() > local.last("accuracy").mean())
    True
    """
    momentum = check_fraction("momentum", momentum)
    kept = (
        momentum if global_momentum is None else check_fraction("global_momentum", global_momentum)
    )
    check_switch("nesterov", nesterov, auto=False)
    descent = sgd_descent(lr, weight_decay=weight_decay, terms=[_quasi(momentum, nesterov)])
    local = _remembering(Training(descent, check_int("batch_size", batch_size, minimum=1)))
    return chain("qg_dsgdm", local=local, exchange=gossip(), follow=_following(descent, kept))


def _quasi(rate: float, nesterov: bool) -> Term:
    """Return the term that adds the quasi-global momentum without updating it."""

    def init(models: Models) -> State:
        return {"momentum": torch.zeros_like(models.flat)}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        if nesterov:
            return g.mul_(1 + rate).add_(own["momentum"], alpha=rate**2)
        return g.add_(own["momentum"], alpha=rate)

    settings = {"momentum": rate} | ({"nesterov": True} if nesterov else {})
    return Term("quasi_global", update, init, elementwise=True, settings=settings)


def _remembering(training: Training) -> Phase:
    """Return the phase of one local step, which stores the models before it."""

    def init(models: Models) -> State:
        return training.init(models) | {"before": models.flat.clone()}

    def apply(models: Models, state: State, round: Round) -> State:
        state["before"].copy_(models.flat)
        round.train(models, training, state)
        return state

    return Phase(init, apply, training.settings, rowwise=True)


def _following(descent: Descend, kept: float) -> Phase:
    """Return the phase that updates the momentum by the change of the models in this round."""

    def apply(models: Models, state: State, round: Round) -> State:
        local = round.state("local")
        rate = float(descent.lr(round.t, 0))
        if rate > 0:
            moved = local["before"].sub_(models.flat)
            local["momentum"].mul_(kept).add_(moved, alpha=(1 - kept) / rate)
        return state

    return Phase(lambda models: {}, apply, {"global_momentum": kept}, rowwise=True)
