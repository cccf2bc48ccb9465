"""Methods without the bias of D-SGD: DSGT, EXTRA, D^2, EDM, K-GT, Push-DIGing and S-AB."""

import torch

from topofl._support.check import check_fraction, check_int, check_positive, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Descend, Rate, descend
from topofl.algorithms.contract.local import Training, steps_and_rates, train
from topofl.algorithms.contract.needs import (
    above_minus_third,
    doubly_stochastic,
    eigenvalues_above,
    needing,
    static,
    strongly_connected,
    symmetric,
)
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.algorithms.contract.terms import averaged, correction, tracking, zeros
from topofl.algorithms.exchanges.average import gossip_with, pushed_weights

__all__ = ["d2", "dsgt", "edm", "extra", "local_gt", "push_diging", "sab"]


@public
@needing(doubly_stochastic)
def dsgt(lr: Rate, *, batch_size: int = 128) -> Algorithm:
    """Return decentralized gradient tracking (DSGT): nodes exchange models and tracked gradients.

    Per round, for every node i, with gradients ``g_i`` of this round and ``g_i'`` of the previous
    one; ``g_i'`` and ``y_i`` start at 0::

        y_i     = y_i + g_i - g_i',   g_i = grad F(theta_i; S_i)
        theta_i = sum_j W[i, j] (theta_j - lr * y_j)
        y_i     = sum_j W[i, j] y_j

    ``W`` must be doubly stochastic, so that the mean of ``y`` over nodes always equals the mean of
    their latest gradients. With full batches and a small enough constant `lr`, all models converge
    to the optimum of the mean loss, however different the data of nodes are, in contrast to D-SGD.
    A message holds two numbers per parameter.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Nedic, Olshevsky and Shi, "Achieving geometric convergence for distributed optimization over
    time-varying graphs" (2017), DIGing, which mixes models before the step instead of after it; Pu
    and Nedic, "Distributed stochastic gradient tracking methods" (2021), DSGT.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 30, "seed": 0}
    >>> tracked, plain = (topofl.run(one(lr=0.1), **how) for one in (dsgt, topofl.algorithms.dsgd))
    >>> bool(tracked.last("loss").mean() < plain.last("loss").mean())
    True
    >>> int(tracked["bytes"][-1] // plain["bytes"][-1])
    2
    """
    local = train(descend(tracking(), lr=lr), batch_size=batch_size)
    return chain("dsgt", local=local, exchange=gossip_with("local", "tracked"))


_ABOVE_MINUS_1 = eigenvalues_above(
    -1, "use mixing weights with positive self-weights, such as mixing.lazy(...)"
)


@public
@needing(static, symmetric, doubly_stochastic, _ABOVE_MINUS_1)
def extra(lr: Rate, *, batch_size: int = 128) -> Algorithm:
    """Return EXTRA, the exact first-order algorithm: gossip, a gradient step and a correction.

    With all models as the rows of ``X^t``, their gradients ``G^t``, ``V = (I + W) / 2`` and a
    constant `lr`::

        X^1     = W X^0 - lr * G^0
        X^(t+2) = (I + W) X^(t+1) - V X^t - lr * (G^(t+1) - G^t)

    Equivalently, per round, for every node i with model ``x_i`` and a correction ``c_i`` that
    starts at 0::

        m_i = sum_j W[i, j] x_j,   g_i = grad F(x_i; S_i)
        c_i' = c_i + (m_i - x_i) / (2 * lr)  (c_i of the next round)
        x_i = m_i - lr * (g_i - c_i)

    The graph must be static and connected, and ``W`` symmetric and doubly stochastic without an
    eigenvalue of -1 (one node with a positive self-weight is enough, as with
    :func:`topofl.mixing.metropolis_hastings`). The corrections sum to 0 after every round. With
    full batches and a constant `lr` below ``(1 + smallest eigenvalue of W) / L``, where L is the
    Lipschitz constant of the gradients, all models converge to the optimum of the mean loss,
    however different the data of nodes are, in contrast to D-SGD: at the optimum, ``c_i`` is the
    gradient of the node's own loss. A message holds one model, as in D-SGD.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
        Corrections are gradients, so that models at the optimum stay there when the rate changes
        (it is constant in the paper). While it is 0, corrections do not change. If the rate falls
        by orders of magnitude within one round, remaining differences divided by `lr` are large,
        and a rate that soon rises again, as in schedules with restarts, amplifies them.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run, if -1 is an
        eigenvalue of ``W``.

    References
    ----------
    Shi, Ling, Wu and Yin, "EXTRA: an exact first-order algorithm for decentralized consensus
    optimization" (2015), Algorithm 1, with the mixing matrix of its choice (I + W) / 2.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 30, "seed": 0}
    >>> exact, plain = (topofl.run(one(lr=0.1), **how) for one in (extra, algorithms.dsgd))
    >>> bool(exact.last("loss").mean() < plain.last("loss").mean())
    True
    >>> bool(exact["bytes"][-1] == plain["bytes"][-1])
    True
    """
    steps = descend(lr=lr)

    def start(models: Models) -> State:
        return {"sent": models.flat.clone(), "correction": torch.zeros_like(models.flat)}

    def add_corrections(models: Models, state: State, round: Round) -> State:
        rate = float(steps.lr(round.t, 0))
        apart = state["sent"].clone()
        round.mix(round.weights, apart)
        apart.sub_(state["sent"])
        models.flat.add_(apart).add_(state["correction"], alpha=rate)
        if rate > 0:
            state["correction"].add_(apart, alpha=0.5 / rate)
        state["sent"].copy_(models.flat)
        return state

    exchange = Phase(start, add_corrections, {"weights": "round"}, rowwise=True)
    return chain("extra", local=train(steps, batch_size=batch_size), exchange=exchange)


