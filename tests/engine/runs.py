"""A small run with defaults that tests change."""

import numpy as np

import topofl
from tests import problems
from topofl import algorithms, topologies


def run(algorithm=None, **changes):
    settings = {
        "model": problems.linear(),
        "clients": problems.equal_clients(),
        "topology": topologies.ring(6),
        "rounds": 4,
        "seed": 0,
    } | ({} if "evaluation" in changes else {"every": 2})
    return topofl.run(
        algorithm or algorithms.dsgd(lr=0.1, batch_size=4),
        **problems.options(**(settings | changes)),
    )


def same(a, b, *names):
    """Return whether columns of two histories are equal; by default those of losses."""
    names = names or ("accuracy", "loss", "train_loss")
    return all(np.array_equal(a[name], b[name], equal_nan=True) for name in names)
