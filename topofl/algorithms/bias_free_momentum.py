"""Gradient tracking with momentum or variance reduction, without the bias of D-SGD."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from topofl._support.check import check_fraction, check_int, check_share
from topofl._support.public import public
from topofl.algorithms.contract.descent import Gradient, GradientPoint, Rate, descend
from topofl.algorithms.contract.local import Training, check_amount, steps_and_rates, train
from topofl.algorithms.contract.needs import doubly_stochastic, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.algorithms.contract.terms import Step, Term, per_row, tracking, zeros

__all__ = ["demuon", "gt_hsgd", "momentum_tracking"]


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


@public
@needing(doubly_stochastic)
def demuon(
    lr: Rate, *, momentum: float = 0.8, iterations: int = 5, batch_size: int = 128
) -> Algorithm:
    """Return DeMuon: steps of orthogonal matrices along tracked averages of gradients.

    Per round, for every node i with model ``x_i``, an average of its gradients ``m_i`` and what it
    tracks, ``y_i``, where ``m_i`` and ``y_i`` start at 0::

        m_i' = momentum * m_i + (1 - momentum) * grad F(x_i; S_i)
        y_i  = sum_j W[i, j] (y_j + m_j' - m_j),   m_i = m_i'
        x_i  = sum_j W[i, j] (x_j - lr * D(y_j))

    ``D`` acts on each parameter ``Y`` of a network by itself. Of a matrix, with the singular value
    decomposition ``U S V^T``, it approximates ``U V^T``: ``Y`` is divided by its Frobenius norm,
    and then `iterations` times ``X = 3.4445 X - 4.7750 (X X^T) X + 2.0315 (X X^T)^2 X``
    (Newton-Schulz): five of them bring singular values of at least a hundredth of that norm to
    between 0.68 and 1.14. A vector, such as a bias, is divided by its norm, and of a single number
    its sign remains; what is 0 stays 0. Dimensions of size 1 do not count, and the kernel of a
    convolution, of shape (a, b, ...), is taken as a matrix of a rows.

    The length of steps thus depends on `lr`, and not on the size of gradients: models come within
    about `lr` of an optimum, and closer only as `lr` falls over rounds, as in
    :func:`topofl.algorithms.cosine`. ``W`` must be doubly stochastic, so that the mean of ``y``
    over nodes always equals that of ``m``. Nodes send two messages per round, one after another:
    what they track, and then models.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    momentum
        In [0, 1): the share of the past in the average of gradients.
    iterations
        Number of iterations of Newton-Schulz, at least 1.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    The paper has the exact ``U V^T``; its authors' code has the iterations, in the format bfloat16,
    where this function has the precision of models. That code divides vectors by their norms and
    refuses kernels of convolutions; as matrices, they are as in the code of Muon,
    KellerJordan/Muon, ``muon.py``. The further rounds of gossip per step that the authors' code can
    take are not here.

    References
    ----------
    He, Ren, Mao and Larsson, "DeMuon: A decentralized Muon for matrix optimization over graphs"
    (2025), as in the authors' repository MozarTuring/DeMuon, ``exp3_decentralize_gpt.py``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.mlp(64, hidden=32), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 60, "seed": 0}
    >>> matrices = topofl.run(demuon(lr=algorithms.cosine(0.1, rounds=60)), **how)
    >>> plain = topofl.run(algorithms.dsgt(lr=algorithms.cosine(0.1, rounds=60)), **how)
    >>> bool(matrices.last("loss").mean() < plain.last("loss").mean())
    True
    """
    term = _tracked_average(check_fraction("momentum", momentum))
    iterations = check_int("iterations", iterations, minimum=1)
    steps = descend(term, lr=lr)
    training = Training(steps, check_amount("batch_size", batch_size, least=1))

    def init(models: Models) -> State:
        return training.init(models) | {"rate": torch.zeros_like(models.flat[:, :1])}

    def track(models: Models, state: State, round: Round) -> State:
        state["rate"].copy_(steps_and_rates(models, training, state, round))
        return state

    def mix_twice(models: Models, state: State, round: Round) -> State:
        tracked, rate = (round.state("local")[name] for name in ("tracked", "rate"))
        round.mix(round.weights, tracked)
        ways = _orthogonal(tracked, list(models.shapes.values()), iterations)
        models.flat.addcmul_(ways, rate, value=-1)
        round.mix(round.weights, models.flat)
        return state

    local = Phase(init, track, training.settings, rowwise=True)
    settings = {"weights": "round", "iterations": iterations}
    return chain("demuon", local=local, exchange=Phase(no_state, mix_twice, settings, rowwise=True))


def _tracked_average(momentum: float) -> Term:
    """Return the term of an average of gradients whose mean is tracked; it takes no steps."""

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        average, tracked = own["average"], own["tracked"]
        tracked.sub_(average)
        tracked.add_(average.mul_(momentum).add_(g, alpha=1 - momentum))
        return torch.zeros_like(g)

    init, settings = zeros("tracked", "average"), {"momentum": momentum}
    return Term("tracked_average", update, init, elementwise=True, settings=settings)


def _orthogonal(flat: Tensor, shapes: Sequence[torch.Size], iterations: int) -> Tensor:
    """Return the directions of steps, (n, d): those of each parameter, one after another."""
    parts = flat.split([shape.numel() for shape in shapes], dim=1)
    made = [_direction(part, shape, iterations) for part, shape in zip(parts, shapes, strict=True)]
    return torch.cat(made, dim=1)


def _direction(y: Tensor, shape: torch.Size, iterations: int) -> Tensor:
    """Return the directions of a parameter of a shape, whose numbers are the rows of `y`."""
    sizes = [size for size in shape if size != 1]
    if len(sizes) < 2:
        return y / y.norm(dim=1, keepdim=True).clamp_min(torch.finfo(y.dtype).tiny)
    matrices = y.reshape(len(y), sizes[0], prod(sizes[1:]))
    return _newton_schulz(matrices, iterations).reshape(y.shape)


def _newton_schulz(matrices: Tensor, iterations: int) -> Tensor:
    """Return matrices, (n, a, b), whose singular values are brought near 1."""
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    x = x.mT if is_tall else x  # so that products are of the smaller size
    for _ in range(iterations):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ x
    return x.mT if is_tall else x
