"""The engine: it owns the memory, the executors and the only loop over rounds."""

from topofl.engine.divergence import DivergenceError
from topofl.engine.interrupt import Interrupted
from topofl.engine.options import Compute, Evaluation, Saving
from topofl.engine.run import run

__all__ = ["Compute", "DivergenceError", "Evaluation", "Interrupted", "Saving", "run"]
