"""Groups and meanings of columns, as declared by the metrics."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from topofl.metrics._columns import GROUPS
from topofl.metrics.compare import all_columns

__all__ = ["Group", "by_group", "group_of", "meanings"]


class Group(NamedTuple):
    """A group of columns that are shown and hidden together: its key in HTML, and its heading."""

    key: str
    label: str


_OTHER = Group("other", "other numbers")


@cache
def meanings() -> dict[str, str]:
    """Return the meanings of the columns of :func:`topofl.metrics.compare`, by name."""
    return {column.name: column.meaning for column in all_columns()}


@cache
def _group_by_column() -> dict[str, Group]:
    """Return the group of every column of :func:`topofl.metrics.compare`, by name and in order."""
    return {column.name: Group(column.group, GROUPS[column.group]) for column in all_columns()}


def group_of(column: str) -> Group:
    """Return the group of a column by its name; unknown columns belong to "other numbers".

    Examples
    --------
    >>> group_of("spectral gap").label, group_of("luck").label
    ('averaging', 'other numbers')
    """
    return _group_by_column().get(column, _OTHER)


def by_group(columns: Sequence[str]) -> list[tuple[Group, list[str]]]:
    """Return the columns by group, with groups in the order of :func:`topofl.metrics.compare`.

    Examples
    --------
    >>> [(group.key, names) for group, names in by_group(["slem", "edges", "spectral gap"])]
    [('structure', ['edges']), ('averaging', ['slem', 'spectral gap'])]
    """
    order = [*dict.fromkeys(_group_by_column().values()), _OTHER]
    members = [
        (group, [column for column in columns if group_of(column) == group]) for group in order
    ]
    return [(group, names) for group, names in members if names]
