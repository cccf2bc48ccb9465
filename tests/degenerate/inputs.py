"""Runs, models and clients of the tests of degenerate inputs."""

import copy

import networkx as nx
import torch
from torch import nn

import topofl
from tests import naive, problems
from topofl import algorithms, data, topologies


def run(algorithm=None, **changes):
    """Run D-SGD or another algorithm on six equal clients for 3 rounds; return its history."""
    settings = {
        "model": problems.linear(),
        "clients": problems.equal_clients(),
        "topology": topologies.ring(6),
        "rounds": 3,
        "every": 3,
        "seed": 0,
    }
    return topofl.run(
        algorithm or algorithms.dsgd(lr=0.1, batch_size=4),
        **problems.options(**(settings | changes)),
    )


def models_of(algorithm=None, **changes):
    """Return the nodes' models, (n, d), after a run in float64 from the model's own values."""
    kept = []
    options = {
        "init": "given",
        "dtype": torch.float64,
        "callbacks": [problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
    }
    run(algorithm, **(options | changes))
    return kept[-1]


def naive_nodes(clients, model, batch_size=4):
    """Return copies of a model in float64 that are trained by loops, one per client."""
    modules = [copy.deepcopy(model).double() for _ in range(clients.n)]
    blobs = clients.dataset
    return naive.Nodes(modules, blobs.inputs.double(), blobs.labels, clients.train, batch_size, 0)


def clients_of(*train, **held):
    """Return clients with these training examples, as indices into all training examples."""
    blobs = problems.dataset()
    return data.Partition(blobs, [blobs.train[indices] for indices in train], name="mine", **held)


DISCONNECTED = nx.Graph([(0, 1), (1, 2), (2, 0)])
DISCONNECTED.add_nodes_from(range(6))
"""A triangle and three isolated nodes."""


def linear_with(value):
    """Return a linear model in which one weight has this value."""
    model = problems.linear()
    with torch.no_grad():
        model[1].weight[1, 2] = value
    return model


class Applied(nn.Module):
    """A linear layer between a function of its input and a function of its output."""

    def __init__(self, after=lambda x: x, before=lambda x: x, **parts):
        super().__init__()
        self.layer, self.before, self.after = nn.Linear(36, 3), before, after
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.after(self.layer(self.before(x.flatten(1))))
