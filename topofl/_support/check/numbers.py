"""Checks of integers and real numbers: sizes, seeds, fractions, rates."""

from numbers import Integral, Real

import numpy as np

from topofl._support.words import shown

__all__ = [
    "EDGES_LIMIT",
    "NODES_LIMIT",
    "check_edges",
    "check_fraction",
    "check_int",
    "check_int_or_auto",
    "check_nodes",
    "check_nonnegative",
    "check_number",
    "check_positive",
    "check_probability",
]

NODES_LIMIT = 10_000_000
"""Largest number of nodes of a graph; generating a ring of this size takes about a gigabyte."""


EDGES_LIMIT = 50_000_000
"""Largest number of edges of a generated graph; a complete graph with 10,000 nodes takes GBs."""

_INT64_MAX = 2**63 - 1
"""Largest integer in an int64 array."""


_SEED_MAX = 2**256 - 1
"""Largest seed; numpy's own seeds have 128 bits."""


def check_int(
    name: str,
    value: object,
    *,
    minimum: int,
    maximum: int | None = None,
    maximum_name: str = "",
    remedy: str = "",
    kind: str = "an integer",
) -> int:
    """Return `value` as an int in ``[minimum, maximum]``, or raise.

    `kind` names the required type in messages. If `maximum` is None, it is the largest int64, or
    for seeds ``2**256 - 1``.

    Raises
    ------
    TypeError
        If `value` is not an integer, or is a boolean.
    ValueError
        If it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be {kind}, got {shown(value)} ({type(value).__name__})")
    number = int(value)
    largest = _SEED_MAX if "seed" in name else _INT64_MAX
    if maximum is None and number > largest:
        maximum = largest
    if number < minimum or (maximum is not None and number > maximum):
        limit = f"{maximum_name}={maximum}" if maximum_name else shown(maximum)
        wanted = f"at least {minimum}" if maximum is None else f"between {minimum} and {limit}"
        raise ValueError(
            f"`{name}` must be {wanted}, got {shown(number)}" + (f"; {remedy}" if remedy else "")
        )
    return number


def check_nodes(n: object, *, minimum: int = 1, name: str = "n") -> int:
    """Return `n` as a number of nodes from `minimum` to :data:`NODES_LIMIT`, or raise."""
    if isinstance(n, Integral) and not isinstance(n, bool) and int(n) > NODES_LIMIT:
        raise ValueError(
            f"`{name}` must be at most {NODES_LIMIT:,}, since larger graphs take gigabytes, got "
            f"{shown(int(n))}"
        )
    return check_int(name, n, minimum=minimum)


def check_edges(count: float, *arguments: str, per: str = "") -> None:
    """Raise ``ValueError`` if a graph has more edges than :data:`EDGES_LIMIT`.

    Parameters
    ----------
    count
        Number of edges, exact or estimated.
    arguments
        Names of the arguments that determine it; the last is the one to lower.
    per
        For graphs that change, what `count` refers to: ``"round"`` or ``"period"``.
    """
    if count > EDGES_LIMIT:
        listed = " and ".join(f"`{name}`" for name in arguments)
        raise ValueError(
            f"{listed} must give at most {EDGES_LIMIT:,} edges{per and f' per {per}'}, since more "
            f"take gigabytes, got about {count:.3g}; lower `{arguments[-1]}`"
        )


def check_int_or_auto(name: str, value: object, *, minimum: int) -> int | str:
    """Return `value` if it is ``"auto"`` or an integer of at least `minimum`, or raise."""
    if isinstance(value, str) and value == "auto":
        return value
    return check_int(name, value, minimum=minimum, kind='an integer or "auto"')


def _check_real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, got {shown(value)} ({type(value).__name__})")
    try:
        return float(value)
    except OverflowError:  # integers beyond 1e308
        return float("inf") if value > 0 else float("-inf")  # pyright: ignore[reportOperatorIssue]


def check_number(name: str, value: object) -> float:
    """Return `value` as a finite float, or raise ``TypeError`` or ``ValueError``."""
    number = _check_real(name, value)
    if not np.isfinite(number):
        raise ValueError(f"`{name}` must be finite, got {number:g}")
    return number


def check_positive(name: str, value: object, *, remedy: str = "") -> float:
    """Return `value` as a finite float above 0, or raise ``TypeError`` or ``ValueError``."""
    number = _check_real(name, value)
    if not (np.isfinite(number) and number > 0):
        raise ValueError(
            f"`{name}` must be a finite number above 0, got {number:g}"
            + (f"; {remedy}" if remedy else "")
        )
    return number


def check_nonnegative(name: str, value: object) -> float:
    """Return `value` as a finite float of at least 0, or raise ``TypeError`` or ``ValueError``."""
    number = _check_real(name, value)
    if not (np.isfinite(number) and number >= 0):
        raise ValueError(f"`{name}` must be a finite number of at least 0, got {number:g}")
    return number


def check_fraction(name: str, value: object) -> float:
    """Return `value` as a float in ``[0, 1)``, or raise ``TypeError`` or ``ValueError``."""
    number = _check_real(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"`{name}` must be in [0, 1), got {number:g}")
    return number


def check_probability(name: str, value: object) -> float:
    """Return `value` as a float in ``[0, 1]``, or raise ``TypeError`` or ``ValueError``."""
    number = _check_real(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"`{name}` must be between 0 and 1, got {number:g}")
    return number
