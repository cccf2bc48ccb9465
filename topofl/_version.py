"""The version of topofl, and the last one that changed results of runs."""

__version__ = "1.0.0"

RESULTS = "0.1.0"
"""The last version that changed results of runs.

It is part of the keys by which stored runs are found, in place of the version itself, and of
checkpoints, so that a new release finds and continues the runs of earlier ones. A release that
changes a result raises it to its version.
"""

RESULTS_WITHOUT_ENTRY = "0.1.0"
"""What records and checkpoints have that were written before they named the above."""
