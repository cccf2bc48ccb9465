"""Reports of graphs as self-contained HTML pages, which need no network and no other files."""

from topofl.report.files import replacing
from topofl.report.page import spectral_report
from topofl.report.pages import page_template
from topofl.report.rounds import rounds_report

__all__ = ["page_template", "replacing", "rounds_report", "spectral_report"]
