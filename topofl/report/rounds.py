"""Report of a changing graph: its adjacency matrix with a slider over rounds, and metrics."""

import base64
import itertools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from topofl._drawing.axes import class_colors
from topofl._support.check import check_int
from topofl._support.table import NotApplicable, Table, as_text
from topofl.history import History
from topofl.metrics import label_distributions
from topofl.metrics._rounds import WeightRule, as_rounds, node_groups
from topofl.metrics.compare import headline
from topofl.metrics.labels import check_row_per_node
from topofl.report.figures import DescribedFigure, inline, line
from topofl.report.pages import page_template, title_of, view
from topofl.report.spectral import weights_and_versions

ENTRIES = 20
"""Largest number of classes that are listed in a legend; of more, the first and the last are."""


def node_order(
    n: int, groups: Sequence[Sequence[int]], label_counts: Any, last: Collection[int], name: str
) -> tuple[np.ndarray, str, list[dict[str, Any]]]:
    """Return nodes by whether they are in `last`, by group, most frequent class and number.

    It returns the nodes from first to last, what they are ordered by, and strips of colors along
    the axes that show it: a title, the stops of a CSS gradient, and a legend of colors and names.

    Parameters
    ----------
    n, name
        Number of nodes, and name of the graph for error messages.
    groups
        Groups of nodes, in their order; nodes outside follow.
    label_counts
        (n, classes) counts, a Partition, whose class names are in the legend, or None.
    last
        Nodes that follow all others.

    Raises
    ------
    ValueError
        If `label_counts` does not have one row per node.
    """
    most, classes = np.zeros(n, dtype=int), 0
    if label_counts is not None:
        shares = label_distributions(label_counts)
        check_row_per_node(shares, n, name)
        most, classes = shares.argmax(axis=1), shares.shape[1]
    group = np.full(n, len(groups))
    for k, members in enumerate(groups):
        group[list(members)] = k
    order = np.lexsort((np.arange(n), most, group, np.isin(np.arange(n), sorted(last))))
    keys = [f"group ({len(groups)})"] * bool(groups) + ["most frequent class"] * bool(classes)
    strips = []
    if groups:
        tones = ["var(--soft)", "var(--rule)"]
        own = ["transparent" if k == len(groups) else tones[k % 2] for k in group[order].tolist()]
        legend = list(zip(tones, ("one group", "the next"), strict=True))
        strips.append({"title": "Groups", "stops": _stops(own), "legend": legend})
    if classes:
        names = getattr(label_counts, "class_names", None) or [f"class {k}" for k in range(classes)]
        colors, found = class_colors(classes), np.unique(most).tolist()
        listed = found if len(found) <= ENTRIES else [found[0], found[-1]]
        stops = _stops([colors[k] for k in most[order].tolist()])
        legend = [(colors[k], str(names[k])) for k in listed]
        strips.append({"title": "Most frequent class", "stops": stops, "legend": legend})
    return order, ", then by ".join(keys) or "number", strips


def _stops(colors: Sequence[str]) -> str:
    """Return stops of a gradient with one band per run of equal colors."""
    stops, start = [], 0
    for color, run in itertools.groupby(colors):
        end = start + len(list(run))
        stops.append(f"{color} {100 * start / len(colors):.4g}% {100 * end / len(colors):.4g}%")
        start = end
    return ", ".join(stops)


NODE_LIMIT = 1000
"""Largest graph whose adjacency matrix is drawn, one pixel per pair of nodes."""

OPEN_ROWS = 12
"""Largest number of rows of the table of rounds that is shown without being unfolded."""


