"""Runs that several tests of histories share."""

import pytest

import topofl
from tests.history.helpers import ran
from topofl import algorithms, attacks, data, models, topologies


@pytest.fixture
def history():
    return ran()


@pytest.fixture(scope="module")
def timed():
    """Return a run of 6 nodes with 2 attackers and rounds of 1.5 s: 2 steps and a message."""
    dsgd = algorithms.dsgd(0.1, local_steps=2, batch_size=8)
    return topofl.run(
        algorithms.timed(dsgd, {"compute": 0.5, "delay": 0.5}),
        model=models.logistic_regression(64),
        clients=data.iid(data.digits(), 6, seed=0),
        topology=topologies.ring(6),
        rounds=4,
        seed=0,
        attackers=attacks.sign_flip([1, 4]),
        evaluation=topofl.Evaluation(every=2, before_exchange=True),
    )
