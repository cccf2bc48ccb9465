"""The engine: it owns the memory, the executors and the only loop over rounds."""

from topofl.engine.options import Compute, Evaluation, Saving
from topofl.engine.rank_failure import RankError
from topofl.engine.run import run
from topofl.engine.saving import Interrupted
from topofl.engine.train.divergence import DivergenceError

__all__ = [
    "Compute",
    "DivergenceError",
    "Evaluation",
    "Interrupted",
    "RankError",
    "Saving",
    "run",
]
