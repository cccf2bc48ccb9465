"""Checks of the arguments that phases pass to a round and of the states that they return."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import FrozenInstanceError
from numbers import Real

import numpy as np
from torch import Tensor

from topofl._support.check import check_takes, did_you_mean, shown
from topofl.algorithms.contract.checked import WHY_PLAYED, check_same_shape, explaining_meta_errors
from topofl.algorithms.contract.phase import Phase
from topofl.algorithms.contract.round import Models, State
from topofl.mixing import MixingMatrix

__all__ = [
    "AggregationRule",
    "aggregated",
    "check_matrix",
    "check_noted",
    "check_participants",
    "check_rule",
    "check_same_kind",
    "checked_state",
    "initial_state",
    "on_shapes_only",
    "state_of_phase",
]


AggregationRule = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(own (d,), received rows (k, d), weights (k,)) -> the node's new row (d,)."""


def aggregated(
    phase: str, rule: AggregationRule, own: Tensor, received: Tensor, weights: Tensor
) -> Tensor:
    """Return the row that `rule` computes from a node's own row and the received ones.

    Raises
    ------
    ValueError
        If the row does not have the shape of the node's own, or `rule` changed `own` in place.
    """
    version = own._version
    row = rule(own, received, weights)
    if own._version != version:
        raise ValueError(
            f"`rule` of the phase {phase!r} must not change `own` in place, which other nodes "
            "still receive; return a new row, e.g. own + step instead of own.add_(step)"
        )
    what, remedy = (
        f"`rule` of the phase {phase!r}",
        "combine the received rows over their first axis",
    )
    return check_same_shape(what, "a row", row, own, remedy)


def check_rule(phase: str, rule: object) -> None:
    """Raise ``TypeError`` unless `rule` can be called to aggregate models."""
    if not callable(rule):
        raise TypeError(
            "`rule` of round.aggregate must be a function of (own, received, weights), got "
            f"{shown(rule)} in the phase {phase!r}; give one such as lambda own, received, "
            "weights: received.median(0).values"
        )
    check_takes(f"`rule` of the phase {phase!r}", rule, "own", "received", "weights")


def check_noted(phase: str, name: str, value: object, n: int) -> bool:
    """Return whether a phase notes a value per node, (n,), or raise unless it notes one number.

    Raises ``ValueError`` for anything else. With a single node, one value is one number.
    """
    if isinstance(value, Tensor | np.ndarray):
        real = not value.is_complex() if isinstance(value, Tensor) else value.dtype.kind in "biuf"
        shape = tuple(value.shape)
        if real and (math.prod(shape) == 1 or shape == (n,)):
            return n > 1 and shape == (n,)
        got = f"{'a tensor' if isinstance(value, Tensor) else 'an array'} of shape {shape}"
    elif isinstance(value, Real | np.bool_):
        return False
    else:
        got = shown(value)
    raise ValueError(
        f"`value` of round.note must be one real number, or one per node, ({n},), got {got} as "
        f"{name!r} in the phase {phase!r}; note its mean, or give each number its own name"
    )


def check_same_kind(phase: str, name: str, per_node: bool, before: bool) -> None:
    """Raise ``ValueError`` if a phase notes a value per node, and before noted one number."""
    if per_node != before:
        raise ValueError(
            f"`value` of round.note must be of one shape in all rounds, got {name!r} both as one "
            f"number and as one per node in the phase {phase!r}; note them by two names"
        )


def check_matrix(call: str, weights: object) -> None:
    """Raise ``TypeError`` unless the weights of an exchange are a MixingMatrix."""
    if not isinstance(weights, MixingMatrix):
        raise TypeError(
            f"`weights` of round.{call} must be a MixingMatrix such as round.weights, got "
            f"{type(weights).__name__}; convert an array by topofl.mixing.from_weights(array)"
        )


def check_participants(participants: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the participants, or raise unless they are one boolean per node."""
    if participants.dtype != bool or participants.shape != counts.shape:
        raise ValueError(
            f"`participants` must return one boolean per node, shape {counts.shape}, got "
            f"{participants.dtype} of shape {participants.shape}"
        )
    return participants


def state_of_phase(states: Mapping[str, State], owner: str, phase: str) -> State:
    """Return the state of another phase of the chain; raise ``ValueError`` if there is none.

    Examples
    --------
    >>> state_of_phase({"local": {}, "exchange": {}}, owner="local", phase="exchange")
    {}
    """
    if owner not in states or owner == phase:
        others = ", ".join(name for name in states if name != phase) or "none"
        raise ValueError(
            f"`owner` must be another phase of the chain, got {owner!r} in the phase {phase!r}; "
            f"the other phases are {others}{did_you_mean(owner, list(states))}"
        )
    return states[owner]


@contextmanager
def on_shapes_only(name: str) -> Iterator[None]:
    """Turn errors on meta tensors, and replaced models, into errors that name the phase."""
    remedy = (
        "to multiply by a mixing matrix use round.mix(weights, values), which works in place; "
        "otherwise, where `models.flat.is_meta`, let it make every call that it may make, such as "
        "round.mix, and return"
    )
    try:
        with explaining_meta_errors(
            f"the phase {name!r} must work on models without numbers, {WHY_PLAYED}", remedy
        ):
            yield
    except FrozenInstanceError as error:
        raise TypeError(
            f"the phase {name!r} must change models in place: {error}; write "
            "models.flat.copy_(values), or models.flat.add_(change)"
        ) from error


def initial_state(name: str, phase: Phase, models: Models) -> State:
    """Return the initial state of a phase, or raise ``TypeError`` if it is not valid."""
    return checked_state(name, "init", phase.init(models))


def checked_state(name: str, function: str, state: object) -> State:
    """Return the state of a phase, or raise ``TypeError`` unless it is a dict of tensors."""
    if not isinstance(state, dict):
        raise TypeError(
            f"`{function}` of the phase {name!r} must return its state, a dict of tensors such as "
            f"{{}}, got {type(state).__name__}"
        )
    for key, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"`{function}` of the phase {name!r} must return tensors by name, got "
                f"{type(value).__name__} as {key!r}; use torch.tensor(...)"
            )
    return state
