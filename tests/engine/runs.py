"""A small run with defaults that tests change."""

import networkx as nx
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
        "every": 2,
        "seed": 0,
    }
    return topofl.run(
        algorithm or algorithms.dsgd(lr=0.1, batch_size=4),
        **problems.options(**(settings | changes)),
    )


def same(a, b):
    return all(
        np.array_equal(a[name], b[name], equal_nan=True)
        for name in ("accuracy", "loss", "train_loss")
    )


def weighted_ring(n=6):
    graph = nx.Graph()
    graph.add_weighted_edges_from((i, (i + 1) % n, (0.1, 0.4)[i % 2]) for i in range(n))
    return graph
