"""The small picture of a history in notebooks."""

import io
from typing import TYPE_CHECKING

import numpy as np

from topofl._drawing.charts.style import COLUMN
from topofl._support.notebook import as_html, png_as_html
from topofl.history.plots.single import plot

if TYPE_CHECKING:
    from topofl.history.history import History

__all__ = ["history_as_html"]

HEIGHT = 2.0
"""Height of the picture in inches."""


def history_as_html(history: "History") -> str:
    """Return the text of a history and, if it has several evaluations, its learning curve."""
    values = history.evaluations.get(history.primary, np.zeros(0))
    if np.ndim(values) != 2 or len(values) < 2 or not np.isfinite(values).any():
        return as_html(repr(history))
    from matplotlib.figure import Figure  # loaded where a history is shown, which few programs do

    figure = Figure(figsize=(COLUMN, HEIGHT), dpi=80, layout="constrained")
    ax = figure.subplots()
    plot(history, None, "band", ax, "curve")
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    about = f"{ax.get_ylabel()} by {ax.get_xlabel()}".replace("\n", " ")
    return as_html(repr(history), png_as_html(stream.getvalue(), about))
