"""Published algorithms as chains of phases; ``__all__`` lists them.

Each algorithm is a function in the module of its family. The parts of which they are made are
public too: :func:`chain`; the phases :func:`sgd`, :func:`gossip`, :func:`aggregate` by a rule of
your own, :func:`push_sum`, :func:`server_average` and :func:`average_over_peers`, in which nodes
average with peers that a policy chooses (:func:`greedy_peers`, :func:`random_peers`,
:func:`similar_peers`, :func:`scored_peers` with :func:`refresh_losses`); parts of models
(:data:`everything`, :data:`head`, :data:`body`, :func:`part`); and participation (:func:`sampled`).
"""

from topofl.algorithms.asynchronous.nodes_and_walks import ad_psgd, random_walks
from topofl.algorithms.asynchronous.timed import timed as timed
from topofl.algorithms.bias_free import d2, dsgt, extra, local_gt, push_diging, sab
from topofl.algorithms.byzantine_robust import (
    clipped_gossip,
    coordinate_median,
    self_centered_clipping,
    trimmed_mean,
)
from topofl.algorithms.compressed import beer, choco_sgd, deepsqueeze
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
from topofl.algorithms.decentralized.dp_dsgd import dp_dsgd
from topofl.algorithms.decentralized.dsgd import clique_averaging, dsgd
from topofl.algorithms.decentralized.momentum import dadam, qg_dsgdm
from topofl.algorithms.decentralized.passes import dfedavgm, dfedavgm_p, dfedsam, osgp
from topofl.algorithms.decentralized.relay_sgd import relay_sgd
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
from topofl.algorithms.exchanges.robust import Aggregation as Aggregation
from topofl.algorithms.exchanges.robust import aggregate as aggregate
from topofl.algorithms.exchanges.scored import refresh_losses as refresh_losses
from topofl.algorithms.exchanges.scored import scored_peers as scored_peers
from topofl.algorithms.exchanges.similar import similar_peers as similar_peers
from topofl.algorithms.learned_graphs import dpfl, pfeddst, pfedgraph, random_collaboration
from topofl.algorithms.personalized.dispfl import dispfl
from topofl.algorithms.personalized.fedbn import fedbn
from topofl.algorithms.personalized.fedproto import fedproto
from topofl.algorithms.personalized.personal_heads import dfedpgp, fedbabu, fedper, fedrep
from topofl.algorithms.personalized.personal_models import apfl, ditto, knn_per, per_fedavg
from topofl.algorithms.references import centralized, local_only
from topofl.algorithms.server.corrected import feddyn, scaffold
from topofl.algorithms.server.fedavg import fedavg, fedprox
from topofl.algorithms.server.fednova import fednova
from topofl.algorithms.server.fedopt import fedadam, fedavgm, fedyogi

__all__ = [
    "ad_psgd",
    "apfl",
    "beer",
    "centralized",
    "choco_sgd",
    "clipped_gossip",
    "clique_averaging",
    "coordinate_median",
    "d2",
    "dadam",
    "deepsqueeze",
    "dfedavgm",
    "dfedavgm_p",
    "dfedpgp",
    "dfedsam",
    "dispfl",
    "ditto",
    "dp_dsgd",
    "dpfl",
    "dsgd",
    "dsgt",
    "extra",
    "fedadam",
    "fedavg",
    "fedavgm",
    "fedbabu",
    "fedbn",
    "feddyn",
    "fednova",
    "fedper",
    "fedproto",
    "fedprox",
    "fedrep",
    "fedyogi",
    "knn_per",
    "local_gt",
    "local_only",
    "osgp",
    "per_fedavg",
    "pfeddst",
    "pfedgraph",
    "push_diging",
    "qg_dsgdm",
    "random_collaboration",
    "random_walks",
    "relay_sgd",
    "sab",
    "scaffold",
    "self_centered_clipping",
    "trimmed_mean",
]
