"""Parts of charts: lines with bands, panels, fronts, violins, and ranks of nodes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing import figures
from topofl._drawing.labels import End, label_lines, label_points, line_height

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LINES_LIMIT = 8
"""Most groups that one panel tells apart by color."""


@dataclass(frozen=True, eq=False)
class Panel:
    """What is drawn in one of several axes.

    Parameters
    ----------
    title
        Line above it; empty for none.
    groups
        Numbers of the groups that it shows.
    labels
        Names of these groups within the panel; empty if the title names the only one.
    context
        (k, 2) curves that are drawn in gray; without them, a panel without labels shows all groups
        in gray.
    styles
        Positions of the groups' styles; by default, equal labels have equal styles in all panels.
    """

    title: str
    groups: tuple[int, ...]
    labels: tuple[str, ...]
    context: Sequence[np.ndarray] = ()
    styles: tuple[int, ...] = ()


def panels_of_names(names: Sequence[str]) -> list[Panel]:
    """Return one panel for up to 8 groups, else one panel per group.

    Examples
    --------
    >>> len(panels_of_names(["a"] * 8)), len(panels_of_names(["a"] * 9))
    (1, 9)
    """
    if len(names) <= LINES_LIMIT:
        return [Panel("", tuple(range(len(names))), tuple(names))]
    return [Panel(name, (k,), ()) for k, name in enumerate(names)]


def grid_of(count: int, most: int) -> tuple[int, int]:
    """Return rows and columns of a grid with `count` panels and at most `most` columns.

    Examples
    --------
    >>> grid_of(24, 6), grid_of(4, 3), grid_of(1, 6)
    ((4, 6), (2, 2), (1, 1))
    """
    columns = min(most, math.ceil(math.sqrt(1.4 * count)))
    rows = math.ceil(count / columns)
    return rows, math.ceil(count / rows)


WRAP = 18
"""Characters in a line of a label."""

CHARACTER = 0.08
"""Width of a character of a label in inches."""

LINE = 0.16
"""Height of a line of the label of an axis in inches."""

MANY = 5
"""Number of lines in a panel from which bands are lighter, as most of them overlap."""


@dataclass(frozen=True, eq=False)
class Line:
    """A mean and a band around it, NaN where there is none, at positions x, (k,) each."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def draw_line(
    ax: "Axes", line: Line, position: int, label: str = "", *, is_one_of_many: bool = False
) -> None:
    """Draw a line and its band, in the style of a position of the panel; a single point as dot."""
    how = figures.style(position)
    alpha = 0.08 if is_one_of_many else 0.18
    if not (np.isnan(line.low).all() and np.isnan(line.high).all()):
        ax.fill_between(line.x, line.low, line.high, color=how["color"], alpha=alpha, linewidth=0)
    marker = "o" if np.isfinite(line.mean).sum() == 1 else ""
    ax.plot(line.x, line.mean, linewidth=1.5, marker=marker, markersize=4, label=label, **how)


def draw_panels(
    panels: Sequence[Panel],
    lines: Sequence[Line],
    ax: Any,
    names: tuple[str, str],
    *,
    is_accuracy: bool,
) -> "Figure":
    """Draw the line of each group, and return the figure.

    Parameters
    ----------
    panels
        The groups of each panel.
    lines
        The line of each group.
    ax
        The axes to draw on, for a single panel; None: a new figure.
    names
        Labels of the horizontal and of the vertical axis.
    is_accuracy
        Whether the vertical axis ends at 0 and 1.

    Raises
    ------
    TypeError
        If `ax` is not an Axes.
    ValueError
        If `ax` is given and there are several panels, or it is too small.
    """
    if ax is None:
        axes = _axes_for(panels, names[0].count("\n"))
    else:
        several = "several groups" if panels[0].context else f"more than {LINES_LIMIT} groups"
        why = f"{several}, which are drawn in panels, got Axes for {len(panels)} panels"
        axes = _only(ax, why if len(panels) > 1 else "")
    named = any(len(panel.labels) > 1 or len(panel.groups) > 1 for panel in panels)
    order = {name: k for k, name in enumerate(dict.fromkeys(n for p in panels for n in p.labels))}
    ends = [_draw_panel(a, p, lines, order) for a, p in zip(axes, panels, strict=False)]
    for unused in axes[len(panels) :]:
        unused.set_visible(False)
    curves = [np.stack([line.x, y], 1) for line in lines for y in (line.mean, line.low, line.high)]
    curves += [curve for panel in panels for curve in panel.context]
    limits = (0.0, 1.0) if is_accuracy else (-np.inf, np.inf)
    _set_axes(axes[: len(panels)], np.concatenate(curves), names, limits, alone=ax is not None)
    if named:
        label_lines(axes[: len(panels)], ends)
    return figures.figure_of(axes[0])


