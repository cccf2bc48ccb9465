"""Runs, clients and fine-tuning phases for tests of evaluation stages."""

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.engine import killed
from topofl import algorithms, data, topologies
from topofl.engine.checkpoint import rounds_in

ROUNDS, SEED, BATCH, N = 3, 3, 4, 6


TUNED = algorithms.sgd(0.1, batch_size=BATCH, epochs=2, momentum=0.9)


HOW = pytest.mark.parametrize(
    "settings",
    [{"executor": "batched"}, {"executor": "batched", "chunk": 2}, {"executor": "looped"}],
)


def personal_clients(test_fraction=0.3, val_fraction=0.2, n=N):
    return data.iid(
        problems.dataset(), n, seed=0, test_fraction=test_fraction, val_fraction=val_fraction
    )


def run(algorithm=None, **changes):
    settings = {
        "model": problems.linear(),
        "clients": personal_clients(),
        "topology": topologies.ring(N),
        "rounds": 4,
        "every": 2,
        "seed": 0,
        "on": "own_test",
    }
    return topofl.run(
        algorithm or algorithms.dsgd(lr=0.1, batch_size=4, momentum=0.9),
        **problems.options(**(settings | changes)),
    )


def scores(module, blobs, indices):
    """Return accuracy and loss of a module on some examples."""
    indices = torch.tensor(np.asarray(indices))
    with torch.no_grad():
        logits = module(blobs.inputs[indices].double())
    right = (logits.argmax(1) == blobs.labels[indices]).double().mean()
    return float(right), float(nn.functional.cross_entropy(logits, blobs.labels[indices]))


def arguments(**changes):
    return killed.settings("dsgd over a period") | {"fine_tune": TUNED, "every": 2} | changes


class Stop(Exception):
    pass


def stopped(folder, at, **changes):
    def callback(event):
        if (event.kind, event.round) == ("round", at):
            raise Stop

    with pytest.raises(Stop):
        topofl.run(
            **problems.options(saving=topofl.Saving(folder, every=1), **arguments(**changes)),
            callbacks=[callback],
        )
    assert rounds_in(folder)[-1] == at


def need(algorithm, **options):
    clients = personal_clients()
    return topofl.estimate(
        algorithm,
        model=problems.linear(),
        clients=clients,
        topology=topologies.ring(N),
        **problems.options(**options),
    )


def tuned(models, round):
    """Return the models after the phase of Evaluation(fine_tune=TUNED)."""
    copies = models.like(models.flat.clone())
    TUNED.apply(copies, TUNED.init(copies), round)
    return copies
