"""Published algorithms as chains of phases; ``__all__`` lists them.

Each algorithm is a function in the module of its family. The parts of which they are made are
public too: :func:`chain`; the phases :func:`sgd`, :func:`gossip`, :func:`aggregate` by a rule of
your own, :func:`push_sum`, :func:`server_average` and :func:`average_over_peers`, in which nodes
average with peers that a policy chooses (:func:`greedy_peers`, :func:`random_peers`,
:func:`similar_peers`, :func:`scored_peers` with :func:`refresh_losses`); parts of models
(:data:`everything`, :data:`head`, :data:`body`, :func:`part`); and participation (:func:`sampled`).
"""

from types import FunctionType as _FunctionType

# Star imports avoid naming each name again. Type checkers and editors read the names from the
# `__all__` of each module.
from topofl.algorithms.asynchronous.nodes_and_walks import *
from topofl.algorithms.asynchronous.served import *
from topofl.algorithms.asynchronous.timed import *
from topofl.algorithms.bias_free import *
from topofl.algorithms.bias_free_momentum import *
from topofl.algorithms.byzantine_distances import *
from topofl.algorithms.byzantine_robust import *
from topofl.algorithms.compressed import *
from topofl.algorithms.contract.descent import *
from topofl.algorithms.contract.local import *
from topofl.algorithms.contract.needs import *
from topofl.algorithms.contract.phase import *
from topofl.algorithms.contract.phase import Algorithm as Algorithm
from topofl.algorithms.contract.round import *
from topofl.algorithms.contract.terms import *
from topofl.algorithms.decentralized.ceca import *
from topofl.algorithms.decentralized.dp_dsgd import *
from topofl.algorithms.decentralized.dsgd import *
from topofl.algorithms.decentralized.fragments import *
from topofl.algorithms.decentralized.momentum import *
from topofl.algorithms.decentralized.passes import *
from topofl.algorithms.decentralized.primal_dual import *
from topofl.algorithms.decentralized.relay_sgd import *
from topofl.algorithms.decentralized.teleportation import *
from topofl.algorithms.exchanges.average import *
from topofl.algorithms.exchanges.compressors import *
from topofl.algorithms.exchanges.greedy import *
from topofl.algorithms.exchanges.peers import *
from topofl.algorithms.exchanges.scored import *
from topofl.algorithms.learned_graphs import *
from topofl.algorithms.personalized.clustered import *
from topofl.algorithms.personalized.dispfl import *
from topofl.algorithms.personalized.fedala import *
from topofl.algorithms.personalized.fedproto import *
from topofl.algorithms.personalized.personal_heads import *
from topofl.algorithms.personalized.personal_models import *
from topofl.algorithms.personalized.pfedme import *
from topofl.algorithms.personalized.proxyfl import *
from topofl.algorithms.server.dp_fedavg import *
from topofl.algorithms.server.fedavg import *
from topofl.algorithms.server.feddecorr import *
from topofl.algorithms.server.fedopt import *
from topofl.algorithms.server.hierarchical import *
from topofl.algorithms.server.moon import *
from topofl.algorithms.worst_node import *

__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll]
    name
    for name, value in globals().items()
    if isinstance(value, _FunctionType) and value.__annotations__.get("return") is Algorithm
    if name not in ("chain", "timed")
)
