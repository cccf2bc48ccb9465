"""topofl: how the communication graph shapes decentralized and personalized federated learning.

A dataset is partitioned over nodes (:mod:`topofl.data`), a graph connects them
(:mod:`topofl.topologies`), a rule assigns weights to its edges (:mod:`topofl.mixing`), an algorithm
trains over it (:mod:`topofl.algorithms`, :func:`run`), and metrics of the graph
(:mod:`topofl.metrics`) can be compared with the history of the run.

Modules and names are loaded when they are first used (PEP 562), so that commands which need neither
torch nor numpy start without them.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from topofl._version import __version__ as __version__

if TYPE_CHECKING:
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
    from topofl import callbacks as callbacks
    from topofl import engine as engine
    from topofl import history as history
    from topofl import runs as runs
    from topofl import summary as summary
    from topofl import topology as topology
    from topofl import trained as trained
    from topofl._support.table import NotApplicable, Spread, Table
    from topofl.citations import citations
    from topofl.engine import (
        Compute,
        DivergenceError,
        Evaluation,
        Interrupted,
        RankError,
        Saving,
        run,
    )
    from topofl.estimate import estimate
    from topofl.history import History, compare_histories
    from topofl.mixing import MixingMatrix
    from topofl.runs import sweep
    from topofl.summary import summarize
    from topofl.tasks import Task
    from topofl.topology import Topology, TopologyError, TopologySequence, as_topology, from_edges

__all__ = [
    "Compute",
    "DivergenceError",
    "Evaluation",
    "History",
    "Interrupted",
    "MixingMatrix",
    "NotApplicable",
    "RankError",
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
    "citations",
    "clocks",
    "compare_histories",
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

_MODULES = {
    "algorithms", "attacks", "callbacks", "clocks", "data", "engine", "history", "metrics",
    "mixing", "models", "privacy", "runs", "summary", "tasks", "topologies", "topology", "trained",
}  # fmt: skip
"""Modules that ``import topofl`` makes available as attributes."""

_NAMES = {
    "topofl._support.table": "NotApplicable Spread Table",
    "topofl.citations": "citations",
    "topofl.engine": "Compute DivergenceError Evaluation Interrupted RankError Saving run",
    "topofl.estimate": "estimate",
    "topofl.history": "History compare_histories",
    "topofl.mixing": "MixingMatrix",
    "topofl.runs": "sweep",
    "topofl.summary": "summarize",
    "topofl.tasks": "Task",
    "topofl.topology": "Topology TopologyError TopologySequence as_topology from_edges",
}
"""Other names of this package, by the module that they are in."""

_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load a module or a name when it is first used."""
    if name in _MODULES:
        return import_module(f"topofl.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'topofl' has no attribute {name!r}", name=name)
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names of this package, whether they are loaded or not."""
    helpers = {"Any", "ModuleType", "TYPE_CHECKING", "import_module", "sys"}
    return sorted({*globals(), *_MODULES, *_MODULE_OF} - helpers)


def _of_topologies(name: str) -> Any:
    """Return ``topologies.recommend``, which is loaded when it is first used."""
    if name != "recommend":
        raise AttributeError(f"module 'topofl.topologies' has no attribute {name!r}", name=name)
    return import_module("topofl.advice").recommend


class _Package(ModuleType):
    """The type of this package, which sees each of its modules when it is imported.

    ``topofl.estimate`` is the function, not the module it is in, and ``topologies`` has the
    function ``recommend`` of a lower layer.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "topologies":
            value.__getattr__ = _of_topologies
            value.__dir__ = lambda: sorted({*vars(value), "recommend"})
        if not (name in _MODULE_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
