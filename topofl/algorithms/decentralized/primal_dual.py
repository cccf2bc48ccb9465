"""Primal-dual methods with local steps: LED, decentralized ProxSkip, and DiNNO, an inexact ADMM."""

import torch
from torch import Tensor

from topofl._linalg.spectral import smallest
from topofl._support.check import TOLERANCE, check_int, check_positive, check_share, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import Training, train
from topofl.algorithms.contract.needs import (
    Need,
    doubly_stochastic,
    needing,
    static,
    symmetric,
)
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.algorithms.contract.terms import Step, Term, correction, per_row, zeros
from topofl.mixing import MixingMatrix

__all__ = ["dinno", "led", "proxskip"]


def _smallest_eigenvalue(weights: MixingMatrix, dual_lr: float) -> str:
    """Describe the smallest eigenvalue, if LED without laziness may diverge for it.

    A mode of eigenvalue v turns ``(x, K * lr * c)``, without curvature, by ``[[v, -v], [b (1 - v),
    1 - b (1 - v)]]``, where b is `dual_lr`. Its roots are inside the unit circle if and only if
    ``(2 + b) * v > b - 2``, for v in (-1, 1). Curvature up to ``1 / lr`` asks for no more.
    """
    bound, found = (dual_lr - 2) / (dual_lr + 2), smallest(weights.weights)
    above = f"the smallest is {found:.6g}, which must be above {bound:.6g}"
    return above if found <= bound + TOLERANCE else ""


_LARGE_ENOUGH = Need(
    "eigenvalues above (dual_lr - 2) / (dual_lr + 2)",
    "every eigenvalue of W; -1/3 for a dual_lr of 1",
    "use lazy=True, a smaller dual_lr, or mixing weights with larger self-weights, such as "
    "mixing=lambda graph: mixing.lazy(mixing.metropolis_hastings(graph))",
    weights=_smallest_eigenvalue,
    verb="have",
    of=("dual_lr",),
)


@public
@needing(static, symmetric, doubly_stochastic)
@needing(_LARGE_ENOUGH, when={"lazy": False})
def led(
    lr: Rate,
    *,
    local_steps: int = 5,
    dual_lr: float = 1.0,
    lazy: bool = True,
    batch_size: int = 128,
) -> Algorithm:
    """Return local exact diffusion (LED): corrected local steps, which the exchange corrects again.

    Per round, for every node i with model ``x_i``, K = `local_steps`, a correction ``c_i`` that
    starts at 0, and ``V = (I + W) / 2`` (``W`` itself if not `lazy`)::

        y_i = x_i;   y_i <- y_i - lr * (grad F(y_i; S_i) + c_i)        (K times)
        x_i = sum_j V[i, j] y_j
        c_i = c_i + dual_lr / (K * lr) * (y_i - x_i)

    The graph must be static and connected, and ``W`` symmetric and doubly stochastic; without
    `lazy`, its eigenvalues must be above ``(dual_lr - 2) / (dual_lr + 2)``, -1/3 for a `dual_lr` of
    1, since differences between nodes could grow otherwise. The corrections then sum to 0 after
    every round. With full batches and a small enough constant `lr`, all models converge to the
    optimum of the mean loss, however different the data of nodes are, where D-SGD stays farther
    from it the more local steps it takes: at the optimum, ``c_i`` is the negative gradient of the
    node's own loss. With one local step and a `dual_lr` of 1, the method is
    :func:`topofl.algorithms.d2`. A message holds one model, as in D-SGD, and half of what
    :func:`topofl.algorithms.local_gt` sends.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`, whose sum over the steps of a round replaces ``K * lr``.
        Corrections are gradients, so that models at the optimum stay there when the rate changes
        (it is constant in the paper). While that sum is 0, corrections do not change.
    local_steps
        Steps between two exchanges, the same at all nodes.
    dual_lr
        The share of a node's difference from its neighbors that the corrections of one round make
        up for, above 0 and at most 1. The paper's beta, by which it multiplies corrections in every
        local step, is ``dual_lr / local_steps``.
    lazy
        Whether exchanges use ``(I + W) / 2`` instead of ``W``.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run without `lazy`, if
        an eigenvalue of ``W`` is not above ``(dual_lr - 2) / (dual_lr + 2)``.

    References
    ----------
    Alghunaim, "Local exact-diffusion for decentralized optimization and learning" (2024), Algorithm
    1, as in the library decent-bench, whose dual variable is ``lr * c_i / beta``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 20, "seed": 0}
    >>> methods = (led(lr=0.1, local_steps=5), algorithms.dsgd(lr=0.1, local_steps=5))
    >>> exact, plain = (topofl.run(method, **how) for method in methods)
    >>> bool(exact.last("loss").mean() < plain.last("loss").mean())
    True
    >>> bool(exact["bytes"][-1] == plain["bytes"][-1])
    True
    """
    steps, count = descend(correction(), lr=lr), check_int("local_steps", local_steps, minimum=1)
    share = check_share("dual_lr", dual_lr)
    lazy = bool(check_switch("lazy", lazy, auto=False))

    def exchange(models: Models, state: State, round: Round) -> State:
        length = sum(float(steps.lr(round.t, k)) for k in range(count))
        strength = share / length if length > 0 else 0.0
        _mix_and_correct(models, round.state("local")["correction"], round, strength, lazy=lazy)
        return state

    settings = {"weights": "round", "dual_lr": share, "lazy": lazy}
    return chain(
        "led",
        local=train(steps, batch_size=batch_size, steps=count),
        exchange=Phase(no_state, exchange, settings, rowwise=True),
    )


