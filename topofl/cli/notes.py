"""Notes on stderr, apart from the output of tables, which loads numpy."""

import sys
from collections.abc import Sequence

from topofl._support.text import printable

__all__ = ["print_notes", "runs_text"]


def print_notes(notes: Sequence[str]) -> None:
    """Print notes on stderr, one line each."""
    for note in notes:
        print(f"topofl: note: {printable(note)}", file=sys.stderr)


def runs_text(count: int) -> str:
    """Return a number of runs as text.

    Examples
    --------
    >>> runs_text(1), runs_text(2)
    ('1 run', '2 runs')
    """
    return f"{count} run{'s' * (count != 1)}"
