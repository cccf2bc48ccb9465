"""Runs that several tests of histories share."""

import pytest

import topofl
from tests.history.helpers import run_of
from topofl import algorithms, attacks, data, models, topologies


@pytest.fixture(scope="module")
def history():
    return run_of(
        algorithms.dsgd, topologies.one_peer_exponential(6), rounds=7, every=3, before_exchange=True
    )


@pytest.fixture(scope="module")
def timed():
    """Return a run of 6 nodes with 2 attackers and rounds of 1.5 s: 2 steps and a message."""
    clients = data.iid(data.digits(), 6, seed=0)
    dsgd = algorithms.dsgd(0.1, local_steps=2, batch_size=8)
    return topofl.run(
        algorithms.timed(dsgd, {"compute": 0.5, "delay": 0.5}),
        model=models.logistic_regression(64),
        clients=clients,
        topology=topologies.ring(6),
        rounds=4,
        seed=0,
        attackers=attacks.sign_flip([1, 4]),
        evaluation=topofl.Evaluation(every=2, before_exchange=True),
    )
