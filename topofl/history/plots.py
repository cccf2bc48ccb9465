"""Plots of columns of histories: bands, violins, single nodes, and Pareto fronts."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing import charts, figures
from topofl._drawing.labels import label_points
from topofl._support.check import check_choice, check_int, check_probability, shown
from topofl._support.notebook import png_as_html
from topofl._support.text import node_name
from topofl.history.statistics import goodness, over_nodes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXIS_LABELS = {
    "rounds": "round",
    "seconds": "simulated seconds",
    "megabytes": "megabytes sent by all nodes",
    "steps": "local steps per node",
}
"""Label of each x axis."""

RANK = "rank"
"""The x axis of scores that are sorted from the worst to the best node."""

KINDS = {"band": ("x", "quantiles"), "violin": ("at",), "nodes": ("x", "worst"), "pareto": ("x",)}
"""Kinds of plots, and the options that each has."""

_LABELED = 8
"""Most points of a Pareto front that are labeled with their rounds."""

_INLINE_HEIGHT = 2.0
"""Height in inches of the picture in notebooks."""

_QUANTILES = (0.1, 0.9)
"""Default band over nodes."""

_WORST = 3
"""Default number of nodes that are highlighted."""


def check_options(kind: Any, **given: Any) -> dict[str, Any]:
    """Return `x` and the options of a kind of plot by name, with defaults in place of None.

    Raises
    ------
    TypeError, ValueError
        If there is no such kind, an option belongs to other kinds, or has an unknown value.
    """
    check_choice("kind", kind, KINDS)
    if kind != "nodes" and isinstance(given.get("x"), str) and given["x"] == RANK:
        allowed = (
            f"one of {', '.join(map(repr, AXIS_LABELS))}" if "x" in KINDS[kind] else "left out"
        )
        raise ValueError(
            f"`x` must be {allowed} for kind={kind!r}, got {RANK!r}; take kind='nodes' for it"
        )
    for name, value in given.items():
        if value is not None and name not in KINDS[kind]:
            others = " or ".join(repr(other) for other, own in KINDS.items() if name in own)
            raise ValueError(
                f"`{name}` must be left out for kind={kind!r}, got {shown(value)}; it is for "
                f"kind={others}"
            )
    known = {name: value for name, value in given.items() if value is not None}
    x = known.pop("x", "megabytes" if kind == "pareto" else "rounds")
    check_choice("x", x, [*AXIS_LABELS, *([RANK] if kind == "nodes" else [])])
    return {"x": x} | {name: _CHECKS[name](value) for name, value in known.items()}


def _rounds(at: Any) -> tuple[int, ...]:
    """Return rounds from a single one or a sequence."""
    items = list(at) if _is_sequence(at) else [at]
    if not items:
        raise ValueError("`at` must be at least one evaluated round, got none; leave it out")
    return tuple(check_int("at", item, minimum=0) for item in items)


def _pair(quantiles: Any) -> tuple[float, float]:
    """Return the two ends of a band."""
    items = list(quantiles) if _is_sequence(quantiles) else []
    if len(items) != 2:
        raise TypeError(
            "`quantiles` must be two numbers between 0 and 1, such as (0.1, 0.9), got "
            f"{shown(quantiles)}"
        )
    low, high = (check_probability("quantiles", item) for item in items)
    if low > high:
        raise ValueError(f"`quantiles` must ascend, got {shown(tuple(items))}")
    return low, high


def _is_sequence(value: Any) -> bool:
    return (isinstance(value, Sequence | range) and not isinstance(value, str | bytes)) or (
        hasattr(value, "__array__") and getattr(value, "ndim", 0) == 1
    )


_CHECKS = {"at": _rounds, "quantiles": _pair, "worst": partial(check_int, "worst", minimum=0)}
"""What the options other than `x` are checked and converted by."""


@dataclass(frozen=True, eq=False)
class Series:
    """A column of a history.

    Parameters
    ----------
    name
        Name of the run.
    column
        Name of the column.
    rounds
        (E,) rounds of its values.
    x
        (E,) positions on the horizontal axis.
    values
        (E, n) values per node, or (E,).
    low_is_good
        Whether lower values are better.
    final
        The last evaluated round of the run, which may be later than those of `rounds`.
    labels
        Labels of the nodes; empty means 0..n-1.
    """

    name: str
    column: str
    rounds: np.ndarray
    x: np.ndarray
    values: np.ndarray
    low_is_good: bool
    final: int
    labels: Sequence[object] = ()

    @property
    def per_node(self) -> np.ndarray:
        """(E, n) values; ``ValueError`` if the column has a single one for all nodes."""
        if self.values.ndim == 1:
            raise ValueError(
                "`column` must have one value per node, such as a score, got "
                f"{self.column!r} of {self.name} with one for all nodes; take kind='band'"
            )
        return self.values

    def line(self, quantiles: tuple[float, float] = _QUANTILES) -> charts.Line:
        """Return the mean over nodes and a band between quantiles, by linear interpolation."""
        if self.values.ndim == 1:
            return _without_band(self.x, self.values.astype(float))
        low, high = np.full((2, len(self.x)), np.nan)
        with np.errstate(invalid="ignore", over="ignore"):  # of infinite losses
            for k, row in enumerate(self.values):
                if len(known := row[~np.isnan(row)]):
                    low[k], high[k] = np.quantile(known, quantiles)
        return charts.Line(self.x, over_nodes(self.values)["mean"], low, high)

    def scores(self, round_: int | None) -> np.ndarray:
        """Return the scores of all nodes in a round, (n,), the last one for None.

        Raises
        ------
        ValueError
            If the round was not evaluated.
        """
        if round_ is None:
            return self.per_node[-1]
        if round_ not in self.rounds:
            listed = ", ".join(map(str, self.rounds[:8].tolist()))
            more = f", ..., {self.rounds[-1]}" if len(self.rounds) > 8 else ""
            raise ValueError(
                f"`at` must be an evaluated round of {self.name} with scores in {self.column!r}, "
                f"{listed}{more}, got {round_}"
            )
        return self.per_node[int(np.flatnonzero(self.rounds == round_)[0])]

    def at(self, round_: int | None) -> np.ndarray:
        """Return the finite scores of nodes in a round, the last one for None.

        Raises
        ------
        ValueError
            If the round was not evaluated, or no node has a finite score in it.
        """
        values = self.scores(round_)
        if not np.isfinite(values).any():
            drawn = self.rounds[-1] if round_ is None else round_
            raise ValueError(
                f"`column` must have a finite value for some node, {self.column!r} of {self.name} "
                f"has none in round {drawn}; leave it out, or take another round"
            )
        return values[np.isfinite(values)]

    def worst(self, count: int) -> list[int]:
        """Return the nodes with the worst last scores, the worst one first."""
        good = goodness(self.per_node[-1], self.low_is_good)
        known = np.flatnonzero(good > -np.inf)
        return known[np.argsort(good[known], kind="stable")][:count].tolist()


def _without_band(x: np.ndarray, y: np.ndarray) -> charts.Line:
    none = np.full(len(x), np.nan)
    return charts.Line(x, y, none, none)


def plot(series: Series, kind: str, ax: "Axes | None", *, x: str, **options: Any) -> "Figure":
    """Draw one history with checked options; see :meth:`topofl.History.plot`."""
    if ax is not None:
        ax = figures.new_axes(ax)
    if kind == "band":
        return _band(series, ax, x, **options)
    if kind == "violin":
        if (count := len(options.get("at", ()))) > charts.ROWS_LIMIT:
            raise ValueError(f"`at` must have at most {charts.ROWS_LIMIT} rounds, got {count}")
        return _violins([series], ax, alone=True, **options)
    if kind == "nodes":
        return _nodes([series], figures.new_axes(ax, figures.WIDE, 3.4), x, **options)
    means, costs = over_nodes(series.per_node)["mean"], series.x.astype(float)
    members = charts.front_of(costs, means, series.low_is_good)
    rounds = [f"round {t}" for t in series.rounds.tolist()]
    few = np.isin(np.arange(len(rounds)), members)  # the others are dominated by earlier ones
    names = charts.labels_of(rounds, members, few, most=_LABELED)
    note = "(evaluations; filled: Pareto front)"
    if missing := int((~np.isfinite(means)).sum()):
        note += note_on([f"{missing} of {len(means)} evaluations"])
    labels = f"{AXIS_LABELS[x]}\n{note}", series.column.replace("_", " ")
    return charts.draw_front(costs, means, names, members, ax, labels)


def draw_together(
    series: Sequence[Series], kind: str, ax: "Axes | None", *, x: str, **options: Any
) -> "Figure":
    """Draw several histories with checked options; see :func:`topofl.compare_histories`."""
    names = [one.name for one in series]
    if kind == "violin":
        return _violins(series, ax, **options)
    if kind == "nodes":
        return _nodes(series, ax, x, **options)
    if kind == "band":
        lines = [one.line(**options) for one in series]
        is_drawn = [np.isfinite(line.mean).any() for line in lines]
        note = note_on([name for name, drawn in zip(names, is_drawn, strict=True) if not drawn])
        xlabel = f"{AXIS_LABELS[x]}{_note_on_band(series[0], **options)}{note}"
        return draw_lines(charts.panels_of_names(names), lines, ax, xlabel, series[0].column)
    for one in series:
        one.at(None)
    means = np.array([over_nodes(one.per_node[-1:])["mean"][0] for one in series])
    missing = note_on([names[k] for k in np.flatnonzero(~np.isfinite(means)).tolist()])
    return draw_costs(
        names,
        np.array([one.x[-1] for one in series], dtype=float),
        means,
        ax,
        (AXIS_LABELS[x], series[0].column),
        ("(last mean over nodes; filled: Pareto front)", missing + note_on_last(series)),
        low_is_good=series[0].low_is_good,
    )


def small_picture(series: Series) -> str:
    """Return the learning curve of a history as HTML, for notebooks."""
    figure = figures.empty_figure(figures.COLUMN, _INLINE_HEIGHT)
    ax = figure.subplots()
    plot(series, "band", ax, x="rounds")
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=80, metadata={"Software": None})
    about = f"{ax.get_ylabel()} by {ax.get_xlabel()}".replace("\n", " ")
    return png_as_html(stream.getvalue(), about)


def draw_lines(
    panels: Sequence[charts.Panel], lines: Sequence[charts.Line], ax: Any, xlabel: str, column: str
) -> "Figure":
    """Draw the lines of a column in panels, and return the figure; errors as `draw_panels`."""
    labels = xlabel, column.replace("_", " ")
    return charts.draw_panels(panels, lines, ax, labels, is_accuracy=column.startswith("accuracy"))


def draw_costs(
    names: Sequence[str],
    costs: np.ndarray,
    means: np.ndarray,
    ax: Any,
    labels: tuple[str, str],
    notes: tuple[str, str],
    *,
    low_is_good: bool,
    spans: np.ndarray | None = None,
) -> "Figure":
    """Draw mean scores against costs with their Pareto front; errors as `draw_front`.

    Parameters
    ----------
    names, costs, means
        Names and coordinates of the points, (k,) each.
    ax
        The axes to draw on; None: a new figure.
    labels
        Label of the axis of costs, and name of the column.
    notes
        Lines below the plot, those that come before the number of points without labels and after.
    low_is_good
        Whether low scores are good.
    spans
        (2, k) ends of intervals of the means; None: no intervals.
    """
    members = charts.front_of(costs, means, low_is_good)
    known = np.isfinite(means) & np.isfinite(costs)
    texts = charts.labels_of([figures.wrapped(name, 22) for name in names], members, known)
    xlabel = f"{labels[0]}\n{notes[0]}{charts.note_on_labels(texts, known)}{notes[1]}"
    ylabel = labels[1].replace("_", " ")
    return charts.draw_front(costs, means, texts, members, ax, (xlabel, ylabel), spans)


def _band(
    series: Series, ax: "Axes | None", x: str, quantiles: tuple[float, float] = _QUANTILES
) -> "Figure":
    """Draw the mean and a band over nodes, in a style that no line of the axes has yet."""
    from matplotlib.ticker import MaxNLocator

    line = series.line(quantiles)
    ax = figures.new_axes(ax, figures.WIDE, 3.4)
    figures.set_font(ax)
    charts.draw_line(ax, line, len(ax.lines), series.name)
    if x == "rounds":
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(f"{AXIS_LABELS[x]}{_note_on_band(series, quantiles)}", fontsize=figures.FONT + 1)
    ax.set_ylabel(series.column.replace("_", " "), fontsize=figures.FONT + 1, parse_math=False)
    return figures.figure_of(ax)


def _note_on_band(series: Series, quantiles: tuple[float, float] = _QUANTILES) -> str:
    """Return a line for the label of an axis on what line and band are, if there is a band."""
    low, high = (f"{100 * q:g} %" for q in quantiles)
    band = "lowest to highest" if quantiles == (0, 1) else f"{low} to {high}"
    return f"\n(mean over nodes; band: {band})" if series.values.ndim > 1 else ""


def _violins(
    series: Sequence[Series],
    ax: "Axes | None",
    at: Sequence[int | None] = (None,),
    *,
    alone: bool = False,
) -> "Figure":
    """Draw a violin over nodes for each history and round; `alone`: rounds name those of one."""
    rows = [(one, place, k) for k, one in enumerate(series) for place in at]
    is_named = len(at) == 1 and (at[0] is None or not alone)
    return charts.draw_violins(
        [
            one.name if is_named else f"{'' if alone else f'{one.name}, '}round {place}"
            for one, place, _ in rows
        ],
        [one.at(place) for one, place, _ in rows],
        [
            figures.COLORS[0] if len(series) > len(figures.COLORS) else figures.COLORS[k]
            for *_, k in rows
        ],
        ax,
        f"{series[0].column.replace('_', ' ')} of nodes{note_on_nodes(series, at)}",
        low_is_good=series[0].low_is_good,
    )


def _nodes(series: Sequence[Series], ax: Any, x: str, worst: int = _WORST) -> "Figure":
    """Draw one panel per history: the mean, each node in gray, and the worst nodes in color.

    For ranks, draw the last scores instead.
    """
    if x == RANK:
        return _ranks(series, ax, worst)
    panels, lines = [], []
    for one in series:
        nodes = one.worst(worst)
        curves = [over_nodes(one.per_node)["mean"], *one.per_node[:, nodes].T]
        groups = tuple(range(len(lines), len(lines) + len(curves)))
        lines += [_without_band(one.x, y) for y in curves]
        labels = ("mean", *(f"node {node_name(one.labels, node)}" for node in nodes))
        context = [np.column_stack([one.x, y]) for y in one.per_node.T]
        title = one.name if len(series) > 1 else ""
        panels.append(charts.Panel(title, groups, labels, context, tuple(range(len(groups)))))
    more = f" and {worst} worst" if worst else ""
    note = f"\n(gray: all nodes; color: mean{more}){note_on_lines(series)}"
    return draw_lines(panels, lines, ax, f"{AXIS_LABELS[x]}{note}", series[0].column)


def _ranks(series: Sequence[Series], ax: Any, worst: int) -> "Figure":
    """Draw the last scores of nodes from the worst to the best, with the worst nodes as points."""
    lines = []
    for one in series:
        x, table = charts.ranked_curves([one.at(None)], low_is_good=one.low_is_good)
        lines.append(_without_band(x, table[0]))
    points = min(worst, len(lines[0].x))
    note = "\n(last evaluation)"
    if len(series) == 1:
        note = f"\n(points: {points} worst)" if points else ""
    xlabel = f"nodes from the worst to the best, %{note}{note_on_nodes(series)}"
    names = [one.name for one in series] if len(series) > 1 else [""]
    figure = draw_lines(charts.panels_of_names(names), lines, ax, xlabel, series[0].column)
    if len(series) == 1:
        _name_worst(figure.axes[0] if ax is None else ax, series[0], lines[0], points)
    return figure


def _name_worst(ax: Any, series: Series, line: charts.Line, count: int) -> None:
    """Mark the worst nodes on their sorted curve, with their labels, or numbers without any."""
    last = series.per_node[-1]
    nodes = [node for node in series.worst(len(last)) if np.isfinite(last[node])][:count]
    points = [(float(line.x[k]), float(last[node])) for k, node in enumerate(nodes)]
    for x, y in points:  # the worst node is at the left end, and its point half beyond it
        ax.plot(x, y, "o", color=figures.COLORS[1], markersize=4, clip_on=False, zorder=3)
    texts = [f"node {node_name(series.labels, node)}" for node in nodes]
    if points and not label_points(ax, points, texts):
        raise ValueError(
            f"`ax` must have room for the labels of {len(points)} nodes, got Axes that are too "
            "small; leave it out, or take a smaller `worst`"
        )


_LISTED = 3
"""Largest number of runs that a note lists."""

_WIDTH = 56
"""Characters in a line of a note, which fits below axes of 3.5 inches."""

_NOT_FINITE = "not drawn, since not finite"
"""What is said of nodes, runs and evaluations whose scores are NaN or infinite."""


def note_on_nodes(series: Sequence[Series], rounds: Sequence[int | None] = (None,)) -> str:
    """Return lines for the label of an axis on what the drawn scores of nodes lack.

    They count the nodes without a finite score, and have those of :func:`note_on_last`.

    Parameters
    ----------
    series
        The runs.
    rounds
        Rounds whose scores are drawn; None is the last one.
    """
    left_out = []
    for one in series:
        for round_ in rounds:
            scores = one.scores(round_)
            of = f" of {one.name}" * (len(series) > 1) + f" in round {round_}" * (len(rounds) > 1)
            if count := int((~np.isfinite(scores)).sum()):
                left_out.append(f"{count} of {len(scores)} nodes{of}")
    return note_on(left_out) + (note_on_last(series) if None in rounds else "")


def note_on_lines(series: Sequence[Series]) -> str:
    """Return lines for the label of an axis on the nodes that have no line, since none is finite.

    Among several runs, those without any line are named.
    """
    left_out = []
    for one in series:
        n = one.per_node.shape[1]
        count = n - int(np.isfinite(one.per_node).any(0).sum())
        if count == n and len(series) > 1:
            left_out.append(one.name)
        elif count:
            left_out.append(f"{count} of {n} nodes" + f" of {one.name}" * (len(series) > 1))
    return note_on(left_out)


def note_on_last(series: Sequence[Series]) -> str:
    """Return lines that say which last scores are not of the run's last evaluation."""
    early = []
    for one in series:
        if one.rounds[-1] != one.final:
            name = f"{one.name}, " * (len(series) > 1)
            early.append(f"{name}round {one.rounds[-1]} of {one.final}")
    return note_on(early, "last scores")


def note_on(items: Sequence[str], what: str = _NOT_FINITE) -> str:
    r"""Return lines for the label of an axis that list some items; empty without any.

    Examples
    --------
    >>> note_on(["1 of 8 nodes"]), note_on([])
    ('\n(not drawn, since not finite: 1 of 8 nodes)', '')
    """
    if not items:
        return ""
    rows = [f"({what}: {items[0]})"]
    if len(items) > 1:
        more = [f"and {len(items) - _LISTED} more"] * (len(items) > _LISTED)
        rows = [f"({what}:", *items[:_LISTED], *more]
        rows[-1] += ")"
    return "".join(f"\n{figures.wrapped(row, _WIDTH, 2)}" for row in rows)
