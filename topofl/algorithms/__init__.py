"""Published algorithms as chains of phases; ``__all__`` lists them.

Each algorithm is a function in the module of its family. The parts of which they are made are
public too: :func:`chain`; the phases :func:`sgd`, :func:`gossip`, :func:`aggregate` by a rule of
your own, :func:`push_sum`, :func:`server_average` and :func:`average_over_peers`, in which nodes
average with peers that a policy chooses (:func:`greedy_peers`, :func:`random_peers`,
:func:`similar_peers`, :func:`scored_peers` with :func:`refresh_losses`); parts of models
(:data:`everything`, :data:`head`, :data:`body`, :func:`part`); and participation (:func:`sampled`).
"""

from types import FunctionType as _FunctionType

# Star imports avoid naming each method again. Type checkers and editors read the names from the
# `__all__` of each module.
from topofl.algorithms.asynchronous.nodes_and_walks import *
from topofl.algorithms.asynchronous.timed import timed as timed
from topofl.algorithms.bias_free import *
from topofl.algorithms.byzantine_robust import *
from topofl.algorithms.compressed import *
from topofl.algorithms.contract.descent import Descend as Descend
from topofl.algorithms.contract.descent import GradientPoint as GradientPoint
from topofl.algorithms.contract.descent import ascent as ascent
from topofl.algorithms.contract.descent import constant as constant
from topofl.algorithms.contract.descent import cosine as cosine
from topofl.algorithms.contract.descent import descend as descend
from topofl.algorithms.contract.descent import exponential as exponential
from topofl.algorithms.contract.descent import lookahead as lookahead
from topofl.algorithms.contract.descent import mixture as mixture
from topofl.algorithms.contract.local import Training as Training
from topofl.algorithms.contract.local import sgd as sgd
from topofl.algorithms.contract.local import train as train
from topofl.algorithms.contract.needs import Need as Need
from topofl.algorithms.contract.needs import doubly_stochastic as doubly_stochastic
from topofl.algorithms.contract.needs import equal_shares as equal_shares
from topofl.algorithms.contract.needs import needing as needing
from topofl.algorithms.contract.needs import static as static
from topofl.algorithms.contract.needs import strongly_connected as strongly_connected
from topofl.algorithms.contract.needs import symmetric as symmetric
from topofl.algorithms.contract.needs import undirected as undirected
from topofl.algorithms.contract.objective import Objective as Objective
from topofl.algorithms.contract.phase import Algorithm as Algorithm
from topofl.algorithms.contract.phase import Phase as Phase
from topofl.algorithms.contract.phase import chain as chain
from topofl.algorithms.contract.phase import on_all_models as on_all_models
from topofl.algorithms.contract.phase import on_kept_models as on_kept_models
from topofl.algorithms.contract.phase import sampled as sampled
from topofl.algorithms.contract.phase import sharing as sharing
from topofl.algorithms.contract.round import Models as Models
from topofl.algorithms.contract.round import Part as Part
from topofl.algorithms.contract.round import Round as Round
from topofl.algorithms.contract.round import body as body
from topofl.algorithms.contract.round import everything as everything
from topofl.algorithms.contract.round import head as head
from topofl.algorithms.contract.round import part as part
from topofl.algorithms.contract.terms import Step as Step
from topofl.algorithms.contract.terms import Term as Term
from topofl.algorithms.contract.terms import adam as adam
from topofl.algorithms.contract.terms import adamw as adamw
from topofl.algorithms.contract.terms import clip as clip
from topofl.algorithms.contract.terms import correction as correction
from topofl.algorithms.contract.terms import cosine_pull as cosine_pull
from topofl.algorithms.contract.terms import masked as masked
from topofl.algorithms.contract.terms import momentum as momentum
from topofl.algorithms.contract.terms import proximal as proximal
from topofl.algorithms.contract.terms import tracking as tracking
from topofl.algorithms.contract.terms import weight_decay as weight_decay
from topofl.algorithms.decentralized.dp_dsgd import *
from topofl.algorithms.decentralized.dsgd import *
from topofl.algorithms.decentralized.momentum import *
from topofl.algorithms.decentralized.passes import *
from topofl.algorithms.decentralized.relay_sgd import *
from topofl.algorithms.exchanges.average import Aggregation as Aggregation
from topofl.algorithms.exchanges.average import aggregate as aggregate
from topofl.algorithms.exchanges.average import gossip as gossip
from topofl.algorithms.exchanges.average import push_sum as push_sum
from topofl.algorithms.exchanges.average import server_average as server_average
from topofl.algorithms.exchanges.compressors import Compressor as Compressor
from topofl.algorithms.exchanges.compressors import no_compression as no_compression
from topofl.algorithms.exchanges.compressors import quantized as quantized
from topofl.algorithms.exchanges.compressors import random_k as random_k
from topofl.algorithms.exchanges.compressors import sign as sign
from topofl.algorithms.exchanges.compressors import top_k as top_k
from topofl.algorithms.exchanges.greedy import greedy_peers as greedy_peers
from topofl.algorithms.exchanges.greedy import random_peers as random_peers
from topofl.algorithms.exchanges.peers import Choice as Choice
from topofl.algorithms.exchanges.peers import Policy as Policy
from topofl.algorithms.exchanges.peers import average_over_peers as average_over_peers
from topofl.algorithms.exchanges.scored import refresh_losses as refresh_losses
from topofl.algorithms.exchanges.scored import scored_peers as scored_peers
from topofl.algorithms.exchanges.similar import similar_peers as similar_peers
from topofl.algorithms.learned_graphs import *
from topofl.algorithms.personalized.dispfl import *
from topofl.algorithms.personalized.fedproto import *
from topofl.algorithms.personalized.personal_heads import *
from topofl.algorithms.personalized.personal_models import *
from topofl.algorithms.references import *
from topofl.algorithms.server.corrected import *
from topofl.algorithms.server.fedavg import *
from topofl.algorithms.server.fednova import *
from topofl.algorithms.server.fedopt import *

__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll]
    name
    for name, value in globals().items()
    if isinstance(value, _FunctionType) and value.__annotations__.get("return") is Algorithm
    if name not in ("chain", "timed")
)
