"""Labels next to points and lines, where they cover neither data nor each other."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from topofl._drawing.figures import FONT, MUTED, style, text_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text


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
    at: Sequence[float],
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


END = 8.0
"""Points between the end of a line and its label."""

KEY = 26.0
"""Points between the horizontal axis and labels that have a piece of their line next to them."""

EARLY = 0.06
"""Lines that end farther from the right, as a share of the axis, have a label at their own end."""

OWN = 20.0
"""Largest distance of such a label from the end of its line, in points."""

NEAR = 14.0
"""Labels farther from their point than this, in points, are joined to it by a line."""


class End(NamedTuple):
    """The last point of a line, its label, and the position of its style."""

    label: str
    x: float
    y: float
    position: int


def line_height(labels: Sequence[str]) -> float:
    r"""Return the height in inches that labels need, one below the other.

    Examples
    --------
    >>> round(line_height(["ring", "dcliques,\nclique_size=10"]), 2)
    0.48
    """
    return sum(1.25 * FONT * (1 + text.count("\n")) + GAP for text in labels) / 72 + 0.01


def spread(wanted: np.ndarray, heights: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return positions near the wanted ones at which labels do not overlap.

    Parameters
    ----------
    wanted
        (k,) centers that labels would have without the others.
    heights
        (k,) heights of the labels.
    low, high
        Ends of the range that all labels must lie in; it has to be as high as all of them.

    Returns
    -------
    np.ndarray
        (k,) centers: of those without overlaps, the ones with the least squared distance from the
        wanted ones, moved into the range.

    Examples
    --------
    >>> spread(np.array([5.0, 5.0, 9.0]), np.array([2.0, 2.0, 2.0]), 0.0, 10.0).tolist()
    [4.0, 6.0, 9.0]
    """
    from scipy.optimize import isotonic_regression

    order = np.argsort(wanted, kind="stable")
    below = np.cumsum(heights[order]) - heights[order] / 2  # of all labels below each center
    bottoms = isotonic_regression(wanted[order] - below).x
    centers = np.empty(len(wanted))
    centers[order] = np.clip(bottoms, low, high - heights.sum()) + below
    return centers


Labeled = tuple[End, "Text"]
"""The end of a line, and the text of its label."""


def label_lines(axes: "Sequence[Axes]", ends: Sequence[Sequence[End]]) -> None:
    """Write labels to the right of the axes, in room made there, next to the ends of lines.

    Lines that end earlier have their labels at their own ends. If these have no room there, all
    labels are to the right, with a short piece of their line. Lines without a finite number have
    no label.

    Parameters
    ----------
    axes
        Panels that share their axes, or a single one, with final vertical limits.
    ends
        Per panel, the last points of its lines.

    Raises
    ------
    ValueError
        If the axes of the caller are too small for the labels.
    """
    rows = [
        [(end, _text(ax, *end)) for end in row if np.isfinite(end.y)]
        for ax, row in zip(axes, ends, strict=False)
    ]
    if not any(rows):
        return
    figure = axes[0].figure
    figure.draw_without_rendering()  # pyright: ignore[reportAttributeAccessIssue]
    point = figure.dpi / 72
    left, last = axes[0].get_xlim()
    limit = last - EARLY * (last - left)
    is_any_early = any(end.x < limit for row in rows for end, _ in row)
    width = max(text.get_window_extent().width for row in rows for _, text in row)
    per_point = _make_room(axes, width + ((KEY if is_any_early else END) + GAP) * point, point)
    start, key = last + END * per_point, last + KEY * per_point
    early = [[one for one in row if one[0].x < limit] for row in rows]
    late = [[one for one in row if not one[0].x < limit] for row in rows]
    placed = [
        _at_own_ends(*panel, start, point) if panel[1] else True
        for panel in zip(axes, early, late, strict=False)
    ]
    for ax, row in zip(axes, late if all(placed) else rows, strict=False):
        _column(ax, row, start if all(placed) else key, point)
        for end, text in row:
            y, how = text.get_position()[1], style(end.position)
            if all(placed):  # joined to the end of its line
                places = [end.x, end.x + 0.9 * (start - end.x)], [end.y, y]
                ax.plot(*places, color=how["color"], linewidth=0.6, alpha=0.6)
            else:  # with a short piece of its line
                piece = last + per_point * np.array([8.0, KEY - 3])
                ax.plot(piece, [y, y], linewidth=1.5, **how)


def _text(ax: "Axes", label: str, x: float, y: float, position: int | None) -> "Text":
    """Return the text of a label, of which the layout knows nothing: room for it is made."""
    color = "black" if position is None else text_color(style(position)["color"])
    text = ax.text(x, y, label, fontsize=FONT, va="center", parse_math=False, color=color)
    text.set_in_layout(False)
    return text


