"""Figures of groups of runs: learning curves, nodes, Pareto fronts and heat maps."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing.charts import (
    LINES_LIMIT,
    Line,
    Panel,
    draw_violins,
    panels_of_names,
    ranked_curves,
)
from topofl._drawing.figures import COLORS, FONT, figure_of, luminance, new_axes, wrapped
from topofl._support.check import check_choice, shown
from topofl.history.plots import AXIS_LABELS, draw_costs, draw_lines, note_on
from topofl.summary.groups import COSTS, Collected, collect, sort_key
from topofl.summary.verdicts import CONFIDENCE, rounded, statistic_of, t_quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BANDS = {
    "interval": f"{100 * CONFIDENCE:g} % interval of the mean",
    "range": "lowest to highest run",
}
"""Kinds of bands over runs, and what is said of them."""

_FEWEST = 3
"""Fewest values for an interval where other runs have none; for 2, it is 12.7 standard errors."""

_FEW_RUNS = 5
"""Means over fewer runs than this have bands from the lowest to the highest run, unless asked.

Intervals for 2, 3 and 4 runs are 12.7, 4.3 and 3.2 standard errors wide on either side: they fill
plots of several groups, and say little. With such a mean, all bands are ranges, since two kinds in
one plot could not be compared.
"""

_GRID_LIMIT = 400
"""Most positions of a curve that runs were evaluated at; more are replaced by a grid."""

_CHARACTER = 0.075
"""Width of a character of a label in inches."""

_Table = tuple[np.ndarray, np.ndarray]
"""Positions (k,) and curves (runs, k) of a group."""


def _with_bands(
    collected: Collected,
    tables: Sequence[_Table],
    band: str | None,
    mark: str = "band: ",
    until: str = "",
) -> tuple[list[Line], str]:
    """Return the mean of each group with its band, and what they are, for the label of an axis.

    Parameters
    ----------
    collected
        The groups.
    tables
        The curves of each group, which may be of no run.
    band
        A key of `BANDS`, or None for the one that suits the numbers of runs.
    mark
        What shows the band.
    until
        Where the means end.
    """
    known = [len(table) for _, table in tables if len(table)]
    if band is None:
        band = "range" if any(1 < n < _FEW_RUNS for n in known) else "interval"
    check_choice("band", band, BANDS)
    is_accuracy = collected.column.startswith("accuracy")
    limits = (0.0, 1.0) if is_accuracy else (-np.inf, np.inf)
    lines = [_line_of(x, table, band, limits) for x, table in tables]
    low, high = min(known, default=1), max(known, default=1)
    if high == 1:
        return lines, "single runs"
    numbers = f"{high} runs" if low == high else f"{low} to {high} runs"
    return lines, f"mean over {numbers}{until}; {mark}{BANDS[band]}"


def _line_of(x: np.ndarray, table: np.ndarray, band: str, limits: tuple[float, float]) -> Line:
    """Return the mean of curves (runs, k), NaN where a run has none, and its band.

    An interval ends at the limits of the score, and is left out where some runs have no value and
    fewer than three have one.
    """
    known = ~np.isnan(table)
    n = known.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, table, 0).sum(0) / n
        if band == "range":
            low = np.where(known, table, np.inf).min(0, initial=np.inf)
            high = np.where(known, table, -np.inf).max(0, initial=-np.inf)
        else:
            squares = np.where(known, (table - mean) ** 2, 0).sum(0)
            half = np.array([t_quantile(CONFIDENCE, k) if k > 1 else np.nan for k in n.tolist()])
            half = half * np.sqrt(squares / (n - 1) / n)
            half[n < min(_FEWEST, len(table))] = np.nan
            low, high = np.clip([mean - half, mean + half], *limits)
    return Line(x, mean, np.where(n > 1, low, np.nan), np.where(n > 1, high, np.nan))


def _note_on_missing(
    collected: Collected, found: Sequence[int], totals: Sequence[int] | None = None
) -> str:
    """Return a note on groups in which some runs, or nodes of `totals`, have no finite score."""
    what = "runs" if totals is None else "nodes"
    every = np.bincount(collected.group_of).tolist() if totals is None else totals
    missing = [(total - n, total) for n, total in zip(found, every, strict=True)]
    return note_on(
        [
            f"{count} of {total} {what} of {collected.name_of(k)}"
            for k, (count, total) in enumerate(missing)
            if count
        ]
    )


def _panels_of(collected: Collected) -> list[Panel]:
    """Return one panel for up to 8 groups; else one per value of a setting, or one per group.

    The setting is the one that gives the fewest panels of at most 8 groups each.
    """
    names = [collected.name_of(k) for k in range(len(collected.groups))]
    if len(names) <= LINES_LIMIT or len(collected.by) < 2:
        return panels_of_names(names)
    splits = [_split(collected, place) for place in range(len(collected.by))]
    small = [
        panels for panels in splits if max(len(panel.groups) for panel in panels) <= LINES_LIMIT
    ]
    return min(small, key=len) if small else panels_of_names(names)


def _split(collected: Collected, place: int) -> list[Panel]:
    """Return one panel per value of the setting at a position in `by`."""
    members: dict[object, list[int]] = {}
    for number, group in enumerate(collected.groups):
        members.setdefault(group[place], []).append(number)
    return [
        Panel(
            f"{collected.labels[place]} = {value}",
            tuple(numbers),
            tuple(collected.name_of(k, without=place) for k in numbers),
        )
        for value, numbers in members.items()
    ]


def plot_band(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    over: str | Sequence[str] = (),
    x: str = "rounds",
    band: str | None = None,
    ax: Any = None,
) -> "Figure":
    """Draw the learning curve of each group of runs: mean over runs, and a band.

    Up to 8 groups share one axes, with labels at the ends of lines. More are drawn in panels, one
    per value of a setting or, if that leaves more than 8 groups in one, one panel per group with
    the others in gray. The label of the horizontal axis says what bands are, and which runs are
    left out since they end without a finite score. An interval is left out where some runs of a
    group have no value and fewer than 3 have one.

    Parameters
    ----------
    runs, by, column, over
        As in :func:`topofl.summarize`.
    x
        ``"rounds"``, ``"megabytes"`` (10^6 bytes sent by all nodes) or simulated ``"seconds"``.
        Between evaluations, curves are interpolated linearly.
    band
        ``"interval"``: the 95 % interval of the mean by Student's t, for accuracies not beyond 0
        and 1; ``"range"``: from the lowest to the highest run; None: the interval or, if a mean is
        over less than five runs, the range, since intervals for so few are wide. Those for two
        runs are 12.7 standard errors wide on either side.
    ax
        The axes to draw on, for up to 8 groups; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, to show or to save.

    Raises
    ------
    ValueError
        As :func:`topofl.summarize`; if `x` or `band` is none of these, runs did not record `x`, or
        `ax` is given for more than 8 groups or too small for their labels.
    TypeError
        If `ax` is not an Axes.

    Examples
    --------
    >>> import numpy as np, topofl
    >>> def run(final, seed):
    ...     scores = {"round": np.array([0, 1]), "accuracy": np.array([[0.1] * 4, [final] * 4])}
    ...     sent = {"messages": np.array([8]), "bytes": np.array([800])}
    ...     return topofl.History({"seed": seed}, sent, scores, np.zeros((1, 4)))
    >>> runs = {"ring": [run(0.6, 0), run(0.62, 1)], "torus": [run(0.7, 0), run(0.69, 1)]}
    >>> figure = plot_band(runs)
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['ring', 'torus']
    """
    collected = collect(runs, by, column=column, over=over)
    _check_cost(collected, x)
    curves, places = collected.statistic("mean"), collected.cost(x)
    finite = np.isfinite(curves[:, -1])  # a diverged run would cut the means of the others
    groups = range(len(collected.groups))
    members = [np.flatnonzero((collected.group_of == k) & finite).tolist() for k in groups]
    tables = [_table([(places[r], curves[r]) for r in own]) for own in members]
    ends = [{float(places[r][-1]) for r in own} for own in members]
    until = " until the first one ends" if any(len(own) > 1 for own in ends) else ""
    lines, note = _with_bands(collected, tables, band, until=until)
    xlabel = (
        f"{AXIS_LABELS[x]}\n({note}){_note_on_missing(collected, [len(own) for _, own in tables])}"
    )
    return draw_lines(_panels_of(collected), lines, ax, xlabel, collected.column)


def _check_cost(collected: Collected, x: str) -> None:
    """Raise ``ValueError`` if there is no such cost, or runs did not record it."""
    check_choice("x", x, COSTS)
    without = [entry.name for entry in collected.entries if not entry.curves.get(COSTS[x][0])]
    if without:
        raise ValueError(
            f"`x` must be recorded by all runs, {len(without)} of {len(collected.entries)} have no "
            f"{x} ({', '.join(without[:3])}{', ...' if len(without) > 3 else ''}); take 'rounds'"
        )


def _table(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> _Table:
    """Return positions (k,) and curves (runs, k) from x and y of each, up to where the first ends.

    Beyond that, a mean would be over those runs only that take longer or send more. Curves end with
    finite numbers; others within them are left out.
    """
    if not curves:
        return np.full(1, np.nan), np.full((0, 1), np.nan)
    known = [(x[np.isfinite(y)], y[np.isfinite(y)]) for x, y in curves]
    x = np.unique(np.concatenate([x for x, _ in known]))
    x = x[x <= min(own[-1] for own, _ in known)]
    if len(x) > _GRID_LIMIT:
        x = np.linspace(x[0], x[-1], _GRID_LIMIT)
    rows = [np.interp(x, at, y, left=np.nan, right=np.nan) for at, y in known]
    return x, np.stack(rows)


def plot_nodes(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    over: str | Sequence[str] = (),
    band: str | None = None,
    ax: Any = None,
) -> "Figure":
    """Draw the final scores of nodes from the worst to the best, averaged over runs by rank.

    Panels and labels are as in :func:`topofl.summary.plot_band`. The histories of all runs are
    read. Nodes whose score is NaN or infinite are left out and counted in the label of the
    horizontal axis.

    Parameters
    ----------
    runs, by, column, over
        As in :func:`topofl.summarize`.
    band, ax
        As in :func:`topofl.summary.plot_band`.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.summary.plot_band`; if a run has no node with a score.
    OSError
        If a history cannot be read.

    Examples
    --------
    >>> import numpy as np, topofl
    >>> def run(accuracies, seed):
    ...     scores = {"round": np.array([0]), "accuracy": np.array([accuracies])}
    ...     sent = {"messages": np.zeros(0), "bytes": np.zeros(0)}
    ...     return topofl.History({"seed": seed}, sent, scores, np.zeros((0, 3)))
    >>> figure = plot_nodes({"ring": [run([0.9, 0.5, 0.7], 0), run([0.6, 0.8, 0.9], 1)]})
    >>> figure.axes[0].lines[0].get_ydata().round(2).tolist()
    [0.55, 0.75, 0.9]
    """
    collected = collect(runs, by, column=column, over=over)
    scores, missing = _final_scores(collected)
    tables = [ranked_curves(rows, low_is_good=collected.low_is_good) for rows in scores]
    lines, note = _with_bands(collected, tables, band)
    xlabel = f"nodes from the worst to the best, %\n({note}){missing}"
    return draw_lines(_panels_of(collected), lines, ax, xlabel, collected.column)


def _final_scores(collected: Collected) -> tuple[list[list[np.ndarray]], str]:
    """Return per group and run the finite final scores of nodes, and a note on the others."""
    found: list[list[np.ndarray]] = [[] for _ in collected.groups]
    totals = [0] * len(found)
    for entry, group in zip(collected.entries, collected.group_of.tolist(), strict=True):
        values = entry.load().last(collected.column)
        totals[group] += len(values)
        values = values[np.isfinite(values)]
        if not len(values):
            raise ValueError(
                f"`runs` must have nodes with a final {collected.column}, {entry.name} has none; "
                "leave it out"
            )
        found[group].append(values)
    return found, _note_on_missing(collected, [sum(map(len, rows)) for rows in found], totals)


def plot_violin(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    over: str | Sequence[str] = (),
    ax: Any = None,
) -> "Figure":
    """Draw the distribution of final scores over all nodes and runs of each group.

    Each violin is a Gaussian kernel density estimate (bandwidth by Scott's rule) between the lowest
    and the highest score, with the median and the mean of the worst tenth of all nodes. The
    histories of all runs are read. Nodes whose score is NaN or infinite are left out and counted
    in the label of the horizontal axis.

    Parameters
    ----------
    runs, by, column, over
        As in :func:`topofl.summarize`.
    ax
        The axes to draw on, for up to 24 groups; None: a new figure.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.summarize`; if a run has no node with a score, or `ax` is not an Axes or
        given for more than 24 groups.
    OSError
        If a history cannot be read.

    References
    ----------
    Scott, "Multivariate Density Estimation" (Wiley, 1992), section 6.

    Examples
    --------
    >>> import numpy as np, topofl
    >>> def run(accuracies, seed):
    ...     scores = {"round": np.array([0]), "accuracy": np.array([accuracies])}
    ...     sent = {"messages": np.zeros(0), "bytes": np.zeros(0)}
    ...     return topofl.History({"seed": seed}, sent, scores, np.zeros((0, 3)))
    >>> figure = plot_violin({"ring": run([0.9, 0.5, 0.7], 0), "star": run([0.6, 0.8, 0.9], 1)})
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['ring', 'star']
    """
    collected = collect(runs, by, column=column, over=over)
    found, missing = _final_scores(collected)
    scores = [np.concatenate(rows) for rows in found]
    return draw_violins(
        [collected.name_of(k) for k in range(len(scores))],
        scores,
        _colors(collected),
        ax,
        f"{collected.column.replace('_', ' ')} of nodes{missing}",
        low_is_good=collected.low_is_good,
    )


def _colors(collected: Collected) -> list[str]:
    """Return a color per group: that of its value of the first setting, if these are few."""
    firsts = list(dict.fromkeys(group[:1] for group in collected.groups))
    if len(firsts) > len(COLORS):
        return [COLORS[0]] * len(collected.groups)
    return [COLORS[firsts.index(group[:1])] for group in collected.groups]


def plot_pareto(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    over: str | Sequence[str] = (),
    x: str = "megabytes",
    band: str | None = None,
    ax: Any = None,
) -> "Figure":
    """Draw the final score of each group against its cost, and the Pareto front.

    Points are means over the runs with a finite final score, with a bar for the score. On the front
    are the groups for which no other one is at least as good in score and cost, and better in one
    of them, by these means; they are filled, and joined by a step line. Of more than 16 groups,
    only those on the front are labeled; the label of the horizontal axis says how many are not, and
    which runs have no finite final score.

    Parameters
    ----------
    runs, by, column, over
        As in :func:`topofl.summarize`.
    x
        The cost of the whole run: ``"megabytes"`` (10^6 bytes sent by all nodes), simulated
        ``"seconds"`` or ``"rounds"``.
    band
        What bars show: as in :func:`topofl.summary.plot_band`.
    ax
        The axes to draw on; None: a new figure, as large as its labels need.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.summary.plot_band`.

    Examples
    --------
    >>> import numpy as np, topofl
    >>> def run(accuracy, sent):
    ...     scores = {"round": np.array([1]), "accuracy": np.array([[accuracy] * 2])}
    ...     sent = {"messages": np.array([2]), "bytes": np.array([sent])}
    ...     return topofl.History({}, sent, scores, np.zeros((1, 2)))
    >>> runs = {"ring": run(0.6, 1e6), "star": run(0.5, 2e6), "complete": run(0.8, 9e6)}
    >>> figure = plot_pareto(runs)
    >>> sorted(text.get_text() for text in figure.axes[0].texts)
    ['complete', 'ring', 'star']
    """
    collected = collect(runs, by, column=column, over=over)
    _check_cost(collected, x)
    groups = range(len(collected.groups))
    final = collected.statistic("mean")[:, -1]
    cost = np.where(np.isfinite(final), collected.cost(x)[:, -1], np.nan)
    costs = statistic_of(cost, collected.group_of, len(groups)).mean
    rows = [final[(collected.group_of == k) & np.isfinite(final), None] for k in groups]
    tables = [(costs[[k]], row) for k, row in enumerate(rows)]
    points, note = _with_bands(collected, tables, band, "bar: ")
    return draw_costs(
        [collected.name_of(k) for k in groups],
        costs,
        np.array([one.mean[0] for one in points]),
        ax,
        (AXIS_LABELS[x], collected.column),
        (f"({note}; filled: Pareto front)", _note_on_missing(collected, list(map(len, rows)))),
        low_is_good=collected.low_is_good,
        spans=np.array([[one.low[0] for one in points], [one.high[0] for one in points]]),
    )


def plot_heat_map(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    over: str | Sequence[str] = (),
    ax: Any = None,
) -> "Figure":
    """Draw the mean final score over two settings: rows and columns of cells with their numbers.

    Numbers are rounded to the digit of their standard error, and cells without runs are empty.

    Parameters
    ----------
    runs, column, over
        As in :func:`topofl.summarize`.
    by
        Two settings: that of the rows and that of the columns.
    ax
        The axes to draw on; None: a new figure, as large as its cells need.

    Raises
    ------
    ValueError, TypeError
        As :func:`topofl.summarize`; if `by` has not two settings, or `ax` is not an Axes.

    Examples
    --------
    >>> import numpy as np
    >>> from topofl.runs import StoredRun
    >>> def run(alpha, lr, accuracy):
    ...     numbers = {"mean": [accuracy], "worst": [0.1], "worst_tenth": [0.1], "best": [0.9]}
    ...     tables = {"data": {"alpha": alpha}, "algorithm": {"lr": lr}}
    ...     curves = {"round": [9], "bytes": [8], "scores": {"accuracy": numbers}}
    ...     return StoredRun("nowhere", "0", tables, {"curves": curves})
    >>> runs = [run(0.1, 0.5, 0.625), run(1.0, 0.5, 0.75), run(1.0, 0.1, 0.25)]
    >>> figure = plot_heat_map(runs, by=["alpha", "lr"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['0.625', '0.25', '0.75']
    """
    collected = collect(runs, by, column=column, over=over)
    if len(collected.by) != 2:
        raise ValueError(
            "`by` must have two settings, those of the rows and of the columns, got "
            f"{shown(list(collected.by))}"
        )
    final = collected.statistic("mean")[:, -1]
    found = statistic_of(final, collected.group_of, len(collected.groups))
    rows = list(dict.fromkeys(row for row, _ in collected.groups))
    columns = sorted(dict.fromkeys(column for _, column in collected.groups), key=sort_key)
    values = np.full((len(rows), len(columns)), np.nan)
    spreads = found.error[found.error > 0]
    error = float(np.median(spreads)) if len(spreads) else np.nan  # one number of digits for all
    texts: dict[tuple[int, int], str] = {}
    for k, (row, column) in enumerate(collected.groups):
        place = rows.index(row), columns.index(column)
        values[place] = found.mean[k]
        texts[place] = rounded(float(found.mean[k]), error)
    names = [wrapped(str(row), 28, 2) for row in rows], [wrapped(str(one), 16) for one in columns]
    ax = _axes_for(texts, *names) if ax is None else new_axes(ax)
    _draw(ax, values, texts)
    for axis, labels in ((ax.yaxis, names[0]), (ax.xaxis, names[1])):
        axis.set_ticks(range(len(labels)), labels, fontsize=FONT, parse_math=False)
    ax.set_xlabel(collected.labels[1], fontsize=FONT + 1, parse_math=False)
    ax.set_ylabel(collected.labels[0], fontsize=FONT + 1, parse_math=False)
    title = f"{collected.column.replace('_', ' ')}, mean over runs"
    ax.set_title(title, fontsize=FONT + 1, parse_math=False)
    return figure_of(ax)


def _axes_for(texts: Mapping[tuple[int, int], str], rows: list[str], columns: list[str]) -> "Axes":
    """Return axes in which no number and no label meets its neighbor."""
    lines = [line for name in columns for line in name.split("\n")]
    widest = max(map(len, [*lines, *texts.values()]))
    labels = max(len(line) for name in rows for line in name.split("\n"))
    width = max(0.55, _CHARACTER * widest + 0.12)
    size = (width * len(columns) + _CHARACTER * labels + 1.0, 0.34 * len(rows) + 1.5)
    return new_axes(None, max(3.2, size[0]), size[1])


def _draw(ax: "Axes", values: np.ndarray, texts: Mapping[tuple[int, int], str]) -> None:
    """Draw cells with their numbers, dark on light and light on dark."""
    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    image = ax.imshow(values, cmap="cividis", aspect="auto", vmin=low, vmax=high)
    for (row, column), text in texts.items():
        # black or white, whichever has the higher contrast by the rule of WCAG
        brightness = luminance(np.asarray(image.to_rgba(values[row, column])[:3], dtype=float))
        color = "black" if (brightness + 0.05) ** 2 > 1.05 * 0.05 else "white"
        ax.text(column, row, text, color=color, fontsize=FONT, ha="center", va="center")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


KINDS = {
    "band": plot_band,
    "violin": plot_violin,
    "nodes": plot_nodes,
    "pareto": plot_pareto,
    "heat_map": plot_heat_map,
}
"""Plots by their name in :meth:`topofl.summary.Summary.plot` and ``topofl compare --kind``."""