@public
@needing(static, symmetric, doubly_stochastic)
@needing(above_minus_third, when={"lazy": False})
def d2(lr: Rate, *, lazy: bool = True, batch_size: int = 128) -> Algorithm:
    """Return D^2, decentralized training over decentralized data, also known as exact diffusion.

    With all models as the rows of ``X^t``, their gradients ``G^t``, ``V = (I + W) / 2`` (``W``
    itself if not `lazy`) and a constant `lr`::

        X^1     = V (X^0 - lr * G^0)
        X^(t+2) = V (2 X^(t+1) - X^t - lr * (G^(t+1) - G^t))

    Equivalently, per round, for every node i with model ``x_i`` and a correction ``c_i`` that
    starts at 0::

        p_i = x_i - lr * grad F(x_i; S_i)
        x_i = sum_j V[i, j] (p_j + lr * c_j),   c_i = (x_i - p_i) / lr

    The graph must be static and connected, and ``W`` symmetric and doubly stochastic. With `lazy`,
    as in exact diffusion, any such ``W`` works; D^2 as published uses ``W`` itself and is faster,
    but requires that all eigenvalues are above -1/3, which does not hold on a ring of an even
    number of nodes with equal weights. The corrections sum to 0 after every round. With full
    batches and a small enough constant `lr`, all models converge to the optimum of the mean loss,
    however different the data of nodes are, in contrast to D-SGD: at the optimum, ``c_i`` is the
    gradient of the node's own loss. A message holds one model, as in D-SGD.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
        Corrections are gradients, so that models at the optimum stay there when the rate changes
        (it is constant in the papers). While it is 0, corrections do not change. If the rate falls
        by orders of magnitude within one round, remaining differences divided by `lr` are large,
        and a rate that soon rises again, as in schedules with restarts, amplifies them.
    lazy
        Whether exchanges use ``(I + W) / 2`` instead of ``W``.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run without `lazy`, if
        an eigenvalue of ``W`` is not above -1/3.

    See Also
    --------
    led, proxskip : the same corrections with several local steps between two exchanges.

    Notes
    -----
    NIDS without a proximal term and with one step size for all nodes has the same recursion from
    ``X^1 = X^0 - lr * G^0``: it is this method with `lazy` whose first round has no exchange.

    References
    ----------
    Tang, Lian, Yan, Zhang and Liu, "D^2: decentralized training over decentralized data" (2018),
    Algorithm 1; Yuan, Ying, Zhao and Sayed, "Exact diffusion for distributed optimization and
    learning, part I: algorithm development" (2019), Algorithm 1; Li, Shi and Yan, "A decentralized
    proximal-gradient method with network independent step-sizes and separated convergence rates"
    (2019), NIDS.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 30, "seed": 0}
    >>> exact, plain = (topofl.run(one(lr=0.1), **how) for one in (d2, algorithms.dsgd))
    >>> bool(exact.last("loss").mean() < plain.last("loss").mean())
    True
    >>> bool(exact["bytes"][-1] == plain["bytes"][-1])
    True
    """
    return _exact_diffusion("d2", descend(lr=lr), lazy, batch_size)


