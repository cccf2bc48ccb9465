"""The report of the study: verdicts, tables of correlations, and a scatter plot."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .graphs import GRAPHS
from .run import Records
from .statistics import CellTable
from .tables import SKEWED, cell_tables, correlation_table, hypotheses

__all__ = ["write_report"]

COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
"""Colors of the families, from the colorblind-safe palette of Okabe and Ito."""

PANELS = ("spectral gap", "H_1", "H_10")
"""Predictors of the picture."""


def write_report(records: Records, scenarios: Sequence[str], out: Path) -> list[Path]:
    """Write the report and the picture of all complete cells, and return their paths."""
    tables = cell_tables(records, scenarios)
    if not tables:
        return []
    out.mkdir(parents=True, exist_ok=True)
    parts = ["# What predicts convergence: results", "", _summary(tables, records), ""]
    parts += ["## Hypotheses", "", hypotheses(tables).to_markdown(), ""]
    for title, chosen in _groups(tables).items():
        parts += [f"## {title}", "", correlation_table(chosen, title).to_markdown(), ""]
    report = out / "report.md"
    report.write_text("\n".join(parts), encoding="utf-8")
    return [report, _scatter(tables, out / "scatter.png")]


def _summary(tables: Sequence[CellTable], records: Records) -> str:
    runs = sum(len(table.graphs) for table in tables)
    return (
        f"{len(tables)} cells with {runs:,} runs over {len(GRAPHS)} graphs. Entries are median "
        "rank correlations over cells, with signs such that -1 is perfect, and 95 % bootstrap "
        "intervals (clusters of partitions, and graphs). [Hypotheses and definitions]"
        "(../../study/HYPOTHESES.md) were written before the first run."
    )


def _groups(tables: Sequence[CellTable]) -> dict[str, list[CellTable]]:
    """Return the groups of cells that have a table each."""
    groups: dict[str, list[CellTable]] = {}
    for table in tables:
        kind = "skewed labels" if table.partition in SKEWED else table.partition
        groups.setdefault(f"{table.scenario}, {table.method}, {kind}", []).append(table)
    return groups


def _scatter(tables: Sequence[CellTable], path: Path) -> Path:
    """Draw accuracy in the learning phase over three predictors, one row per scenario of D-SGD."""
    from matplotlib.figure import Figure

    shown = {
        table.scenario: table
        for table in reversed(tables)
        if table.method == "D-SGD" and table.partition == "2 shards"
    }
    shown = dict(reversed(shown.items()))
    figure = Figure(figsize=(11, 2.9 * len(shown)), layout="constrained")
    axes = np.atleast_2d(figure.subplots(len(shown), len(PANELS), sharey="row", squeeze=False))
    families = list(dict.fromkeys(graph.family for graph in GRAPHS.values()))
    for row, (scenario, table) in zip(axes, shown.items(), strict=True):
        own = np.array([GRAPHS[graph].family for graph in table.graphs])
        for ax, predictor in zip(row, PANELS, strict=True):
            for family, color in zip(families, COLORS, strict=True):
                chosen = own == family
                x, y = table.predictors[predictor][chosen], table.outcomes["learning phase"][chosen]
                ax.scatter(x, y, s=22, color=color, label=family)
            ax.set_xscale("symlog", linthresh=1e-3)
            ax.set_xlabel(predictor)
            ax.grid(alpha=0.3)
        row[0].set_ylabel(f"{scenario}\naccuracy, learning phase")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(families), frameon=False)
    figure.savefig(path, dpi=110)
    return path
