"""Pareto fronts: scores against costs, with the points that no other one dominates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing.charts.labels import label_points
from topofl._drawing.charts.style import (
    COLORS,
    FONT,
    MUTED,
    WIDE,
    checked_axes,
    new_figure,
    set_font,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LABELED", "Front", "draw_front", "front_of", "labels_of", "note_on_labels"]

LABELED = 16
"""Most points that all have labels; of more, only those on the front have one."""

LOG_FROM = 30
"""Ratio of the highest to the lowest cost from which the axis of costs is logarithmic."""

SCALES = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2)
"""Sizes of a figure that are tried until all labels have room."""


@dataclass(frozen=True, eq=False)
class Front:
    """Points with costs and scores, (k,) each, and those on the Pareto front.

    Parameters
    ----------
    costs, scores
        Coordinates; points where one is not finite are left out.
    names
        Labels; points with an empty one have none.
    members
        Numbers of the points on the front, from :func:`front_of`.
    spans
        (2, k) lower and upper ends of intervals of the scores, NaN for none; None: no intervals.
    """

    costs: np.ndarray
    scores: np.ndarray
    names: Sequence[str]
    members: np.ndarray
    spans: np.ndarray | None = None


def front_of(costs: np.ndarray, scores: np.ndarray, low_is_good: bool) -> np.ndarray:
    """Return the numbers of the groups on the Pareto front, by ascending cost.

    Examples
    --------
    >>> front_of(np.array([1.0, 2.0, 3.0, 3.0]), np.array([0.6, 0.5, 0.8, 0.8]), False).tolist()
    [0, 2, 3]
    """
    good = np.where(np.isnan(scores), np.inf, scores if low_is_good else -scores)
    found: list[int] = []
    last = (np.inf, np.inf)
    for k in np.lexsort((good, costs)).tolist():
        if good[k] < last[1] or (costs[k], good[k]) == last:  # of equal groups, none is dominated
            found.append(k)
            last = (costs[k], good[k])
    return np.array(found, dtype=np.int64)


def labels_of(
    names: Sequence[str], members: np.ndarray, known: np.ndarray, *, most: int = LABELED
) -> list[str]:
    """Return the names of points that are labeled, and an empty text for the others.

    Parameters
    ----------
    names
        Name of each point.
    members
        Numbers of the points on the front.
    known
        (k,) whether a point is among those that may be labeled.
    most
        Number of points up to which all have labels. Of more, only those on the front do and, if
        these are more, as many of them, evenly spread.

    Examples
    --------
    >>> labels_of("abcde", np.array([0, 2, 4]), np.full(5, True), most=4)
    ['a', '', 'c', '', 'e']
    >>> labels_of("abcde", np.array([0, 2, 4]), np.full(5, True), most=2)
    ['a', '', '', '', 'e']
    """
    chosen = np.flatnonzero(known)
    if len(chosen) > most:
        chosen = members
    if len(chosen) > most:
        chosen = chosen[np.linspace(0, len(chosen) - 1, most).round().astype(int)]
    return [name if k in chosen else "" for k, name in enumerate(names)]


def note_on_labels(labels: Sequence[str], known: np.ndarray) -> str:
    r"""Return a line for the label of an axis on how many drawn points have no label.

    Examples
    --------
    >>> note_on_labels(["a", "", ""], np.array([True, True, False]))
    '\n(1 of 2 points not labeled)'
    """
    without = sum(bool(drawn) and not label for label, drawn in zip(labels, known, strict=True))
    return f"\n({without} of {int(known.sum())} points not labeled)" if without else ""


def draw_front(front: Front, ax: Any, labels: tuple[str, str]) -> "Figure":
    """Draw points, the front as a step line, and labels that overlap nothing; return the figure.

    Parameters
    ----------
    front
        The points.
    ax
        The axes to draw on; None: a new figure, as large as the labels need.
    labels
        Labels of the horizontal and of the vertical axis.

    Raises
    ------
    TypeError
        If `ax` is not an Axes.
    ValueError
        If it has no room for all labels.
    """
    count = sum(map(bool, front.names))
    for scale in (1.0,) if ax is not None else SCALES:
        if ax is None:
            own = new_figure(WIDE * scale, max(3.8, 0.13 * count + 1) * scale)[0]
            figure = own.figure
        else:
            own, figure = checked_axes(ax)
            set_font(own)
        if _draw(own, front, labels):
            return figure  # pyright: ignore[reportReturnType]
    raise ValueError(
        f"`ax` must have room for {count} labels, got Axes that are too small; leave it out, or "
        "draw fewer points"
    )


def _draw(ax: "Axes", front: Front, labels: tuple[str, str]) -> bool:
    """Draw points, front and labels; return whether all labels had room."""
    from matplotlib.collections import LineCollection

    costs, scores, members = front.costs, front.scores, front.members
    known = np.flatnonzero(np.isfinite(costs) & np.isfinite(scores))
    members = members[np.isin(members, known)]
    ax.step(costs[members], scores[members], where="post", color=MUTED, linewidth=1, zorder=1)
    corners = np.repeat(np.stack([costs, scores], axis=1)[members], 2, axis=0)
    lines = [np.stack([corners[1:, 0], corners[:-1, 1]], axis=1)]
    if front.spans is not None:
        ends = front.spans[:, known]
        bars = [
            np.stack([[x, x], span], axis=1) for x, span in zip(costs[known], ends.T, strict=True)
        ]
        bars = [bar for bar in bars if np.isfinite(bar).all()]
        lines += bars
        ax.add_collection(LineCollection(bars, colors=MUTED, linewidths=0.8, zorder=1))
        ax.autoscale_view()
    for k in known.tolist():
        fill = COLORS[0] if k in members else "white"
        ax.plot(costs[k], scores[k], "o", mfc=fill, mec=COLORS[0], markersize=5)
    positive = costs[known][costs[known] > 0]
    if len(positive) == len(known) and len(known) and positive.max() > LOG_FROM * positive.min():
        ax.set_xscale("log")
    ax.margins(0.12, 0.08)
    ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())  # lines to labels must not change them
    ax.set_xlabel(labels[0], fontsize=FONT + 1, parse_math=False)
    ax.set_ylabel(labels[1], fontsize=FONT + 1, parse_math=False)
    order: list[int] = [*members.tolist(), *(k for k in known.tolist() if k not in members)]
    points = [(float(costs[k]), float(scores[k])) for k in order]
    names = [front.names[k] for k in order]
    return not points or label_points(ax, points, names, lines) is not None
