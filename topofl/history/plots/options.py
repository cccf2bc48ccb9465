"""Options of plots: which kinds have them, their defaults, and their checks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from topofl._support.check import check_choice, check_int, check_probability, shown

__all__ = ["AXIS_LABELS", "KINDS", "Options", "check_options"]

AXIS_LABELS = {
    "rounds": "round",
    "seconds": "simulated seconds",
    "megabytes": "megabytes sent by all nodes",
    "steps": "local steps per node",
}
"""Label of each x axis."""

RANK = "rank"
"""The x axis of scores that are sorted from the worst to the best node."""

KINDS = {
    "band": ("x", "quantiles"),
    "violin": ("at",),
    "nodes": ("x", "worst"),
    "pareto": ("x",),
}
"""Kinds of plots, and the options that each has."""

QUANTILES = (0.1, 0.9)
"""Default band over nodes."""

WORST = 3
"""Default number of nodes that are highlighted."""


@dataclass(frozen=True)
class Options:
    """Checked options of a plot; see :meth:`topofl.History.plot`."""

    kind: str
    x: str
    at: tuple[int, ...] | None
    quantiles: tuple[float, float]
    worst: int

    @property
    def band_note(self) -> str:
        """What line and band are, for the label of an axis."""
        low, high = (f"{100 * q:g} %" for q in self.quantiles)
        band = "lowest to highest" if self.quantiles == (0, 1) else f"{low} to {high}"
        return f"(mean over nodes; band: {band})"


def check_options(kind: Any, **given: Any) -> Options:
    """Return the options of a kind of plot, with defaults in place of None.

    Raises
    ------
    TypeError, ValueError
        If there is no such kind, an option belongs to other kinds, or has an unknown value.
    """
    check_choice("kind", kind, KINDS)
    if kind != "nodes" and isinstance(given.get("x"), str) and given["x"] == RANK:
        allowed = (
            f"one of {', '.join(map(repr, AXIS_LABELS))}" if "x" in KINDS[kind] else "left out"
        )
        raise ValueError(
            f"`x` must be {allowed} for kind={kind!r}, got {RANK!r}; take kind='nodes' for it"
        )
    for name, value in given.items():
        if value is not None and name not in KINDS[kind]:
            others = " or ".join(repr(other) for other, own in KINDS.items() if name in own)
            raise ValueError(
                f"`{name}` must be left out for kind={kind!r}, got {shown(value)}; it is for "
                f"kind={others}"
            )
    x, at, quantiles, worst = (given.get(name) for name in ("x", "at", "quantiles", "worst"))
    if x is None:
        x = "megabytes" if kind == "pareto" else "rounds"
    check_choice("x", x, [*AXIS_LABELS, *([RANK] if kind == "nodes" else [])])
    return Options(
        kind,
        x,
        None if at is None else _rounds(at),
        QUANTILES if quantiles is None else _pair(quantiles),
        WORST if worst is None else check_int("worst", worst, minimum=0),
    )


def _rounds(at: Any) -> tuple[int, ...]:
    """Return rounds from a single one or a sequence."""
    items = [at] if isinstance(at, str | bytes) or not _is_sequence(at) else list(at)
    if not items:
        raise ValueError("`at` must be at least one evaluated round, got none; leave it out")
    return tuple(check_int("at", item, minimum=0) for item in items)


def _pair(quantiles: Any) -> tuple[float, float]:
    """Return the two ends of a band."""
    items = list(quantiles) if _is_sequence(quantiles) else []
    if len(items) != 2:
        raise TypeError(
            "`quantiles` must be two numbers between 0 and 1, such as (0.1, 0.9), got "
            f"{shown(quantiles)}"
        )
    low, high = (check_probability("quantiles", item) for item in items)
    if low > high:
        raise ValueError(f"`quantiles` must ascend, got {shown(tuple(items))}")
    return low, high


def _is_sequence(value: Any) -> bool:
    return (isinstance(value, Sequence | range) and not isinstance(value, str | bytes)) or (
        hasattr(value, "__array__") and getattr(value, "ndim", 0) == 1
    )
