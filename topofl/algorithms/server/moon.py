"""MOON: local steps that keep the features of examples close to those of the averaged model."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from topofl._support.check import check_nonnegative, check_positive, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import (
    Apply,
    Epochs,
    Objective,
    Steps,
    fine_tuning,
    sgd_of_rounds,
)
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import (
    Algorithm,
    AnyParticipation,
    Participation,
    Phase,
    chain,
    sampled,
)
from topofl.algorithms.contract.round import Models, Part, Round, State, as_part, head
from topofl.algorithms.exchanges.average import average_phase
from topofl.tasks import Function

__all__ = ["moon"]


@public
@needing(equal_shares, when={"server": False})
def moon(
    lr: Rate,
    *,
    strength: float = 1.0,
    temperature: float = 0.5,
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
    """Return MOON: FedAvg whose local steps also minimize a contrast between features.

    With the features ``f(x)``, which are the inputs of the head, of a node's model, of the averaged
    model ``w`` from which it starts, and of its own model ``b_i`` after its previous local steps,
    per round::

        s_w = cos(f_i(x), f_w(x)) / temperature,   s_b = cos(f_i(x), f_{b_i}(x)) / temperature
        y_i <- y_i - lr * grad (F_i - strength * mean_x log(exp(s_w) / (exp(s_w) + exp(s_b))))
            (`epochs` passes from y_i = w, i in A)
        b_i =  y_i
        w   =  sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    with a random set A of participating nodes. All nodes then hold ``w``, so the server's model is
    evaluated; ``train_loss`` includes the contrast. At first ``b_i`` is the initial model: if all
    nodes start from one, the contrast has no gradient in the first round of a node.

    Parameters
    ----------
    lr, participation, batch_size, epochs, steps, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    strength
        Weight of the contrast, the paper's mu, at least 0; with 0 the method is FedAvg. The paper
        chooses it from 0.1, 1, 5 and 10.
    temperature
        Above 0; 0.5 in the paper.
    server
        Whether a server averages the models of participating nodes. False: each node averages with
        its neighbors, by the mixing matrix of the round, and ``w`` is its own average.
    head
        The layer whose inputs are the features. The paper's networks have a projection of two
        layers before it.
    fine_tune_epochs
        As in :func:`topofl.algorithms.fedavg`; fine-tuning has no contrast.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; when a run starts, if `head` is not one
        layer, or has all parameters of the model, such as a logistic regression, whose features
        are the inputs.

    Notes
    -----
    The state holds two models per node. A step takes a pass through either of them in addition to
    that through the model which is trained; they use the running statistics of the latter, if it
    has any. Over directed graphs, static or periodic, the default weights may give nodes unequal
    shares in the average; a run then warns that it weights their losses by these shares.

    References
    ----------
    Li, He and Song, "Model-contrastive federated learning" (2021), Algorithm 1, in the authors'
    code QinbinLi/MOON.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data
    >>> from torch import nn
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> history = topofl.run(moon(lr=0.1, epochs=1, head="3"), model=net, clients=clients,
    ...                      rounds=3, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    participants = sampled(participation)
    strength = check_nonnegative("strength", strength)
    temperature = check_positive("temperature", temperature)
    check_switch("server", server, auto=False)
    layer = as_part("head", head)
    contrast = Objective(
        "contrast",
        partial(_losses, strength, temperature),
        layer,
        partial(_compared, layer),
        {"strength": strength, "temperature": temperature},
    )
    how = (momentum, lr_decay, weight_decay, clip)
    options: dict[str, Any] = {"participants": participants, "objective": contrast}
    local = sgd_of_rounds(lr, batch_size, epochs, *how, steps=steps, **options)
    phases: dict[str, Any] = {"local": _remembering(local, participants)}
    phases |= average_phase(server, participants)
    tuned = fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    return chain("moon", **phases, fine_tune=tuned)


def _compared(head: Part, models: Models) -> State:
    """Return the two models with which features are compared; raise if features are the inputs."""
    models.columns(head.rest)  # without parameters before it, the method would be FedAvg
    return {"averaged": models.flat.clone(), "before": models.flat.clone()}


def _losses(
    strength: float,
    temperature: float,
    apply: Apply,
    inputs: Tensor,
    targets: Tensor,
    own: State,
    loss: Function,
) -> Tensor:
    outputs, features = apply(inputs)
    others = [apply(inputs, own[name])[1] for name in ("averaged", "before")]
    alike = torch.stack([functional.cosine_similarity(features, x, dim=1) for x in others], 1)
    contrast = -torch.log_softmax(alike / temperature, 1)[:, 0]
    return loss(outputs, targets) + strength * contrast


def _remembering(local: Phase, participants: Participation) -> Phase:
    """Return the local steps, which store the models before them and those of participants after.

    The first are ``averaged`` in their state, and the second ``before`` in the next round.
    """

    def apply(models: Models, state: State, round: Round) -> State:
        state["averaged"].copy_(models.flat)
        local.apply(models, state, round)
        trained = torch.from_numpy(round.own_rows(participants(round)))
        trained = trained[:, None].to(models.flat.device)
        state["before"].copy_(torch.where(trained, models.flat, state["before"]))
        return state

    return local._replace(apply=apply)
