"""What notebooks show: HTML of objects and pictures, and progress bars, as terminals do."""

import base64
import html
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from topofl._support.text import printable

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
    return progress_bar(items, title, unit, delay=PATIENCE)


def progress_bar(
    items: Sequence[T], title: str, unit: str, wanted: bool | str = "auto", **options: Any
) -> Iterator[T]:
    """Return the items, shown by a bar of tqdm; ``"auto"``: on terminals and in notebooks only."""
    with warnings.catch_warnings():  # a bar of text takes the place of a missing widget
        warnings.filterwarnings("ignore", "IProgress not found")
        from tqdm.auto import tqdm

    disable = not wanted
    if wanted == "auto":
        ipython = sys.modules.get("IPython")
        runs_cells = hasattr(ipython and ipython.get_ipython(), "kernel")
        disable = False if runs_cells else None  # None: silent unless on a terminal
    bar = {"desc": printable(title), "unit": unit, "disable": disable, "leave": False}
    return iter(tqdm(items, **bar, **options))


def as_html(text: str, picture: str = "") -> str:
    """Return text as an escaped paragraph with its line breaks, followed by a picture.

    Parameters
    ----------
    text
        The text, such as that of ``repr``.
    picture
        An HTML element; empty for none.

    Examples
    --------
    >>> as_html("History(a < b)")
    '<div><pre>History(a &lt; b)</pre></div>'
    """
    lines = [html.escape(printable(line)) for line in text.split("\n")]
    return f"<div><pre>{chr(10).join(lines)}</pre>{picture}</div>"


def paragraph(text: str) -> str:
    """Return escaped text as a paragraph.

    Examples
    --------
    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p>{html.escape(printable(text))}</p>"


def png_as_html(png: bytes, about: str, *, width: int | None = None) -> str:
    """Return a PNG image as an element that needs no other file.

    Parameters
    ----------
    png
        The file.
    about
        What it shows, for screen readers and as a tooltip.
    width
        Width in pixels, to which the image is enlarged without smoothing; None: its own.
    """
    text = html.escape(printable(about), quote=True)
    size = "" if width is None else f' width="{width}" style="image-rendering: pixelated"'
    data = base64.b64encode(png).decode("ascii")
    return f'<img alt="{text}" title="{text}"{size} src="data:image/png;base64,{data}">'