def _make_room(axes: "Sequence[Axes]", used: float, point: float) -> float:
    """Lengthen the horizontal axis by pixels for labels; return the width of a point in data."""
    left, right = axes[0].get_xlim()
    room = axes[0].get_window_extent().width
    if used > 0.7 * room:
        raise ValueError(
            f"`ax` must be at least {used / 0.7 / point / 72:.1f} inches wide for its labels, got "
            f"{room / point / 72:.1f}; leave it out"
        )
    per_pixel = (right - left) / (room - used)
    for ax in axes:
        ticks = [tick for tick in ax.get_xticks() if left <= tick <= right * (1 + 1e-9)]
        ax.set_xlim(left, right + used * per_pixel)
        ax.set_xticks(ticks)
        ax.spines["bottom"].set_bounds(left, right)
    return point * per_pixel


def _column(ax: "Axes", labeled: Sequence[Labeled], start: float, point: float) -> None:
    """Move labels to a column, each as near to the height of its line as the others allow."""
    if not labeled:
        return
    box = ax.get_window_extent()
    heights = np.array([text.get_window_extent().height for _, text in labeled]) + GAP * point
    if heights.sum() > box.height:
        raise ValueError(
            f"`ax` must be at least {heights.sum() / point / 72:.1f} inches high for its labels, "
            f"got {box.height / point / 72:.1f}; leave it out"
        )
    points = [(end.x, end.y) for end, _ in labeled]
    wanted, to_data = ax.transData.transform(points)[:, 1], ax.transData.inverted()
    centers = spread(wanted, heights, box.y0, box.y1)
    for (_, text), center in zip(labeled, centers, strict=True):
        text.set_position((start, float(to_data.transform((0, center))[1])))
        text.set_horizontalalignment("left")


def _at_own_ends(
    ax: "Axes", early: Sequence[Labeled], late: Sequence[Labeled], start: float, point: float
) -> bool:
    """Move the labels of lines that end early to these ends; return whether all had room there.

    They cover no line, and none of the labels of the other lines in their column.
    """
    _column(ax, late, start, point)
    taken: list[Box] = [text.get_window_extent().extents for _, text in late]
    lines = sampled(ax, [line.get_xydata() for line in ax.lines], point)  # pyright: ignore[reportArgumentType]
    for end, text in sorted(early, key=lambda one: -one[0].x):
        at = ax.transData.transform((end.x, end.y)).tolist()
        found = free_place(at, text, taken, lines, point, farthest=OWN)
        if found is None or found[1] > 0:
            return False
        taken.append(found[0])
        text.set_horizontalalignment("center")
        _move_to(ax, text, found[0])
    return True


def _move_to(ax: "Axes", text: "Text", place: Box) -> None:
    """Move a centered text into a rectangle."""
    center = (place[0] + place[2]) / 2, (place[1] + place[3]) / 2
    text.set_position(tuple(ax.transData.inverted().transform(center)))


def label_points(
    ax: "Axes",
    points: Any,
    labels: Sequence[str],
    lines: Sequence[np.ndarray] = (),
    *,
    ink: str | None = None,
) -> bool:
    """Write a label near each point, over no other label and no point; return whether all fit.

    If not, none is written.

    Parameters
    ----------
    ax
        Axes with final limits.
    points
        (k, 2) coordinates of the points; earlier ones have the first choice of places.
    labels
        Their labels; empty ones are not written.
    lines
        (m, 2) corners of lines that labels avoid if there is room elsewhere.
    ink
        Color of labels and of lines to them, on backgrounds of any color; None: black on white.
    """
    from matplotlib.patheffects import withStroke

    ax.figure.draw_without_rendering()  # pyright: ignore[reportAttributeAccessIssue]
    point = ax.figure.dpi / 72
    places, size = ax.transData.transform(points), 3.5 * point
    taken: list[Box] = [(x - size, y - size, x + size, y + size) for x, y in places.tolist()]
    avoided = sampled(ax, lines, point)
    texts = []
    for k, (label, place) in enumerate(zip(labels, places.tolist(), strict=True)):
        if not label:
            continue
        texts.append(text := _text(ax, label, 0, 0, None))
        text.set_horizontalalignment("center")
        if ink is None:
            text.set_path_effects([withStroke(linewidth=HALO, foreground="white")])
        else:
            text.set_color(ink)
        others = np.delete(places, k, axis=0)
        found = free_place(place, text, taken, avoided, point, others=others)
        if found is None:
            for written in texts:
                written.remove()
            return False
        taken.append(found[0])
        _move_to(ax, text, found[0])
        nearest = np.clip(place, found[0][:2], found[0][2:])
        if math.dist(place, nearest) > NEAR * point:
            line = ax.transData.inverted().transform([place, nearest])
            ax.plot(*line.T, color=ink or MUTED, linewidth=0.6, zorder=1)
            avoided = np.concatenate([avoided, sampled(ax, [line], point)])
    return True
