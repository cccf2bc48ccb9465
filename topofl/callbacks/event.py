"""Events of a run, the type of callbacks, and the values of events as numbers and as JSON."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from topofl._support.public import public

__all__ = ["Callback", "Event", "as_json", "scalars"]


@dataclass(frozen=True, eq=False)
class Event:
    """An event of a run, the argument of callbacks.

    Parameters
    ----------
    kind
        ``"start"``, ``"round"``, ``"evaluation"``, ``"checkpoint"``, ``"divergence"``,
        ``"interrupt"`` or ``"end"``.
    round
        Number of completed rounds.
    values
        JSON values, except that numbers may be NaN or infinite. ``seconds`` of a round include its
        evaluation. Those of a divergence name the node and, if the graph has labels, its ``label``.
    models
        All nodes' models, or None; ``models.flat``, (n, d), must only be read or copied.

    Examples
    --------
    >>> def print_loss(event: Event) -> None:  # for topofl.run(..., callbacks=[print_loss])
    ...     if event.kind == "round":
    ...         print(f"round {event.round}: loss {event.values['train_loss']:.2f}")
    >>> print_loss(Event("start", 0, {"seed": 0}))
    >>> print_loss(Event("round", 1, {"train_loss": 2.5}))
    round 1: loss 2.50
    """

    kind: str
    round: int
    values: Mapping[str, Any]
    models: Any = None


Callback = Callable[[Event], None]
"""Function that is called with each event of a run, in order, in the thread of the run.

The example of :class:`Event` defines one.
"""


@public
def scalars(event: Event) -> dict[str, float]:
    """Return the finite numbers of an event by ``"kind/name"``, for trackers.

    The event ``"start"`` has none, since its values are settings.

    Examples
    --------
    >>> scalars(Event("round", 3, {"train_loss": 0.5, "messages": 12, "seconds": float("nan")}))
    {'round/train_loss': 0.5, 'round/messages': 12.0}
    """
    if event.kind == "start":
        return {}
    numbers = {
        name: float(v)
        for name, v in event.values.items()
        if isinstance(v, Real) and name != "round"
    }
    return {
        f"{event.kind}/{name}": value for name, value in numbers.items() if math.isfinite(value)
    }


def as_json(value: Any) -> Any:
    """Return a value as strict JSON: null for NaN, lists for arrays, text for other objects."""
    if isinstance(value, Mapping):
        return {str(name): as_json(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return as_json(value.tolist()) if hasattr(value, "tolist") else str(value)
