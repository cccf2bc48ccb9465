"""FedDecorr: local steps that keep the features of a minibatch from being correlated."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from topofl._support.check import check_nonnegative, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import (
    Apply,
    Epochs,
    Objective,
    Steps,
    Training,
    check_amount,
    check_work,
    epochs_or_steps,
    fine_tuning,
    sgd_descent,
)
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import (
    Algorithm,
    AnyParticipation,
    Participation,
    Phase,
    chain,
    participation_setting,
    sampled,
)
from topofl.algorithms.contract.round import Models, Part, Round, State, as_part, head
from topofl.algorithms.contract.terms import Step, Term
from topofl.algorithms.exchanges.average import average_phase
from topofl.tasks import Function

__all__ = ["feddecorr"]

EPS = 1e-8
"""Added to the variances of features, as in the authors' code."""


@public
@needing(equal_shares, when={"server": False})
def feddecorr(
    lr: Rate,
    *,
    strength: float = 0.1,
    server: bool = True,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
    fine_tune_epochs: float | None = None,
) -> Algorithm:
    """Return FedDecorr: FedAvg whose local steps also keep features from being correlated.

    With the m features of the b examples of a minibatch, the inputs of the head, and ``Z`` (b, m),
    these features minus their means and divided by their standard deviations, per round::

        C   =  Z^T Z,   R_i = mean over j != k of C_jk^2 / b
        y_i <- y_i - lr * grad (F_i + strength * R_i)  (`epochs` passes from the server's w, i in A)
        w   =  sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    with a random set A of participating nodes. All nodes then hold ``w``, so the server's model is
    evaluated; ``train_loss`` includes the penalty, which is 0 for a single example.

    Parameters
    ----------
    lr, participation, batch_size, epochs, steps, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    strength
        Weight of the penalty, at least 0; 0.1 in the code. With 0 the method is FedAvg.
    server
        Whether a server averages the models of participating nodes. False: each node averages with
        its neighbors, by the mixing matrix of the round.
    head
        The layer whose inputs are the features.
    fine_tune_epochs
        As in :func:`topofl.algorithms.fedavg`; fine-tuning has no penalty.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; when a run starts, if `head` is not one
        layer, or has all parameters of the model, such as a logistic regression, whose features
        are the inputs.

    Notes
    -----
    ``C`` is ``b - 1`` times the matrix of correlations, so that the penalty of the code, which this
    is, grows with the size of minibatches. It is steep where a feature hardly varies in a
    minibatch; `clip` bounds such steps. Over directed graphs, static or periodic, the default
    weights may give nodes unequal shares in the average; a run then warns that it weights their
    losses by these shares.

    References
    ----------
    Shi, Liang, Zhang, Tan and Bai, "Towards understanding and mitigating dimensional collapse in
    heterogeneous federated learning" (2023), in the authors' code bytedance/FedDecorr, loss.py.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data
    >>> from torch import nn
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> history = topofl.run(feddecorr(lr=0.1, epochs=1, head="3"), model=net, clients=clients,
    ...                      rounds=3, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    participants, strength = sampled(participation), check_nonnegative("strength", strength)
    check_switch("server", server, auto=False)
    how = (momentum, lr_decay, weight_decay, clip)
    size = check_amount("batch_size", batch_size, least=1)
    layer = as_part("head", head)
    decorrelation = Objective(
        "decorrelation",
        partial(_losses, strength, batch_size),
        layer,
        partial(_no_steps, layer),
        {"strength": strength},
    )
    training = Training(
        sgd_descent(lr, *how, reset_momentum=True, terms=[Term("counted", _count)]),
        size,
        *check_work(**epochs_or_steps(epochs, steps)),
        objective=decorrelation,
    )
    phases: dict[str, Any] = {"local": _counting(training, participants)}
    tuned = fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    phases |= average_phase(server, participants)
    return chain("feddecorr", **phases, fine_tune=tuned)


def _losses(
    strength: float,
    batch_size: int,
    apply: Apply,
    inputs: Tensor,
    targets: Tensor,
    own: State,
    loss: Function,
) -> Tensor:
    """Return the losses of examples, of which the last may only be there to fill the minibatch."""
    outputs, features = apply(inputs)
    full = ((own["examples"] - 1) // batch_size).clamp(min=0)  # minibatches before the last
    is_last = own["step"] % (full + 1) == full
    count = torch.where(is_last, own["examples"] - full * batch_size, batch_size)
    counted = torch.arange(len(inputs), device=features.device) < count
    return loss(outputs, targets) + strength * _correlation(features, counted.to(features))


def _correlation(features: Tensor, counted: Tensor) -> Tensor:
    """Return the penalty of features (b, m), over the examples with 1 in `counted` (b,)."""
    number, width = counted.sum(), features.shape[1]
    means = (counted @ features) / number
    apart = (features - means) * counted[:, None]
    variances = apart.square().sum(0) / (number - 1).clamp(min=1)
    scaled = apart / (variances + EPS).sqrt()
    others = 1 - torch.eye(width, dtype=features.dtype, device=features.device)
    products = (scaled.T @ scaled) * others
    return products.square().sum() / (max(width * (width - 1), 1) * number)


def _no_steps(head: Part, models: Models) -> State:
    """Return room for the next step of each node, and for its number of examples, (n,) each.

    Raises if features are the inputs of the model, whose correlations no step can change.
    """
    models.columns(head.rest)
    none = partial(models.flat.new_zeros, len(models.flat), dtype=torch.int64)
    return {"step": none(), "examples": none()}


def _count(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
    own["step"].add_(1)
    return g


def _counting(training: Training, participants: Participation) -> Phase:
    """Return the phase of local steps that know which minibatch of a pass theirs is.

    Nodes with fewer examples in a minibatch than others may be trained together with these.
    """

    def apply(models: Models, state: State, round: Round) -> State:
        first = round.t * training.counts(round.sizes)
        for name, numbers in (("step", first), ("examples", round.sizes)):
            state[name].copy_(torch.from_numpy(round.own_rows(numbers)))
        round.train(models, training, state, participants=participants(round))
        return state

    settings = training.settings | participation_setting(participants)
    return Phase(training.init, apply, settings, rowwise=True)