def _exact_diffusion(name: str, steps: Descend, lazy: bool, batch_size: int) -> Algorithm:
    """Return D^2 along the directions of some local steps."""
    lazy = bool(check_switch("lazy", lazy, auto=False))

    def mix_corrected(models: Models, state: State, round: Round) -> State:
        flat = models.flat
        rate = float(steps.lr(round.t, 0))
        before = flat.clone()
        flat.add_(state["correction"], alpha=rate)
        kept = flat.clone() if lazy else None
        round.mix(round.weights, flat)
        if kept is not None:
            flat.add_(kept).mul_(0.5)
        if rate > 0:
            torch.sub(flat, before, out=state["correction"]).div_(rate)
        return state

    settings = {"weights": "round", "lazy": lazy}
    exchange = Phase(zeros("correction"), mix_corrected, settings, rowwise=True)
    return chain(name, local=train(steps, batch_size=batch_size), exchange=exchange)


@public
@needing(static, symmetric, doubly_stochastic)
@needing(above_minus_third, when={"lazy": False})
def edm(lr: Rate, *, momentum: float = 0.9, lazy: bool = True, batch_size: int = 128) -> Algorithm:
    """Return exact diffusion with momentum (EDM): D^2 along running averages of gradients.

    Per round, for every node i with model ``x_i``, an average ``m_i`` of its gradients and a
    correction ``c_i``, which start at 0, and ``V = (I + W) / 2`` (``W`` itself if not `lazy`)::

        m_i = momentum * m_i + (1 - momentum) * grad F(x_i; S_i)
        p_i = x_i - lr * m_i
        x_i = sum_j V[i, j] (p_j + lr * c_j),   c_i = (x_i - p_i) / lr

    With all models and averages as the rows of ``X^t`` and ``M^t``, and a constant `lr`::

        X^(t+2) = V (2 X^(t+1) - X^t - lr * (M^(t+1) - M^t))

    The averages stay at their nodes, and a message holds one model, as in D-SGD. With a momentum of
    0, the method is :func:`topofl.algorithms.d2`, with the same requirements on the graph and the
    same corrections. With full batches and a small enough constant `lr`, all models converge to the
    optimum of the mean loss, however different the data of nodes are.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)``; as in :func:`topofl.algorithms.d2`.
    momentum
        In [0, 1). Averages are as large as gradients: a momentum does not lengthen steps. As they
        start at 0, the first steps are shorter than those of :func:`topofl.algorithms.d2`.
    lazy
        Whether exchanges use ``(I + W) / 2`` instead of ``W``; the authors' code uses ``W``.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run without `lazy`, if
        an eigenvalue of ``W`` is not above -1/3.

    References
    ----------
    Hu, Chen, Liu and Mao, "A bias-correction decentralized stochastic gradient algorithm with
    momentum acceleration" (2025), as in the repository Salsola-Tragus-L/edm, ``algorithms.py``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 80, "seed": 0}
    >>> exact, plain = (topofl.run(one(lr=0.1), **how) for one in (edm, algorithms.dsgd))
    >>> bool(exact.last("loss").mean() < plain.last("loss").mean())
    True
    >>> bool(exact["bytes"][-1] == plain["bytes"][-1])
    True
    """
    term = averaged(1 - check_fraction("momentum", momentum), momentum=momentum)
    return _exact_diffusion("edm", descend(term, lr=lr), lazy, batch_size)


