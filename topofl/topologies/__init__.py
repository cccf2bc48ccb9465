"""Graph generators: functions that return a Topology or a TopologySequence.

``__all__`` lists the generators only. :data:`GENERATORS` holds the family and the examples that
each generator declares next to its function; tests, reports, the gallery and the command line read
these declarations. Operations on graphs, such as :func:`union`, are here too.

``recommend``, which ranks graphs for given data, is :func:`topofl.advice.recommend`. It uses
metrics, which are in a lower layer, so the root package puts it here.
"""

from collections.abc import Callable
from typing import Any

# Star imports avoid naming each generator again. Type checkers and editors read the names from the
# `__all__` of each module.
from topofl.topologies._generator import FAMILIES as FAMILIES
from topofl.topologies._generator import GENERATORS as GENERATORS
from topofl.topologies._generator import Example as Example
from topofl.topologies._generator import Generator as Generator
from topofl.topologies.classic import *
from topofl.topologies.cliques import *
from topofl.topologies.collaboration import *
from topofl.topologies.dcliques import *
from topofl.topologies.derived import *
from topofl.topologies.designed import *
from topofl.topologies.exponential import *
from topofl.topologies.frank_wolfe import *
from topofl.topologies.matcha import *
from topofl.topologies.overlays import *
from topofl.topologies.placement import *
from topofl.topologies.presence import *
from topofl.topologies.random import *
from topofl.topologies.rotating import *

__all__ = sorted(GENERATORS)  # pyright: ignore[reportUnsupportedDunderAll]


recommend: Callable[..., Any]
