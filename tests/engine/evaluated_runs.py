"""Runs and fine-tuning phases for tests of evaluations on clients' own sets."""

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.engine import runs
from tests.rows.runs import personal_clients
from topofl import algorithms, topologies

ROUNDS, SEED, BATCH, N = 3, 3, 4, 6

TUNED = algorithms.sgd(0.1, batch_size=BATCH, epochs=2, momentum=0.9)

EXECUTORS = [{"executor": "batched"}, {"executor": "batched", "chunk": 2}, {"executor": "looped"}]
HOW = pytest.mark.parametrize("settings", EXECUTORS)


def run(algorithm=None, **changes):
    algorithm = algorithm or algorithms.dsgd(lr=0.1, batch_size=4, momentum=0.9)
    return runs.run(algorithm, **{"clients": personal_clients(), "on": "own_test"} | changes)


def scores(module, blobs, indices):
    """Return accuracy and loss of a module on some examples."""
    indices = torch.tensor(np.asarray(indices))
    with torch.no_grad():
        logits = module(blobs.inputs[indices].double())
    right = (logits.argmax(1) == blobs.labels[indices]).double().mean()
    return float(right), float(nn.functional.cross_entropy(logits, blobs.labels[indices]))


def need(algorithm, **options):
    return topofl.estimate(
        algorithm, model=problems.linear(), clients=personal_clients(),
        topology=topologies.ring(N), **problems.options(**options),
    )  # fmt: skip


def tuned(models, round):
    """Return the models after the phase of Evaluation(fine_tune=TUNED)."""
    copies = models.like(models.flat.clone())
    TUNED.apply(copies, TUNED.init(copies), round)
    return copies