def _only(ax: Any, why_none: str) -> "list[Axes]":
    """Return the axes of the caller, or raise if there must be none."""
    axes = [figures.new_axes(ax)]
    if why_none:
        raise ValueError(f"`ax` must be None for {why_none}")
    figures.set_font(axes[0])
    return axes


def _axes_for(panels: Sequence[Panel], notes: int) -> "Sequence[Axes]":
    """Return axes that are large enough for titles and labels, and for notes below them."""
    below = LINE * max(0, notes - 1)
    one_each = not panels[0].labels
    texts = [figures.wrapped(text, WRAP) for panel in panels for text in panel.labels]
    longest = max((len(row) for text in texts for row in text.split("\n")), default=0)
    rows, columns = grid_of(len(panels), 6 if one_each else 3 if longest > 8 else 4)
    if one_each:
        return figures.new_figure(1.9 * columns + 0.6, 1.75 * rows + 0.6 + below, rows, columns)
    highest = max(
        line_height([figures.wrapped(text, WRAP) for text in panel.labels]) for panel in panels
    )
    if len(panels) == 1:
        return figures.new_figure(figures.WIDE, max(3.4, highest + 0.2) + 0.95 + below)
    height, width = max(1.9 if longest <= 8 else 2.6, highest + 0.2), 2.56 + CHARACTER * longest
    size = width * columns + 0.6, (height + 0.35) * rows + 0.6 + below
    return figures.new_figure(*size, rows, columns)


def _draw_panel(
    ax: "Axes", panel: Panel, lines: Sequence[Line], order: dict[str, int]
) -> list[End]:
    """Draw the lines of a panel; return their ends."""
    from matplotlib.collections import LineCollection

    if panel.title:
        width = 24 if not panel.labels else 40
        ax.set_title(
            figures.wrapped(panel.title, width, 2), fontsize=figures.FONT, parse_math=False
        )
    gray = panel.context
    if not panel.labels and not len(gray):  # the other groups as context
        gray = [np.column_stack([line.x, line.mean]) for line in lines]
    if len(gray):
        ax.add_collection(
            LineCollection(list(gray), colors=figures.MUTED, linewidths=0.5), autolim=False
        )
    ends = []
    for place, (k, label) in enumerate(zip(panel.groups, panel.labels or ("",), strict=True)):
        line, position = lines[k], panel.styles[place] if panel.styles else order.get(label, 0)
        draw_line(ax, line, position, label, is_one_of_many=len(panel.groups) >= MANY)
        known = np.flatnonzero(np.isfinite(line.mean))
        last = known[-1] if len(known) else 0
        ends.append(
            End(figures.wrapped(label, WRAP), float(line.x[last]), float(line.mean[last]), position)
        )
    return ends


def _set_axes(
    axes: "Sequence[Axes]",
    points: np.ndarray,
    names: tuple[str, str],
    ends_of_score: tuple[float, float],
    *,
    alone: bool,
) -> None:
    """Set limits, not far beyond the ends of a score, and labels, those of panels once for all."""
    xlabel, ylabel = names
    x, y = (column[np.isfinite(column)] for column in points.T)
    low, high = (float(y.min()), float(y.max())) if len(y) else (0.0, 1.0)
    low, high = np.clip([low, high], *ends_of_score)  # bands of few runs go far beyond
    margin = 0.04 * (high - low) or 0.05 * abs(high) or 0.05
    left, right = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)
    for ax in axes:
        ax.set_ylim(low - margin, high + margin)
        ax.set_xlim(left, right if right > left else left + 1)
        ax.locator_params(axis="x", nbins=5)
    if alone or len(axes) == 1:
        axes[0].set_xlabel(xlabel, fontsize=figures.FONT + 1, parse_math=False)
        axes[0].set_ylabel(ylabel, fontsize=figures.FONT + 1, parse_math=False)
    else:
        axes[0].figure.supxlabel(xlabel, fontsize=figures.FONT + 1, parse_math=False)  # pyright: ignore[reportAttributeAccessIssue]
        axes[0].figure.supylabel(ylabel, fontsize=figures.FONT + 1, parse_math=False)  # pyright: ignore[reportAttributeAccessIssue]


