"""FedALA: nodes learn how much of the average to take, for each parameter of their heads."""

from typing import Any

import torch
from torch import Tensor

from topofl._support.check import check_positive, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Gradient, GradientPoint, Rate, descend
from topofl.algorithms.contract.local import (
    Epochs,
    Steps,
    Training,
    check_amount,
    check_epochs,
    sgd_of_rounds,
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
from topofl.algorithms.exchanges.average import server_weights

__all__ = ["fedala"]

FIRST_PASSES = 11
"""How often the authors' code passes over its sample in the first round, at the least."""


@public
@needing(equal_shares, when={"server": False})
def fedala(
    lr: Rate,
    *,
    weight_lr: float = 1.0,
    weight_epochs: float = 0.8,
    first_epochs: float | None = None,
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
    """Return FedALA: nodes mix the average into their own models by weights that they learn.

    Per round, with a random set A of participating nodes, each with a body ``u_i``, a head ``v_i``
    and weights ``W_i`` in [0, 1], one per parameter of the head, all 1 at first::

        (u_i, v_i) <- (u_i, v_i) - lr * grad F_i(u_i, v_i)      (`epochs` passes, i in A)
        (u, v)     =  sum_{i in A} (m_i / sum_{k in A} m_k) (u_i, v_i)
        W_i        <- W_i - weight_lr * grad_v F_i(u, v_i + (v - v_i) * W_i) * (v - v_i),
                      cut to [0, 1]                             (`weight_epochs` passes, i in A)
        (u_i, v_i) =  (u, v_i + (v - v_i) * W_i)                (i in A; products per parameter)

    The results are evaluated, and what is trained in the next round.

    Parameters
    ----------
    lr, participation, batch_size, epochs, steps, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`. Weights learn by plain steps, on minibatches of the
        same size.
    weight_lr
        Step size of the weights, above 0, the same in all rounds; the paper's eta.
    weight_epochs
        Passes over a node's data in which it learns its weights in a round. The paper takes one
        pass over a random sample, here 0.8 of the data.
    first_epochs
        The same in the first round; None: 11 times as many. The code passes over the sample at
        least so often, until the losses of the last ten passes deviate by less than 0.1.
    server
        Whether a server averages the models of participating nodes. False: each node averages with
        its neighbors, by the mixing matrix of the round, and learns its weights in every round.
    head
        The part of the model that is mixed by weights, or the name of a layer; the rest is that of
        the average. ``topofl.algorithms.everything`` mixes all.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    In the code, all nodes receive the average, and learn their weights, in every round; here, nodes
    that do not participate receive nothing and keep their models. Over directed graphs, static or
    periodic, the default weights of the graph may give nodes unequal shares in the average; a run
    then warns that it weights their losses by these shares.

    References
    ----------
    Zhang et al., "FedALA: Adaptive local aggregation for personalized federated learning" (2023),
    Algorithm 1, in the authors' code TsingZ0/FedALA, system/utils/ALA.py.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data
    >>> from torch import nn
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> history = topofl.run(fedala(lr=0.1, epochs=1, head="3"), model=net, clients=clients,
    ...                      rounds=2, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    participants, mixed = sampled(participation), as_part("head", head)
    check_switch("server", server, auto=False)
    weight_lr = check_positive("weight_lr", weight_lr)
    passes = check_positive("weight_epochs", weight_epochs)
    first = FIRST_PASSES * passes if first_epochs is None else first_epochs
    learning = tuple(
        Training(
            descend(_CUT, lr=weight_lr),
            check_amount("batch_size", batch_size, least=1),
            epochs=check_epochs(name, check_positive(name, value)),
            part=mixed,
            at=_MIXED,
        )
        for name, value in (("first_epochs", first), ("weight_epochs", passes))
    )
    how: dict[str, Any] = {"weight_lr": weight_lr, "head": str(mixed), "batch_size": batch_size}
    how |= {"weight_epochs": passes, "first_epochs": first}
    local = (lr, batch_size, epochs, momentum, lr_decay, weight_decay, clip)
    phases: dict[str, Any] = {
        "local": sgd_of_rounds(*local, steps=steps, participants=participants),
        "server" if server else "exchange": _adapted(
            mixed, learning, participants if server else None, how
        ),
    }
    return chain("fedala", **phases)


def _cut(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
    """Return the direction after whose step weights are in [0, 1]."""
    return theta.sub(theta.sub(g, alpha=step.lr).clamp_(0, 1)).div_(step.lr)


def _mixture(weights: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
    return torch.lerp(own["own"], own["received"], weights)


def _of_weights(g: Tensor, weights: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
    return g.mul(own["received"] - own["own"])


def _both(models: Models) -> State:
    return {"own": models.flat.clone(), "received": models.flat.clone()}


_CUT = Term("cut", _cut, elementwise=True)
_MIXED = GradientPoint("mixed", _mixture, _of_weights, _both)


def _adapted(
    mixed: Part,
    learning: tuple[Training, ...],
    participants: Participation | None,
    settings: dict[str, Any],
) -> Phase:
    """Return the exchange after which nodes learn weights and mix the average into their models.

    `learning` are the steps of weights in the first round and in later ones.
    """
    matrix = server_weights()

    def init(models: Models) -> State:
        models.columns(mixed)  # raises before any work
        return {"weights": torch.ones_like(models.flat)}

    def apply(models: Models, state: State, round: Round) -> State:
        flat, received, chosen = models.flat, models.flat.clone(), None
        if participants is None:
            round.mix(round.weights, received)
        else:
            chosen = participants(round)
            round.mix(matrix(round.sizes.astype(float), chosen), received, server=True)
        point = received.clone()  # bodies of the average, and weights in place of heads
        for part in models.columns(mixed):
            point[:, part] = state["weights"][:, part]
        both = {"own": flat, "received": received}
        round.train(models.like(point), learning[min(round.t, 1)], both, participants=chosen)
        for part in models.columns(mixed):
            weights = state["weights"][:, part].copy_(point[:, part].clamp_(0, 1))
            received[:, part] = torch.lerp(flat[:, part], received[:, part], weights)
        if chosen is not None:
            rows = torch.from_numpy(round.own_rows(chosen))[:, None].to(flat.device)
            received = torch.where(rows, received, flat)
        flat.copy_(received)
        return state

    settings = {"weights": "round" if participants is None else "data"} | settings
    return Phase(init, apply, settings | participation_setting(participants), rowwise=True)
