"""Panels of charts with many lines."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["LINES_LIMIT", "Panel", "grid_of", "panels_of_names"]

LINES_LIMIT = 8
"""Most groups that one panel tells apart by color."""


@dataclass(frozen=True, eq=False)
class Panel:
    """What is drawn in one of several axes.

    Parameters
    ----------
    title
        Line above it; empty for none.
    groups
        Numbers of the groups that it shows.
    labels
        Names of these groups within the panel; empty if the title names the only one.
    context
        (k, 2) curves that are drawn in gray; without them, a panel without labels shows all groups
        in gray.
    styles
        Positions of the groups' styles; by default, equal labels have equal styles in all panels.
    """

    title: str
    groups: tuple[int, ...]
    labels: tuple[str, ...]
    context: Sequence[np.ndarray] = ()
    styles: tuple[int, ...] = ()


def panels_of_names(names: Sequence[str]) -> list[Panel]:
    """Return one panel for up to 8 groups, else one panel per group.

    Examples
    --------
    >>> len(panels_of_names(["a"] * 8)), len(panels_of_names(["a"] * 9))
    (1, 9)
    """
    if len(names) <= LINES_LIMIT:
        return [Panel("", tuple(range(len(names))), tuple(names))]
    return [Panel(name, (k,), ()) for k, name in enumerate(names)]


def grid_of(count: int, most: int) -> tuple[int, int]:
    """Return rows and columns of a grid with `count` panels and at most `most` columns.

    Examples
    --------
    >>> grid_of(24, 6), grid_of(4, 3), grid_of(1, 6)
    ((4, 6), (2, 2), (1, 1))
    """
    columns = min(most, math.ceil(math.sqrt(1.4 * count)))
    rows = math.ceil(count / columns)
    return rows, math.ceil(count / rows)