def rounds_report(
    x: Any,
    table: Table,
    *,
    label_counts: Any = None,
    marked: Collection[int] | None = None,
    marked_name: str = "",
    weights: WeightRule | None = None,
    title: str = "",
    command: str = "",
    notes: Sequence[str] = (),
) -> str:
    """Return an HTML report of a changing graph: a picture with a slider, curves and a table.

    The picture shows which nodes each node receives from, round by round; consecutive rounds that
    are equal are shown once. Nodes are ordered by the groups of the graph, such as cliques, if
    there are any. The page needs no other files and no network, and is identical, byte by byte, for
    the same arguments and versions. Without scripts, it shows only curves and table.

    Parameters
    ----------
    x, weights
        As in :func:`topofl.metrics.over_rounds`: a History, or graphs.
    table
        Table returned by :func:`topofl.metrics.over_rounds`, with one row per round to be shown.
    label_counts
        (n, classes) counts, or a Partition, whose class names are then in the legend: nodes (of a
        group) are ordered by their most frequent class, so that
        similar nodes appear as squares on the diagonal.
    marked
        Nodes that are placed last and whose messages are shown in another color; None: the
        attackers of a History, if any.
    marked_name
        Adjective for these nodes; empty: "attacking" or "marked".
    title, command, notes
        Heading; command that created the page; notes to readers, shown verbatim.

    Returns
    -------
    str
        The page, to be written with :func:`topofl.report.replacing`.

    Raises
    ------
    ValueError
        If there are more than 1,000 nodes, `table` is not from :func:`topofl.metrics.over_rounds`
        with rounds in ascending order, or `marked` are not nodes.
    TypeError
        If `x` is neither a History nor graphs.

    Examples
    --------
    >>> from topofl import metrics, topologies
    >>> peers = topologies.one_peer_exponential(8)
    >>> rounds_report(peers, metrics.over_rounds(peers))[:15]
    '<!doctype html>'
    """
    source = as_rounds(x, weights)
    if source.n > NODE_LIMIT:
        raise ValueError(
            f"graphs of at most {NODE_LIMIT:,} nodes can be drawn, {source.name} has n={source.n:,}"
        )
    _check_table(table)
    marked_name = marked_name or ("attacking" if marked is None else "marked")
    marked = (x.attackers if isinstance(x, History) else ()) if marked is None else marked
    limits: dict[str, Any] = {"minimum": 0, "maximum": source.n - 1, "maximum_name": "n - 1"}
    last = {check_int("marked", i, **limits) for i in marked}
    order, words, strips = node_order(source.n, node_groups(x), label_counts, last, source.name)
    known, missing = _split_columns(table)
    shown, stages = _stages(source, known, order, len(last))
    first = headline(known.columns[1:])
    curves = _column_curves(known, first)
    return page_template("topofl.report", "rounds.html").render(
        title=title or title_of(source.name),
        shown=shown,
        n_rounds=len(table.rows),
        headline=[known.columns.index(name) - 1 for name in first],
        columns=known.columns[1:],
        numbers=view(stages, "numbers", "Numbers of the graph in each round"),
        is_open=len(stages.rows) <= OPEN_ROWS,
        missing=missing,
        curves=[inline(drawn, f"curve-{k}") for k, drawn in enumerate(curves)],
        first_curves=sum(drawn.title in first for drawn in curves),
        ordered_by=words,
        strips=strips,
        marked=marked_name,
        facts=weights_and_versions(weights),
        command=command,
        notes=notes,
    )


def _check_table(table: Table) -> None:
    """Raise ``ValueError`` unless a table has the form of metrics.over_rounds, rounds ascending."""
    columns = getattr(table, "columns", ())
    if columns[:1] != ("round",) or not table.rows:
        raise ValueError(
            f"`table` must be returned by metrics.over_rounds, got one with columns {columns}"
        )
    rounds = table.column("round")
    if list(rounds) != sorted(rounds):
        raise ValueError(f"`table` must have rounds in ascending order, got {list(rounds)}")


def _split_columns(table: Table) -> tuple[Table, list[tuple[str, str]]]:
    """Return the columns with values, and names and reasons of those that never apply."""
    missing = {
        name: table.column(name)[0].reason
        for name in table.columns
        if all(isinstance(cell, NotApplicable) for cell in table.column(name))
    }
    known = [name for name in table.columns if name not in missing]
    return table.select(known), list(missing.items())


def _stages(
    source: Any, table: Table, order: np.ndarray, marked: int
) -> tuple[dict[str, Any], Table]:
    """Return the data of the script, and a table whose rows are stages of equal rounds.

    The data: n; first round and label of each stage; the distinct graphs, and each stage's index
    into them; the number of marked nodes; and the metrics of each stage.
    """
    rounds = [int(t) for t in table.column("round")]
    bits = [_encoded_pairs(source.at(t).weights, order) for t in rounds]
    cells = [[as_text(cell) for cell in row[1:]] for row in table.rows]
    graphs = {graph: k for k, graph in enumerate(dict.fromkeys(bits))}
    by_content = itertools.groupby(range(len(rounds)), lambda k: (bits[k], cells[k]))
    stages = [list(members) for _, members in by_content]
    labels = [_label([rounds[k] for k in members]) for members in stages]
    firsts = [members[0] for members in stages]
    shown = {
        "n": source.n,
        "starts": [rounds[k] for k in firsts],
        "labels": labels,
        "graphs": list(graphs),
        "graph": [graphs[bits[k]] for k in firsts],
        "marked": marked,
        "cells": [cells[k] for k in firsts],
    }
    rows = [(label, *table.rows[k][1:]) for label, k in zip(labels, firsts, strict=True)]
    return shown, Table(table.columns, tuple(rows))


def _label(rounds: Sequence[int]) -> str:
    """Return consecutive shown rounds as text."""
    first, last = rounds[0], rounds[-1]
    if len(rounds) == 1:
        return str(first)
    every = "" if last - first + 1 == len(rounds) else f" ({len(rounds)} shown)"
    return f"{first} to {last}{every}"


def _encoded_pairs(weights: Any, order: np.ndarray) -> str:
    """Return a base64-encoded bit matrix: whether the row's node receives from the column's."""
    received = weights.toarray() != 0
    np.fill_diagonal(received, False)
    return base64.b64encode(np.packbits(received[np.ix_(order, order)]).tobytes()).decode()


def _column_curves(table: Table, first: Sequence[str]) -> list[DescribedFigure]:
    """Return plots of the columns whose values change, beginning with those in `first`."""
    rounds = np.array(table.column("round"))
    drawn = []
    for name in dict.fromkeys([*first, *table.columns[1:]]):
        cells = table.column(name)
        values = np.array([float(v) if isinstance(v, int | float) else np.nan for v in cells])
        if len({value for value in values if np.isfinite(value)}) > 1:
            drawn.append(line(rounds, values, name))
    return drawn
