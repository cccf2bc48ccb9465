"""The page of the study, with a scatter plot and spectra, and the results in sentences.

The numbers in sentences are computed from the cells.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from topofl import Table, Topology, metrics, report

from .runs import PREDICTORS
from .scenarios import GRAPHS, Cell, Source, build_graph, clients_of
from .statistics import (
    DRAWS,
    OUTCOMES,
    SKEWED,
    CellTable,
    Statistic,
    correlation,
    first_cells,
    given_noise,
    median_over_cells,
    spearman,
)

SPECTRA = ("ring", "torus", "exponential", "D-Cliques 10 ring", "designed 10", "4-regular")
"""Graphs whose spectra are shown, on two shards of digits per node."""

DIGITS = 6
"""Significant digits of the numbers in the page."""

ZERO = 1e-12
"""Sums below this are rounding errors of graphs that average exactly."""

BARS = 40
"""Bars of a spectrum between eigenvalues -1 and 1."""

SLOW = 0.8
"""Modulus of an eigenvalue above which deviations stay for several rounds."""


def page_data(tables: Sequence[CellTable], *, spectra: bool = True) -> dict[str, Any]:
    """Return all data of the page's script, with or without the spectra of our own graphs."""
    cells, columns = cells_shown(tables)
    return {
        "predictors": list(PREDICTORS),
        "outcomes": OUTCOMES,
        "families": list(dict.fromkeys(family for table in tables for family in table.families)),
        "columns": columns,
        "cells": cells,
        "spectra": spectra_shown() if spectra else [],
    }


def cells_shown(tables: Sequence[CellTable]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return cells averaged over seeds, and the predictors that cells with equal ones share.

    Parameters
    ----------
    tables
        Cells of single seeds.

    Returns
    -------
    tuple
        Cells with names and families of graphs, whether a run diverged, outcomes, and the index of
        their predictors; and predictors. Values that are not defined are None.
    """
    names = dict.fromkeys((table.scenario, table.partition, table.method) for table in tables)
    cells, columns = [], {}
    for name in names:
        own = [t for t in tables if (t.scenario, t.partition, t.method) == name]
        graphs = [graph for graph in own[0].graphs if all(graph in t.graphs for t in own)]
        rows = [[list(table.graphs).index(graph) for graph in graphs] for table in own]
        predictors = _means([t.predictors for t in own], rows)
        column = columns.setdefault(json.dumps(predictors), (len(columns), predictors))
        diverged = [_diverged(table)[chosen] for table, chosen in zip(own, rows, strict=True)]
        cells.append(
            {
                **dict(zip(("scenario", "partition", "method"), name, strict=True)),
                "nodes": own[0].nodes,
                "seeds": len(own),
                "graphs": graphs,
                "families": [own[0].families[row] for row in rows[0]],
                "diverged": np.any(diverged, axis=0).tolist(),
                "x": column[0],
                "y": _means([t.outcomes for t in own], rows),
            }
        )
    return cells, [predictors for _, predictors in columns.values()]


def _diverged(table: CellTable) -> np.ndarray:
    """Return which runs diverged: their accuracy is set to below 0."""
    return np.asarray(table.outcomes["learning phase"]) < 0


def _means(columns: Sequence[Any], rows: Sequence[list[int]]) -> dict[str, list[float | None]]:
    """Return the means over seeds of each column."""
    return {
        name: [
            _rounded(value)
            for value in np.mean(
                [own[name][chosen] for own, chosen in zip(columns, rows, strict=True)], axis=0
            )
        ]
        for name in columns[0]
    }


def _rounded(value: float) -> float | None:
    if not np.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}") if abs(value) > ZERO else 0.0


def spectra_shown() -> list[dict[str, Any]]:
    """Return label energy over eigenvalues of a few graphs, on two shards of digits per node."""
    clients = clients_of(Cell("digits 60", "2 shards", "", 0, ""), Source())
    shown = []
    for name in SPECTRA:
        graph = build_graph(GRAPHS[name], clients, 0)
        assert isinstance(graph, Topology), graph
        spectrum = metrics.heterogeneity_spectrum(graph, clients)
        heights, edges = np.histogram(
            np.clip(spectrum.eigenvalues, -1, 1), BARS, (-1, 1), weights=spectrum.energies
        )
        slow = spectrum.energies[np.abs(spectrum.eigenvalues) > SLOW].sum()
        shown.append(
            {
                "graph": name,
                "family": GRAPHS[name].family,
                "degree": _rounded(float(graph.in_degrees.mean())),
                "gap": _rounded(metrics.spectral_gap(graph)),
                "H_1": _rounded(spectrum.heterogeneity(hops=1)),
                "H_10": _rounded(spectrum.heterogeneity(hops=10)),
                "slow": _rounded(float(slow / spectrum.energies.sum())),
                "limit": SLOW,
                "edges": [round(float(edge), 4) for edge in edges],
                "heights": [_rounded(float(height)) for height in heights],
            }
        )
    return shown


def check_page(path: Path) -> None:
    """Raise unless a page can be written to `path`, the option ``--html``; nothing is written.

    Raises
    ------
    ValueError
        If it does not end in .html or .htm.
    OSError
        If it is a folder or a read-only file, or the folder that it is in is not one, or cannot be
        written. Links are followed.
    ModuleNotFoundError
        If ``vl-convert-python`` is not installed.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"`--html` must be a file that ends in .html, got {path}")
    if path.is_dir():
        raise IsADirectoryError(f"`--html` must be a file, got {path}, a folder; name a file in it")
    _check_writable(path)
    _vl_convert("`--html`")


