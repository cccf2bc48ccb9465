"""Momenta of rounds and of coordinates: Adam and AMSGrad at each node, QG-DSGDm, and NoLoCo."""

import torch
from torch import Tensor

from topofl._support.check import (
    check_fraction,
    check_int,
    check_nonnegative,
    check_positive,
    check_switch,
)
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import Training, sgd_descent, train
from topofl.algorithms.contract.needs import doubly_stochastic, equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.algorithms.contract.terms import Step, Term, adam, adamw, zeros
from topofl.algorithms.exchanges.average import gossip, gossip_with

__all__ = ["dadam", "noloco", "qg_dsgdm"]


@public
@needing(equal_shares, when={"track": False})
@needing(doubly_stochastic, when={"track": True})
def dadam(
    lr: Rate,
    *,
    batch_size: int = 128,
    local_steps: int = 1,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float | None = None,
    decay: float = 0.0,
    track: bool = False,
) -> Algorithm:
    """Return decentralized Adam (D-Adam): local steps of Adam or AdamW, then averaging.

    Per round, for every node i, where the moments ``m_i``, ``v_i`` start at 0 and stay at their
    node, and s counts its steps::

        g_i = grad F(theta_i; S_i)
        m_i = beta1 * m_i + (1 - beta1) * g_i,   v_i = beta2 * v_i + (1 - beta2) * g_i^2
        x_i = theta_i
              - lr * ((m_i / (1 - beta1^s)) / (sqrt(v_i / (1 - beta2^s)) + eps) + decay * theta_i)
        theta_i = sum_j W[i, j] x_j                          (after `local_steps` of the above)

    If the data of nodes differ, so do their ``v_i``: the sum of the steps is then not a step along
    the mean gradient, and on some problems the models stay away from all stationary points, however
    small `lr` is. ``track=True`` gives decentralized AMSGrad, which converges on these: nodes also
    average the scales ``u_i`` of their steps, which preserves their sum. With ``h_i = u_i = eps``
    initially::

        x_i = theta_i - lr * (m_i / sqrt(max(u_i, eps)) + decay * theta_i)
        u_i = u_i + max(h_i, v_i) - h_i,   h_i = max(h_i, v_i)
        theta_i = sum_j W[i, j] x_j,   u_i = sum_j W[i, j] u_j

    ``W`` must then be doubly stochastic in every round, so that ``u`` and ``h`` always have the
    same mean over nodes. A message holds two numbers per parameter. The first steps use ``u_i =
    eps`` and are long if `eps` is small.

    Without `track`, the default weights of directed graphs, static or periodic, may give nodes
    unequal shares in the average (:func:`topofl.metrics.perron_vector`); a run then warns that it
    weights their losses by these shares. :func:`topofl.algorithms.sab`,
    :func:`topofl.algorithms.osgp` and :func:`topofl.algorithms.push_diging` weight all nodes
    equally.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    batch_size
        As in :func:`topofl.algorithms.train`.
    local_steps
        Minibatch steps between two exchanges.
    beta1, beta2
        In [0, 1).
    eps
        Above 0. Without `track`, it is added to the root and is 1e-8 by default; with it, it is the
        lower bound under the root and is 1e-6 by default.
    decay
        Decoupled weight decay (AdamW), at least 0: a step subtracts ``lr * decay`` times each
        parameter, and the moments ignore it.
    track
        Whether nodes also average the scales of their steps (AMSGrad).

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; in a run with `track`, if `mixing` is
        not doubly stochastic.

    Notes
    -----
    With `track`, the paper averages models before the step instead of after it, and takes one step
    per round; in other implementations ``v_i`` starts at `eps` instead of 0.

    References
    ----------
    Without `track`: Kingma and Ba, "Adam: a method for stochastic optimization" (2015), Algorithm
    1, at each node, and gossip; Loshchilov and Hutter, "Decoupled weight decay regularization"
    (2019). With it: Chen, Karimi, Zhao and Li, "On the convergence of decentralized adaptive
    gradient methods" (ACML 2022), decentralized AMSGrad, and the example on which nodes with
    separate scales fail.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 30, "seed": 0}
    >>> plain, tracked = (topofl.run(dadam(lr=0.01, track=track), **how) for track in (False, True))
    >>> bool(tracked.last("accuracy").mean() > 2 * plain.last("accuracy").mean())
    True
    >>> int(tracked["bytes"][-1] // plain["bytes"][-1])
    2
    """
    decay = check_nonnegative("decay", decay)
    if check_switch("track", track, auto=False):
        term = _amsgrad(beta1, beta2, 1e-6 if eps is None else eps, decay)
    else:
        eps = 1e-8 if eps is None else eps
        term = adamw(beta1, beta2, decay=decay, eps=eps) if decay else adam(beta1, beta2, eps=eps)
    steps = check_int("local_steps", local_steps, minimum=1)
    local = train(descend(term, lr=lr), batch_size=batch_size, steps=steps)
    exchange = gossip_with("local", "scale") if track else gossip()
    return chain("dadam", local=local, exchange=exchange)


