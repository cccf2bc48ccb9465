"""The page of the study: an interactive scatter plot, spectra, and the results in sentences."""

import json
import os
import tempfile
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from topofl import Table, Topology, metrics, report

from .predictors import PREDICTORS
from .scenarios import GRAPHS, Cell, Source, build_graph, clients_of
from .sentences import sentences
from .statistics import DRAWS, OUTCOMES, CellTable

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
