"""Attacked runs that the tests of robust rules share."""

import warnings

import torch

import topofl
from tests import problems
from topofl import data, topologies

MANY = topologies.random_regular(12, 5, seed=3)


def blobs(n=12):
    """Clients of three classes, in like shares, with examples for validation."""
    return data.iid(problems.dataset(n_examples=720), n, seed=0, val_fraction=0.3)


def attacked(algorithm, attack, graph=MANY, rounds=30, **settings):
    """Return the history of a run under attack, and the honest nodes' models after every round."""
    kept, honest = [], [i for i in range(graph.n) if attack is None or i not in attack.nodes]
    options = {
        "model": problems.linear(),
        "clients": blobs(graph.n),
        "every": rounds,
        "dtype": torch.float64,
    }
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # of more attackers than a method says that it tolerates
        history = topofl.run(
            algorithm,
            topology=graph,
            rounds=rounds,
            seed=0,
            attackers=attack,
            progress=False,
            callbacks=[
                problems.each_round(lambda t, models: kept.append(models.flat[honest].clone()))
            ],
            **problems.options(**options | settings),
        )
    return history, kept
