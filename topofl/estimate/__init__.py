"""Estimates of a run: its memory, messages and bytes, and with a short probe its run time."""

from topofl.estimate.predict import estimate
from topofl.estimate.result import Estimate

__all__ = ["Estimate", "estimate"]
