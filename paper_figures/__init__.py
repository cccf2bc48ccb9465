"""Figures of papers, regenerated, and what the papers say of them, judged: ``topofl reproduce``."""

from .command import absent, listed, planned, reproduce
from .kit.reproduce import Result
from .kit.store import Failed

__all__ = ["Failed", "Result", "absent", "listed", "planned", "reproduce"]
