"""Problems with known optima, and distances of models from them."""

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.algorithms.harness import ROUNDS
from topofl import algorithms, data, tasks

WHOLE = 1000
"""More than any node's examples: whole batches."""


RATES = [
    algorithms.constant(0.1),
    algorithms.cosine(0.2, rounds=ROUNDS),
    lambda t, k: 0.1 / (1 + t + k),
]


BY_RATE = pytest.mark.parametrize("lr", RATES)


def watched(algorithm, seen):
    """Return the algorithm; runs append the state of its first phase per round to `seen`."""

    def note(models, state, round):
        if not models.flat.is_meta:
            seen.append({name: x.clone() for name, x in round.state("local").items()})
        return state

    return algorithms.chain(
        "watched", **algorithm.phases, watch=algorithms.Phase(lambda models: {}, note)
    )


def unlike_lines(n=6, examples=12):
    """Return nodes with different linear regressions, and the optimum of their mean loss."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n * examples + 1, 3)).astype(np.float32)
    own = np.arange(n * examples + 1) % n
    y = (x * rng.normal(size=(n, 3))[own]).sum(1)
    train = np.arange(n * examples)  # the last example is for evaluation
    dataset = data.Dataset(
        torch.from_numpy(x),
        torch.from_numpy(own),
        n,
        "lines",
        train,
        train[:0],
        np.array([n * examples]),
        targets=torch.from_numpy(y),
    )
    clients = data.Partition(dataset, tuple(train[own[train] == i] for i in range(n)), name="lines")
    return clients, np.linalg.lstsq(x[train].astype(float), y[train], rcond=None)[0]


def distances(algorithm, rounds, **settings):
    """Return the distance of each node's final model from the optimum of the mean loss."""
    clients, best = unlike_lines()
    kept = []
    topofl.run(
        algorithm,
        model=nn.Linear(3, 1, bias=False),
        clients=clients,
        rounds=rounds,
        seed=0,
        task=tasks.regression(),
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **problems.options(dtype=torch.float64, every=rounds, **settings),
    )
    return np.abs(kept[-1].numpy() - best).max(axis=1)
