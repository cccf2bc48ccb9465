"""Runs of PFedDST that the tests of scored peers share."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from topofl import topologies
from topofl._support.seeding import stream
from topofl.algorithms.exchanges.scored import scores
from topofl.engine.population import Layout, Population


def models_of(heads):
    """Return models whose heads are rows of (n, 6) numbers, biases last."""
    layout = Layout.of(nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 2)))
    return Population.alone(torch.cat([torch.zeros(len(heads), 4), heads], 1).double(), layout)


def fake(t=0, graph=None, n=0, **doors):
    graph = topologies.fully_connected(n) if graph is None else graph
    return SimpleNamespace(
        published=lambda values: values,
        t=t,
        peers=graph,
        rng=lambda purpose: stream(0, purpose, t),
        **doors,
    )


def drawn(n, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, 6)))


SCALED = {
    "standardize": True,
    "alpha": 1.0,
    "recency_rate": 0.3,
    "cost": 1.0,
    "header_sign": "intended",
}


def scored(losses, cosines, ages=None, candidates=None, **changes):
    """Return the scores that nodes give to others, with those of one node as a row."""
    losses, cosines = (
        torch.atleast_2d(torch.as_tensor(values, dtype=torch.float64))
        for values in (losses, cosines)
    )
    ages = torch.full_like(cosines, torch.inf) if ages is None else torch.as_tensor(ages).double()
    candidates = torch.ones_like(cosines, dtype=torch.bool) if candidates is None else candidates
    return scores(losses, cosines, ages, candidates, **SCALED | changes)