@public
@needing(doubly_stochastic)
def local_gt(
    lr: Rate, *, local_steps: int = 5, global_lr: float = 1.0, batch_size: int = 128
) -> Algorithm:
    """Return gradient tracking with local steps (K-GT).

    Per round, for every node i with model ``x_i``, K = `local_steps` and a correction ``c_i`` that
    starts at 0::

        y_i = x_i;   y_i <- y_i - lr * (grad F(y_i; S_i) + c_i)        (K times)
        z_i = (x_i - y_i) / (K * lr)  (the mean of these K directions)
        c_i = c_i - z_i + sum_j W[i, j] z_j
        x_i = sum_j W[i, j] (x_j - global_lr * K * lr * z_j)
            (the weighted mean of the y_j if `global_lr` is 1)

    ``W`` must be doubly stochastic, and the graph connected, or connected over some rounds. The
    corrections then sum to 0 after every round. With full batches and a small enough constant `lr`,
    all models converge to the optimum of the mean loss, however different the data of nodes are;
    D-SGD stays farther from it the more local steps it takes. With one local step and a `global_lr`
    of 1, the method is :func:`topofl.algorithms.dsgt`. A message holds two numbers per parameter: a
    model and a direction.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`, whose sum over the steps replaces ``K * lr``; if that sum
        is 0, so is ``z_i``.
    local_steps
        Steps between two exchanges, the same at all nodes.
    global_lr
        Factor of the local updates before models are averaged, above 0; 1 applies them as they are.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Liu, Lin, Koloskova and Stich, "Decentralized gradient tracking with local steps" (2023),
    Algorithm 1, K-GT. There, corrections can also start as the mean gradient of all nodes minus a
    node's own, which needs an exchange with all nodes; here they start at 0. They sum to 0 in both
    cases.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 20, "seed": 0}
    >>> methods = (local_gt(lr=0.1, local_steps=5), algorithms.dsgd(lr=0.1, local_steps=5))
    >>> tracked, plain = (topofl.run(method, **how) for method in methods)
    >>> bool(tracked.last("loss").mean() < plain.last("loss").mean())
    True
    """
    training = Training(
        descend(correction(), lr=lr),
        check_int("batch_size", batch_size, minimum=1),
        check_int("local_steps", local_steps, minimum=1),
    )
    global_lr = check_positive("global_lr", global_lr)

    def init(models: Models) -> State:
        flat = models.flat
        return training.init(models) | {
            "direction": torch.zeros_like(flat),
            "length": torch.zeros_like(flat[:, 0]),
        }

    def correct(models: Models, state: State, round: Round) -> State:
        start = models.flat.clone()
        length = steps_and_rates(models, training, state, round)
        state["length"].copy_(length[:, 0])
        state["direction"].copy_(torch.where(length > 0, start.sub_(models.flat).div_(length), 0))
        return state

    def average(models: Models, state: State, round: Round) -> State:
        local = round.state("local")
        direction = local["direction"]
        corrections = local["correction"].sub_(direction)
        models.flat.addcmul_(direction, local["length"][:, None], value=1 - global_lr)
        round.mix(round.weights, models.flat, scalars=direction.shape[1])
        round.mix(round.weights, direction, counted=False)
        corrections.add_(direction)
        return state

    settings = {"weights": "round", "global_lr": global_lr}
    return chain(
        "local_gt",
        local=Phase(init, correct, training.settings, rowwise=True),
        exchange=Phase(no_state, average, settings, rowwise=True),
    )


@public
@needing(strongly_connected)
def push_diging(lr: Rate, *, batch_size: int = 128) -> Algorithm:
    """Return Push-DIGing: gradient tracking by push-sum over directed graphs.

    Per round, for every node i with push-sum weight ``v_i``, which starts at 1, and model ``x_i =
    u_i / v_i``, with gradients ``g_i`` of this round and ``g_i'`` of the previous one; ``g_i'`` and
    ``y_i`` start at 0::

        y_i = y_i + g_i - g_i',   g_i = grad F(x_i; S_i)
        u_i = sum_j P[i, j] (u_j - lr * y_j)  (P[i, j]: the share that node j sends to i)
        v_i = sum_j P[i, j] v_j,   y_i = sum_j P[i, j] y_j
        x_i = u_i / v_i

    The columns of ``P`` must sum to 1, as in the push form of :func:`topofl.mixing.uniform`, on any
    graph, directed or not. The graph may change from round to round if there is a number of rounds
    within which every node always reaches every other. The sum of ``y`` over nodes always equals
    the sum of their latest gradients. With full batches and a small enough constant `lr`, all
    models converge to the optimum of the mean loss, however different the data of nodes are. With a
    doubly stochastic ``P``, the method is :func:`topofl.algorithms.dsgt`. A message holds a model,
    a tracked gradient and a push-sum weight.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`. Nodes
        that receive small shares have small push-sum weights and take large steps: a graph with
        unequal degrees needs a smaller `lr`.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Nedic, Olshevsky and Shi, "Achieving geometric convergence for distributed optimization over
    time-varying graphs" (SIAM Journal on Optimization, 2017), Algorithm 2.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.random_out(10, 2, seed=0), "rounds": 30, "seed": 0}
    >>> tracked = topofl.run(push_diging(lr=0.05), **how)
    >>> steps = algorithms.sgd(0.05, batch_size=128)
    >>> sgp = algorithms.chain("sgp", local=steps, exchange=algorithms.push_sum())
    >>> plain = topofl.run(sgp, **how)
    >>> bool(tracked.last("loss").mean() < plain.last("loss").mean())
    True
    """
    local = train(descend(tracking(), lr=lr), batch_size=batch_size)
    exchange = Phase(no_state, _pushing_exchange, {"weights": "push"}, rowwise=True)
    return chain("push_diging", local=local, exchange=exchange)


