"""Labels next to what they name, without overlaps: at the ends of lines, and around points."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from topofl._drawing.charts.style import FONT, MUTED, text_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

__all__ = ["label_lines", "label_points", "line_height", "spread"]

GAP = 2.0
"""Free points between two labels."""

END = 8.0
"""Points between the end of a line and its label."""

NEAR = 14.0
"""Labels farther from their point than this, in points, are joined to it by a line."""

RADII = (7, 10, 14, 20, 28, 38, 50, 65, 85, 110, 140)
"""Distances of a label from its point that are tried, in points."""

ANGLES = (135, 315, 180, 0, 90, 270, 45, 225, 158, 338, 22, 202)
"""Directions that are tried, in degrees: first above and below a front that rises."""

HALO = 2.0
"""Width of the white edge that separates a label from lines below it, in points."""


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


def label_lines(
    axes: "Sequence[Axes]", ends: Sequence[Sequence[tuple[str, float, float, str]]]
) -> None:
    """Write labels to the right of the ends of lines, in room made on the horizontal axis.

    Parameters
    ----------
    axes
        Panels that share their axes, or a single one, with final vertical limits.
    ends
        Per panel, label, x, y and color of each line.

    Raises
    ------
    ValueError
        If the axes of the caller are too small for the labels.
    """
    figure = axes[0].figure
    how = {"fontsize": FONT, "va": "center", "parse_math": False}
    texts = []
    for ax, row in zip(axes, ends, strict=False):
        low = ax.get_ylim()[0]  # for a line without values: a text at NaN has no size
        heights = [y if np.isfinite(y) else low for _, _, y, _ in row]
        texts.append(
            [
                ax.text(x, height, label, color=text_color(color), **how)
                for (label, x, _, color), height in zip(row, heights, strict=True)
            ]
        )
    for text in (text for row in texts for text in row):
        text.set_in_layout(False)  # room for it is made inside of the axes
    figure.draw_without_rendering()  # pyright: ignore[reportAttributeAccessIssue]
    point = figure.dpi / 72
    right = _make_room(axes, texts, point)
    for ax, row, own in zip(axes, ends, texts, strict=False):
        _place(ax, row, own, right, point)


def _make_room(axes: "Sequence[Axes]", texts: "Sequence[Sequence[Text]]", point: float) -> float:
    """Lengthen the horizontal axis for labels; return where these start."""
    left, right = axes[0].get_xlim()
    width = max(text.get_window_extent().width for row in texts for text in row)
    room = axes[0].get_window_extent().width
    used = width + (END + GAP) * point
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
    return right + END * point * per_pixel


def _place(
    ax: "Axes",
    ends: Sequence[tuple[str, float, float, str]],
    texts: "Sequence[Text]",
    right: float,
    point: float,
) -> None:
    """Move the labels of a panel apart, and join them to their lines."""
    box = ax.get_window_extent()
    heights = np.array([text.get_window_extent().height for text in texts]) + GAP * point
    if heights.sum() > box.height:
        raise ValueError(
            f"`ax` must be at least {heights.sum() / point / 72:.1f} inches high for its labels, "
            f"got {box.height / point / 72:.1f}; leave it out"
        )
    wanted = ax.transData.transform([(x, y) for _, x, y, _ in ends])[:, 1]
    wanted = np.where(np.isfinite(wanted), wanted, box.y0)
    centers = spread(wanted, heights, box.y0, box.y1)
    to_data = ax.transData.inverted()
    for (_, x, y, color), text, center in zip(ends, texts, centers, strict=True):
        height = float(to_data.transform((0, center))[1])
        text.set_position((right, height))
        near = x + 0.9 * (right - x)
        ax.plot([x, near], [y, height], color=color, linewidth=0.6, alpha=0.6)


def label_points(
    ax: "Axes", points: Sequence[tuple[float, float]], labels: Sequence[str]
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
    """
    from matplotlib.patheffects import withStroke

    ax.figure.draw_without_rendering()  # pyright: ignore[reportAttributeAccessIssue]
    point = ax.figure.dpi / 72
    box, places = ax.get_window_extent(), ax.transData.transform(points)
    size = 3.5 * point
    taken = [(x - size, y - size, x + size, y + size) for x, y in places]
    texts = []
    for label, (x, y) in zip(labels, places, strict=True):
        if not label:
            continue
        text = ax.text(0, 0, label, fontsize=FONT, va="center", ha="center", parse_math=False)
        text.set_in_layout(False)
        text.set_path_effects([withStroke(linewidth=HALO, foreground="white")])
        texts.append(text)
        found = _free_place(x, y, text.get_window_extent(), taken, box, point)
        if found is None:
            for one in texts:
                one.remove()
            return None
        taken.append(found)
        center = (found[0] + found[2]) / 2, (found[1] + found[3]) / 2
        text.set_position(tuple(ax.transData.inverted().transform(center)))
        _join(ax, (x, y), found, point)
    return texts


def _free_place(
    x: float,
    y: float,
    extent: "Bbox",
    taken: Sequence[tuple[float, float, float, float]],
    box: "Bbox",
    point: float,
) -> tuple[float, float, float, float] | None:
    """Return a free rectangle for a label near a point, in pixels."""
    width, height = extent.width / 2 + GAP * point / 2, extent.height / 2 + GAP * point / 2
    for radius in RADII:
        for angle in ANGLES:
            dx, dy = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            cx, cy = x + dx * (radius * point + width), y + dy * (radius * point + height)
            own = (cx - width, cy - height, cx + width, cy + height)
            inside = box.x0 <= own[0] and own[2] <= box.x1 and box.y0 <= own[1] and own[3] <= box.y1
            if inside and not any(_overlap(own, other) for other in taken):
                return own
    return None


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _join(ax: "Axes", start: tuple[float, float], label: Sequence[float], point: float) -> None:
    """Draw a line from a point to a label that is not next to it."""
    nearest = (
        min(max(start[0], label[0]), label[2]),
        min(max(start[1], label[1]), label[3]),
    )
    if math.dist(start, nearest) > NEAR * point:
        ends = ax.transData.inverted().transform([start, nearest])
        ax.plot(*ends.T, color=MUTED, linewidth=0.6, zorder=1)
