"""Summaries of many runs: tables with intervals, paired differences, targets and plots."""

from topofl.summary.plots import (
    plot_bands,
    plot_clients,
    plot_heat_map,
    plot_pareto,
    plot_violins,
)
from topofl.summary.summarize import summarize
from topofl.summary.tables import Summary

__all__ = [
    "Summary",
    "plot_bands",
    "plot_clients",
    "plot_heat_map",
    "plot_pareto",
    "plot_violins",
    "summarize",
]
