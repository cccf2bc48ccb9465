"""Compressors contract as they declare, and CHOCO-SGD, BEER and DeepSqueeze obey their theorems."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import WHOLE, N, distances, engine, weights_of
from tests.rows.methods import COMPRESSORS, COSINE
from topofl import algorithms, mixing, topologies
from topofl._support.seeding import stream
from topofl.algorithms.compressed import _proven_gamma
from topofl.algorithms.exchanges import compressors
from topofl.algorithms.exchanges.compressors import (
    Compressor,
    check_compressor,
    check_messages,
    message_bytes,
)

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "compressor",
    [algorithms.top_k(0.34), pytest.param(algorithms.quantized(1), marks=pytest.mark.slow)],
    ids=str,
)
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


def rng(key=0):
    return stream(0, "compressors", key)


ALL = {
    "top 1 of 10": algorithms.top_k(0.1),
    "top half": algorithms.top_k(0.5),
    "random tenth": algorithms.random_k(0.1),
    "random 0.9": algorithms.random_k(0.9),
    "sign": algorithms.sign(),
    "1 level": algorithms.quantized(1),
    "7 levels": algorithms.quantized(7),
    "1000 levels": algorithms.quantized(1000),
    "none": algorithms.no_compression(),
}


EVERY = pytest.mark.parametrize("name", ALL)


DRAWING = ["random tenth", "random 0.9", "1 level", "7 levels", "1000 levels"]


NAMES = ["top 1 of 10", "top half", "random tenth", "random 0.9", "sign", "7 levels"]


def vectors(d, dtype=torch.float64):
    """Return vectors by kind, (1, d): those on which compressors do worst among them."""
    normal = torch.randn(d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kinds = {
        "random": normal,
        "heavy tails": normal**5,
        "one number": torch.eye(d, dtype=torch.float64)[d // 2] * -3,
        "a tenth": normal * (torch.arange(d) % 10 == 0),
        "constant": torch.full((d,), -0.7, dtype=torch.float64),
        "alternating": torch.ones(d, dtype=torch.float64) * (1 - 2 * (torch.arange(d) % 2)),
        "half way between levels": torch.full((d,), 1.0, dtype=torch.float64).index_fill(
            0, torch.tensor([0]), 100.0
        ),
        "falling": 2.0 ** -torch.arange(d, dtype=torch.float64),
        "large": normal * 1e15,
        "small": normal * 1e-15,
        "zero": torch.zeros(d, dtype=torch.float64),
    }
    return {kind: x.to(dtype)[None] for kind, x in kinds.items()}


def squares(x):
    return (x.double() ** 2).sum(1)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 2, 30, 257])
def test_compressors_contract_by_what_they_declare(name, d, dtype):
    """The mean over 400 draws may exceed the bound by 5 standard errors and by rounding."""
    compressor = ALL[name]
    delta = compressor.contraction(d)
    assert 0 < delta <= 1
    draws = 400 if name in DRAWING else 1
    for kind, x in vectors(d, dtype).items():
        made = compressor.apply(x.expand(draws, d), rng())
        errors = squares(made.double() - x.double()) / squares(x).clamp(min=1e-300)
        slack = 5 * float(errors.std()) / math.sqrt(draws) if draws > 1 else 0.0
        assert float(errors.mean()) <= 1 - delta + slack + 1e-6, kind


@pytest.mark.parametrize(
    ("compressor", "kind"),
    [(algorithms.top_k(0.1), "constant"), (algorithms.sign(), "one number")],
    ids=["top_k", "sign"],
)
def test_declared_contractions_are_reached(compressor, kind):
    """The top k of equally large numbers keep k / d, the signs of a single number 1 / d."""
    x = vectors(40)[kind]
    error = squares(compressor.apply(x, rng()) - x) / squares(x)
    assert float(error) == pytest.approx(1 - compressor.contraction(40), rel=1e-12)


@EVERY
def test_unbiased_compressors_are_unbiased_up_to_a_factor(name):
    """The mean of 4000 draws is within 5 standard errors, or far from any multiple.

    The numbers have unlike magnitudes.
    """
    compressor, x = (
        ALL[name],
        torch.tensor([[4.0, -3.0, 2.0, 1.0, 0.5, 0.25, -0.1, 0.05]], dtype=torch.float64),
    )
    made = compressor.apply(x.expand(4000, 8), rng())
    mean, error = made.mean(0), made.std(0) / math.sqrt(4000)
    factor = float((mean * x[0]).sum() / (x[0] ** 2).sum())
    assert (((mean - factor * x[0]).abs() <= 5 * error + 1e-12).all()) == compressor.unbiased


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 5])
def test_equals_the_loop_over_rows(name, n):
    x = torch.randn(n, 41, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wanted = naive.compressed(ALL[name], list(x), rng())
    torch.testing.assert_close(ALL[name].apply(x, rng()), torch.stack(wanted), rtol=0, atol=1e-14)


@EVERY
def test_results_are_new_and_a_generator_decides(name):
    x = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    before, (made, again, other) = x.clone(), (ALL[name].apply(x, rng(key)) for key in (0, 0, 1))
    assert made.data_ptr() != x.data_ptr()
    assert torch.equal(x, before)
    assert (made.shape, made.dtype) == (x.shape, x.dtype)
    assert torch.equal(made, again)
    assert torch.equal(made, other) == (name not in DRAWING)
    empty = ALL[name].apply(torch.empty(3, 20, device="meta"), rng())
    assert (empty.is_meta, empty.shape) == (True, (3, 20))


@pytest.mark.parametrize("name", [*NAMES, "none"])
def test_rows_in_blocks_are_those_in_one_piece(name, monkeypatch):
    x = torch.randn(7, 50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    whole = ALL[name].apply(x, rng())
    monkeypatch.setattr(compressors, "BLOCK", 120)  # 2 rows
    assert torch.equal(ALL[name].apply(x, rng()), whole)


@pytest.mark.parametrize("name", [name for name in ALL if name != "none"])
def test_rows_with_nan_stay_nan_and_do_not_affect_others(name):
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(1))
    wanted = ALL[name].apply(x, rng())
    x[1] = torch.nan
    made = ALL[name].apply(x, rng())
    assert made[1].isnan().any()
    assert torch.equal(made[[0, 2]], wanted[[0, 2]])


def test_shares_are_counted_as_decimals():
    """0.1 * 30 is a little more than 3 in floating point."""
    x = torch.randn(1, 30, generator=torch.Generator().manual_seed(0))
    for compressor in (algorithms.top_k(0.1), algorithms.random_k(0.1)):
        assert int((compressor.apply(x, rng()) != 0).sum()) == 3
        assert compressor.contraction(30) == pytest.approx(0.1)


def test_random_places_differ_from_row_to_row_and_are_equally_likely():
    kept = algorithms.random_k(0.25).apply(torch.ones(4000, 8), rng())
    assert not torch.equal(kept[0], kept[1])
    assert (kept.sum(1) == 2).all()
    np.testing.assert_allclose(kept.mean(0).numpy(), 0.25, atol=5 * math.sqrt(0.25 * 0.75 / 4000))


@pytest.mark.parametrize(
    ("compressor", "d", "itemsize", "wanted"),
    [
        (algorithms.top_k(0.01), 1000, 4, 10 * 4 + 13),  # 10 places of 10 bits are 100 bits
        (algorithms.top_k(0.01), 1025, 8, 11 * 8 + 16),  # 11 places of 11 bits are 121 bits
        (algorithms.top_k(0.5), 1000, 4, 500 * 4 + 125),  # a bit a number is less
        (algorithms.random_k(0.01), 1000, 4, 10 * 4 + 8),
        (algorithms.sign(), 1000, 4, 4 + 125),
        (algorithms.sign(), 1001, 8, 8 + 126),
        (algorithms.quantized(1), 1000, 4, 4 + 250),  # 3 values: 2 bits
        (algorithms.quantized(3), 1000, 4, 4 + 375),  # 7 values: 3 bits
        (algorithms.quantized(4), 1001, 8, 8 + 501),  # 9 values: 4 bits
        (algorithms.quantized(7), 1000, 4, 4 + 500),  # 15 values: 4 bits
        (algorithms.no_compression(), 1000, 4, 4000),
    ],
    ids=str,
)
def test_message_sizes_on_small_examples(compressor, d, itemsize, wanted):
    assert compressor.nbytes(d, itemsize) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("top_k(share=0.2)", algorithms.top_k(0.2)),
        ("random_k(0.2)", algorithms.random_k(0.2)),
        ("sign", algorithms.sign()),
        ("quantized(7)", algorithms.quantized(7)),
    ],
)
def test_text_stands_for_compressors(text, wanted):
    made, values = check_compressor(text), torch.randn(3, 40, dtype=torch.float64)
    assert str(made) == str(wanted)
    assert torch.equal(*(one.apply(values, np.random.default_rng(0)) for one in (made, wanted)))


def test_numbers_of_numpy_are_numbers():
    typed = Compressor(
        "mine",
        lambda values, rng: 0.5 * values,
        lambda d, itemsize: np.int64(2 * d),
        lambda d: np.float32(0.5),
        False,
    )
    values = torch.ones(3, 10)
    check_messages(typed, values)
    assert type(message_bytes(typed, values)) is int


@pytest.mark.parametrize("d", [1, 7, 650, 200_000])
@pytest.mark.parametrize("name", ALL)
def test_compressors_of_the_library_pass_the_measurement(name, d):
    if ALL[name].nbytes(d, 4) <= 4 * d:
        check_messages(ALL[name], torch.ones(2, d))