def _pushing_exchange(models: Models, state: State, round: Round) -> State:
    """Push weighted models, push-sum weights and tracked gradients in one message."""
    weights = round.push_weights
    tracked = round.state("local")["tracked"]
    flat = models.flat
    flat.mul_(models.push_sum_weights[:, None].to(flat.dtype))
    round.mix(weights, flat, scalars=tracked.shape[1] + 1)
    round.mix(weights, tracked, counted=False)
    models.push_sum_weights.copy_(pushed_weights(weights, models.push_sum_weights, round))
    flat.div_(models.push_sum_weights[:, None].to(flat.dtype))
    return state


@public
@needing(strongly_connected)
def sab(lr: Rate, *, batch_size: int = 128) -> Algorithm:
    """Return S-AB: gradient tracking over directed graphs, without push-sum weights.

    Per round, for every node i, with gradients ``g_i`` of this round and ``g_i'`` of the previous
    one; ``g_i'`` and ``y_i`` start at 0::

        y_i = y_i + g_i - g_i',   g_i = grad F(x_i; S_i)
        x_i = sum_j A[i, j] x_j - lr * y_i  (rows of A sum to 1: nodes average what they receive)
        y_i = sum_j B[i, j] y_j  (columns of B sum to 1: nodes push shares of what they have)

    The graph must be strongly connected, directed or not; it is static in the paper, while later
    work proves the same for changing graphs. ``A`` holds the weights with which nodes average what
    they receive, and ``B`` the shares that they push; on directed graphs, both have equal weights
    by default. (If a run is given weights, they are used for both and must be doubly stochastic.)
    The sum of ``y`` over nodes always equals the sum of their latest gradients. With full batches
    and a small enough constant `lr`, all models converge to the optimum of the mean loss, however
    different the data of nodes are. A message holds a model and a tracked gradient: two numbers per
    parameter.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    Another form of AB, in the library disropt, also pushes the gradient differences: ``y_i = sum_j
    B[i, j] (y_j + g_j - g_j')``. Push-pull mixes models after the step instead of before it: ``x_i
    = sum_j A[i, j] (x_j - lr * y_j)``.

    References
    ----------
    Xin, Sahu, Khan and Kar, "Distributed stochastic optimization with gradient tracking over
    strongly-connected networks" (CDC 2019), S-AB; Xin and Khan, "A linear algorithm for
    optimization over directed graphs with geometric convergence" (2018), AB; Pu, Shi, Xu and Nedic,
    "Push-pull gradient methods for distributed optimization in networks" (2021), push-pull.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, mixing, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> graph = topologies.remove_edges(topologies.exponential(10), [(0, 1), (4, 8), (5, 6)])
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": graph, "rounds": 30, "seed": 0}
    >>> tracked = topofl.run(sab(lr=0.1), **how)
    >>> plain = topofl.run(algorithms.dsgd(lr=0.1), mixing=mixing.uniform, **how)  # unequal shares
    >>> bool(tracked.last("loss").mean() < plain.last("loss").mean())
    True
    """
    local = train(descend(tracking(), lr=lr), batch_size=batch_size)
    settings = {"weights": "round", "tracked": "push"}

    def start(models: Models) -> State:
        return {"sent": models.flat.clone()}

    exchange = Phase(start, _push_pull_exchange, settings, rowwise=True)
    return chain("sab", local=local, exchange=exchange)


def _push_pull_exchange(models: Models, state: State, round: Round) -> State:
    """Average the models before the local step, add the step, and push the tracked gradients."""
    pushes = round.push_weights
    tracked = round.state("local")["tracked"]
    sent = state["sent"]
    models.flat.sub_(sent)
    round.mix(round.weights, sent, scalars=tracked.shape[1])
    round.mix(pushes, tracked, counted=False)
    sent.copy_(models.flat.add_(sent))
    return state
