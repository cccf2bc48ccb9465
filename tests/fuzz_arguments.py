"""Functions that users call, valid arguments for each, and values of all types."""

import inspect
import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot  # so that `mpl` has it, and `figure`, whatever ran before
import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse as sparse
import torch

import topofl
from tests import problems
from tests.rows.methods import ALGORITHMS
from topofl import algorithms, data, metrics, mixing, models, topologies
from topofl._support.calls import parse_spec

PACKAGES = (topofl, topologies, mixing, metrics, data, algorithms, models)

RESULTS = {
    *(
        "DivergenceError",
        "History",
        "Interrupted",
        "RankError",
        "NotApplicable",
        "Spread",
        "Table",
        "TopologyError",
    ),
    *("Cost", "GeometricBound", "PushSumConstants", "RoundTime"),
    *("GradientStatistics", "HeterogeneitySpectrum", "PredictedDeviation"),
}
"""What only the library makes: exceptions, and records of results without checks of their own."""

HUGE = 2**50


STARTS = {"sweep"}
"""Start processes and write stores; tests/runs has tests of their arguments."""


@cache
def callables() -> dict[str, Callable[..., Any]]:
    """Return everything public that users call, by package and name."""
    found = {}
    for package in PACKAGES:
        for name in package.__all__:
            value = getattr(package, name)
            if callable(value) and not inspect.ismodule(value) and name not in RESULTS | STARTS:
                found[f"{package.__name__.rpartition('.')[2]}.{name}"] = value
    return found


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


GRAPH = SimpleNamespace(
    x=torch.eye(8),
    edge_index=torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]),
    y=torch.tensor([0, 1] * 4),
)
"""As ``torch_geometric.data.Data`` holds a graph."""


def _values() -> dict[str, Any]:
    """Return a valid value for each argument without a default, by name or by function and name."""
    clients = problems.equal_clients(8)
    graph = topologies.ring(8)
    weights = mixing.metropolis_hastings(graph)
    counts = clients.label_counts
    cliques = problems.cliques(clients, size=4)
    own, none = topologies.d_equistatic(8, 2, seed=0), np.zeros(0, int)
    return {
        **{"n": 8, "k": 3, "m": 2, "p": 0.5, "p_in": 0.9},
        **{"p_out": 0.2, "blocks": 2, "seed": 0, "rounds": 3},
        **{"angles": [0, 90], "colors": [[1, 0, 0]], "variance": 0.1, "used": topologies.ring},
        **{"trace": [[1] * 8, [0] * 8]},
        **{"budget": 2, "augment": data.crop_and_flip(padding=1)},
        **{"base": graph, "graph": graph, "topology": graph},
        **{"x": graph, "graphs": [graph], "fail": 0.1},
        **{"recover": 0.5},
        **{"fraction": 0.5, "alpha": 0.5, "classes_per_node": 2, "epsilon": 1.0, "gamma": 0.5},
        **{"lr": 0.1, "root": "nowhere", "path": "nowhere"},
        **{"rule": "disjoint", "nodes": 2, "padding": 1, "flip": True},
        **{"label_counts": counts, "dataset": clients.dataset},
        **{"clients": clients, "n_parameters": 10},
        **{"groups": [[0, 1, 2, 3], [4, 5, 6, 7]]},
        **{"topology_or_groups": [[0, 1, 2, 3], [4, 5, 6, 7]]},
        **{"models": np.eye(8), "gradients": np.eye(8)},
        **{"mixing": weights, "weights": weights.weights},
        **{"sizes": [1, 2, 3], "module": torch.nn.BatchNorm2d(8)},
        **{"algorithm": algorithms.dsgd(lr=0.1)},
        **{"model": problems.linear(), "adjacency": graph.adjacency},
        **{"edges": [(0, 1), (1, 2)], "from_edges.n": 3, "chosen": np.eye(8, dtype=bool)},
        **{"reward": lambda models_, i: 0.0, "generate": lambda t: graph},
        **{"MixingSequence.generate": lambda t: weights},
        **{"from_pyg.graphs": GRAPH, "features": GRAPH.x, "GraphData.edges": GRAPH.edge_index},
        **{"lora.module": problems.linear(), "rank": 2},
        **{"networks": [problems.linear(), problems.convolutional()], "kinds": [0, 1, 1]},
        **{"from_arrays.x": np.eye(8), "y": [0, 1] * 4},
        **{
            "frame": pd.DataFrame({"a": range(8), "k": ["x", "y"] * 4}),
            "from_dataframe.label": "k",
        },
        **{"from_huggingface.dataset": "nowhere"},
        **{"inputs": torch.eye(8), "labels": torch.arange(8) % 2},
        **{"n_classes": 2, "name": "name", "train": np.arange(6)},
        **{"val": np.array([6]), "test": np.array([7])},
        **{"Partition.train": [[0], [1]], "effective_resistance.u": 0, "effective_resistance.v": 1},
        **{"from_clients.clients": [(np.eye(8), [0, 1] * 4)] * 2},
        **{"from_torch.dataset": torch.utils.data.TensorDataset(torch.eye(8), torch.arange(8) % 2)},
        **{
            "natural.dataset": data.Dataset(
                torch.eye(8),
                torch.arange(8) % 2,
                2,
                "owned",
                np.arange(8),
                none,
                none,
                owners=np.arange(8) % 4,
            )
        },
        **{"one_class_per_node.n": 3, "reciprocity.topology": graph},
        **{"steps": 5, "gossip_rounds": 2, "target": 1, "backdoor.nodes": [0]},
        **{
            "matcha.budget": 0.5,
            "spaces": 2,
            "neighborhood_swap.base": graph,
            "p_peer_exponential.p": 2,
        },
        **{"thin_cliques.base": cliques, "removed": 1},
        **{"own_weights.topology": own, "within_groups.topology": cliques},
        **{"min_size": 1, "min_per_class": 1},
        **{"loss": lambda outputs, targets: (outputs - targets).square().mean(1)},
        **{"values": np.arange(8.0)},
        **{
            f"{name}.{key}": value
            for name, row in ALGORITHMS.items()
            for key, value in row.required.items()
        },
        **{"dispfl.rounds": 3},
        "compare_histories.histories": {"ring": _history(0.5), "star": _history(0.4)},
        "summarize.runs": {"ring": [_history(0.5), _history(0.6)], "star": _history(0.4)},
        **{"run.progress": False, "dcliques.n": 8, "clique_size": 4, "degree": 2},
        **{"batch_size": 4, "hardware": {"compute": 0.1, "latency": 0.2}, "compute": 0.1},
        **{"round_time.n_parameters": 10, "step_seconds.steps": 1},
        "directions": np.ones((1, 36 * 3 + 3)),
    }