def _check_writable(path: Path) -> None:
    """Raise ``OSError`` unless a file can be written, in folders that may have to be created."""
    must = f"`--html` must be a file that can be written, got {path}"
    target = path.resolve()  # where :func:`write_page` writes: links are followed
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(f"{must}, which is read-only; name another file")
    there = next(folder for folder in target.parents if folder.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise type(error)(
            f"{must}: {error.strerror}: {there}; name a file in another folder"
        ) from error


def write_page(
    tables: Sequence[CellTable],
    path: Path,
    *,
    verdicts: Table | None = None,
    spectra: bool = True,
    draws: int = DRAWS,
) -> Path:
    """Write the page of the study, which needs no network and no other files, and return its path.

    Parameters
    ----------
    tables
        Cells as returned by :func:`analysis.study.statistics.cell_tables`. The plots show means
        over seeds; sentences are about cells of single seeds.
    path
        HTML file to write. An existing file is replaced, links are followed, and missing folders
        are created.
    verdicts
        Table of hypotheses to show; None: none.
    spectra
        Whether to show spectra of graphs of this study, on digits with 60 nodes.
    draws
        Bootstrap draws of the intervals in the sentences.

    Raises
    ------
    ValueError
        If there are no cells.
    ModuleNotFoundError
        If ``vl-convert-python`` is not installed.
    """
    if not tables:
        raise ValueError("`tables` must contain at least one cell, got none; run the study first")
    # The package is analysis.study in a checkout, topofl.analysis.study where it is installed.
    text = report.page_template(__name__.rpartition(".")[0], "study.html").render(
        title="What predicts convergence",
        libraries=_libraries(),
        study=page_data(tables, spectra=spectra),
        sentences=sentences(tables, draws=draws),
        verdicts=verdicts,
        seeds=sorted({table.seed for table in tables}),
        runs=sum(len(table.graphs) for table in tables),
        cells=len(tables),
        version=version("topofl"),
    )
    path.resolve().parent.mkdir(parents=True, exist_ok=True)
    with report.replacing(path) as file:
        file.write(text)
    return path


def _libraries() -> Markup:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    vl_convert = _vl_convert("`write_page`")
    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _vl_convert(who: str) -> Any:
    """Return the module, or raise with what needs it and how to install it."""
    try:
        return import_module("vl_convert")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{who} needs vl-convert-python, which is not installed; install it with pip install "
            "'topofl[pages]'"
        ) from error


Sentence = tuple[str, str]
"""A sentence, and the cells behind it."""

EARLY, LATE = "learning phase", "final"

SAID = {
    "learning phase": "mean accuracy in the learning phase",
    "final": "final accuracy",
    "worst node": "the accuracy of the worst node",
    "consensus": "consensus distance",
}
"""Outcomes as they are called in sentences."""


def sentences(tables: Sequence[CellTable], *, draws: int = DRAWS) -> list[Sentence]:
    """Return the results that these cells support, each with the cells behind it.

    Correlations are medians over cells, with their sign, and 95 % intervals of `draws` bootstrap
    draws in parentheses.
    """
    return [*_on_dsgd(tables, draws), *_on_others(tables, draws), *_on_graphs(tables)]


