"""Runs of methods and of their naive loops in float64, and comparisons of the two."""

import pytest
import torch

import topofl
from tests import naive, problems
from tests.engine.test_equivalence import modules_at_start
from topofl._support.seeding import stream

ROUNDS, SEED, BATCH, N = 3, 3, 4, 6


HEAD = "5"


LOCAL = [
    {"momentum": 0.9},
    {"momentum": 0.5, "weight_decay": 0.01, "clip": 0.5, "lr_decay": 0.8},
]


def is_head(name):
    """Return whether a parameter belongs to the last layer of the convolutional model."""
    return name.startswith("5.")


def is_body(name):
    return not is_head(name)


def members(t):
    """Return the participants of round t: a random half of the nodes."""
    return sorted(stream(SEED, "participation", t).permutation(N)[: N // 2].tolist())


def nodes_at_start(model, clients):
    """Return naive nodes with the initial models of a run."""
    blobs = clients.dataset
    modules = modules_at_start(model, clients.n)
    return naive.Nodes(modules, blobs.inputs.double(), blobs.labels, clients.train, BATCH, SEED)


def engine(algorithm, model, clients, graph=None, **settings):
    """Return the history and the final models of a run of the library."""
    kept = []
    history = topofl.run(
        algorithm,
        model=model,
        clients=clients,
        topology=graph,
        rounds=ROUNDS,
        seed=SEED,
        init="independent",
        callbacks=[problems.each_round(lambda t, models: kept.append(models))],
        **problems.options(dtype=torch.float64, on_disconnected="allow", **settings),
    )
    return history, kept[-1]


def check(wanted, got, start):
    """Assert that models are equal up to rounding, and differ from the initial ones."""
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)
    assert not torch.allclose(got, start, atol=1e-4), "nothing was trained"


EXECUTORS = [{"executor": "batched"}, {"executor": "batched", "chunk": 2}, {"executor": "looped"}]


MAKES = [problems.equal_clients, problems.ragged_clients]


HOW = pytest.mark.parametrize("settings", EXECUTORS)


CLIENTS = pytest.mark.parametrize("make", MAKES)


PAIRS = problems.paired(settings=EXECUTORS, make=MAKES, local=LOCAL)
"""Every two of executor, clients and settings meet.

All three do for :func:`test_dfedavgm_and_its_personal_kin`.
"""
