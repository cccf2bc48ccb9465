"""Gradient tracking with momentum or variance reduction, without the bias of D-SGD."""

import torch
from torch import Tensor

from topofl._support.check import check_fraction, check_share
from topofl._support.public import public
from topofl.algorithms.contract.descent import Gradient, GradientPoint, Rate, descend
from topofl.algorithms.contract.local import Training, check_amount, steps_and_rates, train
from topofl.algorithms.contract.needs import doubly_stochastic, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.algorithms.contract.terms import Step, Term, per_row, tracking, zeros

__all__ = ["gt_hsgd", "momentum_tracking"]


@public
@needing(doubly_stochastic)
def momentum_tracking(lr: Rate, *, momentum: float = 0.9, batch_size: int = 128) -> Algorithm:
    """Return Momentum Tracking: gradient tracking in which nodes track each other's momentum.

    Per round, for every node i with model ``x_i``, momentum ``m_i`` and a tracked momentum ``y_i``,
    where ``m_i`` and ``y_i`` start at 0::

        m_i' = momentum * m_i + grad F(x_i; S_i)
        y_i  = y_i + m_i' - m_i,   m_i = m_i'
        x_i  = sum_j W[i, j] x_j - lr * y_i,   y_i = sum_j W[i, j] y_j

    The momentum of :func:`topofl.algorithms.dsgd` follows the gradients of node i alone, which
    drives nodes with different data apart. Here, the mean of ``y`` over nodes always equals the
    mean of their momenta: with full batches and a small enough constant `lr`, all models converge
    to the optimum of the mean loss, however different the data of nodes are. ``W`` must be doubly
    stochastic. With a momentum of 0, the method is :func:`topofl.algorithms.sab` with ``A = B =
    W``. A message holds two numbers per parameter.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    momentum
        In [0, 1). As in ``torch.optim.SGD``, steps become longer by ``1 / (1 - momentum)``.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    The authors' code stores ``c_i = m_i - y_i``, and starts it such that all ``y_i`` are the mean
    of the first gradients of all nodes, which needs an exchange with all nodes. It also adds a
    weight decay of 0.001 to gradients.

    References
    ----------
    Takezawa, Bao, Niwa, Sato and Yamada, "Momentum Tracking: momentum acceleration for
    decentralized deep learning on heterogeneous data" (2023), as in the authors' repository
    yukiTakezawa/MomentumTracking, ``optimizer/momentum_tracking_optimizer.py``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 40, "seed": 0}
    >>> tracked = topofl.run(momentum_tracking(lr=0.03), **how)
    >>> local = topofl.run(topofl.algorithms.dsgd(lr=0.03, momentum=0.9), **how)
    >>> bool(tracked.last("loss").mean() < local.last("loss").mean())
    True
    """
    term = _tracked_momentum(check_fraction("momentum", momentum))
    local = train(descend(term, lr=lr), batch_size=batch_size)

    def start(models: Models) -> State:
        return {"sent": models.flat.clone()}

    def mix_before_step(models: Models, state: State, round: Round) -> State:
        tracked = round.state("local")["tracked"]
        sent = state["sent"]
        models.flat.sub_(sent)
        round.mix(round.weights, sent, scalars=tracked.shape[1])
        round.mix(round.weights, tracked, counted=False)
        sent.copy_(models.flat.add_(sent))
        return state

    exchange = Phase(start, mix_before_step, {"weights": "round"}, rowwise=True)
    return chain("momentum_tracking", local=local, exchange=exchange)


def _tracked_momentum(momentum: float) -> Term:
    """Return the term of heavy-ball momentum whose mean over nodes is tracked."""

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        tracked = own["tracked"].sub_(own["momentum"])
        return tracked.add_(own["momentum"].mul_(momentum).add_(g))

    init = zeros("tracked", "momentum")
    settings = {"momentum": momentum}
    return Term("tracked_momentum", update, init, elementwise=True, settings=settings)


