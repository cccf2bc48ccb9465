"""Picture files."""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["save_picture"]

COLORS = 256
"""Colors of a picture; lines and text need few."""


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
    >>> figure = Figure(figsize=(2, 1))
    >>> path = save_picture(figure, Path(tempfile.mkdtemp(), "empty.png"), dpi=50)
    >>> with Image.open(path) as picture:
    ...     picture.size
    (100, 50)
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi, format="png")
    with Image.open(drawn) as image:
        few = image.convert("RGB").quantize(
            COLORS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    few.save(path, "PNG", optimize=True)
    return Path(path)
