"""CHOCO gossip averages linearly, within the bounds of its theorem."""

import numpy as np
import pytest
import torch

import topofl
from tests.algorithms.compressed.test_compressed import apart, averaging
from tests.algorithms.harness import N
from topofl import algorithms, mixing, topologies
from topofl.algorithms.compressed.choco_sgd import _proven_gamma


def test_choco_gossip_is_that_of_the_paper_which_averages_before_it_compresses():
    """It is Algorithm 1 of Koloskova, Lin, Stich and Jaggi (2020) without steps.

    Its first averaging is of zeros.
    """
    gamma = 0.3
    rounds = 30
    compressor = algorithms.top_k(0.3)
    models, _ = averaging(
        algorithms.choco_sgd(0.1, compressor=compressor, gamma=gamma), topologies.ring(N), rounds
    )
    apart_by = mixing.metropolis_hastings(topologies.ring(N)).weights.toarray() - np.eye(N)
    x = models[0].numpy().copy()
    estimate = np.zeros(models[0].shape)
    kept = round(compressor.contraction(x.shape[1]) * x.shape[1])
    for t in range(rounds + 1):
        x += gamma * apart_by @ estimate
        np.testing.assert_allclose(models[t].numpy(), x, rtol=0, atol=1e-13)
        places = np.argsort(-abs(x - estimate), axis=1)[:, :kept]
        np.put_along_axis(estimate, places, np.take_along_axis(x, places, axis=1), axis=1)


@pytest.mark.parametrize(
    ("compressor", "gamma", "rounds"),
    [
        (algorithms.top_k(0.3), 0.4, 200),
        (algorithms.random_k(0.3), 0.3, 200),
        (algorithms.quantized(7), 0.9, 100),
    ],
    ids=str,
)
def test_choco_gossip_averages_linearly(compressor, gamma, rounds):
    """The distance falls by over 1e5 in each half of the rounds, far below what is compressed."""
    models, _ = averaging(
        algorithms.choco_sgd(0.1, compressor=compressor, gamma=gamma), topologies.ring(N), rounds
    )
    start, middle, end = apart(models)[[0, rounds // 2, rounds]].tolist()
    assert middle < 1e-5 * start
    assert end < 1e-5 * middle


@pytest.mark.parametrize("compressor", [algorithms.top_k(0.3), algorithms.random_k(0.5)], ids=str)
def test_choco_gossip_with_the_proven_step_contracts_on_the_complete_graph(compressor):
    """It contracts by at least half of what exact estimates give, ``(1 - gamma)^2`` a round."""
    graph, rounds = topologies.fully_connected(N), 600
    models, _ = averaging(algorithms.choco_sgd(0.1, compressor=compressor), graph, rounds)
    step = _proven_gamma(mixing.metropolis_hastings(graph), compressor.contraction(models.shape[2]))
    assert 0.005 < step < 0.05
    assert apart(models[-1]) < (1 - step) ** rounds * apart(models[0])


@pytest.mark.parametrize("compressor", [algorithms.top_k(0.3), algorithms.random_k(0.5)], ids=str)
def test_choco_gossip_is_within_the_bound_of_its_theorem(compressor):
    """Koloskova, Stich and Jaggi (2019) prove e_t <= (1 - rho^2 delta / 82)^t e_0.

    Gamma is proven by it; e counts how far models are from their mean, and from the estimates
    that just heard of them.
    """
    graph, rounds = topologies.ring(N), 150
    models, states = averaging(algorithms.choco_sgd(0.1, compressor=compressor), graph, rounds)
    delta = compressor.contraction(models.shape[2])
    rho = topofl.metrics.spectral_gap(graph)
    estimates = torch.stack(
        [state["estimate"] for state in states]
    )  # after they heard of these models
    errors = apart(models[:rounds]) + ((models[:rounds] - estimates) ** 2).sum((1, 2))
    bounds = (1 - rho**2 * delta / 82) ** torch.arange(rounds, dtype=torch.float64) * errors[0]
    assert (errors <= bounds * (1 + 1e-12)).all()


def test_proven_consensus_steps_are_those_of_the_theorem():
    """On a ring of 6 with weights 1/3: a gap of 1/3, and a smallest eigenvalue of -1/3."""
    weights = mixing.metropolis_hastings(topologies.ring(6))
    rho = 1 / 3
    beta = 4 / 3
    delta = 0.1
    wanted = (
        rho**2 * delta / (16 * rho + rho**2 + 4 * beta**2 + 2 * rho * beta**2 - 8 * rho * delta)
    )
    assert _proven_gamma(weights, delta) == pytest.approx(wanted, rel=1e-12)
