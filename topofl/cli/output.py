"""Tables of commands as text, Markdown, JSON or CSV."""

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from topofl._support.table import NotApplicable, Spread, Table

__all__ = ["print_table"]


def print_table(table: Table, options: argparse.Namespace) -> None:
    """Print a table as text, Markdown or JSON; with ``--csv``, also write it to a file."""
    if options.csv is not None:
        table.to_csv(options.csv)
    if options.json:
        print(json.dumps([_as_json(table.columns, row) for row in table.rows], indent=2))
    else:
        print(table.to_markdown() if options.markdown else table)


def _as_json(columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """Return a row as JSON values: null for n/a, "inf" for infinity, an object for a spread."""

    def plain(cell: Any) -> Any:
        if isinstance(cell, Spread):
            return {"mean": cell.mean, "low": cell.low, "high": cell.high}
        if isinstance(cell, float) and not np.isfinite(cell):
            return str(cell)  # JSON has no infinity
        return (
            None
            if isinstance(cell, NotApplicable)
            else cell.item()
            if isinstance(cell, np.generic)
            else cell
        )

    return {column: plain(cell) for column, cell in zip(columns, row, strict=True)}
