"""Views of tables for the templates: cells with text and sort keys, and numbered reasons."""

import math
from numbers import Real
from typing import Any, NamedTuple

from topofl._support.table import NotApplicable, Spread, Table, as_text
from topofl._support.text import printable
from topofl.report.columns import Group, by_group, meanings
from topofl.report.titles import title_of

__all__ = ["Cell", "Row", "View", "ViewColumn", "view"]


class ViewColumn(NamedTuple):
    """A column: its name, group and meaning, and whether it holds numbers."""

    name: str
    group: Group
    meaning: str
    is_number: bool


class Cell(NamedTuple):
    """A cell: text, sort key and column; for a missing value, its reason and footnote number."""

    text: str
    key: str
    column: ViewColumn
    note: int = 0
    reason: str = ""


class Row(NamedTuple):
    """A row: number from 1, name, title for readers, and remaining cells."""

    number: int
    name: str
    title: str
    cells: list[Cell]


class View(NamedTuple):
    """A table: id, caption, name of the first column, groups, rows, reasons of missing values."""

    id: str
    caption: str
    first: str
    groups: list[tuple[Group, list[ViewColumn]]]
    rows: list[Row]
    reasons: list[str]


def view(table: Table, key: str, caption: str, *, grouped: bool = True) -> View:
    """Return the view of a table, whose first column has the names of the rows.

    Parameters
    ----------
    table
        Any table.
    key
        Prefix of all ids; unique among the tables of a page.
    caption
        Text above the table.
    grouped
        Whether columns are sorted by groups; otherwise, they keep their order.
    """
    first, *others = table.columns
    reasons = list(
        dict.fromkeys(
            cell.reason for row in table.rows for cell in row if isinstance(cell, NotApplicable)
        )
    )
    groups = [
        (group, [_view_column(table, name, group) for name in names])
        for group, names in (by_group(others) if grouped else [(Group(key, ""), others)])
    ]
    columns = [column for _, members in groups for column in members]
    rows = [
        Row(
            k,
            printable(str(row[0])),
            printable(title_of(str(row[0]))),
            [_cell(row[table.columns.index(column.name)], column, reasons) for column in columns],
        )
        for k, row in enumerate(table.rows, start=1)
    ]
    return View(key, caption, first, groups, rows, reasons)


def _view_column(table: Table, name: str, group: Group) -> ViewColumn:
    return ViewColumn(
        name,
        group,
        meanings().get(name, ""),
        not any(isinstance(cell, str) for cell in table.column(name)),
    )


def _cell(value: Any, column: ViewColumn, reasons: list[str]) -> Cell:
    if isinstance(value, NotApplicable):
        return Cell(str(value), "", column, reasons.index(value.reason) + 1, value.reason)
    return Cell(as_text(value), _sort_key(value), column)


def _sort_key(value: Any) -> str:
    """Return a sort key for JavaScript's ``Number``; empty for NaN, which is sorted last."""
    number = value.mean if isinstance(value, Spread) else value
    if not isinstance(number, Real):
        return str(number)
    key = float(number)
    if math.isinf(key):
        return "Infinity" if key > 0 else "-Infinity"
    return "" if math.isnan(key) else repr(key)
