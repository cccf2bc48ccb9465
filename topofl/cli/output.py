"""Tables of commands as text, Markdown, JSON or CSV."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from topofl._support.files import naming
from topofl._support.table import NotApplicable, Spread, Table
from topofl.cli.as_json import print_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from topofl.summary import Summary

__all__ = [
    "check_picture",
    "json_rows",
    "plain_cell",
    "print_json",
    "print_table",
    "save_picture",
    "with_columns",
]

Shown = TypeVar("Shown", Table, "Summary")


def check_picture(option: str, path: Path) -> None:
    """Raise unless pictures can be written with the suffix of a path, before they are computed."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise ValueError(f"`{option}` must end in .png, .pdf or .svg, got {path.name}")


def save_picture(figure: "Figure", path: Path) -> None:
    """Write a picture to a file, which errors such as those of a full disk name."""
    with naming(path):
        figure.savefig(path)


def with_columns(shown: Shown, columns: Sequence[str] | None) -> Shown:
    """Return a table or summary with the columns of ``--columns``, all of them for None.

    Raises
    ------
    ValueError
        If there are none, or one of them is not known or given twice.
    """
    if columns is None:
        return shown
    if not columns:
        raise ValueError("`--columns` must name at least one column, got none; omit it for all")
    try:
        return shown.select(columns)
    except ValueError as error:
        raise ValueError(str(error).replace("`columns`", "`--columns`")) from None


def print_table(
    table: Table, options: argparse.Namespace, printed: Sequence[str] | None = None
) -> None:
    """Print a table as text, Markdown or JSON; with ``--csv``, also write it to a file.

    JSON and the file have all columns. Text has those of `printed`; None for all.
    """
    if options.csv is not None:
        table.to_csv(options.csv)
    if options.json:
        print_json(table)
        return
    shown = table if printed is None else table.select(printed)
    if getattr(options, "latex", False):
        print(shown.to_latex(booktabs=True))
    else:
        print(shown.to_markdown() if options.markdown else shown)


def print_json(table: Table) -> None:
    """Print a table as a JSON list with one object per row."""
    print_rows(json_rows(table))


def json_rows(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON values: null for n/a, and an object for a spread."""
    return [
        {name: plain_cell(cell) for name, cell in zip(table.columns, row, strict=True)}
        for row in table.rows
    ]


def plain_cell(cell: Any) -> Any:
    """Return a cell as a JSON value."""
    if isinstance(cell, Spread):
        return {"mean": cell.mean, "low": cell.low, "high": cell.high}
    if isinstance(cell, NotApplicable):
        return None
    return cell.item() if isinstance(cell, np.generic) else cell