LABELED = 16
"""Most points that all have labels; of more, only those on the front have one."""

LOG_FROM = 30
"""Ratio of the highest to the lowest cost from which the axis of costs is logarithmic."""

SCALES = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2)
"""Sizes of a figure that are tried until all labels have room."""


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


def draw_front(
    costs: np.ndarray,
    scores: np.ndarray,
    names: Sequence[str],
    members: np.ndarray,
    ax: Any,
    labels: tuple[str, str],
    spans: np.ndarray | None = None,
) -> "Figure":
    """Draw points, the front as a step line, and labels that overlap nothing; return the figure.

    Parameters
    ----------
    costs, scores
        Coordinates (k,) of the points; those where one is not finite are left out.
    names
        Their labels; points with an empty one have none.
    members
        Numbers of the points on the front, from :func:`front_of`.
    ax
        The axes to draw on; None: a new figure, as large as the labels need.
    labels
        Labels of the horizontal and of the vertical axis.
    spans
        (2, k) lower and upper ends of intervals of the scores, NaN for none; None: no intervals.

    Raises
    ------
    TypeError
        If `ax` is not an Axes.
    ValueError
        If it has no room for all labels.
    """
    known = np.isfinite(costs) & np.isfinite(scores)
    points, on_front = np.stack([costs, scores], axis=1), members[known[members]]
    rest = np.setdiff1d(np.flatnonzero(known), on_front)
    order: list[int] = [*on_front.tolist(), *rest.tolist()]
    texts = [names[k] for k in order]
    count = sum(map(bool, names))
    for scale in (1.0,) if ax is not None else SCALES:
        own = figures.new_axes(ax, figures.WIDE * scale, max(3.8, 0.13 * count + 1) * scale)
        figures.set_font(own)
        lines = _draw_points(own, points, known, on_front, labels, spans)
        if not order or label_points(own, points[order], texts, lines):
            return figures.figure_of(own)
    raise ValueError(
        f"`ax` must have room for {count} labels, got Axes that are too small; leave it out, or "
        "draw fewer points"
    )


def _draw_points(
    ax: "Axes",
    points: np.ndarray,
    known: np.ndarray,
    members: np.ndarray,
    labels: tuple[str, str],
    spans: np.ndarray | None,
) -> list[np.ndarray]:
    """Draw points, front and intervals; return the lines, which labels avoid."""
    from matplotlib.collections import LineCollection

    ax.step(*points[members].T, where="post", color=figures.MUTED, linewidth=1, zorder=1)
    corners = np.repeat(points[members], 2, axis=0)
    lines = [np.stack([corners[1:, 0], corners[:-1, 1]], axis=1)]
    if spans is not None:
        bars = np.stack(np.broadcast_arrays(points[:, 0], spans), axis=-1).swapaxes(0, 1)[known]
        bars = list(bars[np.isfinite(bars).all((1, 2))])
        lines += bars
        ax.add_collection(LineCollection(bars, colors=figures.MUTED, linewidths=0.8, zorder=1))
        ax.autoscale_view()
    for k in np.flatnonzero(known):
        fill = figures.COLORS[0] if k in members else "white"
        ax.plot(*points[k], "o", mfc=fill, mec=figures.COLORS[0], markersize=5)
    costs = points[known, 0]
    if len(costs) and costs.min() > 0 and costs.max() > LOG_FROM * costs.min():
        ax.set_xscale("log")
    ax.margins(0.12, 0.08)
    ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())  # lines to labels must not change them
    ax.set_xlabel(labels[0], fontsize=figures.FONT + 1, parse_math=False)
    ax.set_ylabel(labels[1], fontsize=figures.FONT + 1, parse_math=False)
    return lines


GRID = 101
"""Positions of a sorted curve if runs have different numbers of nodes."""


