"""Order of columns that name the column before them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

__all__ = ["ordered_columns"]


class _Column(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def after(self) -> str: ...


AnyColumn = TypeVar("AnyColumn", bound=_Column)


def ordered_columns(
    declared: Sequence[Sequence[AnyColumn]], groups: Iterable[str]
) -> tuple[AnyColumn, ...]:
    """Return the columns that modules declare, by group, each behind the column it names.

    Parameters
    ----------
    declared
        Columns of each module. A column follows the column `after` of its group; if this is empty,
        the previous column of its module or, for the first one, the columns of the modules before.
    groups
        Names of the groups in order.

    Raises
    ------
    ValueError
        If a column has another group, or names a column of another group.
    """
    groups = list(groups)
    found = [
        column
        for group in groups
        for column in _in_order([[c for c in some if c.group == group] for some in declared])
    ]
    forgotten = {c.name for some in declared for c in some} - {column.name for column in found}
    if forgotten:
        raise ValueError(
            f"columns must belong to one of the groups {', '.join(groups)}, and `after` must name "
            f"a column of their group, got {', '.join(sorted(forgotten))}"
        )
    return tuple(found)


def _in_order(declared: list[list[AnyColumn]]) -> list[AnyColumn]:
    """Return the columns of one group, ordered by `after`."""
    followers: dict[str, list[AnyColumn]] = {}
    for of_module in declared:
        previous = ""
        for column in of_module:
            followers.setdefault(column.after or previous, []).append(column)
            previous = column.name

    def behind(name: str) -> Iterator[AnyColumn]:
        for column in followers.get(name, ()):
            yield column
            yield from behind(column.name)

    return list(behind(""))
