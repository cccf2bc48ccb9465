"""Metrics of graphs, mixing matrices, label distributions and models, as numbers and tables."""

import types

# Star imports avoid naming each metric again. Type checkers and editors read the names from the
# `__all__` of each module.
from topofl.metrics.averaging import *
from topofl.metrics.compare import *
from topofl.metrics.consensus import *
from topofl.metrics.contraction import *
from topofl.metrics.cost import *
from topofl.metrics.deviation import *
from topofl.metrics.gradients import *
from topofl.metrics.hardware import *
from topofl.metrics.hops import *
from topofl.metrics.labels import *
from topofl.metrics.push_sum import *
from topofl.metrics.seconds import *
from topofl.metrics.shape import *
from topofl.metrics.spectral import *
from topofl.metrics.spectrum import *
from topofl.metrics.walks import *

__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll]
    name
    for name, value in globals().items()
    if not name.startswith("_") and not isinstance(value, types.ModuleType)
)