def _amsgrad(beta1: float, beta2: float, eps: float, decay: float) -> Term:
    """Return the term of AMSGrad, whose scales the exchange averages."""
    beta1, beta2 = check_fraction("beta1", beta1), check_fraction("beta2", beta2)
    eps = check_positive("eps", eps)

    def init(models: Models) -> State:
        zeros = torch.zeros_like(models.flat)
        least = torch.full_like(models.flat, eps)
        return {"mean": zeros, "square": zeros.clone(), "largest": least, "scale": least.clone()}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        own["mean"].lerp_(g, 1 - beta1)
        own["square"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        torch.clamp(own["scale"], min=eps, out=g)
        own["scale"].sub_(own["largest"])
        own["scale"].add_(torch.maximum(own["largest"], own["square"], out=own["largest"]))
        return g.rsqrt_().mul_(own["mean"]).add_(theta, alpha=decay)

    settings = {"amsgrad": [beta1, beta2, eps]} | ({"decay": decay} if decay else {})
    return Term("amsgrad", update, init, elementwise=True, settings=settings)


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
    kept = momentum if global_momentum is None else global_momentum
    kept = check_fraction("global_momentum", kept)
    check_switch("nesterov", nesterov, auto=False)
    descent = sgd_descent(lr, weight_decay=weight_decay, terms=[_quasi(momentum, nesterov)])
    training = Training(descent, check_int("batch_size", batch_size, minimum=1))

    def init(models: Models) -> State:
        return training.init(models) | {"before": models.flat.clone()}

    def step(models: Models, state: State, round: Round) -> State:
        state["before"].copy_(models.flat)
        round.train(models, training, state)
        return state

    def follow(models: Models, state: State, round: Round) -> State:
        local = round.state("local")
        rate = float(descent.lr(round.t, 0))
        if rate > 0:
            moved = local["before"].sub_(models.flat)
            local["momentum"].mul_(kept).add_(moved, alpha=(1 - kept) / rate)
        return state

    return chain(
        "qg_dsgdm",
        local=Phase(init, step, training.settings, rowwise=True),
        exchange=gossip(),
        follow=Phase(no_state, follow, {"global_momentum": kept}, rowwise=True),
    )


def _quasi(rate: float, nesterov: bool) -> Term:
    """Return the term that adds the quasi-global momentum without updating it."""

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        if nesterov:
            return g.mul_(1 + rate).add_(own["momentum"], alpha=rate**2)
        return g.add_(own["momentum"], alpha=rate)

    settings = {"momentum": rate} | ({"nesterov": True} if nesterov else {})
    return Term("quasi_global", update, zeros("momentum"), elementwise=True, settings=settings)


@public
@needing(equal_shares)
def noloco(
    lr: Rate,
    *,
    outer_lr: float = 0.7,
    outer_momentum: float = 0.5,
    batch_size: int = 128,
    local_steps: int = 50,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> Algorithm:
    """Return NoLoCo: many local steps of Adam, and momentum along averages with a random peer.

    Per round, for every node i, with ``m_i`` starting at 0::

        y_i = Adam(x_i; lr)                                  (`local_steps` steps from x_i)
        m_i = outer_momentum * m_i + outer_lr * (sum_j W[i, j] y_j - x_i)
        x_i = x_i + m_i

    In contrast to DiLoCo (:func:`topofl.algorithms.diloco`) there is no mean over all nodes: in
    each round, a node averages with one other node. This is what
    :func:`topofl.topologies.random_matching` does; any graph can be used. ``m_i`` and the moments
    of Adam stay at their node. A message holds a model. Without momentum and with an `outer_lr` of
    1, the method is :func:`topofl.algorithms.dadam`.

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`); a run then warns that it weights their losses by
    these shares.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`; 6e-4 in the code's small models.
    outer_lr
        Step size of the outer step, above 0.
    outer_momentum
        Momentum of the outer step, in [0, 1).
    batch_size
        As in :func:`topofl.algorithms.train`.
    local_steps
        Steps between two exchanges.
    beta1, beta2, eps
        As in :func:`topofl.algorithms.adam`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    The code sends the model before the local steps and their change in two messages, and adds
    ``outer_lr`` times the mean change and ``outer_lr`` times the difference of the mean model from
    ``x_i``. The sum of both is the formula above, which takes one model per message.

    References
    ----------
    Kolehmainen et al., "NoLoCo: no-all-reduce low communication training method for large models"
    (2025), in the author's code jkolehm/noloco, src/noloco/sparse_optimizer_c.py, from whose
    configs/no_reduce_exp/C4/c4_noloco_mean_100m_8.yaml the defaults are.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> history = topofl.run(noloco(lr=0.01, local_steps=10), model=models.logistic_regression(64),
    ...                      clients=clients, topology=topologies.random_matching(10, seed=0),
    ...                      rounds=10, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.9)
    True
    """
    rate = check_positive("outer_lr", outer_lr)
    kept = check_fraction("outer_momentum", outer_momentum)
    steps = check_int("local_steps", local_steps, minimum=1)

    def start(models: Models) -> State:
        return {"outer": models.flat.clone(), "velocity": torch.zeros_like(models.flat)}

    def outer_step(models: Models, state: State, round: Round) -> State:
        round.mix(round.weights, models.flat)
        change = models.flat.sub_(state["outer"])
        state["velocity"].mul_(kept).add_(change, alpha=rate)
        models.flat.copy_(state["outer"].add_(state["velocity"]))
        return state

    settings = {"weights": "round", "outer_lr": rate, "outer_momentum": kept}
    term = adam(beta1, beta2, eps=eps)
    return chain(
        "noloco",
        local=train(descend(term, lr=lr), batch_size=batch_size, steps=steps),
        exchange=Phase(start, outer_step, settings, rowwise=True),
    )
