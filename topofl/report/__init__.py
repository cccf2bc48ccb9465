"""Reports of graphs as one HTML file that needs nothing else: no network, no fonts, no other file."""

from topofl.report.files import replacing
from topofl.report.page import spectral_report
from topofl.report.rounds import rounds_report

__all__ = ["replacing", "rounds_report", "spectral_report"]
