"""The engine: it owns the memory, the executors and the only loop over rounds."""

from topofl.engine.divergence import DivergenceError
from topofl.engine.options import Compute, Evaluation, Saving
from topofl.engine.ranks import RankError
from topofl.engine.run import run
from topofl.engine.saving import Interrupted

__all__ = ["Compute", "DivergenceError", "Evaluation", "Interrupted", "RankError", "Saving", "run"]
