"""Labels next to points and lines, where they cover neither data nor each other."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

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
    """The last point of a line, its label, and the position of its style.

    Examples
    --------
    >>> End("ring", 30.0, 0.8, 0).color
    '#332288'
    """

    label: str
    x: float
    y: float
    position: int

    @property
    def color(self) -> str:
        """The color of the line."""
        return style(self.position)["color"]


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
    order = np.argsort(wanted, kind="stable")
    blocks: list[list[float]] = []  # sum of (wanted - offset), labels, height
    for k in order:
        blocks.append([float(wanted[k] - heights[k] / 2), 1, float(heights[k])])
        while len(blocks) > 1 and _bottom(blocks[-2], low, high) + blocks[-2][2] > _bottom(
            blocks[-1], low, high
        ):
            above = blocks.pop()
            blocks[-1][0] += above[0] - above[1] * blocks[-1][2]
            blocks[-1][1] += above[1]
            blocks[-1][2] += above[2]
    centers, position = np.empty(len(wanted)), 0
    for block in blocks:
        bottom = _bottom(block, low, high)
        for k in order[position : position + int(block[1])]:
            centers[k] = bottom + heights[k] / 2
            bottom += heights[k]
        position += int(block[1])
    return centers


def _bottom(block: list[float], low: float, high: float) -> float:
    """Return where a block of labels begins."""
    return min(max(block[0] / block[1], low), high - block[2])


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
    ends = [[end for end in row if np.isfinite(end.y)] for row in ends]
    if not any(ends):
        return
    figure = axes[0].figure
    texts = [_texts(ax, row) for ax, row in zip(axes, ends, strict=False)]
    figure.draw_without_rendering()  # pyright: ignore[reportAttributeAccessIssue]
    point = figure.dpi / 72
    left, last = axes[0].get_xlim()
    early = [[end.x < last - EARLY * (last - left) for end in row] for row in ends]
    gap = KEY if any(map(any, early)) else END
    per_point = _make_room(axes, texts, point, gap)
    panels = list(zip(axes, ends, texts, early, strict=False))
    placed = [
        _at_own_ends(*panel, last + END * per_point, point) if any(panel[-1]) else True
        for panel in panels
    ]
    for ax, row, own, is_early in panels:
        if all(placed):
            late = [k for k, stopped in enumerate(is_early) if not stopped]
            start = last + END * per_point
            _column(ax, [row[k] for k in late], [own[k] for k in late], start, point)
            _join_ends(ax, [row[k] for k in late], [own[k] for k in late], start)
        else:
            _column(ax, row, own, last + KEY * per_point, point)
            _add_pieces(ax, row, own, last + per_point * np.array([8.0, KEY - 3]))


def _texts(ax: "Axes", ends: Sequence[End]) -> "list[Text]":
    """Return the texts of labels, of which the layout knows nothing: room for them is made."""
    how = {"fontsize": FONT, "va": "center", "parse_math": False}
    texts = []
    for end in ends:
        texts.append(ax.text(end.x, end.y, end.label, color=text_color(end.color), **how))
        texts[-1].set_in_layout(False)
    return texts


def _make_room(
    axes: "Sequence[Axes]", texts: "Sequence[Sequence[Text]]", point: float, gap: float
) -> float:
    """Lengthen the horizontal axis for labels; return the width of a point in data."""
    left, right = axes[0].get_xlim()
    width = max(text.get_window_extent().width for row in texts for text in row)
    room = axes[0].get_window_extent().width
    used = width + (gap + GAP) * point
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


def _column(
    ax: "Axes", ends: Sequence[End], texts: "Sequence[Text]", start: float, point: float
) -> None:
    """Move labels to a column, each as near to the height of its line as the others allow."""
    box = ax.get_window_extent()
    heights = np.array([text.get_window_extent().height for text in texts]) + GAP * point
    if heights.sum() > box.height:
        raise ValueError(
            f"`ax` must be at least {heights.sum() / point / 72:.1f} inches high for its labels, "
            f"got {box.height / point / 72:.1f}; leave it out"
        )
    wanted = ax.transData.transform([(end.x, end.y) for end in ends] or np.zeros((0, 2)))[:, 1]
    to_data = ax.transData.inverted()
    for text, center in zip(texts, spread(wanted, heights, box.y0, box.y1), strict=True):
        text.set_position((start, float(to_data.transform((0, center))[1])))
        text.set_horizontalalignment("left")


def _join_ends(ax: "Axes", ends: Sequence[End], texts: "Sequence[Text]", start: float) -> None:
    """Draw lines from the ends of curves to their labels in a column."""
    for end, text in zip(ends, texts, strict=True):
        places = [end.x, end.x + 0.9 * (start - end.x)], [end.y, text.get_position()[1]]
        ax.plot(*places, color=end.color, linewidth=0.6, alpha=0.6)


def _add_pieces(
    ax: "Axes", ends: Sequence[End], texts: "Sequence[Text]", places: np.ndarray
) -> None:
    """Draw a short piece of each line next to its label in a column."""
    for end, text in zip(ends, texts, strict=True):
        ax.plot(places, [text.get_position()[1]] * 2, linewidth=1.5, **style(end.position))


def _at_own_ends(
    ax: "Axes",
    ends: Sequence[End],
    texts: "Sequence[Text]",
    is_early: Sequence[bool],
    start: float,
    point: float,
) -> bool:
    """Move the labels of lines that end early to these ends; return whether all had room there.

    They cover no line, and none of the labels of the other lines in their column.
    """
    late = [k for k, stopped in enumerate(is_early) if not stopped]
    _column(ax, [ends[k] for k in late], [texts[k] for k in late], start, point)
    taken: list[Box] = [texts[k].get_window_extent().extents for k in late]
    lines = sampled(ax, [line.get_xydata() for line in ax.lines], point)  # pyright: ignore[reportArgumentType]
    for k in sorted(set(range(len(ends))) - set(late), key=lambda k: -ends[k].x):
        x, y = ax.transData.transform((ends[k].x, ends[k].y)).tolist()
        found = free_place((x, y), texts[k], taken, lines, point, farthest=OWN)
        if found is None or found[1] > 0:
            return False
        taken.append(found[0])
        texts[k].set_horizontalalignment("center")
        move_to(ax, texts[k], found[0])
    return True


def label_points(
    ax: "Axes",
    points: Sequence[tuple[float, float]],
    labels: Sequence[str],
    lines: Sequence[np.ndarray] = (),
) -> "list[Text] | None":
    """Write a label near each point, over no other label and no point; None if there is no room.

    Parameters
    ----------
    ax
        Axes with final limits.
    points
        Coordinates of the points; earlier ones have the first choice of places.
    labels
        Their labels; empty ones are not written.
    lines
        (m, 2) corners of lines that labels avoid if there is room elsewhere.
    """
    ax.figure.draw_without_rendering()  # pyright: ignore[reportAttributeAccessIssue]
    point = ax.figure.dpi / 72
    places, size = ax.transData.transform(points), 3.5 * point
    taken: list[Box] = [(x - size, y - size, x + size, y + size) for x, y in places.tolist()]
    avoided = sampled(ax, lines, point)
    texts = []
    for k, (label, place) in enumerate(zip(labels, places.tolist(), strict=True)):
        if not label:
            continue
        texts.append(label_text(ax, label))
        others = np.delete(places, k, axis=0)
        found = free_place(place, texts[-1], taken, avoided, point, others=others)
        if found is None:
            for text in texts:
                text.remove()
            return None
        taken.append(found[0])
        move_to(ax, texts[-1], found[0])
        if (line := _join(ax, place, found[0], point)) is not None:
            avoided = np.concatenate([avoided, sampled(ax, [line], point)])
    return texts


def _join(ax: "Axes", start: Sequence[float], label: Box, point: float) -> np.ndarray | None:
    """Draw a line from a point to a label that is not next to it, and return its ends."""
    nearest = (
        min(max(start[0], label[0]), label[2]),
        min(max(start[1], label[1]), label[3]),
    )
    if math.dist(start, nearest) <= NEAR * point:
        return None
    ends = ax.transData.inverted().transform([start, nearest])
    ax.plot(*ends.T, color=MUTED, linewidth=0.6, zorder=1)
    return ends
