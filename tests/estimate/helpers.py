"""Small estimates for tests."""

import importlib

import topofl
from tests import problems

ESTIMATE = importlib.import_module("topofl.estimate")
"""The module; ``topofl.estimate`` is its function."""


def need(algorithm, clients=None, graph=None, model=None, **options):
    clients = problems.equal_clients() if clients is None else clients
    graph = problems.cliques(clients) if graph is None else graph
    return topofl.estimate(
        algorithm,
        model=model or problems.linear(),
        clients=clients,
        topology=graph,
        **problems.options(**options),
    )
