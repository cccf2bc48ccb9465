"""Inputs that have broken other libraries are refused by name: clients, graphs, data and models."""

import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests import problems
from tests.degenerate.inputs import (
    DISCONNECTED,
    Applied,
    Buffered,
    Computed,
    clients_of,
    dense,
    linear_with,
    run,
)
from tests.refusals import named, refused, rows
from topofl import TopologyError, algorithms, data, metrics, mixing, topologies

TWO_OF_THREE = np.array([[1, 0], [0, 1], [0, 0]])
SUMS = "`weights` must have rows or columns that sum to 1; row 1 sums to 0.95 and column 2 to 0.9"
FLOATING = [[0.5, 0.5, 0], [0.5, 0.25, 0.2], [0, 0.3, 0.7]]


def dataset(inputs, labels=(0, 1)):
    return data.Dataset(inputs, torch.tensor(labels), 2, "x", [0, 1], [], [])


def pushed(graph):
    return mixing.uniform(graph, direction="push")


def branching(x):
    return x if x.isfinite().all() else 2 * x


VALUE_ERRORS = {
    "`label_counts` must have at least one example per node, nodes 2 have none": lambda: (
        metrics.neighborhood_heterogeneity(topologies.ring(3), TWO_OF_THREE)
    ),
    "(N, features...)": lambda: data.from_arrays(np.zeros((0, 3)), []),
    "must leave an example": lambda: data.from_arrays(np.eye(2), [0, 1], test=0.9),
    "for every node, [1] of 3 nodes have none": lambda: clients_of([0, 1], [], [2]),
    "`train` must hold at least one example for every node": lambda: clients_of(),
    (
        "`min_size` must be at most 3 for n=20 nodes and 63 training examples, got 9; ",
        "use min_size=3 or n=7",
    ): lambda: data.dirichlet_per_class(problems.dataset(), 20, alpha=0.01, seed=0, min_size=9),
    "a value for every example": lambda: data.from_arrays(np.eye(3), [None] * 3),
    SUMS: lambda: mixing.from_weights(FLOATING),
    "-0.5 at (0, 1)": lambda: mixing.from_weights([[1.5, -0.5], [0, 1]]),
    "`weights` must be 0 off the edges": lambda: run(
        mixing=mixing.metropolis_hastings(topologies.fully_connected(6))
    ),
    "`mixing` must have rows that sum to 1 to average models": lambda: run(
        topology=topologies.star(6), mixing=pushed
    ),
    "got -1 at index 1": lambda: data.from_arrays(np.eye(2), [0, -1]),
    "`labels` must be in 0..2, got 5 at index 2": lambda: data.from_arrays(
        np.eye(3), [0, 1, 5], n_classes=3
    ),
    "`topology` must have one node per client: ring(n=5) has n=5, `clients` has n=6": lambda: run(
        topology=topologies.ring(5)
    ),
    "; build it with n=6, or leave it out if fedavg ignores it, as methods with a server": lambda: (
        run(algorithm=algorithms.fedavg(lr=0.1, epochs=1), topology=topologies.ring(5))
    ),
    "must be one of 'auto'": lambda: run(executor=np.array(["auto", "auto"])),
    "must be a floating-point type": lambda: run(dtype=torch.float8_e5m2),
    "`device` must be such as 'cpu'": lambda: run(device="meta"),
    "`device` must be available, got 'xla'": lambda: run(device="xla"),
    "`executor` must be 'looped' or 'auto' for this model, since torch.func cannot batch": lambda: (
        run(model=Applied(branching), executor="batched")
    ),
    "`inputs` must be finite, got nan at (1, 0) (1 such entries)": lambda: data.from_arrays(
        [[0, 1], [np.nan, 1]], [0, 1]
    ),
    "got inf at (0, 1)": lambda: data.from_arrays([[0, 1e300]], [0]),
    "got nan at (0, 0)": lambda: mixing.from_weights([[np.nan, 1], [0, 1]]),
    "`model` must start with finite parameters, '1.weight' contains nan": lambda: run(
        model=linear_with(np.nan), init="given"
    ),
    "`model` must start with finite parameters, '1.weight' contains inf as torch.float16": lambda: (
        run(model=linear_with(1e30), init="given", dtype=torch.float16)
    ),
}
TOPOLOGY_ERRORS = {
    "must be connected for nodes to agree": lambda: run(topology=DISCONNECTED),
    "must be connected for": lambda: run(topology=[DISCONNECTED, DISCONNECTED]),
}
TYPE_ERRORS = {
    "`y` must be integers": lambda: data.from_arrays(np.eye(3), [0.0, 1.0, 2.0]),
    (
        "`inputs` must be a tensor of torch.float32 or torch.uint8 or torch.int32 or torch.int",
        "got torch.int16; data.from_arrays converts",
    ): lambda: dataset(torch.zeros(2, 4, dtype=torch.int16)),
    "functions that take an Event, got [3]": lambda: run(callbacks=[3]),
}
ROWS = rows({ValueError: VALUE_ERRORS, TopologyError: TOPOLOGY_ERRORS, TypeError: TYPE_ERRORS})


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row):
    refused(*row)


