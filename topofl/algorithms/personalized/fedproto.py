"""FedProto: nodes exchange the mean features of each class, and keep their models."""

from functools import partial

import numpy as np
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
    epochs_or_steps,
    sgd_descent,
    train,
)
from topofl.algorithms.contract.phase import (
    Algorithm,
    AnyParticipation,
    Participation,
    Phase,
    chain,
    sampled,
)
from topofl.algorithms.contract.round import Models, Part, Round, State, as_part, head, no_state
from topofl.mixing import average_of
from topofl.tasks import Function

__all__ = ["fedproto"]


@public
def fedproto(
    lr: Rate,
    *,
    strength: float = 1.0,
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
) -> Algorithm:
    """Return FedProto: nodes exchange prototypes, the mean features of each class.

    Models are not exchanged, and so may have different architectures, as those of
    :func:`topofl.models.of_kinds`; only their heads must take the same number m of features. With
    the features ``f(x)``, which are the inputs of the head, and the examples ``D_ic`` of class c at
    node i, per round::

        theta_i <- theta_i - lr * grad (F_i + strength * mean_(x, y) |f_i(x) - p_y|^2 / m)
            (`epochs` passes; classes without a prototype are left out)
        p_ic    =  mean of f_i(x) over x in D_ic
        p_c     =  mean of p_ic over the participating nodes with examples of c

    Parameters
    ----------
    lr, participation, batch_size, epochs, steps, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    strength
        Weight of the distance to the prototypes, at least 0.
    server
        Whether a server averages prototypes, of the participating nodes. False: all nodes average
        those of their neighbors with examples of a class, by the mixing matrix of the round.
    head
        The ``nn.Linear`` whose inputs (b, m) are the features: the last layer. Networks of several
        kinds need one of the same name and shapes, (classes, m).

    Raises
    ------
    ValueError
        If `strength`, `participation` or a setting of the local steps is out of its range. When a
        run starts: if `head` is no ``nn.Linear``, or not the same layer in all networks; if the
        task is not classification.

    Notes
    -----
    A message holds the prototypes of all classes and which of them its sender has. The paper weighs
    the prototypes of a node by its number of examples and divides by the number of nodes once more
    (equation 6); this is the plain mean of its authors' code, which also measures the distance at
    each example instead of at the class means (equation 7).

    References
    ----------
    Tan et al., "FedProto: Federated prototype learning across heterogeneous clients" (2022),
    Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> from torch import nn
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> def network(width):
    ...     net = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU())
    ...     net.add_module("features", nn.Linear(width, 8))
    ...     net.add_module("head", nn.Linear(8, 10))
    ...     return net
    >>> model = models.of_kinds([network(16), network(32)], kinds=[0, 1, 0, 1])
    >>> history = topofl.run(fedproto(lr=0.1, epochs=1), model=model, clients=clients, rounds=3,
    ...                      seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    participants, layer = sampled(participation), as_part("head", head)
    strength = check_nonnegative("strength", strength)
    near_prototypes = Objective(
        "near prototypes",
        partial(_losses, strength),
        layer,
        partial(_no_prototypes, layer),
        {"strength": strength},
    )
    local = train(
        sgd_descent(lr, momentum, lr_decay, weight_decay, clip, reset_momentum=True),
        batch_size=batch_size,
        participants=participants,
        objective=near_prototypes,
        **epochs_or_steps(epochs, steps),
    )
    check_switch("server", server, auto=False)
    exchange = _averaged(layer, participants, server)
    return chain("fedproto", local=local, exchange=exchange)


def _losses(
    strength: float, apply: Apply, inputs: Tensor, targets: Tensor, own: State, loss: Function
) -> Tensor:
    outputs, features = apply(inputs)
    members = _members(targets, len(own["known"]), features)
    distances = (features - members @ own["prototypes"]).square().mean(1)
    return loss(outputs, targets) + strength * (members @ own["known"]) * distances


def _no_prototypes(layer: Part, models: Models) -> State:
    """Return prototypes (n, classes, m), of which none is known, for the layer's weight."""
    places = layer.places(list(models.shapes))
    shape = next(shape for k, shape in enumerate(models.shapes.values()) if k in places)
    if len(shape) != 2:
        raise ValueError(
            f"`head` must be an nn.Linear for fedproto, got a weight of shape {tuple(shape)}; name "
            "the last layer"
        )
    classes, width = shape
    flat = models.flat
    return {
        "prototypes": flat.new_zeros(len(flat), classes, width),
        "known": flat.new_zeros(len(flat), classes),
    }


def _averaged(layer: Part, participants: Participation, server: bool) -> Phase:
    """Return the phase that averages prototypes over the nodes that have examples of a class."""

    def apply(models: Models, state: State, round: Round) -> State:
        own = round.state("local")
        classes = own["known"].shape[1]
        sums = round.feature_sums(models, layer, partial(_class_sums, classes))
        counts = sums[:, :, -1:]
        present = (counts > 0).to(sums)
        sent = torch.cat([sums[:, :, :-1] / counts.clamp(min=1), present], 2).flatten(1)
        equal = np.ones(round.n)
        weights = average_of(equal, participants(round)) if server else round.weights
        round.mix(weights, sent, server=server)
        averaged = sent.view(sums.shape)
        shares = averaged[:, :, -1:]
        own["known"].copy_((shares > 0).squeeze(2))
        own["prototypes"].copy_(averaged[:, :, :-1] / torch.where(shares > 0, shares, 1))
        return state

    return Phase(no_state, apply, {"weights": "equal" if server else "round"}, rowwise=True)


def _class_sums(classes: int, features: Tensor, targets: Tensor) -> Tensor:
    """Return the sums of features of each class, and the counts of examples, (classes, m + 1)."""
    if targets.dim() != 1 or targets.is_floating_point():
        raise ValueError(
            f"`task` must be classification for fedproto, got targets of {targets.dtype} of shape "
            f"{tuple(targets.shape)}; choose another algorithm"
        )
    ones = features.new_ones(len(features), 1)
    return _members(targets, classes, features).T @ torch.cat([features, ones], 1)


def _members(targets: Tensor, classes: int, like: Tensor) -> Tensor:
    """Return which examples are of each class, (b, classes), as numbers 0 and 1."""
    every = torch.arange(classes, dtype=targets.dtype, device=targets.device)
    return (targets[:, None] == every).to(like)
