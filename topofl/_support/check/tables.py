"""Checks of numbers, or tables of numbers, per node, link or machine."""

from typing import Any

import numpy as np

from topofl._support.check.arrays import as_array
from topofl._support.check.numbers import check_number

__all__ = ["as_table", "check_amounts"]


def as_table(argument: str, value: Any) -> np.ndarray:
    """Return a number or table as a read-only array, or raise an error that names the argument."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        if not isinstance(value, float):
            value = check_number(argument, value)
        array = np.array(value, dtype=np.float64)
    else:
        array = as_array(argument, value, np.float64).copy()
    array.setflags(write=False)
    return array


def check_amounts(
    argument: str,
    table: np.ndarray,
    *,
    positive: bool,
    what: str = "seconds",
    place: str = "node",
    has_diagonal: bool = True,
    finite: bool = True,
    remedy: str = "",
) -> None:
    """Raise ``ValueError`` unless all numbers are above 0 or at least 0, and finite if asked for.

    Parameters
    ----------
    argument, table
        Name of the argument, and its number or table.
    positive
        Whether 0 is refused.
    what, place
        What the numbers are, and what the rows of a table are, for error messages.
    has_diagonal
        Whether the diagonal of a table of pairs counts.
    finite
        Whether infinity is refused.
    remedy
        What to change, for error messages.
    """
    bad = ~np.isfinite(table) if finite else np.isnan(table)
    bad |= table <= 0 if positive else table < 0
    if table.ndim == 2 and not has_diagonal:
        np.fill_diagonal(bad, False)
    places = np.argwhere(bad)
    if len(places) == 0:
        return
    first = tuple(int(i) for i in places[0])
    where = {0: "", 1: f" for {place} {first[0] if first else ''}", 2: f" at {first}"}[table.ndim]
    bound = "above 0" if positive else "of at least 0"
    raise ValueError(
        f"`{argument}` must be {'finite ' * finite}{what} {bound}, got {table[first]:g}{where}"
        f"{'; ' if remedy else ''}{remedy}"
    )
