"""FedAvg, and servers or local steps that correct it: FedProx, FedNova, SCAFFOLD and FedDyn."""

from collections.abc import Sequence

import numpy as np
import torch

from topofl._support.check import check_int, check_positive
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import (
    Epochs,
    Steps,
    Training,
    check_amount,
    check_work,
    epochs_or_steps,
    fine_tuning,
    sgd_descent,
    steps_and_rates,
    train,
)
from topofl.algorithms.contract.phase import (
    Algorithm,
    AnyParticipation,
    Participation,
    Phase,
    chain,
    participation_setting,
    sampled,
)
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.algorithms.contract.terms import correction, proximal
from topofl.algorithms.exchanges.average import averaged_by_server, server_average, server_weights
from topofl.mixing import average_of

__all__ = ["fedavg", "feddyn", "fednova", "fedprox", "scaffold"]


@public
def fedavg(
    lr: Rate,
    *,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    fine_tune_epochs: float | None = None,
) -> Algorithm:
    """Return FedAvg: a server averages the locally trained models of participating nodes.

    Per round, with a random set A of participating nodes::

        y_i = x - lr * grad F_i(...)  (`epochs` passes from the server's model x, i in A)
        x   = sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    All nodes then hold ``x``, so the server's model is evaluated. No topology is needed; one that
    is given is ignored.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round.
    participation
        Number (an integer) or fraction of the nodes that participate in each round, or a trace, as
        in :func:`topofl.algorithms.sampled`: 1 is one node, and 1.0 are all.
    epochs, steps
        Passes over a node's data, or minibatch steps, per round: one number or one per node. Give
        one of the two; by default, nodes train for 5 epochs. Half an epoch, 0.5, takes half of a
        node's minibatches, rounded up, and the next round continues with the others.
    fine_tune_epochs
        Passes over a node's own data that turn the server's model into a personal one for a second
        evaluation, reported as ``accuracy_fine_tuned``. The step size is `lr` in all rounds. None:
        only the server's model is evaluated. DPFL fine-tunes the model that is best on a node's
        validation set: ``history.best_on_validation("accuracy_fine_tuned", "accuracy_own_val")`` in
        runs that fine-tune at every evaluation.

    References
    ----------
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data"
    (2017), Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0, test_fraction=0.2)
    >>> history = topofl.run(fedavg(lr=0.1, epochs=1, fine_tune_epochs=1),
    ...                      model=models.logistic_regression(64), clients=clients,
    ...                      rounds=2, seed=0, evaluation="own_test")
    >>> bool(history.last("accuracy_fine_tuned").mean() > history.last("accuracy").mean())
    True
    """
    how = (momentum, lr_decay, weight_decay, clip)
    tuned = fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    return averaged_by_server(
        "fedavg", participation, lr, batch_size, epochs, *how, steps=steps, tuned=tuned
    )


