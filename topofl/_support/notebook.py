"""HTML that notebooks show: the text of an object, and a small picture."""

import base64
import html

from topofl._support.text import printable

__all__ = ["as_html", "paragraph", "png_as_html"]


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
