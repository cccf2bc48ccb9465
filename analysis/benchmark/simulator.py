"""Training steps of the D-Cliques authors' simulator, on the same data and graph.

The simulator is not part of this project. To time it, name a folder with its sources, from which
only the loop over nodes (``tools/simulate/algorithm/d_sgd.py``) and the models
(``tools/setup/model/``) are imported.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from topofl import Topology, data, mixing

from .cases import Case, clients_of, setting

PARTS = ("simulate.algorithm.d_sgd", "setup.model.linear", "setup.model.gn_lenet")
"""The imported modules: the algorithm, logistic regression, GN-LeNet."""


def simulator_steps(folder: Path, case: Case, *, rounds: int, budget: float) -> list[float]:
    """Return the seconds of training steps of the authors' simulator, always in fp32.

    The first step and the work between epochs are not timed.

    Parameters
    ----------
    folder
        The folder of the simulator's sources, which contains ``tools/``.
    case
        The case to train: logistic regression or GN-LeNet.
    rounds, budget
        Number of steps, and seconds after which no further step starts.

    Raises
    ------
    FileNotFoundError
        If `folder` lacks one of the modules.
    """
    clients = clients_of(case)
    graph, _ = setting(case, clients)
    with _imported(folder) as (algorithm, linear, gn_lenet):
        params = _params(case)
        model = linear if case.network.is_linear else gn_lenet
        nodes = _nodes(clients, algorithm, model, params)
        state, *_ = algorithm.init(nodes, _topology(graph), params)
        seconds: list[float] = []
        while len(seconds) <= rounds and (len(seconds) < 2 or sum(seconds) < budget):
            start = time.perf_counter()
            state, _, epoch_ended = algorithm.next(state, params)
            seconds += [] if epoch_ended else [time.perf_counter() - start]
    return seconds[1:]


def check_sources(folder: Path) -> Path:
    """Return the folder of the simulator's modules; FileNotFoundError if one is missing."""
    tools = Path(folder) / "tools"
    missing = [
        part for part in PARTS if not (tools / part.replace(".", "/")).with_suffix(".py").is_file()
    ]
    if missing:
        raise FileNotFoundError(
            "--simulator must be the folder of the D-Cliques authors' simulator, with tools/ in "
            f"it; not found in {tools}: {', '.join(missing)}"
        )
    return tools


@contextmanager
def _imported(folder: Path) -> Iterator[list[ModuleType]]:
    """Import the simulator's modules temporarily, with an empty module for its datasets."""
    tools, before = check_sources(folder), set(sys.modules)
    sys.path.insert(0, str(tools))
    sys.modules["setup.dataset"] = ModuleType("setup.dataset")
    try:
        yield [import_module(part) for part in PARTS]
    finally:
        sys.path.remove(str(tools))
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("setup", "simulate"):
                del sys.modules[name]


def _params(case: Case) -> dict[str, Any]:
    """Return the settings of a case in the simulator's format."""
    return {
        "meta": {"log": "warning"},
        "dataset": {"name": "mnist" if case.network.is_linear else "cifar10"},
        "model": {"input-size": torch.Size(case.network.shape).numel()},
        "topology": {},
        "algorithm": {
            "learning-rate": case.network.lr,
            "learning-momentum": case.momentum,
            "batch-size": case.batch_size,
            "clique-gradient": case.clique_averaging,
            "unbiased-gradient": False,
            "initial-averaging": False,
        },
    }


def _nodes(
    clients: data.Partition, algorithm: Any, model: Any, params: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return all nodes with their examples, as lists of tensors and labels."""
    inputs, labels = clients.dataset.examples(), clients.dataset.labels.tolist()
    models = [model.create(params) for _ in range(clients.n)]
    return [
        {
            "rank": rank,
            "model": models[rank],
            "optimizer": algorithm.optimizer(models[rank], params),
            "train-set": [(inputs[k], labels[k]) for k in train],
            "train-iterator": None,
        }
        for rank, train in enumerate(clients.train)
    ]


def _topology(graph: Topology) -> dict[str, Any]:
    """Return neighbors, cliques and weights in the simulator's format."""
    weights = mixing.metropolis_hastings(graph).weights
    neighbors = [sorted(int(j) for j in row.indices if j != i) for i, row in enumerate(weights)]
    return {
        "edges": neighbors, "weights": torch.tensor(weights.toarray(), dtype=torch.float32),
        "cliques": [list(map(int, group)) for group in graph.groups or ()],
    }  # fmt: skip