def _mix_and_correct(
    models: Models,
    corrections: Tensor,
    round: Round,
    strength: float,
    *,
    lazy: bool,
    counted: bool = True,
) -> None:
    """Average models, and add what they lost by it, times a strength, to the corrections."""
    before = models.flat.clone()
    round.mix(round.weights, models.flat, counted=counted)
    if lazy:
        models.flat.add_(before).mul_(0.5)
    if strength > 0:
        corrections.add_(before.sub_(models.flat), alpha=strength)


@public
@needing(static, symmetric, doubly_stochastic)
def proxskip(
    lr: Rate, *, probability: float = 0.2, dual_lr: float = 1.0, batch_size: int = 128
) -> Algorithm:
    """Return decentralized ProxSkip: corrected local steps, and exchanges in random rounds.

    Per round, for every node i with model ``x_i``, a correction ``c_i`` that starts at 0, and ``V =
    (I + W) / 2``::

        y_i = x_i - lr * (grad F(x_i; S_i) + c_i)
        x_i = sum_j V[i, j] y_j,   c_i = c_i + dual_lr * probability / lr * (y_i - x_i)
            (with `probability`, in all nodes or in none; otherwise x_i = y_i)

    A round is one local step, and no messages are sent in most rounds. The graph must be static and
    connected, and ``W`` symmetric and doubly stochastic. The corrections then sum to 0 after every
    round. With full batches and a small enough constant `lr`, all models converge to the optimum of
    the mean loss, however different the data of nodes are and however rare exchanges are: at the
    optimum, ``c_i`` is the negative gradient of the node's own loss. With a `probability` of 1 and
    a `dual_lr` of 1, the method is :func:`topofl.algorithms.d2`. :func:`topofl.algorithms.led`
    exchanges after a fixed number of local steps instead.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
        Corrections are gradients, so that models at the optimum stay there when the rate changes
        (it is constant in the papers). While it is 0, corrections do not change.
    probability
        That of an exchange in a round, above 0 and at most 1; ``1 / probability`` is the mean
        number of local steps between two exchanges.
    dual_lr
        The share of a node's difference from its neighbors that the corrections make up for by the
        next exchange, on average; above 0 and at most 1. The beta of decentralized ProxSkip is
        ``dual_lr * probability``; 1 is ProxSkip's own choice.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Mishchenko, Malinovsky, Stich and Richtarik, "ProxSkip: yes! Local gradient steps provably lead
    to communication acceleration! Finally!" (2022); Guo, Alghunaim, Yuan, Condat and Cao,
    "Achieving linear speedup with ProxSkip in distributed stochastic optimization" (2023), as in
    the library decent-bench with chi = 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 100, "seed": 0}
    >>> methods = (proxskip(lr=0.1, probability=0.2), algorithms.dsgd(lr=0.1))
    >>> skipping, plain = (topofl.run(method, **how) for method in methods)
    >>> bool(skipping.last("loss").mean() < plain.last("loss").mean())
    True
    >>> bool(skipping["messages"].sum() < plain["messages"].sum() / 3)
    True
    """
    steps = descend(correction(), lr=lr)
    probability = check_share("probability", probability)
    share = check_share("dual_lr", dual_lr)

    def exchange_or_skip(models: Models, state: State, round: Round) -> State:
        drawn = round.rng("exchange").random() < probability
        if (
            drawn or models.flat.is_meta
        ):  # a dry run shows what is exchanged, and counts it if drawn
            rate = float(steps.lr(round.t, 0))
            strength = share * probability / rate if rate > 0 else 0.0
            corrections = round.state("local")["correction"]
            _mix_and_correct(models, corrections, round, strength, lazy=True, counted=drawn)
        return state

    settings = {"weights": "round", "probability": probability, "dual_lr": share}
    return chain(
        "proxskip",
        local=train(steps, batch_size=batch_size),
        exchange=Phase(no_state, exchange_or_skip, settings, rowwise=True),
    )


