"""Summaries of many runs: tables with intervals, paired differences, targets and plots."""

from topofl.summary.figures import plot_band, plot_heat_map, plot_nodes, plot_pareto, plot_violin
from topofl.summary.table import Summary, summarize

__all__ = [
    "Summary",
    "plot_band",
    "plot_heat_map",
    "plot_nodes",
    "plot_pareto",
    "plot_violin",
    "summarize",
]
