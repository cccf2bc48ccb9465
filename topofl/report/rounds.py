"""Report of a changing graph: its adjacency matrix with a slider over rounds, and metrics."""

import base64
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from topofl._support.check import check_int
from topofl._support.table import Table, as_text
from topofl.history import History
from topofl.metrics import label_distributions
from topofl.metrics._rounds import WeightRule, as_rounds
from topofl.metrics.data_fit.labels import check_row_per_node
from topofl.report.figures import DescribedFigure, line
from topofl.report.page import inline_figure, template, weights_and_versions
from topofl.report.tables import view

__all__ = ["rounds_report"]

NODE_LIMIT = 1000
"""Largest graph whose adjacency matrix is drawn, one pixel per pair of nodes."""


class ScriptData(NamedTuple):
    """Data for the script of the page: n, rounds, their matrices and metrics, marked nodes."""

    n: int
    rounds: list[int]
    bits: list[str]
    marked: int
    cells: list[list[str]]


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

    The picture shows which nodes each node receives from, round by round. The page needs no other
    files and no network, and is identical, byte by byte, for the same arguments and versions.
    Without scripts, it shows only curves and table.

    Parameters
    ----------
    x, weights
        As in :func:`topofl.metrics.over_rounds`: a History, or graphs.
    table
        Table returned by :func:`topofl.metrics.over_rounds`, with one row per round to be shown.
    label_counts
        (n, classes) counts: nodes are ordered by their most frequent class, so that groups of
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
    last = [
        check_int("marked", i, minimum=0, maximum=source.n - 1, maximum_name="n - 1")
        for i in marked
    ]
    rounds = [int(t) for t in table.column("round")]
    order = _node_order(source.n, label_counts, set(last), source.name)
    bits = [_encoded_pairs(source.at(t).weights, order) for t in rounds]
    cells = [[as_text(cell) for cell in row[1:]] for row in table.rows]
    words = "their most frequent class" if label_counts is not None else "their numbers"
    return template("rounds.html").render(
        title=title or source.name,
        shown=ScriptData(source.n, rounds, bits, len(set(last)), cells)._asdict(),
        columns=table.columns[1:],
        numbers=view(table, "numbers", table.title or "All numbers"),
        curves=[
            inline_figure(drawn, f"curve-{k}") for k, drawn in enumerate(_column_curves(table))
        ],
        ordered=words,
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


def _node_order(n: int, label_counts: Any, last: set[int], name: str) -> np.ndarray:
    """Return nodes sorted by whether they are marked, by most frequent class and by number."""
    most = np.zeros(n, dtype=int)
    if label_counts is not None:
        shares = label_distributions(label_counts)
        check_row_per_node(shares, n, name)
        most = shares.argmax(axis=1)
    return np.lexsort((np.arange(n), most, np.isin(np.arange(n), sorted(last))))


def _encoded_pairs(weights: Any, order: np.ndarray) -> str:
    """Return a base64-encoded bit matrix: whether the row's node receives from the column's."""
    received = weights.toarray() != 0
    np.fill_diagonal(received, False)
    return base64.b64encode(np.packbits(received[np.ix_(order, order)]).tobytes()).decode()


def _column_curves(table: Table) -> list[DescribedFigure]:
    """Return plots of the columns whose values change."""
    rounds = np.array(table.column("round"))
    drawn = []
    for name in table.columns[1:]:
        values = np.array(
            [float(v) if isinstance(v, int | float) else np.nan for v in table.column(name)]
        )
        if len({value for value in values if np.isfinite(value)}) > 1:
            drawn.append(line(rounds, values, name))
    return drawn
