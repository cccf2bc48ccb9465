"""Progress bars of computations that can take long."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from topofl._support.callers import in_notebook

__all__ = ["PATIENCE", "waited_for"]

PATIENCE = 5.0
"""Seconds before a bar is shown."""

T = TypeVar("T")


def waited_for(items: Sequence[T], title: str, unit: str) -> Iterator[T]:
    """Return the items one by one, with a progress bar that appears after a few seconds.

    The bar is shown in notebooks and on terminals only, and disappears at the end.

    Parameters
    ----------
    items
        What is worked on.
    title, unit
        Words before the bar, and the name of one item.

    Examples
    --------
    >>> [2 * k for k in waited_for([1, 2, 3], "doubles", "number")]
    [2, 4, 6]
    """
    from tqdm.auto import tqdm

    quiet = False if in_notebook() else None  # None: silent unless on a terminal
    bar = {"desc": title, "unit": unit, "disable": quiet, "leave": False, "delay": PATIENCE}
    return iter(tqdm(items, **bar))
