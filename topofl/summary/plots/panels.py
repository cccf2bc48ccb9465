"""Panels of plots with many groups: a setting per panel, or a group per panel."""

import math
from dataclasses import dataclass

from topofl.summary.collected import Collected

__all__ = ["LINES_LIMIT", "Panel", "grid_of", "panels_of"]

LINES_LIMIT = 8
"""Most groups that one panel tells apart by color."""


@dataclass(frozen=True)
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
    """

    title: str
    groups: tuple[int, ...]
    labels: tuple[str, ...]


def panels_of(collected: Collected) -> list[Panel]:
    """Return one panel for up to 8 groups; else one per value of a setting, or one per group.

    The setting is the one that gives the fewest panels of at most 8 groups each.
    """
    numbers = tuple(range(len(collected.groups)))
    if len(numbers) <= LINES_LIMIT:
        return [Panel("", numbers, tuple(map(collected.name_of, numbers)))]
    splits = [_split(collected, place) for place in range(len(collected.by))]
    small = [
        panels
        for panels in splits
        if len(collected.by) > 1 and max(len(panel.groups) for panel in panels) <= LINES_LIMIT
    ]
    if small:
        return min(small, key=len)
    return [Panel(collected.name_of(k), (k,), ()) for k in numbers]


def _split(collected: Collected, place: int) -> list[Panel]:
    """Return one panel per value of the setting at a position in `by`."""
    members: dict[object, list[int]] = {}
    for number, group in enumerate(collected.groups):
        members.setdefault(group[place], []).append(number)
    return [
        Panel(
            f"{collected.labels[place]} = {value}",
            tuple(numbers),
            tuple(collected.name_of(k, without=place) for k in numbers),
        )
        for value, numbers in members.items()
    ]


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
