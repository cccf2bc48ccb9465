"""Reports of graphs as self-contained HTML pages, which need no network and no other files."""

from topofl.report.pages import page_template, replacing
from topofl.report.rounds import rounds_report
from topofl.report.spectral import spectral_report

__all__ = ["page_template", "replacing", "rounds_report", "spectral_report"]
