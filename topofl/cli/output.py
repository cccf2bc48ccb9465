"""Tables of commands as text, Markdown, JSON or CSV."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topofl._support.table import NotApplicable, Spread, Table

__all__ = ["check_picture", "print_json", "print_table"]


def check_picture(option: str, path: Path) -> None:
    """Raise unless pictures can be written with the suffix of a path, before they are computed."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise ValueError(f"`{option}` must end in .png, .pdf or .svg, got {path.name}")


def print_table(table: Table, options: argparse.Namespace) -> None:
    """Print a table as text, Markdown or JSON; with ``--csv``, also write it to a file."""
    if options.csv is not None:
        table.to_csv(options.csv)
    if options.json:
        print_json(table)
    elif getattr(options, "latex", False):
        print(table.to_latex(booktabs=True))
    else:
        print(table.to_markdown() if options.markdown else table)


def print_json(table: Table) -> None:
    """Print a table as a JSON list with one object per row."""
    print(json.dumps([_as_json(table.columns, row) for row in table.rows], indent=2))


def _as_json(columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """Return a row as JSON values: null for n/a, "inf" for infinity, an object for a spread."""

    def plain(cell: Any) -> Any:
        if isinstance(cell, Spread):
            return {"mean": cell.mean, "low": cell.low, "high": cell.high}
        if isinstance(cell, float) and not np.isfinite(cell):  # JSON has neither
            return None if np.isnan(cell) else str(cell)
        return (
            None
            if isinstance(cell, NotApplicable)
            else cell.item()
            if isinstance(cell, np.generic)
            else cell
        )

    return {column: plain(cell) for column, cell in zip(columns, row, strict=True)}