def _history(accuracy: float) -> topofl.History:
    """Return the history of a run without rounds."""
    scores = {"round": np.array([0]), "accuracy": np.full((1, 3), accuracy)}
    sent = {"messages": np.zeros(0), "bytes": np.zeros(0)}
    return topofl.History({}, sent, scores, np.zeros((0, 3)))


GIVEN = {
    "topologies": ("steps",),
    "data": ("root", "min_size", "min_per_class"),
    "neighborhood_swap": ("base",),
    "lora": ("rank",),
    "of_kinds": ("kinds",),
    "designed": ("degree", "n"),
    "neighborhood_heterogeneity": ("label_counts",),
    "predicted_deviation": ("model", "batch_size"),
    "round_time": ("n_parameters",),
    "step_seconds": ("steps",),
    "heterogeneity_spectrum": ("label_counts",),
    "run": ("topology", "progress"),
    "estimate": ("topology",),
    "effective_resistance": ("u", "v"),
    "from_arrays": ("y",),
    "from_dataframe": ("label",),
    **{name: tuple(row.required) for name, row in ALGORITHMS.items()},
}
"""Arguments with defaults that are given too, to be quick or to be understood."""
ONE_OF_TWO = ("label_counts", "n")
"""One of these must be given where both have defaults."""


@cache
def values() -> dict[str, Any]:
    return _values()


def valid(name: str) -> dict[str, Any]:
    """Return arguments with which a call works; ``KeyError`` if one has no valid value yet."""
    package, own = name.split(".")
    taken = parameters(callables()[name])
    wanted = [key for key, p in taken.items() if p.default is p.empty]
    wanted += [
        key
        for key in (*GIVEN.get(package, ()), *GIVEN.get(own, ()))
        if key in taken and key not in wanted
    ]
    if set(ONE_OF_TWO) <= set(taken) and "n" not in wanted:
        wanted.append("n")
    if "clique_size" in taken and "clique_size" not in wanted:
        wanted.append("clique_size")
    arguments = {
        key: values()[f"{own}.{key}"] if f"{own}.{key}" in values() else values()[key]
        for key in wanted
    }
    return example_of(own) if package == "topologies" and has_no_size_8(own) else arguments


