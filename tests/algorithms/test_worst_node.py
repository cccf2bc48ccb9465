"""Worst-node methods approach the optimum of their own objectives, not that of the mean loss."""

import numpy as np
import pytest
from scipy.optimize import minimize
from torch import nn

from tests.algorithms.harness import WHOLE, N, engine, unlike_lines
from topofl import algorithms, tasks, topologies

CLIENTS, BEST = unlike_lines()
COMPLETE = topologies.fully_connected(N)


def losses_of(w):
    """Return the mean squared error of a linear regression at each node, (n,)."""
    inputs, targets = (
        x.numpy().astype(float) for x in (CLIENTS.dataset.inputs, CLIENTS.dataset.targets)
    )
    return np.array([np.mean((inputs[own] @ w - targets[own]) ** 2) for own in CLIENTS.train])


def least_worst():
    """Return the smallest possible loss of the worst node."""
    start = np.append(BEST, losses_of(BEST).max())
    above = {"type": "ineq", "fun": lambda z: z[-1] - losses_of(z[:-1])}
    return minimize(lambda z: z[-1], start, constraints=[above]).x[-1]


def trained(algorithm, rounds, graph=None):
    """Return the mean of the final models."""
    how = {"task": tasks.regression(), "seed": 0, "init": "common", "every": rounds}
    model = nn.Linear(3, 1, bias=False)
    _, models = engine(algorithm, model, CLIENTS, graph, rounds=rounds, **how)
    return models.flat.numpy().mean(0)


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "lr", "rounds"), [(6.0, 0.02, 600), (20.0, 0.3, 600)])
def test_dr_dsgd_minimizes_the_mean_of_exponential_losses(mu, lr, rounds):
    method = algorithms.dr_dsgd(lr, mu=mu, batch_size=WHOLE)
    # models of nodes differ, by an amount that falls with the step size
    wanted = minimize(lambda w: np.log(np.mean(np.exp(losses_of(w) / mu))), BEST).x
    found = trained(method, rounds, COMPLETE)
    assert np.abs(found - wanted).max() < 0.01 < 0.1 < np.abs(BEST - wanted).max()


@pytest.mark.slow
def test_ad_gda_approaches_the_least_loss_of_the_worst_node():
    method = algorithms.ad_gda(0.3, dual_lr=0.01, batch_size=WHOLE)
    least, plain = least_worst(), losses_of(BEST).max()
    assert least < 0.8 * plain
    assert least <= losses_of(trained(method, 500, COMPLETE)).max() < 1.02 * least


@pytest.mark.slow
def test_drfa_lowers_the_loss_of_the_worst_node():
    how = {"batch_size": WHOLE, "local_steps": 2}
    robust, plain = (
        losses_of(trained(algorithms.drfa(0.02, dual_lr=rate, **how), 300)).max()
        for rate in (0.001, 0.0)
    )
    assert robust < 0.92 * plain
