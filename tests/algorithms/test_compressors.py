"""Compressors contract as they declare, are unbiased or not, and count what they send."""

import math

import numpy as np
import pytest
import torch

from tests import naive
from topofl import algorithms, config
from topofl._support.seeding import stream
from topofl.algorithms.exchanges import compressors
from topofl.algorithms.exchanges.compressors import (
    Compressor,
    check_compressor,
    check_messages,
    message_bytes,
)


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
def test_values_stay_as_they_are_and_results_are_new(name):
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(1))
    before = x.clone()
    made = ALL[name].apply(x, rng())
    assert made.data_ptr() != x.data_ptr()
    assert torch.equal(x, before)
    assert (made.shape, made.dtype) == (x.shape, x.dtype)


@EVERY
def test_a_generator_decides(name):
    x = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    assert torch.equal(ALL[name].apply(x, rng()), ALL[name].apply(x, rng()))
    differs = not torch.equal(ALL[name].apply(x, rng(0)), ALL[name].apply(x, rng(1)))
    assert differs == (name in DRAWING)


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


@EVERY
def test_compressors_run_on_meta_tensors(name):
    made = ALL[name].apply(torch.empty(3, 20, device="meta"), rng())
    assert (made.is_meta, made.shape) == (True, (3, 20))


def test_shares_are_counted_as_decimals():
    """0.1 * 30 is a little more than 3 in floating point."""
    x = torch.randn(1, 30, generator=torch.Generator().manual_seed(0))
    for compressor in (algorithms.top_k(0.1), algorithms.random_k(0.1)):
        assert int((compressor.apply(x, rng()) != 0).sum()) == 3
        assert compressor.contraction(30) == pytest.approx(0.1)


def test_signs_of_zeros_are_sent_as_those_of_positive_numbers():
    made = algorithms.sign().apply(torch.tensor([[0.0, -4.0, 2.0]]), rng())
    assert made.tolist() == [[2.0, -2.0, 2.0]]


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
        ("top_k(0.2)", algorithms.top_k(0.2)),
        ("top_k(share=0.2)", algorithms.top_k(0.2)),
        ("random_k(0.2)", algorithms.random_k(0.2)),
        ("sign", algorithms.sign()),
        ("sign()", algorithms.sign()),
        ("quantized(7)", algorithms.quantized(7)),
    ],
)
def test_text_stands_for_compressors(text, wanted):
    made, values = check_compressor(text), torch.randn(3, 40, dtype=torch.float64)
    assert str(made) == str(wanted)
    assert torch.equal(*(one.apply(values, np.random.default_rng(0)) for one in (made, wanted)))


def test_a_configuration_names_compressors():
    method = {"name": "choco_sgd", "lr": 0.1, "compressor": "quantized(levels=7)", "gamma": 0.3}
    built = config.build(
        {
            "data": {"name": "digits", "partition": "shards", "n": 10},
            "topology": "ring,n=10",
            "algorithm": method,
            "run": {"rounds": 1, "seed": 0},
        }
    )
    assert built.algorithm.settings["exchange"]["compressor"] == "quantized(levels=7)"
    assert config.build(built.tables).algorithm.settings == built.algorithm.settings


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
