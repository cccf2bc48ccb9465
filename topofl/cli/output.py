"""What commands print: notes, and tables as text, Markdown, JSON or CSV; and their pictures.

Short commands print notes and JSON without numpy, which takes long to load.
"""

import json
import math
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from topofl._support.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from topofl._support.table import Table
    from topofl.summary import Summary

Shown = TypeVar("Shown", "Table", "Summary")


class CommandFailed(RuntimeError):
    """A command was right but failed for a reason that its message gives; the exit code is 1."""


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on stderr, one line each."""
    for note in notes:
        print(f"topofl: note: {printable(note)}", file=sys.stderr)


def print_remark(text: str, is_json: bool) -> None:
    """Print a sentence on what was done; with ``--json`` as a note, since stdout is for JSON."""
    print_notes([text]) if is_json else print(printable(text))


def runs_text(count: int) -> str:
    """Return a number of runs as text.

    Examples
    --------
    >>> runs_text(1), runs_text(2)
    ('1 run', '2 runs')
    """
    return f"{count} run{'s' * (count != 1)}"


def print_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows as a JSON list of objects: null for NaN, and "inf" for infinity."""
    plain = [{key: _plain(value) for key, value in row.items()} for row in rows]
    print(json.dumps(plain, indent=2, allow_nan=False, default=str))


def _plain(value: Any) -> Any:
    """Return a value that JSON has: it has neither NaN nor infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def json_rows(table: "Table") -> list[dict[str, Any]]:
    """Return the rows of a table as JSON values: null for n/a, and an object for a spread."""
    rows = (zip(table.columns, row, strict=True) for row in table.rows)
    return [{name: plain_cell(cell) for name, cell in row} for row in rows]


def plain_cell(cell: Any) -> Any:
    """Return a cell as a JSON value."""
    from topofl._support.table import NotApplicable, Spread  # they load numpy

    if isinstance(cell, Spread):
        return {"mean": cell.mean, "low": cell.low, "high": cell.high}
    if isinstance(cell, NotApplicable):
        return None
    return cell.item() if hasattr(cell, "item") else cell  # a number of numpy


def print_table(
    table: "Table",
    options: Namespace,
    printed: Sequence[str] | None = None,
    *,
    rounded: Any = None,
    notes: Iterable[str] = (),
) -> None:
    """Print a table as text, Markdown or JSON; with ``--csv``, also write it to a file.

    JSON and the file have all columns. Text has those of `printed`; None for all. A summary or a
    recommendation has its own text, `rounded`, which includes the notes that are printed for JSON.
    """
    if options.csv is not None:
        table.to_csv(options.csv)
    shown = table if printed is None else table.select(printed)
    if options.json:
        print_rows(json_rows(table))
        print_notes(notes)
    elif getattr(options, "latex", False):
        print(shown.to_latex(booktabs=True) if rounded is None else rounded.to_latex())
    else:
        shown = shown if rounded is None else rounded
        print(shown.to_markdown() if options.markdown else shown)


def by_options(text: str, names: Iterable[str]) -> str:
    """Return a message in which parameters are called by their options."""
    for name in names:
        text = text.replace(f"`{name}`", f"`--{name.replace('_', '-')}`")
    return text


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
        raise ValueError(by_options(str(error), ["columns"])) from None


def check_picture(option: str, path: Path) -> None:
    """Raise unless pictures can be written with the suffix of a path, before they are computed."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise ValueError(f"`{option}` must end in .png, .pdf or .svg, got {path.name}")


def save_picture(figure: "Figure", path: Path) -> None:
    """Write a picture to a file, which errors such as those of a full disk name."""
    from topofl._support.files import naming  # it loads more than help and notes need

    with naming(path):
        figure.savefig(path)
