"""Small histories for tests."""

import dataclasses
from functools import cache

import numpy as np

import topofl
from tests import problems
from topofl import algorithms, topologies


def run_of(algorithm, topology, **more):
    how = {"model": problems.linear(), "clients": problems.equal_clients(), "seed": 0} | more
    method = algorithm(lr=0.1, batch_size=4)
    return topofl.run(method, topology=topology, **problems.options(**how))


@cache
def ran():
    """Return a run of seven rounds over changing graphs, which no test changes."""
    graphs = topologies.one_peer_exponential(6)
    return run_of(algorithms.dsgd, graphs, rounds=7, every=3, before_exchange=True)


def trained(saving=None, rounds=3, **more):
    """Return a run with its models."""
    how = {"rounds": rounds, "saving": saving, "device": "cpu"} | more
    return run_of(algorithms.dsgd, topologies.ring(6), **how)


def assert_same(a, b):
    assert dict(a.meta) == dict(b.meta)
    for left, right in ((a.rounds, b.rounds), (a.evaluations, b.evaluations)):
        assert list(left) == list(right)
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])
            assert left[name].dtype == right[name].dtype
    np.testing.assert_array_equal(a.node_loss, b.node_loss)
    np.testing.assert_array_equal(a.matrix_of_round, b.matrix_of_round)
    for left, right in zip(a.matrices, b.matrices, strict=True):
        assert left.name == right.name
        assert (left.weights != right.weights).nnz == 0
    if a.models is not None and b.models is not None:
        np.testing.assert_array_equal(a.models.flat, b.models.flat)


def scored(**columns):
    """Return a history whose evaluations have these columns, (E, n), after rounds 0, 1, 2, ..."""
    columns = {name: np.array(values, dtype=float) for name, values in columns.items()}
    (evaluated, n), *_ = (values.shape for values in columns.values())
    rounds, times = max(evaluated - 1, 1), np.arange(evaluated)
    sent = {
        "train_loss": np.zeros(rounds),
        "messages": np.zeros(rounds),
        "bytes": np.full(rounds, 8),
    }
    usual = {"round": times, "accuracy": np.zeros((evaluated, n))}
    usual["consensus_distance"] = np.linspace(1, 0, evaluated)
    return topofl.History({}, sent, usual | columns, np.zeros((rounds, n)))


def without(name, history=None):
    """Return a history whose rounds lack a column, as those of an older version."""
    history = history or ran()
    rounds = {key: column for key, column in history.rounds.items() if key != name}
    return dataclasses.replace(history, rounds=rounds)


def runs_of(count, nodes=9):
    """Return runs with long names, rising scores, and different costs."""
    rng, found = np.random.default_rng(1), {}
    for k in range(count):
        scores = 0.8 * (1 - np.exp(-np.arange(5) / (1 + k / 6)))[:, None] * np.ones(nodes)
        run = scored(accuracy=scores + rng.normal(0, 0.02, (5, nodes)))
        sent = {**run.rounds, "bytes": np.full(4, 10**6 * (1 + k))}
        found[f"small_world(n=100, k={k}, p=0.25)"] = dataclasses.replace(run, rounds=sent)
    return found


NAN = np.nan

ACCURACY = [[0.125, 0.25, NAN], [0.875, 0.75, NAN], [1.0, 0.625, NAN], [0.375, 0.5, NAN]]

VALIDATION = [[0.5, 0.0, 0.4], [0.2, 0.6, 0.4], [0.5, 0.6, 0.1], [0.4, 0.1, 0.2]]

SCORES = np.sort(np.random.default_rng(0).random((4, 11)), axis=0)

RUN = scored(accuracy=SCORES)

KINDS = [
    ("band", {}),
    ("violin", {}),
    ("violin", {"at": [0, 2]}),
    ("nodes", {}),
    ("nodes", {"x": "rank"}),
    ("pareto", {}),
]
"""Kinds of plots, with options."""
