"""CHOCO-SGD, BEER and DeepSqueeze obey their theorems."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.algorithms.harness import WHOLE, N, distances, engine, weights_of
from tests.rows.methods import COMPRESSORS, COSINE
from topofl import algorithms, mixing, topologies
from topofl.algorithms.compressed.choco_sgd import _proven_gamma

BY_COMPRESSOR = pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
RING = topologies.ring(N)


def test_without_compression_beer_is_gradient_tracking_that_mixes_before_the_step():
    def keep(models, state, round):
        return {"models": models.flat.clone()}

    def mix(models, state, round):
        before = round.state("keep")["models"]
        mixed = before.clone()
        round.mix(round.weights, mixed)
        models.flat.add_(mixed - before)
        round.mix(round.weights, round.state("local")["tracked"])
        return state

    local = algorithms.train(algorithms.descend(algorithms.tracking(), **COSINE), batch_size=4)
    first = algorithms.Phase(lambda models: {"models": models.flat.clone()}, keep)
    diging = {"keep": first, "local": local, "mix": algorithms.Phase(lambda models: {}, mix)}
    whole = {"gamma": 1.0, "compressor": algorithms.no_compression(), "batch_size": 4}
    world = (problems.convolutional(), problems.ragged_clients(), RING)
    (_, one), (history, other) = (
        engine(algorithm, *world, rounds=6, init="common")
        for algorithm in (algorithms.beer(**COSINE, **whole), algorithms.chain("diging", **diging))
    )
    torch.testing.assert_close(one.flat, other.flat, rtol=0, atol=1e-13)
    assert (history["bytes"] == 2 * 2 * N * 8 * one.flat.shape[1]).all()


def averaging(name, graph=RING, rounds=20, **how):
    """Return models (rounds + 1, n, d) that only exchange, and what the exchange keeps of each.

    The models start apart.
    """
    kept, states = [], []

    def note(models, state, round):
        if not models.flat.is_meta:
            kept.append(models.flat.clone())
            if round.t:
                states.append({name: x.clone() for name, x in round.state("exchange").items()})
        return state

    exchange = getattr(algorithms, name)(0.1, **how).phases["exchange"]
    noted = algorithms.Phase(lambda models: {}, note)
    algorithm = algorithms.chain("averaging", note=noted, exchange=exchange)
    engine(algorithm, graph=graph, rounds=rounds + 1, every=rounds + 1)
    return torch.stack(kept), states


def apart(models):
    return ((models - models.mean(-2, keepdim=True)) ** 2).sum((-2, -1))


@BY_COMPRESSOR
@pytest.mark.parametrize("name", ["choco_sgd", "deepsqueeze"])
def test_exchanges_keep_the_mean(name, compressor):
    models, _ = averaging(name, compressor=compressor, gamma=0.3)
    mean = models.mean(1)
    torch.testing.assert_close(mean, mean[:1].expand(21, -1), rtol=0, atol=1e-13)
    assert apart(models[-1]) < 0.7 * apart(models[0])


@pytest.mark.parametrize("name", ["choco_sgd", "deepsqueeze"])
def test_without_compression_exchanges_are_powers_of_one_matrix(name):
    models, _ = averaging(name, compressor="no_compression", gamma=0.3)
    power = np.linalg.matrix_power(0.7 * np.eye(N) + 0.3 * weights_of(RING), 20)
    np.testing.assert_allclose(models[-1].numpy(), power @ models[0].numpy(), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "compressor", [algorithms.top_k(0.3), algorithms.sign(), algorithms.quantized(3)], ids=str
)
def test_deepsqueeze_sends_in_the_end_what_it_left_out(compressor):
    """What was sent is the sum of the models less the last error, which stays bounded."""
    rounds, sent = 40, []

    def spying(values, rng):
        made = compressor.apply(values, rng)
        sent.extend([made] if len(made) == N and not made.is_meta else [])
        return made

    spy = replace(compressor, apply=spying)
    models, states = averaging("deepsqueeze", rounds=rounds, compressor=spy, gamma=0.05)
    total = models[:rounds].sum(0) - torch.stack(sent[:rounds]).sum(0)
    torch.testing.assert_close(states[-1]["error"], total, rtol=0, atol=1e-11)
    left = (1 - compressor.contraction(models.shape[2])) ** 0.5
    most = left / (1 - left) * float(models.norm(dim=2).max()) * (1 + 1e-12)
    assert all(float(state["error"].norm(dim=1).max()) <= most for state in states)


def test_deepsqueeze_stays_apart_where_choco_agrees():
    """It compresses models and not differences."""
    how = {"compressor": algorithms.top_k(0.3), "gamma": 0.3, "rounds": 200}
    (squeezed, _), (choco, _) = averaging("deepsqueeze", **how), averaging("choco_sgd", **how)
    assert apart(choco[-1]) < 1e-12 * apart(choco[0])
    assert apart(squeezed[-1]) > 1e-4 * apart(squeezed[0])


@pytest.mark.parametrize("compressor", [algorithms.top_k(0.34), algorithms.quantized(1)], ids=str)
def test_beer_reaches_the_optimum_of_the_mean_loss_and_others_do_not(compressor):
    how = {"gamma": 0.5, "compressor": compressor, "batch_size": WHOLE}
    assert distances(algorithms.beer(0.1, **how), 300, topology=RING).max() < 1e-7
    for one in (algorithms.choco_sgd, algorithms.deepsqueeze):
        assert distances(one(0.1, **how), 300, topology=RING).min() > 1e-2


def test_choco_gossip_is_that_of_the_paper_which_averages_before_it_compresses():
    """It is Algorithm 1 of Koloskova, Lin, Stich and Jaggi (2020) without steps.

    Its first averaging is of zeros.
    """
    compressor = algorithms.top_k(0.3)
    models, _ = averaging("choco_sgd", rounds=30, compressor=compressor, gamma=0.3)
    apart_by = weights_of(RING) - np.eye(N)
    x, estimate = models[0].numpy().copy(), np.zeros(models[0].shape)
    kept = round(compressor.contraction(x.shape[1]) * x.shape[1])
    for each in models:
        x += 0.3 * apart_by @ estimate
        np.testing.assert_allclose(each.numpy(), x, rtol=0, atol=1e-13)
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
    models, _ = averaging("choco_sgd", rounds=rounds, compressor=compressor, gamma=gamma)
    start, middle, end = apart(models)[[0, rounds // 2, rounds]].tolist()
    assert middle < 1e-5 * start
    assert end < 1e-5 * middle


PROVEN = pytest.mark.parametrize(
    "compressor", [algorithms.top_k(0.3), algorithms.random_k(0.5)], ids=str
)


@PROVEN
def test_choco_gossip_with_the_proven_step_contracts_on_the_complete_graph(compressor):
    """It contracts by at least half of what exact estimates give, ``(1 - gamma)^2`` a round."""
    graph, rounds = topologies.fully_connected(N), 600
    models, _ = averaging("choco_sgd", graph, rounds, compressor=compressor)
    step = _proven_gamma(mixing.metropolis_hastings(graph), compressor.contraction(models.shape[2]))
    assert 0.005 < step < 0.05
    assert apart(models[-1]) < (1 - step) ** rounds * apart(models[0])


@PROVEN
def test_choco_gossip_is_within_the_bound_of_its_theorem(compressor):
    """Koloskova, Stich and Jaggi (2019) prove e_t <= (1 - rho^2 delta / 82)^t e_0.

    Gamma is proven by it; e counts how far models are from their mean, and from the estimates
    that just heard of them.
    """
    rounds = 150
    models, states = averaging("choco_sgd", rounds=rounds, compressor=compressor)
    delta, rho = compressor.contraction(models.shape[2]), topofl.metrics.spectral_gap(RING)
    estimates = torch.stack([state["estimate"] for state in states])  # after they heard of these
    errors = apart(models[:rounds]) + ((models[:rounds] - estimates) ** 2).sum((1, 2))
    bounds = (1 - rho**2 * delta / 82) ** torch.arange(rounds, dtype=torch.float64) * errors[0]
    assert (errors <= bounds * (1 + 1e-12)).all()


def test_proven_consensus_steps_are_those_of_the_theorem():
    """On a ring of 6 with weights 1/3: a gap of 1/3, and a smallest eigenvalue of -1/3."""
    rho, beta, delta = 1 / 3, 4 / 3, 0.1
    below = 16 * rho + rho**2 + 4 * beta**2 + 2 * rho * beta**2 - 8 * rho * delta
    found = _proven_gamma(mixing.metropolis_hastings(RING), delta)
    assert found == pytest.approx(rho**2 * delta / below, rel=1e-12)
