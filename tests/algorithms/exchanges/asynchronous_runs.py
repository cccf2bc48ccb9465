"""Graphs and runs that the tests of asynchronous methods share."""

import topofl
from tests import problems
from topofl import data


def run(algorithm, rounds, graph, clients=None, **settings):
    clients = clients or data.iid(problems.dataset(), graph.n, seed=0)
    return topofl.run(
        algorithm, model=problems.linear(), clients=clients, topology=graph, rounds=rounds, seed=0,
        **problems.options(**{"every": rounds} | settings),
    )  # fmt: skip
