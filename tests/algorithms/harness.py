"""Runs in float64 that tests of methods share: naive nodes, models that result, known optima."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import naive, problems
from topofl import algorithms, data, mixing, tasks
from topofl._support.seeding import stream
from topofl.engine import plan

ROUNDS, SEED, BATCH, N = 3, 3, 4, 6

HEAD = "5"
"""The last layer of the convolutional model."""

WHOLE = 1000
"""More than any node's examples: whole batches."""

EXECUTORS = [{"executor": "batched"}, {"executor": "batched", "chunk": 2}, {"executor": "looped"}]

HOW = pytest.mark.parametrize("settings", EXECUTORS)


def is_head(name):
    return name.startswith("5.")


def is_body(name):
    return not is_head(name)


def members(t):
    """Return the participants of round t: a random half of the nodes."""
    return sorted(stream(SEED, "participation", t).permutation(N)[: N // 2].tolist())


def falling(t, k):
    """Return a learning rate that falls from round to round and from step to step."""
    return 0.1 / (1 + t + k)


def weights_of(graph):
    return mixing.metropolis_hastings(graph).weights.toarray()


def nodes_at_start(model, clients, init="independent"):
    """Return naive nodes with the initial models of a run."""
    modules, blobs = problems.modules_at_start(model, clients.n, init=init), clients.dataset
    return naive.Nodes(modules, blobs.inputs.double(), blobs.labels, clients.train, BATCH, SEED)


def engine(algorithm, model=None, clients=None, graph=None, *, callbacks=(), **settings):
    """Return the history and the final models of a run of the library."""
    kept = []
    usual = {"rounds": ROUNDS, "seed": SEED, "init": "independent", "dtype": torch.float64}
    history = topofl.run(
        algorithm,
        model=model or problems.linear(),
        clients=clients or problems.equal_clients(),
        topology=graph,
        callbacks=[problems.each_round(lambda t, models: kept.append(models)), *callbacks],
        **problems.options(**usual | {"on_disconnected": "allow"} | settings),
    )
    return history, kept[-1]


@contextmanager
def on_threads(count):
    """Let even small problems run on several threads."""
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "SHARED_WORK", 0)
        torch.set_num_threads(count)
        try:
            yield
            assert torch.get_num_threads() == count, "the setting was not put back"
        finally:
            torch.set_num_threads(before)


def trail(algorithm, *args, **settings):
    """Return the models after every round of a run, (rounds, n, d)."""
    kept = []
    noting = problems.each_round(lambda t, models: kept.append(models.flat.clone()))
    engine(algorithm, *args, callbacks=[noting], **settings)
    return torch.stack(kept)


def watched(algorithm, seen, phase="local"):
    """Return the algorithm; runs append the state of one of its phases per round to `seen`."""
    if phase not in algorithm.phases:
        return algorithm

    def note(models, state, round):
        if not models.flat.is_meta:
            seen.append({name: x.clone() for name, x in round.state(phase).items()})
        return state

    watch = algorithms.Phase(lambda models: {}, note)
    return replace(algorithm, phases={**algorithm.phases, f"watch_{phase}": watch})


def received(history, t):
    """Return from which nodes each node receives in a round."""
    rows = history.mixing(t).weights.tolil().rows
    return [[i for i in row if i != k] for k, row in enumerate(rows)]


def unlike_lines(n=6, examples=12):
    """Return nodes with different linear regressions, and the optimum of their mean loss."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n * examples + 1, 3)).astype(np.float32)
    own = np.arange(n * examples + 1) % n
    y = (x * rng.normal(size=(n, 3))[own]).sum(1)
    train = np.arange(n * examples)  # the last example is for evaluation
    inputs, nodes, targets = map(torch.from_numpy, (x, own, y))
    last = np.array([n * examples])
    dataset = data.Dataset(inputs, nodes, n, "lines", train, train[:0], last, targets=targets)
    clients = data.Partition(dataset, tuple(train[own[train] == i] for i in range(n)), name="lines")
    return clients, np.linalg.lstsq(x[train].astype(float), y[train], rcond=None)[0]


def distances(algorithm, rounds, topology=None, **settings):
    """Return the distance of each node's final model from the optimum of the mean loss."""
    clients, best = unlike_lines()
    usual = {"task": tasks.regression(), "seed": 0, "init": "common", "every": rounds}
    model = nn.Linear(3, 1, bias=False)
    _, models = engine(algorithm, model, clients, topology, rounds=rounds, **usual | settings)
    return np.abs(models.flat.numpy() - best).max(axis=1)
