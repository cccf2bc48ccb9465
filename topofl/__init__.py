"""topofl: how the communication graph shapes decentralized and personalized federated learning.

A dataset is partitioned over nodes (:mod:`topofl.data`), a graph connects them
(:mod:`topofl.topologies`), a rule assigns weights to its edges (:mod:`topofl.mixing`), an algorithm
trains over it (:mod:`topofl.algorithms`, :func:`run`), and metrics of the graph
(:mod:`topofl.metrics`) can be compared with the history of the run.
"""

from topofl import (
    algorithms,
    attacks,
    clocks,
    data,
    metrics,
    mixing,
    models,
    privacy,
    tasks,
    topologies,
)
from topofl._support.table import NotApplicable, Spread, Table
from topofl.engine import Compute, DivergenceError, Evaluation, Interrupted, Saving, run
from topofl.estimate import estimate
from topofl.history import History
from topofl.mixing import MixingMatrix
from topofl.runs import sweep
from topofl.summary import summarize
from topofl.tasks import Task
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology, from_edges

__version__ = "0.1.0"

__all__ = [
    "Compute",
    "DivergenceError",
    "Evaluation",
    "History",
    "Interrupted",
    "MixingMatrix",
    "NotApplicable",
    "Saving",
    "Spread",
    "Table",
    "Task",
    "Topology",
    "TopologyError",
    "TopologySequence",
    "algorithms",
    "as_topology",
    "attacks",
    "clocks",
    "data",
    "estimate",
    "from_edges",
    "metrics",
    "mixing",
    "models",
    "privacy",
    "run",
    "summarize",
    "sweep",
    "tasks",
    "topologies",
]
