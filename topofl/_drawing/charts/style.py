"""The style of all charts: colors, line styles, sizes, wrapped labels, and new figures."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from topofl._drawing.axes import new_axes
from topofl._drawing.picture import PALETTE, PLAIN
from topofl._support.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLORS",
    "COLUMN",
    "FONT",
    "INK",
    "MEASURED",
    "MUTED",
    "RULE",
    "THEORY",
    "WIDE",
    "checked_axes",
    "legend_above",
    "new_figure",
    "own_axes",
    "set_font",
    "style",
    "wrapped",
]

COLORS = tuple(PALETTE[k] for k in (2, 1, 4, 0, 6, 7, 8, 5))
"""Colors of topofl's pictures that are safe for color-blind readers and dark enough for lines."""

LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
"""Line styles, so that lines differ in print without colors."""

MUTED = "#C8C8C8"
"""Color of context: the other groups of a panel, and lines from labels to what they name."""

INK, RULE = "#1a1b1c", "#dadbdc"
"""Colors of text and of grids in reports."""

MEASURED, THEORY = PLAIN.lower(), "#b84a00"
"""Colors of measured and of predicted values, also the color of what has no groups."""

FONT = 8.0
"""Size of labels in points, which is readable in a paper without scaling."""

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


def wrapped(text: str, width: int, lines: int = 3) -> str:
    r"""Return a label on several lines, shortened if these do not suffice.

    Examples
    --------
    >>> wrapped("dcliques, clique_size=10, inter=ring", 16)
    'dcliques,\nclique_size=10,\ninter=ring'
    """
    found = textwrap.wrap(printable(text), width, break_on_hyphens=False) or [""]
    if len(found) > lines:
        found = [*found[: lines - 1], f"{found[lines - 1][: width - 3].rstrip()}..."]
    return "\n".join(found)


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> "Sequence[Axes]":
    """Return the axes of a new figure that pyplot does not know, row by row.

    So no figure stays open, and threads can draw concurrently.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for ax in grid.flat:
        set_font(ax)
    return list(grid.flat)


def set_font(ax: "Axes") -> None:
    """Set the sizes of ticks, and remove the lines above and to the right of the axes."""
    ax.tick_params(labelsize=FONT)
    ax.spines[["top", "right"]].set_visible(False)


def own_axes(width: float, height: float) -> "Axes":
    """Return the axes of a new figure of pyplot, which notebooks show."""
    ax = new_axes(None, (width, height))
    set_font(ax)
    return ax


def legend_above(ax: "Axes") -> None:
    """Add a legend above axes without a title, where it covers no data."""
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    ax.legend(fontsize=FONT, frameon=False, **place)


def checked_axes(ax: Any) -> "tuple[Axes, Figure]":
    """Return the axes and its figure, or raise ``TypeError`` if it is no Axes."""
    from matplotlib.figure import Figure

    ax = new_axes(ax)
    figure = ax.get_figure()
    while not isinstance(figure, Figure):  # axes of a subfigure
        figure = figure.figure  # pyright: ignore[reportOptionalMemberAccess]
    return ax, figure
