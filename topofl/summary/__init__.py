"""Summaries of many runs: tables with intervals, paired differences, targets and plots."""