def finding(tables: Sequence[CellTable]) -> str | None:
    """Return what predicts the learning phase best, and how well the spectral gap does.

    The cells are those of the first table of the report. None: too few graphs for a correlation.
    """
    skewed = first_cells(tables)
    # Oriented correlations are -1 for a perfect predictor.
    medians = {name: _median(skewed, correlation(name, EARLY)) for name in PREDICTORS}
    known = {name: value for name, value in medians.items() if np.isfinite(value)}
    if not known:
        return None
    best = min(known, key=lambda name: known[name])

    def said(name: str) -> str:
        return f"{_median(skewed, _raw(name, EARLY, (name,))):+.3f}"

    cells = f"{len(skewed)} cell{'' if len(skewed) == 1 else 's'}"
    gap = f", that of the spectral gap {said('spectral gap')}" if "spectral gap" in known else ""
    first = f"{best} predicts {SAID[EARLY]} best: its"
    if known[best] >= 0:
        first = f"no predictor has the expected sign for {SAID[EARLY]}; of {best}, the"
    rest = "" if best == "spectral gap" else gap
    return f"{first} rank correlation (median over {cells}) is {said(best)}{rest}"


def _on_dsgd(tables: Sequence[CellTable], draws: int) -> Iterator[Sentence]:
    plain = [table for table in tables if table.method == "D-SGD"]
    skewed = [table for table in plain if table.partition in SKEWED]
    labels = "D-SGD and skewed labels"
    if skewed:
        yield _compared(
            f"With {labels}", skewed, EARLY, ("H_10", "H_1", "mean degree", "spectral gap"), draws
        )
        yield _compared(
            "At the end of training", skewed, LATE,
            ("predicted deviation (20)", "H_20", "H_1", "spectral gap"), draws,
        )  # fmt: skip
        yield _best(skewed, labels)
    large = [table for table in skewed if table.nodes >= 1000]
    if large:
        yield _compared("With 1,000 nodes", large, EARLY, ("H_1", "H_10", "spectral gap"), draws)
    iid = [table for table in plain if table.partition == "iid"]
    if iid:
        yield _compared("With iid data", iid, LATE, ("N_10", "n_W(0.9)", "spectral gap"), draws)


def _on_others(tables: Sequence[CellTable], draws: int) -> Iterator[Sentence]:
    skewed = [table for table in tables if table.partition in SKEWED]
    for method, said in (("momentum", "momentum"), ("local steps", "5 local steps")):
        own = [table for table in skewed if table.method == method]
        if own:
            yield _compared(f"With {said}", own, EARLY, ("H_10", "H_1", "spectral gap"), draws)
    corrected = [table for table in skewed if table.method in ("gradient tracking", "D2")]
    if corrected:
        yield _corrected(corrected, draws)


def _compared(
    start: str, tables: Sequence[CellTable], outcome: str, names: Sequence[str], draws: int
) -> Sentence:
    """Return the sentence about rank correlations of several predictors with an outcome."""
    found = [_estimate(tables, _raw(name, outcome, names), draws) for name in names]
    first, rest = f"{names[0]} has a rank correlation of {found[0]} with {SAID[outcome]}", []
    rest = [f"{name} has {number}" for name, number in zip(names[1:], found[1:], strict=True)]
    return f"{start}, {first}; {_listed(rest)}.", _cells(tables)


def _best(tables: Sequence[CellTable], labels: str) -> Sentence:
    parts = []
    for outcome, said in SAID.items():
        every = tuple(PREDICTORS)
        medians = {name: _median(tables, _raw(name, outcome, every)) for name in every}
        known = {name: value for name, value in medians.items() if np.isfinite(value)}
        if known:
            best = max(known, key=lambda name: abs(known[name]))
            parts.append(f"{best} with {said} ({signed_text(known[best])})")
    return (
        f"Of {len(PREDICTORS)} predictors, these have the largest absolute rank correlation with "
        f"{labels}, over the graphs that have all of them: {_listed(parts)}.",
        _cells(tables),
    )


def _corrected(tables: Sequence[CellTable], draws: int) -> Sentence:
    both = ("H_10", "N_10")
    h, n = (_estimate(tables, _raw(name, LATE, both), draws) for name in both)
    left = _estimate(tables, given_noise(LATE), draws)
    methods = _listed(list(dict.fromkeys(table.method for table in tables)))
    return (
        f"If heterogeneity is removed from the updates ({methods}), H_10 has a rank correlation "
        f"of {h} with final accuracy and N_10 has {n}. Given N_10, the partial rank correlation of "
        f"H_10 is {left}.",
        _cells(tables),
    )


