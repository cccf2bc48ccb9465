"""What phases give to a round and return to a run, checked."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from numbers import Real

import numpy as np
from torch import Tensor

from topofl._support.check import check_takes, did_you_mean, shown
from topofl.algorithms.contract.checked import WHY_PLAYED, check_shape, explaining_meta_errors
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
    "checked_state",
    "initial_state",
    "on_shapes_only",
    "state_of_phase",
]


AggregationRule = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(own (d,), received rows (k, d), weights (k,)) -> the node's new row (d,)."""


def aggregated(
    phase: str, rule: AggregationRule, own: Tensor, received: Tensor, shares: Tensor
) -> Tensor:
    """Return the row that a rule makes of a node's own and the received ones.

    Raises
    ------
    ValueError
        If the row is not like the node's own, or the rule changed that in place.
    """
    version = own._version
    row = rule(own, received, shares)
    if own._version != version:
        raise ValueError(
            f"`rule` of the phase {phase!r} must not change `own` in place, which other nodes "
            "still receive; return a new row, e.g. own + step instead of own.add_(step)"
        )
    what, remedy = (
        f"`rule` of the phase {phase!r}",
        "combine the rows that were sent over their first axis",
    )
    return check_shape(what, "a row", row, own, remedy)


def check_rule(phase: str, rule: object) -> None:
    """Raise ``TypeError`` unless nodes can aggregate by a rule."""
    if not callable(rule):
        raise TypeError(
            "`rule` of round.aggregate must be a function of (own, heard, shares), got "
            f"{shown(rule)} in the phase {phase!r}; give one such as lambda own, heard, shares: "
            "heard.median(0).values"
        )
    check_takes(f"`rule` of the phase {phase!r}", rule, "own", "heard", "shares")


def check_noted(phase: str, name: str, value: object) -> None:
    """Raise ``ValueError`` unless what a phase notes is one real number."""
    if isinstance(value, Tensor):
        fine, got = (
            value.numel() == 1 and not value.is_complex(),
            f"a tensor of shape {tuple(value.shape)}",
        )
    elif isinstance(value, np.ndarray):
        fine, got = (
            value.size == 1 and value.dtype.kind in "biuf",
            f"an array of shape {value.shape}",
        )
    else:
        fine, got = isinstance(value, Real | np.bool_), shown(value)
    if not fine:
        raise ValueError(
            f"`value` of round.note must be one real number a round, got {got} as {name!r} in the "
            f"phase {phase!r}; note its mean, or each number by a name of its own"
        )


def check_matrix(door: str, weights: object) -> None:
    """Raise ``TypeError`` unless the weights of an exchange are a MixingMatrix."""
    if not isinstance(weights, MixingMatrix):
        raise TypeError(
            f"`weights` of round.{door} must be a MixingMatrix such as round.weights, got "
            f"{type(weights).__name__}; make one of an array by topofl.mixing.from_weights(array)"
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
    """Return what another phase of the chain keeps, or raise ``ValueError`` if there is none."""
    if owner not in states or owner == phase:
        others = ", ".join(name for name in states if name != phase) or "none"
        raise ValueError(
            f"`owner` must be another phase of the chain, {phase!r} asks for the state of "
            f"{owner!r}; there are {others}{did_you_mean(owner, list(states))}"
        )
    return states[owner]


def on_shapes_only(name: str) -> AbstractContextManager[None]:
    """Turn torch's errors on tensors without values into a ``ValueError`` that names the phase."""
    return explaining_meta_errors(
        f"the phase {name!r} must work on models without numbers, {WHY_PLAYED}",
        "where `models.flat.is_meta`, let it do the most that it may do, such as round.mix (which "
        "also is how models are multiplied by a mixing matrix), and return",
    )


def initial_state(name: str, phase: Phase, models: Models) -> State:
    """Return the state with which a phase begins, or raise ``TypeError`` if it is none."""
    return checked_state(name, "init", phase.init(models))


def checked_state(name: str, function: str, state: object) -> State:
    """Return the state of a phase, or raise ``TypeError`` if it is not a dict of tensors."""
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