GENERATOR = np.random.default_rng(0)
SAME = "`model` must return the same output for the same input"
SHAPE = "`model` cannot take examples of shape (1, 6, 6): "


def normalized(x):
    return functional.batch_norm(x, None, None, training=True) if len(x) > 1 else x


def spectral():
    return nn.utils.parametrizations.spectral_norm(nn.Linear(36, 36))


def first(layer):
    return nn.Sequential(layer, *dense())


MODELS_VALUE_ERRORS = {
    "must not contain BatchNorm1d (layer '1')": lambda: dense(
        nn.BatchNorm1d(36, track_running_stats=False)
    ),
    "examples of a minibatch independently": lambda: Applied(before=normalized),
    "examples of a minibatch": lambda: Applied(before=lambda x: x - x.mean(0)),
    "not change its buffers in evaluation, 'mean' changed": lambda: Buffered(0.1),
    "it holds a computed tensor ('twice')": lambda: Applied(part=Computed()),
    "'1.weight' has none yet; apply a lazy": lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)),
    "all its parameters, '1.weight' has none": lambda: dense().to("meta"),
    "`model` must have real parameters, 'own' is of torch.complex64": lambda: Applied(
        own=nn.Parameter(torch.zeros(1, dtype=torch.complex64))
    ),
    "must return a tensor of logits, got tuple": lambda: Applied(lambda x: (x, x)),
    "a tensor of logits, got NoneType": lambda: Applied(lambda x: None),
    "a tensor of logits, got dict": lambda: Applied(lambda x: {"logits": x}),
    "logits per example, got shape ()": lambda: Applied(lambda x: x.sum()),
    "logits per example, got shape (3,)": lambda: Applied(lambda x: x.squeeze()),
    "`model` must return at least n_classes=3 logits per example, got shape (1, 2)": lambda: (
        nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    ),
    "real logits that can be": lambda: Applied(lambda x: x.argmax(1, keepdim=True).expand(-1, 3)),
    "logits that can be differentiated, got torch.float32 with req": lambda: Applied(
        lambda x: x.detach()
    ),
    (SHAPE + "RuntimeError", "for that shape, e.g. models.logistic_regression(36, 3)"): lambda: (
        nn.Sequential(nn.Flatten(), nn.Linear(10, 3))
    ),
    "contain DataParallel (layer ''): it wraps": lambda: nn.DataParallel(dense()),
}
MODELS_TYPE_ERRORS = {
    "a module that copy.deepcopy can copy": lambda: Applied(own=threading.Lock()),
}
MODELS = rows(
    {ValueError: MODELS_VALUE_ERRORS, TypeError: MODELS_TYPE_ERRORS},
    (ValueError, SAME, lambda: Applied(before=functional.dropout)),
    (ValueError, SAME, lambda: Applied(lambda x: x + torch.randn(3))),
    (ValueError, SAME, lambda: Applied(lambda x: x + 0 * torch.rand(3))),
    (ValueError, SAME, lambda: Applied(lambda x: x * GENERATOR.random())),
    (ValueError, SHAPE + "IndexError", lambda: Applied(lambda x: x["logits"])),
    (ValueError, SHAPE + "ValueError", lambda: Applied(int)),
    (ValueError, SHAPE, lambda: nn.ModuleList([nn.Linear(36, 3)])),
)


@pytest.mark.parametrize("executor", ["auto", "looped"])
@pytest.mark.parametrize("row", MODELS, ids=named)
def test_models_are_refused(row, executor):
    error, message, build = row
    refused(error, message, lambda: run(model=build(), executor=executor))