@public
@needing(static, symmetric, doubly_stochastic)
def dinno(
    lr: Rate, *, penalty: float = 0.5, local_steps: int = 5, batch_size: int = 128
) -> Algorithm:
    """Return DiNNO: decentralized ADMM whose minimizations are a few local steps (consensus ADMM).

    With ``w_ij = W[i, j]`` for neighbors, ``d_i = 1 - W[i, i]``, their sum, and dual variables
    ``p_i`` that start at 0, per round, for every node i with model ``x_i``::

        p_i = p_i + penalty * sum_j w_ij (x_i - x_j)         (x_i, x_j of the previous round)
        x_i = argmin over x of F_i(x) + <p_i, x> + penalty * sum_j w_ij ||x - (x_i + x_j) / 2||^2

    In place of the minimum, ``x_i`` is the result of K = `local_steps` steps from the previous one,
    along minibatch gradients of ``F_i`` and the exact gradients of the other terms. Models are
    sent, and never averaged. The graph must be static and connected, and ``W`` symmetric and doubly
    stochastic. The dual variables sum to 0 after every round. With full batches, and a small enough
    constant `lr`, all models converge to the optimum of the mean loss, however different the data
    of nodes are: at the optimum, ``p_i`` is the negative gradient of the node's own loss. A message
    holds one model, as in D-SGD.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`. It should be below ``1 / (L / 2 + penalty)``, where L is
        the Lipschitz constant of the gradients.
    penalty
        Weight of differences between neighbors, above 0. The papers have no ``w_ij``, and one
        penalty for all edges: on regular graphs, where all edges have the same weight, it is
        ``penalty * w_ij``.
    local_steps
        Steps per round, the same at all nodes.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    In the paper, nodes exchange models at the beginning of a round, here at its end. Both are the
    same if all nodes start from the same model. With many local steps on full batches, the method
    is decentralized ADMM with one variable per edge and direction; with one variable per edge, the
    same iterates have twice the penalty.

    References
    ----------
    Yu, Vincent and Schwager, "DiNNO: distributed neural network optimization for multi-robot
    collaborative learning" (2022), as the library decent-bench writes it; Shi, Ling, Yuan, Wu
    and Yin, "On the linear convergence of the ADMM in decentralized consensus optimization" (2014).

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 20, "seed": 0}
    >>> methods = (dinno(lr=0.1, local_steps=5), algorithms.dsgd(lr=0.1, local_steps=5))
    >>> exact, plain = (topofl.run(method, **how) for method in methods)
    >>> bool(exact.last("loss").mean() < plain.last("loss").mean())
    True
    """
    penalty = check_positive("penalty", penalty)
    training = Training(
        descend(_augmented(penalty), lr=lr),
        check_int("batch_size", batch_size, minimum=1),
        check_int("local_steps", local_steps, minimum=1),
    )

    def minimize(models: Models, state: State, round: Round) -> State:
        kept = torch.from_numpy(round.own_rows(round.weights.weights.diagonal()))
        state["degree"].copy_(1 - kept)
        round.train(models, training, state)
        return state

    def exchange(models: Models, state: State, round: Round) -> State:
        local = round.state("local")
        apart = models.flat.clone()
        round.mix(round.weights, apart)
        apart.sub_(models.flat).neg_()
        local["dual"].add_(apart, alpha=penalty)
        torch.add(local["dual"], apart, alpha=penalty, out=local["pull"])
        return state

    return chain(
        "dinno",
        local=Phase(training.init, minimize, training.settings, rowwise=True),
        exchange=Phase(no_state, exchange, {"weights": "round"}, rowwise=True),
    )


def _augmented(penalty: float) -> Term:
    """Return the term of the augmented Lagrangian, whose dual variables another phase updates.

    The gradient of its quadratic part, ``2 * penalty * sum_j w_ij (x - (x_i + x_j) / 2)``, is that
    at ``x = x_i``, which does not change in a round and is in ``pull`` with the dual variable, plus
    ``2 * penalty * d_i * (x - x_i)``.
    """

    def init(models: Models) -> State:
        degree = torch.zeros_like(models.flat[:, 0])
        return zeros("dual", "pull")(models) | {"degree": degree}

    def begin(models: Models) -> State:
        return {"start": models.flat.clone(), "from start": torch.empty_like(models.flat)}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        apart = torch.sub(theta, own["start"], out=own["from start"])
        g.addcmul_(apart, per_row(own["degree"], g), value=2 * penalty)
        return g.add_(own["pull"])

    return Term("augmented", update, init, begin, True, {"penalty": penalty})
