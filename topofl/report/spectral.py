"""Spectral report: table, measurements and figures of graphs as one HTML page."""

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import scipy.sparse as sparse

import topofl
from topofl import metrics
from topofl._linalg import spectral
from topofl._support.check import check_int
from topofl._support.seeding import stream
from topofl._support.table import NotApplicable, Table
from topofl.metrics._rounds import WeightRule, as_rounds, is_list_of_matrices
from topofl.metrics.compare import headline
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.report.figures import (
    ROUNDING_FLOOR,
    DescribedFigure,
    Point,
    against_identity,
    decay,
    inline,
    picture,
    spectrum,
)
from topofl.report.pages import page_template, view
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measurements of one graph.

    Parameters
    ----------
    name, n, period
        Name, size and period of the graph; the period is None if it does not repeat.
    graph
        Graph to be drawn.
    contraction
        Geometric mean factor on consensus distance per round, in the long run.
    distances
        Consensus distance after 0, 1, ... rounds, relative to the start.
    eigenvalues
        Eigenvalues of the mixing matrix, or of the product of one period.
    """

    name: str
    n: int
    period: int | None
    graph: Topology | TopologySequence
    contraction: float | NotApplicable
    distances: np.ndarray | NotApplicable
    eigenvalues: np.ndarray | NotApplicable


def measure(
    graph: Any, name: str, *, rounds: int, seed: int, weights: WeightRule | None = None
) -> Measurements:
    """Return the measurements of one graph, from random starts.

    Parameters
    ----------
    graph
        A graph as in :func:`topofl.metrics.compare`.
    name
        Name of its row.
    rounds
        Number of simulated rounds; for the contraction of a periodic sequence, rounded up to whole
        periods.
    seed
        Seed of the random starts.
    weights
        Rule from Topology to MixingMatrix for graphs.
    """
    source, rule = graph, None
    if not (isinstance(graph, MixingMatrix) or is_list_of_matrices(graph)):
        source, rule = as_topology(graph), weights
    used = as_rounds(source, rule)
    drawn = source if isinstance(source, Topology | TopologySequence) else _support_of(used)
    whole = rounds if used.period is None else -(-rounds // used.period) * used.period
    try:
        contraction = metrics.measured_contraction(source, rounds=whole, seed=seed, weights=rule)
        distances = _distances(used, rounds, seed)
    except TopologyError as error:
        contraction = distances = NotApplicable(str(error))
    found = (contraction, distances, _eigenvalues(used))
    return Measurements(name, used.n, used.period, drawn, *found)


def _support_of(used: MixingSequence) -> Topology | TopologySequence:
    """Return the graph of the off-diagonal weights."""
    if used.period == 1:
        return used.at(0).support()
    return TopologySequence(
        used.n, lambda t: used.at(t).support(), name=used.name, period=used.period
    )


def _distances(used: MixingSequence, rounds: int, seed: int) -> np.ndarray | NotApplicable:
    """Return consensus distances over rounds of push-sum, or plain averaging if rows sum to 1."""
    if used.n == 1:
        return NotApplicable("a single node always agrees with itself")
    values = stream(seed, "spectral_report").standard_normal(used.n)
    values -= values.mean()  # distances are unchanged, but small ones more accurate
    push_weights = np.ones(used.n)
    start = metrics.consensus_distance(values[:, None])
    distances = [1.0]
    for t in range(rounds):
        matrix = used.at(t)
        values = matrix @ values
        if not (matrix.is_row_stochastic and (push_weights == 1).all()):
            push_weights = matrix @ push_weights
        distances.append(metrics.consensus_distance((values / push_weights)[:, None]) / start)
        if distances[-1] < ROUNDING_FLOOR:
            break
    return np.array(distances)


def _eigenvalues(used: MixingSequence) -> np.ndarray | NotApplicable:
    if used.period is None:
        return NotApplicable("the sequence has no period, so there is no product of one period")
    if used.n > spectral.DENSE_LIMIT:
        limit = spectral.DENSE_LIMIT
        return NotApplicable(
            f"all eigenvalues are computed up to n={limit:,} only, and this graph has n={used.n:,}"
        )
    if used.period == 1:
        return used.at(0).eigenvalues
    product = used.at(0).weights
    for t in range(1, used.period):
        product = sparse.csr_array(used.at(t).weights @ product)
    return spectral.eigenvalues(product)


DEFAULT_ROUNDS = 500


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
    measured = [
        measure(graph, str(name), rounds=rounds, seed=seed, weights=weights)
        for graph, name in zip(graphs, table.column("name"), strict=True)
    ]
    numbers = view(table, "numbers", table.title or "All numbers")
    decisive = "The numbers that decide; the others are below"
    glance = view(_glance(table), "glance", decisive, grouped=False)
    theory = _prediction_table(table, measured)
    factors = "Factor on consensus distance per round, predicted and measured"
    start = "averaging from a standard normal start, one number per node"
    rule, versions = weights_and_versions(weights)
    rows = zip(numbers["rows"], glance["rows"], measured, table.column("slem"), strict=True)
    return page_template("topofl.report", "page.html").render(
        title=f"Spectral report of {len(graphs)} graph{'' if len(graphs) == 1 else 's'}",
        glance=glance,
        numbers=numbers,
        n_numbers=len(table.columns) - 1,
        theory=view(theory, "theory", factors),
        against=[_gap_panel(theory), *_push_sum_panels(table)],
        cards=[
            {"row": row, "first": first, "panels": _panels(item, slem, row["number"], label_counts)}
            for row, first, item, slem in rows
        ],
        facts=[
            rule,
            ("Measured", f"over {rounds:,} rounds of {start}"),
            ("Seed", str(seed)),
            versions,
        ],
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
    factors = [item.contraction for item in measured]
    columns = {
        "graph": [item.name for item in measured],
        "slem (theory)": table.column("slem"),
        "contraction (measured)": factors,
        "spectral gap (theory)": table.column("spectral gap"),
        "gap (measured)": [f if isinstance(f, NotApplicable) else 1 - f for f in factors],
    }
    return Table(tuple(columns), tuple(zip(*columns.values(), strict=True)))


def _numbered(
    predicted: Sequence[Any], measured: Sequence[Any], is_shown: Callable[[Any], bool]
) -> tuple[list[Point], str]:
    """Return the points that are shown, named by numbers of graphs, and the numbers of others."""
    points: list[Point] = []
    left_out = []
    for number, pair in enumerate(zip(predicted, measured, strict=True), start=1):
        if all(map(is_shown, pair)):
            points.append((str(number), float(pair[0]), float(pair[1])))
        else:
            left_out.append(str(number))
    return points, ", ".join(left_out)


def _gap_panel(theory: Table) -> dict[str, Any]:
    """Return the plot of measured against predicted gaps, with points numbered like the graphs."""
    points, left_out = _numbered(
        theory.column("spectral gap (theory)"),
        theory.column("gap (measured)"),
        lambda gap: not isinstance(gap, NotApplicable) and gap > 0,
    )
    words = (
        "Each point is a graph, labeled by its number. For points above the line, the number of "
        "measured rounds may be too small to show the long-run rate."
    )
    if left_out:
        words += f" Graphs not shown, since a value is missing or not above 0: {left_out}."
    axes = ("spectral gap (theory)", "1 - measured contraction")
    return _comparison("Spectral gap against measured decay", axes, points, "gaps", words)


def _push_sum_panels(table: Table) -> list[dict[str, Any]]:
    """Return plots of measured q and C of push-sum against the bounds of SGP, if in the table.

    They are of logarithms, since bounds on 1 - q often underflow.
    """
    panels = []
    for symbol, quantity, value in (
        ("q", "log10(1 - q)", lambda q: 1 - q),
        ("C", "log10(C)", lambda c: c),
    ):
        names = (f"{quantity}, SGP", f"{symbol} measured")
        if not set(names) <= set(table.columns):
            continue
        predicted, measured = map(table.column, names)
        points, left_out = _numbered(
            predicted, [_log10(cell, value) for cell in measured], _is_finite
        )
        words = (
            "Theory: the bound of SGP, as a logarithm since it is loose for graphs of ordinary "
            "size. For points on the line, the bound is tight."
        )
        if left_out:
            words += f" Graphs not shown, since a value is not finite: {left_out}."
        axes = [f"{quantity}, {kind}" for kind in ("theory", "measured")]
        title, key = f"Push-sum: {axes[0]} against measured", f"push-sum-{symbol.lower()}"
        panels.append(_comparison(title, axes, points, key, words, logarithmic=False))
    return panels


def _comparison(
    title: str,
    axes: Sequence[str],
    points: Sequence[Point],
    key: str,
    words: str,
    *,
    logarithmic: bool = True,
) -> dict[str, Any]:
    """Return the plot of measured against predicted values; its words alone if there are none."""
    if not points:
        return _panel(title, NotApplicable(words), key)
    drawn = against_identity(points, title, *axes, logarithmic=logarithmic)
    return _panel(title, drawn, key, words)


def _log10(cell: Any, value: Callable[[float], float]) -> Any:
    if isinstance(cell, NotApplicable):
        return cell
    return math.log10(value(cell)) if value(cell) > 0 else -math.inf


def _is_finite(cell: Any) -> bool:
    return not isinstance(cell, NotApplicable) and math.isfinite(cell)


def _panels(item: Measurements, slem: Any, number: int, label_counts: Any) -> list[dict[str, Any]]:
    """Return the panels of one graph."""
    drawn: list[Any] = [picture(item.graph, label_counts), item.eigenvalues, item.distances]
    if not isinstance(item.eigenvalues, NotApplicable):
        drawn[1] = spectrum(item.eigenvalues, rounds=item.period or 1)
    if not isinstance(item.distances, NotApplicable):
        factor = None if isinstance(slem, NotApplicable) else float(slem)
        drawn[2] = decay(item.distances, factor, period=item.period)
    paper = "paper" if isinstance(item.graph, Topology) else "paper wide"
    return [
        _panel("Picture", drawn[0], f"g{number}-picture", kind=paper),
        _panel("Spectrum", drawn[1], f"g{number}-spectrum"),
        _panel("Consensus over rounds", drawn[2], f"g{number}-decay"),
    ]


def _panel(
    title: str, drawn: DescribedFigure | NotApplicable, key: str, words: str = "", kind: str = ""
) -> dict[str, Any]:
    """Return a figure of the page: heading, markup, description and CSS class.

    If there is no markup, the description gives the reason.
    """
    if isinstance(drawn, NotApplicable):
        return {"title": title, "markup": None, "description": drawn.reason, "kind": ""}
    words = words or drawn.description
    return {"title": title, "markup": inline(drawn, key), "description": words, "kind": kind}
