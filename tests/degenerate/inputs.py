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
    settings = {"model": problems.linear(), "clients": problems.equal_clients(), "seed": 0}
    settings |= {"topology": topologies.ring(6), "rounds": 3, "every": 3, "progress": False}
    algorithm = algorithm or algorithms.dsgd(lr=0.1, batch_size=4)
    return topofl.run(algorithm, **problems.options(**(settings | changes)))


def models_of(algorithm=None, **changes):
    """Return the nodes' models, (n, d), after a run in float64 from the model's own values."""
    kept = []
    keep = problems.each_round(lambda t, models: kept.append(models.flat.clone()))
    options = {"init": "given", "dtype": torch.float64, "callbacks": [keep]}
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


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, dropout=0.0):
        super().__init__()
        self.recurrent = kind(6, 5, num_layers=2, dropout=dropout, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.recurrent(x.flatten(1, 2))[0][:, -1])


class Attentive(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, dropout=dropout, batch_first=True)
        self.head = nn.Linear(36, 3)

    def forward(self, x):
        x = x.flatten(1, 2)
        return self.head(self.attention(x, x, x, need_weights=False)[0].flatten(1))


class Buffered(nn.Module):
    """A linear layer after the subtraction of a buffer, which may change."""

    def __init__(self, share):
        super().__init__()
        self.layer, self.share = nn.Linear(36, 3), share
        self.register_buffer("mean", torch.full((36,), 0.5))

    def forward(self, x):
        x = x.flatten(1)
        if self.share:
            self.mean.mul_(1 - self.share).add_(x.detach().mean(0), alpha=self.share)
        return self.layer(x - self.mean)


def dense(*layers):
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(36, 3))


class Computed(nn.Module):
    """Keeps a tensor that was computed from its parameter, as torch.nn.utils.weight_norm does."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.twice = 2 * self.weight
