"""Free places for labels: over no other label and no point, and over little of lines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from topofl._drawing.charts.style import FONT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

__all__ = ["GAP", "Box", "free_place", "label_text", "move_to", "sampled"]

Box = tuple[float, float, float, float]
"""Left, bottom, right and top of a rectangle, in pixels."""

GAP = 2.0
"""Free points between two labels."""

RADII = (7, 10, 14, 20, 28, 38, 50, 65, 85, 110, 140)
"""Distances of a label from its point that are tried, in points."""

ANGLES = (135, 315, 180, 0, 90, 270, 45, 225, 158, 338, 22, 202)
"""Directions that are tried, in degrees: first above and below a front that rises."""

STEP = 2.0
"""Distance between samples of a line, in points."""

NEARER = 30.0
"""What it costs a place, in points, to be nearer to another point than to that of its label."""

HALO = 2.0
"""Width of the white edge that separates a label from lines below it, in points."""


def label_text(ax: "Axes", label: str, color: str = "black") -> "Text":
    """Return the text of a label, with a white edge, which the caller moves to its place."""
    from matplotlib.patheffects import withStroke

    how = {"fontsize": FONT, "va": "center", "ha": "center", "parse_math": False}
    text = ax.text(0, 0, label, color=color, **how)
    text.set_in_layout(False)
    text.set_path_effects([withStroke(linewidth=HALO, foreground="white")])
    return text


def move_to(ax: "Axes", text: "Text", place: Box) -> None:
    """Move a centered text into a rectangle."""
    center = (place[0] + place[2]) / 2, (place[1] + place[3]) / 2
    text.set_position(tuple(ax.transData.inverted().transform(center)))


def sampled(ax: "Axes", lines: Sequence[np.ndarray], point: float) -> np.ndarray:
    """Return points along lines, (k, 2) in pixels.

    Parameters
    ----------
    ax
        Axes with final limits.
    lines
        (m, 2) corners of each line, in coordinates of data.
    point
        Pixels per point.
    """
    found = [np.zeros((0, 2))]
    for line in lines:
        corners = ax.transData.transform(line[np.isfinite(line).all(1)])
        if len(corners):
            along = np.append(0.0, np.hypot(*np.diff(corners, axis=0).T).cumsum())
            at = np.append(np.arange(0.0, along[-1], STEP * point), along[-1])
            found.append(np.stack([np.interp(at, along, values) for values in corners.T], axis=1))
    return np.concatenate(found)


def free_place(
    at: tuple[float, float],
    text: "Text",
    taken: Sequence[Box],
    lines: np.ndarray,
    point: float,
    *,
    others: np.ndarray | None = None,
    farthest: float = RADII[-1],
) -> tuple[Box, float] | None:
    """Return a free rectangle for a label near a point, and how much of lines it covers in points.

    It has the least sum of its distance and the length of the lines that it covers; places that are
    nearer to another point come last.

    Parameters
    ----------
    at
        The point in pixels.
    text
        The label.
    taken
        Rectangles that it must not meet.
    lines
        (k, 2) samples of lines from :func:`sampled`.
    point
        Pixels per point.
    others
        (k, 2) the other points in pixels; None for none.
    farthest
        Largest distance that is tried, in points.
    """
    extent, inside = text.get_window_extent(), text.axes.get_window_extent()  # pyright: ignore[reportOptionalMemberAccess]
    half = np.array([extent.width, extent.height]) / 2 + GAP * point / 2
    radii = np.array([radius for radius in RADII if radius <= farthest])
    angles = np.radians(ANGLES)
    ways = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    centers = np.array(at) + ways * (radii[:, None, None] * point + half)  # (radii, angles, 2)
    low, high = (centers + sign * half for sign in (-1, 1))
    free = ((low >= inside.min) & (high <= inside.max)).all(-1)
    for box in taken:
        free &= ~((low < box[2:]) & (high > box[:2])).all(-1)
    if not free.any():
        return None
    covered = np.zeros(free.shape)
    near = lines[((lines > low.min((0, 1))) & (lines < high.max((0, 1)))).all(1)]
    for k, m in zip(*np.nonzero(free), strict=True):
        covered[k, m] = STEP * ((near > low[k, m]) & (near < high[k, m])).all(1).sum()
    costs = np.where(free, radii[:, None] + covered, np.inf)
    if others is not None and len(others):
        away = np.maximum(low[..., None, :] - others, others - high[..., None, :]).clip(0)
        nearest = np.hypot(*np.moveaxis(away, -1, 0)).min(-1)
        costs += NEARER * (nearest < radii[:, None] * point)
    best = np.unravel_index(np.argmin(costs), costs.shape)
    box = (*low[best].tolist(), *high[best].tolist())
    return box, float(covered[best])
