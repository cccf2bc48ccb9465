"""Plots over many runs: learning curves, clients, Pareto fronts and heat maps."""

from topofl.summary.plots.bands import plot_bands
from topofl.summary.plots.clients import plot_clients, plot_violins
from topofl.summary.plots.heat_map import plot_heat_map
from topofl.summary.plots.pareto import plot_pareto

__all__ = ["KINDS", "plot_bands", "plot_clients", "plot_heat_map", "plot_pareto", "plot_violins"]

KINDS = {
    "bands": plot_bands,
    "violins": plot_violins,
    "clients": plot_clients,
    "pareto": plot_pareto,
    "heat_map": plot_heat_map,
}
"""Plots by their name in :meth:`topofl.summary.Summary.plot` and ``topofl compare --kind``."""