def ranked_curves(
    scores: Sequence[np.ndarray], *, low_is_good: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of ranks in percent, and the sorted scores of each run.

    Parameters
    ----------
    scores
        (n,) scores of the nodes of each run. With different numbers of nodes, curves are
        interpolated.
    low_is_good
        Whether the worst scores are the largest.

    Examples
    --------
    >>> x, table = ranked_curves([np.array([0.5, 0.25])], low_is_good=False)
    >>> x.tolist(), table.tolist()
    ([25.0, 75.0], [[0.25, 0.5]])
    """
    ranked = [np.sort(row)[:: -1 if low_is_good else 1] for row in scores]
    if len({len(row) for row in ranked}) == 1:
        return 100 * _middles(len(ranked[0])), np.stack(ranked)
    x = np.linspace(0, 1, GRID)
    return 100 * x, np.stack([np.interp(x, _middles(len(row)), row) for row in ranked])


def _middles(n: int) -> np.ndarray:
    return (np.arange(n) + 0.5) / n


ROWS_LIMIT = 24
"""Largest number of violins in a column."""


def draw_violins(
    names: Sequence[str],
    scores: Sequence[np.ndarray],
    colors: Sequence[str],
    ax: Any,
    xlabel: str,
    *,
    low_is_good: bool,
) -> "Figure":
    """Draw a violin per group, from the first one at the top, and return the figure.

    Each is a Gaussian kernel density estimate (bandwidth by Scott's rule) between the lowest and
    the highest score, with a line at the median and a point at the mean of the worst tenth.

    Parameters
    ----------
    names
        Name of each group.
    scores
        Finite scores of each group, at least one.
    colors
        Color of each group.
    ax
        The axes to draw on; None: a new figure, in columns for more than 24 groups.
    xlabel
        What the scores are.
    low_is_good
        Whether the worst scores are the largest.

    Raises
    ------
    TypeError
        If `ax` is not an Axes.
    ValueError
        If `ax` is given for more than 24 groups.
    """
    names = [figures.wrapped(name, 30, 2) for name in names]
    columns = -(-len(scores) // ROWS_LIMIT)
    rows = -(-len(scores) // columns)
    if ax is None:
        width, height = figures.WIDE if columns == 1 else 4.6 * columns, 0.36 * rows + 1.0
        height += LINE * xlabel.count("\n")
        axes = figures.new_figure(width, height, 1, columns, sharey=False)
    else:
        several = f"more than {ROWS_LIMIT} groups, which are drawn in columns"
        why = f"{several}, got Axes for {len(scores)} groups"
        axes = _only(ax, why if columns > 1 else "")
    for column, own in enumerate(axes):
        part = range(column * rows, min(len(scores), (column + 1) * rows))
        for y, k in enumerate(part):
            _draw_violin(own, scores[k], y, colors[k], low_is_good)
        own.set_yticks(range(len(part)), [names[k] for k in part], parse_math=False)
        own.set_ylim(rows - 0.5, -0.5)
    note = "(line: median; point: worst tenth)"
    axes[-1].set_xlabel(f"{xlabel}\n{note}", fontsize=figures.FONT + 1, parse_math=False)
    return figures.figure_of(axes[0])


def _draw_violin(ax: "Axes", values: np.ndarray, y: int, color: str, low_is_good: bool) -> None:
    """Draw a density around a height, with median and worst tenth."""
    x, density = _density(values)
    ax.fill_between(x, y - 0.42 * density, y + 0.42 * density, color=color, alpha=0.35, lw=0)
    ranked = np.sort(values)[:: -1 if low_is_good else 1]
    ax.plot([np.median(values)] * 2, [y - 0.3, y + 0.3], color=color, linewidth=1.6)
    worst = float(ranked[: max(1, len(ranked) // 10)].mean())
    ax.plot([values.min(), values.max()], [y, y], color=color, linewidth=0.6)
    ax.plot([worst], [y], "o", color=color, markersize=3.5)


def _density(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions, and the kernel density there with a maximum of 1."""
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    if std <= 1e-12 * max(1.0, float(np.abs(values).max())):
        return np.full(2, values.mean()), np.ones(2)
    width = std * len(values) ** -0.2
    x = np.linspace(values.min(), values.max(), 128)
    bins = np.linspace(values.min(), values.max(), 513)
    counts = np.histogram(values, bins)[0]
    middles = (bins[1:] + bins[:-1]) / 2
    density = np.exp(-0.5 * ((x[:, None] - middles) / width) ** 2) @ counts
    return x, density / density.max()
