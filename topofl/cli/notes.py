"""Notes on stderr, apart from the output of tables, which loads numpy."""

import sys
from collections.abc import Sequence

from topofl._support.text import printable

__all__ = ["print_notes"]


def print_notes(notes: Sequence[str]) -> None:
    """Print notes on stderr, one line each."""
    for note in notes:
        print(f"topofl: note: {printable(note)}", file=sys.stderr)