@public
def fedprox(
    lr: Rate,
    *,
    strength: float | Sequence[float] = 0.1,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    fine_tune_epochs: float | None = None,
) -> Algorithm:
    """Return FedProx: FedAvg with a proximal term that pulls local models to the server's model.

    Per round, with a random set A of participating nodes::

        y_i <- y_i - lr * (grad F_i(y_i) + mu_i * (y_i - x))  (`epochs` passes from y_i = x, i in A)
        x   =  sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    which descends on ``F_i(y) + mu_i / 2 * |y - x|^2``. All nodes then hold ``x``, so the server's
    model is evaluated.

    Parameters
    ----------
    lr, participation, batch_size, epochs, steps, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    strength
        The paper's mu, at least 0: one number, or one per node, for example to hold nodes with
        unusual data closer to the server's model. 0 gives FedAvg.
    fine_tune_epochs
        As in :func:`topofl.algorithms.fedavg`; fine-tuning has no proximal term.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run, if the length of
        `strength` is not the number of nodes.

    References
    ----------
    Li et al., "Federated optimization in heterogeneous networks" (2020), Algorithm 2, with a few
    passes of SGD as the local solver; a baseline of Kharrat, Canini and Horváth (2025), DPFL, with
    a strength of 0.1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> held = fedprox(lr=0.1, strength=[0.0, 0.1, 0.1, 1.0], epochs=1)
    >>> history = topofl.run(held, model=models.logistic_regression(64), clients=clients,
    ...                      rounds=5, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    how = (momentum, lr_decay, weight_decay, clip)
    tuned = fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    terms = [proximal(strength)]
    return averaged_by_server(
        "fedprox",
        participation,
        lr,
        batch_size,
        epochs,
        *how,
        steps=steps,
        terms=terms,
        tuned=tuned,
    )


@public
def fednova(
    lr: Rate,
    *,
    participation: AnyParticipation = 1.0,
    batch_size: int | Sequence[int] = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.0,
    lr_decay: float = 1.0,
) -> Algorithm:
    """Return FedNova: FedAvg with updates normalized by the number of local steps.

    Per round, with a random set A of nodes that take ``K_i`` local steps and have weights ``p_i =
    m_i / sum_{k in A} m_k``::

        v_i = momentum * v_i + grad F_i(y_i),   y_i = y_i - lr * v_i
            (K_i times from y_i = x, v_i = 0)
        a_i = (K_i - momentum * (1 - momentum^K_i) / (1 - momentum)) / (1 - momentum)
            (K_i without momentum)
        x   = x + (sum_{i in A} p_i a_i) * sum_{i in A} p_i (y_i - x) / a_i

    ``a_i`` is the number of gradients, with momentum, by which ``y_i`` has moved. FedAvg, which
    adds ``sum_i p_i (y_i - x)``, converges to the optimum of the losses weighted by ``p_i a_i``
    instead of ``p_i``. If all ``a_i`` are equal, the two methods are the same. Nodes that are
    frozen because they diverged get no weight. All nodes then hold ``x``, so the server's model is
    evaluated. All nodes must start from one model. A message to the server holds a model and
    ``a_i``; a message from it holds a model. No topology is needed; one that is given
    is ignored.

    Parameters
    ----------
    lr, lr_decay
        As in :func:`topofl.algorithms.sgd`.
    participation
        Number (an integer) or fraction of the nodes that participate in each round, or a trace, as
        in :func:`topofl.algorithms.sampled`: 1 is one node, and 1.0 are all.
    batch_size
        As in :func:`topofl.algorithms.train`: one number or one per node, at least 1.
    epochs, steps
        As in :func:`topofl.algorithms.fedavg`, and above 0 at every node.
    momentum
        Momentum of the local steps, in [0, 1); it starts from zero in every round.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; if both `epochs` and `steps` are given;
        if nodes start from different models.

    References
    ----------
    Wang, Liu, Liang, Joshi and Poor, "Tackling the objective inconsistency problem in heterogeneous
    federated optimization" (2020), with ``tau_eff = sum_i p_i ||a_i||_1``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> unlike = fednova(lr=0.1, batch_size=32, steps=[1, 2, 3, 4, 5, 5, 4, 3, 2, 1])
    >>> history = topofl.run(unlike, model=models.logistic_regression(64), clients=clients,
    ...                      rounds=20, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.8)
    True
    """
    participants = sampled(participation)
    descent = sgd_descent(lr, momentum, lr_decay, reset_momentum=True)
    size = check_amount("batch_size", batch_size, least=1)
    training = Training(descent, size, *check_work(**epochs_or_steps(epochs, steps), least=1))
    return chain(
        "fednova", local=_counting(training, momentum, participants), server=_server(participants)
    )


def _counting(training: Training, momentum: float, participants: Participation) -> Phase:
    """Return the phase of local steps, which stores ``a_i`` for each node as ``moved``."""

    def init(models: Models) -> State:
        return training.init(models) | {"moved": torch.zeros_like(models.flat[:, :1])}

    def apply(models: Models, state: State, round: Round) -> State:
        steps = round.train(models, training, state, participants=participants(round))
        moved = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
        state["moved"].copy_(torch.from_numpy(round.own_rows(moved))[:, None])
        return state

    return Phase(init, apply, training.settings | participation_setting(participants), rowwise=True)


def _server(participants: Participation) -> Phase:
    """Return the server phase, which averages normalized model changes and rescales their mean."""
    matrix = server_weights()

    def apply(models: Models, state: State, round: Round) -> State:
        flat = models.flat
        x = state["server"]
        moved = round.state("local")["moved"]
        weights = matrix(round.sizes.astype(float), participants(round))
        # a frozen node counts no gradients, though its model may have moved before it froze
        flat.sub_(x).div_(moved.clamp(min=1)).masked_fill_(moved == 0, 0)
        counted = torch.cat([moved, (moved > 0).to(moved.dtype)], 1)
        for values in (flat, counted):
            round.mix(weights, values, server=True, counted=False)
        round.send(weights, (2 * flat.shape[1] + 1) * flat.element_size() // 2, server=True)
        # means are over the nodes that took steps, whose total weight is `share`
        effective, share = counted[:1].split(1, 1)
        far = torch.where(share > 0, effective / share**2, 0)
        flat.copy_(x.addcmul_(flat[:1], far).expand_as(flat))
        return state

    settings = {"weights": "data"} | participation_setting(participants)
    return Phase(lambda models: {"server": models.start}, apply, settings, rowwise=True)


@public
def scaffold(
    lr: Rate,
    *,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
) -> Algorithm:
    """Return SCAFFOLD: FedAvg with control variates that correct the local steps.

    Per round, with a random set A of participating nodes, the server's model x and control c; all
    controls start at 0::

        y_i <- y_i - lr * (grad F_i(y_i) + c - c_i)
            (`epochs` passes of K_i steps in all from y_i = x, i in A)
        c_i <- c_i - c + (x - y_i) / (K_i * lr)  (the mean of the gradients of these steps)
        x   =  (1 / |A|) sum_{i in A} y_i
        c   =  (1 / n) sum_i c_i                              (over all nodes)

    All nodes then hold ``x``, so the server's model is evaluated. Each message, in either
    direction, holds a model and a control: two numbers per parameter. No topology is needed; one
    that is given is ignored.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`, whose sum over the steps replaces ``K_i * lr``; if that
        sum is 0, ``c_i`` stays unchanged. The server's step size is 1.
    participation
        Number (an integer) or fraction of the nodes that participate in each round, or a trace, as
        in :func:`topofl.algorithms.sampled`: 1 is one node, and 1.0 are all.
    batch_size, epochs, steps
        As in :func:`topofl.algorithms.fedavg`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning" (2020),
    Algorithm 1 with option II and a global step size of 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> history = topofl.run(scaffold(lr=0.1, batch_size=32), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=10, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.9)
    True
    """
    participants = sampled(participation)
    training = Training(
        descend(correction(), lr=lr),
        check_int("batch_size", batch_size, minimum=1),
        *check_work(**epochs_or_steps(epochs, steps)),
    )
    matrix = server_weights()

    def init(models: Models) -> State:
        return training.init(models) | {"control": torch.zeros_like(models.flat)}

    def correct(models: Models, state: State, round: Round) -> State:
        start = models.flat.clone()
        total = steps_and_rates(models, training, state, round, participants=participants(round))
        controls = start.sub_(models.flat).div_(total).sub_(state["correction"])
        state["control"].copy_(torch.where(total > 0, controls, state["control"]))
        return state

    def average(models: Models, state: State, round: Round) -> State:
        local = round.state("local")
        weights = matrix(np.ones(round.n), participants(round))
        round.mix(weights, models.flat, server=True, scalars=models.flat.shape[1])
        local["correction"].copy_(local["control"])
        round.mix(average_of(np.ones(round.n)), local["correction"], server=True, counted=False)
        local["correction"].sub_(local["control"])
        return state

    who = participation_setting(participants)
    return chain(
        "scaffold",
        local=Phase(init, correct, training.settings | who, rowwise=True),
        server=Phase(no_state, average, {"weights": "equal"} | who, rowwise=True),
    )


@public
def feddyn(
    lr: Rate, *, alpha: float = 0.1, participation: AnyParticipation = 1.0, batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
) -> Algorithm:  # fmt: skip
    """Return FedDyn: federated learning with dynamic regularization.

    Per round, with a random set A of the n nodes; all ``h_i``, and the server's ``h``, start at 0::

        y_i <- y_i - lr * (grad F_i(y_i) - h_i + alpha * (y_i - x))
            (`epochs` passes from y_i = x, i in A)
        h_i <- h_i - alpha * (y_i - x)  (i in A; grad F_i(y_i) if y_i is optimal)
        h   =  h - alpha / n * sum_{i in A} (y_i - x)
        x   =  (1 / |A|) sum_{i in A} y_i - h / alpha

    The local steps descend on ``F_i(y) - <h_i, y> + alpha / 2 * |y - x|^2``. ``h`` is always the
    mean of the ``h_i`` over all nodes. At a fixed point all ``y_i`` equal ``x``, so that ``h = 0``
    and x is a stationary point of the unweighted mean of the losses, however few local steps are
    taken. All nodes then hold ``x``, so the server's model is evaluated. All nodes must start from
    one model. A message, up or down, is a model. No topology is needed; one that is given
    is ignored.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`.
    alpha
        Strength of the proximal term that pulls to the server's model; above 0.
    participation
        Number (an integer) or fraction of the nodes that participate in each round, or a trace, as
        in :func:`topofl.algorithms.sampled`: 1 is one node, and 1.0 are all.
    batch_size, epochs, steps
        As in :func:`topofl.algorithms.fedavg`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; if nodes start from different models.

    Notes
    -----
    The authors' published code divides `alpha` by a node's number of examples over the mean number,
    and clips gradients to a norm of 10; the paper's algorithm has neither.

    References
    ----------
    Acar et al., "Federated learning based on dynamic regularization" (2021), Algorithm 1, with its
    local minimization approximated by a few passes of SGD.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> history = topofl.run(feddyn(lr=0.1, batch_size=32), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=10, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.9)
    True
    """
    participants = sampled(participation)
    alpha = check_positive("alpha", alpha)
    descent = descend(correction(), proximal(alpha), lr=lr)
    work = epochs_or_steps(epochs, steps)
    local = train(descent, batch_size=batch_size, participants=participants, **work)
    average = server_average(participants=participants, weighted=False)

    def init(models: Models) -> State:
        start = models.start
        return {"server": start, "h": start.new_zeros(start.shape)}

    def apply(models: Models, state: State, round: Round) -> State:
        x, h = state["server"], state["h"]
        # models of nodes that do not participate are still x
        round.state("local")["correction"].add_(models.flat - x, alpha=alpha)
        average.apply(models, {}, round)
        h.sub_(models.flat[:1] - x, alpha=alpha * float(participants(round).mean()))
        models.flat.copy_(x.copy_(models.flat[:1] - h / alpha).expand_as(models.flat))
        return state

    server = Phase(init, apply, {"alpha": alpha, **average.settings}, rowwise=True)
    return chain("feddyn", local=local, server=server)
