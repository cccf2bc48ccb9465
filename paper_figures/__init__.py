"""Figures of papers, regenerated, and what the papers say of them, judged: ``topofl reproduce``."""

from .command import absent, listed, reproduce
from .results import Result
from .runs import Failed

__all__ = ["Failed", "Result", "absent", "listed", "reproduce"]