def _on_graphs(tables: Sequence[CellTable]) -> Iterator[Sentence]:
    shown = [
        table
        for table in tables
        if (table.scenario, table.partition, table.method) == ("digits 60", "2 shards", "D-SGD")
    ]
    if not shown:
        return
    groups = (
        ("designed 4", "swapped 4", "torus", "4-regular", "circulant 1-2"),
        ("designed 10", "D-Cliques 10 ring", "exponential", "10-regular", "circulant 1-5"),
    )
    for names in groups:
        known = [name for name in names if all(name in table.graphs for table in shown)]
        if len(known) > 1:
            yield _ranked(shown, known)
    misled = _misled(shown)
    if misled is not None:
        yield misled, _cells(shown)


def _ranked(tables: Sequence[CellTable], names: Sequence[str]) -> Sentence:
    degrees = [_mean(tables, name, "predictors", "mean degree") for name in names]
    accuracy = {name: _mean(tables, name, "outcomes", EARLY) for name in names}
    order = sorted(names, key=lambda name: -accuracy[name])
    parts = [f"{accuracy[name]:.3f} ({name})" for name in order]
    low, high = min(degrees), max(degrees)
    degree = f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"
    return (
        f"With {degree} neighbors per node and 2 shards of digits at each of 60 nodes, "
        f"{SAID[EARLY]} is {_listed(parts)}.",
        _cells(tables),
    )


def _misled(tables: Sequence[CellTable]) -> str | None:
    """Return the pair of graphs that the spectral gap orders wrongly by the largest accuracy."""
    shared = [graph for graph in tables[0].graphs if all(graph in t.graphs for t in tables)]
    read = (("predictors", "spectral gap"), ("outcomes", EARLY), ("predictors", "H_10"))
    gap, accuracy, h = (
        np.array([_mean(tables, graph, kind, name) for graph in shared]) for kind, name in read
    )
    lead = accuracy[:, None] - accuracy[None, :]
    lead = np.where(gap[:, None] < gap[None, :], lead, -np.inf)  # False where a gap is NaN
    if not (lead > 0).any():
        return None
    a, b = np.unravel_index(np.argmax(lead), lead.shape)
    return (
        f"The spectral gap misleads: that of {shared[a]} ({gap[a]:.3g}) is smaller than that of "
        f"{shared[b]} ({gap[b]:.3g}), yet its {SAID[EARLY]} is {accuracy[a]:.3f} against "
        f"{accuracy[b]:.3f}. H_10 is {h[a]:.3g} against {h[b]:.3g}."
    )


def _mean(tables: Sequence[CellTable], graph: str, kind: str, name: str) -> float:
    columns = [getattr(table, kind)[name][list(table.graphs).index(graph)] for table in tables]
    return float(np.mean(columns))


def _raw(predictor: str, outcome: str, names: Sequence[str]) -> Statistic:
    """Return the signed rank correlation over the graphs that have all predictors of `names`."""

    def columns(table: CellTable) -> np.ndarray:
        rest = [table.predictors[name] for name in names]
        return np.stack([table.predictors[predictor], table.outcomes[outcome], *rest])

    return Statistic(columns, lambda found: spearman(found[:2]))


def _estimate(tables: Sequence[CellTable], statistic: Statistic, draws: int) -> str:
    found = median_over_cells(tables, statistic, draws=draws)
    low, high = signed_text(found.low), signed_text(found.high)
    return f"{signed_text(found.estimate)} ({low} to {high})"


def _median(tables: Sequence[CellTable], statistic: Statistic) -> float:
    return median_over_cells(tables, statistic, draws=1).estimate


def signed_text(value: float) -> str:
    """Return a number with three decimals, its sign, and a typographic minus."""
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}") if np.isfinite(value) else "n/a"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _cells(tables: Sequence[CellTable]) -> str:
    """Return what was counted: cells, scenarios and partitions."""
    scenarios, partitions = (
        ", ".join(dict.fromkeys(getattr(table, name) for table in tables))
        for name in ("scenario", "partition")
    )
    graphs = max(len(table.graphs) for table in tables)
    number = f"{len(tables)} cell{'' if len(tables) == 1 else 's'}"
    return f"{number} of up to {graphs} graphs: {scenarios}; {partitions}."
