"""Matrices as images of their cells, in blocks if they are large."""

import io

import numpy as np

from topofl._drawing.picture import PLAIN
from topofl._support.notebook import png_as_html

__all__ = ["block_maxima", "matrix_as_html"]

CELLS = 128
"""Most cells per side of the small picture of a matrix; a cell of a larger one is a maximum."""

SIDE = 180
"""Width or height of the small picture of a matrix in pixels, whichever is larger."""


def block_maxima(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int], cells: int
) -> np.ndarray:
    """Return a matrix of non-negative entries; above `cells` per side, the maxima of blocks.

    Examples
    --------
    >>> ones = np.ones(2)
    >>> block_maxima(np.array([0, 3]), np.array([0, 1]), ones, (4, 2), cells=2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    height, width = (min(size, cells) for size in shape)
    image = np.zeros((height, width))
    places = rows * height // shape[0], columns * width // shape[1]
    np.maximum.at(image, places, values)
    return image


def matrix_as_html(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int], about: str
) -> str:
    """Return a small picture of a matrix, white at 0 and dark at its largest entry.

    Parameters
    ----------
    rows, columns, values
        The entries that are not 0; `values` are positive.
    shape
        Numbers of rows and columns.
    about
        What it shows.
    """
    from PIL import Image

    image = block_maxima(rows, columns, values, shape, CELLS)
    shares = image / (image.max() or 1.0)
    dark = np.array([int(PLAIN[k : k + 2], 16) for k in (1, 3, 5)])
    pixels = 255 - shares[:, :, None] * (255 - dark)
    stream = io.BytesIO()
    Image.fromarray(pixels.round().astype(np.uint8)).save(stream, "PNG", optimize=True)
    per_cell = max(1, SIDE // max(image.shape))
    return png_as_html(stream.getvalue(), about, width=per_cell * image.shape[1])
