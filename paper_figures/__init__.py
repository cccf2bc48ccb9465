"""Figures of papers, regenerated, and what the papers say of them, judged: ``topofl reproduce``."""

from .command import absent, listed, planned, reproduce
from .kit.results import Result
from .kit.training.compute import Failed

__all__ = ["Failed", "Result", "absent", "listed", "planned", "reproduce"]
