"""Panels of plots with many groups: a setting per panel, or a group per panel."""

from topofl._drawing.charts.panels import LINES_LIMIT, Panel, panels_of_names
from topofl.summary.collected import Collected

__all__ = ["panels_of"]


def panels_of(collected: Collected) -> list[Panel]:
    """Return one panel for up to 8 groups; else one per value of a setting, or one per group.

    The setting is the one that gives the fewest panels of at most 8 groups each.
    """
    names = [collected.name_of(k) for k in range(len(collected.groups))]
    if len(names) <= LINES_LIMIT or len(collected.by) < 2:
        return panels_of_names(names)
    splits = [_split(collected, place) for place in range(len(collected.by))]
    small = [
        panels for panels in splits if max(len(panel.groups) for panel in panels) <= LINES_LIMIT
    ]
    return min(small, key=len) if small else panels_of_names(names)


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
