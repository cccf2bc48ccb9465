"""Colors, line styles, wrapped labels, and the figures that plots are drawn in."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from topofl._drawing.picture import PALETTE
from topofl._support.check import shown
from topofl._support.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLORS", "FONT", "MUTED", "checked_axes", "new_figure", "set_font", "style", "wrapped"]

COLORS = tuple(PALETTE[k] for k in (2, 1, 4, 0, 6, 7, 8, 5))
"""Colors of topofl's pictures that are safe for color-blind readers and dark enough for lines."""

LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
"""Line styles, so that lines differ in print without colors."""

MUTED = "#C8C8C8"
"""Color of context: the other groups of a panel, and lines from labels to what they name."""

FONT = 8.0
"""Size of labels in points."""


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


def checked_axes(ax: Any) -> "tuple[Axes, Figure]":
    """Return the axes and its figure, or raise ``TypeError`` if it is no Axes."""
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    if not isinstance(ax, Axes):
        raise TypeError(
            "`ax` must be the Axes to draw on, such as matplotlib.pyplot.subplots()[1], or None, "
            f"got {shown(ax)}"
        )
    figure = ax.get_figure()
    while not isinstance(figure, Figure):  # axes of a subfigure
        figure = figure.figure  # pyright: ignore[reportOptionalMemberAccess]
    return ax, figure
