"""Phases in which every node trains on its own data."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from topofl._check import check_fraction, check_int, check_nonnegative, check_positive, check_sequence, shown
from topofl.algorithms.participation import Participation, name_of
from topofl.algorithms.parts import Part, as_part, everything
from topofl.algorithms.phase import LocalSGD, Mixture, Models, Phase, Proximal, Round, Rule, State

__all__ = ["ADAPTIVE_SHARE", "ANCHOR", "MASK", "SHARE", "TOWARD", "beside", "check_epochs", "sgd"]


def sgd(
    lr: float,
    *,
    batch_size: int = 128,
    steps: int = 1,
    epochs: int | Sequence[int] | None = None,
    momentum: float = 0.0,
    reset_momentum: bool = False,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    train: Part = everything,
    who: Participation | None = None,
    gradient: Rule | None = None,
    anchored: bool = False,
    strength: float = 0.0,
    inner_lr: float | None = None,
) -> Phase:
    """Return the phase of minibatch SGD with heavy-ball momentum.

    Per step in round t, for every node i with minibatch ``S_i``::

        g_i = clip(grad F(theta_i; S_i)) + weight_decay * theta_i + strength * (theta_i - anchor_i)
        (then g <- G @ g if `gradient` is given)
        v_i = momentum * v_i + g_i
        theta_i = theta_i - lr * lr_decay^t * v_i

    After a push-sum exchange the steps of what travels are divided by the node's push-sum weight: they are then those
    of the biased variable, at the gradient of the de-biased one.

    Parameters
    ----------
    lr
        Step size in round 0.
    batch_size
        Examples per minibatch; each node passes over its data in a fresh random order every epoch, without
        replacement, and keeps the last, smaller minibatch.
    steps
        Minibatch steps per round.
    epochs
        Passes over a node's own data per round, in place of `steps`: one number, or one a node (0: it does not train).
    momentum
        In [0, 1). The velocity ``v`` stays at its node, is never communicated, and lasts from round to round.
    reset_momentum
        Whether velocities start from zero in every round instead.
    lr_decay
        Factor of the step size from round to round, above 0 and at most 1.
    weight_decay
        At least 0; part of the gradient, as in ``torch.optim.SGD``.
    clip
        Largest norm of a gradient, over what is trained; None: as it is.
    train
        What is trained, such as :data:`topofl.algorithms.head`; the rest stays as it is, and takes no gradient.
    who
        Who trains, such as ``sampled(0.1)``, or any function of the round (``round.t``, ``round.sizes``,
        ``round.rng(purpose)``) that returns n booleans; None: all nodes.
    gradient
        Weight rule for averaging gradients between nodes before each step, such as
        :func:`topofl.mixing.within_groups`; None: each node uses its own.
    strength
        At least 0: how strongly models are drawn to others, which are themselves before the first step of the round.
    anchored
        Whether they are drawn to further models instead, (n, d), which the phase keeps. These start like them, and
        change only in later phases, see :func:`beside`.
    inner_lr
        Gradients are those one step of this size ahead, along the gradient on a minibatch of its own::

            g_i = clip(grad F(theta_i - inner_lr * grad F(theta_i; S'_i); S_i)) + ...

        A step then takes two minibatches, one after the other, and passes have half as many steps, rounded up; losses
        in training are those one step ahead. None: gradients are those of the models as they are.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, or `gradient` is mixed of models of which only a part is
        trained.
    """
    how = LocalSGD(
        lr=check_positive("lr", lr),
        batch_size=check_int("batch_size", batch_size, minimum=1),
        steps=check_int("steps", steps, minimum=1),
        epochs=check_epochs("epochs", epochs),
        momentum=check_fraction("momentum", momentum),
        weight_decay=check_nonnegative("weight_decay", weight_decay),
        clip=None if clip is None else check_positive("clip", clip),
        train=as_part("train", train),
        gradient=gradient,
        inner_lr=None if inner_lr is None else check_positive("inner_lr", inner_lr),
    )
    decay, strength = _check_decay(lr_decay), check_nonnegative("strength", strength)
    if who is not None and not callable(who):
        raise TypeError(f"`who` must be a function of the round such as sampled(0.1), got {shown(who)}")
    if gradient is not None and not callable(gradient):
        raise TypeError(f"`gradient` must be a weight rule such as mixing.within_groups, got {shown(gradient)}")
    if gradient is not None and (epochs is not None or who is not None or not how.train.is_everything):
        raise ValueError("`gradient` must be None unless all nodes take the same steps of all parameters; use steps=")
    if gradient is not None and inner_lr is not None:
        raise ValueError("`gradient` must be None with an inner step, each node looks ahead alone; leave out inner_lr")

    def init(models: Models) -> State:
        models.columns(how.train)  # raises before any work
        lasting = {"velocity": torch.zeros_like(models.flat)} if momentum and not reset_momentum else {}
        return lasting | ({ANCHOR: models.flat.clone()} if anchored else {})

    def apply(models: Models, state: State, round: Round) -> State:
        round.local_sgd(
            models,
            replace(how, lr=how.lr * decay**round.t),
            velocity=state.get("velocity"),
            proximal=Proximal(state[ANCHOR] if anchored else None, strength) if anchored or strength else None,
            mask=state.get(MASK),
            toward=state.get(TOWARD),
            who=None if who is None else np.asarray(who(round)),
            mixture=_mixture(models, state),
        )
        return state

    settings = _settings_of(how) | {"reset_momentum": reset_momentum, "lr_decay": decay, "who": who and name_of(who)}
    settings |= {"strength": strength, "anchor": "start of the round" if strength and not anchored else None}
    return Phase(init, apply, _told(settings), exchanges="" if gradient is None else "gradients", mixes=gradient)


_SILENT: dict[str, Any] = {
    "epochs": None, "weight_decay": 0.0, "clip": None, "train": "everything", "reset_momentum": False, "lr_decay": 1.0,
    "who": None, "strength": 0.0, "anchor": None, "inner_lr": None,
}  # fmt: skip
"""Settings that are told only where they are others."""


def beside(owner: str, phase: Phase) -> Phase:
    """Return a phase that works on the models that the phase named `owner` is anchored to, not on those that predict.

    Parameters
    ----------
    owner
        An earlier phase of the chain, ``sgd(..., anchored=True)``.
    phase
        What is done; it keeps no state of its own.
    """
    if phase.settings.get("momentum") and not phase.settings.get("reset_momentum"):
        raise ValueError("`phase` must keep no velocity from round to round here; use reset_momentum=True")

    def init(models: Models) -> State:
        return phase.init(models)

    def apply(models: Models, state: State, round: Round) -> State:
        if ANCHOR not in state:
            raise ValueError(f"`owner` must be a phase with an anchor, {owner!r} has none; use sgd(..., anchored=True)")
        phase.apply(models.like(state[ANCHOR]), {}, round)
        return state

    return phase._replace(init=init, apply=apply, settings=dict(phase.settings) | {"of": owner}, uses=owner)


ANCHOR = "anchor"
"""Name of the state that holds the models which draw others."""

MASK = "mask"
"""Name of the state that holds what is trained of each model, (n, d) booleans, where a phase adds one."""

TOWARD = "toward"
"""Name of the state that holds where models turn while they train, (n, d), where a phase adds one."""

SHARE, ADAPTIVE_SHARE = "share", "adaptive_share"
"""Names of the state that holds the shares, (n,), of models in mixtures with those of `ANCHOR`, if a phase adds one."""


def _mixture(models: Models, state: State) -> Mixture | None:
    """Return what models are mixed with while they train, if a phase says so."""
    for name in (SHARE, ADAPTIVE_SHARE):
        if name in state:
            return Mixture(models.like(state[ANCHOR]), state[name], adaptive=name == ADAPTIVE_SHARE)
    return None


def _settings_of(how: LocalSGD) -> dict[str, Any]:
    """Return the numbers and names of local steps, to be kept with results."""
    values = {field.name: getattr(how, field.name) for field in fields(how)}
    rule = how.gradient
    return values | {
        "epochs": list(how.epochs) if isinstance(how.epochs, tuple) else how.epochs,
        "train": str(how.train),
        "gradient": "own" if rule is None else getattr(rule, "__name__", repr(rule)),
    }


def _told(settings: dict[str, Any]) -> dict[str, Any]:
    dropped = {name for name, usual in _SILENT.items() if settings[name] == usual}
    if settings["epochs"] is not None:
        dropped |= {"steps"}
    return {name: value for name, value in settings.items() if name not in dropped}


def check_epochs(name: str, epochs: int | Sequence[int] | None) -> int | tuple[int, ...] | None:
    """Return passes over the local data, one number or one a node, or raise."""
    if epochs is None:
        return None
    if isinstance(epochs, Sequence | np.ndarray) and not isinstance(epochs, str):
        epochs = check_sequence(name, epochs, "one number a node")
        if not len(epochs):
            raise ValueError(f"`{name}` must be one number or one a node, got none")
        return tuple(check_int(f"{name}[{i}]", e, minimum=0) for i, e in enumerate(epochs))
    return check_int(name, epochs, minimum=1)


def _check_decay(lr_decay: float) -> float:
    """Return a factor above 0 and at most 1, or raise."""
    factor = check_positive("lr_decay", lr_decay)
    if factor > 1:
        raise ValueError(
            f"`lr_decay` must be at most 1, got {factor:g}; it is the factor from round to round, e.g. 0.99"
        )
    return factor
