"""The style of all figures: colors, sizes, new figures and axes, labels, and files."""

import io
import os
import re
import textwrap
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._support.check import shown
from topofl._support.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def empty_figure(width: float | None = None, height: float | None = None) -> "Figure":
    """Return a figure that pyplot does not know but notebooks show; None: matplotlib's size.

    So no figure stays open, and threads can draw concurrently.
    """
    from matplotlib.figure import Figure

    size = None if width is None or height is None else (width, height)
    figure = Figure(figsize=size, layout="constrained")
    # IPython knows how to show a Figure only after pyplot has drawn one.
    setattr(figure, "_repr_png_", partial(_png, figure))  # noqa: B010
    return figure


def _png(figure: "Figure") -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def new_axes(ax: Any, width: float | None = None, height: float | None = None) -> "Axes":
    """Return `ax`, or the Axes of a new figure if it is None; raise ``TypeError`` for others."""
    if ax is None:
        return empty_figure(width, height).subplots()
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise TypeError(
            "`ax` must be the Axes to draw on, such as matplotlib.pyplot.subplots()[1], or None, "
            f"got {shown(ax)} ({type(ax).__name__})"
        )
    return ax


def figure_of(ax: "Axes") -> "Figure":
    """Return the figure of axes, also of those of a subfigure: what all plots return."""
    from matplotlib.figure import Figure

    figure = ax.get_figure()
    while not isinstance(figure, Figure):
        figure = figure.figure  # pyright: ignore[reportOptionalMemberAccess]
    return figure


PALETTE = (
    "#44AA99",
    "#CC6677",
    "#332288",
    "#DDCC77",
    "#117733",
    "#88CCEE",
    "#882255",
    "#999933",
    "#AA4499",
    "#BBBBBB",
)
"""Paul Tol's "muted" color scheme, which is color-blind safe."""

PLAIN = "#0072B2"
"""Color of what has no groups."""

COLORS = tuple(PALETTE[k] for k in (2, 1, 4, 0, 6, 7, 8, 5))
"""Colors of topofl's pictures that are safe for color-blind readers and dark enough for lines."""

LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
"""Line styles, so that lines differ in print without colors."""

MUTED = "#C8C8C8"
"""Color of context: the other groups of a panel, and lines from labels to what they name."""

INK, RULE = "#1a1b1c", "#dadbdc"
"""Colors of text and of grids in reports."""

MEASURED, THEORY = PLAIN.lower(), "#b84a00"
"""Colors of measured and of predicted values."""

FONT = 8.0
"""Size of labels in points, which is readable in a paper without scaling."""

BREAKS = re.compile(r"(?=\()|[_,/]")
"""Where a word that is too long is divided: before a bracket, and after these characters."""

COLUMN, WIDE = 3.5, 5.5
"""Widths in inches of a column of a two-column paper, and of a page with one column."""


def style(position: int) -> dict[str, Any]:
    """Return color and line style of the group at a position of a panel.

    Examples
    --------
    >>> style(0)["color"] == style(8)["color"], style(0) == style(1)
    (True, False)
    """
    return {"color": COLORS[position % len(COLORS)], "linestyle": LINES[position % len(LINES)]}


def text_color(color: str) -> str:
    """Return a color, darkened until text in it can be read on white (contrast 4.5 of WCAG 2.1).

    Examples
    --------
    >>> text_color("#332288"), text_color("#88CCEE")
    ('#332288', '#517a8e')
    """
    from matplotlib.colors import to_hex, to_rgb

    channels = np.array(to_rgb(color))
    while 1.05 / (luminance(channels) + 0.05) < 4.5:
        channels *= 0.95
    red, green, blue = channels.tolist()
    return to_hex((red, green, blue))


def luminance(channels: np.ndarray) -> float:
    """Return the relative luminance of red, green and blue in [0, 1], as WCAG 2.1 defines it."""
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def wrapped(text: str, width: int, lines: int = 3) -> str:
    r"""Return a label on several lines, shortened if these do not suffice.

    Examples
    --------
    >>> wrapped("dcliques, clique_size=10, inter=ring", 16)
    'dcliques,\nclique_size=10,\ninter=ring'
    >>> wrapped("fully_connected(n=60)", 18)
    'fully_connected\n(n=60)'
    """
    words = [part for word in printable(text).split() for part in _parts_of(word, width)]
    found = textwrap.wrap(" ".join(words), width, break_on_hyphens=False) or [""]
    if len(found) > lines:
        found = [*found[: lines - 1], f"{found[lines - 1][: width - 3].rstrip()}..."]
    return "\n".join(found)


def _parts_of(word: str, width: int) -> list[str]:
    """Return a word in parts of at most a width if it can be divided at punctuation."""
    parts = []
    while len(word) > width:
        ends = [found.end() for found in BREAKS.finditer(word) if 0 < found.end() <= width]
        if not ends:
            break
        parts.append(word[: ends[-1]])
        word = word[ends[-1] :]
    return [*parts, word]


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1, *, sharey: bool = True
) -> "list[Axes]":
    """Return the axes of a new figure from :func:`empty_figure`, row by row."""
    figure = empty_figure(width, height)
    grid = figure.subplots(rows, columns, sharex=True, sharey=sharey, squeeze=False)
    for ax in grid.flat:
        set_font(ax)
    return list(grid.flat)


def set_font(ax: "Axes") -> None:
    """Set the sizes of ticks, and remove the lines above and to the right of the axes."""
    ax.tick_params(labelsize=FONT)
    ax.spines[["top", "right"]].set_visible(False)


def own_axes(ax: Any, width: float, height: float) -> "Axes":
    """Return `ax`, or the axes of a new figure of charts; raise ``TypeError`` for others."""
    return new_figure(width, height)[0] if ax is None else new_axes(ax)


def legend_above(ax: "Axes") -> None:
    """Add a legend above axes without a title, where it covers no data."""
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    ax.legend(fontsize=FONT, frameon=False, **place)


def save_picture(figure: "Figure", path: str | os.PathLike[str], *, dpi: float = 100) -> Path:
    """Write a figure as a PNG file of few colors, about a third of the usual size.

    Parameters
    ----------
    figure
        Figure of matplotlib.
    path
        File to write; an existing one is replaced.
    dpi
        Dots per inch.

    Returns
    -------
    pathlib.Path
        The path.

    Raises
    ------
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from matplotlib.figure import Figure
    >>> from PIL import Image
    >>> figure = Figure(figsize=(2, 1))
    >>> path = save_picture(figure, Path(tempfile.mkdtemp(), "empty.png"), dpi=50)
    >>> with Image.open(path) as picture:
    ...     picture.size
    (100, 50)
    """
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi, format="png")
    with Image.open(drawn) as image:
        few = image.convert("RGB").quantize(
            256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    few.save(path, "PNG", optimize=True)
    return Path(path)