@cache
def has_no_size_8(generator: str) -> bool:
    """Return whether a generator that needs only a number of nodes has no graph of 8."""
    function = getattr(topologies, generator)
    needed = [key for key, p in parameters(function).items() if p.default is p.empty]
    try:
        return needed == ["n"] and not function(8)
    except topofl.TopologyError:
        return True


def example_of(generator: str) -> dict[str, Any]:
    """Return the arguments of the first example of a generator."""
    example = topologies.GENERATORS[generator].examples[0]
    assert isinstance(example, str)
    return dict(parse_spec(example).arguments)


@cache
def pool() -> list[Any]:
    """Return values of all types, few of which an argument can be."""
    graph, directed = topologies.ring(8), topologies.exponential(8, directed=True)
    broken = sparse.csr_array(np.eye(8))
    clients = problems.equal_clients(3)
    return [
        *(None, True, False, -1, 0, 1, 2, 3, 7, 8, 100),
        *(-HUGE, HUGE, 2**63, 10**30, 10**400, 10**5000),
        *(0.0, 0.5, 1.0, -0.5, 1e-300, 1e300, 1.5),
        *(float("nan"), float("inf"), -float("inf"), 1j, 2 + 0j),
        *("", "auto", "ring", "test", "cpu", "a\0b"),
        *("é" * 300, "`", "{}", "common", "push", "own_test"),
        *("nowhere", b"x"),
        *([], (), {}, set(), [1], [[0, 1], [2]], [None], ["a", "b"]),
        *([float("nan")], [HUGE], [-1], [[0], [0]], {1: 2}),
        *({"n": 3}, range(3), slice(3), iter(())),
        *(lambda *args, **kwargs: None, lambda *args: 1 / 0, object(), object),
        *(len, ..., Path("nowhere"), Path("."), io.StringIO(), np),
        *(np.int64(2), np.uint64(2**63 + 1), np.float32(0.5)),
        *(np.float64("nan"), np.bool_(True), np.str_("auto")),
        *(np.array([]), np.eye(8), np.eye(3), -np.eye(8)),
        *(np.ones((8, 8)), np.zeros((0, 8)), np.zeros((8, 0))),
        *(np.ones(8),),
        *(np.full((8, 3), np.nan), np.full((8, 8), np.inf)),
        *(np.full((8, 3), 1e300), np.ones((8, 3), np.uint64) << 63),
        *(np.array(["a", "b"]), np.array([object()])),
        *(np.array([1, None]), np.ones((2, 2, 2)), np.array(5)),
        *(np.datetime64("2020-01-01"), np.ma.masked_array([1, 2], [True, False])),
        *(np.zeros((8, 3), int), np.ones((8, 3), int)),
        *(np.arange(8), np.full(8, 2**40), np.full((8, 3), 2**40)),
        *(np.arange(8, dtype=np.uint8), np.ones((8, 8), bool)),
        *(np.ones(8, np.float16), np.ones(3, "f8, i4")),
        *(torch.tensor(2), torch.ones(3), torch.eye(8), torch.ones(8, 3, dtype=torch.int64)),
        *(torch.ones(2, device="meta")),
        *(torch.ones(8, dtype=torch.bfloat16), torch.eye(8).to_sparse(), torch.ones(0, 3)),
        *(torch.eye(8).requires_grad_(),),
        *(torch.float16, torch.int8, torch.complex64),
        *(torch.device("cpu"), torch.device("meta"), torch.nn.Flatten()),
        *(torch.nn.Linear(3, 2), torch.nn.Linear(36, 3)),
        *(torch.Generator(), torch.Size([1]), np.random.default_rng(0)),
        *(graph, directed, topologies.one_peer_exponential(8)),
        *(topologies.path(1), topologies.ring(5)),
        *(mixing.metropolis_hastings(graph), mixing.metropolis_hastings),
        *(mixing.uniform(directed), [graph, directed]),
        *(nx.path_graph(8), nx.DiGraph([(0, 1)])),
        *(nx.MultiGraph([(0, 1), (0, 1)]), nx.Graph(), nx.Graph([("a", "b")])),
        *(broken, sparse.coo_matrix((8, 8)), sparse.csr_array((0, 0))),
        *(sparse.eye_array(3), sparse.csr_array((8, 3))),
        *(clients, clients.dataset, problems.equal_clients(8)),
        *(algorithms.local_only(lr=0.1), data.crop_and_flip()),
        *(topofl.Evaluation(every=1), topofl.Compute("cpu"), topofl.Saving(every=3)),
        algorithms.dpfl(lr=0.1),
        *(torch.utils.data.TensorDataset(torch.eye(3), torch.arange(3)), mpl.figure.Figure()),
    ]
