"""Phases in which every node trains on its own data."""

import torch

from topofl._check import check_fraction, check_int, check_positive
from topofl.algorithms.phase import Models, Phase, Round, Rule, State

__all__ = ["sgd"]


def sgd(
    lr: float, *, batch_size: int = 128, steps: int = 1, momentum: float = 0.0, gradient: Rule | None = None
) -> Phase:
    """Return the phase of minibatch SGD with heavy-ball momentum.

    Per step, for every node i with minibatch ``S_i``::

        g_i = grad F(theta_i; S_i)          (then g <- G @ g if `gradient` is given)
        v_i = momentum * v_i + g_i
        theta_i = theta_i - lr * v_i

    Parameters
    ----------
    lr
        Step size.
    batch_size
        Examples per minibatch; each node passes over its data in a fresh random order every epoch, without
        replacement, and keeps the last, smaller minibatch.
    steps
        Minibatch steps per round.
    momentum
        In [0, 1). The velocity ``v`` stays at its node, is never communicated, and lasts from round to round.
    gradient
        Weight rule for averaging gradients between nodes before each step, such as
        :func:`topofl.mixing.within_groups`; None: each node uses its own.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.
    """
    lr = check_positive("lr", lr)
    batch_size = check_int("batch_size", batch_size, minimum=1)
    steps = check_int("steps", steps, minimum=1)
    momentum = check_fraction("momentum", momentum)
    if gradient is not None and not callable(gradient):
        raise TypeError(f"`gradient` must be a weight rule such as mixing.within_groups, got {gradient!r}")

    def init(models: Models) -> State:
        return {"velocity": torch.zeros_like(models.flat)} if momentum else {}

    def apply(models: Models, state: State, round: Round) -> State:
        round.local_sgd(
            models,
            lr=lr,
            batch_size=batch_size,
            steps=steps,
            momentum=momentum,
            velocity=state.get("velocity"),
            gradient=gradient,
        )
        return state

    settings = {"lr": lr, "batch_size": batch_size, "steps": steps, "momentum": momentum, "gradient": "own"}
    if gradient is None:
        return Phase(init, apply, settings)
    settings["gradient"] = getattr(gradient, "__name__", repr(gradient))
    return Phase(init, apply, settings, exchanges="gradients")
