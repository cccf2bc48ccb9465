"""Spectral report: table, measurements and figures of graphs as one HTML page."""

import platform
from collections.abc import Sequence
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
from topofl.report import figures
from topofl.report.pages import page_template, view
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology


def measure(
    graph: Any, *, rounds: int, seed: int, weights: WeightRule | None = None
) -> dict[str, Any]:
    """Return the measurements of one graph, from random starts.

    Parameters
    ----------
    graph
        A graph as in :func:`topofl.metrics.compare`.
    rounds
        Number of simulated rounds; for the contraction of a periodic sequence, rounded up to whole
        periods.
    seed
        Seed of the random starts.
    weights
        Rule from Topology to MixingMatrix for graphs.

    Returns
    -------
    dict
        ``graph``, to be drawn, and its ``period``, None if it does not repeat. The others may be
        :class:`topofl.NotApplicable`: ``contraction``, the geometric mean factor on consensus
        distance per round in the long run; ``distances``, consensus distance after 0, 1, ...
        rounds, relative to the start; and ``eigenvalues`` of the mixing matrix, or of the product
        of one period.
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
    found = {"contraction": contraction, "distances": distances, "eigenvalues": _eigenvalues(used)}
    return {"graph": drawn, "period": used.period} | found


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
        if distances[-1] < figures.ROUNDING_FLOOR:
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
    measured = [measure(graph, rounds=rounds, seed=seed, weights=weights) for graph in graphs]
    numbers = view(table, "numbers", table.title or "All numbers")
    decisive = "The numbers that decide; the others are below"
    first = table.select([table.columns[0], *headline(table.columns[1:])])
    glance = view(first, "glance", decisive, grouped=False)
    theory = _prediction_table(table, [item["contraction"] for item in measured])
    factors = "Factor on consensus distance per round, predicted and measured"
    how = f"over {rounds:,} rounds of averaging from a standard normal start, one number per node"
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
        facts=[rule, ("Measured", how), ("Seed", str(seed)), versions],
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


def weights_and_versions(weights: WeightRule | None) -> list[tuple[str, str]]:
    """Return the weight rule and the package versions as pairs of heading and text."""
    rule = "the graph's own, else Metropolis-Hastings if it is undirected, else uniform pull"
    used = ("numpy", "scipy", "networkx", "matplotlib")
    versions = [f"topofl {topofl.__version__}", f"Python {platform.python_version()}"]
    return [
        ("Weights", rule if weights is None else getattr(weights, "__name__", repr(weights))),
        ("Versions", ", ".join(versions + [f"{name} {version(name)}" for name in used])),
    ]


def _prediction_table(table: Table, factors: Sequence[Any]) -> Table:
    """Return a table of predicted and measured contraction factors and gaps."""
    columns = {
        "graph": map(str, table.column("name")),
        "slem (theory)": table.column("slem"),
        "contraction (measured)": factors,
        "spectral gap (theory)": table.column("spectral gap"),
        "gap (measured)": [f if isinstance(f, NotApplicable) else 1 - f for f in factors],
    }
    return Table(tuple(columns), tuple(zip(*columns.values(), strict=True)))


def _gap_panel(theory: Table) -> dict[str, Any]:
    """Return the plot of measured against predicted gaps, with points numbered like the graphs."""
    values = map(theory.column, ("spectral gap (theory)", "gap (measured)"))
    words = (
        "Each point is a graph, labeled by its number. For points above the line, the number of "
        "measured rounds may be too small to show the long-run rate."
    )
    axes = ("spectral gap (theory)", "1 - measured contraction")
    title = "Spectral gap against measured decay"
    return _comparison(
        title, axes, [*map(_floats, values)], "gaps", words, "is missing or not above 0"
    )


def _push_sum_panels(table: Table) -> list[dict[str, Any]]:
    """Return plots of measured q and C of push-sum against the bounds of SGP, if in the table.

    They are of logarithms, since bounds on 1 - q often underflow.
    """
    panels = []
    for symbol, quantity in (("q", "log10(1 - q)"), ("C", "log10(C)")):
        names = (f"{quantity}, SGP", f"{symbol} measured")
        if not set(names) <= set(table.columns):
            continue
        predicted, measured = (_floats(table.column(name)) for name in names)
        with np.errstate(invalid="ignore", divide="ignore"):
            measured = np.log10(1 - measured if symbol == "q" else measured)
        words = (
            "Theory: the bound of SGP, as a logarithm since it is loose for graphs of ordinary "
            "size. For points on the line, the bound is tight."
        )
        axes = (f"{quantity}, theory", f"{quantity}, measured")
        title, key = f"Push-sum: {axes[0]} against measured", f"push-sum-{symbol.lower()}"
        both, lacking = [predicted, measured], "is not finite"
        panels.append(_comparison(title, axes, both, key, words, lacking, logarithmic=False))
    return panels


def _floats(cells: Sequence[Any]) -> np.ndarray:
    return np.array([np.nan if isinstance(one, NotApplicable) else float(one) for one in cells])


def _comparison(
    title: str,
    axes: tuple[str, str],
    values: Sequence[np.ndarray],
    key: str,
    words: str,
    lacking: str,
    *,
    logarithmic: bool = True,
) -> dict[str, Any]:
    """Return the plot of measured against predicted values; its words alone if there are none.

    Graphs are named by their numbers. Those with a value that is not finite or, on logarithmic
    axes, not above 0 are left out, and it is said what they lack.
    """
    both = np.stack(values, axis=1)
    shown = (np.isfinite(both) & (both > (0 if logarithmic else -np.inf))).all(1)
    if not shown.all():
        others = ", ".join(map(str, np.flatnonzero(~shown) + 1))
        words += f" Graphs not shown, since a value {lacking}: {others}."
    if not shown.any():
        return _panel(title, NotApplicable(words), key)
    points = [(str(k + 1), *both[k].tolist()) for k in np.flatnonzero(shown)]
    drawn = figures.against_identity(points, title, *axes, logarithmic=logarithmic)
    return _panel(title, drawn, key, words)


def _panels(
    item: dict[str, Any], slem: Any, number: int, label_counts: Any
) -> list[dict[str, Any]]:
    """Return the panels of one graph."""
    eigenvalues, distances = item["eigenvalues"], item["distances"]
    if not isinstance(eigenvalues, NotApplicable):
        eigenvalues = figures.spectrum(eigenvalues, rounds=item["period"] or 1)
    if not isinstance(distances, NotApplicable):
        factor = None if isinstance(slem, NotApplicable) else float(slem)
        distances = figures.decay(distances, factor, period=item["period"])
    paper = "paper" if isinstance(item["graph"], Topology) else "paper wide"
    drawn = figures.picture(item["graph"], label_counts)
    return [
        _panel("Picture", drawn, f"g{number}-picture", kind=paper),
        _panel("Spectrum", eigenvalues, f"g{number}-spectrum"),
        _panel("Consensus over rounds", distances, f"g{number}-decay"),
    ]


def _panel(title: str, drawn: Any, key: str, words: str = "", kind: str = "") -> dict[str, Any]:
    """Return a figure of the page: heading, markup, description and CSS class.

    `drawn` is a described figure, or not applicable: then there is no markup, and the description
    gives the reason.
    """
    if isinstance(drawn, NotApplicable):
        return {"title": title, "markup": None, "description": drawn.reason, "kind": ""}
    words, markup = words or drawn.description, figures.inline(drawn, key)
    return {"title": title, "markup": markup, "description": words, "kind": kind}
