"""The version of topofl, and the one since which runs have the results that they have."""

__version__ = "1.0.0"

RESULTS = "0.1.0"
"""The version since which all runs have the same results.

It is part of the keys by which stored runs are found, in place of the version itself, so that a new
release finds the runs of earlier ones; a release that changes a result raises it to its version.
"""
