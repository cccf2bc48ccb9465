"""The study of what predicts convergence: graphs, runs, correlations, and verdicts."""

from .command import main, study
from .dataset import StudyDataset

__all__ = ["StudyDataset", "main", "study"]
