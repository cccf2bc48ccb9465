"""Spectral report: table, measurements and figures of graphs as one HTML page."""

import math
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

from markupsafe import Markup

import topofl
from topofl._support.check import check_int
from topofl._support.table import NotApplicable, Table
from topofl.metrics._rounds import WeightRule
from topofl.metrics.compare import headline
from topofl.report.figures import (
    DescribedFigure,
    Point,
    decay,
    gap_figure,
    push_sum_figure,
    spectrum,
)
from topofl.report.measure import Measurements, measure
from topofl.report.pages import page_template
from topofl.report.pictures import picture
from topofl.report.svg import inline
from topofl.report.tables import Row, view
from topofl.topology import Topology

__all__ = ["inline_figure", "spectral_report", "weights_and_versions"]

DEFAULT_ROUNDS = 500


class Panel(NamedTuple):
    """A figure of the page: heading, markup, description and CSS class.

    If there is no markup, the description gives the reason.
    """

    title: str
    markup: Markup | None
    description: str
    kind: str = ""


class Card(NamedTuple):
    """The section of the page about one graph: all its numbers, the first ones, and figures."""

    row: Row
    first: Row
    panels: list[Panel]


def spectral_report(
    graphs: Sequence[Any],
    table: Table,
    *,
    seed: int,
    rounds: int = DEFAULT_ROUNDS,
    label_counts: Any = None,
    weights: WeightRule | None = None,
    command: str = "",
    notes: Sequence[str] = (),
) -> str:
    """Return an HTML report of graphs: table, pictures, spectra, and theory against measurement.

    The page needs no other files and no network, and is identical, byte by byte, for the same
    arguments and versions. Names are escaped.

    Parameters
    ----------
    graphs, label_counts, weights
        As in :func:`topofl.metrics.compare`; label counts color the nodes of the pictures.
    table
        Table returned by :func:`topofl.metrics.compare` for these graphs; all columns are shown.
    seed
        Non-negative integer; seed of the random starts from which consensus is measured.
    rounds
        Number of simulated rounds.
    command, notes
        Command that created the page, and notes to its readers; shown verbatim.

    Returns
    -------
    str
        The page, to be written with :func:`topofl.report.replacing`.

    Raises
    ------
    TypeError
        If `graphs` is not a list.
    ValueError
        If the number of rows of `table` differs from that of `graphs`, or `table` lacks one of the
        columns name, slem and spectral gap.

    Examples
    --------
    >>> from topofl import metrics, topologies
    >>> graphs = [topologies.ring(5)]
    >>> spectral_report(graphs, metrics.compare(graphs, about="all"), seed=0, rounds=10)[:15]
    '<!doctype html>'
    """
    seed = check_int("seed", seed, minimum=0)
    rounds = check_int("rounds", rounds, minimum=1)
    _check_table(graphs, table)
    names = [str(name) for name in table.column("name")]
    measured = [
        measure(graph, name, rounds=rounds, seed=seed, weights=weights)
        for graph, name in zip(graphs, names, strict=True)
    ]
    numbers = view(table, "numbers", table.title or "All numbers")
    glance = view(
        _glance(table), "glance", "The numbers that decide; the others are below", grouped=False
    )
    theory = _prediction_table(table, measured)
    slems = table.column("slem")
    return page_template("topofl.report", "page.html").render(
        title=f"Spectral report of {len(graphs)} graph{'' if len(graphs) == 1 else 's'}",
        glance=glance,
        numbers=numbers,
        n_numbers=len(table.columns) - 1,
        theory=view(
            theory, "theory", "Factor on consensus distance per round, predicted and measured"
        ),
        against=[_gap_panel(theory), *_push_sum_panels(table)],
        cards=[
            Card(row, first, _graph_panels(item, slem, row.number, label_counts))
            for row, first, item, slem in zip(
                numbers.rows, glance.rows, measured, slems, strict=True
            )
        ],
        facts=_settings(seed, rounds, weights),
        command=command,
        notes=notes,
    )


def _check_table(graphs: Any, table: Table) -> None:
    """Raise unless graphs are a list, with a table that has the columns of a report for each."""
    if not isinstance(graphs, Sequence):
        raise TypeError(
            f"`graphs` must be a list, got {type(graphs).__name__}; for a History use "
            "report.rounds_report"
        )
    if len(table.rows) != len(graphs):
        raise ValueError(
            f"`table` must have one row per graph: got {len(table.rows)} rows for {len(graphs)} "
            "graphs"
        )
    lacking = [name for name in ("slem", "spectral gap") if name not in table.columns]
    if lacking:
        raise ValueError(
            f"`table` must have the column {lacking[0]!r}, got {len(table.columns)} others; use "
            'metrics.compare(graphs, about="all")'
        )


def _glance(table: Table) -> Table:
    """Return the table of the most important numbers."""
    names = headline(table.columns[1:])
    columns = [table.column(name) for name in (table.columns[0], *names)]
    return Table((table.columns[0], *names), tuple(zip(*columns, strict=True)))


def _settings(seed: int, rounds: int, weights: WeightRule | None) -> list[tuple[str, str]]:
    """Return the settings of the report as pairs of heading and text."""
    return [
        weights_and_versions(weights)[0],
        (
            "Measured",
            f"over {rounds:,} rounds of averaging from a standard normal start, one number "
            "per node",
        ),
        ("Seed", str(seed)),
        weights_and_versions(weights)[1],
    ]


