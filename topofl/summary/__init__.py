"""Summaries of many runs: tables with intervals, paired differences, targets and plots."""

from topofl.summary.summarize import summarize
from topofl.summary.tables import Summary

__all__ = ["Summary", "summarize"]
