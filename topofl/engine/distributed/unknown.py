"""Phases that users define, which may combine the models of different nodes in any way."""

from collections.abc import Iterator, Mapping
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

from topofl.algorithms.contract.phase import Algorithm, Phase, on_all_models

__all__ = ["with_all_models"]


def with_all_models(algorithm: Algorithm) -> dict[str, Phase]:
    """Return the phases of an algorithm, such that users' phases have the models of all nodes.

    The phases of this library compute each node's row from that row, and get what they need of
    other rows from the round. A user's phase may not.
    """
    return {
        name: on_all_models(phase) if _is_users(phase) else phase
        for name, phase in algorithm.phases.items()
    }


def _is_users(phase: Phase) -> bool:
    """Whether a user's phase function is, or is called by, the functions of a phase."""
    return any(
        function.__module__.partition(".")[0] != "topofl" and _takes_a_round(function)
        for function in _functions(phase.apply, set())
    )


def _takes_a_round(function: FunctionType) -> bool:
    """Whether a function has the three arguments of a phase, (models, state, round).

    Methods have one more, and a function may have further ones that are bound or have defaults.
    """
    return function.__code__.co_argcount >= 3


def _functions(value: Any, seen: set[int]) -> Iterator[FunctionType]:
    """Yield a function and the functions that it closes over, also as phases."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Phase):
        yield from _functions(value.apply, seen)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _functions(part, seen)
    elif isinstance(value, FunctionType):
        yield value
        for cell in value.__closure__ or ():
            if cell != CellType():
                yield from _functions(cell.cell_contents, seen)
    elif isinstance(value, MethodType):
        yield from _functions(value.__func__, seen)
    elif isinstance(value, partial):
        yield from _functions(value.func, seen)
    elif isinstance(call := vars(type(value)).get("__call__"), FunctionType):
        yield call
