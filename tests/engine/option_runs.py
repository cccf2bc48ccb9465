"""A small run for tests of options."""

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
        "progress": False,
    }
    return topofl.run(algorithm or algorithms.dsgd(lr=0.1, batch_size=4), **settings | changes)
