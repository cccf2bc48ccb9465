"""What recommendations and predictions refuse."""

import numpy as np
import pytest
import torch

from tests.refusals import named, refused, rows
from topofl import TopologyError, advice, data, from_edges, models, topologies

CLIENTS = data.shards(data.digits(), n=12, per_node=2, seed=0)
RING, MODEL = topologies.ring(12), models.logistic_regression(64)
LEAVING = from_edges([(i, (i + 1) % 12) for i in range(12)] + [(0, 2)], 12, directed=True)
"""A directed ring with a shortcut: node 2 averages over more nodes than it sends to."""


def recommend(clients=CLIENTS, **arguments):
    return topologies.recommend(clients, **arguments)


def two(**arguments):
    return recommend(max_degree=2, **arguments)


def predict(graph=RING, **options):
    return advice.predict_rounds(graph, CLIENTS, **options)


def unlabeled():
    numbers = data.from_arrays(np.eye(40), targets=np.arange(40.0))
    return recommend(data.iid(numbers, n=4, seed=0), max_degree=2)


TYPE_ERRORS = {
    "`max_degree` must be an integer": lambda: recommend(max_degree=2.5),
    "`model` must be a torch.nn.Module": lambda: two(model="mlp"),
    "`model` must be a torch": lambda: recommend(max_bytes=2, model=torch.nn.Flatten()),
    ("must have class labels", "predicted_deviation", "gradients"): unlabeled,
    "`clients` must be a Partition or": lambda: recommend(7, max_degree=2),
    "`graph` must be": lambda: predict("ring"),
    "`clients` must be a Partition": lambda: advice.predict_rounds(RING, 12),
}

VALUE_ERRORS = {
    ("exactly one of", "got none"): lambda: recommend(),
    "got max_degree and max_messages": lambda: two(max_messages=50),
    "`max_degree` must be at least 1": lambda: recommend(max_degree=0),
    "`model` must be given for `max_bytes`": lambda: recommend(max_bytes=10**6),
    "`lr` must be": lambda: two(lr=-1.0),
    "`rounds` must be at least 1, got 0": lambda: two(rounds=0),
    "`hops` must be at least 1, got 0": lambda: two(hops=0),
    "`seed` must be at least 0": lambda: two(seed=-1),
    "`directed` must be": lambda: two(directed="yes"),
    "at least 2 nodes, got 1": lambda: recommend([[3, 4]], max_degree=2),
    "at least one example": lambda: recommend([[3, 4], [0, 0]], max_degree=2),
    ("n=12 for a strongly connected", "static=False needs less"): (
        lambda: recommend(max_messages=2, static=True, directed=True)
    ),
    "got 12 rows, ": lambda: predict(topologies.ring(20)),
    ("`hops` must be 10 or 20, ", "got 7"): lambda: predict(hops=7),
    "`hops` must be a number": lambda: predict(hops="inf"),
    "`batch_size` must be at least 1, got 0": lambda: predict(batch_size=0),
}

APART = topologies.random_cliques(12, clique_size=6, seed=0)
GRAPH_ERRORS = {
    "weights that connect all nodes": lambda: predict(LEAVING),
    "doubly stochastic weights that connect all nodes": lambda: predict(APART),
}

ROWS = rows({TypeError: TYPE_ERRORS, ValueError: VALUE_ERRORS, TopologyError: GRAPH_ERRORS})


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row):
    refused(*row)


LEAST = [
    ({"static": True}, "max_degree", 2, "a connected undirected static"),
    ({"static": True, "directed": True}, "max_degree", 1, "`max_degree` must be at least 1"),
    ({}, "max_degree", 1, "`max_degree` must be at least 1"),
    ({"static": True}, "max_messages", 22, "2(n-1)=22 for a connected undirected static"),
    ({"static": True, "directed": True}, "max_messages", 12, "n=12 for a strongly connected"),
    ({}, "max_messages", 2, "at least 2 for a time-varying graph of 12 nodes, got 1"),
    ({"directed": True}, "max_messages", 2, "at least 2 for a time-varying"),
    ({"model": MODEL}, "max_bytes", 5200, "2 messages of 2,600 bytes = 5200 for a time-varying"),
    ({"static": True, "model": MODEL}, "max_bytes", 57200, "2(n-1) messages of 2,600 bytes"),
]


@pytest.mark.parametrize(("options", "name", "least", "message"), LEAST)
def test_less_than_the_least_budget_is_refused(options, name, least, message):
    parts = f"`{name}` must be at least", str(least), message
    refused(ValueError, parts, lambda: recommend(**options, **{name: least - 1}))


@pytest.mark.parametrize(("options", "name", "least", "message"), LEAST)
@pytest.mark.slow
def test_the_least_budget_has_a_graph(options, name, least, message):
    assert recommend(**options, **{name: least}).candidates
