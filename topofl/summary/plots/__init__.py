"""Plots over many runs: learning curves, nodes, Pareto fronts and heat maps."""

from topofl.summary.plots.band import plot_band
from topofl.summary.plots.heat_map import plot_heat_map
from topofl.summary.plots.nodes import plot_nodes, plot_violin
from topofl.summary.plots.pareto import plot_pareto

__all__ = ["KINDS", "plot_band", "plot_heat_map", "plot_nodes", "plot_pareto", "plot_violin"]

KINDS = {
    "band": plot_band,
    "violin": plot_violin,
    "nodes": plot_nodes,
    "pareto": plot_pareto,
    "heat_map": plot_heat_map,
}
"""Plots by their name in :meth:`topofl.summary.Summary.plot` and ``topofl compare --kind``."""