def weights_and_versions(weights: WeightRule | None) -> list[tuple[str, str]]:
    """Return the weight rule and the package versions as pairs of heading and text."""
    rule = "the graph's own, else Metropolis-Hastings if it is undirected, else uniform pull"
    used = ("numpy", "scipy", "networkx", "matplotlib")
    versions = [f"topofl {topofl.__version__}", f"Python {platform.python_version()}"]
    return [
        ("Weights", rule if weights is None else getattr(weights, "__name__", repr(weights))),
        ("Versions", ", ".join(versions + [f"{name} {version(name)}" for name in used])),
    ]


def _prediction_table(table: Table, measured: Sequence[Measurements]) -> Table:
    """Return a table of predicted and measured contraction factors and gaps."""
    columns = (
        "graph",
        "slem (theory)",
        "contraction (measured)",
        "spectral gap (theory)",
        "gap (measured)",
    )
    rows = []
    for slem, gap, item in zip(
        table.column("slem"), table.column("spectral gap"), measured, strict=True
    ):
        contraction = item.contraction
        rows.append(
            (
                item.name,
                slem,
                contraction,
                gap,
                contraction if isinstance(contraction, NotApplicable) else 1 - contraction,
            )
        )
    return Table(columns, tuple(rows))


def _gap_panel(theory: Table) -> Panel:
    """Return the plot of measured against predicted gaps, with points numbered like the graphs."""
    points: list[Point] = []
    left_out: list[str] = []
    for number, row in enumerate(theory.rows, start=1):
        gap = row[3]
        seen = row[4]
        if isinstance(gap, NotApplicable) or isinstance(seen, NotApplicable) or min(gap, seen) <= 0:
            left_out.append(str(number))
        else:
            points.append((str(number), gap, seen))
    words = (
        "Each point is a graph, labeled by its number. For points above the line, the number of "
        "measured rounds may be too small to show the long-run rate."
    )
    if left_out:
        words += (
            f" Graphs not shown, since a value is missing or not above 0: {', '.join(left_out)}."
        )
    if not points:
        return Panel("Spectral gap against measured decay", None, words)
    return Panel(
        "Spectral gap against measured decay", inline_figure(gap_figure(points), "gaps"), words
    )


def _push_sum_panels(table: Table) -> list[Panel]:
    """Return plots of measured q and C of push-sum against the bounds of SGP, if in the table."""
    pairs = (
        ("log10(1 - q)", "q measured", lambda q: 1 - q),
        ("log10(C)", "C measured", lambda c: c),
    )
    panels = []
    for quantity, measured, value in pairs:
        predicted = f"{quantity}, SGP"
        if predicted in table.columns and measured in table.columns:
            seen = [_log10(cell, value) for cell in table.column(measured)]
            panels.append(_push_sum_panel(quantity, table.column(predicted), seen))
    return panels


def _push_sum_panel(quantity: str, predicted: Sequence[Any], measured: Sequence[Any]) -> Panel:
    title = f"Push-sum: {quantity}, theory against measured"
    numbered = enumerate(zip(predicted, measured, strict=True), start=1)
    pairs = {str(k): pair for k, pair in numbered}
    points = [
        (k, float(a), float(b)) for k, (a, b) in pairs.items() if _is_finite(a) and _is_finite(b)
    ]
    left_out = ", ".join(k for k, pair in pairs.items() if not all(map(_is_finite, pair)))
    words = (
        "Theory: the bound of SGP, as a logarithm since it is loose for graphs of ordinary size. "
        "For points on the line, the bound is tight."
    )
    if left_out:
        words += f" Graphs not shown, since a value is not finite: {left_out}."
    drawn = push_sum_figure(points, quantity=quantity) if points else NotApplicable(words)
    key = "push-sum-" + ("q" if "q" in quantity else "c")
    return Panel(
        title, None if isinstance(drawn, NotApplicable) else inline_figure(drawn, key), words
    )


def _log10(cell: Any, value: Callable[[float], float]) -> Any:
    if isinstance(cell, NotApplicable):
        return cell
    return math.log10(value(cell)) if value(cell) > 0 else -math.inf


def _is_finite(cell: Any) -> bool:
    return not isinstance(cell, NotApplicable) and math.isfinite(cell)


def _graph_panels(item: Measurements, slem: Any, number: int, label_counts: Any) -> list[Panel]:
    """Return the panels of one graph."""
    factor = None if isinstance(slem, NotApplicable) else float(slem)
    paper = "paper" if isinstance(item.graph, Topology) else "paper wide"
    return [
        _figure_panel("Picture", picture(item.graph, label_counts), f"g{number}-picture", paper),
        _figure_panel("Spectrum", _spectrum(item), f"g{number}-spectrum"),
        _figure_panel("Consensus over rounds", _decay(item, factor), f"g{number}-decay"),
    ]


def _spectrum(item: Measurements) -> DescribedFigure | NotApplicable:
    if isinstance(item.eigenvalues, NotApplicable):
        return item.eigenvalues
    return spectrum(item.eigenvalues, rounds=item.period or 1)


def _decay(item: Measurements, factor: float | None) -> DescribedFigure | NotApplicable:
    if isinstance(item.distances, NotApplicable):
        return item.distances
    return decay(item.distances, factor, period=item.period)


def _figure_panel(
    title: str, drawn: DescribedFigure | NotApplicable, key: str, kind: str = ""
) -> Panel:
    if isinstance(drawn, NotApplicable):
        return Panel(title, None, drawn.reason)
    return Panel(title, inline_figure(drawn, key), drawn.description, kind)


def inline_figure(drawn: DescribedFigure, key: str) -> Markup:
    """Return the markup of a figure; `key` must be unique among the figures of a page."""
    return inline(drawn.figure, key, drawn.title, drawn.description)
