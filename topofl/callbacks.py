"""What a run tells while it runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Callback", "Event"]


@dataclass(frozen=True, eq=False)
class Event:
    """Something that happened in a run.

    Parameters
    ----------
    kind
        ``"start"``, ``"round"``, ``"evaluation"``, ``"checkpoint"``, ``"divergence"``, ``"interrupt"`` or ``"end"``.
    round
        Number of rounds done.
    values
        What is told of it: numbers and text that JSON can hold, except that numbers may be NaN or infinite.
    models
        All nodes' models, where they are at hand; ``models.flat`` is (n, d), to read or copy.
    """

    kind: str
    round: int
    values: Mapping[str, Any]
    models: Any = None


Callback = Callable[[Event], None]
"""Called with each event of a run, in order, in the process and thread of the run."""
