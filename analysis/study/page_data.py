"""What the page of the study shows: cells averaged over seeds, and spectra of a few graphs."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from topofl import Topology, metrics

from .cells import Cell, Source, clients_of
from .graphs import GRAPHS, build_graph
from .predictors import PREDICTORS
from .statistics import CellTable
from .tables import OUTCOMES

__all__ = ["cells_shown", "page_data", "spectra_shown"]

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