@public
@needing(doubly_stochastic)
def gt_hsgd(lr: Rate, *, beta: float = 0.1, batch_size: int = 128) -> Algorithm:
    """Return GT-HSGD: gradient tracking of hybrid gradients, whose variance falls over rounds.

    Per round, for every node i with model ``x_i`` and that of the previous round, ``x_i'``, with
    hybrid gradients ``v_i`` of this round and ``v_i'`` of the previous one, and ``y_i``; ``v_i'``
    and ``y_i`` start at 0::

        v_i = grad F(x_i; S_i) + (1 - beta) * (v_i' - grad F(x_i'; S_i))
            (v_i = grad F(x_i; S_i) in the first round)
        y_i = sum_j W[i, j] (y_j + v_j - v_j')
        x_i = sum_j W[i, j] (x_j - lr * y_j)

    Both gradients are those of the same minibatch, whose noise they share: the smaller `beta`, the
    longer ``v_i`` averages, without lagging behind the models as a momentum does. A step takes two
    gradients. ``W`` must be doubly stochastic, so that the mean of ``y`` over nodes always equals
    that of ``v``. With full batches, ``v_i`` is the gradient, and all models converge to the
    optimum of the mean loss for a small enough constant `lr`. Nodes send two messages per round,
    one after another: what they track, and then models.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`. The
        noise of ``v_i`` is small only while models move little per round, which the theory ensures
        by a small `lr`.
    beta
        Share of the plain gradient, above 0 and at most 1.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    The rule is that of code by others, OscarYau525/docom; the paper's own listing was not read. The
    first ``v_i`` is the gradient of one minibatch, as in every other round.

    References
    ----------
    Xin, Khan and Kar, "A hybrid variance-reduced method for decentralized stochastic non-convex
    optimization" (ICML 2021).

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 100, "seed": 0}
    >>> methods = (gt_hsgd(lr=0.1, batch_size=4), algorithms.dsgt(lr=0.1, batch_size=4))
    >>> hybrid, plain = (topofl.run(method, **how) for method in methods)
    >>> bool(hybrid.last("loss").mean() < plain.last("loss").mean())
    True
    """
    at, steps = _hybrid(check_share("beta", beta)), descend(tracking(), lr=lr)
    training = Training(steps, check_amount("batch_size", batch_size, least=1), at=at)

    def init(models: Models) -> State:
        return training.init(models) | {"rate": torch.zeros_like(models.flat[:, :1])}

    def step(models: Models, state: State, round: Round) -> State:
        state["rate"].copy_(steps_and_rates(models, training, state, round))
        return state

    def mix_twice(models: Models, state: State, round: Round) -> State:
        tracked, rate = (round.state("local")[name] for name in ("tracked", "rate"))
        models.flat.addcmul_(tracked, rate)  # the step is along what is averaged
        round.mix(round.weights, tracked)
        models.flat.addcmul_(tracked, rate, value=-1)
        round.mix(round.weights, models.flat)
        return state

    local = Phase(init, step, training.settings, rowwise=True)
    exchange = Phase(no_state, mix_twice, {"weights": "round"}, rowwise=True)
    return chain("gt_hsgd", local=local, exchange=exchange)


def _hybrid(beta: float) -> GradientPoint:
    """Return the gradients at models, corrected by those at the models of the step before.

    The last direction is ``gradient`` in the state of the term that tracks it.
    """

    def init(models: Models) -> State:
        first = torch.zeros_like(models.flat[:, 0])
        return {"previous": models.flat.clone(), "kept": first}

    def where(theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        return theta.clone()

    def back(g: Tensor, theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        g = g.clone()
        change = own["gradient"] - gradient(own["previous"])
        g.addcmul_(change, per_row(own["kept"], g))
        own["kept"].fill_(1 - beta)
        own["previous"].copy_(theta)
        return g

    return GradientPoint("hybrid", where, back, init, settings={"beta": beta})
