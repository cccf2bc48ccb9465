"""Plots of one history, and of several ones in comparison."""

from topofl.history.plots.inline import history_as_html
from topofl.history.plots.options import AXIS_LABELS, KINDS
from topofl.history.plots.single import plot

__all__ = ["AXIS_LABELS", "KINDS", "history_as_html", "plot"]
