"""Graph generators: functions that return a Topology or a TopologySequence.

``__all__`` lists the generators only. :data:`GENERATORS` holds the family and the examples that
each generator declares next to its function; tests, reports, the gallery and the command line read
these declarations. Operations on graphs (:mod:`topofl.topologies.operations`) are here too.
"""

# Star imports avoid naming each generator again. Type checkers and editors read the names from the
# `__all__` of each module.
from topofl.topologies._generator import FAMILIES as FAMILIES
from topofl.topologies._generator import GENERATORS as GENERATORS
from topofl.topologies._generator import Example as Example
from topofl.topologies._generator import Generator as Generator
from topofl.topologies.changing.finite_time import *
from topofl.topologies.changing.matchings import *
from topofl.topologies.changing.time_varying import *
from topofl.topologies.changing.unreliable import *
from topofl.topologies.cliques.dcliques import *
from topofl.topologies.cliques.decentralized import (
    decentralized_greedy_swap as decentralized_greedy_swap,
)
from topofl.topologies.cliques.decentralized import (
    decentralized_greedy_swap_trace as decentralized_greedy_swap_trace,
)
from topofl.topologies.cliques.greedy_swap import *
from topofl.topologies.cliques.ideal import *
from topofl.topologies.cliques.thin import *
from topofl.topologies.from_data.collaboration import *
from topofl.topologies.from_data.designed import *
from topofl.topologies.from_data.designed_directed import *
from topofl.topologies.from_data.frank_wolfe import *
from topofl.topologies.from_data.greedy_choice import averaged_reward as averaged_reward
from topofl.topologies.from_data.greedy_choice import bggc as bggc
from topofl.topologies.from_data.greedy_choice import ggc as ggc
from topofl.topologies.from_data.placement import *
from topofl.topologies.operations import *
from topofl.topologies.static.classic import *
from topofl.topologies.static.elementary import *
from topofl.topologies.static.equitopo import *
from topofl.topologies.static.exponential import *
from topofl.topologies.static.random_graphs import *
from topofl.topologies.static.social import *

__all__ = sorted(GENERATORS)  # pyright: ignore[reportUnsupportedDunderAll]
