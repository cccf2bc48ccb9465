"""New figures, and the axes that plots are drawn on."""

import io
from functools import partial
from typing import TYPE_CHECKING, Any

from topofl._support.check import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["empty_figure", "figure_of", "new_axes"]


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
