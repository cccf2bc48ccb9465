"""Worst-node methods approach the optimum of their own objectives, not that of the mean loss."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

import topofl
from tests.algorithms.harness import WHOLE, N, engine, unlike_lines, watched
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


def ran(algorithm, rounds, graph=None, clients=CLIENTS, **how):
    """Return the history and the final models."""
    how |= {"task": tasks.regression(), "seed": 0, "init": "common", "every": rounds}
    return engine(algorithm, nn.Linear(3, 1, bias=False), clients, graph, rounds=rounds, **how)


def trained(algorithm, rounds, graph=None):
    """Return the mean of the final models."""
    return ran(algorithm, rounds, graph)[1].flat.numpy().mean(0)


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


def averaged_over(history, t):
    """Return the nodes whose models the server averages in a round."""
    return np.flatnonzero(history.mixing(t).weights.toarray()[0])


def test_drfa_trains_those_nodes_of_a_trace_that_are_there():
    trace = np.array([[0, 0, 1, 0, 0, 1], [1, 1, 0, 1, 0, 0]])
    history, _ = ran(algorithms.drfa(0.01, participation=algorithms.available(trace)), 6)
    for t in range(6):
        assert averaged_over(history, t).tolist() == np.flatnonzero(trace[t % 2]).tolist()


def test_drfa_fills_up_uniformly_if_too_few_shares_are_positive():
    rounds = 60  # this ascent leaves one positive share, so that 2 of 3 nodes are filled up
    history, _ = ran(algorithms.drfa(0.01, dual_lr=1e6, participation=3, local_steps=1), rounds)
    times = np.bincount(np.concatenate([averaged_over(history, t) for t in range(rounds)]))
    # each of the nodes is filled up at 2 of 5 times or more: 24, with a deviation of 3.8
    assert len(times) == N
    assert times.min() > 24 - 3 * 3.8


def with_an_infinite_loss():
    """Return nodes of which node 0 has an infinite loss in float32, by one of its examples."""
    targets = CLIENTS.dataset.targets.clone()
    targets[CLIENTS.train[0][3]] = 1e30
    return replace(CLIENTS, dataset=replace(CLIENTS.dataset, targets=targets))


@pytest.mark.parametrize("name", ["ad_gda", "drfa"])
def test_a_node_whose_loss_is_infinite_counts_as_the_worst(name):
    method, seen = getattr(algorithms, name), []
    how = {"lr": 0.1, "batch_size": 1} | ({"local_steps": 1} if name == "drfa" else {})
    ran(watched(method(**how), seen), 2, COMPLETE, with_an_infinite_loss(), dtype=torch.float32)
    if name == "drfa":
        assert seen[-1]["shares"].tolist() == [[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    else:
        assert seen[-1]["factor"][0] == 1 > seen[-1]["factor"][1:].max()


@pytest.mark.parametrize("batch_size", [1, 12])
def test_dr_dsgd_diverges_if_a_loss_is_infinite(batch_size):
    method = algorithms.dr_dsgd(0.01, batch_size=batch_size)
    with pytest.raises(topofl.DivergenceError, match="the loss of node 0 is inf"):
        ran(method, 2, COMPLETE, with_an_infinite_loss(), dtype=torch.float32)
